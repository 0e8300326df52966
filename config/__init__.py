"""Settings, routes and entry points."""
