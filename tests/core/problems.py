"""Problems for the core's tests: small ones to check by hand, and random ones of every shape."""

from random import Random
from typing import Any

from hypothesis import strategies as st

from allocator.core.crosscheck import legal_block
from allocator.core.problem import (
    BatchJob,
    BudgetNode,
    Drain,
    Job,
    Kind,
    Node,
    Problem,
    ProblemError,
    RealtimeJob,
    Running,
)

# Dice by their seed: hypothesis draws one number, not each that the dice are asked for.
SEEDED = st.integers(0, 2**64 - 1).map(Random)


def job(name: str, gpus: int = 1, duration: int = 1, **fields: Any) -> BatchJob:
    """A waiting training job of priority 1."""
    given: dict[str, Any] = {"priority": 1, "kind": Kind.TRAINING, **fields}
    return BatchJob(name=name, gpus=gpus, duration=duration, **given)


def run(
    name: str, first: int, gpus: int, remaining: int, protected: int, **fields: Any
) -> BatchJob:
    """A run under way."""
    running = Running(first, remaining, protected)
    return job(name, gpus, remaining, running=running, **fields)


def service(name: str, demand: list[int], swap_cap: int = 1, **fields: Any) -> RealtimeJob:
    """A real-time service of priority 1."""
    return RealtimeJob(
        name=name, demand=tuple(demand), swap_cap=swap_cap, **({"priority": 1} | fields)
    )


def problem(*jobs: Job, nodes: tuple[int, ...] = (8,), horizon: int = 4, **fields: Any) -> Problem:
    """Nodes of the given sizes in one pool, half-hour timesteps."""
    machines = tuple(Node(f"n{i}", gpus) for i, gpus in enumerate(nodes))
    given: dict[str, Any] = {"name": "small", "timestep_minutes": 30, "nodes": machines, **fields}
    return Problem(horizon=horizon, jobs=jobs, **given)


def tree(**shares_and_usage: tuple[int, int]) -> tuple[BudgetNode, ...]:
    """Leaves under one root, as name=(shares in percent, usage)."""
    leaves = [
        BudgetNode(f"org/{name}", "org", shares * 1000, usage)
        for name, (shares, usage) in shares_and_usage.items()
    ]
    return (BudgetNode("org", None, 100_000, 0), *leaves)


def random_problem(rng: Random) -> Problem:
    """Any mix of pools, runs, services, drains, budgets and arrivals, feasible at its start."""
    nodes = tuple(
        Node(f"n{i}", rng.choice([1, 2, 3, 4, 8, 8]), rng.choice(["a", "a", "b"]))
        for i in range(rng.randint(1, 6))
    )
    horizon = rng.choice([1, 2, 5, 12, 24, 63, 64])
    budgets = _random_tree(rng) if rng.random() < 0.7 else ()
    parents = {budget.parent for budget in budgets}
    leaves: list[str | None] = [budget.path for budget in budgets if budget.path not in parents]
    leaves = leaves or [None]
    fields: dict[str, Any] = {
        "name": "random",
        "horizon": horizon,
        "timestep_minutes": rng.choice([15, 30, 60]),
        "nodes": nodes,
        "time_decay": rng.choice([0.9, 0.97, 1.0]),
        "overrun": rng.random() < 0.5,
        "budgets": budgets,
    }
    empty = Problem(jobs=(), **fields)
    jobs = _random_jobs(rng, empty, leaves)
    drains = tuple(
        Drain(rng.choice(nodes).name, start, start + rng.randint(1, 9))
        for start in [rng.randint(0, horizon) for _ in range(rng.choice([0, 0, 1, 2]))]
    )
    try:
        return Problem(jobs=jobs, drains=drains, **fields)
    except ProblemError:  # a drain that no plan could keep
        return Problem(jobs=jobs, **fields)


def _random_tree(rng: Random) -> tuple[BudgetNode, ...]:
    nodes = [BudgetNode("org", None, 100_000, 0)]
    for program in range(rng.randint(1, 3)):
        path = f"org/p{program}"
        shares = rng.choice([0, 10_000, 33_333])
        nodes.append(
            BudgetNode(path, "org", shares, rng.randint(0, 10**5), rng.choice([0, 0, 10**5]))
        )
        for project in range(rng.randint(0, 3)):
            usage = rng.choice([0, rng.randint(0, 10**5)])
            nodes.append(
                BudgetNode(f"{path}/{project}", path, rng.choice([0, 20_000, 33_333]), usage)
            )
    return tuple(nodes)


def _random_jobs(rng: Random, empty: Problem, leaves: list[str | None]) -> tuple[Job, ...]:
    free = set(range(empty.gpus))
    pools = sorted({node.pool for node in empty.nodes})
    jobs: list[Job] = []
    for number in range(rng.randint(0, 14)):
        common = {
            "name": f"j{number}",
            "priority": rng.choice([0, 1, 2.5, 7, 10]),
            "budget": rng.choice(leaves),
            "funded": rng.random() < 0.75,
            "pools": rng.choice([(), (), tuple(rng.sample(pools, rng.randint(1, len(pools))))]),
        }
        kind = rng.choice(["wait", "wait", "run", "run", "serve"])
        made: Job
        if kind == "serve":
            made = _random_service(rng, empty, free, common)
        else:
            made = _random_batch(rng, empty, free, common, kind == "run")
        jobs.append(made)
    return tuple(jobs)


def _rows(empty: Problem, common: dict[str, Any]) -> list[int]:
    return [
        gpu
        for gpu, node in enumerate(empty.node_of)
        if not common["pools"] or empty.nodes[node].pool in common["pools"]
    ]


def _random_batch(
    rng: Random, empty: Problem, free: set[int], common: dict[str, Any], runs: bool
) -> BatchJob:
    sizes = [size for size in (1, 1, 2, 4, 8, 16) if size <= empty.gpus]
    gpus, duration = rng.choice(sizes), rng.randint(1, empty.horizon + 3)
    running = None
    if runs:
        rows = set(_rows(empty, common)) & free
        blocks = [
            first
            for first in range(empty.gpus)
            if legal_block(empty, first, gpus) and rows.issuperset(range(first, first + gpus))
        ]
        if blocks:
            first = rng.choice(blocks)
            free -= set(range(first, first + gpus))
            most = duration if empty.overrun else min(duration, empty.horizon)
            running = Running(first, duration, rng.choice([0, 0, rng.randint(0, most), most]))
    arrival = 0 if running else rng.choice([0, 0, 0, rng.randint(0, empty.horizon + 1)])
    kind = rng.choice([Kind.TRAINING, Kind.BATCH_INFERENCE, Kind.QUANTIZATION])
    minimum = None if running else rng.choice([None, 1, rng.randint(1, duration)])
    return BatchJob(
        kind=kind,
        gpus=gpus,
        duration=duration,
        arrival=arrival,
        running=running,
        minimum=minimum,
        **common,
    )


def _random_service(
    rng: Random, empty: Problem, free: set[int], common: dict[str, Any]
) -> RealtimeJob:
    most, cap = min(6, empty.gpus), rng.choice([0, 1, 1, 2, 4])
    demand = [rng.randint(0, most) for _ in range(empty.horizon)]
    held, steady = None, False
    if rng.random() < 0.6:
        steady = rng.random() < 0.3
        rows = sorted(set(_rows(empty, common)) & free)
        can = min(demand[t] + cap * (t + 1 - steady) for t in range(empty.horizon))
        held = tuple(rng.sample(rows, min(len(rows), can, rng.randint(0, 4))))
        free -= set(held)
    return RealtimeJob(demand=tuple(demand), swap_cap=cap, held=held, steady=steady, **common)
