"""Settings, routes and entry points. Importing it names the Celery app, so that tasks find it."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
