"""People who write by hand at once, and beside others: once for a key, and never below claims."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from budgets.models import Budget, Period
from ledger import by_hand, grants, reports, services
from ledger.instants import LedgerError
from ledger.models import Entry
from ledger.services import Kind
from tests.factories import T0, make_period, make_tree, make_user
from tests.ledger_world import CREDIT, give
from tests.test_ledger_races import all_at_once

pytestmark = pytest.mark.django_db(transaction=True)
SECOND = timedelta(seconds=1)
PEOPLE = 20
END = T0 + timedelta(hours=1)


def ten_credits() -> tuple[Budget, Budget, Period]:
    """Petrel, tern, and the period in which petrel and all above it have 10 credits."""
    tree = make_tree()
    period = make_period(ends_at=END)
    give(tree["orlo/science/petrel"], 10, period)
    return tree["orlo/science/petrel"], tree["orlo/vision/tern"], period


def write(
    budget: Budget, kind: Kind, credits: int, key: str, author: User, now: datetime = T0
) -> services.Written:
    return services.write_by_hand(
        kind=kind,
        budget=budget,
        amount_mgpus=credits * CREDIT,
        author=author,
        note="agreed",
        key=key,
        now=now,
    )


def errors_of(found: list[Any]) -> list[BaseException]:
    errors = [one for one in found if isinstance(one, BaseException)]
    assert {type(one) for one in errors} <= {LedgerError}, errors
    return errors


def never_below(period: Period) -> None:
    for pk, one in reports.figures(period=period, now=T0).items():
        used = one.settled_mgpus + one.in_flight_mgpus + one.held_mgpus
        assert one.granted_mgpus >= used, pk


@pytest.mark.parametrize("kind", [Kind.GRANT, Kind.ADJUST])
def test_one_key_sent_by_twenty_is_written_once(kind: Kind) -> None:
    petrel, _, _ = ten_credits()
    people = [make_user() for _ in range(PEOPLE)]
    before = Entry.objects.count()
    found = all_at_once(lambda index: write(petrel, kind, 3, "k", people[index]).anew, PEOPLE)
    assert sorted(map(str, found)) == ["False"] * (PEOPLE - 1) + ["True"]
    assert Entry.objects.count() == before + 1


def test_one_key_for_two_decisions_is_one_of_them() -> None:
    petrel, _, _ = ten_credits()
    people = [make_user() for _ in range(PEOPLE)]
    kinds = (Kind.GRANT, Kind.ADJUST)
    found = all_at_once(
        lambda index: write(petrel, kinds[index % 2], 3, "k", people[index]).anew, PEOPLE
    )
    taken = [one for one in found if isinstance(one, services.KeyTaken)]
    assert len(taken) == PEOPLE // 2
    assert found.count(True) == 1
    assert Entry.objects.filter(key__in=("grant:by-hand:k", "adjust:k")).count() == 1


def test_twenty_take_what_there_is_for_ten() -> None:
    """Half take a credit back, half add one to what is settled: ten of all succeed."""
    petrel, _, period = ten_credits()
    people = [make_user() for _ in range(PEOPLE)]

    def one(index: int) -> Any:
        kind, amount = (Kind.GRANT, -1) if index % 2 else (Kind.ADJUST, 1)
        return write(petrel, kind, amount, f"k{index}", people[index]).anew

    found = all_at_once(one, PEOPLE)
    assert len(errors_of(found)) == PEOPLE - 10
    assert found.count(True) == 10
    never_below(period)
    mine = reports.figures(period=period, now=T0)[petrel.pk]
    assert mine.granted_mgpus == mine.settled_mgpus


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="a transaction excludes all others on SQLite"
)
def test_without_the_lock_the_same_twenty_fall_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the set-up above can fail, so its success means something."""
    for module in (by_hand, grants):
        monkeypatch.setattr(module, "lock_ledger", lambda: None)
    petrel, _, period = ten_credits()
    people = [make_user() for _ in range(PEOPLE)]
    all_at_once(lambda index: write(petrel, Kind.ADJUST, 1, f"k{index}", people[index]), PEOPLE)
    mine = reports.figures(period=period, now=T0)[petrel.pk]
    assert mine.settled_mgpus > mine.granted_mgpus


def test_by_hand_beside_transfers_nothing_is_given_twice() -> None:
    petrel, tern, period = ten_credits()
    people = [make_user() for _ in range(PEOPLE)]

    def one(index: int) -> Any:
        if index % 2:
            return write(petrel, Kind.ADJUST, 1, f"k{index}", people[index])
        return services.transfer(
            source=petrel, target=tern, amount_mgpus=CREDIT, author=people[index], note="agreed",
            key=f"t{index}", now=T0,
        )  # fmt: skip

    found = all_at_once(one, PEOPLE)
    assert len(errors_of(found)) == PEOPLE - 10
    never_below(period)
    figures = reports.figures(period=period, now=T0)
    given = figures[tern.pk].granted_mgpus
    assert figures[petrel.pk].settled_mgpus + given == 10 * CREDIT
    assert figures[petrel.pk].granted_mgpus + given == 10 * CREDIT


def test_by_hand_beside_the_closing_is_in_the_statement_or_refused() -> None:
    petrel, _, period = ten_credits()
    people = [make_user() for _ in range(PEOPLE)]

    def one(index: int) -> Any:
        if index == 0:
            return services.close_period(period=period, at=END)
        now = END - SECOND
        return write(petrel, Kind.ADJUST, 1, f"k{index}", people[index], now).anew

    found = all_at_once(one, 11)
    assert found[0] == []
    refused = errors_of(found)
    period.refresh_from_db()
    assert period.status == Period.Status.CLOSED
    written = Entry.objects.filter(kind="adjust", period=period).count()
    assert written == found.count(True) == 10 - len(refused)
    row = period.statements.get(budget=petrel)
    assert row.settled_mgpus == written * CREDIT
