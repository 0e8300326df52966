"""A job's story from its events, told in order: one entry for each thing that happened.

Some entries are read between the events: waits, and the end of a run's protection. The words are
in `templates/workloads/_event.html`, one for each kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from allocator.pages import session_words
from allocator.pages.names import Names
from budgets.access import redacted
from budgets.models import WHOLE
from clusters.words import worded
from ledger.instants import to_seconds
from ledger.reports import JobCharges
from workloads.models import Extension, Job, JobEvent, Run

if TYPE_CHECKING:
    from allocator.pages.job import Place
    from allocator.pages.job_waits import Bound, Waits

END_KINDS = {f"run_{reason}" for reason in Run.EndReason.values}
# Kinds that only prepare what another event tells.
QUIET = {"start_decided", "cancelled_decided", "preempted_decided"}

# Waits begin with what made it wait, so they stand after it.
WAITS = {"waited", "waiting"}


@dataclass(frozen=True)
class Side:
    """One side of a comparison by level fair share; parts in thousandths of a percent."""

    name: str
    part_of_shares: int | None
    part_of_usage: int | None
    level: float | None  # None: nothing used yet, so it goes first
    inside: bool


@dataclass(frozen=True)
class Comparison:
    """Why one job's run made room for another: both budgets at their first common ancestor."""

    parent: str
    preemptor: Side
    victim: Side


@dataclass(frozen=True)
class Entry:
    """One entry of the story; what ``data`` holds depends on the kind."""

    at: datetime
    kind: str
    run: Run | None = None
    place: Place | None = None
    actor: str = ""
    seconds: int | None = None  # a wait's length, or a run's
    parked_gpu_seconds: int = 0
    comparison: Comparison | None = None
    bound: tuple[Bound, ...] = ()  # what a wait was for
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Day:
    day: date
    entries: list[Entry]


@dataclass(frozen=True)
class Story:
    """Entries by local day, in order of time."""

    days: list[Day]

    @property
    def number(self) -> int:
        return sum(len(day.entries) for day in self.days)


def story(
    job: Job,
    names: Names,
    charges: JobCharges,
    places: dict[int, Place],
    waits: Waits,
    *,
    now: datetime,
) -> Story:
    """Return the story of a job whose events and runs were fetched with it."""
    teller = _Teller(job, names, charges, places, waits, now)
    entries = sorted(teller.entries(), key=lambda entry: (entry.at, entry.kind in WAITS))
    days: dict[date, list[Entry]] = {}
    for entry in entries:
        days.setdefault(timezone.localtime(entry.at).date(), []).append(entry)
    return Story([Day(day, told) for day, told in days.items()])


class _Teller:
    def __init__(
        self,
        job: Job,
        names: Names,
        charges: JobCharges,
        places: dict[int, Place],
        waits: Waits,
        now: datetime,
    ) -> None:
        self.job, self.names, self.places, self.now = job, names, places, now
        self.waits = waits
        self.runs = list(job.runs.all())
        self.events = list(job.events.all())
        self.parked: dict[int, int] = {}
        for line in charges.lines:
            before = self.parked.get(line.run_number, 0)
            self.parked[line.run_number] = before + line.parked_gpu_seconds
        self.again = _again(job) if job.session else {}
        self.decisions = {
            event.run_id: event for event in self.events if event.kind == "preempted_decided"
        }

    def entries(self) -> Iterator[Entry]:
        yield from self._waits()
        for event in self.events:
            if event.kind not in QUIET:
                yield self._told(event)
        for run in self.runs:
            yield from self._protection(run)

    def _told(self, event: JobEvent) -> Entry:
        run = next((one for one in self.runs if one.pk == event.run_id), None)
        data = redacted(self.names.held, event.data)
        seconds, of_both = None, None
        if event.kind in END_KINDS and run is not None and run.started_at is not None:
            seconds = int((event.at - run.started_at).total_seconds())
        if event.kind == "run_preempted" and run is not None and run.pk in self.decisions:
            raw = self.decisions[run.pk].data
            data = redacted(self.names.held, raw) | data
            data["by_slug"] = (data.get("by_budget") or "").rpartition("/")[2]
            data["by_url"] = bool(data.get("by_budget")) and self.names.sees(data["by_budget"])
            of_both = comparison(data, self.job.budget.path, self.names)
        if event.kind == "extension_refused":
            data["sentence"] = session_words.refusal(data["rule"], data, now=event.at)
            data["again"] = self.again.get(data.get("extension", 0))
        if event.kind == "urgency":
            for when in ("before", "after"):
                data[f"{when}_text"] = worded(Job.Urgency(data[when]).label).lower()
        if event.kind == "extended":
            data["until_at"] = datetime.fromisoformat(data["until"])
        if event.kind == "funded":
            data["budget"] = self.job.budget.name
        return Entry(
            at=event.at,
            kind=event.kind,
            run=run,
            place=self.places.get(run.pk) if run else None,
            actor=event.actor.get_full_name() or event.actor.username if event.actor else "",
            seconds=seconds,
            parked_gpu_seconds=self.parked.get(run.number, 0) if run else 0,
            comparison=of_both,
            data=data,
        )

    def _waits(self) -> Iterator[Entry]:
        """Yield each span in which it was queued, and the present one up to now."""
        since = self.job.submitted_at
        for run in self.runs:
            yield from self._wait(since, run.started_at or run.decided_at)
            since = run.ended_at or self.now
        if self.job.state == Job.State.QUEUED:
            seconds = max(0, int((self.now - since).total_seconds()))
            bound = self.waits.before(since)
            yield Entry(at=since, kind="waiting", seconds=seconds, bound=bound)

    def _wait(self, since: datetime, until: datetime) -> Iterator[Entry]:
        seconds = to_seconds(until) - to_seconds(since)
        if seconds >= 60:
            bound = self.waits.over(since, until)
            yield Entry(at=since, kind="waited", seconds=seconds, bound=bound)

    def _protection(self, run: Run) -> Iterator[Entry]:
        """Yield the instant from which it could be preempted, if it went on past it."""
        until, end = run.protected_until, run.ended_at or self.now
        if self.job.is_realtime or until is None or run.started_at is None:
            return
        if run.started_at < until < end:
            yield Entry(at=until, kind="interruptible", run=run)


def comparison(data: dict[str, Any], own: str, names: Names) -> Comparison | None:
    """Read the comparison that an event keeps; ``own`` is the path of the victim's budget."""
    if "victim_share" not in data or "preemptor_share" not in data:
        return None
    parent = (data["victim_share"].get("path") or own).rpartition("/")[0]
    return Comparison(
        parent=names.name(parent) if parent else "",
        preemptor=side(data["preemptor_share"], names),
        victim=side(data["victim_share"], names),
    )


def _again(job: Job) -> dict[int, Extension]:
    """Return the refused extensions that were refused again in the same way, by id."""
    return Extension.objects.filter(run__job=job, again__gt=0).in_bulk()


def side(share: dict[str, Any], names: Names) -> Side:
    """Read one side of a comparison as an event or an outlook keeps it."""
    shares = _part(share["shares"], share["siblings_shares"])
    usage = _part(share["usage"], share["siblings_usage"])
    return Side(
        name=names.name(share["path"]) if share.get("path") else "",
        part_of_shares=None if shares is None else round(shares * WHOLE),
        part_of_usage=None if usage is None else round(usage * WHOLE),
        level=float(shares / usage) if shares is not None and usage else None,
        inside=share["inside"],
    )


def _part(some: int, whole: int) -> Fraction | None:
    return Fraction(some, whole) if whole > 0 else None
