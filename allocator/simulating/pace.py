"""How long a simulation still takes, by how fast this run of it has been so far. Pure."""

from collections.abc import Sequence
from math import ceil

PLANS = "fairshare"  # the policy that makes plans: others take hardly a hundredth of its time
LEAST_S = 10  # played before anything is foretold


class Pace:
    """Foretells the seconds that are left; ``policies``: of each play, in their order.

    What is left of the present play takes as long for each simulated second as it took so far. A
    play to come takes as long as one of its policy has. Where none has, it is as this one, or
    nothing beside plays of fair share.
    """

    def __init__(self, policies: Sequence[str]) -> None:
        self.policies = policies
        self.number = 0
        self._since = 0.0
        self._took: dict[str, float] = {}

    def begin(self, number: int, at: float) -> None:
        """Say that play ``number`` begins, and the one before is over; ``at`` in seconds."""
        if number:
            self._took[self.policies[number - 1]] = at - self._since
        self.number, self._since = number, at

    def left_s(self, at: float, done: int, of: int) -> int | None:
        """Return what is left at an instant at which so many seconds of a play are done, or None
        where it is too early to tell."""
        spent = at - self._since
        if not done or spent < LEAST_S:
            return None
        whole = spent * of / done
        took = {self.policies[self.number]: whole} | self._took
        unknown = 0.0 if PLANS in took else whole
        later = (took.get(policy, unknown) for policy in self.policies[self.number + 1 :])
        return ceil(max(0.0, whole - spent) + sum(later))
