"""What Celery runs. Queue ``cycle`` for what cycles: one worker, so that they follow each other.

Messages carry nothing that counts: each task asks the database what is due, so that lost, late
and doubled messages are harmless.
"""

from celery import shared_task

from allocator import ahead, cycle, drifting, keeping, requests, session_warnings, traffic_stops
from allocator.simulating import running
from budgets import notices
from config.clock import now
from forecasting import retraining


@shared_task(name="allocator.tasks.tick")
def tick() -> int | None:
    """Close the timestep that is over, and any missed before it; plan the next."""
    return _run("tick")


@shared_task(name="allocator.tasks.replan")
def replan(trigger: str = "request") -> int | None:
    """Answer the replan requests that no cycle has answered yet, all of them at once."""
    state = requests.state()
    return _run(trigger) if state.requested > state.handled else None


@shared_task(name="allocator.tasks.watch")
def watch() -> int | None:
    """Look at the clusters; plan again if something ended, is due or was left over."""
    reason = cycle.reason_to_run(at=now())
    return _run(reason) if reason is not None else None


@shared_task(name="allocator.tasks.plan_ahead")
def plan_ahead() -> int | None:
    """Full mode, on queue ``long``: a hint for the cycles that follow."""
    made = ahead.plan_ahead(at=now())
    return None if made is None else made.pk


@shared_task(name="allocator.tasks.keep_requests")
def keep_requests() -> None:
    """Expire requests and end what was given for a time, on queue ``long``."""
    keeping.keep_requests(at=now())


@shared_task(name="allocator.tasks.send_notices")
def send_notices() -> int:
    """Send the e-mails that are due, on queue ``long``; those that failed are due again later."""
    return notices.send_due(now=now())


@shared_task(name="allocator.tasks.warn_sessions")
def warn_sessions() -> int:
    """Warn of sessions that end soon, on queue ``cycle``: on ``long`` it might come too late."""
    return session_warnings.warn(now=now())


@shared_task(name="allocator.tasks.keep_checkpoints")
def keep_checkpoints() -> int:
    """Carry out checkpoints whose instant has passed, and tell of the next, on queue ``long``."""
    return keeping.keep_checkpoints(at=now())


@shared_task(name="allocator.tasks.keep_holds")
def keep_holds() -> int:
    """Release what is set aside for attempts that are over, on queue ``long``."""
    return keeping.keep_holds(at=now())


@shared_task(name="allocator.tasks.keep_statistics")
def keep_statistics() -> bool:
    """Look by night at how SQLite's rows are spread, on queue ``long``."""
    return keeping.keep_statistics()


@shared_task(name="allocator.tasks.keep_cycles")
def keep_cycles() -> int:
    """Let go by night of what old cycles saw and planned, on queue ``long``."""
    return keeping.keep_cycles(at=now())


@shared_task(name="allocator.tasks.keep_pictures")
def keep_pictures() -> int:
    """Let go by night of old simulations' pictures and trace files, on queue ``long``."""
    return keeping.keep_pictures(at=now())


@shared_task(name="allocator.tasks.keep_books")
def keep_books() -> int:
    """Prove by night that every GPU-second is accounted for, on queue ``long``."""
    return keeping.keep_books(at=now())


@shared_task(name="allocator.tasks.retrain")
def retrain() -> int:
    """Learn by night how jobs came out against physics, on queue ``long``."""
    return sum(one.switched for one in retraining.retrain_all(now=now()))


@shared_task(name="allocator.tasks.keep_forecasts")
def keep_forecasts() -> int:
    """Say where forecasts have lost their way, or traffic stopped, on queue ``long``."""
    at = now()
    return drifting.look(now=at) + traffic_stops.look(now=at)


@shared_task(name="allocator.tasks.simulate")
def simulate() -> int | None:
    """Play the simulation that has waited longest, on queue ``long``, then call for the next."""
    played = running.run_next(clock=now)
    if played is not None and running.waits():
        running.wake()
    return None if played is None else played.pk


@shared_task(name="allocator.tasks.keep_simulations")
def keep_simulations() -> int:
    """Take up simulations whose worker is lost, and those whose message is, on queue ``long``."""
    lost = running.keep(now=now())
    if running.waits():
        running.wake()
    return lost


def _run(trigger: str) -> int | None:
    made = cycle.run(at=now(), trigger=trigger)
    return None if made is None else made.pk
