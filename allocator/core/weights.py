"""What a GPU-timestep of a job is worth to the allocator: weight = (1 + 9·F)·u.

F is the Fair Tree factor of the job's leaf in (0, 1]; u its raw urgency (1, 2, 4) over the
GPU-second-weighted mean of its leaf's jobs, so that marking everything high changes nothing and
splitting a job gains nothing. An unfunded job weighs 0.1·u.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

RAW_URGENCY = {"low": 1, "normal": 2, "high": 4}
UNFUNDED = Fraction(1, 10)
DECAY_PER_HOUR = 0.97


@dataclass
class LeafUrgency:
    """Sums over a leaf's waiting and running jobs, kept up as jobs come and go (GPU-seconds)."""

    total: int = 0  # of raw urgency × size
    size: int = 0

    def add(self, urgency: str, gpu_seconds: int) -> None:
        self.total += RAW_URGENCY[urgency] * gpu_seconds
        self.size += gpu_seconds

    def remove(self, urgency: str, gpu_seconds: int) -> None:
        self.add(urgency, -gpu_seconds)

    def factor(self, urgency: str) -> Fraction:
        """u of one of the leaf's jobs, exact; the GPU-second-weighted mean of all is 1."""
        return Fraction(RAW_URGENCY[urgency] * self.size, self.total)


@dataclass
class Urgencies:
    """The sums of every leaf."""

    leaves: dict[Hashable, LeafUrgency] = field(default_factory=dict)

    def add(self, leaf: Hashable, urgency: str, gpu_seconds: int) -> None:
        self.leaves.setdefault(leaf, LeafUrgency()).add(urgency, gpu_seconds)

    def remove(self, leaf: Hashable, urgency: str, gpu_seconds: int) -> None:
        self.leaves[leaf].remove(urgency, gpu_seconds)

    def factor(self, leaf: Hashable, urgency: str) -> Fraction:
        return self.leaves[leaf].factor(urgency)


def urgencies(jobs: Iterable[tuple[Hashable, str, int]]) -> Urgencies:
    """The sums of (leaf, urgency, GPU-seconds) of all jobs that wait or run."""
    found = Urgencies()
    for leaf, urgency, gpu_seconds in jobs:
        found.add(leaf, urgency, gpu_seconds)
    return found


def gpu_seconds(gpus: int, expected_s: int) -> int:
    """A job's size among its leaf's: GPUs × its likely duration, a second at least."""
    return gpus * max(1, expected_s)


def weight(*, factor: Fraction | None, urgency: Fraction, funded: bool) -> float:
    """The job's weight, to 6 decimals. ``factor`` None: its leaf has no place in the tree."""
    if not funded or factor is None:
        return round(float(UNFUNDED * urgency), 6)
    return round(float((1 + 9 * factor) * urgency), 6)


def time_decay(timestep_minutes: int) -> float:
    """What a GPU-timestep is worth of what it was worth one timestep before."""
    return float(DECAY_PER_HOUR ** (timestep_minutes / 60))
