"""The pages on periods: every worked table is computed again with the real code."""

import re
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from budgets import calendars
from budgets.models import Budget, Period
from ledger import reports, services
from ledger.carry_over import carried
from ledger.instants import iso
from tests.factories import HOUR, T0, make_period, make_user
from tests.ledger_world import CREDIT, give_alone

DOCS = Path(__file__).resolve().parent.parent / "docs"


def table(page: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose first heading is `head`."""
    lines = (DOCS / page).read_text().split(f"\n| {head} |")[1].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    assert rows
    return rows


def test_the_borders_of_the_page_are_those_of_its_calendars() -> None:
    for text, name, start, end, hours in table("budgets.md", "calendar"):
        zone = ZoneInfo(name)
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            day = date.fromisoformat(text)
            found = calendars.days(day, day + timedelta(days=1), zone)
        else:
            found = calendars.calendar(text, zone)
        assert [iso(at) for at in found] == [start, end]
        assert found[1] - found[0] == timedelta(hours=int(hours))


@pytest.mark.django_db
def test_the_carry_over_of_the_page_is_what_each_policy_gives(
    tree: dict[str, Budget],
) -> None:
    rows, border = table("ledger.md", "carry-over"), T0 + HOUR
    first = make_period("first", ends_at=border)
    for path, granted, *_ in rows:
        give_alone(tree[path], int(granted), first)
    for path, spent in {"orlo/science/petrel": 20, "orlo/science/auk": 90}.items():
        services.adjust(
            budget=tree[path], amount_mgpus=spent * CREDIT, author=make_user(), note="as measured",
            key=path, now=T0,
        )  # fmt: skip
    left = reports.figures(period=first, now=T0)
    for path, granted, settled, *_ in rows:
        one = left[tree[path].pk]
        assert (one.granted_mgpus, one.settled_mgpus) == (
            int(granted) * CREDIT,
            int(settled) * CREDIT,
        )
    policies: list[dict[str, int]] = [
        {},
        {"carry_over_cap": 25_000},
        {"carry_over_cap": 25_000, "carry_over_max_mgpus": 9 * CREDIT},
        {"carry_over_cap": 100_000},
    ]
    for number, policy in enumerate(policies):
        found = carried(period=Period(starts_at=border, **policy), previous=first)
        for path, _, _, *amounts in rows:
            # unspent stands first in the row: it is what 100 % would carry
            wanted = [*amounts[1:], amounts[0]][number]
            assert found.get(tree[path].pk, 0) == int(Fraction(wanted) * CREDIT), (path, policy)
