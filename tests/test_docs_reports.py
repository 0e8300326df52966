"""docs/reports.md: every worked table is computed again with the real code."""

from decimal import Decimal
from pathlib import Path

import pytest

from ledger import burn, period_end, reports
from ledger.exports.focus_rows import Money
from tests.ledger_world import CREDIT

pytestmark = pytest.mark.once
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


@pytest.mark.parametrize(("seconds", "funded", "unit", "listed", "billed"), table("focus"))
def test_prices(seconds: str, funded: str, unit: str, listed: str, billed: str) -> None:
    money, rate = Money(Decimal("2.50"), "EUR"), 1500
    amount = int(seconds) * rate
    assert money.cost(rate) == unit
    assert money.cost(amount) == listed
    assert money.cost(amount if funded == "yes" else 0) == billed
    assert Decimal(unit) * int(seconds) == Decimal(listed)
