"""Leads' plans: versions that never change, of what lies ahead; and what they make of pace."""

import random
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from allocator.pages import burning
from allocator.telling import books
from budgets import checkpoints, plans, shares
from budgets.core.plans import WHOLE
from budgets.models import Budget, BudgetPlan, Notice, Period
from budgets.redrafting import redraft_period
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
    make_role,
    make_user,
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
    assert plans.newest(budget=petrel, period=period, at=BEFORE - HOUR) is None


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
    make_plan(petrel, period, [20, 30, 50])
    curve = plans.load(period=period, at=T0).of(petrel.pk)
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
    assert plans.kept(budget=petrel, period=period, by="month", at=T0 + HOUR) == [even, None, None]
    made = plans.write_plan(
        budget=petrel, period=period, by="month", parts=[even, 0, 100_000 - even],
        author=someone(), base_version=0, now=T0 + HOUR,
    )  # fmt: skip
    found = plans.load(period=period, at=T0 + 2 * HOUR).planned(petrel.pk, DECEMBER)
    assert (made.version, found) == (1, Fraction(31, 92))  # not rounded: what is past stays


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
    assert len(plans.kept(budget=petrel, period=period, by="month", at=BEFORE)) == 4
    assert write(petrel, period, 10, 20, 30, 40, now=BEFORE, base_version=1).version == 2
    assert plans.load(period=period, at=T0).planned(petrel.pk, NOVEMBER) == Fraction(1, 10)


# --- What stays, by whatever unit it is planned anew ----------------------------------------------


def curve_of(budget: Budget, period: Period, at: datetime) -> list[Fraction]:
    """What is planned for every sixth hour of the period, as it is planned at an instant."""
    found, hours = plans.load(period=period, at=at), int((T1 - T0) / HOUR)
    return [found.planned(budget.pk, T0 + n * HOUR) for n in range(0, hours + 1, 6)]


def test_planning_by_quarter_does_not_move_what_months_planned(petrel, period) -> None:
    """66 % of a straight quarter in place of the 95 % that two months had: as if half was used."""
    write(petrel, period, 90, 5, 5, now=BEFORE)
    before = curve_of(petrel, period, DECEMBER)
    write(petrel, period, 100, by="quarter", now=DECEMBER - HOUR, base_version=1)
    assert plans.load(period=period, at=DECEMBER).planned(petrel.pk, DECEMBER) == Fraction(95, 100)
    assert curve_of(petrel, period, DECEMBER) == before


def test_planning_by_month_does_not_move_what_a_quarter_planned(petrel: Budget) -> None:
    """The quarter that runs is planned to its end; months of the next may change."""
    year = make_period("2026/27", ends_at=datetime(2027, 4, 1, tzinfo=UTC))
    write(petrel, year, 40, 60, by="quarter", now=BEFORE)
    at = NOVEMBER - HOUR
    kept = plans.kept(budget=petrel, period=year, by="month", at=at)
    assert (sum(part or 0 for part in kept), kept[3:]) == (40_000, [None, None, None])
    first = [part or 0 for part in kept[:3]]
    december = [*first[:2], 0, first[2], 30_000, 30_000]
    with pytest.raises(Refused, match="from 1 December 2026 lies in a quarter that has begun"):
        plans.write_plan(
            budget=petrel, period=year, by="month", parts=december, author=someone(),
            base_version=1, now=at,
        )  # fmt: skip
    before = curve_of(petrel, year, at)
    plans.write_plan(
        budget=petrel, period=year, by="month", parts=[*first, 0, 0, 60_000],
        author=someone(), base_version=1, now=at,
    )  # fmt: skip
    assert curve_of(petrel, year, at + HOUR) == before  # of the first quarter
    later = plans.load(period=year, at=at + HOUR)
    assert later.planned(petrel.pk, datetime(2027, 3, 1, tzinfo=UTC)) == Fraction(40, 100)
    again = plans.kept(budget=petrel, period=year, by="month", at=at + HOUR)
    assert again == kept  # planned by month now, the quarter's months stay all the same


@pytest.mark.parametrize("seed", range(20))
def test_what_was_planned_to_date_never_moves(petrel: Budget, seed: int) -> None:
    """Whatever is planned anew, by whichever unit: no past instant has another planned to date."""
    dice = random.Random(seed)
    year = make_period("long", ends_at=T0 + timedelta(days=300))
    make_nodes(make_pool(), active_from=T0 + timedelta(days=dice.randrange(60)))
    at = T0
    for version in range(8):
        at += dice.randrange(1, 900) * HOUR
        by = dice.choice(["month", "quarter"])
        kept = plans.kept(budget=petrel, period=year, by=by, at=at)
        free = [number for number, part in enumerate(kept) if part is None]
        parts, left = [part or 0 for part in kept], WHOLE - sum(part or 0 for part in kept)
        for number in free:
            parts[number] = left if number == free[-1] else dice.randrange(left + 1)
            left -= parts[number]
        before = plans.load(period=year, at=at - HOUR).of(petrel.pk)
        plans.write_plan(
            budget=petrel, period=year, by=by, parts=parts, author=someone(),
            base_version=version, now=at,
        )  # fmt: skip
        after = plans.load(period=year, at=at).of(petrel.pk)
        for seconds in range(int(T0.timestamp()), int(at.timestamp()) + 1, 7 * 3601):
            assert after.at(seconds) == before.at(seconds)
        running = plans.spans(year, by)[len(kept) - len(free) - 1]
        assert after.at(running.end) == before.at(running.end)


def test_a_checkpoint_that_leads_are_told_of_is_not_planned_away(petrel, period) -> None:
    """From 30 days before, what is planned up to it stays; before that, months ahead may change."""
    checkpoint = make_checkpoint(period, datetime(2026, 11, 20, tzinfo=UTC), [(100, 100)])
    write(petrel, period, 20, 60, 20, now=BEFORE)
    near = checkpoint.at - timedelta(days=30)
    assert write(petrel, period, 20, 50, 30, now=near - HOUR, base_version=1).version == 2
    said = refusal(petrel, period, 20, 0, 80, now=near, base_version=2)
    assert "from 1 November 2026 lies in a quarter that has begun, or before a checkpoint" in said
    assert write(petrel, period, 20, 50, 30, now=near, base_version=2).version == 3


def test_a_checkpoint_by_time_alone_or_of_a_period_ahead_binds_no_plan(petrel, period) -> None:
    at = datetime(2026, 11, 5, tzinfo=UTC)
    make_checkpoint(period, at, [(100, 100)], own_plans=False)
    make_checkpoint(period, T0 + timedelta(days=20), [(100, 100)])
    write(petrel, period, 20, 60, 20, now=BEFORE)
    write(petrel, period, 30, 50, 20, now=BEFORE, base_version=1)
    write(petrel, period, 30, 0, 70, now=at - timedelta(days=14), base_version=2)


# --- Plans of drafts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moved", [{"starts_at": T0 - HOUR}, {"ends_at": T1 + HOUR}, {"time_zone": "America/Lima"}]
)
def test_a_draft_s_new_dates_end_the_plans_of_other_months_and_say_so(
    tree: dict[str, Budget], petrel: Budget, moved: dict[str, Any]
) -> None:
    lead, admin = make_user("lead"), make_user("admin")
    make_role(lead, petrel, "manager")
    draft = make_period("2026 Q4", status="draft")
    write(petrel, draft, 20, 30, 50, now=BEFORE)
    redraft_period(period=draft, author=admin, now=BEFORE + HOUR, **moved)
    draft.refresh_from_db()
    assert plans.load(period=draft, at=BEFORE + HOUR).own == {}
    made = BudgetPlan.objects.get(budget=petrel, version=2)
    assert (made.parts, made.author) == ([], admin)
    assert made.note == "The dates of 2026 Q4 have changed, and with them its months."
    notice = Notice.objects.get(user=lead)
    assert notice.text == (
        "The dates of 2026 Q4 have changed, so it has other months than version 1 of the plan of "
        "orlo/science/petrel: it counts no more, and time is its plan. Plan again."
    )
    assert notice.link == f"/budgets/orlo/science/petrel/plan?period={draft.pk}"
    page = planning.planned(budget=petrel, period=draft, now=BEFORE + HOUR)
    assert (page.version, page.has_plan, len(page.parts)) == (
        2,
        False,
        len(plans.spans(draft, "month")),
    )
    over = plans.spans(draft, "month")
    parts = [100 - 10 * (len(over) - 1), *[10] * (len(over) - 1)]
    assert "at version 2 now" in refusal(petrel, draft, *parts, now=BEFORE + HOUR)
    write(petrel, draft, *parts, now=BEFORE + 2 * HOUR, base_version=2)
    redraft_period(period=draft, author=admin, now=BEFORE + 3 * HOUR, name="renamed")
    assert petrel.pk in plans.load(period=draft, at=BEFORE + 3 * HOUR).own
    assert Notice.objects.count() == 1


def test_a_draft_s_plans_go_on_while_its_months_are_the_same(petrel: Budget) -> None:
    draft = make_period("2026 Q4", status="draft")
    write(petrel, draft, 20, 30, 50, now=BEFORE)
    cut: dict[str, Any] = {"starts_at": T0 + 48 * HOUR, "ends_at": T1 - 48 * HOUR}
    redraft_period(period=draft, author=someone(), now=BEFORE, **cut)
    draft.refresh_from_db()
    assert plans.load(period=draft, at=BEFORE).planned(petrel.pk, NOVEMBER) == Fraction(1, 5)
    assert not Notice.objects.exists()


@pytest.mark.parametrize(
    "moved", [{"starts_at": T0 - HOUR}, {"ends_at": T1 + HOUR}, {"time_zone": "Asia/Tokyo"}]
)
def test_a_draft_keeps_the_borders_that_checkpoints_are_made_for(db, moved) -> None:
    draft = make_period("2026 Q4", status="draft")
    checkpoint = make_checkpoint(draft, DECEMBER, [(20, 80)])
    given: dict[str, Any] = {"period": draft, "author": someone(), "now": BEFORE}
    with pytest.raises(Refused, match="2026 Q4 has checkpoints for its dates and its zone: remove"):
        redraft_period(**given, **moved)
    same: dict[str, Any] = {"starts_at": T0, "ends_at": T1, "time_zone": "UTC", "name": "Q4"}
    assert redraft_period(**given, **same).name == "Q4"
    checkpoints.remove_checkpoint(checkpoint=checkpoint, now=BEFORE)
    redraft_period(**given, **moved)
