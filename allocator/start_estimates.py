"""How good estimates of a start have been: the first one of each attempt, held against the truth.

The first is what its submitter went by, and it looks the furthest ahead: later ones grow better as
the start comes near. An estimate that has been passed counts as missed although the job still
waits, so that the slow ones aren't left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import quantiles

from django.db.models import F, OuterRef, Subquery

from allocator import timesteps
from allocator.models import Outlook, StartEstimate
from workloads.models import Job, Run

LOOKS_BACK = timedelta(days=28)
MOST = 1000  # estimates of a band that are looked at, the newest first
FEWEST = 5  # that say something
HOUR_S = 3600
BANDS = ((0, HOUR_S), (HOUR_S, 6 * HOUR_S), (6 * HOUR_S, None))  # seconds ahead


@dataclass(frozen=True)
class Record:
    """What became of the estimates that looked as far ahead; counts.

    ``half_within_s`` and ``most_within_s``: seconds between the likely and the true start, at the
    50th and the 90th percentile. None of fewer than `FEWEST`.
    """

    ahead_from_s: int
    ahead_to_s: int | None
    inside: int
    sooner: int
    later: int
    half_within_s: int | None
    most_within_s: int | None

    @property
    def judged(self) -> int:
        return self.inside + self.sooner + self.later

    @property
    def says_something(self) -> bool:
        return self.judged >= FEWEST

    def percent(self, count: int) -> int:
        """A count of `judged`, in whole percent, rounded half up."""
        return (200 * count + self.judged) // (2 * self.judged) if self.judged else 0

    @property
    def inside_percent(self) -> int:
        return self.percent(self.inside)

    @property
    def sooner_percent(self) -> int:
        return self.percent(self.sooner)

    @property
    def later_percent(self) -> int:
        return self.percent(self.later)


@dataclass(frozen=True)
class _Judged:
    off_s: int  # the true start less the likely one
    missed: int  # -1: sooner than the range, 1: later


def note(outlooks: Iterable[Outlook], *, at: datetime) -> None:
    """Keep the estimates that are the first of their attempts. Three queries at most."""
    first = {
        row.job_id: _estimate(row, low, likely, high, at)
        for row in outlooks
        if (low := row.start_low) and (high := row.start_high)
        if (likely := row.start_likely) and likely > at
    }
    if not first:
        return
    waiting = StartEstimate.objects.filter(
        job__state=Job.State.QUEUED, attempt=F("job__attempt")
    ).values_list("job_id", flat=True)
    for job_id in waiting:
        first.pop(job_id, None)
    StartEstimate.objects.bulk_create([first[pk] for pk in sorted(first)], ignore_conflicts=True)


def _estimate(
    outlook: Outlook, low: datetime, likely: datetime, high: datetime, at: datetime
) -> StartEstimate:
    return StartEstimate(
        job_id=outlook.job_id,
        attempt=outlook.job.attempt,
        made_at=at,
        ahead_s=_seconds(likely, at),
        low=low,
        likely=likely,
        high=high,
    )


def record(*, ahead_s: int, now: datetime) -> Record:
    """Return how good estimates that look about so many seconds ahead have been. One query."""
    low, high = next(b for b in BANDS if b[1] is None or ahead_s < b[1])
    return _sum_up(low, high, _judged(low, high, now))


def records(*, now: datetime) -> list[Record]:
    """Return the same for each band of seconds ahead."""
    return [_sum_up(low, high, _judged(low, high, now)) for low, high in BANDS]


def record_for(outlook: Outlook | None, *, now: datetime) -> Record | None:
    """Return how good estimates like a job's have been; None where it has none."""
    if outlook is None or outlook.start_likely is None:
        return None
    return record(ahead_s=max(0, _seconds(outlook.start_likely, now)), now=now)


def _judged(low: int, high: int | None, now: datetime) -> list[_Judged]:
    run = Run.objects.filter(job=OuterRef("job"), number=OuterRef("attempt"))
    made = StartEstimate.objects.filter(made_at__gt=now - LOOKS_BACK, made_at__lte=now)
    made = made.filter(ahead_s__gte=low)
    if high is not None:
        made = made.filter(ahead_s__lt=high)
    rows = made.annotate(started_at=Subquery(run.values("started_at")[:1])).values_list(
        *("low", "likely", "high", "started_at", "attempt"),
        *("job__attempt", "job__ended_at"),
    )
    found = []
    for early, likely, late, started, attempt, present, ended in rows.order_by("-pk")[:MOST]:
        until = late + timesteps.step()  # a plan knows timesteps: the last one counts whole
        if started is not None:
            missed = -1 if started < early else int(started >= until)
            found.append(_Judged(_seconds(started, likely), missed))
        elif attempt == present and (waited := min(now, ended or now)) >= until:
            found.append(_Judged(_seconds(waited, likely), 1))
    return found


def _sum_up(low: int, high: int | None, judged: Sequence[_Judged]) -> Record:
    missed = [one.missed for one in judged]
    half = most = None
    if len(judged) >= FEWEST:
        tenths = quantiles((abs(one.off_s) for one in judged), n=10, method="inclusive")
        half, most = round(tenths[4]), round(tenths[8])
    return Record(
        ahead_from_s=low,
        ahead_to_s=high,
        inside=missed.count(0),
        sooner=missed.count(-1),
        later=missed.count(1),
        half_within_s=half,
        most_within_s=most,
    )


def _seconds(later: datetime, sooner: datetime) -> int:
    return int((later - sooner).total_seconds())
