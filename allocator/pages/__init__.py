"""What each page shows, as plain facts: read here, printed by templates, asked for by views."""
