"""The pages on periods: every worked table is computed again with the real code."""

import re
from datetime import date, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from budgets import calendars
from ledger.instants import iso

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
