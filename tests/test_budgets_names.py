"""Names are dated: what is shown of the past says what budgets were called then."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from budgets import services
from budgets.diffs import Kind, diff
from budgets.models import Budget, FormerName
from budgets.names import Called, Names
from ledger import reports
from ledger.exports import focus
from ledger.exports.focus_rows import Money
from tests.burn_world import END, odd_ledger
from tests.factories import HOUR, T0, someone

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)
PETREL = "orlo/science/petrel"


def rename(budget: Budget, slug: str, at, name: str = "") -> Budget:
    fresh = Budget.objects.get(pk=budget.pk)
    words = {"slug": slug, "name": name or slug.title(), "author": someone(), "now": at}
    return services.rename_budget(budget=fresh, **words)


def focus_file(budget: Budget) -> bytes:
    what: dict[str, Any] = {"budget": budget, "start": T0, "end": END, "version": "1.2"}
    return b"".join(focus.focus_csv(**what, money=Money(None, "USD")))


def test_a_name_holds_up_to_its_rename(tree: dict[str, Budget]) -> None:
    petrel = tree[PETREL]
    rename(petrel, "storm-petrel", T0 + HOUR)
    now = rename(petrel, "albatross", T0 + 2 * HOUR)
    names = Names.load()
    assert [names.at(now, T0 + k * HOUR - SECOND).slug for k in (0, 1, 2, 3)] == [
        *("petrel", "petrel", "storm-petrel", "albatross")
    ]
    assert names.at(now, T0 + HOUR) == Called("storm-petrel", "Storm-Petrel")
    assert names.at(now, T0 + 2 * HOUR) == Called("albatross", "Albatross")
    kept = FormerName.objects.values_list("slug", "author__username")
    assert list(kept) == [("petrel", "someone"), ("storm-petrel", "someone")]


def test_two_renames_at_one_instant_leave_the_first_name_before_it(tree: dict[str, Budget]) -> None:
    rename(tree[PETREL], "a", T0 + HOUR)
    now = rename(tree[PETREL], "b", T0 + HOUR)
    names = Names.load()
    assert [names.at(now, T0 + HOUR - SECOND).slug, names.at(now, T0 + HOUR).slug] == [
        "petrel",
        "b",
    ]


def test_who_waited_for_the_lock_comes_after(tree: dict[str, Budget]) -> None:
    rename(tree[PETREL], "a", T0 + HOUR)
    now = rename(tree[PETREL], "b", T0 + HOUR - SECOND)
    names = Names.load()
    assert names.at(now, T0 + HOUR - 2 * SECOND).slug == "petrel"  # never "a", which was no second
    assert names.at(now, T0 + HOUR - SECOND).slug == "petrel"
    assert names.at(now, T0 + HOUR).slug == "b"


def test_no_change_is_no_rename(tree: dict[str, Budget]) -> None:
    rename(tree[PETREL], "petrel", T0 + HOUR, tree[PETREL].name)
    assert not FormerName.objects.exists()


@pytest.mark.parametrize(
    "verb", ["UPDATE budgets_formername SET slug = 'x'", "DELETE FROM budgets_formername"]
)
def test_a_former_name_never_changes(tree: dict[str, Budget], verb: str) -> None:
    rename(tree[PETREL], "a", T0 + HOUR)
    with pytest.raises(Exception, match="budgets_formername never changes"), transaction.atomic():
        connection.cursor().execute(verb)
    assert FormerName.objects.get().slug == "petrel"


def test_names_are_one_query(tree: dict[str, Budget]) -> None:
    for number in range(5):
        rename(tree[PETREL], f"a-{number}", T0 + number * HOUR)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        names = Names.load()
        names.at(tree[PETREL], T0)
    assert len(queries) == 1


def test_focus_files_of_the_past_stay_byte_for_byte(tree: dict[str, Budget]) -> None:
    odd_ledger(tree)
    top = Budget.objects.get(path="orlo/science")
    before = focus_file(top)
    assert b"orlo/science/petrel" in before
    rename(tree[PETREL], "albatross", END + HOUR)
    rename(tree["orlo/science"], "physics", END + HOUR)
    rename(tree["orlo"], "institute", END + HOUR)
    assert focus_file(Budget.objects.get(pk=top.pk)) == before
    services.move_budget(
        budget=Budget.objects.get(pk=tree["orlo/science/auk"].pk),
        to=Budget.objects.get(pk=tree["orlo/vision"].pk),
        share=0, author=someone(), reason="belongs there", now=END + 2 * HOUR,
    )  # fmt: skip
    assert focus_file(Budget.objects.get(pk=top.pk)) == before


def test_focus_rows_have_the_name_of_their_charge_s_start(tree: dict[str, Budget]) -> None:
    odd_ledger(tree)
    rename(tree[PETREL], "albatross", T0 + HOUR)
    lines = focus_file(Budget.objects.get(path="orlo")).decode().splitlines()[1:]
    first = [line for line in lines if "petrel" in line]
    later = [line for line in lines if "albatross" in line]
    assert first
    assert later
    assert all("2026-10-01T00:" in line for line in first)


def report_name(budget: Budget, end, now) -> str:
    found = reports.burn_report(budget=budget, start=T0, end=end, now=now)
    return next(row.name for row in found.rows if row.path.startswith("orlo/science/albatross"))


def test_a_report_names_budgets_as_at_its_end(tree: dict[str, Budget]) -> None:
    odd_ledger(tree)
    science, now = tree["orlo/science"], END + HOUR
    rename(tree[PETREL], "albatross", END)
    assert report_name(science, END, now) == "Petrel"
    assert report_name(science, END + SECOND, now) == "Albatross"
    assert report_name(science, END, END) == "Albatross"  # up to now: what it is called now


def test_a_diff_tells_what_was_renamed(tree: dict[str, Budget]) -> None:
    rename(tree[PETREL], "albatross", T0 + HOUR)
    top = tree["orlo/science"]
    (one,) = diff(top=top, start=T0, end=T0 + HOUR)
    assert one.kinds == (Kind.RENAMED,)
    assert one.before
    assert one.after
    assert (one.before.path, one.before.name) == (PETREL, "Petrel")
    assert (one.after.path, one.after.name) == ("orlo/science/albatross", "Albatross")
    assert one.before.address == one.after.address == "orlo/science/albatross"
    assert diff(top=top, start=T0 + HOUR, end=T0 + 2 * HOUR) == []
    rename(tree[PETREL], "petrel", T0 + 2 * HOUR)
    assert diff(top=top, start=T0, end=T0 + 2 * HOUR) == []


def test_a_name_or_a_slug_alone_is_a_rename_in_a_diff(tree: dict[str, Budget]) -> None:
    for hour, words in ((1, {"name": "Albatross"}), (2, {"slug": "albatross"})):
        fresh = Budget.objects.get(pk=tree[PETREL].pk)
        services.rename_budget(budget=fresh, author=someone(), now=T0 + hour * HOUR, **words)
        (one,) = diff(top=tree["orlo"], start=T0 + (hour - 1) * HOUR, end=T0 + hour * HOUR)
        assert one.kinds == (Kind.RENAMED,)


def test_a_diff_has_the_paths_of_either_instant(tree: dict[str, Budget]) -> None:
    """The program is renamed too, before and after the move that is told."""
    petrel, vision = tree[PETREL], tree["orlo/vision"]
    rename(tree["orlo/science"], "physics", T0 + HOUR)
    services.move_budget(
        budget=Budget.objects.get(pk=petrel.pk), to=Budget.objects.get(pk=vision.pk), share=0,
        author=someone(), reason="sees", now=T0 + 2 * HOUR,
    )  # fmt: skip
    rename(vision, "sight", T0 + 3 * HOUR)
    rename(petrel, "albatross", T0 + 4 * HOUR)

    def paths(start, end) -> tuple[str, str, str]:
        found = diff(top=tree["orlo"], start=start, end=end)
        (one,) = [one for one in found if one.budget.pk == petrel.pk]
        assert one.before
        assert one.after
        return one.before.path, one.after.path, one.after.address

    assert paths(T0, T0 + 2 * HOUR) == (PETREL, "orlo/vision/petrel", "orlo/sight/albatross")
    late = paths(T0 + HOUR, T0 + 4 * HOUR)
    assert late == ("orlo/physics/petrel", "orlo/sight/albatross", "orlo/sight/albatross")


def test_a_report_itself_is_named_as_at_its_end(tree: dict[str, Budget]) -> None:
    odd_ledger(tree)
    rename(tree["orlo/science"], "physics", END, "Physics")
    words: dict[str, Any] = {"budget": Budget.objects.get(pk=tree["orlo/science"].pk), "start": T0}
    past = reports.burn_report(**words, end=END, now=END + HOUR)
    assert (past.name, past.total.name) == ("Science", "Science")
    later = reports.burn_report(**words, end=END + SECOND, now=END + HOUR)
    assert (later.name, later.total.name) == ("Physics", "Physics")


def test_between_two_renames_names_stay_the_same(tree: dict[str, Budget]) -> None:
    for number in range(3):
        rename(tree[PETREL], f"a-{number}", T0 + number * HOUR)
    names, now = Names.load(), Budget.objects.get(pk=tree[PETREL].pk)
    told: dict[int, set[str]] = {}
    for step in range(-1, 13):
        at = T0 + step * HOUR / 4
        told.setdefault(names.epoch(at), set()).add(names.at(now, at).slug)
    assert list(told.values()) == [{"petrel"}, {"a-0"}, {"a-1"}, {"a-2"}]
