"""Simulations that people ask for: on which jobs, under which shares, and what came of them."""
