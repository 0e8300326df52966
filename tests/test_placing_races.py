"""Of many who move budgets at once each is done or refused: once, and none for another's lock."""

from typing import Any

import pytest

from allocator import steering
from budgets import shares
from budgets.models import Budget, ChangeSet
from budgets.services import Does, Refused, StaleBase
from ledger.models import Entry
from tests import factories as make
from tests.factories import LONG_AGO, make_shares, make_tree
from tests.pages_world import granted
from tests.test_budgets_races import THREADS, at_once
from tests.test_placing import AUK, LATER, PETREL, SCIENCE, TERN, VISION, of, proposed

pytestmark = pytest.mark.django_db(transaction=True)


def test_of_twenty_approvals_of_one_move_one_does_it(settings: Any) -> None:
    settings.REPLAN_AT_ONCE = False
    tree = make_tree(at=LONG_AGO)
    make_shares(tree[VISION], {tree[TERN]: 75_000}, at=LONG_AGO)
    granted(tree)
    one, by = proposed("move", PETREL, VISION, share=25_000), make.someone()

    def work(_: int) -> object:
        found = ChangeSet.objects.select_related("parent").get(pk=one.pk)
        return steering.approve(change_set=found, by=by, now=LATER)

    answers = at_once(work)
    assert [isinstance(answer, ChangeSet) for answer in answers].count(True) == 1
    assert [isinstance(answer, Refused) for answer in answers].count(True) == THREADS - 1
    assert Budget.objects.get(pk=tree[PETREL].pk).path == f"{VISION}/petrel"
    sets = ChangeSet.objects.filter(status="approved")
    assert sorted(sets.filter(effective_at=LATER).values_list("parent__path", flat=True)) == [
        "orlo/science", VISION,
    ]  # fmt: skip
    moved = Entry.objects.filter(key__startswith="move:")
    assert moved.count() == 2


def test_moves_against_each_other_and_to_the_top_do_not_lock_each_other_out(settings: Any) -> None:
    """Proposed and approved in one: the new parent was locked before what is to be locked first."""
    settings.REPLAN_AT_ONCE = False
    granted(make_tree(at=LONG_AGO))
    by = make.someone()
    moves = [(PETREL, VISION), (TERN, SCIENCE), (AUK, "orlo"), (TERN, "orlo"), (VISION, SCIENCE)]
    asked = [(of(path), of(to), shares.version(of(to))) for path, to in moves]

    def work(number: int) -> object:
        budget, to, version = asked[number % len(asked)]
        return steering.change_place(
            does=Does.MOVE, budget=budget, to=to, share=0, reason="x", author=by, now=LATER,
            base_version=version, approve_at_once=True,
        )  # fmt: skip

    answers = at_once(work)
    assert [one for one in answers if not isinstance(one, ChangeSet | Refused | StaleBase)] == []
    assert any(isinstance(one, ChangeSet) for one in answers)
