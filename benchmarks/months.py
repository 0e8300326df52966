"""Whole months on the simulator's clock: the product's policy beside a priority queue.

The public trace is that of ../shared/data/traces, where it is at hand; the others are made from a
seed. Sixty debug jobs a day are mixed into each.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from allocator.core.made_traces import Lab, made_trace, with_debug_jobs
from allocator.core.problem import FULL_SHARE, BudgetNode
from allocator.core.simulate import simulate
from allocator.core.simulation.measures import LIMITED, Outcome
from allocator.core.simulation.setup import ROOT, Setup, equal_tree, nodes_of
from allocator.core.simulation.tables import span
from allocator.core.traces import DAY_S, Trace, read_csv

from .tables import Floor, Table, percent

TRACE = Path(__file__).parents[2] / "shared" / "data" / "traces" / "philly_4vcs_28d.csv"
NODES = "56x8"
DAYS = 28
DEBUG_A_DAY = 60
PROGRAMS = (50, 30, 20)  # percent
PROJECTS = (30, 25, 20, 15, 10)  # percent of each program
LESS = 0.8  # of what one project asks for the next one does
POLICIES = ("fairshare", "priority")
DELIVERED, WORST, OCCUPIED, DEBUG_S, MONTH_S = 0.995, 0.98, 0.99, 45, 30


@dataclass(frozen=True)
class Case:
    """A month of jobs, and the budgets that they are of."""

    name: str
    trace: Trace
    tree: tuple[BudgetNode, ...]


@dataclass(frozen=True)
class Played:
    """A case under a policy, and how long that took (seconds)."""

    case: str
    outcome: Outcome
    seconds: float


def cases(days: int = DAYS, seed: int = 0) -> Iterable[Case]:
    """Yield each month: as many budgets as it has groups, then 15 projects that ask unevenly."""
    if TRACE.is_file():
        with TRACE.open(newline="", encoding="utf-8") as file:
            public = read_csv(file, TRACE.name).between(0, days * DAY_S)
        public = with_debug_jobs(public, DEBUG_A_DAY, seed).between(0, days * DAY_S)
        yield Case("public trace", public, equal_tree(public.groups))
        yield Case("public trace, 15 projects", _spread(public, seed), _programs())
    gpus = sum(node.gpus for node in nodes_of(NODES))
    made = with_debug_jobs(made_trace(Lab(gpus=gpus, days=days, seed=seed)), DEBUG_A_DAY, seed)
    yield Case("made", made, equal_tree(made.groups))


def _projects() -> list[str]:
    return [f"{p}/{n}" for p in range(len(PROGRAMS)) for n in range(len(PROJECTS))]


def _programs() -> tuple[BudgetNode, ...]:
    """Three programs of five projects, with uneven shares."""
    programs = [
        BudgetNode(str(p), ROOT, share * FULL_SHARE // 100, 0) for p, share in enumerate(PROGRAMS)
    ]
    projects = [
        BudgetNode(f"{p}/{n}", str(p), share * FULL_SHARE // 100, 0)
        for p in range(len(PROGRAMS))
        for n, share in enumerate(PROJECTS)
    ]
    return (BudgetNode(ROOT, None, FULL_SHARE, 0), *programs, *projects)


def _spread(trace: Trace, seed: int) -> Trace:
    """The same jobs, drawn into projects of which each asks for less than the one before."""
    draw, names = Random(seed), _projects()
    draw.shuffle(names)  # so that demand doesn't follow shares
    parts = [LESS**n for n in range(len(names))]
    jobs = (replace(job, group=draw.choices(names, parts)[0]) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


def measure_all(found: Iterable[Case], days: int = DAYS) -> list[Played]:
    """Every budget can pay for what it asks; durations are declared with an error."""
    played = []
    for case in found:
        setup = Setup(nodes_of(NODES), case.tree, days * DAY_S, unlimited=True)
        for policy in POLICIES:
            began = time.perf_counter()
            outcome = simulate(case.trace, setup, policy)
            played.append(Played(case.name, outcome, time.perf_counter() - began))
    return played


def tables(rows: Sequence[Played]) -> list[Table]:
    head = (
        *("month", "policy", "occupancy while crowded", "delivered by window", "worst"),
        *("by timestep", "worst", "unfunded", "debug p90", "debug with a limit p90"),
        *("large p90", "plans", "seconds"),
    )
    return [Table("Months of 448 GPUs, simulated", head, [_row(one) for one in rows], left=2)]


def _row(one: Played) -> tuple[str, ...]:
    o = one.outcome
    held = o.funded_gpu_seconds + o.unfunded_gpu_seconds
    return (
        *(one.case, o.policy, percent(o.crowded_occupancy)),
        *(percent(o.delivered_by_window), percent(o.worst_by_window)),
        *(percent(o.delivered), percent(o.worst_delivered)),
        percent(o.unfunded_gpu_seconds / held if held else None),
        *(span(o.waits["debug"].p90_s), span(o.waits[LIMITED].p90_s)),
        *(span(o.waits["large"].p90_s), f"{o.decisions:,}", f"{one.seconds:.0f}"),
    )


def floors(rows: Sequence[Played]) -> list[Floor]:
    """What is asked of the product's policy, in every month."""
    queue = {one.case: one.outcome for one in rows if one.outcome.policy == "priority"}
    return [
        floor
        for one in rows
        if one.outcome.policy == "fairshare"
        for floor in _asked(one, queue[one.case].waits["large"].p90_s)
    ]


def _asked(one: Played, large_s: int) -> Iterable[Floor]:
    o = one.outcome
    shares = (
        ("owed delivered, by window", DELIVERED, o.delivered_by_window),
        ("worst budget, by window", WORST, o.worst_by_window),
        ("owed delivered, by timestep", DELIVERED, o.delivered),
        ("worst budget, by timestep", WORST, o.worst_delivered),
        ("occupancy while crowded", OCCUPIED, o.crowded_occupancy),
    )
    for what, least, figure in shares:
        met = figure is None or figure >= least
        yield Floor(f"month: {what}", one.case, f"≥ {percent(least)}", percent(figure), met)
    waits = (
        ("debug p90", DEBUG_S, o.waits["debug"].p90_s),
        ("debug with a limit p90", DEBUG_S, o.waits[LIMITED].p90_s),
        ("large p90, of a priority queue", large_s, o.waits["large"].p90_s),
    )
    for what, most, wait in waits:
        yield Floor(f"month: {what}", one.case, f"≤ {span(most)}", span(wait), wait <= most)
    took = f"{one.seconds:.0f} s"
    yield Floor("month: time", one.case, f"≤ {MONTH_S} s", took, one.seconds <= MONTH_S)


def to_json(rows: Sequence[Played]) -> list[dict[str, Any]]:
    return [{"case": one.case, "seconds": one.seconds, **one.outcome.to_dict()} for one in rows]
