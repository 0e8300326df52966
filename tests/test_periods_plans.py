"""A period's plan: shares drafted ahead, compared, decided parent by parent, in force by itself."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocator import steering, turning
from budgets import change_sets, period_plans, periods, shares
from budgets.models import Budget, ChangeSet, Period
from budgets.period_plans import NewShares
from budgets.redrafting import redraft_period
from budgets.refusals import Refused, StaleBase
from ledger import reports, services
from ledger.models import Entry
from ledger.period_plans import compare
from tests.factories import (
    HOUR,
    T0,
    make_budget,
    make_nodes,
    make_period,
    make_pool,
    make_shares,
    make_user,
)
from tests.ledger_world import CREDIT

pytestmark = pytest.mark.django_db
BORDER = T0 + timedelta(days=30)
END = BORDER + timedelta(days=10)
SCIENCE, PETREL, AUK, VISION = (
    "orlo/science",
    "orlo/science/petrel",
    "orlo/science/auk",
    "orlo/vision",
)


@pytest.fixture
def author() -> User:
    return make_user("ada")


@pytest.fixture
def now(tree: dict[str, Budget]) -> Period:
    """The running period, of 1,000 credits."""
    period = make_period(
        "now", ends_at=BORDER, status="approved", capacity={make_pool(): 3_600_000}
    )
    services.start_period(period=period, at=T0)
    return period


@pytest.fixture
def later(now: Period) -> Period:
    """A draft of the next, with 8 GPUs for 10 days: 1,920 credits."""
    pool = make_pool()
    make_nodes(pool, 1, gpus=8)
    return periods.draft_period(name="later", starts_at=BORDER, ends_at=END, now=T0)


def new(tree: dict[str, Budget], parent: str, **children: int) -> NewShares:
    given = {tree[f"{parent}/{slug}"]: share for slug, share in children.items()}
    return NewShares(tree[parent], given, shares.version(tree[parent]))


def plan(tree: dict[str, Budget], period: Period, author: User, at: Any = T0) -> list[ChangeSet]:
    return period_plans.plan_shares(
        period=period,
        changes=[
            new(tree, "orlo", science=20_000, vision=70_000),
            new(tree, SCIENCE, petrel=100_000, auk=0),
        ],
        reason="vision trains",
        author=author,
        now=at,
    )


def row(period: Period, path: str, at: Any = T0) -> tuple[Any, ...]:
    (one,) = (one for one in compare(period=period, now=at) if one.budget.path == path)
    credits = (one.granted_mgpus or 0) / CREDIT, one.planned_mgpus / CREDIT
    return one.share_now, one.share_planned, *credits


def test_a_plan_is_compared_with_what_is_in_force(
    tree: dict[str, Budget], later: Period, author: User
) -> None:
    assert row(later, SCIENCE) == (60_000, 60_000, 600, 1152)
    sets = plan(tree, later, author)
    assert {(one.status, one.effective_at) for one in sets} == {("proposed", BORDER)}
    assert row(later, "orlo") == (100_000, 100_000, 1000, 1920)
    assert row(later, SCIENCE) == (60_000, 20_000, 600, 384)
    assert row(later, PETREL) == (50_000, 100_000, 300, 384)
    assert row(later, AUK) == (50_000, 0, 300, 0)
    assert row(later, VISION) == (40_000, 70_000, 400, 1344)
    assert [one.budget.path for one in compare(period=later, now=T0)] == sorted(tree)
    assert {one.budget.path for one in compare(period=later, now=T0) if one.is_changed} == {
        *(SCIENCE, PETREL, AUK, VISION)
    }


def test_an_approved_plan_starts_by_itself_with_the_grants_it_said(
    tree: dict[str, Budget], now: Period, later: Period, author: User
) -> None:
    manager = make_user("manager")
    for one in plan(tree, later, author):
        steering.approve(change_set=one, by=manager, now=T0 + HOUR)
    periods.approve_period(period=later)
    assert period_plans.concerns(later) == []
    said = {one.budget.pk: one.planned_mgpus for one in compare(period=later, now=T0 + HOUR)}
    before = reports.figures(period=now, now=BORDER - HOUR)
    turning.start_due(at=BORDER)
    granted = dict(
        Entry.objects.filter(period=later, kind="grant").values_list("budget_id", "amount_mgpus")
    )
    assert granted == {pk: amount for pk, amount in said.items() if amount}
    assert shares.share_of(tree[PETREL], BORDER) == 100_000
    assert shares.share_of(tree[PETREL], BORDER - timedelta(seconds=1)) == 50_000
    services.apply_due_change_sets(now=BORDER + HOUR)
    assert not Entry.objects.filter(key__startswith="grant:change:", amount_mgpus__gt=0).exists()
    after = reports.figures(period=now, now=BORDER - HOUR)
    assert {pk: one.granted_mgpus for pk, one in after.items()} == {
        pk: one.granted_mgpus for pk, one in before.items()
    }


def test_what_keeps_a_plan_from_holding_is_said(
    tree: dict[str, Budget], later: Period, author: User
) -> None:
    assert period_plans.concerns(later) == []
    first, second = plan(tree, later, author)
    assert period_plans.concerns(later) == [
        f"Change set {first.pk}, the planned shares of orlo, is not decided.",
        f"Change set {second.pk}, the planned shares of orlo/science, is not decided.",
    ]
    steering.approve(change_set=first, by=author, now=T0)
    at_once = {tree[PETREL]: 1000, tree[AUK]: 2000}
    change_sets.set_shares(
        parent=tree[SCIENCE], shares=at_once, reason="now", author=author, base_version=1, now=T0
    )
    soon = {tree[SCIENCE]: 50_000, tree[VISION]: 50_000}
    over = change_sets.set_shares(
        parent=tree["orlo"], shares=soon, reason="now", author=author, base_version=2, now=T0
    )
    assert period_plans.concerns(later) == [
        f"Change set {over.pk} was approved after the planned shares of orlo and stands in for "
        "them: plan them again.",
        "The planned shares of orlo/science are on an outdated base: plan them again.",
    ]
    assert row(later, SCIENCE)[:2] == (50_000, 50_000)
    assert row(later, PETREL)[:2] == (1000, 1000)


def test_a_declined_plan_leaves_shares_as_they_are(
    tree: dict[str, Budget], later: Period, author: User
) -> None:
    for one in plan(tree, later, author):
        change_sets.decline(change_set=one, by=author, now=T0)
    assert period_plans.concerns(later) == []
    assert row(later, SCIENCE) == (60_000, 60_000, 600, 1152)


def test_a_plan_is_written_whole_or_not_at_all(
    tree: dict[str, Budget], later: Period, author: User
) -> None:
    def write(*changes: NewShares, period: Period = later, at: Any = T0) -> None:
        period_plans.plan_shares(period=period, changes=changes, reason="x", author=author, now=at)

    good = new(tree, "orlo", science=50_000, vision=50_000)
    with pytest.raises(Refused, match=r"total 100\.001 %"):
        write(good, new(tree, SCIENCE, petrel=60_000, auk=40_001))
    with pytest.raises(StaleBase):
        write(good, NewShares(tree[SCIENCE], {tree[PETREL]: 0, tree[AUK]: 0}, 0))
    with pytest.raises(Refused, match="at least one budget"):
        write()
    with pytest.raises(Refused, match="later has begun"):
        write(good, at=BORDER)
    running = Period.objects.get(name="now")
    with pytest.raises(Refused, match="now has begun: change its shares from now on instead"):
        write(good, period=running, at=T0 - HOUR)
    assert not ChangeSet.objects.filter(status="proposed").exists()


def test_comparing_costs_the_same_however_many_budgets(
    tree: dict[str, Budget], later: Period, author: User
) -> None:
    plan(tree, later, author)

    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            assert len(compare(period=later, now=T0)) == Budget.objects.count()
        return len(found)

    before, added = queries(), [make_budget(parent=tree["orlo/vision/tern"]) for _ in range(9)]
    make_shares(tree["orlo/vision/tern"], dict.fromkeys(added, 1000))
    period_plans.plan_shares(
        period=later,
        changes=[NewShares(tree["orlo/vision/tern"], dict.fromkeys(added, 2000), 1)],
        reason="more",
        author=author,
        now=T0,
    )
    assert queries() == before


# --- A draft whose start moves --------------------------------------------------------------------

SOONER = BORDER - timedelta(days=3)


def move(period: Period, to: Any, at: Any = T0) -> Period:
    return redraft_period(period=period, starts_at=to, author=make_user(), now=at)


def test_planned_shares_move_along_with_their_period_s_start(
    tree: dict[str, Budget], later: Period, author: User
) -> None:
    first, second = plan(tree, later, author)
    steering.approve(
        change_set=change_sets.draft_change_set(
            parent=tree[SCIENCE], shares={tree[PETREL]: 40_000, tree[AUK]: 60_000}, reason="now",
            author=author, base_version=1, effective_at=T0, now=T0,
        ),
        by=author, now=T0,
    )  # fmt: skip
    second.refresh_from_db()
    assert second.status == "stale"
    elsewhere = change_sets.draft_change_set(
        parent=tree["orlo"], shares={tree[SCIENCE]: 1000, tree[VISION]: 1000}, reason="other",
        author=author, base_version=1, effective_at=BORDER + HOUR, now=T0,
    )  # fmt: skip
    moved = move(later, SOONER)
    for one, at in ((first, SOONER), (second, SOONER), (elsewhere, BORDER + HOUR)):
        one.refresh_from_db()
        assert one.effective_at == at
    assert list(period_plans.sets_of(moved)) == [first, second]
    assert row(moved, SCIENCE)[1] == 20_000
    assert period_plans.concerns(moved)[1] == (
        "The planned shares of orlo/science are on an outdated base: plan them again."
    )


def test_shares_that_are_approved_for_the_old_start_keep_it(
    tree: dict[str, Budget], later: Period, author: User
) -> None:
    first, second = plan(tree, later, author)
    steering.approve(change_set=first, by=author, now=T0)
    with pytest.raises(Refused) as refused:
        move(later, SOONER)
    assert refused.value.sentence == (
        f"Change set {first.pk}, the shares of orlo, is approved for 2026-10-31T00:00:00Z, the "
        "start of later, and holds from then on: keep the start, or first approve for that "
        "instant the shares of before."
    )
    later.refresh_from_db()
    second.refresh_from_db()
    assert (later.starts_at, second.effective_at) == (BORDER, BORDER)
    before = {tree[SCIENCE]: 60_000, tree[VISION]: 40_000}
    change_sets.set_shares(
        parent=tree["orlo"], shares=before, reason="not then", author=author, base_version=2,
        effective_at=BORDER, now=T0,
    )  # fmt: skip
    assert move(later, SOONER).starts_at == SOONER
    second.refresh_from_db()
    assert second.effective_at == SOONER


def test_shares_that_are_another_period_s_plan_too_stay_with_it(
    tree: dict[str, Budget], later: Period, author: User
) -> None:
    (first, *_) = plan(tree, later, author)
    make_period("other", starts_at=BORDER, ends_at=END, status="draft")
    move(later, SOONER)
    first.refresh_from_db()
    assert first.effective_at == BORDER


def test_shares_are_planned_for_the_start_that_a_draft_has_by_then(
    tree: dict[str, Budget], later: Period, author: User
) -> None:
    """Whoever looked at it before it was moved plans for where it is."""
    seen = Period.objects.get(pk=later.pk)
    move(later, SOONER)
    assert {one.effective_at for one in plan(tree, seen, author)} == {SOONER}
