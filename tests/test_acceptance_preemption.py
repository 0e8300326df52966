"""Row 4 of the acceptance tests as a property of random clusters, from the database to the plan.

A job inside its entitlement is never a victim for one outside, and after an eviction the same
cycle never lets the victim back in ahead of its preemptor. Who is inside is worked out here, by
hand, from what the snapshot says of budgets and runs; so sparingly that it doesn't matter in which
order the plan gave what it gave.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction

from allocator import snapshot
from allocator.core.check import check
from allocator.core.plan import Preemption, Result
from allocator.core.problem import BudgetNode
from allocator.core.settings import Settings
from allocator.core.solve import solve
from budgets.models import Budget
from clusters.models import Node
from tests import factories as make
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import Institute, make_institute
from tests.ledger_world import close
from workloads.models import Job

pytestmark = [pytest.mark.django_db, pytest.mark.once]
NOW = T0 + 2 * HOUR
SHARES = (0, 20_000, 40_000, 50_000, 60_000, 80_000)
CLUSTERS = 40


def test_inside_is_never_preempted_for_outside_nor_let_back_in_ahead() -> None:
    place = make_institute(nodes=3)
    Node.objects.update(active_from=T0)
    sides = Counter[tuple[bool, bool]]()
    for seed in range(CLUSTERS):
        with transaction.atomic():
            fill(place, random.Random(seed))
            taken = snapshot.take(at=NOW, version=0)
            transaction.set_rollback(True)
        result = solve(taken.problem, settings=Settings(preempted_percent=100))
        assert not check(taken.problem, result.plan)
        judge = Judge(taken, result)
        for one in result.preemptions:
            assert not judge.is_back_ahead(one), f"cluster {seed}, {one}"
            if taken.jobs[one.victim].funded and one.preemptor:
                sides[judge.is_inside(one), judge.comes_from_outside(one)] += 1
    assert sides[True, True] == 0
    assert sides[False, True], "nobody is protected who is outside"
    assert sides.total() > CLUSTERS // 2, "few who stop others prove little"


# --- A random cluster -----------------------------------------------------------------------------


def fill(place: Institute, dice: random.Random) -> None:
    """Two hours of past use, runs that may be stopped or not, and jobs that wait.

    In every other cluster one leaf has used most of its program's part, so that it is outside
    while its program isn't.
    """
    one_sided = dice.random() < 0.5
    greedy, idle = dice.sample((place.petrel, place.auk), 2)
    science = dice.choice((60_000, 80_000) if one_sided else SHARES)
    mine = 20_000 if one_sided else dice.choice(SHARES)
    programs = {place.tree["orlo/science"]: science, place.tree["orlo/vision"]: 100_000 - science}
    make.make_shares(place.tree["orlo"], programs)
    make.make_shares(place.tree["orlo/science"], {greedy: mine, idle: 100_000 - mine})
    leaves = (greedy, place.tern) if one_sided else (greedy, greedy, place.tern, idle)
    for node in place.nodes:
        for start in (T0 + number * TIMESTEP for number in range(3)):
            if (leaf := dice.choice((None, *leaves))) is not None:
                over: dict[str, Any] = {"ended_at": start + TIMESTEP}
                past = job_of(leaf, 8, state="completed", **over)
                make.make_run(past, {node: 0xFF}, started_at=start, **over)
        for mask in dice.choice(((0xFF,), (0xF, 0xF0), (0xF,))):
            leaf, paid = dice.choice((place.tern, *leaves)), dice.random() < 0.9
            make.make_run(
                job_of(leaf, mask.bit_count(), state="running", funded=paid), {node: mask},
                started_at=NOW - TIMESTEP, funded=paid,
                protected_until=NOW + HOUR if paid and dice.random() < 0.2 else None,
            )  # fmt: skip
    close(4)
    for _ in range(dice.randrange(2, 6)):
        paid = dice.random() < 0.9
        job_of(dice.choice(leaves), dice.choice((4, 8, 16)), funded=paid, when_unfunded="run")


def job_of(leaf: Budget, gpus: int, **fields: Any) -> Job:
    return make.make_job(
        leaf, gpus=gpus, resumable=True, **{"funded": True, "estimate_p50_s": 4 * 3600, **fields}
    )


# --- What is right, by hand -----------------------------------------------------------------------


@dataclass(frozen=True)
class Judge:
    """Who is inside its entitlement, whatever order the plan was made in."""

    taken: snapshot.Snapshot
    result: Result

    def is_back_ahead(self, one: Preemption) -> bool:
        """Whether what is left of the victim starts again before what it made room for."""
        starts = {a.job: a.start for a in self.result.plan.assignments}
        rest = starts.get(f"{one.victim}+")
        return rest is not None and one.preemptor is not None and rest < starts[one.preemptor]

    def is_inside(self, one: Preemption) -> bool:
        """Whether the victim is, even if all that runs or starts now is counted."""
        began = (a.job.removesuffix("+") for a in self.result.plan.assignments if a.start == 0)
        jobs = [self.taken.jobs[name] for name in {*self.taken.runs, *began}]
        assert one.preemptor is not None
        return all(
            self._used(node.path) + self._now(node.path, jobs) <= node.entitled
            for node in self._levels(one.victim, one.preemptor)
        )

    def comes_from_outside(self, one: Preemption) -> bool:
        """Whether the preemptor does, even if of what runs or starts now nothing else is."""
        assert one.preemptor is not None
        job = self.taken.jobs[one.preemptor]
        return any(
            self._used(node.path) + self._now(node.path, [job]) > node.entitled
            for node in self._levels(one.preemptor, one.victim)
        )

    def _levels(self, mine: str, other: str) -> Iterator[BudgetNode]:
        """Yield a job's budgets below what it has in common with the other."""
        leaf, beside = (self.taken.jobs[name].budget.path for name in (mine, other))
        for node in self.taken.problem.budgets:
            if is_below(leaf, node.path) and not is_below(beside, node.path):
                yield node

    def _used(self, path: str) -> int:
        """What was used in the window, in GPU-seconds, all below included."""
        return sum(one.usage for one in self.taken.problem.budgets if is_below(one.path, path))

    def _now(self, path: str, jobs: Iterable[Job]) -> int:
        """What funded jobs of a budget use in the first timestep, in GPU-seconds."""
        mine = [job.gpus for job in jobs if job.funded and is_below(job.budget.path, path)]
        return sum(mine) * self.taken.problem.timestep_seconds


def is_below(path: str, above: str) -> bool:
    return f"{path}/".startswith(f"{above}/")
