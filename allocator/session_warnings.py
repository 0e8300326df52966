"""Warning people before their session ends, and before its protection does, each time once.

Who had to wait for one is told when it starts: its GPUs are charged from then on.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q

from budgets.access import standing
from budgets.models import Notice
from budgets.notices import tell
from budgets.periods import active
from clusters.saying import joined
from clusters.saying import say as _
from ledger.instants import iso
from workloads.models import Run

MINUTES = (30, 10, 2)
END, PROTECTION = "end", "protection"
WAITED = timedelta(minutes=5)  # who waited less is still there
LATELY = timedelta(minutes=15)  # what started longer ago isn't told any more


def warn(*, now: datetime) -> int:
    """Tell who submitted a session that it ends in 30, 10 and 2 minutes; return how many.

    After a gap only the nearest that is still true is told. What had passed when the session
    started, or was extended last, isn't told: whoever asked for the time knows it.
    """
    running = Run.objects.filter(
        state=Run.State.RUNNING, job__session=True, job__cancel_requested_at=None
    )
    granted = Max("extensions__asked_at", filter=Q(extensions__rule=""))
    runs = list(
        running.annotate(extended_at=granted)
        .select_related("job__budget", "job__submitted_by")
        .order_by("pk")
    )
    due = [
        (run, what, at, minutes)
        for run in runs
        for what, at in borders(run)
        if (minutes := stage(at, since=_known_since(run), now=now)) is not None
    ]
    told = sum(_tell_of_start(run, now=now) for run in runs if _has_come(run, now))
    return told + sum(_warn(*one, now=now) for one in due)


def _has_come(run: Run, now: datetime) -> bool:
    """Say whether it has started lately, after a wait."""
    since = run.started_at
    return since is not None and since - run.job.submitted_at >= WAITED and now - since < LATELY


def _tell_of_start(run: Run, *, now: datetime) -> int:
    job, since, end = run.job, run.started_at, run.box_ends_at
    assert since is not None
    waited = round((since - job.submitted_at).total_seconds() / 60)
    text: str = _(
        "Session %(name)s (job %(job)s) started at %(since)s, after %(waited)s "
        "minutes in the queue: its GPUs are charged from then on, whether they are "
        "used or not.",
        name=job.name,
        job=job.pk,
        since=_told(since, now),
        waited=waited,
    )
    if end is not None:
        text = joined((text, _(" It ends at %(end)s.", end=_told(end, now))))
    return _tell(run, f"session:{run.pk}:started", text, now=now)


def borders(run: Run) -> Iterator[tuple[str, datetime]]:
    """Yield the instants to be warned of: the time box's end, and that of protection before it."""
    end = run.box_ends_at
    if end is None:
        return
    yield END, end
    until = run.protected_until
    if until is not None and run.started_at is not None and run.started_at < until < end:
        yield PROTECTION, until


def _known_since(run: Run) -> datetime:
    """When it became known that it ends when it does: its start, or its last extension."""
    since: datetime | None = getattr(run, "extended_at", None) or run.started_at
    assert since is not None, "it has a time box"
    return since


def stage(at: datetime, *, since: datetime, now: datetime) -> int | None:
    """Return how many minutes before an instant a warning is due; None if none is.

    ``since``: when it became known that the instant comes.
    """
    left = at - now
    near = [minutes for minutes in MINUTES if left <= timedelta(minutes=minutes)]
    if left <= timedelta() or not near:
        return None
    return near[-1] if at - timedelta(minutes=near[-1]) > since else None


def _warn(run: Run, what: str, at: datetime, minutes: int, *, now: datetime) -> int:
    key = f"session:{run.pk}:{what}:{iso(at)}:{minutes}"
    return _tell(run, key, text(run, what, at, now=now), now=now)


def _tell(run: Run, key: str, text: str, *, now: datetime) -> int:
    """Tell who submitted it, once for each key, as long as they see its budget; return how many."""
    job = run.job
    if Notice.objects.filter(user=job.submitted_by, key=key).exists():
        return 0
    if not standing(job.submitted_by).sees(job.budget.path):
        return 0
    with transaction.atomic():
        tell(
            users=[job.submitted_by],
            budget=job.budget,
            kind=Notice.Kind.SESSION,
            text=text,
            key=key,
            link=f"/jobs/{job.pk}",
            now=now,
        )
    return 1


def text(run: Run, what: str, at: datetime, *, now: datetime) -> str:
    """Say when it ends, what happens then, and how to go on."""
    job = run.job
    left = max(1, round((at - now).total_seconds() / 60))
    minutes = _("a minute") if left == 1 else _("%(n)s minutes", n=left)
    when = _("at %(at)s, in %(minutes)s", at=_told(at, now), minutes=minutes)
    if what == PROTECTION:
        happens = _(
            "Protection of session %(name)s (job %(job)s) ends %(when)s: it runs on, but "
            "may be preempted from then on, and what it holds in memory is lost.",
            name=job.name,
            job=job.pk,
            when=when,
        )
    else:
        happens = _(
            "Session %(name)s (job %(job)s) ends %(when)s: it is stopped, and what it "
            "holds in memory is lost.",
            name=job.name,
            job=job.pk,
            when=when,
        )
    if not job.funded:
        return _("%(happens)s It runs unfunded, so it can't be extended.", happens=happens)
    return _(
        "%(happens)s To go on, extend it on its page, or with: python3 -m client "
        "extend %(job)s 30m",
        happens=happens,
        job=job.pk,
    )


def _told(at: datetime, now: datetime) -> str:
    """The time of day in the running period's zone, named: an hour may come twice."""
    period = active(now)
    zone = ZoneInfo(period.time_zone if period else settings.ORGANISATION_TIME_ZONE)
    return f"{at.astimezone(zone):%H:%M %Z}"
