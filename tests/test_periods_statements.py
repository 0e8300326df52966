"""Closing statements: written when a period closes, never again, and proved by the entries."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from allocator import turning
from allocator.models import Delivery
from budgets import services as budgets
from budgets.models import Budget, Period
from clusters.models import Cluster
from ledger import closing_statements, reports, services
from ledger.models import ClosingStatement, Entry
from tests.factories import (
    HOUR,
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
    make_user,
)
from tests.ledger_world import CREDIT, close, give, ledger, write_entry
from tests.test_periods_docs import table
from workloads import services as workloads
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
BORDER = T0 + HOUR
PETREL, AUK, TERN = "orlo/science/petrel", "orlo/science/auk", "orlo/vision/tern"


def written(period: Period) -> dict[str, ClosingStatement]:
    return {row.path: row for row in closing_statements.statement(period)}


@pytest.fixture
def closed(tree: dict[str, Budget]) -> tuple[Period, Period]:
    """An hour of petrel on 8 GPUs, two of them unfunded; a failed run of tern; a hold left over."""
    first = make_period("first", ends_at=BORDER, time_zone="Europe/Paris")
    following = make_period(
        "following", starts_at=BORDER, ends_at=T1, status="approved", carry_over_cap=10_000,
        capacity={make_pool(): 3600 * 1000},
    )  # fmt: skip
    author, pool = make_user(), make_pool()
    one, two, three = make_nodes(pool, 3)
    give(tree[PETREL], 40, first)
    give(tree[TERN], 30, first)
    services.transfer(
        source=tree[TERN], target=tree[AUK], amount_mgpus=5 * CREDIT, author=author, note="lent",
        key="t", now=T0,
    )  # fmt: skip
    services.adjust(
        budget=tree[AUK], amount_mgpus=CREDIT, author=author, note="before", key="a", now=T0
    )
    run = make_run(make_job(tree[PETREL], state=Job.State.RUNNING), {one: 0b11_1111})
    make_holding(run, two, 0b11, funded=False)
    failed = make_run(make_job(tree[TERN], state=Job.State.RUNNING), {three: 0b1111})
    services.place_hold(job=make_job(tree[PETREL]), amount_mgpus=7 * CREDIT, now=T0)
    close(parked={(run.pk, T0): 600})
    workloads.end_run(run=failed, reason=Run.EndReason.NODE_FAILURE, at=T0 + TIMESTEP)
    services.settle_late_end(run=failed, now=T0 + TIMESTEP, policy="all")
    close(since=T0 + TIMESTEP)
    Delivery.objects.create(
        timestep=T0, budget=tree[PETREL], pool=pool, entitled_gpu_seconds=9, demand_gpu_seconds=8,
        funded_gpu_seconds=7,
    )  # fmt: skip
    Cluster.objects.update(observed_until=BORDER)
    turning.start_due(at=BORDER)
    turning.close_over(at=BORDER)
    return Period.objects.get(pk=first.pk), Period.objects.get(pk=following.pk)


def test_a_closing_period_leaves_a_statement_of_every_budget(
    tree: dict[str, Budget], closed: tuple[Period, Period]
) -> None:
    rows = written(closed[0])
    assert list(rows) == sorted(tree)
    row = rows[PETREL]
    assert (row.name, row.closed_at) == ("Petrel", BORDER)
    assert (row.granted_mgpus, row.charged_mgpus) == (40 * CREDIT, 6 * CREDIT)
    assert (row.charged_gpu_seconds, row.parked_gpu_seconds) == (6 * 3600, 600)
    assert (row.unfunded_gpu_seconds, row.released_mgpus) == (2 * 3600, 7 * CREDIT)
    assert (row.owed_gpu_seconds, row.delivered_gpu_seconds) == (8, 7)
    assert row.unspent_mgpus == 34 * CREDIT
    tern = rows[TERN]
    assert (tern.granted_mgpus, tern.transferred_mgpus) == (30 * CREDIT, -5 * CREDIT)
    assert (tern.charged_mgpus, tern.refunded_mgpus, tern.settled_mgpus) == (
        2 * CREDIT, 2 * CREDIT, 0,
    )  # fmt: skip
    assert tern.owed_gpu_seconds is None
    auk, orlo = rows[AUK], rows["orlo"]
    assert (auk.transferred_mgpus, auk.adjusted_mgpus, auk.settled_mgpus) == (
        5 * CREDIT, CREDIT, CREDIT,
    )  # fmt: skip
    assert (orlo.granted_mgpus, orlo.settled_mgpus) == (70 * CREDIT, 7 * CREDIT)
    assert orlo.released_mgpus == 7 * CREDIT
    assert written(closed[1]) == {}
    assert reports.entry_problems(start=T0, end=BORDER) == []


def test_the_statement_of_the_page_is_the_one_that_is_written(
    closed: tuple[Period, Period],
) -> None:
    rows = written(closed[0])
    money = (
        *("granted_mgpus", "transferred_mgpus", "charged_mgpus", "refunded_mgpus"),
        *("adjusted_mgpus", "settled_mgpus", "released_mgpus"),
    )
    for path, *cells in table("ledger.md", "statement"):
        found = [getattr(rows[path], name) // CREDIT for name in money]
        time = (rows[path].charged_gpu_seconds, rows[path].unfunded_gpu_seconds)
        assert [*found, *(seconds // 3600 for seconds in time)] == list(map(int, cells)), path


def test_the_next_statement_says_what_was_carried_over(
    tree: dict[str, Budget], closed: tuple[Period, Period]
) -> None:
    run = Run.objects.get(job__budget=tree[PETREL])
    workloads.end_run(run=run, reason=Run.EndReason.COMPLETED, at=BORDER)
    services.close_period(period=closed[1], at=T1)
    row = written(closed[1])[PETREL]
    assert row.carried_mgpus == int(3.4 * CREDIT)
    assert row.granted_mgpus == 300 * CREDIT
    assert row.released_mgpus == 7 * CREDIT  # the waiting job's hold had come along


@pytest.mark.parametrize("verb", ["update", "delete"])
def test_the_database_itself_refuses_to_rewrite_a_statement(
    closed: tuple[Period, Period], verb: str
) -> None:
    rows = ClosingStatement.objects.filter(period=closed[0])
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        rows.update(settled_mgpus=0) if verb == "update" else rows.delete()
    sql = {
        "update": "UPDATE ledger_closingstatement SET path = 'x'",
        "delete": "DELETE FROM ledger_closingstatement",
    }[verb]
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)


def test_row_29_parent_totals_of_past_periods_do_not_move_after_a_re_parent(
    tree: dict[str, Budget], closed: tuple[Period, Period]
) -> None:
    """Row 29: dated membership; names are kept as of the time; nothing is deleted."""
    first = closed[0]
    last = first.ends_at - timedelta(seconds=1)
    before = (list(closing_statements.statement(first).values()), _totals(first, last))
    budgets.move_budget(
        budget=tree[PETREL], to=tree["orlo/vision"], share=0, reason="belongs there",
        author=make_user(), now=BORDER + HOUR,
    )  # fmt: skip
    moved = Budget.objects.get(pk=tree[PETREL].pk)
    called = {"slug": "storm-petrel", "name": "Storm Petrel"}
    budgets.rename_budget(budget=moved, **called, author=make_user(), now=BORDER + HOUR)
    budgets.archive_budget(
        budget=Budget.objects.get(pk=tree[AUK].pk), reason="over", author=make_user(),
        now=BORDER + 2 * HOUR,
    )  # fmt: skip
    after = (list(closing_statements.statement(first).values()), _totals(first, last))
    assert after == before
    assert Budget.objects.get(pk=moved.pk).path == "orlo/vision/storm-petrel"
    assert (written(first)[PETREL].path, written(first)[PETREL].name) == (PETREL, "Petrel")
    assert list(closing_statements.problems()) == []
    with pytest.raises(Exception, match=r"[Pp]rotected"):
        Budget.objects.get(pk=tree[AUK].pk).delete()


def test_a_statement_says_what_budgets_were_called_at_its_period_s_end(
    tree: dict[str, Budget],
) -> None:
    """Renamed in its last second counts, at its end or before it is closed no more."""
    first = make_period("first", ends_at=BORDER)
    give(tree[PETREL], 40, first)
    close(2)
    for path, slug, at in (
        ("orlo/science", "physics", BORDER - timedelta(seconds=1)),
        (PETREL, "albatross", BORDER),
        ("orlo", "institute", BORDER + HOUR),
    ):
        budgets.rename_budget(
            budget=Budget.objects.get(pk=tree[path].pk), slug=slug, name=slug.title(),
            author=make_user(), now=at,
        )  # fmt: skip
    services.close_period(period=first, at=BORDER + 2 * HOUR)
    rows = written(Period.objects.get(pk=first.pk))
    assert {row.budget_id: (path, row.name) for path, row in rows.items()} == {
        tree[was].pk: (path, name)
        for was, path, name in (
            ("orlo", "orlo", "Orlo"),
            ("orlo/science", "orlo/physics", "Physics"),
            (PETREL, "orlo/physics/petrel", "Petrel"),
            (AUK, "orlo/physics/auk", "Auk"),
            ("orlo/vision", "orlo/vision", "Vision"),
            (TERN, TERN, "Tern"),
        )
    }
    assert Budget.objects.get(pk=tree[PETREL].pk).path == "institute/physics/albatross"


def _totals(period: Period, at: Any) -> dict[int, Any]:
    return dict(reports.figures(period=period, now=at))


def test_later_corrections_stand_beside_the_statement_and_not_in_it(
    tree: dict[str, Budget], closed: tuple[Period, Period]
) -> None:
    first, following = closed
    before = (list(closing_statements.statement(first).values()), _of(first))
    run = Run.objects.get(job__budget=tree[PETREL])
    workloads.end_run(run=run, reason=Run.EndReason.COMPLETED, at=T0 + 45 * timedelta(minutes=1))
    services.settle_late_end(run=run, now=BORDER + HOUR, policy="all")
    author = make_user()
    services.adjust(
        budget=tree[AUK], amount_mgpus=3 * CREDIT, author=author, note="miscounted", key="of-q3",
        of=first, now=BORDER + HOUR,
    )  # fmt: skip
    services.adjust(
        budget=tree[AUK], amount_mgpus=9 * CREDIT, author=author, note="of the open one", key="own",
        now=BORDER + HOUR,
    )  # fmt: skip
    assert (list(closing_statements.statement(first).values()), _of(first)) == before
    found = closing_statements.corrections(first)
    assert [(one.entry.budget.path, one.settled_mgpus) for one in found] == [
        (PETREL, int(-1.5 * CREDIT)),
        (AUK, 3 * CREDIT),
    ]
    assert {one.entry.period for one in found} == {following}
    sums = closing_statements.corrected(found)
    assert {path: sums.get(budget.pk, 0) / CREDIT for path, budget in tree.items()} == {
        "orlo": 1.5,
        "orlo/science": 1.5,
        PETREL: -1.5,
        AUK: 3,
        "orlo/vision": 0,
        TERN: 0,
    }
    assert list(closing_statements.problems()) == []


def _of(period: Period) -> list[Any]:
    return list(Entry.objects.filter(period=period).order_by("pk").values())


def test_only_a_closed_period_is_corrected_by_name(
    tree: dict[str, Budget], closed: tuple[Period, Period]
) -> None:
    with pytest.raises(services.LedgerError, match="following is not closed: correct it without"):
        services.adjust(
            budget=tree[AUK], amount_mgpus=1, author=make_user(), note="x", key="x",
            of=closed[1], now=BORDER,
        )  # fmt: skip


def test_a_key_of_ones_own_never_reads_as_if_it_named_a_closed_period(
    tree: dict[str, Budget], closed: tuple[Period, Period]
) -> None:
    """Whatever is told beside a statement was written of that period, whatever keys people give."""
    mine: dict[str, Any] = {
        "budget": tree[AUK],
        "amount_mgpus": 1,
        "author": make_user(),
        "now": BORDER,
    }
    for tail in ("x", "of:1:x"):
        with pytest.raises(services.LedgerError, match="reads as if it named a closed period"):
            services.adjust(**mine, note="x", key=f"of:{closed[0].pk}:{tail}")
    for key in (f"of:{closed[0].pk}", f"9:of:{closed[0].pk}:x", f"{closed[0].pk}0:x"):
        services.adjust(**mine, note="x", key=key)
    about = services.adjust(**mine, note="x", key=f"of:{closed[0].pk}:x", of=closed[0])
    assert [one.entry for one in closing_statements.corrections(closed[0])] == [about]


def test_reconcile_names_each_figure_that_the_entries_do_not_bear_out(
    tree: dict[str, Budget], closed: tuple[Period, Period]
) -> None:
    first = closed[0]
    before = ledger()
    Period.objects.filter(pk=first.pk).update(status="active")
    make_forged(tree[AUK], first)
    Period.objects.filter(pk=first.pk).update(status="closed")
    assert len(ledger()) == len(before) + 1
    named = [str(one) for one in reports.entry_problems(start=T0, end=BORDER)]
    assert named == [
        f"statement: first, {path}: {name} is {says:,}, by the entries {says + 5:,}"
        for path in ("orlo", "orlo/science", AUK)
        for name, says in (("adjusted_mgpus", CREDIT), ("settled_mgpus", _settled(first, path)))
    ]


def _settled(period: Period, path: str) -> int:
    return written(period)[path].settled_mgpus


def make_forged(budget: Budget, period: Period) -> None:
    """An entry that a statement doesn't know: a period takes none while it is closed."""
    write_entry(
        kind="adjust", budget=budget, period=period, at=T0, amount_mgpus=5, key="forged",
        created_at=T0,
    )  # fmt: skip


def test_a_budget_that_was_there_and_had_nothing_has_a_row_of_noughts(
    tree: dict[str, Budget],
) -> None:
    period = make_period("empty", ends_at=BORDER)
    make_shares(tree["orlo/vision"], {}, at=T0 + TIMESTEP)  # tern left before the end
    services.close_period(period=period, at=BORDER)
    rows = written(period)
    assert set(rows) == set(tree) - {TERN}
    assert {row.settled_mgpus for row in rows.values()} == {0}
