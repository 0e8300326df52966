"""Is a plan legal, and what is it worth? Shares no code with the solver, on purpose.

Every rule of the planning problem is one function named for it, which reads the plan's assignments
and the problem and nothing else. An illegal plan is never committed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from .plan import Assignment, Plan
from .problem import FULL_SHARE, REST, BatchJob, Problem, RealtimeJob


class Broken(StrEnum):
    """The rule that a violation breaks."""

    SHAPE = "shape"
    UNKNOWN_JOB = "unknown_job"
    ONE_JOB_PER_GPU = "one_job_per_gpu"
    DRAIN = "drain"
    POOL = "pool"
    ONE_BLOCK = "one_block"
    BLOCK = "block"
    SIZE = "size"
    ARRIVAL = "arrival"
    LENGTH = "length"
    PROTECTED = "protected"
    MOVED = "moved"
    REST = "rest"
    DEMAND = "demand"
    SWAP_CAP = "swap_cap"
    GUARD = "guard"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, the job (or budget) that breaks it, and a sentence."""

    rule: Broken
    job: str
    text: str


def check(problem: Problem, plan: Plan) -> tuple[Violation, ...]:
    """Every broken rule of the plan, none if it is legal."""
    shape = list(_shape(problem, plan))
    if shape:
        return tuple(shape)
    rules = (
        _one_job_per_gpu, _drains, _pools, _one_block, _blocks, _lengths, _protection, _rests,
        _demand, _swap_cap,
    )  # fmt: skip
    return tuple(found for rule in rules for found in rule(problem, plan))


def objective(problem: Problem, plan: Plan) -> float:
    """Σ priority·decay^t over batch GPU-timesteps − λ·Σ priority·shortfall."""
    terms, decay = [], problem.time_decay
    value = dict(zip(problem.columns.names, problem.columns.value.tolist(), strict=True))
    for name, _, gpus, start, end in plan.assignments:
        terms.append(value[name.removesuffix(REST)] * gpus * _worth(decay, start, end))
    for service in problem.realtime:
        sets = plan.realtime.get(service.name, ((),) * problem.horizon)
        missing = sum(service.demand) - sum(map(len, sets))
        terms.append(-problem.shortfall_penalty * service.priority * missing)
    return math.fsum(terms)  # the same in whatever order the plan lists its jobs


@lru_cache(maxsize=4096)  # plans are made with one decay again and again
def _worth(decay: float, start: int, end: int) -> float:
    """Σ decay^t over the timesteps [start, end)."""
    return math.fsum(decay**t for t in range(start, end))


def utilization(problem: Problem, plan: Plan) -> float:
    """Held GPU-timesteps ÷ all GPU-timesteps of the grid, between 0 and 1."""
    held = sum(a.gpus * (a.end - a.start) for a in plan.assignments)
    held += sum(len(rows) for sets in plan.realtime.values() for rows in sets)
    return held / (problem.gpus * problem.horizon)


def check_guard(problem: Problem, plan: Plan, construction: Plan) -> tuple[Violation, ...]:
    """On every prefix each leaf keeps min(its entitlement, what the construction gave it).

    Entitlement up to t is the effective share × the GPU-timesteps not drained in [0, t]. Funded
    work counts, batch and real time. A problem without budgets has no guard.
    """
    if not problem.budgets:
        return ()
    gone = _drained_at(problem)
    healthy = [sum(not word >> t & 1 for word in gone) for t in range(problem.horizon)]
    shares = _effective_shares(problem)
    found = []
    given, before = _funded_cells(problem, plan), _funded_cells(problem, construction)
    for path in sorted(shares):
        mine, owed, old = 0, 0, 0
        for t in range(problem.horizon):
            mine += given[path][t]
            old += before[path][t]
            owed += healthy[t]
            if mine < old and mine < shares[path] * owed:
                text = f"{path}: {mine} funded GPU-timesteps up to timestep {t}, guarded: {old}"
                found.append(Violation(Broken.GUARD, path, text))
                break
    return tuple(found)


def _shape(problem: Problem, plan: Plan) -> Iterator[Violation]:
    if (plan.gpus, plan.horizon) != (problem.gpus, problem.horizon):
        text = f"the plan is {plan.gpus} x {plan.horizon}, not {problem.gpus} x {problem.horizon}"
        yield Violation(Broken.SHAPE, "", text)
        return
    for a in plan.assignments:
        job = problem.by_name.get(a.job.removesuffix(REST))
        rest = a.job.endswith(REST)
        if not isinstance(job, BatchJob) or (rest and not job.interruptible):
            yield Violation(Broken.UNKNOWN_JOB, a.job, f"{a.job}: no such batch-like job")
        elif not (0 <= a.start < a.end <= problem.horizon and a.gpus > 0):
            yield Violation(Broken.SHAPE, a.job, f"{a.job}: not inside the horizon")
        elif not 0 <= a.first_gpu <= a.first_gpu + a.gpus <= problem.gpus:
            yield Violation(Broken.SHAPE, a.job, f"{a.job}: not inside the fleet")
    for name, sets in plan.realtime.items():
        if not isinstance(problem.by_name.get(name), RealtimeJob):
            yield Violation(Broken.UNKNOWN_JOB, name, f"{name}: no such service")
        elif len(sets) != problem.horizon or any(
            not 0 <= gpu < problem.gpus for rows in sets for gpu in rows
        ):
            yield Violation(Broken.SHAPE, name, f"{name}: not inside the grid")


def _held(problem: Problem, plan: Plan) -> Iterator[tuple[str, int, int]]:
    """Every (job, gpu, word): bit t of the word is set where the job holds the GPU."""
    for a in plan.assignments:
        word = (1 << a.end) - (1 << a.start)
        for gpu in range(a.first_gpu, a.first_gpu + a.gpus):
            yield a.job, gpu, word
    for name, sets in plan.realtime.items():
        words: dict[int, int] = {}
        for t, rows in enumerate(sets):
            for gpu in rows:
                words[gpu] = words.get(gpu, 0) | 1 << t
        for gpu, word in words.items():
            yield name, gpu, word


def _one_job_per_gpu(problem: Problem, plan: Plan) -> Iterator[Violation]:
    busy = [0] * problem.gpus
    told: set[str] = set()
    for job, gpu, word in _held(problem, plan):
        clash = busy[gpu] & word
        busy[gpu] |= word
        if clash and job not in told:
            told.add(job)
            text = f"{job}: GPU {gpu} is held by another job at timestep {_lowest(clash)}"
            yield Violation(Broken.ONE_JOB_PER_GPU, job, text)
    for name, sets in plan.realtime.items():
        if any(len(set(rows)) < len(rows) for rows in sets):
            text = f"{name}: one GPU is listed twice in a timestep"
            yield Violation(Broken.ONE_JOB_PER_GPU, name, text)


def _lowest(word: int) -> int:
    return (word & -word).bit_length() - 1


def _drained_at(problem: Problem) -> list[int]:
    """Per GPU: a word whose bit t is set where its node is drained."""
    words = {node.name: 0 for node in problem.nodes}
    for drain in problem.drains:
        for t in range(drain.start, min(drain.end, problem.horizon)):
            words[drain.node] |= 1 << t
    return [words[problem.nodes[n].name] for n in problem.node_of]


def _drains(problem: Problem, plan: Plan) -> Iterator[Violation]:
    if not problem.drains:
        return
    gone = _drained_at(problem)
    told: set[str] = set()
    for job, gpu, word in _held(problem, plan):
        if gone[gpu] & word and job not in told:
            told.add(job)
            text = f"{job}: GPU {gpu} is drained at timestep {_lowest(gone[gpu] & word)}"
            yield Violation(Broken.DRAIN, job, text)


def _pools(problem: Problem, plan: Plan) -> Iterator[Violation]:
    held: dict[str, set[int]] = {}
    for a in plan.assignments:
        held.setdefault(a.job, set()).update(range(a.first_gpu, a.first_gpu + a.gpus))
    for name, sets in plan.realtime.items():
        held.setdefault(name, set()).update(gpu for rows in sets for gpu in rows)
    for name, rows in held.items():
        allowed = problem.by_name[name.removesuffix(REST)].pools
        wrong = [g for g in sorted(rows) if problem.nodes[problem.node_of[g]].pool not in allowed]
        if allowed and wrong:
            text = f"{name}: GPU {wrong[0]} is in a pool it did not ask for"
            yield Violation(Broken.POOL, name, text)


def _one_block(problem: Problem, plan: Plan) -> Iterator[Violation]:
    seen: set[str] = set()
    for a in plan.assignments:
        if a.job in seen:
            text = f"{a.job}: does not keep one block from its start to its end"
            yield Violation(Broken.ONE_BLOCK, a.job, text)
        seen.add(a.job)


def _blocks(problem: Problem, plan: Plan) -> Iterator[Violation]:
    for a in plan.assignments:
        if a.gpus != _asked(problem, a.job).gpus:
            text = f"{a.job}: got {a.gpus} GPUs, asked {_asked(problem, a.job).gpus}"
            yield Violation(Broken.SIZE, a.job, text)
        if not _is_block(problem, a):
            text = f"{a.job}: GPUs {a.first_gpu} to {a.first_gpu + a.gpus - 1} are no legal block"
            yield Violation(Broken.BLOCK, a.job, text)


def _is_block(problem: Problem, a: Assignment) -> bool:
    touched = list(problem.node_of[a.first_gpu : a.first_gpu + a.gpus])
    if a.gpus.bit_count() != 1:
        return False
    if touched[0] == touched[-1]:
        return True
    nodes = sorted(set(touched))
    whole = all(touched.count(n) == problem.nodes[n].gpus for n in nodes)
    return whole and len({problem.nodes[n].pool for n in nodes}) == 1


def _lengths(problem: Problem, plan: Plan) -> Iterator[Violation]:
    for a in plan.assignments:
        job = _asked(problem, a.job)
        if a.job != job.name:
            continue  # the rest of a run: its own rule
        held = a.end - a.start
        past = problem.overrun and a.end == problem.horizon
        if job.running is None:
            if a.start < job.arrival:
                yield Violation(Broken.ARRIVAL, a.job, f"{a.job}: starts before it arrives")
            if held != job.duration and not (past and held < job.duration):
                text = f"{a.job}: holds {held} timesteps, needs {job.duration}"
                yield Violation(Broken.LENGTH, a.job, text)
        else:
            if a.start != 0 or a.first_gpu != job.running.first_gpu:
                yield Violation(Broken.MOVED, a.job, f"{a.job}: is running and was moved")
            if held > job.running.remaining:
                text = f"{a.job}: holds {held} timesteps, needs {job.running.remaining}"
                yield Violation(Broken.LENGTH, a.job, text)


def _protection(problem: Problem, plan: Plan) -> Iterator[Violation]:
    held = {a.job: a.end - a.start for a in plan.assignments}
    for job in problem.batch:
        if job.running is None:
            continue
        kept = min(job.running.protected, problem.horizon)
        if held.get(job.name, 0) < kept:
            text = f"{job.name}: is protected for {kept} timesteps and was stopped before"
            yield Violation(Broken.PROTECTED, job.name, text)


def _rests(problem: Problem, plan: Plan) -> Iterator[Violation]:
    ends = {a.job: a.end for a in plan.assignments}
    for a in plan.assignments:
        job = _asked(problem, a.job)
        if a.job == job.name or job.running is None:
            continue
        stopped = ends.get(job.name, 0)
        left, held = job.running.remaining - stopped, a.end - a.start
        if stopped and a.start < stopped:
            text = f"{a.job}: overlaps the run that it continues"
            yield Violation(Broken.REST, a.job, text)
        past = problem.overrun and a.end == problem.horizon
        if held != left and not (past and held < left):
            text = f"{a.job}: holds {held} timesteps, {left} are left"
            yield Violation(Broken.LENGTH, a.job, text)


def _demand(problem: Problem, plan: Plan) -> Iterator[Violation]:
    for name, sets in plan.realtime.items():
        service = problem.by_name[name]
        assert isinstance(service, RealtimeJob)
        for t, rows in enumerate(sets):
            if len(rows) > service.demand[t]:
                text = f"{name}: {len(rows)} GPUs at timestep {t}, demand {service.demand[t]}"
                yield Violation(Broken.DEMAND, name, text)
                break


def _swap_cap(problem: Problem, plan: Plan) -> Iterator[Violation]:
    for service in problem.realtime:
        sets = plan.realtime.get(service.name, ((),) * problem.horizon)
        before = None if service.held is None else set(service.held)
        for t, rows in enumerate(sets):
            now = set(rows)
            cap = service.cap_into(t)
            if before is not None and max(len(now - before), len(before - now)) > cap:
                text = f"more than {cap} GPUs swapped into timestep {t}"
                yield Violation(Broken.SWAP_CAP, service.name, f"{service.name}: {text}")
                break
            before = now


def _asked(problem: Problem, name: str) -> BatchJob:
    job = problem.by_name[name.removesuffix(REST)]
    assert isinstance(job, BatchJob)
    return job


def _effective_shares(problem: Problem) -> dict[str, Fraction]:
    """Per leaf: the product of shares from the root; a single root has everything."""
    nodes = {budget.path: budget for budget in problem.budgets}
    inner = {budget.parent for budget in problem.budgets}
    roots = sum(budget.parent is None for budget in problem.budgets)
    shares = {}
    for path in nodes.keys() - inner:
        product, at = Fraction(1), nodes[path]
        while at.parent is not None:
            product *= Fraction(at.shares, FULL_SHARE)
            at = nodes[at.parent]
        shares[path] = product if roots == 1 else product * Fraction(at.shares, FULL_SHARE)
    return shares


def _funded_cells(problem: Problem, plan: Plan) -> dict[str, list[int]]:
    """Per budget and timestep: GPU-timesteps of funded work."""
    cells = {budget.path: [0] * problem.horizon for budget in problem.budgets}
    for a in plan.assignments:
        job = _asked(problem, a.job)
        if job.funded and job.budget is not None:
            for t in range(a.start, a.end):
                cells[job.budget][t] += a.gpus
    for name, sets in plan.realtime.items():
        service = problem.by_name[name]
        if service.funded and service.budget is not None:
            for t, rows in enumerate(sets):
                cells[service.budget][t] += len(rows)
    return cells
