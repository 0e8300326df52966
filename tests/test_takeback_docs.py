"""docs/takeback.md: every worked table is computed again with the real code."""

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest

from budgets import plans
from budgets.core.checkpoints import Case, Rule, Step, fault, find, given_back
from budgets.models import Budget, Checkpoint
from ledger import reports
from tests.factories import make_period, make_plan

PAGE = Path(__file__).resolve().parent.parent / "docs" / "takeback.md"
START, END = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)


def table(name: str) -> list[list[str]]:
    """Return the cells of the table under the mark, without its header."""
    lines = PAGE.read_text().split(f"<!-- table: {name} -->")[1].strip().splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    assert rows
    return rows


def steps(rows: list[list[str]]) -> tuple[Step, ...]:
    found = tuple(Step(*(int(cell.removesuffix(" %")) * 1000 for cell in row)) for row in rows)
    assert fault(found) is None
    return found


@pytest.mark.django_db
def test_planned_to_date_and_pace(tree: dict[str, Budget]) -> None:
    period = make_period(starts_at=START, ends_at=END)
    petrel = tree["orlo/science/petrel"]
    make_plan(petrel, period, [10, 20, 30, 40], by="quarter")
    found = plans.load(period=period, at=START)
    for instant, planned, used, with_plan, without in table("plan"):
        at = datetime.fromisoformat(instant).replace(tzinfo=UTC)
        curve = found.of(petrel.pk)
        assert plans.planned_to_date(granted_mgpus=1000, curve=curve, at=at) == int(planned)
        for budget, pace in (("orlo/science/petrel", with_plan), ("orlo/science/auk", without)):
            part = found.planned(tree[budget].pk, at)
            value = reports.pace(used_mgpus=int(used), granted_mgpus=1000, planned=part)
            assert value is not None
            assert f"{float(value):.2f}" == pace, (instant, budget)


@pytest.mark.parametrize(
    ("story", "rule"),
    [
        ("nrel-story", Rule("planned", "planned", True, steps(table("nrel")))),
        ("own-plan", Rule("planned", "unused", True, (Step(100_000, 100_000),))),
    ],
)
def test_cumulative_stories(story: str, rule: Rule) -> None:
    for granted, after, planned, used, in_all, before, due in table(story):
        award, taken = int(granted), int(before)
        total = find(rule, Case(award, 0, Fraction(after)), used=int(used))
        assert (total.planned, total.due) == (int(planned), int(in_all))
        case = Case(award - taken, taken, Fraction(after))
        assert find(rule, case, used=int(used)).due == int(due)


def test_incite() -> None:
    for on, granted, used, due, left in table("incite-story"):
        mine = steps([row[1:] for row in table("incite") if row[0] == on])
        rule = Rule("granted", "remaining", False, mine)
        found = find(rule, Case(int(granted), 0, Fraction(1, 2)), used=int(used)).due
        assert (found, int(granted) - int(used) - found) == (int(due), int(left))


def test_what_people_give_back() -> None:
    rule = Rule("planned", "planned", True, steps(table("nrel")))
    for by_hand, granted, after, planned, used, in_all, before, due in table("by-hand"):
        taken, given = int(before), int(by_hand)
        returned = given_back([(True, -taken), (False, given)])
        assert int(granted) == 100_000 - taken + given
        case = Case(int(granted), taken, Fraction(after), returned)
        found = find(rule, case, used=int(used))
        assert (found.planned, found.due) == (int(planned), int(due))
        assert int(in_all) == int(due) + taken


def test_of_the_initial_award_alone() -> None:
    rule = Rule("planned", "unused", True, (Step(100_000, 100_000),))
    for granted, after, planned, used, in_all, before, due in table("initial"):
        award, taken = int(granted), int(before)
        total = find(rule, Case(award, 0, Fraction(after), initial=100_000), used=int(used))
        assert (total.planned, total.due) == (int(planned), int(in_all))
        case = Case(award - taken, taken, Fraction(after), initial=100_000)
        assert find(rule, case, used=int(used)).due == int(due)


def test_what_is_given_back_comes_to_nesi_s_formula() -> None:
    rule = Rule("planned", "unused", True, (Step(100_000, 100_000),), gives_back=True)
    for after, planned, used, in_all, missing, due, back, left in table("nesi"):
        part, before = Fraction(after), int(missing)
        assert find(rule, Case(100_000, 0, part), used=int(used)).due == int(in_all)
        found = find(rule, Case(100_000 - before, before, part), used=int(used))
        assert (found.planned, found.due, found.back) == (int(planned), int(due), int(back))
        granted = 100_000 - before - found.due + found.back
        assert granted - int(used) == int(left) == 100_000 - max(int(used), int(100_000 * part))


def test_the_fields_of_a_checkpoint_are_on_the_page() -> None:
    text = PAGE.read_text()
    names = {"measured", "removed_of", "cumulative", "gives_back", "initial_only", "own_plans"}
    names |= {"spared_days", "steps"}
    assert names <= {field.name for field in Checkpoint._meta.get_fields()}
    for name in names:
        assert f"\n| `{name}` |" in text
    for value in (*Checkpoint.Measured.values, *Checkpoint.RemovedOf.values):
        assert f"`{value}`" in text
