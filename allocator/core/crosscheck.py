"""What must hold between the parts of a problem: names, references, and a feasible present.

"Feasible first" is the snapshot's work; a problem that breaks it is refused here, with the sentence
that says what to relax, so that every solver may take legality of the present for granted.
"""

from collections.abc import Sequence

import numpy as np

from .problem import FULL_SHARE, MAX_AMOUNT, MAX_GPUS, BatchJob, Job, Problem, RealtimeJob
from .validate import ProblemError, no_duplicates


def crosscheck(problem: Problem) -> None:
    """Raise `ProblemError` for the first rule between parts that does not hold."""
    if not problem.nodes:
        raise ProblemError("nodes must name at least one node.")
    if problem.gpus > MAX_GPUS:
        raise ProblemError(f"nodes must have at most {MAX_GPUS} GPUs together, not {problem.gpus}.")
    no_duplicates([node.name for node in problem.nodes], "node")
    if len({*problem.columns.names, *(job.name for job in problem.realtime)}) < len(problem.jobs):
        no_duplicates([job.name for job in problem.jobs], "job")
    no_duplicates([budget.path for budget in problem.budgets], "budget")
    _budget_tree(problem)
    _drains(problem)
    _references(problem)
    _sizes(problem)
    if not _runs_can_stay(problem):
        _present(problem)


def drained_words(problem: Problem) -> list[int]:
    """Per GPU: bit t is set where the GPU's node is drained at timestep t (bits < 64)."""
    by_node = {node.name: 0 for node in problem.nodes}
    for drain in problem.drains:
        end = min(drain.end, 64)
        if drain.start < end:
            by_node[drain.node] |= ((1 << (end - drain.start)) - 1) << drain.start
    return [by_node[problem.nodes[n].name] for n in problem.node_of]


def legal_block(problem: Problem, first: int, size: int) -> bool:
    """Whether `size` GPUs from `first` lie inside a node or are whole nodes of one pool."""
    last = first + size - 1
    if first < 0 or last >= problem.gpus:
        return False
    low, high = problem.node_of[first], problem.node_of[last]
    if low == high:
        return True
    whole = problem.first_gpu_of[low] == first
    whole &= problem.first_gpu_of[high] + problem.nodes[high].gpus == last + 1
    return whole and len({node.pool for node in problem.nodes[low : high + 1]}) == 1


def _budget_tree(problem: Problem) -> None:
    parents = {budget.path: budget.parent for budget in problem.budgets}
    totals: dict[str | None, int] = {}
    for budget in problem.budgets:
        if budget.parent is not None and budget.parent not in parents:
            raise ProblemError(f"budget {budget.path!r}: no budget {budget.parent!r} for a parent.")
        totals[budget.parent] = totals.get(budget.parent, 0) + budget.shares
        if totals[budget.parent] > FULL_SHARE:
            raise ProblemError(
                f"the shares under {budget.parent or 'the root'!r} add up to more than 100 %; "
                f"{budget.path!r} is the one that passes it."
            )
    used = sum(budget.usage for budget in problem.budgets)
    if used > MAX_AMOUNT:  # sums are kept in 64 bits
        raise ProblemError(
            f"the usage of all budgets together must be at most {MAX_AMOUNT}, not {used}."
        )
    rooted: set[str] = set()
    for path in parents:
        _climb(path, parents, rooted)


def _climb(path: str, parents: dict[str, str | None], rooted: set[str]) -> None:
    trail: list[str] = []
    at: str | None = path
    seen: set[str] = set()
    while at is not None and at not in rooted:
        if at in seen:
            raise ProblemError(f"budget {at!r} is its own ancestor; give it another parent.")
        seen.add(at)
        trail.append(at)
        at = parents[at]
    rooted.update(trail)


def _drains(problem: Problem) -> None:
    names = {node.name for node in problem.nodes}
    for drain in problem.drains:
        if drain.node not in names:
            raise ProblemError(f"drain of {drain.node!r}: there is no such node.")


def _references(problem: Problem) -> None:
    pools = {node.pool for node in problem.nodes}
    inner = {budget.parent for budget in problem.budgets}
    leaves = {budget.path for budget in problem.budgets} - inner
    wanted = {pool for names in problem.pool_sets for pool in names}
    if wanted <= pools and (not leaves or problem.owners <= leaves):
        return
    for job in problem.jobs:
        for pool in job.pools:
            if pool not in pools:
                raise ProblemError(f"job {job.name!r}: no node is in pool {pool!r}.")
        if problem.budgets and job.budget not in leaves:
            asked = "no budget is named" if job.budget is None else f"{job.budget!r} is no leaf"
            raise ProblemError(f"job {job.name!r}: budget must be a leaf of budgets, but {asked}.")


def _sizes(problem: Problem) -> None:
    if problem.columns.gpus.max(initial=0) > problem.gpus:
        large = next(job for job in problem.batch if job.gpus > problem.gpus)
        raise ProblemError(
            f"job {large.name!r}: gpus must be at most the fleet's {problem.gpus}, "
            f"not {large.gpus}."
        )
    for job in problem.realtime:
        if len(job.demand) != problem.horizon:
            raise ProblemError(
                f"job {job.name!r}: demand must have {problem.horizon} entries, "
                f"one per timestep, not {len(job.demand)}."
            )
        if max(job.demand) > problem.gpus:
            raise ProblemError(
                f"job {job.name!r}: demand must be at most the fleet's {problem.gpus} GPUs, "
                f"not {max(job.demand)}."
            )


def _runs_can_stay(problem: Problem) -> bool:
    """Whether `_present` would have nothing to say: all runs at once, where no service holds GPUs.

    A legal block lies in one pool, so its first GPU says which.
    """
    if not problem.overrun or any(job.held is not None for job in problem.realtime):
        return False
    present, layout = problem.present, problem.layout
    held, fleet = present.held, layout.fleet
    if not len(present.rows):
        return True
    if (held.first + held.gpus > layout.gpus).any():
        return False
    pools = problem.columns.pool_sets(problem)[present.rows]
    gpu, _, kept = present.each_gpu
    return not (
        fleet.wall[np.searchsorted(fleet.sizes, held.gpus), held.first].any()
        or fleet.outside[pools, held.first].any()
        or np.bincount(gpu).max() > 1
        or (problem.drains and (layout.drained[gpu] & kept).any())
    )


def _present(problem: Problem) -> None:
    """Runs and held GPUs are where they can be, one per GPU, and can be kept as promised."""
    drained = drained_words(problem) if problem.drains else [0] * problem.gpus
    held = 0  # a bit for each GPU
    for job in problem.jobs:
        if isinstance(job, RealtimeJob):
            rows: Sequence[int] = range(0) if job.held is None else job.held
            bits = sum(1 << gpu for gpu in rows)
        elif job.running is not None:
            rows = range(job.running.first_gpu, job.running.first_gpu + job.gpus)
            bits = ((1 << job.gpus) - 1) << job.running.first_gpu
        else:
            continue
        _inside_pools(problem, job, rows)
        if held & bits:
            raise ProblemError(_held_twice(problem, job, _lowest(held & bits)))
        held |= bits
        if isinstance(job, RealtimeJob):
            _can_shed(job, drained)
        else:
            _can_go_on(problem, job, drained)


def _held_twice(problem: Problem, job: Job, gpu: int) -> str:
    for other in problem.jobs:
        if isinstance(other, RealtimeJob):
            holds = other.held is not None and gpu in other.held
        else:
            run = other.running
            holds = run is not None and run.first_gpu <= gpu < run.first_gpu + other.gpus
        if holds:
            break
    return f"GPU {gpu} is held by {other.name!r} and by {job.name!r}; it can serve one."


def _inside_pools(problem: Problem, job: Job, rows: Sequence[int]) -> None:
    if rows and rows[-1] < problem.gpus and not job.pools:
        return
    for gpu in rows:
        if gpu >= problem.gpus:
            raise ProblemError(f"job {job.name!r}: there is no GPU {gpu} (of {problem.gpus}).")
        pool = problem.nodes[problem.node_of[gpu]].pool
        if job.pools and pool not in job.pools:
            raise ProblemError(f"job {job.name!r}: holds GPU {gpu}, which is not in its pools.")


def _can_go_on(problem: Problem, job: BatchJob, drained: list[int]) -> None:
    run = job.running
    if run is None:
        return
    if not legal_block(problem, run.first_gpu, job.gpus):
        raise ProblemError(
            f"job {job.name!r}: runs on GPUs {run.first_gpu} to {run.first_gpu + job.gpus - 1}, "
            "which are neither inside a node nor whole nodes of one pool."
        )
    if not problem.overrun and run.protected > problem.horizon:
        raise ProblemError(
            f"job {job.name!r}: is protected past the horizon; shorten protected or set overrun."
        )
    if not problem.drains:
        return
    kept = (1 << min(run.protected, problem.horizon)) - 1
    if any(drained[g] & kept for g in range(run.first_gpu, run.first_gpu + job.gpus)):
        raise ProblemError(
            f"job {job.name!r}: its node is drained while it is protected; "
            "start the drain when its protection ends."
        )


def _can_shed(job: RealtimeJob, drained: list[int]) -> None:
    """By each timestep the swap cap lets it leave what demand or a drain takes away."""
    if job.held is None:
        return
    leave_by = [_lowest(drained[gpu]) for gpu in job.held if drained[gpu]]
    for t, wanted in enumerate(job.demand):
        shed = job.cap_into(0) + job.swap_cap * t
        if len(job.held) - shed > wanted:
            raise ProblemError(
                f"job {job.name!r}: holds {len(job.held)} GPUs and may shed {shed} by timestep "
                f"{t}, so its demand there must be at least {len(job.held) - shed}, not {wanted}."
            )
        if sum(drain <= t for drain in leave_by) > shed:
            raise ProblemError(
                f"job {job.name!r}: its swap cap lets it leave {shed} GPUs by timestep {t}, "
                "fewer than are drained; start the drain later or raise the swap cap."
            )


def _lowest(word: int) -> int:
    return (word & -word).bit_length() - 1
