"""Entry point of workers and beat: `celery -A config.worker worker`.

A wrong setting ends the process here with one sentence, before Celery starts anything.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from config.celery import app
from config.env import load_settings_or_exit

load_settings_or_exit()

__all__ = ["app"]
