"""What budgets hold and ask, counted as the clock moves: integers, GPU-seconds."""

from dataclasses import dataclass, field

from .nodes import Availability
from .setup import Budgets, Setup


@dataclass
class Level:
    """GPUs of one leaf at this instant, and GPU-seconds so far."""

    funded: int = 0
    unfunded: int = 0
    asking: int = 0  # by jobs that wait and could be funded
    funded_s: int = 0
    unfunded_s: int = 0
    asking_s: int = 0


@dataclass
class Due:
    """What one budget was owed and got over closed timesteps (GPU-seconds).

    ``delivered`` is counted by timestep, ``delivered_by_window`` by fair-share window: there, more
    in one timestep makes up for less in another.
    """

    owed: int = 0
    delivered: int = 0
    delivered_by_window: int = 0
    window_owed: int = 0  # since the present window began
    window_funded: int = 0

    def add(self, owed: int, funded: int) -> None:
        """One timestep more."""
        self.owed += owed
        self.delivered += min(funded, owed)
        self.window_owed += owed
        self.window_funded += funded

    def close_window(self) -> None:
        """A window is over."""
        self.delivered_by_window += min(self.window_owed, self.window_funded)
        self.window_owed = self.window_funded = 0


@dataclass
class Meters:
    """One leaf's levels by number of its budget; the window's use is read from `marks`."""

    setup: Setup
    budgets: Budgets
    now: int = 0
    levels: dict[int, Level] = field(default_factory=dict)
    due: dict[int, Due] = field(default_factory=dict)
    held_s: int = 0
    crowded_s: int = 0  # seconds in which demand was at least capacity
    crowded_held_s: int = 0  # GPU-seconds held in them
    crowded_healthy_s: int = 0  # GPU-seconds that were to be had in them
    waiting_gpus: int = 0
    held_gpus: int = 0

    def __post_init__(self) -> None:
        self.available = Availability(self.setup.nodes, self.setup.events, self.setup.seconds)
        self.levels = {leaf: Level() for leaf in self.budgets.leaves}
        self.due = {n: Due() for n in range(len(self.budgets.nodes))}
        self._closed = {leaf: (0, 0) for leaf in self.levels}  # funded, asked when last closed
        self._marks: list[tuple[int, dict[int, int]]] = [(0, dict.fromkeys(self.levels, 0))]
        self._oldest = 0

    def advance(self, now: int) -> None:
        """Count up to an instant, at the levels that held since the last one."""
        spent = now - self.now
        if not spent:
            return
        for level in self.levels.values():
            level.funded_s += level.funded * spent
            level.unfunded_s += level.unfunded * spent
            level.asking_s += level.asking * spent
        self.held_s += self.held_gpus * spent
        healthy = self.available.gpus(self.now)
        if self.held_gpus + self.waiting_gpus >= healthy:
            self.crowded_s += spent
            self.crowded_held_s += self.held_gpus * spent
            self.crowded_healthy_s += healthy * spent
        self.now = now
        self._marks.append((now, {leaf: level.funded_s for leaf, level in self.levels.items()}))

    def window_use(self) -> dict[int, int]:
        """Funded GPU-seconds of each leaf in the window that ends now."""
        since = self.now - self.setup.window_s
        if since <= 0:
            return {leaf: level.funded_s for leaf, level in self.levels.items()}
        while self._marks[self._oldest + 1][0] <= since:
            self._oldest += 1
        (a, before), (b, after) = self._marks[self._oldest : self._oldest + 2]
        return {
            # Levels are even between two marks, so this is whole.
            leaf: level.funded_s - _between(before[leaf], after[leaf], since - a, b - a)
            for leaf, level in self.levels.items()
        }

    def window_entitled(self, until: int) -> dict[int, int]:
        """Each budget's entitlement from the window's start to an instant."""
        since = max(0, self.now - self.setup.window_s)
        gpu_seconds = self.available.expected(since, self.now, until)
        return {n: self.budgets.entitled(n, gpu_seconds) for n in self.due}

    def close(self, seconds: int) -> None:
        """Close the timestep of so many seconds that ends now: who was owed what, who got it."""
        healthy = self.available.gpu_seconds(self.now - seconds, self.now)
        funded, demand = dict.fromkeys(self.due, 0), dict.fromkeys(self.due, 0)
        for leaf, level in self.levels.items():
            funded_before, asked_before = self._closed[leaf]
            got, asked = level.funded_s - funded_before, level.asking_s - asked_before
            self._closed[leaf] = (level.funded_s, level.asking_s)
            for n in self.budgets.above[leaf]:
                funded[n] += got
                demand[n] += got + asked
        for n, due in self.due.items():
            entitled = self.budgets.entitled(n, healthy)
            due.add(min(entitled, demand[n]), funded[n])
            if self.now % self.setup.window_s == 0 or self.now >= self.setup.seconds:
                due.close_window()


@dataclass
class Funds:
    """Credits at rate 1, in GPU-seconds: a grant per leaf, and what is spent or set aside of it."""

    granted: dict[int, int | None]  # None: without limit
    committed: dict[int, int]
    freed: set[int] = field(default_factory=set)  # leaves that got some back lately

    @classmethod
    def of(cls, setup: Setup, budgets: Budgets) -> "Funds":
        whole = setup.gpus * setup.seconds
        return cls(
            {
                leaf: None if setup.unlimited else budgets.entitled(leaf, whole)
                for leaf in budgets.leaves
            },
            dict.fromkeys(budgets.leaves, 0),
        )

    def set_aside(self, leaf: int, gpu_seconds: int) -> bool:
        """Set so much aside if the leaf has it."""
        granted = self.granted[leaf]
        if granted is not None and self.committed[leaf] + gpu_seconds > granted:
            return False
        self.committed[leaf] += gpu_seconds
        return True

    def affordable(self, leaf: int, gpus: int, seconds: int) -> int:
        """How many of some GPUs the leaf can pay for so long."""
        granted = self.granted[leaf]
        if granted is None or not seconds:
            return gpus
        return max(0, min(gpus, (granted - self.committed[leaf]) // seconds))

    def give_back(self, leaf: int, gpu_seconds: int) -> None:
        self.committed[leaf] -= gpu_seconds
        self.freed.add(leaf)


def _between(before: int, after: int, part: int, whole: int) -> int:
    return before + (after - before) * part // whole
