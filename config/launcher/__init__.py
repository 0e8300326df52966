"""What `./run` does, with Python's standard library alone: it starts before `.venv` exists."""
