"""What is scheduled stays so, whatever else is changed in the tree meanwhile."""

from datetime import timedelta
from typing import Any

import pytest

from allocator import steering
from budgets import services, shares
from budgets.models import Budget
from budgets.refusals import Refused
from ledger import reports
from ledger import services as ledger
from ledger.instants import to_seconds
from ledger.membership import Membership
from tests import factories as make
from tests.factories import HOUR, T0
from tests.ledger_world import CREDIT, give

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
PETREL, AUK, SCIENCE, VISION = (
    f"orlo/{path}" for path in ("science/petrel", "science/auk", "science", "vision")
)
NOW, UNTIL = T0 + HOUR, T0 + 10 * DAY


@pytest.fixture
def raised(tree: dict[str, Budget]) -> dict[str, Budget]:
    """petrel has 10 % of auk's share for ten days."""
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 50_000, tree[AUK]: 40_000})
    made = make.make_request(tree[PETREL], asked=10_000, until=UNTIL)
    ledger.grant_request(request=made, source=tree[AUK], by=make.someone(), now=T0)
    return tree


def change(how: str, now: Any = NOW, **asked: Any) -> Budget:
    given = {"author": make.someone(), "reason": "as agreed", "now": now, **asked}
    made: Budget = getattr(services, how)(**given)
    return made


def children(parent: Budget, at: Any) -> dict[str, int]:
    nodes = shares.tree(at=at)
    found = (nodes[child] for child in nodes[parent.pk].children)
    return {node.budget.slug: node.thousandths for node in found}


def test_a_new_budget_leaves_a_raise_and_its_end_as_they_were(raised):
    science = raised[SCIENCE]
    change("create_budget", parent=science, slug="kea", name="Kea", share=5_000)
    assert children(science, NOW) == {"auk": 30_000, "kea": 5_000, "petrel": 60_000}
    assert children(science, UNTIL) == {"auk": 40_000, "kea": 5_000, "petrel": 50_000}


def test_archiving_one_leaves_the_end_of_a_raise_of_another(raised):
    change("archive_budget", budget=raised[AUK])
    assert children(raised[SCIENCE], NOW) == {"petrel": 60_000}
    assert children(raised[SCIENCE], UNTIL) == {"petrel": 50_000}
    change("reactivate_budget", budget=raised[AUK], share=30_000, now=NOW + HOUR)
    assert children(raised[SCIENCE], UNTIL) == {"auk": 30_000, "petrel": 50_000}


def test_what_is_scheduled_where_a_budget_goes_has_it_from_then_on_too(raised):
    later = NOW + DAY
    make.make_shares(raised[VISION], {raised["orlo/vision/tern"]: 70_000}, at=later)
    change("move_budget", budget=raised[PETREL], to=raised[VISION], share=0)
    assert children(raised[VISION], NOW) == {"petrel": 0, "tern": 100_000}
    assert children(raised[VISION], later) == {"petrel": 0, "tern": 70_000}
    assert children(raised[SCIENCE], NOW) == {"auk": 30_000}
    assert children(raised[SCIENCE], UNTIL) == {"auk": 40_000}


def test_a_moved_budget_stays_where_it_went_when_what_was_scheduled_would_have_held(raised):
    petrel = raised[PETREL]
    change("move_budget", budget=petrel, to=raised[VISION], share=0)
    tree = Membership.load()
    for at in (NOW, UNTIL, UNTIL + DAY):
        assert tree.parent(petrel.pk, to_seconds(at)) == raised[VISION].pk
    assert tree.parent(petrel.pk, to_seconds(T0)) == raised[SCIENCE].pk


def test_a_change_that_what_is_scheduled_has_no_room_for_is_refused(raised):
    later = NOW + DAY
    make.make_shares(raised[SCIENCE], {raised[PETREL]: 60_000, raised[AUK]: 40_000}, at=later)
    version = shares.version(raised[SCIENCE])
    with pytest.raises(Refused, match="scheduled for 02 Oct 2026 01:00 UTC: The shares"):
        change("create_budget", parent=raised[SCIENCE], slug="kea", name="Kea", share=5_000)
    assert shares.version(raised[SCIENCE]) == version
    assert not Budget.objects.filter(slug="kea").exists()


def test_the_grants_of_a_change_beside_a_raise_are_written_at_once(tree):
    period = make.make_period(status="approved", capacity={make.make_pool(): 2208 * 3600})
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 40_000, tree[AUK]: 40_000})
    ledger.start_period(period=period, at=T0)
    give(tree["orlo"], 1, period)
    made = make.make_request(tree[PETREL], asked=10_000, until=UNTIL)
    steering.grant_request(request=made, source=tree[AUK], by=make.someone(), now=NOW)
    at = T0 + 5 * DAY  # in the midst of the raise; 87 days of 24 GPU-hours are left
    before = ledger_granted(period, tree, at)
    kea = steering.create_budget(
        parent=tree[SCIENCE], slug="kea", name="Kea", share=20_000, reason="new",
        author=make.someone(), now=at,
    )  # fmt: skip
    after = ledger_granted(period, tree | {"kea": kea}, at)
    # 20 % of 60 % of 2,088 GPU-hours
    assert after.pop("kea") == 25056 * CREDIT // 100
    assert after == before


def ledger_granted(period: Any, budgets: dict[str, Budget], at: Any) -> dict[str, int]:
    found = reports.figures(period=period, now=at)
    return {path: found[budget.pk].granted_mgpus for path, budget in budgets.items()}
