"""A proposal that moves a budget is approved once, however many approve it together."""

from typing import Any

import pytest

from allocator import steering
from budgets.models import Budget, ChangeSet
from budgets.services import Refused
from ledger.models import Entry
from tests import factories as make
from tests.factories import LONG_AGO, make_shares, make_tree
from tests.pages_world import granted
from tests.test_budgets_races import THREADS, at_once
from tests.test_placing import LATER, PETREL, TERN, VISION, proposed

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
