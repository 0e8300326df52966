"""Real-time services: how many GPUs each timestep, and which.

A service gains at most its swap cap and loses at most its swap cap from one timestep to the next,
counted on the identity of GPUs and from the GPUs it holds now. Its GPUs are a stack: what it holds
first, then GPUs from the top of the grid, so that its troughs leave whole blocks to other work.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .bits import lowest
from .compiled import building
from .compiled.tables import Rows, Words
from .layout import Layout
from .problem import Problem, RealtimeJob

Sets = tuple[tuple[int, ...], ...]
NEVER = 64


def highest_counts(job: RealtimeJob) -> list[int]:
    """The most GPUs the service can hold at each timestep, whatever the fleet looks like."""
    most = list(job.demand)
    for t in range(len(most) - 2, -1, -1):
        most[t] = min(most[t], most[t + 1] + job.swap_cap)
    if job.held is not None:
        most[0] = min(most[0], len(job.held) + job.cap_into(0))
    for t in range(1, len(most)):
        most[t] = min(most[t], most[t - 1] + job.swap_cap)
    return most


def missing(job: RealtimeJob, sets: Sets) -> int:
    """GPU-timesteps short of what the service could be given at most."""
    return sum(highest_counts(job)) - sum(map(len, sets))


def words_of(sets: Sets) -> dict[int, int]:
    """Per GPU: the word of the timesteps in which the service holds it."""
    words: dict[int, int] = {}
    for t, rows in enumerate(sets):
        for gpu in rows:
            words[gpu] = words.get(gpu, 0) | 1 << t
    return words


def sets_of(words: Words, horizon: int) -> Sets:
    """Per timestep: the GPUs whose word has its bit set, sorted."""
    held = [(gpu, int(words[gpu])) for gpu in np.flatnonzero(words).tolist()]
    changes = 1  # timesteps at which some GPU is taken or left
    for _, word in held:
        changes |= word ^ (word << 1)
    sets: list[tuple[int, ...]] = []
    for t in range(horizon):
        if changes >> t & 1:
            sets.append(tuple(gpu for gpu, word in held if word >> t & 1))
        else:
            sets.append(sets[-1])
    return tuple(sets)


@dataclass(frozen=True)
class Roster:
    """Services in the order in which they are served, and how they stack in one corner.

    Position p of a service is needed whenever its count passes p. Positions needed longest go
    deepest into the corner, so bases lie together and peaks share the edge, where their troughs are
    of use to other work.
    """

    services: tuple[RealtimeJob, ...]
    counts: tuple[tuple[int, ...], ...]
    pools: Rows  # per service: row of Fleet.outside
    base: Rows  # GPUs held now: the first positions, last GPU first
    base_needed: Words
    base_service: Rows
    needed: Words  # open positions, deepest first
    owner: Rows  # the service of each


def roster(problem: Problem, chosen: Iterable[RealtimeJob]) -> Roster:
    """The chosen services, most valuable first."""
    services = tuple(sorted(chosen, key=lambda service: (-service.priority, service.name)))
    counts = tuple(tuple(highest_counts(service)) for service in services)
    base: list[tuple[int, int, int]] = []
    free: list[tuple[int, str, int, int, int]] = []
    for s, service in enumerate(services):
        held = sorted(service.held or (), reverse=True)
        words = [0] * max(len(held), *counts[s])
        for t, count in enumerate(counts[s]):
            for position in range(count):
                words[position] |= 1 << t
        for position, needed in enumerate(words):
            if position < len(held):
                base.append((held[position], needed, s))
            else:
                free.append((-needed.bit_count(), service.name, position, needed, s))
    free.sort()
    index = problem.layout.pools_index
    return Roster(
        services=services,
        counts=counts,
        pools=np.array([index[service.pools] for service in services], np.int64),
        base=np.array([gpu for gpu, _, _ in base], np.int64),
        base_needed=np.array([needed for _, needed, _ in base], np.uint64),
        base_service=np.array([s for _, _, s in base], np.int64),
        needed=np.array([needed for *_, needed, _ in free], np.uint64),
        owner=np.array([s for *_, s in free], np.int64),
    )


def stack(roster: Roster, layout: Layout, busy: Words) -> Words | None:
    """All services as stacks in one corner, as words [services, GPUs].

    None where some GPU is in the way of that. `busy` words are not free.
    """
    serving = np.zeros((len(roster.services), layout.gpus), np.uint64)
    fits = building.stack(
        layout.fleet, roster.owner, roster.needed, roster.pools,
        roster.base, roster.base_needed, roster.base_service, busy.copy(), serving,
    )  # fmt: skip
    return serving if fits else None


def place_service(
    problem: Problem, job: RealtimeJob, rows: Sequence[int], busy: Sequence[int]
) -> Sets:
    """One service's GPUs per timestep, among `rows` (best first) where `busy` words are clear.

    Serves the most it can: as a stack where that fits, else by moving within its swap cap.
    """
    stacked = stack(roster(problem, [job]), problem.layout, np.array(busy, np.uint64))
    if stacked is None:
        return _Walk(job, rows, busy).sets()
    return sets_of(stacked[0], problem.horizon)


def shed_path(job: RealtimeJob, drained: Sequence[int]) -> Sets:
    """What the service holds if it sheds its swap cap every timestep, first what drains first."""
    left = sorted(
        job.held or (), key=lambda gpu: (lowest(drained[gpu]) if drained[gpu] else NEVER, gpu)
    )
    steps = []
    for t in range(len(job.demand)):
        left = left[job.cap_into(t) :]
        steps.append(tuple(sorted(left)))
    return tuple(steps)


class _Walk:
    """Timestep by timestep, never holding what it could not leave in time.

    A set of GPUs is safe at t if for every later t' the swap cap lets the service leave, by t', the
    GPUs that are taken away by t' and the number that demand falls short of. It drops what must go
    first, earliest deadline first, and takes the best free GPUs that keep it safe.
    """

    def __init__(self, job: RealtimeJob, rows: Sequence[int], busy: Sequence[int]) -> None:
        self.job = job
        self.rows = list(rows)
        self.place = {gpu: i for i, gpu in enumerate(self.rows)}
        self.busy = busy
        self.horizon = len(job.demand)

    def sets(self) -> Sets:
        held = self.job.held
        now = list(held or ())
        steps = []
        for t in range(self.horizon):
            gains = self.job.cap_into(t) if held is not None or t else len(self.rows)
            now = self._gain(self._drop(now, t), t, gains)
            steps.append(tuple(sorted(now)))
        return tuple(steps)

    def _deadline(self, gpu: int, t: int) -> int:
        """The first timestep from t on in which the GPU is taken away."""
        later = self.busy[gpu] >> t
        return t + lowest(later) if later else NEVER

    def _drop(self, now: list[int], t: int) -> list[int]:
        now = sorted(now, key=lambda gpu: (self._deadline(gpu, t), -self.place.get(gpu, 0)))
        while now and not self._leaves_in_time(now, t):
            now.pop(0)
        now.sort(key=lambda gpu: self.place.get(gpu, 0))
        while now and not self._fits_demand(len(now), t):
            now.pop()
        return now

    def _gain(self, now: list[int], t: int, gains: int) -> list[int]:
        for gpu in sorted(self.rows, key=lambda g: (-self._deadline(g, t), self.place[g])):
            if gains <= 0 or not self._fits_demand(len(now) + 1, t):
                break
            if gpu in now or self.busy[gpu] >> t & 1:
                continue
            if self._leaves_in_time([*now, gpu], t):
                now = [*now, gpu]
                gains -= 1
        return now

    def _leaves_in_time(self, gpus: list[int], t: int) -> bool:
        deadlines = sorted(self._deadline(gpu, t) for gpu in gpus)
        return all(
            due >= self.horizon or position < self.job.swap_cap * (due - t)
            for position, due in enumerate(deadlines)
        )

    def _fits_demand(self, count: int, t: int) -> bool:
        cap = self.job.swap_cap
        return all(
            count - cap * (later - t) <= self.job.demand[later] for later in range(t, self.horizon)
        )
