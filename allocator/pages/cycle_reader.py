"""Reads one stored cycle: its problem, its plan, and what became of both."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any

from allocator import job_rows
from allocator.core.fairshare import budget_factors
from allocator.core.problem import BatchJob, Problem, RealtimeJob
from allocator.job_rows import JobRow
from allocator.models import Cycle, Outlook
from allocator.packing import unpack
from allocator.pages import job_story, queue
from allocator.pages.cycle_levels import levels
from allocator.pages.cycle_parts import Before, Change, Moved, Name, Saw, Start, Stop, Waits
from allocator.pages.names import Names
from budgets.access import redacted
from workloads.models import Job, JobEvent, Run

ENDED = ("cancelled_decided", "node_failure_decided")  # stops before anything is planned
WAITS = 50  # jobs that a page names
SOON = timedelta(hours=1)  # a stop is confirmed by then


class Reader:
    """What a stored cycle's page says of it. A constant number of queries."""

    def __init__(self, cycle: Cycle, names: Names, problem: Problem) -> None:
        self.cycle, self.names, self.problem = cycle, names, problem
        self.grid: list[list[str | None]] = unpack(bytes(cycle.plan))["grid"]
        self.step = timedelta(minutes=problem.timestep_minutes)
        self.jobs = _known(problem)
        self.running = {job.name: job for job in problem.batch if job.running is not None}
        self.now = {row[0] for row in self.grid if row} - {None}

    def told(self) -> dict[str, Any]:
        waits, total, unseen, known = self.waits()
        return {
            "saw": self.saw(),
            "starts": list(self.starts()),
            "stops": [*self.ended(), *self.stops()],
            "changes": list(self.changes()),
            "waits": waits,
            "waits_total": total,
            "waits_unseen": unseen,
            "has_reasons": known,
            "levels": levels(self.problem, self.names),
            "before": self.before(),
        }

    def name(self, name: str) -> Name:
        return name_of(self.jobs.get(name.removesuffix("+")), self.names)

    def saw(self) -> Saw:
        batch, services = self.problem.batch, self.problem.realtime
        waiting = [job for job in batch if job.running is None]
        held = sum(job.gpus for job in self.running.values())
        return Saw(
            nodes=len(self.problem.nodes),
            gpus=self.problem.gpus,
            drained=len({drain.node for drain in self.problem.drains}),
            running=len(self.running),
            services=len(services),
            waiting=len(waiting),
            asked_gpus=sum(job.gpus for job in waiting),
            held_gpus=held + sum(len(job.held or ()) for job in services),
            timesteps=self.problem.horizon,
            timestep_minutes=self.problem.timestep_minutes,
        )

    @cached_property
    def rows(self) -> dict[str, list[int]]:
        """Rows of the grid that each job holds in the first timestep."""
        found: dict[str, list[int]] = {}
        for gpu, cells in enumerate(self.grid):
            if cells and cells[0] is not None:
                found.setdefault(cells[0], []).append(gpu)
        return found

    def starts(self) -> Iterator[Start]:
        """What the plan starts now, the heaviest first."""
        new = [job for job in self.problem.batch if job.running is None and job.name in self.rows]
        ids = [self.jobs[job.name].pk for job in new if job.name in self.jobs]
        given = Run.objects.filter(job__in=ids, decided_at=self.cycle.at)
        given_ids = set(given.values_list("job_id", flat=True))
        factors = budget_factors(self.problem.budgets) if self.problem.budgets else {}
        for job in sorted(new, key=lambda one: (-one.priority, one.name)):
            known = self.jobs.get(job.name)
            factor = factors.get(job.budget or "") if job.funded else None
            yield Start(
                name=self.name(job.name),
                gpus=job.gpus,
                nodes=self.nodes(self.rows[job.name]),
                funded=job.funded,
                weight=job.priority,
                factor=None if factor is None else float(factor),
                urgency=_urgency(job, factor),
                is_given=known is not None and known.pk in given_ids,
            )

    def nodes(self, gpus: list[int]) -> tuple[str, ...]:
        """First and last node of some rows."""
        ends = {self.problem.node_of[gpus[0]]: 0, self.problem.node_of[gpus[-1]]: 0}
        return tuple(self.problem.nodes[n].name for n in ends)

    def stops(self) -> Iterator[Stop]:
        """Runs that the plan doesn't go on with, with what decided it."""
        gone = [name for name in self.running if name not in self.rows]
        ids = [self.jobs[name].pk for name in gone if name in self.jobs]
        events = JobEvent.objects.filter(
            job__in=ids, at=self.cycle.at, kind="preempted_decided"
        ).order_by("pk")
        why = {event.job_id: event.data for event in events}
        for name in gone:
            job = self.jobs.get(name)
            data = why.get(job.pk, {}) if job else {}
            yield self.stop(name, job, redacted(self.names.held, data))

    def stop(self, name: str, job: JobRow | None, data: dict[str, Any]) -> Stop:
        seen = job is not None and self.names.sees(job.budget.path)
        by = Name(data.get("by_job"), _label(data.get("by_budget"), data.get("by_name")))
        by = Name(by.pk, by.label, self.names.hue_of(data.get("by_budget") or ""))
        own = job.budget.path if job else ""
        return Stop(
            name=self.name(name),
            gpus=self.running[name].gpus,
            cause=str(data.get("cause", "")),
            by=by if "by_job" in data else None,
            comparison=job_story.comparison(data, own, self.names) if seen else None,
        )

    def ended(self) -> Iterator[Stop]:
        """Runs that were stopped before anything was planned: cancelled, or their node lost."""
        at = self.cycle.at
        runs = Run.objects.filter(ended_at__gte=at, ended_at__lte=at + SOON)
        events = JobEvent.objects.filter(run__in=runs, at=at, kind__in=ENDED)
        for event in events.select_related("job__budget").order_by("pk"):
            name = name_of(event.job, self.names)
            yield Stop(name, event.job.gpus, event.kind.removesuffix("_decided"))

    def changes(self) -> Iterator[Change]:
        for service in self.problem.realtime:
            before, after = len(service.held or ()), len(self.rows.get(service.name, ()))
            if before != after:
                yield Change(self.name(service.name), before, after)

    def waits(self) -> tuple[list[Waits], int, int, bool]:
        """What still waits, the soonest first, as much as is shown; of how many; how many the
        reader may not know; is it told why."""
        rows = Outlook.objects.filter(cycle=self.cycle).order_by("start_likely", "job_id")
        paths = list(rows.values_list("pk", "job__budget__path"))
        if not paths:
            return (*self.waited(), False)
        seen = [pk for pk, path in paths if self.names.sees(path)]
        # Joined to its cycle, each would come with all that the cycle saw and planned.
        told = rows.filter(pk__in=seen[:WAITS]).select_related("job__budget").defer("cycle")
        shown = [waits(row, self.names) for row in told]
        return shown, len(seen), len(paths) - len(seen), True

    def waited(self) -> tuple[list[Waits], int, int]:
        """What waited, by the plan alone."""
        found, unseen = [], 0
        for job in self.problem.batch:
            if job.running is not None or job.name in self.rows:
                continue
            name = self.name(job.name)
            unseen += name.pk is None
            if name.pk is not None:
                found.append(Waits(name, job.gpus, self.planned.get(job.name)))
        found.sort(key=lambda row: (row.start is None, row.start or self.cycle.at, row.name.pk))
        return found[:WAITS], len(found), unseen

    @cached_property
    def planned(self) -> dict[str, datetime]:
        return first_starts(self.grid, self.cycle, self.step)

    def before(self) -> Before:
        """Compare with the plan before: when what waits in both was to start."""
        former = Cycle.objects.filter(pk__lt=self.cycle.pk, status=Cycle.Status.COMMITTED)
        found = former.order_by("-pk").first()
        if found is None or not found.snapshot:
            return Before(found)
        stored = unpack(bytes(found.snapshot))
        known = {job["name"] for job in stored["jobs"]}
        step = timedelta(minutes=stored["timestep_minutes"])
        then = first_starts(unpack(bytes(found.plan))["grid"], found, step)
        waiting = [job.name for job in self.problem.batch if job.running is None]
        both = [name for name in waiting if name in known]
        moved = [
            Moved(self.name(name), then.get(name), self.planned.get(name))
            for name in both
            if _apart(then.get(name), self.planned.get(name), self.cycle.at)
        ]
        seen = [one for one in moved if one.name.pk is not None]
        return Before(
            cycle=found,
            moved=sorted(seen, key=lambda one: (-abs(one.seconds or 10**9), one.name.pk or 0)),
            same=len(both) - len(moved),
            came=len(waiting) - len(both),
            unseen=len(moved) - len(seen),
        )


def waits(row: Outlook, names: Names) -> Waits:
    """Return an outlook as a row that says why."""
    job = row.job
    job.outlook = row
    why = queue.why(job, names)
    return Waits(name_of(job, names), job.gpus, row.start_likely, why, job.budget.name)


def jobs_of(problem: Problem) -> dict[str, Job]:
    """Return the jobs of a problem by their names in it. One query."""
    ids = {int(job.name.removeprefix("job-")): job.name for job in problem.jobs}
    found = Job.objects.select_related("budget").in_bulk(ids)
    return {ids[pk]: job for pk, job in found.items()}


def _known(problem: Problem) -> dict[str, JobRow]:
    """The same, no more of each than a name takes."""
    ids = {int(job.name.removeprefix("job-")): job.name for job in problem.jobs}
    return {ids[pk]: job for pk, job in job_rows.jobs(ids).items()}


def name_of(job: Job | JobRow | None, names: Names) -> Name:
    """Return a job's name for the reader."""
    if job is None or not names.sees(job.budget.path):
        return Name()
    return Name(job.pk, f"{job.budget.slug}/{job.name}", names.hue_of(job.budget.path))


def first_starts(
    grid: list[list[str | None]], cycle: Cycle, step: timedelta
) -> dict[str, datetime]:
    """Return when a plan has each job begin; what runs, or starts now, at the cycle's instant."""
    found: dict[str, int] = {}
    for cells in grid:
        for t, name in enumerate(cells):
            if name is not None and t < found.get(name, len(cells)):
                found[name] = t
    return {name: cycle.timestep + step * t if t else cycle.at for name, t in found.items()}


def _urgency(job: BatchJob | RealtimeJob, factor: Fraction | None) -> float | None:
    """What a weight has left for urgency: it is (1 + 9 × factor) × urgency, unfunded a tenth."""
    of_budget = 1 + 9 * float(factor) if factor is not None else 0.1
    return job.priority / of_budget


def _apart(before: datetime | None, after: datetime | None, now: datetime) -> bool:
    """Whether a planned start was moved: one that was to be by now counts as now."""
    return (max(before, now) if before else None) != after


def _label(path: str | None, name: str | None) -> str:
    slug = (path or "").rpartition("/")[2]
    return f"{slug}/{name}" if slug and name else name or ""
