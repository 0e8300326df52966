"""Reviews: what a period came to for one budget, live until the review is held, then kept."""
