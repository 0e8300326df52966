"""Benchmarks: what the product measures about itself."""
