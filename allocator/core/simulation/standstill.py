"""A proof, ahead of a plan, that it would start and stop nothing now: then it needn't be made.

Whatever a plan starts now stands on GPUs that are free or that runs leave now. Consider the first
that it would start or stop in its present timestep, in the order in which it decides: until then
all runs still hold their GPUs. So it is enough that no class of waiting jobs has a block of free
GPUs, nor one of free GPUs and those of runs that its jobs might stop, or have moved to where a
block of their size is free. Who might is taken more
widely than the contract does, never more narrowly: order, hysteresis and limits are left out, and
whether somebody is inside its entitlement is taken from the least and the most that may count in
the present timestep by then.
"""

from collections.abc import Collection, Sequence

from ..debug_jobs import AHEAD
from ..problem import BudgetNode
from .fleet import block
from .world import SimJob, World

Kind = tuple[int, bool, int, bool]  # leaf, funded, GPUs, debug


class Standstill:
    """What may be stopped for whom, at one instant of a cluster without services and drains."""

    def __init__(self, world: World, budgets: Sequence[BudgetNode]) -> None:
        self.world, self.step_s, self.fleet = world, world.setup.step_s, world.fleet
        self.free = world.fleet.free
        self.idle = self.free.bit_count()
        many = len(budgets)
        # Masks of the GPUs of runs over their protection; small: of those that fit elsewhere now.
        self.unfunded = self.unfunded_small = 0
        self.funded: dict[int, int] = {}  # by leaf
        self.small: dict[int, int] = {}
        self.ahead: dict[int, int] = {}  # GPUs of debug jobs in the place of runs, by leaf
        self._fits: dict[int, bool] = {}
        self._room = [budget.entitled for budget in budgets]
        self._least, self._most = [0] * many, [0] * many  # funded GPUs in the present timestep
        for job in world.running.values():
            self._count(job)
        for leaf, use in ((n, budget.usage) for n, budget in enumerate(budgets) if budget.usage):
            for n in world.budgets.above[leaf]:
                self._room[n] -= use

    def holds(self, kinds: Collection[Kind]) -> bool:
        """Whether nothing of these kinds could start now, and nothing stop."""
        return not any(self._might_start(*kind) for kind in kinds)

    def _count(self, job: SimJob) -> None:
        run, leaf = job.run, job.leaf
        assert run is not None
        over = run.protected_until <= self.world.now
        mask = block(run.first, job.gpus) if over else 0
        small = mask if mask and self._fit(job.gpus) else 0
        if job.ahead:
            self.ahead[leaf] = self.ahead.get(leaf, 0) + job.gpus
        if not job.funded:
            self.unfunded |= mask
            self.unfunded_small |= small
            return
        if mask:
            self.funded[leaf] = self.funded.get(leaf, 0) | mask
            self.small[leaf] = self.small.get(leaf, 0) | small
        for n in self.world.budgets.above[leaf]:
            self._most[n] += job.gpus
            self._least[n] += 0 if over else job.gpus

    def _fit(self, gpus: int) -> bool:
        """Whether a block of a size is free."""
        if gpus not in self._fits:
            self._fits[gpus] = bool(self.fleet.starts(self.free, gpus))
        return self._fits[gpus]

    def _might_start(self, leaf: int, funded: bool, gpus: int, debug: bool) -> bool:
        if self._fit(gpus):
            return True
        if not funded:
            return False  # it stops nobody
        others = [other for other in self.funded if self._might_stop(leaf, gpus, other)]
        stopped = self.free | self.unfunded | _all_of(self.funded, others)
        if debug and self.ahead.get(leaf, 0) + gpus <= AHEAD:
            stopped |= self.funded.get(leaf, 0)
        if self.fleet.starts(stopped, gpus):
            return True
        if gpus > self.idle:
            return False  # moving runs makes no more room than there is
        moved = self.free | self.unfunded_small | _all_of(self.small, [leaf, *others])
        return bool(self.fleet.starts(moved, gpus))

    def _might_stop(self, leaf: int, gpus: int, other: int) -> bool:
        """Whether it may be that it is inside its entitlement, or the other's leaf outside."""
        if leaf == other:
            return False
        a, b = self.world.budgets.above[leaf], self.world.budgets.above[other]
        mine, theirs = (n for n in a if n not in b), (n for n in b if n not in a)
        if all((self._least[n] + gpus) * self.step_s <= self._room[n] for n in mine):
            return True
        return any(self._most[n] * self.step_s > self._room[n] for n in theirs)


def _all_of(masks: dict[int, int], leaves: Sequence[int]) -> int:
    found = 0
    for leaf in leaves:
        found |= masks.get(leaf, 0)
    return found
