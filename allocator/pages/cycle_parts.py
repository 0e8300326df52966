"""The parts of a cycle's page: rows as templates show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from allocator.models import Cycle
from allocator.pages.job_story import Comparison
from allocator.pages.queue import Why
from budgets.hues import Hue


@dataclass(frozen=True)
class Name:
    """A job as a row names it; without a number where the reader may not know it."""

    pk: int | None = None
    label: str = ""
    hue: Hue = 0


@dataclass(frozen=True)
class Start:
    """A job that the plan starts now. Weight = (1 + 9 × factor) × urgency; unfunded 0.1 × urgency.

    ``is_given`` is False where its hold could not be kept, so that it wasn't started after all.
    """

    name: Name
    gpus: int
    nodes: tuple[str, ...]
    funded: bool
    weight: float
    factor: float | None
    urgency: float | None
    is_given: bool


@dataclass(frozen=True)
class Stop:
    """A run that was stopped, for whom, and the numbers that decided it."""

    name: Name
    gpus: int
    cause: str  # of a preemption; cancelled, node_failure
    by: Name | None = None
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Change:
    """GPUs of a service before and after."""

    name: Name
    before: int
    after: int


@dataclass(frozen=True)
class Waits:
    """A job that still waits, with the reason where it is known, and its place in the plan."""

    name: Name
    gpus: int
    start: datetime | None
    why: Why | None = None
    own: str = ""  # its budget's name


@dataclass(frozen=True)
class Moved:
    """A waiting job whose planned start is another than in the plan before; None: not planned."""

    name: Name
    before: datetime | None
    after: datetime | None

    @property
    def seconds(self) -> int | None:
        """How much later; below 0: sooner."""
        if self.before is None or self.after is None:
            return None
        return int((self.after - self.before).total_seconds())

    @property
    def is_sooner(self) -> bool:
        return (self.seconds or 0) < 0

    @property
    def apart_s(self) -> int:
        """How much later or sooner, in seconds."""
        return abs(self.seconds or 0)


@dataclass(frozen=True)
class Saw:
    """What the cycle saw, in numbers."""

    nodes: int
    gpus: int
    drained: int  # nodes of which GPUs are left out sometime in the horizon
    running: int
    services: int
    waiting: int
    asked_gpus: int  # by what waits
    held_gpus: int  # by what runs
    timesteps: int
    timestep_minutes: int


@dataclass(frozen=True)
class Before:
    """The plan before, and what this one has made of it; None where it is gone."""

    cycle: Cycle | None = None
    moved: list[Moved] = field(default_factory=list)
    same: int = 0
    came: int = 0  # jobs that the plan before didn't know
    unseen: int = 0  # of what differs, jobs that the reader may not know
