"""What every policy is asked and told."""

from dataclasses import dataclass, field
from typing import Protocol

from .world import SimJob


@dataclass
class Decision:
    """What is stopped and started now: runs with the job they yield to, jobs with first GPUs."""

    stops: list[tuple[SimJob, SimJob | None]] = field(default_factory=list)
    starts: list[tuple[SimJob, int]] = field(default_factory=list)
    again: bool = False  # ask once more at the same instant
    soon: bool = False  # and once more when the cluster has done what was decided
    planned: bool = True  # something was worked out; False: it was plain that nothing would come


class Policy(Protocol):
    """Decides; the simulator carries it out and tells it of every change."""

    def added(self, job: SimJob) -> None:
        """A job waits."""

    def left(self, job: SimJob) -> None:
        """A job waits no longer."""

    def started(self, job: SimJob) -> None:
        """A job runs."""

    def stopped(self, job: SimJob) -> None:
        """A run is over."""

    def decide(self) -> Decision:
        """What is due now."""
