"""What every policy is asked and told."""

from dataclasses import dataclass, field
from typing import Protocol

from .services import SimService
from .world import SimJob


@dataclass
class Decision:
    """What is stopped and started now: runs with what they yield to, jobs with first GPUs.

    ``serves``: services with the GPUs that they hold from now on; ``renewed``: what all of them pay
    is settled anew, as once in a timestep, so what they paid before doesn't count.
    """

    stops: list[tuple[SimJob, SimJob | SimService | None]] = field(default_factory=list)
    starts: list[tuple[SimJob, int]] = field(default_factory=list)
    serves: list[tuple[SimService, tuple[int, ...]]] = field(default_factory=list)
    renewed: bool = False
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

    def serves(self, service: SimService) -> None:
        """A service is there."""

    def serves_no_more(self, service: SimService) -> None:
        """A service is gone."""

    def decide(self) -> Decision:
        """What is due now."""
