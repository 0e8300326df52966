"""Seeded fleets of 8-GPU nodes, with and without budgets and runs under way."""

from random import Random

from allocator.core.problem import (
    BatchJob,
    BudgetNode,
    Job,
    Kind,
    Node,
    Problem,
    RealtimeJob,
    Running,
)

KINDS = (Kind.TRAINING, Kind.BATCH_INFERENCE, Kind.QUANTIZATION)
SIZES = (1, 1, 1, 2, 2, 4, 8, 8, 16, 32, 64)


def fleet_problem(
    *,
    nodes: int,
    jobs: int,
    runs: int = 0,
    seed: int = 0,
    horizon: int = 48,
    budgets: bool = True,
) -> Problem:
    """A fleet of 8-GPU nodes: 4 programs x 4 projects, waiting jobs, runs under way, 4 services.

    Two runs in three are over their protection and may be stopped. Without `budgets` all work is
    one leaf's.
    """
    rng = Random(f"fleet-{nodes}-{jobs}-{runs}-{seed}")
    tree, leaves = _programs(rng) if budgets else _one_queue()
    made: list[Job] = [
        daily_service(rng, f"serve{i}", horizon, peak=max(4, nodes // 8), budget=rng.choice(leaves))
        for i in range(4)
    ]
    made += _running(rng, nodes, runs, horizon, leaves)
    made += [
        BatchJob(
            name=f"job{i:05}",
            kind=rng.choice(KINDS),
            priority=rng.randint(1, 10),
            gpus=rng.choice(SIZES) if nodes >= 8 else 1,
            duration=rng.randint(1, 60),
            arrival=0 if rng.random() < 0.8 else rng.randint(1, horizon - 1),
            budget=rng.choice(leaves),
            funded=rng.random() < 0.8 or not budgets,
        )
        for i in range(jobs)
    ]
    return Problem(
        name=f"fleet-{8 * nodes}x{jobs}",
        family="fleet",
        horizon=horizon,
        timestep_minutes=30,
        time_decay=0.985,
        overrun=True,
        nodes=tuple(Node(f"n{i}", 8) for i in range(nodes)),
        jobs=tuple(made),
        budgets=tree,
    )


def _one_queue() -> tuple[tuple[BudgetNode, ...], list[str | None]]:
    return (), [None]


def _programs(rng: Random) -> tuple[tuple[BudgetNode, ...], list[str | None]]:
    budgets: list[BudgetNode] = [BudgetNode("org", None, 100_000, 0)]
    leaves: list[str | None] = []
    for program in "abcd":
        budgets.append(BudgetNode(f"org/{program}", "org", 25_000, 0))
        for project in "wxyz":
            path = f"org/{program}/{project}"
            usage = rng.randint(0, 10**7)
            budgets.append(BudgetNode(path, f"org/{program}", 25_000, usage))
            leaves.append(path)
    return tuple(budgets), leaves


def _running(
    rng: Random, nodes: int, runs: int, horizon: int, leaves: list[str | None]
) -> list[Job]:
    """Runs of 1 to 8 GPUs on the lower nodes, filling each node from its first GPU."""
    made: list[Job] = []
    used = [0] * nodes
    for i in range(runs):
        gpus = rng.choice((1, 2, 4, 4, 8))
        node = next((n for n in range(nodes * 3 // 4) if used[n] + gpus <= 8), None)
        if node is None:
            continue
        first, remaining = 8 * node + used[node], rng.randint(2, horizon)
        used[node] += gpus
        protected = rng.choice((0, 0, min(remaining, 4)))
        budget = rng.choice(leaves)
        made.append(
            BatchJob(
                name=f"run{i:04}",
                kind=Kind.TRAINING,
                priority=rng.randint(1, 10),
                gpus=gpus,
                duration=remaining + 4,
                budget=budget,
                funded=rng.random() < 0.7 or budget is None,
                running=Running(first, remaining, protected),
            )
        )
    return made


def daily_service(
    rng: Random, name: str, horizon: int, *, peak: int, budget: str | None = None
) -> RealtimeJob:
    """A service with one bump of a few hours on its floor, no higher than `peak`."""
    top, width = rng.randint(horizon // 3, 2 * horizon // 3), horizon / 4
    most, least = rng.randint(2, peak), 1
    demand = [
        max(least, round(most * max(0.0, 1 - ((t - top) / width) ** 2))) for t in range(horizon)
    ]
    return RealtimeJob(name, rng.randint(5, 10), tuple(demand), swap_cap=2, budget=budget)
