"""Jobs as a grid of thousands shows them: some columns, each budget read once.

An object of a whole row takes ten times as long to make, and joining budgets makes one for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import islice

from budgets.models import Budget
from workloads.models import Job, Run

AT_ONCE = 10_000  # keys that one query names


@dataclass(frozen=True, slots=True)
class JobRow:
    """What is shown of a job, named as in `Job`."""

    budget: Budget
    pk: int
    name: str
    kind: str
    session: bool
    gpus: int
    state: str
    funded: bool
    cancel_requested_at: datetime | None
    minimum_runtime_s: int
    time_limit_s: int | None
    progress_s: int
    estimate_p10_s: int
    estimate_p50_s: int
    estimate_p90_s: int

    @property
    def is_realtime(self) -> bool:
        return self.kind == Job.Kind.REALTIME

    @property
    def has_ended(self) -> bool:
        return self.state in Job.ENDED


@dataclass(frozen=True, slots=True)
class RunRow:
    """What is shown of a run, named as in `Run`."""

    pk: int
    job_id: int
    number: int
    state: str
    started_at: datetime | None
    ended_at: datetime | None
    end_reason: str
    protected_until: datetime | None


def jobs(pks: Collection[int]) -> dict[int, JobRow]:
    """Jobs by their keys. Two queries, and one more for each ten thousand."""
    columns = [field.name for field in fields(JobRow)[1:]]
    rows = [
        row
        for part in _parts(set(pks))
        for row in Job.objects.filter(pk__in=part).order_by().values_list("budget_id", *columns)
    ]
    budgets = Budget.objects.in_bulk({row[0] for row in rows})
    return {pk: JobRow(budgets[budget], pk, *told) for budget, pk, *told in rows}


def runs(pks: Collection[int]) -> dict[int, RunRow]:
    """Runs by their keys. One query, and one more for each ten thousand."""
    columns = [field.name for field in fields(RunRow)]
    return {
        row[0]: RunRow(*row)
        for part in _parts(set(pks))
        for row in Run.objects.filter(pk__in=part).order_by().values_list(*columns)
    }


def _parts(pks: set[int]) -> Iterator[list[int]]:
    left = iter(sorted(pks))
    while part := list(islice(left, AT_ONCE)):
        yield part
