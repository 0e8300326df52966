"""What threatens the plan: services that it can't give all they want, nodes down or draining."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from allocator import timesteps
from allocator.job_rows import JobRow
from allocator.pages.names import Names
from allocator.pages.plan_grid import Rows
from allocator.reading import Bar, PlanView
from allocator.snapshot import name_of
from clusters.models import Drain, NodeState


@dataclass(frozen=True)
class Shortfall:
    """GPUs that a service wants and the plan can't give it, in [start, end)."""

    job: JobRow
    first_gpu: int | None  # the row that its mark stands above, None where it isn't shown
    start: datetime
    end: datetime
    wants: int
    holds: int
    swap_cap: int
    name: str  # of its budget; empty where the reader may not see it

    @property
    def gpus(self) -> int:
        return self.wants - self.holds


@dataclass(frozen=True)
class Down:
    """A node that holds nothing in [start, end), and why; drains start when runs have left."""

    node: str
    start: datetime
    end: datetime
    why: str
    is_drain: bool
    open_ended: bool
    window: int | None = None  # its number


def shortfalls(rows: Rows, plan: PlanView, names: Names, *, now: datetime) -> list[Shortfall]:
    """Where the plan gives a service fewer GPUs than it wants, from now on. No query."""
    place = rows.of_plan(plan)
    bars: dict[int, list[Bar]] = defaultdict(list)
    for bar in plan.bars:
        bars[bar.job_id].append(bar)
    found: list[Shortfall] = []
    for pk, job in plan.jobs.items():
        asked = plan.services.get(name_of(pk))
        if asked is not None:
            name = job.budget.name if names.sees(job.budget.path) else ""
            found += _joined(_of_service(place, plan, bars[pk], job, name, asked), now)
    return found


def _of_service(
    place: Sequence[int | None],
    plan: PlanView,
    bars: Sequence[Bar],
    job: JobRow,
    name: str,
    asked: Mapping[str, Any],
) -> Iterator[Shortfall]:
    """Yield what it wants and gets, timestep by timestep."""
    step = timesteps.step()
    for t, wants in enumerate(asked["demand"]):
        start = plan.cycle.timestep + step * t
        here = [bar for bar in bars if bar.start < start + step and start < bar.end]
        yield Shortfall(
            job=job,
            first_gpu=min((place[bar.first_gpu] for bar in here), default=None, key=_or_last),
            start=start,
            end=start + step,
            wants=wants,
            holds=sum(bar.gpus for bar in here),
            swap_cap=asked["swap_cap"],
            name=name,
        )


def _or_last(row: int | None) -> tuple[bool, int]:
    return row is None, row or 0


def _joined(steps: Iterator[Shortfall], now: datetime) -> list[Shortfall]:
    """Drop what is over or covered, and join neighbours that lack the same."""
    found: list[Shortfall] = []
    for one in steps:
        if one.end <= now or one.gpus <= 0:
            continue
        last = found[-1] if found else None
        if last and last.end == one.start and (last.wants, last.holds) == (one.wants, one.holds):
            found[-1] = replace(last, end=one.end)
        else:
            found.append(replace(one, start=max(one.start, now)))
    return found


def down(rows: Rows, *, start: datetime, end: datetime, now: datetime) -> list[Down]:
    """Nodes that were down and windows of drains, inside [start, end). Two queries."""
    shown = {node.pk: node.name for node in rows.nodes}
    found = list(_outages(shown, start, end, now))
    for drain in Drain.objects.filter(node_id__in=shown, starts_at__lt=end):
        until = drain.ends_at or end
        if until > start:
            found.append(
                Down(
                    node=shown[drain.node_id],
                    start=max(drain.starts_at, start),
                    end=min(until, end),
                    why=drain.reason,
                    is_drain=True,
                    open_ended=drain.ends_at is None,
                    window=drain.window_id,
                )
            )
    return sorted(found, key=lambda d: (d.start, d.node))


def _outages(
    shown: dict[int, str], start: datetime, end: datetime, now: datetime
) -> Iterator[Down]:
    since: dict[int, NodeState] = {}
    for state in NodeState.objects.filter(node_id__in=shown, at__lte=now).order_by("at", "id"):
        began = since.pop(state.node_id, None)
        if state.state == NodeState.State.DOWN:
            since[state.node_id] = began or state
        elif began is not None and state.at > start:
            yield _outage(shown, began, max(began.at, start), state.at)
    for began in since.values():
        yield _outage(shown, began, max(began.at, start), end, still=True)


def _outage(
    shown: dict[int, str], state: NodeState, start: datetime, end: datetime, *, still: bool = False
) -> Down:
    name = shown[state.node_id]
    return Down(name, start, end, state.reason, is_drain=False, open_ended=still)
