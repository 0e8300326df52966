"""Random days: whatever comes when, every invariant holds after every cycle.

``RANDOM_DAYS`` says how many (their seeds count from 0).
"""

import os
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from allocator import admission, cycle
from allocator.models import Alarm, Cycle
from clusters.connectors import KINDS
from clusters.models import Drain, Node, PoolRate, SimulatedFault
from ledger.models import ClosedTimestep
from tests.factories import HOUR, T0, TIMESTEP, make_nodes, make_pool, make_shares
from tests.flaky import Flaky
from tests.helpers import Institute, assert_reconciled, grant, make_institute
from workloads.models import Job

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
DAYS = int(os.environ.get("RANDOM_DAYS", "3"))
FAILING = [1001, 1006, 1010, *range(2000, 2000 + DAYS - 3)]  # the first ones found faults
SECOND = timedelta(seconds=1)
PAUSES = (0, 1, 47, 300, 900, 1800, 1800, 3600, 12_000)  # seconds between cycles


def one_on_both(seeds: Sequence[int]) -> list[Any]:
    """The last is drawn on the second database too: what a day asks of it, each day asks."""
    return [*(pytest.param(seed, marks=pytest.mark.once) for seed in seeds[:-1]), *seeds[-1:]]


class Day:
    """Draws what happens next from a seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        few = {"orlo/science/petrel": 90, "orlo/science/auk": 15, "orlo/vision/tern": 60}
        self.place: Institute = make_institute(nodes=3, credits=few)
        self.other = make_pool("a100", rate=700, cluster=self.place.cluster)
        self.nodes: list[Node] = [*self.place.nodes, *make_nodes(self.other, 2, gpus=4)]

    def happen(self, at) -> None:
        what = [self.submit] * 8 + [self.serve, self.cancel, self.cancel, self.depend]
        what += [self.fault, self.drain, self.grant, self.rate, self.shares, self.retire]
        self.dice.choice(what)(at)

    def leaf(self):
        return self.dice.choice([self.place.petrel, self.place.auk, self.place.tern])

    def submit(self, at, **more) -> None:
        lasts = self.dice.choice([200, 1800, 4000, 9000, 30_000])
        self.place.submit(
            self.leaf(),
            at=at,
            gpus=self.dice.choice([1, 2, 4, 8, 16]),
            pools=more.pop("pools", ()) or self.dice.choice([(), (), ("h100",)]),
            minimum_runtime_s=self.dice.choice([None, 0, 600, 3600, 5000]),
            expected_duration_s=self.dice.choice([lasts, 2 * lasts, 1800]),
            lasts=lasts,
            resumable=self.dice.random() < 0.5,
            urgency=self.dice.choice(["low", "normal", "high"]),
            when_unfunded=self.dice.choice(["wait", "run"]),
            time_limit_s=self.dice.choice([None, None, 20_000]),
            **more,
        )

    def serve(self, at) -> None:
        if Job.objects.filter(kind="realtime").exclude(state__in=Job.ENDED).count() < 3:
            profile = tuple(self.dice.randrange(7) for _ in range(12)) * 2
            self.place.serve(
                self.leaf(), at=at, profile=(1, *profile[1:]), swap_cap=self.dice.randrange(1, 5)
            )

    def cancel(self, at) -> None:
        jobs = list(Job.objects.exclude(state__in=Job.ENDED))
        if jobs:
            admission.cancel(job=self.dice.choice(jobs), by=self.place.user, now=at)

    def depend(self, at) -> None:
        jobs = list(Job.objects.exclude(kind="realtime"))
        if jobs:
            self.submit(at, dependencies=(self.dice.choice(jobs).pk,))

    def fault(self, at) -> None:
        start = at + self.dice.randrange(7200) * SECOND
        SimulatedFault.objects.create(
            node=self.dice.choice(self.nodes),
            starts_at=start,
            ends_at=start + self.dice.randrange(60, 9000) * SECOND,
        )

    def drain(self, at) -> None:
        start = at + self.dice.randrange(7200) * SECOND
        ends = self.dice.choice([None, start + HOUR])
        Drain.objects.create(
            node=self.dice.choice(self.nodes), starts_at=start, ends_at=ends, reason="repair"
        )
        if ends is None:  # not for good, or nothing runs any more
            Drain.objects.filter(ends_at=None).update(ends_at=start + 2 * HOUR)

    def grant(self, at) -> None:
        grant(self.leaf(), self.dice.randrange(1, 30), at=at)

    def rate(self, at) -> None:
        later = at + self.dice.randrange(1, 7200) * SECOND
        PoolRate.objects.get_or_create(
            pool=self.other,
            effective_at=later,
            defaults={"rate_per_mille": self.dice.choice([500, 900, 1300])},
        )

    def shares(self, at) -> None:
        part = self.dice.randrange(100_001)
        science = self.place.tree["orlo/science"]
        make_shares(science, {self.place.petrel: part, self.place.auk: 100_000 - part}, at=at)

    def retire(self, at) -> None:
        node = self.nodes[-1]
        if node.active_until is None:
            node.active_until = at + self.dice.randrange(3600) * SECOND
            node.save()


def play(day: Day, *, settled: bool):
    """Run cycles at random instants of half a day; return the last one's instant."""
    at = T0
    while at < T0 + 12 * HOUR:
        for _ in range(day.dice.choice([0, 1, 1, 2, 4])):
            day.happen(at)
        made = cycle.run(at=at, trigger="test")
        assert made is None or made.status == Cycle.Status.COMMITTED, made.problems
        assert made is not None or not settled
        day.place.check(at=at, settled=settled)
        last, at = at, at + day.dice.choice(PAUSES) * SECOND
    return last


@pytest.mark.parametrize("seed", one_on_both(range(DAYS)))
def test_a_random_day_keeps_every_rule(seed):
    play(Day(seed), settled=True)
    assert_reconciled()
    assert ClosedTimestep.objects.count() >= 5
    assert Job.objects.filter(state__in=Job.ENDED).count() > 2


@pytest.mark.parametrize("seed", one_on_both(FAILING))
def test_a_random_day_with_a_cluster_that_fails_keeps_every_rule(seed, monkeypatch):
    monkeypatch.setitem(KINDS, "simulated", Flaky)
    monkeypatch.setattr(Flaky, "dice", random.Random(seed))
    monkeypatch.setattr(Flaky, "chance", 0.1)
    day = Day(seed)
    last = play(day, settled=False)
    monkeypatch.setattr(Flaky, "chance", 0.0)
    for n in range(3):
        cycle.run(at=last + n * TIMESTEP, trigger="test")
    day.place.check(at=last + 2 * TIMESTEP)
    assert_reconciled()
    assert not Alarm.objects.filter(cleared_at=None).exists()
    assert ClosedTimestep.objects.count() >= 5
