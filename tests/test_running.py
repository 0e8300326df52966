"""What runs, as the database adds it up: second by second, whatever changes meanwhile."""

from collections import defaultdict
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from budgets.models import Budget
from clusters.models import PoolRate
from ledger import figures, running
from ledger.entries import Attempt
from ledger.instants import to_seconds
from ledger.membership import Membership
from ledger.models import Entry
from ledger.rates import Rates
from ledger.running import Uncharged
from ledger.usage import usage_window
from tests.factories import (
    T0,
    T1,
    TIMESTEP,
    make_holding,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_shares,
    make_tree,
)
from tests.ledger_world import close, write_entry
from workloads.models import Holding, Run

pytestmark = pytest.mark.django_db
MINUTES, MOVED = 60, 25  # of the window, and when a budget moves in it
UNTIL = T0 + timedelta(minutes=MINUTES)
Attempts = dict[Attempt, tuple[int, dict[int, int]]]  # budget, and what ran by second


def at(minutes: int) -> int:
    return to_seconds(T0) + 60 * minutes


def a_world(random: Random) -> None:
    """Two pools of changing rates, runs of all sorts, holds of all sizes; auk moves."""
    tree, period = make_tree(), make_period()
    pools = [make_pool("h100", rate=1000), make_pool("a100", rate=700)]
    for pool in pools:
        since = T0 + timedelta(minutes=random.randrange(MINUTES), seconds=7)
        pool.rates.create(effective_at=since, rate_per_mille=random.randrange(3000))
    auk = tree["orlo/science/auk"]
    moved = T0 + timedelta(minutes=MOVED)
    make_shares(tree["orlo/science"], {tree["orlo/science/petrel"]: 50_000}, at=moved)
    make_shares(tree["orlo/vision"], {tree["orlo/vision/tern"]: 50_000, auk: 50_000}, at=moved)
    leaves = [tree[path] for path in tree if path.count("/") == 2]
    nodes = {pool: make_nodes(pool, 3) for pool in pools}
    for number in range(12):
        leaf, pool = random.choice(leaves), random.choice(pools)
        run = make_run(make_job(leaf), {nodes[pool][0]: number + 1}, started_at=T0 - TIMESTEP)
        for _ in range(random.randrange(4)):
            a_holding(random, run, random.choice(nodes[pool]))
        for kind in random.choice([(), ("hold",), ("hold", "release")]):
            write_entry(
                kind=kind, budget=leaf, period=period, job=run.job, attempt=run.number, at=T0,
                amount_mgpus=random.randrange(8_000_000), key=f"{kind}:{number}", created_at=T0,
            )  # fmt: skip


def a_holding(random: Random, run: Run, node) -> None:
    begins, ends = sorted(timedelta(seconds=random.randrange(-900, 4500)) for _ in range(2))
    make_holding(
        run,
        node,
        random.randrange(1, 1 << 62),
        started_at=random.choice([T0 - TIMESTEP, T0 + begins, None]),
        ended_at=random.choice([None, T0 + ends]),
        funded=random.random() < 0.8,
    )


def by_second() -> Attempts:
    """What each attempt costs in each second of the window, holding by holding."""
    found: Attempts = {}
    rates = Rates.load()
    for one in Holding.objects.filter(funded=True, started_at__lt=UNTIL).select_related("run__job"):
        mine = Attempt(one.run.job_id, one.run.number)
        if one.ended_at is not None and one.ended_at <= T0:
            continue
        ran = found.setdefault(mine, (one.run.job.budget_id, defaultdict(int)))[1]
        assert one.started_at is not None
        begins = max(to_seconds(T0), to_seconds(one.started_at))
        for second in range(begins, to_seconds(min(UNTIL, one.ended_at or UNTIL))):
            ran[second] += one.mask.bit_count() * rates.at(one.run.pool_id, second)
    return found


def holds() -> dict[Attempt, int]:
    left: dict[Attempt, int] = defaultdict(int)
    for entry in Entry.objects.filter(kind__in=("hold", "release")):
        sign = 1 if entry.kind == "hold" else -1
        left[Attempt(entry.job_id or 0, entry.attempt)] += sign * entry.amount_mgpus
    return left


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most", [running.MOST, 1, 2])
def test_what_ran_is_what_each_second_of_each_holding_cost(
    monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    monkeypatch.setattr(running, "MOST", most)
    a_world(Random(seed))
    right, left = by_second(), holds()
    first = Entry.objects.first()
    tree = Membership.load()
    period = first.period if left and first is not None else make_period()
    uncharged = Uncharged(since=T0, until=UNTIL, tree=tree)
    spans = list(zip(uncharged.starts, [*uncharged.starts[1:], at(MINUTES)], strict=True))
    assert at(MOVED) in uncharged.starts

    found = {one.attempt: one for one in uncharged.by_attempt(period)}
    assert found.keys() == right.keys()
    for mine, (budget_id, ran) in right.items():
        parts = tuple(sum(ran[second] for second in range(*span)) for span in spans)
        assert found[mine] == (mine, budget_id, left[mine], parts)

    for one in uncharged.by_budget(period):
        own = [found[mine] for mine, (budget_id, _) in right.items() if budget_id == one.budget_id]
        assert one.parts == tuple(map(sum, zip(*(mine.parts for mine in own), strict=True)))
        assert one.covered_mgpus == sum(min(mine.hold_mgpus, sum(mine.parts)) for mine in own)
    budgets = {budget_id for budget_id, _ in right.values()}
    assert {one.budget_id for one in uncharged.by_budget()} == budgets
    assert all(one.covered_mgpus == 0 for one in uncharged.by_budget())


def test_what_is_closed_is_left_out_and_attempts_are_of_the_jobs_asked_for() -> None:
    petrel, period = make_tree()["orlo/science/petrel"], make_period()
    (node,) = make_nodes(make_pool())
    runs = [make_run(make_job(petrel), {node: mask}) for mask in (0b11, 0b1100)]
    since, jobs = close(1), [runs[0].job_id]
    uncharged = Uncharged(since=T0, until=since + TIMESTEP)
    assert uncharged.starts == [to_seconds(since)]
    (mine,) = uncharged.by_attempt(period, jobs=jobs)
    assert mine == (Attempt(runs[0].job_id, 1), petrel.pk, 0, (2 * TIMESTEP.seconds * 1000,))
    found = figures.accounts(period=period, at=since + TIMESTEP, jobs=jobs)
    assert list(found.running) == [mine[0]]
    assert Uncharged(since=T0, until=since).by_budget() == []


def test_usage_takes_what_runs_from_what_is_read_where_it_is_the_same_time() -> None:
    a_world(Random(5))
    books = Uncharged(since=T0, until=UNTIL, tree=Membership.load())
    books.by_budget(make_period("next", starts_at=T1, ends_at=T1 + TIMESTEP))
    week: dict[str, Any] = {"start": T0, "end": UNTIL, "now": UNTIL}
    right = usage_window(**week)
    assert any(right.values())
    assert usage_window(**week, uncharged=books) == right
    short = week | {"start": T0 + TIMESTEP}
    assert usage_window(**short, uncharged=books) == usage_window(**short) != right


def test_the_database_counts_the_gpus_of_a_mask_itself() -> None:
    (node,) = make_nodes(make_pool(), 1, gpus=62)
    run = make_run(make_job(make_tree()["orlo/science/petrel"]), {node: 0b1011})
    holding = run.holdings.get()
    assert holding.gpus == 3
    random = Random(0)
    for mask in (1, 1 << 61, (1 << 62) - 1, *(random.randrange(1, 1 << 62) for _ in range(20))):
        run.holdings.update(mask=mask)
        holding.refresh_from_db()
        assert holding.gpus == mask.bit_count()
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE workloads_holding SET gpus = 7")


def test_what_runs_takes_one_query_more_than_its_spans_however_much_runs(
    django_assert_num_queries,
) -> None:
    tree, period = make_tree(), make_period()
    (node,) = make_nodes(make_pool())
    for _ in range(2):
        for path in ("orlo/science/petrel", "orlo/vision/tern"):
            petrel: Budget = tree[path]
            make_run(make_job(petrel), {node: 0b1})
        with django_assert_num_queries(3):
            assert Uncharged(since=T0, until=UNTIL).by_budget(period)


def test_more_spans_than_a_statement_has_room_for_are_added_up() -> None:
    """A rate that changed every day for years, and nothing was closed meanwhile."""
    tree, period, pool = make_tree(), make_period(ends_at=T0 + timedelta(days=1300)), make_pool()
    (node,) = make_nodes(pool)
    make_run(make_job(tree["orlo/science/petrel"]), {node: 0b11})
    days = range(1, 1201)
    PoolRate.objects.bulk_create(
        PoolRate(pool=pool, effective_at=T0 + timedelta(days=day), rate_per_mille=day)
        for day in days
    )
    uncharged = Uncharged(since=T0, until=T0 + timedelta(days=1201))
    (found,) = uncharged.by_budget(period)
    assert found.parts == tuple(2 * 86_400 * rate for rate in (1000, *days))
