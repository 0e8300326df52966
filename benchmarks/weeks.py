"""A week of a medium cluster: arrivals by chance, durations nobody knows, daily services."""

from dataclasses import dataclass
from math import cos, exp, pi
from random import Random

from allocator.core.problem import Kind, Node

from .fleets import KINDS

STEP_MINUTES = 30
DAY = 24 * 60 // STEP_MINUTES
HORIZON = DAY
SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32)  # up to half of the fleet


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job: it lasts `truth` timesteps, and is thought to last `estimate`."""

    name: str
    kind: Kind
    priority: int
    gpus: int
    arrival: int  # the first timestep that can know of it
    truth: int
    estimate: int


@dataclass(frozen=True, slots=True)
class Curve:
    """A service's demand for the whole week and a horizon more."""

    name: str
    priority: int
    swap_cap: int
    demand: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Week:
    nodes: tuple[Node, ...]
    steps: int
    arrivals: tuple[Arrival, ...]
    services: tuple[Curve, ...]

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


def make_week(
    seed: int, *, nodes: int = 8, days: int = 7, load: float = 1.1, sigma: float = 0.5
) -> Week:
    """`load`: work that arrives ÷ what services leave free. `sigma`: of ln(estimate ÷ truth).

    Poisson arrivals, busier by day than by night.
    """
    rng = Random(f"week-{seed}")
    machines = tuple(Node(f"n{i}", 8) for i in range(nodes))
    steps = days * DAY
    services = tuple(_curve(rng, f"serve{i}", steps, nodes) for i in range(4))
    free = 8 * nodes * steps - sum(sum(s.demand[:steps]) for s in services)
    arrivals: list[Arrival] = []
    sizes = tuple(size for size in SIZES if size <= 4 * nodes)
    rate = load * free / steps / _mean_work(rng, sizes)
    at = 0.0
    while (at := at + rng.expovariate(1.6 * rate)) < steps:
        if rng.random() < _by_day(at) / 1.6:  # thinning makes the rate follow the day
            arrivals.append(_job(rng, len(arrivals), int(at) + 1, sizes, sigma))
    return Week(machines, steps, tuple(a for a in arrivals if a.arrival < steps), services)


def _job(rng: Random, number: int, arrival: int, sizes: tuple[int, ...], sigma: float) -> Arrival:
    truth = _rounded(rng.lognormvariate(1.8, 0.9))
    return Arrival(
        name=f"job{number:04}",
        kind=rng.choice(KINDS),
        priority=rng.randint(1, 10),
        gpus=rng.choice(sizes),
        arrival=arrival,
        truth=truth,
        estimate=_rounded(truth * exp(rng.gauss(0, sigma))),
    )


def _rounded(duration: float) -> int:
    return min(max(round(duration), 1), HORIZON)


def _mean_work(rng: Random, sizes: tuple[int, ...]) -> float:
    """GPU-timesteps of a job on average."""
    sample = [_job(rng, 0, 0, sizes, 0) for _ in range(2000)]
    return sum(job.gpus * job.truth for job in sample) / len(sample)


def _by_day(at: float) -> float:
    """The rate around the clock: 1 on average, 1.6 in mid-afternoon, 0.4 in the night."""
    return 1 + 0.6 * cos(2 * pi * (at / DAY - 15 / 24))


def _curve(rng: Random, name: str, steps: int, nodes: int) -> Curve:
    floor, bump = rng.randint(1, max(1, nodes // 4)), rng.randint(1, nodes)
    top = rng.uniform(11, 19) / 24 * DAY
    demand = tuple(
        floor + round(bump * max(0.0, cos(2 * pi * (t - top) / DAY)) * rng.uniform(0.85, 1))
        for t in range(steps + HORIZON)
    )
    return Curve(name, rng.randint(5, 10), 2, demand)
