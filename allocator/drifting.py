"""The alarm of forecasts that lost their way: raised, told, and ended by itself."""

from collections.abc import Iterator
from datetime import datetime

from django.conf import settings
from django.db import transaction

from allocator import alarms
from budgets import notices
from budgets.access import Action, holders
from budgets.models import Budget, Notice
from clusters.saying import Said, joined, per_mille, state
from clusters.saying import say as _
from forecasting.core.drifting import Drift
from forecasting.track_record import drift_of
from workloads.models import Job

KIND = "drift:"  # and the kind of job
KINDS = tuple(kind for kind in Job.Kind if kind != Job.Kind.REALTIME)


def look(*, now: datetime) -> int:
    """Raise and clear the alarms of every kind; return how many are open."""
    return sum(_look(kind, now) for kind in KINDS)


def _look(kind: Job.Kind, now: datetime) -> bool:
    found = drift_of(kind, window=settings.DRIFT_WINDOW, now=now)
    name = f"{KIND}{kind}"
    if found is None:
        return alarms.is_open(kind=name)
    if found.is_calm:
        alarms.clear(kind=name, at=now)
        return False
    if found.begins:
        _raise(name, kind, found, now)
    return alarms.is_open(kind=name)


@transaction.atomic
def _raise(name: str, kind: Job.Kind, found: Drift, now: datetime) -> None:
    text = _text(kind, found)
    alarm = alarms.raise_alarm(
        kind=name, text=text, at=now, covered=found.covered, error=found.error
    )
    # By the alarm: while it is open nobody is told twice.
    for root in Budget.objects.filter(parent=None):
        notices.tell(
            users=holders(Action.VIEW, root),
            budget=root,
            kind=Notice.Kind.DRIFT,
            text=text,
            link="/forecasts",
            key=f"drift:{alarm.pk}",
            now=now,
        )


def _text(kind: Job.Kind, found: Drift) -> Said:
    problems = [*_coverage(found), *_errors(found)]
    return _(
        "Forecasts of %(kind)s jobs: %(problems)s",
        kind=state(kind.label),
        problems=joined(problems, " "),
    )


def _coverage(found: Drift) -> Iterator[Said]:
    if found.covers_wrongly:
        yield _(
            "%(covered)s of the last %(number)s jobs ended by their 90th percentile; it should "
            "be 90 %%.",
            covered=per_mille(found.covered),
            number=found.number,
        )


def _errors(found: Drift) -> Iterator[Said]:
    if found.errs_more:
        yield _(
            "Half of the last %(number)s forecasts were more than %(error)s off; of the "
            "%(compared)s before %(before)s.",
            number=found.number,
            error=per_mille(found.error),
            compared=found.compared,
            before=per_mille(found.before or 0),
        )
