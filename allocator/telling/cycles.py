"""What a span of cycles did."""

from collections.abc import Iterator
from datetime import datetime
from statistics import median, quantiles
from typing import Any

from django.db.models import Count, Sum

from allocator.models import Cycle
from allocator.telling import frame
from workloads.models import JobEvent

FIELDS = ("kind", "status", "solve_ms", "starts", "preemptions")


def summary(*, start: datetime, end: datetime) -> Iterator[str]:
    """Two lines: how many cycles of which kind, and what they decided."""
    rows = list(Cycle.objects.filter(at__gte=start, at__lte=end).values_list(*FIELDS))
    ticks = sum(kind == Cycle.Kind.TICK for kind, *_ in rows)
    yield from _plans(sorted(ms for _, _, ms, _, _ in rows), ticks)
    illegal = sum(status == Cycle.Status.ILLEGAL for _, status, *_ in rows)
    starts, stops = (sum(row[i] for row in rows) for i in (3, 4))
    yield (
        f"  They started {frame.plural(starts, 'run')}, preempted {frame.plural(stops, 'run')}, "
        f"and made {frame.plural(illegal, 'illegal plan')}."
    )


def counts(*, start: datetime, end: datetime) -> dict[str, int]:
    """Cycles by status, and starts and preemptions."""
    cycles = Cycle.objects.filter(at__gte=start, at__lte=end)
    found = dict(cycles.order_by().values_list("status").annotate(Count("pk")))
    totals = cycles.aggregate(starts=Sum("starts"), preemptions=Sum("preemptions"))
    return found | {name: total or 0 for name, total in totals.items()}


def _plans(milliseconds: list[float], ticks: int) -> Iterator[str]:
    number = len(milliseconds)
    words = f"  {frame.plural(ticks, 'tick')} and {frame.plural(number - ticks, 'replan')}"
    if number < 2:
        yield f"{words}."
        return
    high = quantiles(milliseconds, n=100)[94]
    yield f"{words}; a plan took {median(milliseconds):.0f} ms at the median, {high:.0f} at p95."


def preemptions(*, start: datetime, end: datetime, zone: Any, limit: int) -> Iterator[str]:
    """The largest preemptions by another budget, each with the numbers that decided it."""
    events = JobEvent.objects.filter(
        kind="preempted_decided", at__gte=start, at__lte=end, data__has_key="preemptor_share"
    )
    largest = events.select_related("job", "job__budget").order_by("-job__gpus", "at")[:limit]
    for event in sorted(largest, key=lambda event: (event.at, event.pk)):
        yield from _preemption(event, zone)


def _preemption(event: JobEvent, zone: Any) -> Iterator[str]:
    job, by = event.job, event.data
    when = event.at.astimezone(zone).strftime("%H:%M")
    theirs, mine = by["preemptor_share"], by["victim_share"]
    yield (
        f"  {when}  {job.budget.slug}/{job.name} ({frame.plural(job.gpus, 'GPU')}) made room for "
        f"{by['by_budget'].rsplit('/', 1)[-1]}/{by['by_name']}"
    )
    yield f"         {_level(theirs)}"
    yield f"         comes before {_level(mine)}"


def _level(share: dict[str, Any]) -> str:
    """One side of the comparison, with the division spelled out."""
    name = share["path"].rsplit("/", 1)[-1]
    part = _part(share["shares"], share["siblings_shares"])
    used = _part(share["usage"], share["siblings_usage"])
    if not share["usage"]:
        return f"{name} ({part:.0%} of the siblings' shares, none of their usage)"
    level = f"{used:.0%} of their usage = {part / used:.2f}"
    return f"{name} ({part:.0%} of the siblings' shares ÷ {level})"


def _part(amount: int, whole: int) -> float:
    return amount / whole if whole else 0.0
