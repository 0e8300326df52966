"""The Celery app. Its settings (queues, routes, the beat schedule) stand in `config.settings`."""

import os

from celery import Celery

from config import broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

broker.install()
app = Celery("allotment")
# Both are lazy: nothing reads the settings until the app is used.
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
