"""What Celery runs for forecasts, on queue ``long``. Messages carry nothing that counts."""

from celery import shared_task

from config.clock import now
from forecasting import traffic


@shared_task(name="forecasting.tasks.keep_traffic")
def keep_traffic() -> int:
    """Let go by night of traffic that is too old to tell anything."""
    return traffic.keep(now=now())
