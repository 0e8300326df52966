"""What `./run` does. Needs nothing but Python's standard library: it starts before `.venv` exists."""
