"""A job on one axis of time, as numbers of an SVG: waits, runs, charges, and the likely end.

Across in percent of the width, so that it fits any screen; up and down in pixels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from allocator import timesteps
from allocator.pages import charge_bars
from allocator.pages.queue import Why
from ledger.reports import ChargeLine, JobCharges
from workloads.models import Job, Run

STEPS = (15, 30, 60, 120, 240, 360, 720, 1440, 2880, 10080)  # minutes between marks
MARKS = 9
BASE, HEIGHT = 134, 36  # of the charges' bars
WIDE = 9.0  # percent of the width that a label inside a part needs


@dataclass(frozen=True)
class Part:
    """A rectangle across the axis; ``label`` only where there is room for words."""

    x: str
    width: str
    kind: str = ""  # protected, interruptible, unfunded, realtime
    number: int = 0
    seconds: int = 0
    label: bool = False


@dataclass(frozen=True)
class Bar:
    """A charge: its height is its GPU-time; the parked part of it is hollow, from the top."""

    x: str
    width: str
    y: str
    height: str
    parked: str  # height; empty where nothing was parked
    kind: str  # funded, unfunded, in_flight
    line: ChargeLine | None = None


@dataclass(frozen=True)
class Mark:
    x: str
    at: datetime
    odd: bool
    new_day: bool


@dataclass(frozen=True)
class Axis:
    """All that the picture draws."""

    marks: list[Mark]
    waits: list[Part]
    runs: list[Part]
    cuts: list[Mark]  # preemptions
    bars: list[Bar]
    bar_hours: int  # that a bar stands for; 0: each is a charge, of a timestep
    most_gpu_seconds: int  # of the tallest bar
    now: str
    now_is_late: bool  # so near the right edge that its label stands before it
    rest: str  # width of what lies ahead
    expected: Part | None
    low: str
    likely: str
    high: str
    start_low: str  # of the window in which a waiting job may start
    start_likely: str
    start_high: str


def axis(
    job: Job,
    charges: JobCharges,
    in_flight_mgpus: int,
    why: Why | None,
    ends: tuple[datetime, datetime, datetime] | None,
    *,
    now: datetime,
) -> Axis:
    """Lay a job out from its submission to its late end, or to now."""
    last = job.ended_at or max([now, *(ends or ()), *([why.high] if why and why.high else [])])
    scale = _Scale(job.submitted_at, max(last, job.submitted_at + timedelta(minutes=30)))
    runs = [run for run in job.runs.all() if run.started_at is not None]
    bar_hours, lines = charge_bars.joined(charges.lines)
    most = max(_by_start(lines).values(), default=0)
    until = min(now, scale.end)
    low, likely, high = ends or (None, None, None)
    return Axis(
        marks=list(scale.marks()),
        waits=list(_waits(job, runs, scale, now)),
        runs=[part for run in runs for part in _run(job, run, scale, now)],
        cuts=[
            Mark(scale.x(run.ended_at), run.ended_at, False, False)
            for run in runs
            if run.end_reason == Run.EndReason.PREEMPTED and run.ended_at is not None
        ],
        bars=[*_bars(lines, most, scale), *_in_flight(job, runs, most, scale, now)],
        bar_hours=bar_hours,
        most_gpu_seconds=most,
        now="" if job.has_ended else scale.x(until),
        now_is_late=scale.is_late(until),
        rest="" if job.has_ended else scale.width(until, scale.end),
        expected=scale.part(now, likely) if likely and likely > now else None,
        low=scale.x(low) if low else "",
        likely=scale.x(likely) if likely else "",
        high=scale.x(high) if high else "",
        start_low=scale.x(why.low) if why and why.low else "",
        start_likely=scale.x(why.likely) if why and why.likely else "",
        start_high=scale.x(why.high) if why and why.high else "",
    )


class _Scale:
    def __init__(self, start: datetime, end: datetime) -> None:
        margin = (end - start) / 50
        self.start, self.end = start - margin / 4, end + margin

    def _percent(self, at: datetime) -> float:
        return (at - self.start) / (self.end - self.start) * 100

    def x(self, at: datetime) -> str:
        return f"{min(100.0, max(0.0, self._percent(at))):.3f}%"

    def is_late(self, at: datetime) -> bool:
        return self._percent(at) > 100 - WIDE

    def width(self, start: datetime, end: datetime) -> str:
        a, b = max(0.0, self._percent(start)), min(100.0, self._percent(end))
        return f"{max(0.0, b - a):.3f}%"

    def part(self, start: datetime, end: datetime, kind: str = "", number: int = 0) -> Part:
        wide = self._percent(end) - self._percent(start) >= WIDE
        seconds = int((end - start).total_seconds())
        return Part(self.x(start), self.width(start, end), kind, number, seconds, wide)

    def marks(self) -> Iterator[Mark]:
        minutes = (self.end - self.start).total_seconds() / 60
        step = next((s for s in STEPS if minutes / s <= MARKS), STEPS[-1])
        local = timezone.localtime(self.start)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        passed = int((local - midnight).total_seconds() // 60)
        at = midnight + timedelta(minutes=-(-passed // step) * step)
        odd, day = False, None
        while at < self.end:
            if at >= self.start:
                yield Mark(self.x(at), at, odd, at.date() != day)
                odd, day = not odd, at.date()
            at += timedelta(minutes=step)


def _waits(job: Job, runs: list[Run], scale: _Scale, now: datetime) -> Iterator[Part]:
    since = job.submitted_at
    for run in runs:
        if run.started_at is not None and run.started_at > since:
            yield scale.part(since, run.started_at)
        since = run.ended_at or now
    if job.state in (Job.State.QUEUED, Job.State.STARTING):
        yield scale.part(since, now)
    elif job.ended_at and not runs:
        yield scale.part(since, job.ended_at)


def _run(job: Job, run: Run, scale: _Scale, now: datetime) -> Iterator[Part]:
    """Yield a run's parts: protected, interruptible, unfunded."""
    start, end = run.started_at, run.ended_at or now
    assert start is not None, "only runs that started are drawn"
    if job.is_realtime:
        yield scale.part(start, end, "realtime", run.number)
        return
    free = [h.started_at for h in run.holdings.all() if not h.funded and h.started_at is not None]
    unfunded = max(start, min([end, *free]))
    protected = min(max(run.protected_until or start, start), unfunded)
    for a, b, kind in (
        (start, protected, "protected"),
        (protected, unfunded, "interruptible"),
        (unfunded, end, "unfunded"),
    ):
        if a < b:
            yield scale.part(a, b, kind, run.number)


def _by_start(lines: Sequence[ChargeLine]) -> dict[datetime, int]:
    """GPU-seconds of the charges that begin at the same instant, funded and not."""
    sums: dict[datetime, int] = defaultdict(int)
    for line in lines:
        sums[line.start] += line.gpu_seconds
    return sums


def _bars(lines: Sequence[ChargeLine], most: int, scale: _Scale) -> Iterator[Bar]:
    """Yield a bar for each charge; what is charged at once stands one on the other."""
    below: dict[datetime, float] = defaultdict(float)
    for line in sorted(lines, key=lambda line: (line.start, not line.funded)):
        height = HEIGHT * line.gpu_seconds / most
        parked = HEIGHT * line.parked_gpu_seconds / most
        below[line.start] += height
        yield Bar(
            x=scale.x(line.start),
            width=_narrower(scale.width(line.start, line.end)),
            y=f"{BASE - below[line.start]:.1f}",
            height=f"{height:.1f}",
            parked=f"{parked:.1f}" if line.parked_gpu_seconds else "",
            kind="funded" if line.funded else "unfunded",
            line=line,
        )


def _in_flight(job: Job, runs: list[Run], most: int, scale: _Scale, now: datetime) -> Iterator[Bar]:
    """Yield what runs since the last charge, as a part of a whole timestep's."""
    live = next((run for run in runs if run.state in Run.LIVE), None)
    if live is None or live.started_at is None:
        return
    since = max(live.started_at, live.charged_until or live.started_at)
    gpus = sum(holding.gpus for holding in live.holdings.all() if holding.ended_at is None)
    seconds = int((now - since).total_seconds())
    whole = most or gpus * int(timesteps.step().total_seconds())
    if seconds <= 0 or not whole:
        return
    height = min(HEIGHT, HEIGHT * gpus * seconds / whole)
    yield Bar(
        x=scale.x(since),
        width=_narrower(scale.width(since, now)),
        y=f"{BASE - height:.1f}",
        height=f"{height:.1f}",
        parked="",
        kind="in_flight",
    )


def _narrower(width: str) -> str:
    """Leave a gap to the next bar."""
    value = float(width.rstrip("%"))
    return f"{max(0.1, value - min(0.19, value / 8)):.3f}%"
