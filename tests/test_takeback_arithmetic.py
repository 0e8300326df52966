"""Plans and checkpoints as arithmetic: curves over months, and what is due of whom."""

import itertools
import random
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from budgets.core import checkpoints, plans
from budgets.core.checkpoints import Case, Rule, Step
from budgets.core.plans import WHOLE, Curve, Span

pytestmark = pytest.mark.once
NREL = Rule(
    "planned",
    "planned",
    True,
    (Step(20_000, 80_000), Step(40_000, 55_000), Step(55_000, 35_000), Step(70_000, 20_000)),
)
INCITE_MAY = Rule("granted", "remaining", False, (Step(10_000, 30_000), Step(15_000, 15_000)))
OWN_PLAN = Rule("planned", "unused", True, (Step(WHOLE, WHOLE),))


def seconds(year: int, month: int, day: int, zone: str = "UTC") -> int:
    return int(datetime(year, month, day, tzinfo=ZoneInfo(zone)).timestamp())


def due(rule: Rule, granted: int, planned: str, used: int, taken: int = 0) -> int:
    """What is due of a budget that was granted so much before anything was taken."""
    case = Case(granted - taken, taken, Fraction(planned))
    return checkpoints.find(rule, case, used=used).due


# --- Spans and curves -----------------------------------------------------------------------------


def test_months_begin_at_midnight_of_the_accounting_zone() -> None:
    zone = "America/New_York"
    start, end = seconds(2026, 10, 1, zone=zone), seconds(2027, 1, 1, zone=zone)
    found = plans.spans(start=start, end=end, zone=ZoneInfo(zone), by="month")
    borders = [start, seconds(2026, 11, 1, zone=zone), seconds(2026, 12, 1, zone=zone), end]
    assert found == [Span(a, b) for a, b in itertools.pairwise(borders)]
    assert found[1].end - found[1].start == 30 * 86_400 + 3600  # clocks go back on 1 November


def test_quarters_are_three_months_from_the_start_of_the_period() -> None:
    start, end = seconds(2026, 4, 15), seconds(2027, 4, 15)
    found = plans.spans(start=start, end=end, zone=UTC, by="quarter")
    assert [span.start for span in found] == [
        start, seconds(2026, 7, 1), seconds(2026, 10, 1), seconds(2027, 1, 1), seconds(2027, 4, 1),
    ]  # fmt: skip
    assert found[-1].end == end


@pytest.mark.parametrize("by", ["month", "quarter"])
def test_spans_cover_a_period_without_gaps(by: str) -> None:
    dice = random.Random(1)
    for _ in range(50):
        start = dice.randrange(seconds(2024, 1, 1), seconds(2026, 1, 1))
        end = start + dice.randrange(1, 800 * 86_400)
        zone = ZoneInfo(dice.choice(["UTC", "Asia/Kolkata", "America/Santiago", "Europe/Lisbon"]))
        found = plans.spans(start=start, end=end, zone=zone, by=by)
        assert (found[0].start, found[-1].end) == (start, end)
        assert all(a.end == b.start for a, b in itertools.pairwise(found))
        assert all(span.start < span.end for span in found)


def quarters(*parts: int) -> Curve:
    over = [Span(n * 100, n * 100 + 100) for n in range(len(parts))]
    return plans.stepped([part * 1000 for part in parts], over)


def test_a_plan_rises_in_a_straight_line_inside_each_part() -> None:
    curve = quarters(10, 20, 30, 40)
    found = [curve.at(at) for at in (-5, 0, 50, 100, 150, 399, 400, 900)]
    assert found == [0, 0, *(Fraction(n, 1000) for n in (50, 100, 200, 996)), 1, 1]


def test_pace_is_against_the_plan() -> None:
    curve = quarters(10, 20, 30, 40)
    assert plans.planned_to_date(granted=1000, curve=curve, at=100) == 100  # 90 used: pace 0.90
    even = plans.even(start=0, end=400)
    assert plans.planned_to_date(granted=1000, curve=even, at=100) == 250  # 90 used: pace 0.36


def test_planned_to_date_is_rounded_down_and_never_negative() -> None:
    even = plans.even(start=0, end=3)
    assert plans.planned_to_date(granted=10, curve=even, at=2) == 6
    assert plans.planned_to_date(granted=-10, curve=even, at=2) == 0


def test_planned_to_date_never_falls_and_ends_at_the_grant() -> None:
    dice = random.Random(2)
    for _ in range(50):
        cuts = sorted(dice.randrange(WHOLE + 1) for _ in range(5))
        parts = [b - a for a, b in zip([0, *cuts], [*cuts, WHOLE], strict=True)]
        curve = plans.stepped(parts, [Span(n * 70, n * 70 + 70) for n in range(6)])
        granted = dice.randrange(10**12)
        row = [
            plans.planned_to_date(granted=granted, curve=curve, at=at) for at in range(0, 421, 7)
        ]
        assert row == sorted(row)
        assert (row[0], row[-1]) == (0, granted)


def test_a_curve_must_rise_from_nothing_to_all() -> None:
    for marks, planned in (((0, 1), (0, 99_999)), ((0, 1), (1, WHOLE)), ((1, 1), (0, WHOLE))):
        with pytest.raises(ValueError, match="rises"):
            Curve(marks, planned)


def test_what_a_curve_plans_for_each_part() -> None:
    over = [Span(n * 100, n * 100 + 100) for n in range(4)]
    assert plans.parts_of(quarters(10, 20, 30, 40), over) == [10_000, 20_000, 30_000, 40_000]
    assert plans.parts_of(plans.even(start=0, end=400), over) == [25_000] * 4


def test_quarters_are_parted_among_months_without_loss() -> None:
    """Whoever plans by month after quarters keeps what the quarter had, to the thousandth."""
    months = [Span(n, n + 1) for n in range(3)] + [Span(3, 6)]
    curve = plans.stepped([10_000, 90_000], [Span(0, 3), Span(3, 6)])
    assert plans.parts_of(curve, months) == [3333, 3333, 3334, 90_000]


def test_a_curve_goes_on_as_another_from_an_instant() -> None:
    """Up to it nothing moves, not by a fraction, and what is planned never falls after it."""
    dice = random.Random(8)
    for _ in range(100):
        before = quarters(*_parts(dice))
        at = dice.randrange(401)
        level = before.at(at)
        after = plans.stepped(
            [int(level * WHOLE), WHOLE - int(level * WHOLE)], [Span(0, at or 1), Span(at or 1, 401)]
        )
        both = plans.spliced(before, after, at)
        assert all(both.at(t) == before.at(t) for t in range(at + 1))
        rising = [both.at(t) for t in range(405)]
        assert rising == sorted(rising)
        assert all(0 <= both.at(t) - after.at(t) < Fraction(1, WHOLE) for t in range(at, 402))


def _parts(dice: random.Random) -> list[int]:
    cuts = sorted(dice.randrange(101) for _ in range(3))
    return [b - a for a, b in zip([0, *cuts], [*cuts, 100], strict=True)]


# --- What is due ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "taken", "planned", "expected"),
    [
        (12_000, 0, "1/4", 8_750),  # 48 % of 25,000
        (30_000, 8_750, "1/2", 1_250),  # 60 % of 50,000: 10,000 in all
        (36_000, 8_750, "1/2", 0),  # nothing in all, and nothing is returned
        (22_500, 10_000, "1/2", 7_500),  # 45 %: 17,500 in all
        (15_000, 10_000, "1/2", 17_500),  # 30 %: 27,500 in all
    ],
)
def test_nrel(used: int, taken: int, planned: str, expected: int) -> None:
    assert due(NREL, 100_000, planned, used, taken) == expected


def test_nrel_takes_what_its_table_says_beyond_what_it_took() -> None:
    """10,000 taken after the first quarter, 25,000 by the table after the second: take 15,000."""
    assert due(NREL, 250_000, "1/2", 75_000) == 25_000
    assert due(NREL, 250_000, "1/2", 75_000, taken=10_000) == 15_000


def test_incite() -> None:
    assert due(INCITE_MAY, 1_000_000, "1/3", 50_000) == 285_000
    assert due(INCITE_MAY, 1_000_000, "1/3", 100_000) == 135_000
    assert due(INCITE_MAY, 1_000_000, "1/3", 150_000) == 0


def test_of_what_remains_after_an_earlier_checkpoint() -> None:
    september = Rule("granted", "remaining", False, (Step(50_000, 33_000),))
    assert due(september, 1_000_000, "2/3", 215_000, taken=285_000) == 165_000  # of 500,000


def test_own_plan_takes_what_was_planned_and_not_used() -> None:
    assert due(OWN_PLAN, 100_000, "1/4", 10_000) == 15_000
    assert due(OWN_PLAN, 100_000, "1/2", 20_000, taken=15_000) == 15_000
    assert due(OWN_PLAN, 100_000, "1/4", 25_000) == 0


def test_what_later_use_makes_up_for_is_given_back() -> None:
    ages = Rule("planned", "unused", True, (Step(WHOLE, WHOLE),), gives_back=True)

    def found(used: int, taken: int, returned: int = 0) -> tuple[int, int]:
        case = Case(100_000 - taken + returned, taken, Fraction(1, 2), returned)
        one = checkpoints.find(ages, case, used=used)
        return one.due, one.back

    assert found(40_000, 15_000) == (0, 5_000)
    assert found(60_000, 15_000) == (0, 15_000)
    assert found(30_000, 15_000) == (5_000, 0)
    assert found(60_000, 15_000, returned=12_000) == (0, 3_000)
    assert found(40_000, 15_000, returned=15_000) == (0, 0)  # people gave back more than is due


def test_what_people_give_back_raises_no_base_and_is_not_taken_again() -> None:
    kept = Case(100_000, 8_750, Fraction(1, 2), returned=8_750)
    found = checkpoints.find(NREL, kept, used=30_000)
    assert (found.planned, found.due) == (50_000, 1_250)


def test_of_the_initial_award_alone() -> None:
    def found(granted: int, taken: int = 0, rule: Rule = OWN_PLAN) -> tuple[int, int]:
        case = Case(granted, taken, Fraction(1, 2), initial=100_000)
        one = checkpoints.find(rule, case, used=20_000)
        return one.planned, one.due

    assert found(100_000) == found(250_000) == (50_000, 30_000)
    assert found(235_000, taken=15_000) == (50_000, 15_000)
    assert found(60_000) == (30_000, 10_000)  # a share that fell takes of it
    assert found(1_000_000, 40_000, INCITE_MAY)[0] == 30_000  # of the 60,000 that stand of it


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ([(True, -10), (False, 10)], 10),
        ([(True, -10), (False, 25)], 10),  # the rest is a further grant
        ([(False, 10), (True, -10)], 0),  # before it was taken
        ([(True, -10), (False, 8), (False, -8)], 0),  # for a time only
        ([(True, -10), (False, 25), (False, -15)], 10),  # what came last goes first
        ([(True, -10), (False, 25), (False, -20)], 5),
        ([(True, -10), (True, 6), (False, 25)], 4),  # a checkpoint gave back the rest
        ([(True, -10), (False, 25), (True, -5), (False, 5)], 15),
        ([(False, -7), (True, -10), (False, 7)], 7),
    ],
)
def test_what_people_gave_back(moves: list[tuple[bool, int]], expected: int) -> None:
    assert checkpoints.given_back(moves) == expected


def test_a_step_holds_below_its_percent_and_not_at_it() -> None:
    assert due(NREL, 100_000, "1/4", 17_500) == 0
    assert due(NREL, 100_000, "1/4", 17_499) == 5_000


def test_what_is_due_is_rounded_down() -> None:
    assert due(Rule("granted", "remaining", False, (Step(50_000, 33_333),)), 100, "1/2", 10) == 29


def test_nothing_is_due_of_a_budget_without_a_grant_or_a_plan() -> None:
    for rule in (NREL, INCITE_MAY, OWN_PLAN):
        assert due(rule, 0, "1/2", 0) == 0
        assert due(rule, -5, "1/2", 0) == 0
    assert due(NREL, 100_000, "0", 0) == 0


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "1 to 10 steps"),
        ([Step(10, 10)] * 11, "1 to 10 steps"),
        ([Step(0, 10)], "above 0"),
        ([Step(10, WHOLE + 1)], "above 0"),
        ([Step(20, 20), Step(10, 10)], "Order the steps"),
        ([Step(10, 10), Step(20, 20)], "Order the steps"),
    ],
)
def test_a_table_out_of_order_is_refused(steps: list[Step], said: str) -> None:
    assert said in (checkpoints.fault(steps) or "")
    assert checkpoints.fault(NREL.steps) is None


# --- Properties -----------------------------------------------------------------------------------


def any_rule(dice: random.Random, *, cumulative: bool | None = None) -> Rule:
    below = sorted(dice.sample(range(1, WHOLE + 1), 3))
    remove = sorted(dice.sample(range(1, WHOLE + 1), 3), reverse=True)
    return Rule(
        dice.choice(["planned", "granted"]),
        dice.choice(["planned", "remaining", "unused"]),
        dice.random() < 0.5 if cumulative is None else cumulative,
        tuple(map(Step, below, remove)),
    )


def test_who_uses_more_never_loses_more() -> None:
    dice = random.Random(3)
    for _ in range(300):
        rule, taken = any_rule(dice), dice.choice([0, 1000])
        case = Case(dice.randrange(10**6), taken, Fraction(dice.randrange(101), 100))
        row = [checkpoints.find(rule, case, used=used).due for used in range(0, 10**6, 49_999)]
        assert row == sorted(row, reverse=True)


def test_the_least_use_avoids_it_and_one_less_does_not() -> None:
    dice = random.Random(4)
    lost = 0
    for _ in range(300):
        rule = any_rule(dice)
        case = Case(dice.randrange(10**9), dice.choice([0, 10**6]), Fraction(dice.random()))
        used = dice.randrange(10**8)
        least = checkpoints.least_use(rule, case, used=used)
        assert checkpoints.find(rule, case, used=least).due == 0
        if checkpoints.find(rule, case, used=used).due:
            lost += 1
            assert checkpoints.find(rule, case, used=least - 1).due > 0
        else:
            assert least == used
    assert lost > 100


def test_cumulative_checkpoints_never_take_twice() -> None:
    """All that they took is the most that any of them says in all."""
    dice = random.Random(5)
    for _ in range(300):
        rule = any_rule(dice, cumulative=True)
        award, used, taken, most = dice.randrange(1, 10**9), 0, 0, 0
        for quarter in (1, 2, 3):
            used += dice.randrange(award // 5 + 1)
            planned = Fraction(quarter, 4)
            in_all = checkpoints.find(rule, Case(award, 0, planned), used=used).due
            most = max(most, in_all)
            taken += checkpoints.find(rule, Case(award - taken, taken, planned), used=used).due
            assert taken == most


def test_where_it_gives_back_what_is_missing_is_what_the_last_one_says_in_all() -> None:
    dice = random.Random(9)
    gave = 0
    for _ in range(300):
        rule = replace(any_rule(dice, cumulative=True), gives_back=True)
        award, used, missing = dice.randrange(1, 10**9), 0, 0
        for quarter in (1, 2, 3):
            used += dice.randrange(award // 2 + 1)
            planned = Fraction(quarter, 4)
            in_all = checkpoints.find(rule, Case(award, 0, planned), used=used).due
            found = checkpoints.find(rule, Case(award - missing, missing, planned), used=used)
            gave += found.back > 0
            missing += found.due - found.back
            assert missing == in_all
    assert gave > 100


def test_a_checkpoint_repeated_at_once_takes_nothing_more_where_it_is_cumulative() -> None:
    dice = random.Random(6)
    for _ in range(300):
        rule = any_rule(dice, cumulative=True)
        award, planned = dice.randrange(1, 10**9), Fraction(1, 2)
        first = due(rule, award, "1/2", award // 10)
        again = Case(award - first, first, planned)
        assert checkpoints.find(rule, again, used=award // 10).due == 0


def test_no_checkpoint_takes_more_than_is_left() -> None:
    dice = random.Random(7)
    for _ in range(300):
        rule, granted = any_rule(dice), dice.randrange(10**9)
        used = dice.randrange(granted + 1)
        assert due(rule, granted, "1/2", used) <= granted
