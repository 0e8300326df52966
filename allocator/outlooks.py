"""Why each waiting job waits, what would release it, and when it may start: from the pass that
decided, not from a second guess."""

from collections.abc import Collection, Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from fractions import Fraction
from statistics import median
from typing import Any

from allocator import start_estimates, waits
from allocator.core.plan import Reason, Result, Rule
from allocator.core.turns import Turns
from allocator.models import Cycle, Outlook
from allocator.snapshot import Excluded, Snapshot
from ledger import services as ledger
from workloads.models import Job

FIELDS = ("cycle", "rule", "data", "start_low", "start_likely", "start_high")


def write(
    *,
    cycle: Cycle,
    taken: Snapshot,
    result: Result,
    refused: dict[int, ledger.HoldResult],
    settled: set[str],
) -> None:
    """Replace the outlooks by those of this cycle: one row for each job that still waits.

    ``settled`` names what has started, or waits for a rule that is no plan's.
    """
    rows = [*_excluded(cycle, taken, refused), *_planned(cycle, taken, result, settled)]
    waits.note(rows, at=taken.at)
    Outlook.objects.exclude(job_id__in=[row.job_id for row in rows]).delete()
    Outlook.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["job"], update_fields=FIELDS
    )
    start_estimates.note(rows, at=taken.at)


def _excluded(
    cycle: Cycle, taken: Snapshot, refused: dict[int, ledger.HoldResult]
) -> Iterator[Outlook]:
    """Jobs that no plan may start now: no start can be estimated."""
    for one in taken.excluded:
        yield Outlook(job=one.job, cycle=cycle, rule=one.rule, data=_why(one, refused))


def _why(one: Excluded, refused: dict[int, ledger.HoldResult]) -> dict[str, Any]:
    result = refused.get(one.job.pk)
    if one.rule != "not_funded" or result is None:
        return dict(one.data)
    return {
        "binding": None if result.binding is None else result.binding.path,
        "needed_mgpus": result.needed_mgpus,
        "spendable_mgpus": result.spendable_mgpus,
    }


def _planned(cycle: Cycle, taken: Snapshot, result: Result, settled: set[str]) -> Iterator[Outlook]:
    waits = {name for name, job in taken.jobs.items() if job.state == Job.State.QUEUED}
    yield from of_plan(cycle, taken, result, waits - settled)


def of_plan(
    cycle: Cycle, taken: Snapshot, result: Result, names: Collection[str]
) -> Iterator[Outlook]:
    """Yield what a plan foresees for jobs by their names in it, unsaved."""
    early, late = _spread(taken)
    sides = _Sides(taken)
    for reason in result.reasons:
        job = taken.jobs.get(reason.job)
        if job is None or reason.job not in names:
            continue
        likely = None if reason.start is None else taken.instant(reason.start)
        yield Outlook(
            job=job,
            cycle=cycle,
            rule=str(reason.rule),
            data=_data(reason, taken, sides),
            start_low=_scaled(likely, taken.at, early),
            start_likely=likely,
            start_high=_scaled(likely, taken.at, late),
        )


class _Sides:
    """How two leaves compare before a plan gives anything: both at their first common ancestor."""

    def __init__(self, taken: Snapshot) -> None:
        problem = taken.problem
        seconds = problem.horizon * problem.timestep_seconds
        self.turns = Turns(problem, sum(taken.healthy.values()) * seconds)
        self.known: dict[tuple[str, str], dict[str, Any] | None] = {}

    def compared(self, own: str, other: str) -> dict[str, Any] | None:
        """Shares and use in the window of both; None for one leaf, or one that has no place."""
        if (own, other) not in self.known:
            self.known[own, other] = self._compared(own, other)
        return self.known[own, other]

    def _compared(self, own: str, other: str) -> dict[str, Any] | None:
        of = self.turns.leaf_of
        if own == other or own not in of or other not in of:
            return None
        mine, theirs = self.turns.compared(of[own], 0, of[other], 0)
        assert mine is not None
        assert theirs is not None
        return {"own": asdict(mine), "other": asdict(theirs)}


def _data(reason: Reason, taken: Snapshot, sides: _Sides) -> dict[str, Any]:
    """The rule's particulars, with jobs told by number, name and budget."""
    data: dict[str, Any] = {"gpus": reason.gpus}
    if reason.behind:
        jobs = [taken.jobs[name.removesuffix("+")] for name in reason.behind]
        data["behind"] = [
            {"job": job.pk, "name": job.name, "budget": job.budget.path} for job in jobs
        ]
        if reason.rule == Rule.BEHIND:
            own = taken.jobs[reason.job].budget.path
            others = (sides.compared(own, job.budget.path) for job in jobs)
            data |= {"compared": next(filter(None, others), None)}
    if reason.node is not None:
        data["node"] = reason.node
    if reason.pools:
        data["pools"] = list(reason.pools)
    return data


def _spread(taken: Snapshot) -> tuple[Fraction, Fraction]:
    """How much sooner and later than likely what runs now tends to end: p10 ÷ p50, p90 ÷ p50.

    The median over the running jobs; a plan in which all end early (late) shifts by about that.
    """
    running = [taken.jobs[name] for name in taken.runs if name in taken.jobs]
    batch = [job for job in running if not job.is_realtime and job.estimate_p50_s]
    if not batch:
        return Fraction(1), Fraction(1)
    early = median(Fraction(job.estimate_p10_s, job.estimate_p50_s) for job in batch)
    late = median(Fraction(job.estimate_p90_s, job.estimate_p50_s) for job in batch)
    return min(early, Fraction(1)), max(late, Fraction(1))


def _scaled(likely: datetime | None, now: datetime, factor: Fraction) -> datetime | None:
    if likely is None:
        return None
    return now + timedelta(seconds=int((likely - now).total_seconds() * factor))
