"""Leads' plans: versions that never change, of what lies ahead; and what they make of pace."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from allocator.pages import burning
from allocator.telling import books
from budgets import checkpoints, periods, plans, shares
from budgets.core.plans import WHOLE
from budgets.models import Budget, BudgetPlan, Period
from budgets.refusals import Refused
from ledger import planning, reports
from tests.factories import (
    HOUR,
    T0,
    T1,
    make_checkpoint,
    make_nodes,
    make_period,
    make_plan,
    make_pool,
    someone,
)
from tests.ledger_world import give
from tests.takeback_world import use

pytestmark = pytest.mark.django_db
NOVEMBER, DECEMBER = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
BEFORE = T0 - timedelta(days=3)


@pytest.fixture
def petrel(tree: dict[str, Budget]) -> Budget:
    return tree["orlo/science/petrel"]


@pytest.fixture
def period(db: None) -> Period:
    return make_period()


def write(budget: Budget, period: Period, *parts: int, now: datetime, **fields: Any) -> BudgetPlan:
    given: dict[str, Any] = {"by": "month", "author": someone(), "base_version": 0, "now": now}
    given |= fields
    return plans.write_plan(
        budget=budget, period=period, parts=[part * 1000 for part in parts], **given
    )


def refusal(budget: Budget, period: Period, *parts: int, now: datetime, **fields: Any) -> str:
    before = BudgetPlan.objects.count()
    with pytest.raises(Refused) as refused:
        write(budget, period, *parts, now=now, **fields)
    assert BudgetPlan.objects.count() == before
    return refused.value.sentence


def test_the_newest_version_that_was_made_is_in_force(petrel: Budget, period: Period) -> None:
    write(petrel, period, 20, 30, 50, now=BEFORE)
    write(petrel, period, 20, 50, 30, now=T0 + HOUR, base_version=1)
    for at, planned in ((T0, "1/2"), (T0 + 2 * HOUR, "7/10")):
        found = plans.load(period=period, at=at)
        assert found.planned(petrel.pk, DECEMBER) == Fraction(planned)
    assert plans.in_force(budget=petrel, period=period, at=BEFORE - HOUR) is None


def test_without_a_plan_what_is_planned_is_what_has_elapsed(petrel, period, tree) -> None:
    make_plan(petrel, period, [20, 30, 50])
    found = plans.load(period=period, at=T0)
    half = T0 + (T1 - T0) / 2
    assert found.planned(tree["orlo/science/auk"].pk, half) == Fraction(1, 2)
    assert found.planned(petrel.pk, NOVEMBER) == Fraction(1, 5)
    assert found.planned(petrel.pk, NOVEMBER + timedelta(days=15)) == Fraction(35, 100)


def test_even_plans_count_from_when_the_period_has_gpus(petrel, period) -> None:
    make_nodes(make_pool(), active_from=DECEMBER)
    found = plans.load(period=period, at=T0)
    assert found.planned(petrel.pk, DECEMBER) == 0
    assert found.planned(petrel.pk, DECEMBER + (T1 - DECEMBER) / 2) == Fraction(1, 2)


def test_planned_to_date_of_a_grant(petrel: Budget, period: Period) -> None:
    curve = plans.curve(make_plan(petrel, period, [20, 30, 50]))
    assert curve is not None
    assert plans.planned_to_date(granted_mgpus=999, curve=curve, at=NOVEMBER) == 199


def test_parts_must_make_a_whole(petrel: Budget, period: Period) -> None:
    assert refusal(petrel, period, 20, 30, 49, now=BEFORE) == (
        "The parts total 99.000 %: make it 100.000 %."
    )
    assert "has 3 months" in refusal(petrel, period, 50, 50, now=BEFORE)
    assert "below 0" in refusal(petrel, period, 120, -10, -10, now=BEFORE)
    assert "by month or by quarter" in refusal(petrel, period, 100, now=BEFORE, by="week")


def test_only_what_lies_ahead_may_change(petrel: Budget, period: Period) -> None:
    write(petrel, period, 20, 30, 50, now=BEFORE)
    said = refusal(petrel, period, 10, 40, 50, now=T0, base_version=1)
    assert said == (
        "The month from 1 October 2026 has begun, so its part stays 20.000 %: "
        "change those that lie ahead."
    )
    assert write(petrel, period, 20, 10, 70, now=NOVEMBER - HOUR, base_version=1).version == 2
    assert "1 November" in refusal(petrel, period, 20, 0, 80, now=NOVEMBER, base_version=2)


def test_a_first_plan_in_mid_period_keeps_the_even_part_of_what_has_begun(petrel, period) -> None:
    even = 31 * 100_000 // 92
    assert f"stays {even / 1000:.3f} %" in refusal(petrel, period, 0, 50, 50, now=T0 + HOUR)
    assert plans.begun(budget=petrel, period=period, by="month", at=T0 + HOUR) == [even, None, None]
    made = plans.write_plan(
        budget=petrel, period=period, by="month", parts=[even, 0, 100_000 - even],
        author=someone(), base_version=0, now=T0 + HOUR,
    )  # fmt: skip
    found = plans.load(period=period, at=T0 + 2 * HOUR).planned(petrel.pk, DECEMBER)
    assert (made.version, found) == (1, Fraction(even, 100_000))


def test_a_plan_on_an_outdated_version_is_refused(petrel: Budget, period: Period) -> None:
    write(petrel, period, 20, 30, 50, now=BEFORE)
    assert "at version 1 now" in refusal(petrel, period, 30, 30, 40, now=BEFORE)


def test_a_period_that_is_over_can_t_be_planned(petrel: Budget, period: Period) -> None:
    assert "is over" in refusal(petrel, period, 20, 30, 50, now=T1)
    closed = make_period("2026 Q3", starts_at=BEFORE, ends_at=T0, status="closed")
    assert "is over" in refusal(petrel, closed, 100, now=BEFORE)


def test_a_note_has_an_end(petrel: Budget, period: Period) -> None:
    assert "300 characters" in refusal(petrel, period, 20, 30, 50, now=BEFORE, note="x" * 301)


def test_the_database_refuses_to_change_a_plan(petrel: Budget, period: Period) -> None:
    plan = make_plan(petrel, period, [20, 30, 50])
    for change in (
        lambda: BudgetPlan.objects.filter(pk=plan.pk).update(parts=[100_000, 0, 0]),
        plan.delete,
    ):
        with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
            change()
    plan.refresh_from_db()
    assert plan.parts == [20_000, 30_000, 50_000]


# --- Pace and what follows it ---------------------------------------------------------------------


def test_pace_is_against_the_plan_everywhere(tree, petrel: Budget, period: Period) -> None:
    """A grant of 1,000 of which 90 are used on 1 November: by plan 100, by time 337."""
    auk = tree["orlo/science/auk"]
    for budget in (petrel, auk):
        give(budget, 1000, period)
        use(budget, 90, T0 + HOUR)
    make_plan(petrel, period, [10, 40, 50])
    report = reports.burn_report(budget=tree["orlo/science"], start=T0, end=NOVEMBER, now=NOVEMBER)
    paces = {row.path: row.pace_per_mille for row in report.rows}
    even = 90 * 92 * 1000 // (1000 * 31)
    assert (paces[petrel.path], paces[auk.path]) == (900, even)
    burns = burning.burns(period=period, now=NOVEMBER)
    assert (str(burns[petrel.pk].pace), burns[petrel.pk].has_plan) == ("0.90", True)
    assert (str(burns[auk.pk].pace), burns[auk.pk].has_plan) == ("0.27", False)
    lines = "\n".join(
        books.burn_table(shares.tree(at=NOVEMBER).values(), period=period, at=NOVEMBER, since=T0)
    )
    assert " 0.90 " in next(line for line in lines.splitlines() if "Petrel" in line)
    assert " 0.27 " in next(line for line in lines.splitlines() if "Auk" in line)


def test_a_plan_that_does_not_fit_its_period_counts_as_none(petrel: Budget, period: Period) -> None:
    """Of three months; the period was moved while it was written, and has four."""
    write(petrel, period, 20, 30, 50, now=BEFORE)
    period.ends_at = T1 + timedelta(days=31)
    period.save(update_fields=["ends_at"])
    assert plans.load(period=period, at=T0).own == {}
    even = plans.load(period=period, at=T0).even
    assert planning.planned(budget=petrel, period=period, now=T0).parts[-1].thousandths == (
        WHOLE - int(even.at(int(T1.timestamp())) * WHOLE)
    )
    assert len(plans.begun(budget=petrel, period=period, by="month", at=BEFORE)) == 4
    assert write(petrel, period, 10, 20, 30, 40, now=BEFORE, base_version=1).version == 2
    assert plans.load(period=period, at=T0).planned(petrel.pk, NOVEMBER) == Fraction(1, 10)


@pytest.mark.parametrize(
    "moved", [{"starts_at": T0 - HOUR}, {"ends_at": T1 + HOUR}, {"time_zone": "Asia/Tokyo"}]
)
@pytest.mark.parametrize("bound", ["plan", "checkpoint"])
def test_a_draft_keeps_the_borders_that_plans_and_checkpoints_are_made_for(
    petrel: Budget, moved: dict[str, Any], bound: str
) -> None:
    draft = make_period("2026 Q4", status="draft")
    if bound == "plan":
        write(petrel, draft, 20, 30, 50, now=BEFORE)
        said = "Leads have planned for the dates and the zone of 2026 Q4: keep them, or draft"
    else:
        checkpoint = make_checkpoint(draft, DECEMBER, [(20, 80)])
        said = "2026 Q4 has checkpoints for its dates and its zone: remove those first."
    with pytest.raises(Refused, match=said):
        periods.redraft_period(period=draft, now=BEFORE, **moved)
    same: dict[str, Any] = {"starts_at": T0, "ends_at": T1, "time_zone": "UTC", "name": "Q4"}
    assert periods.redraft_period(period=draft, now=BEFORE, **same).name == "Q4"
    if bound == "checkpoint":
        checkpoints.remove_checkpoint(checkpoint=checkpoint, now=BEFORE)
        periods.redraft_period(period=draft, now=BEFORE, **moved)
