"""Entries too wrong to read: `reconcile` names each, and goes on to the end."""

from typing import Any

import pytest

from ledger import reports, services
from ledger.grants import WAY
from ledger.kept import CHANGES
from ledger.models import Entry
from tests.factories import T0
from tests.reconcile_world import END, PETREL, Books, make_books, past_triggers

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def books(module_rows: None) -> Books:
    return make_books()


def change(entry: Entry, **columns: Any) -> None:
    with past_triggers():
        Entry.objects.filter(pk=entry.pk).update(**columns)
        services.rebuild_rollups()


def lines() -> list[str]:
    found = [*map(str, reports.differences(start=T0, end=END))]
    return found + [str(one) for one in reports.entry_problems(start=T0, end=END)]


@pytest.mark.parametrize("column", ["pool", "timestep"])
def test_a_charge_without_its_place_is_named(books: Books, column: str) -> None:
    charge = Entry.objects.filter(kind="charge", run=books.long).latest("at")
    change(charge, **{column: None})
    assert (
        f"charge: {charge.key}: 14400 GPU-seconds of {PETREL} from 2026-10-01T01:30:00Z on "
        f"have no {column}"
    ) in lines()


@pytest.mark.parametrize("ends", ["x:y", "0:99999", "7"])
def test_the_way_of_a_transfer_between_no_budgets_is_named(books: Books, ends: str) -> None:
    mark = Entry.objects.filter(kind="grant", key__startswith=WAY).earliest("pk")
    change(mark, key=(key := f"{WAY}wrong:{ends}"))
    assert any(line.startswith(f"transfer: {key}, ") for line in lines())


@pytest.mark.parametrize("mover", ["nobody", "99999"])
def test_a_move_of_no_budget_is_named(books: Books, mover: str) -> None:
    half = Entry.objects.filter(kind="transfer", key__startswith="move:").earliest("pk")
    change(half, key=f"move:1:{mover}:{half.budget_id}")
    said = f"'{mover}' is no budget that could move"
    assert any(line.startswith(f"transfer: move:1:{mover}, ") and said in line for line in lines())


@pytest.mark.parametrize("tail", ["set:1", "99999:1", "{own}:1:kept:much"])
def test_a_mark_of_no_change_set_is_named(books: Books, tail: str) -> None:
    mark = Entry.objects.filter(kind="grant", key__startswith=CHANGES).latest("pk")
    key = CHANGES + tail.format(own=mark.key.split(":")[2])
    change(mark, key=key)
    path, period = mark.budget.path, mark.period.name
    assert any(line.startswith(f"grant: {path}, {period}, at ") and key in line for line in lines())
