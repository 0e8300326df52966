"""docs/reports.md: every worked table is computed again with the real code."""

from pathlib import Path

import pytest

from ledger import burn, period_end, reports
from tests.ledger_world import CREDIT

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reports.md"


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


@pytest.mark.parametrize(("days", "low", "likely", "high"), table("forecast"))
def test_forecasts(days: str, low: str, likely: str, high: str) -> None:
    found = period_end.forecast(
        settled_mgpus=1000 * CREDIT,
        daily=[int(day) * CREDIT for day in days.split()],
        rest=10 * burn.DAY,
    )
    amounts = (found.low_mgpus, found.likely_mgpus, found.high_mgpus) if found else ()
    shown = [reports.credits(one).replace(",", "") for one in amounts] or ["-", "-", "-"]
    assert shown == [low, likely, high]
