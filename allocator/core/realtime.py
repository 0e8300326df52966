"""Real-time services: how many GPUs each timestep, and which.

A service gains at most its swap cap and loses at most its swap cap from one timestep to the next,
counted on the identity of GPUs and from the GPUs it holds now. Its GPUs are a stack: what it holds
first, then GPUs from the top of the grid, so that its troughs leave whole blocks to other work.
"""

from collections.abc import Sequence

from .bits import lowest
from .problem import RealtimeJob

Sets = tuple[tuple[int, ...], ...]
NEVER = 64


def highest_counts(job: RealtimeJob) -> list[int]:
    """The most GPUs the service can hold at each timestep, whatever the fleet looks like."""
    most = list(job.demand)
    for t in range(len(most) - 2, -1, -1):
        most[t] = min(most[t], most[t + 1] + job.swap_cap)
    if job.held is not None:
        most[0] = min(most[0], len(job.held) + job.swap_cap)
    for t in range(1, len(most)):
        most[t] = min(most[t], most[t - 1] + job.swap_cap)
    return most


def place_service(job: RealtimeJob, rows: Sequence[int], busy: Sequence[int]) -> Sets:
    """The service's GPUs per timestep, among `rows` (best first) where `busy` words are clear.

    Serves the most it can: as a stack where that fits, else by moving within its swap cap.
    """
    counts = highest_counts(job)
    stack = _stack(job, rows, busy, counts)
    if stack is not None:
        return tuple(tuple(sorted(stack[:count])) for count in counts)
    return _Walk(job, rows, busy).sets()


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


def _stack(
    job: RealtimeJob, rows: Sequence[int], busy: Sequence[int], counts: list[int]
) -> list[int] | None:
    """One GPU per position, free whenever the count reaches it; None where that can't be."""
    held = sorted(job.held or (), reverse=True)
    taken = set(held)
    spare = [gpu for gpu in rows if gpu not in taken]
    stack: list[int] = []
    for position in range(max(max(counts), len(held))):
        needed = sum(1 << t for t, count in enumerate(counts) if count > position)
        if position < len(held):
            gpu: int | None = held[position]
            if busy[held[position]] & needed:
                return None
        else:
            gpu = next((g for g in spare if not busy[g] & needed), None)
        if gpu is None:
            return None
        if position >= len(held):
            spare.remove(gpu)
        stack.append(gpu)
    return stack


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
            gains = self.job.swap_cap if held is not None or t else len(self.rows)
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
