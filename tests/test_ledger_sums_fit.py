"""No sum of the ledger is beyond the database's integers: decisions are refused before it would."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, DataError, connection, transaction

from budgets.models import Budget, Period
from budgets.refusals import AMOUNT_MAX, SUM_MAX
from ledger import reports, services
from ledger.checks import entry_problems
from ledger.models import Entry, Rollup
from ledger.services import Kind
from tests.factories import HOUR, T0, T1, make_period, someone
from tests.ledger_world import ledger, write_entry

pytestmark = pytest.mark.django_db
ORLO, SCIENCE, PETREL = "orlo", "orlo/science", "orlo/science/petrel"


@pytest.fixture
def period(tree: dict[str, Budget]) -> Period:
    """So much is granted and taken back, at two budgets, that half a decision more is let."""
    period = make_period()
    for path, amount in (
        (ORLO, SUM_MAX // 2 + AMOUNT_MAX),
        (ORLO, -AMOUNT_MAX),
        (SCIENCE, SUM_MAX // 2 - 5 * AMOUNT_MAX // 2),
    ):
        given(tree[path], period, amount)
    return period


def given(budget: Budget, period: Period, amount: int) -> None:
    write_entry(
        kind="grant", budget=budget, period=period, at=T0, amount_mgpus=amount, author=someone(),
        key=f"test:{Entry.objects.count()}", created_at=T0,
    )  # fmt: skip


def by_hand(kind: Kind, budget: Budget, amount: int) -> dict[str, Any]:
    return {"kind": kind, "budget": budget, "amount_mgpus": amount, "now": T0 + HOUR}


def test_what_is_decided_in_a_period_fits_in_any_sum(tree, period) -> None:
    orlo, science, petrel = (tree[path] for path in (ORLO, SCIENCE, PETREL))
    too_much = AMOUNT_MAX // 2 + 1
    signed: dict[str, Any] = {"author": someone(), "note": "n"}
    way: dict[str, Any] = {
        "source": science,
        "target": petrel,
        "amount_mgpus": too_much,
        "now": T0 + HOUR,
    }
    grant, adjust = (by_hand(kind, orlo, too_much) for kind in (Kind.GRANT, Kind.ADJUST))
    calls: list[Callable] = [
        lambda: services.write_by_hand(**grant, **signed, key="a"),
        lambda: services.write_by_hand(**adjust, **signed, key="b"),
        lambda: services.preview_by_hand(**grant),
        lambda: services.preview_by_hand(**adjust),
        lambda: services.transfer(**way, **signed, key="c"),
        lambda: services.preview_transfer(**way),
    ]
    before = ledger()
    for call in calls:
        with pytest.raises(
            services.LedgerError,
            match=r"^All that is granted, moved and adjusted in 2026 Q4, up and down and at every "
            r"level, may come to 1,111,111,111,111\.11 credits, and would come to "
            r"more: give less\.$",
        ):
            call()
    assert ledger() == before
    services.write_by_hand(**by_hand(Kind.GRANT, orlo, AMOUNT_MAX // 2), **signed, key="d")
    found = reports.figures(period=period, now=T0 + HOUR)
    assert found[orlo.pk].granted_mgpus == SUM_MAX // 2 + AMOUNT_MAX // 2
    assert found[science.pk].granted_mgpus == SUM_MAX // 2 - 5 * AMOUNT_MAX // 2
    assert [str(one) for one in entry_problems(start=T0, end=T1) if one.rule == "sum"] == []
    with pytest.raises(services.LedgerError, match="give less"):
        services.write_by_hand(**by_hand(Kind.GRANT, orlo, 1), **signed, key="e")


def test_another_period_has_sums_of_its_own(tree, period) -> None:
    make_period("next", starts_at=T1, ends_at=T1 + (T1 - T0))
    asked = by_hand(Kind.GRANT, tree[ORLO], AMOUNT_MAX) | {"now": T1}
    assert services.write_by_hand(**asked, author=someone(), note="n", key="a").anew


@transaction.atomic
def beyond(budget: Budget, period: Period) -> None:
    """Write, without asking, what comes to more than 2⁶³."""
    for _ in range(3):
        given(budget, period, 2 * SUM_MAX)


def test_the_database_itself_refuses_a_sum_that_is_no_integer_of_its(tree, period) -> None:
    before = ledger(), list(Rollup.objects.order_by("pk").values_list("amount_mgpus"))
    with pytest.raises(DatabaseError, match=r"more than an integer|out of range"):
        beyond(tree[ORLO], period)
    assert (ledger(), list(Rollup.objects.order_by("pk").values_list("amount_mgpus"))) == before


def test_a_key_that_is_too_long_is_refused_and_not_cut(tree, period) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite keeps texts of any length")
    place = {"kind": "grant", "budget": tree[ORLO], "period": period, "at": T0, "amount_mgpus": 1}
    with pytest.raises(DataError), transaction.atomic():
        write_entry(**place, author=someone(), key="k" * 121, created_at=T0)
