"""The rows of the plan's grid, and what stood on them: past from holdings, future from the plan.

Rows are GPUs, numbered over all nodes shown: pool by pool, node by node.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise

from django.db.models import Q

from allocator import job_rows
from allocator.job_rows import JobRow, RunRow
from allocator.reading import PlanView
from clusters import services as clusters
from clusters.models import Node
from workloads.models import Holding

PAST = timedelta(hours=12)
AHEAD = timedelta(hours=24)


@dataclass(frozen=True)
class Rows:
    """The nodes shown, and the first row of each."""

    nodes: list[Node]
    first: dict[str, int]

    @classmethod
    def load(cls, *, at: datetime, pool_ids: Collection[int] | None = None) -> Rows:
        nodes = [
            node
            for node in clusters.active_nodes(at=at)
            if pool_ids is None or node.pool_id in pool_ids
        ]
        first, row = {}, 0
        for node in nodes:
            first[node.name] = row
            row += node.gpus
        return cls(nodes, first)

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    def of_plan(self, plan: PlanView) -> list[int | None]:
        """For each row of a plan's grid the row it has here, None if it isn't shown."""
        return [
            self.first[node.name] + gpu if node.name in self.first else None
            for node in plan.nodes
            for gpu in range(node.gpus)
        ]

    def node_at(self, row: int) -> str:
        """Name of the node that a row belongs to."""
        return self.nodes[bisect_right(self._firsts, row) - 1].name

    @cached_property
    def _firsts(self) -> list[int]:
        return [self.first[node.name] for node in self.nodes]


@dataclass(frozen=True)
class Piece:
    """Neighbouring rows that one job holds from an instant to another."""

    job: JobRow
    first_gpu: int
    gpus: int
    start: datetime
    end: datetime
    run: RunRow | None = None
    unfunded_from: datetime | None = None
    planned: bool = False
    rest: bool = False  # what comes back after the plan stops it


@dataclass(frozen=True, slots=True)
class Held:
    """GPUs of one node that a run held; ``first`` is the node's first row."""

    first: int
    mask: int
    started_at: datetime
    ended_at: datetime | None
    funded: bool

    def rows(self) -> list[int]:
        mask = self.mask
        return [self.first + bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def held(rows: Rows, *, start: datetime, now: datetime) -> list[Piece]:
    """What runs held in [start, now), and hold: a batch-like run is one piece. Four queries."""
    first = {node.pk: rows.first[node.name] for node in rows.nodes}
    by_run: dict[int, list[Held]] = defaultdict(list)
    kept = Holding.objects.filter(Q(ended_at=None) | Q(ended_at__gt=start), started_at__lt=now)
    told = kept.order_by("run_id", "pk").values_list(
        *("run_id", "node_id", "mask", "started_at", "ended_at", "funded")
    )
    for run_id, node_id, mask, began, ended, funded in told:
        if node_id in first and ended != began:
            by_run[run_id].append(Held(first[node_id], mask, began, ended, funded))
    runs = job_rows.runs(by_run)
    jobs = job_rows.jobs([run.job_id for run in runs.values()])
    pieces: list[Piece] = []
    for pk, holdings in by_run.items():
        run = runs[pk]
        if jobs[run.job_id].is_realtime:
            pieces += _of_service(jobs[run.job_id], run, holdings, now)
        else:
            pieces.append(_of_run(jobs[run.job_id], run, holdings, now))
    return pieces


def planned(rows: Rows, plan: PlanView, *, now: datetime) -> list[Piece]:
    """What the plan places from now on, what runs now included."""
    place = rows.of_plan(plan)
    pieces = []
    for bar in plan.bars:
        job = plan.jobs.get(bar.job_id)
        if job is None or bar.end <= now:
            continue
        shown = [row for row in place[bar.first_gpu : bar.first_gpu + bar.gpus] if row is not None]
        for first, gpus in ranges(shown):
            pieces.append(
                Piece(job, first, gpus, max(bar.start, now), bar.end, planned=True, rest=bar.rest)
            )
    return pieces


def ranges(rows: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, number) of neighbouring rows."""
    ordered = sorted(set(rows))
    start = 0
    for n in range(1, len(ordered) + 1):
        if n == len(ordered) or ordered[n] != ordered[n - 1] + 1:
            yield ordered[start], n - start
            start = n


def _of_run(job: JobRow, run: RunRow, holdings: list[Held], now: datetime) -> Piece:
    held_rows = sorted({row for holding in holdings for row in holding.rows()})
    free_from = [held.started_at for held in holdings if not held.funded]
    return Piece(
        job=job,
        first_gpu=held_rows[0],
        gpus=len(held_rows),
        start=run.started_at or min(held.started_at for held in holdings),
        end=run.ended_at or now,
        run=run,
        unfunded_from=min(free_from) if free_from else None,
    )


def _of_service(job: JobRow, run: RunRow, holdings: list[Held], now: datetime) -> Iterator[Piece]:
    """Yield a piece for each range of rows as long as it stays the same."""
    spans = [(held.started_at, held.ended_at or now, held) for held in holdings]
    marks = sorted({mark for start, end, _ in spans for mark in (start, end)})
    open_at: dict[tuple[int, int, bool], datetime] = {}
    for start, end in [*pairwise(marks), (marks[-1], marks[-1])]:
        there = set(_ranges_in(spans, start, end)) if end > start else set()
        for key in sorted(set(open_at) - there):
            yield _service_piece(job, run, key, open_at.pop(key), start)
        for key in there - set(open_at):
            open_at[key] = start


def _ranges_in(
    spans: list[tuple[datetime, datetime, Held]], start: datetime, end: datetime
) -> Iterator[tuple[int, int, bool]]:
    """Yield (first row, rows, funded) of what a service held in all of [start, end)."""
    for funded in (True, False):
        held_rows = [
            row
            for since, until, holding in spans
            if holding.funded == funded and since <= start and end <= until
            for row in holding.rows()
        ]
        for first, gpus in ranges(held_rows):
            yield first, gpus, funded


def _service_piece(
    job: JobRow, run: RunRow, key: tuple[int, int, bool], start: datetime, end: datetime
) -> Piece:
    first, gpus, funded = key
    return Piece(job, first, gpus, start, end, run=run, unfunded_from=None if funded else start)
