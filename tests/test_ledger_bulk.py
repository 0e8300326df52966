"""Rows that are written in bulk hold what they were given, whatever stands in them."""

from typing import Any

import pytest
from django.db import connection

from budgets.models import Budget
from ledger.bulk import among, array
from ledger.entries import write
from ledger.models import Entry
from tests.factories import T0, make_period, someone

pytestmark = pytest.mark.django_db
# What ends a value or a row where rows are streamed, stands for none, or parts a list.
TEXTS = (
    *("", "a\tb", "a\nb", "a\r\nb", "a\\b", "\\N", "\\.", "NULL", "null", "{}", "{a,b}", '"', "'"),
    *("a,b", 'a "b" c', "\\t", "\\\\", " a ", "%s", "$1", "é", "\U0001f600"),
)


def entries(budget: Budget, **fields: Any) -> list[Entry]:
    period = make_period()
    return [
        Entry(
            kind=Entry.Kind.GRANT, budget=budget, period=period, at=T0, amount_mgpus=number,
            key=f"{number}:{text}", note=text, created_at=T0, **fields,
        )
        for number, text in enumerate(TEXTS)
    ]  # fmt: skip


def test_any_text_is_written_as_it_is(tree: dict[str, Budget]) -> None:
    write(entries(tree["orlo"], author=someone()))
    rows = Entry.objects.order_by("amount_mgpus").values_list("key", "note", "author")
    assert list(rows) == [(f"{n}:{text}", text, someone().pk) for n, text in enumerate(TEXTS)]


def test_one_text_that_needs_no_care_is_written_among_values_that_are_none(
    tree: dict[str, Budget],
) -> None:
    write(entries(tree["orlo"])[:1])
    (entry,) = Entry.objects.all()
    assert (entry.note, entry.author, entry.timestep, entry.funded) == ("", None, None, True)
    assert (entry.at, entry.created_at) == (T0, T0)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no arrays")
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("varchar", [*TEXTS, None]),
        ("varchar", list(TEXTS)),
        ("bigint", [1, 2**63 - 1, -(2**63), None, 0]),
        ("bigint", [0, 1]),
        ("boolean", [True, False, None]),
        ("timestamptz", [T0, None]),
        ("bigint", []),
    ],
)
def test_an_array_holds_its_values(kind: str, values: list[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT %s::{kind}[]", [array(values)])
        assert cursor.fetchone() == (values,)


def test_rows_are_picked_by_thousands_of_values(tree: dict[str, Budget]) -> None:
    write(entries(tree["orlo"]))
    keys = [f"{number}:{text}" for number, text in enumerate(TEXTS)]
    some = Entry.objects.filter(among("key", [*keys[1:], *map(str, range(5000))]))
    assert {entry.key for entry in some} == set(keys[1:])
    ids = {entry.pk for entry in some}
    assert {entry.pk for entry in Entry.objects.filter(among("pk", ids | {0, -1}))} == ids
    of = Entry.objects.filter(among("budget_id", [tree["orlo"].pk]), kind="grant")
    assert of.count() == len(TEXTS)


@pytest.mark.parametrize("name", ["key", "pk", "job_id"])
def test_none_is_one_of_no_values(tree: dict[str, Budget], name: str) -> None:
    write(entries(tree["orlo"]))
    assert not Entry.objects.filter(among(name, [])).exists()
