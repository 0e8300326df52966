"""What Celery runs for forecasts, on queue ``long``. Messages carry nothing that counts."""

from celery import shared_task

from config.clock import now
from forecasting import calibrating, demand_scores, looking_ahead, traffic


@shared_task(name="forecasting.tasks.look_ahead")
def look_ahead() -> int:
    """Tell anew what services will want, by the traffic that has come."""
    return looking_ahead.look_all(now=now())


@shared_task(name="forecasting.tasks.recalibrate")
def recalibrate() -> int:
    """Make services' profiles anew by night."""
    return calibrating.recalibrate_all(now=now())


@shared_task(name="forecasting.tasks.score_demand")
def score_demand() -> int:
    """Hold by night what services were forecast to want against what came."""
    return demand_scores.score_all(now=now())


@shared_task(name="forecasting.tasks.keep_traffic")
def keep_traffic() -> int:
    """Let go by night of traffic that is too old to tell anything."""
    return traffic.keep(now=now())
