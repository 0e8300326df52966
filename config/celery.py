"""The Celery app. Its settings (queues, routes, the beat schedule) stand in `config.settings`."""

import os

from celery import Celery
from celery.signals import worker_init

from config import broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

broker.install()
app = Celery("allotment")
# Both are lazy: nothing reads the settings until the app is used.
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_init.connect
def compile_planner(**_: object) -> None:
    """Before it takes a task, so that none has to wait; its processes are copies of this one."""
    from allocator.core.validate import CannotCompile
    from allocator.core.warm import warm

    try:
        warm()
    except CannotCompile as error:
        raise SystemExit(str(error)) from error  # any other error would only be logged
