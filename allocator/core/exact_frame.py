"""What full mode plans in: rows of the grid, the work that may be placed there, and what stays.

The one place where full mode reads the construction. A frame covers the whole fleet, or a window of
it (`narrow`): work that is not free there stays as the plan has it, and what services hold outside
the window's rows counts as given.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from .bits import span
from .crosscheck import drained_words, legal_block
from .heuristic import Construction
from .items import allowed_starts
from .plan import Assignment, Plan
from .problem import REST, Problem, RealtimeJob
from .realtime import highest_counts


@dataclass(frozen=True, slots=True)
class Work:
    """Something that waits for a block: `length` timesteps from a start in the word `starts`."""

    name: str
    order: int
    gpus: int
    length: int
    priority: float
    pools: tuple[str, ...]
    budget: str | None  # whose guard it counts for; None: nobody's
    starts: int
    likeness: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Service:
    """A service; what it holds outside the frame's rows, and how many of those it held before."""

    job: RealtimeJob
    most: tuple[int, ...]
    outside: tuple[int, ...]
    stays: tuple[int, ...]

    @property
    def held(self) -> frozenset[int] | None:
        return None if self.job.held is None else frozenset(self.job.held)


@dataclass(frozen=True, slots=True)
class Floor:
    """Funded GPU-timesteps that a budget must be given in the frame, per prefix of the horizon."""

    budget: str
    least: tuple[int, ...]


@dataclass(frozen=True)
class Frame:
    """A planning problem without fairness decisions: those are kept work, starts and floors."""

    problem: Problem
    rows: tuple[int, ...]
    works: tuple[Work, ...]
    services: tuple[Service, ...]
    floors: tuple[Floor, ...]
    kept: tuple[Assignment, ...]
    taken: tuple[int, ...]  # per GPU of the fleet: timesteps of drains and kept work

    @cached_property
    def worth(self) -> list[float]:
        """Σ decay^u over u < t, for t in 0..horizon."""
        problem = self.problem
        return [0.0, *accumulate(problem.time_decay**t for t in range(problem.horizon))]

    @cached_property
    def pool_of(self) -> list[str]:
        """Per GPU of the fleet."""
        return [self.problem.nodes[n].pool for n in self.problem.node_of]

    @cached_property
    def pools(self) -> list[str]:
        """Pools of the frame's rows."""
        return sorted({self.pool_of[gpu] for gpu in self.rows})

    @cached_property
    def free(self) -> dict[str, list[int]]:
        """Per pool and timestep: GPUs of the frame that nothing kept or drained takes."""
        horizon = self.problem.horizon
        cells = {pool: [0] * horizon for pool in self.pools}
        for gpu in self.rows:
            counts, word = cells[self.pool_of[gpu]], self.taken[gpu]
            for t in range(horizon):
                counts[t] += not word >> t & 1
        return cells

    @cached_property
    def blocks(self) -> dict[int, list[tuple[int, int]]]:
        """Per size: (first GPU, word of busy timesteps) of every legal block inside the rows."""
        inside = set(self.rows)
        found: dict[int, list[tuple[int, int]]] = {}
        for size in {work.gpus for work in self.works}:
            blocks = found[size] = []
            for first in self.rows:
                if first + size - 1 in inside and legal_block(self.problem, first, size):
                    blocks.append((first, self._busy(first, size)))
        return found

    def _busy(self, first: int, size: int) -> int:
        word = 0
        for gpu in range(first, first + size):
            word |= self.taken[gpu]
        return word

    def end(self, work: Work, start: int) -> int:
        """Where the work ends, cut at the horizon."""
        return min(start + work.length, self.problem.horizon)

    def value(self, work: Work, start: int) -> float:
        """What the work is worth if it starts there."""
        gained = self.worth[self.end(work, start)] - self.worth[start]
        return work.priority * work.gpus * gained

    def missed(self, service: Service) -> float:
        """What one GPU-timestep of shortfall costs."""
        return self.problem.shortfall_penalty * service.job.priority

    def options(self, work: Work) -> list[tuple[int, int]]:
        """(first GPU, word of starts) of every block on which the work may start."""
        horizon, found = self.problem.horizon, []
        for first, busy in self.blocks[work.gpus]:
            if work.pools and self.pool_of[first] not in work.pools:
                continue
            starts = work.starts & ~blocked_starts(busy, min(work.length, horizon))
            if starts:
                found.append((first, starts))
        return found

    def rows_of(self, service: Service) -> list[int]:
        """The frame's GPUs that the service may hold."""
        asked = service.job.pools
        return [gpu for gpu in self.rows if not asked or self.pool_of[gpu] in asked]

    @cached_property
    def constant(self) -> float:
        """The objective where no work is placed and services hold only what lies outside."""
        jobs, worth = self.problem.by_name, self.worth
        total = 0.0
        for a in self.kept:
            job = jobs[a.job.removesuffix(REST)]
            total += job.priority * a.gpus * (worth[a.end] - worth[a.start])
        for service in self.services:
            total -= self.missed(service) * (sum(service.job.demand) - sum(service.outside))
        return total

    def narrow(self, plan: Plan, rows: Collection[int], names: Collection[str]) -> "Frame":
        """The window of `rows` in which the named work is free and all else is as in the plan."""
        within, free = set(rows), set(names)
        kept = [a for a in plan.assignments if a.job not in free]
        taken = list(self.taken)
        for a in kept:
            for gpu in range(a.first_gpu, a.first_gpu + a.gpus):
                taken[gpu] |= span(a.start, a.end)
        narrowed = replace(
            self,
            rows=tuple(sorted(within)),
            works=tuple(work for work in self.works if work.name in free),
            services=tuple(_outside(service, plan, within) for service in self.services),
            kept=tuple(kept),
            taken=tuple(taken),
        )
        return replace(narrowed, floors=tuple(self._floors(plan, narrowed)))

    def _floors(self, plan: Plan, narrowed: "Frame") -> Iterable[Floor]:
        """What is left of each floor after what the window does not decide."""
        before = {a.job for a in self.kept}
        stays = funded_cells(self.problem, (a for a in narrowed.kept if a.job not in before))
        for old, new in zip(self.services, narrowed.services, strict=True):
            if new.job.funded and new.job.budget is not None and new.job.budget in stays:
                given = stays[new.job.budget]
                for t, count in enumerate(new.outside):
                    given[t] += count - old.outside[t]
        for floor in self.floors:
            sums = zip(floor.least, accumulate(stays[floor.budget]), strict=True)
            least = tuple(cells - given for cells, given in sums)
            if any(cells > 0 for cells in least):
                yield Floor(floor.budget, least)

    def settled(self, plan: Plan) -> "Frame":
        """The frame in which services stay where the plan has them."""
        taken = list(self.taken)
        for sets in plan.realtime.values():
            for t, rows in enumerate(sets):
                for gpu in rows:
                    taken[gpu] |= 1 << t
        return replace(self, taken=tuple(taken))


def frame_of(construction: Construction) -> Frame:
    """The whole fleet as a frame: what fairness decided is kept, the guard is its floors."""
    problem = construction.problem
    fixed, starts_now = set(construction.fixed), -1
    if construction.filled:  # what starts now was measured against what was due: it stays
        fixed |= {a.job for a in construction.placed.assignments if a.start == 0}
        starts_now = ~1
    kept = tuple(a for a in construction.placed.assignments if a.job in fixed)
    taken = drained_words(problem)
    for a in kept:
        for gpu in range(a.first_gpu, a.first_gpu + a.gpus):
            taken[gpu] |= span(a.start, a.end)
    guarded = bool(problem.budgets)
    works = []
    for item in construction.items:
        if item.name in fixed:
            continue
        job = problem.by_name[item.name.removesuffix(REST)]
        works.append(
            Work(
                name=item.name,
                order=item.order,
                gpus=item.gpus,
                length=item.length,
                priority=item.priority,
                pools=item.pools,
                budget=job.budget if guarded and item.funded else None,
                starts=allowed_starts(problem, item) & starts_now,
                likeness=item.likeness,
            )
        )
    nothing = (0,) * problem.horizon
    services = tuple(
        Service(job, tuple(highest_counts(job)), nothing, nothing) for job in problem.realtime
    )
    rows = tuple(range(problem.gpus))
    floors = tuple(_guard(construction, kept))
    return Frame(problem, rows, tuple(works), services, floors, kept, tuple(taken))


def _guard(construction: Construction, kept: Sequence[Assignment]) -> Iterable[Floor]:
    """min(entitlement, construction) per prefix, less what is kept."""
    problem, turns = construction.problem, construction.turns
    built = funded_cells(problem, construction.placed.assignments)
    for name, sets in construction.placed.realtime.items():
        job = problem.by_name[name]
        if job.funded and job.budget is not None and job.budget in built:
            for t, rows in enumerate(sets):
                built[job.budget][t] += len(rows)
    stays = funded_cells(problem, kept)
    funded = {job.budget for job in problem.jobs if job.funded and job.budget is not None}
    for budget in sorted(funded & built.keys()):
        owed = turns.owed_cells(turns.leaf_of[budget], construction.healthy)
        sums = zip(owed, accumulate(built[budget]), accumulate(stays[budget]), strict=True)
        least = tuple(min(entitled, given) - stay for entitled, given, stay in sums)
        if any(cells > 0 for cells in least):
            yield Floor(budget, least)


def funded_cells(problem: Problem, placed: Iterable[Assignment]) -> dict[str, list[int]]:
    """Per budget and timestep: GPUs that the assignments give its funded work."""
    cells: dict[str, list[int]] = {budget.path: [0] * problem.horizon for budget in problem.budgets}
    for a in placed:
        job = problem.by_name[a.job.removesuffix(REST)]
        if job.funded and job.budget is not None and job.budget in cells:
            given = cells[job.budget]
            for t in range(a.start, a.end):
                given[t] += a.gpus
    return cells


def _outside(service: Service, plan: Plan, within: Collection[int]) -> Service:
    sets = [[g for g in rows if g not in within] for rows in plan.realtime[service.job.name]]
    before = [service.job.held or (), *sets]
    stays = tuple(len(set(a).intersection(b)) for a, b in zip(before, sets, strict=False))
    return replace(service, outside=tuple(map(len, sets)), stays=stays)


def blocked_starts(busy: int, length: int) -> int:
    """The word of starts from which `length` timesteps (cut at the word's end) meet a busy one."""
    blocked, done = busy, 1
    while done < length:
        step = min(done, length - done)
        blocked |= blocked >> step
        done += step
    return blocked
