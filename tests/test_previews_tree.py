"""Moving, archiving and re-activating before it is done: every figure is what it then becomes."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from allocator import steering
from allocator.pages import effects
from allocator.pages.effects import Effect, period_of
from budgets import services as budgets
from budgets import shares
from budgets.models import WHOLE, Budget, ChangeSet, Period
from budgets.services import Refused, TreeChange
from ledger import reports, services
from ledger.models import Entry
from tests.factories import (
    HOUR,
    LONG_AGO,
    T0,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_role,
    make_run,
    make_shares,
    make_tree,
    make_user,
)
from tests.ledger_world import CREDIT, close
from workloads.models import Job

pytestmark = pytest.mark.django_db
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
HALF = T0 + 50 * DAY
SCIENCE, VISION = "orlo/science", "orlo/vision"
PETREL, AUK, TERN = f"{SCIENCE}/petrel", f"{SCIENCE}/auk", f"{VISION}/tern"
Tree = dict[str, Budget]


@pytest.fixture
def tree() -> Tree:
    """Vision has given three quarters away, so that a quarter can come to it."""
    found = make_tree(at=LONG_AGO)
    make_shares(found[VISION], {found[TERN]: 75_000}, at=LONG_AGO)
    return found


@pytest.fixture
def quarter(tree: Tree) -> Period:
    """An active period of 100 days with 1,000 credits."""
    return started(100 * DAY)


def started(length: timedelta, *, at: datetime = T0, **fields: Any) -> Period:
    pools = {make_pool(): 3600 * 750, make_pool(rate=2000): 3600 * 125}
    period = make_period(
        f"from {at:%d %b %H:%M}", status="approved", starts_at=at, ends_at=at + length, **fields
    )
    for pool, gpu_seconds in pools.items():
        period.capacities.create(
            pool=pool, gpu_seconds=gpu_seconds, rate_per_mille=pool.rates.get().rate_per_mille
        )
    services.start_period(period=period, at=at)
    return period


def spend(budget: Budget, credits: int, at: datetime = T0) -> None:
    services.adjust(
        budget=budget, amount_mgpus=credits * CREDIT, author=make_user(), note="used",
        key=f"{budget.pk}:{at}:{credits}", now=at,
    )  # fmt: skip


def hold(budget: Budget, credits: int, at: datetime = T0) -> None:
    services.place_hold(job=make_job(budget, at=at), amount_mgpus=credits * CREDIT, now=at)


def why(at: datetime) -> dict[str, Any]:
    return {"author": make_user(), "reason": "as agreed", "now": at}


def seen(one: Effect) -> tuple[int | None, ...]:
    return one.after, one.granted_after, one.spendable_after, one.reserve_after


def real(period: Period | None, now: datetime) -> dict[int, tuple[int | None, ...]]:
    """Return the same of every budget as it is, by id."""
    effective = shares.effective_shares(at=now)
    figures = reports.figures(period=period, now=now) if period else {}
    found: dict[int, tuple[int | None, ...]] = {}
    for pk in Budget.objects.values_list("pk", flat=True):
        one = figures.get(pk)
        amounts = (
            (one.granted_mgpus, one.spendable_mgpus, one.reserve_mgpus) if one else (None,) * 3
        )
        found[pk] = (int(effective.get(pk, 0) * WHOLE), *amounts)
    return found


def as_foreseen(change: TreeChange, do: Callable[[], Any], now: datetime) -> dict[str, Effect]:
    """Do what was looked at; every figure of every budget is what was said. Return what was said.

    Whoever isn't named has the figures of before.
    """
    period = period_of(at=now, now=now)
    before = real(period, now)
    written = (Entry.objects.count(), ChangeSet.objects.count())
    said = {
        one.budget.pk: one
        for one in effects.tree_effects(change=change, period=period, now=now)
    }  # fmt: skip
    assert (Entry.objects.count(), ChangeSet.objects.count()) == written
    for pk, one in said.items():
        was = (one.before, one.granted_before, one.spendable_before, one.reserve_before)
        assert was == before[pk], one.budget.path
    last = max(Entry.objects.order_by().values_list("pk", flat=True), default=0)
    do()
    assert real(period, now) == before | {pk: seen(one) for pk, one in said.items()}
    moved = Entry.objects.filter(key__startswith="move:", pk__gt=last)
    along = {entry.budget_id: entry.amount_mgpus for entry in moved.order_by("pk")}
    assert {pk: one.along_mgpus for pk, one in said.items() if one.along_mgpus} == along
    assert services.apply_due_change_sets(now=now) == []
    return {one.budget.path: one for one in said.values()}


def moved(budget: Budget, to: Budget, share: int, now: datetime = HALF, **fields: Any) -> Any:
    budget.refresh_from_db()
    change = budgets.foresee_move(budget=budget, to=to, share=share, now=now, **fields)
    return as_foreseen(
        change,
        lambda: steering.move_budget(budget=budget, to=to, share=share, **why(now), **fields),
        now,
    )


# --- Moves ----------------------------------------------------------------------------------------


def test_a_move_says_what_goes_along_and_what_each_branch_has(tree: Tree, quarter: Period) -> None:
    """The example of docs/ledger.md: half the period is over, petrel has spent 100 of 300."""
    spend(tree[PETREL], 100)
    said = moved(tree[PETREL], tree[VISION], 25_000)
    assert {
        path: (one.granted_after // CREDIT, one.reserve_after // CREDIT, one.along_mgpus // CREDIT)
        for path, one in said.items()
    } == {
        SCIENCE: (550, 150, -50),
        VISION: (450, 50, 50),
        PETREL: (200, 200, 0),
    }
    assert effects.taken_along(said.values()) == 50 * CREDIT
    petrel = said[PETREL]
    assert (petrel.entitled_before_gpu_seconds, petrel.entitled_gpu_seconds) == (
        int(0.3 * 0.5 * 875 * 3600),
        int(0.1 * 0.5 * 875 * 3600),
    )


def spent_and_held(tree: Tree) -> None:
    spend(tree[PETREL], 150)
    hold(tree[PETREL], 150)
    spend(tree[AUK], 40)


def spent_ahead(tree: Tree) -> None:
    spend(tree[PETREL], 250)


def given_by_hand(tree: Tree) -> None:
    services.grant(
        budget=tree[PETREL], amount_mgpus=500 * CREDIT, author=make_user(), note="x", key="g",
        now=T0,
    )  # fmt: skip
    spend(tree[AUK], 200)


def kept_before(tree: Tree) -> None:
    """A fall that petrel could not take stands against what it gets by its new share."""
    spend(tree[PETREL], 300)
    lower = {tree[SCIENCE]: 30_000, tree[VISION]: 70_000}
    make_shares(tree["orlo"], lower, at=HALF - DAY)
    services.apply_due_change_sets(now=HALF - DAY)


def changed_in_that_second(tree: Tree) -> None:
    spend(tree[PETREL], 100)
    lower = {tree[SCIENCE]: 20_000, tree[VISION]: 80_000}
    set_then = make_shares(tree["orlo"], lower, at=HALF)
    services.apply_change_set(change_set=set_then, now=HALF)


def moved_before(tree: Tree) -> None:
    spend(tree[PETREL], 100)
    steering.move_budget(budget=tree[PETREL], to=tree[VISION], share=5_000, **why(HALF - DAY))
    spend(tree[PETREL], 30, HALF - HOUR)
    steering.move_budget(
        budget=Budget.objects.get(pk=tree[PETREL].pk), to=tree[SCIENCE], share=50_000,
        **why(HALF - SECOND),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("story", "to", "share"),
    [
        (spent_and_held, VISION, 25_000),
        (spent_ahead, VISION, 25_000),
        (given_by_hand, VISION, 0),
        (kept_before, VISION, 25_000),
        (changed_in_that_second, VISION, 25_000),
        (moved_before, VISION, 25_000),
        (spent_and_held, "orlo", 0),
        (given_by_hand, "orlo", 0),
        (kept_before, AUK, 9_000),
    ],
)
def test_a_move_becomes_what_was_said(
    tree: Tree, quarter: Period, story: Callable[[Tree], None], to: str, share: int
) -> None:
    story(tree)
    if to == AUK:
        Job.objects.filter(budget=tree[AUK]).delete()
    moved(tree[PETREL], tree[to], share)


def test_a_program_with_all_below_it_and_other_shares_for_its_new_siblings(
    tree: Tree, quarter: Period
) -> None:
    spend(tree[AUK], 70)
    spend(tree[TERN], 120)
    said = moved(tree[VISION], tree[SCIENCE], 20_000, siblings={tree[AUK]: 30_000})
    assert set(said) == {"orlo", SCIENCE, PETREL, AUK, VISION, TERN} - {PETREL}
    assert said[VISION].depth == 2
    assert said[TERN].granted_after < said[TERN].granted_before


def test_beside_a_run_that_goes_on(tree: Tree, quarter: Period) -> None:
    (node,) = make_nodes(make_pool())
    job = make_job(tree[PETREL], state=Job.State.RUNNING, funded=True)
    services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
    make_run(job, {node: 0xFF})
    close()
    said = moved(tree[PETREL], tree[VISION], 25_000, T0 + timedelta(minutes=45))
    assert said[PETREL].burned_mgpus == 6 * CREDIT


def test_who_falls_under_what_it_burned(tree: Tree, quarter: Period) -> None:
    """Petrel spent 250 of 300 and its new share is worth 100 less: 50 under."""
    spend(tree[PETREL], 250)
    said = moved(tree[PETREL], tree[VISION], 25_000)
    assert said[PETREL].under_burned_mgpus == 50 * CREDIT
    assert said[PETREL].kept_mgpus == 50 * CREDIT
    assert said[SCIENCE].under_burned_mgpus == 0


def test_between_periods_only_shares_move(tree: Tree) -> None:
    started(DAY)
    now = T0 + 2 * DAY
    said = moved(tree[PETREL], tree[VISION], 25_000, now)
    assert (said[PETREL].before, said[PETREL].after) == (30_000, 10_000)
    assert {one.granted_after for one in said.values()} == {None}


# --- Archiving and back ---------------------------------------------------------------------------


def archived(budget: Budget, now: datetime = HALF, **fields: Any) -> Any:
    change = budgets.foresee_archive(budget=budget, now=now, **fields)
    return as_foreseen(
        change, lambda: steering.archive_budget(budget=budget, **why(now), **fields), now
    )


def reactivated(budget: Budget, share: int, now: datetime, **fields: Any) -> Any:
    budget.refresh_from_db()
    change = budgets.foresee_reactivation(budget=budget, share=share, now=now, **fields)
    return as_foreseen(
        change,
        lambda: steering.reactivate_budget(budget=budget, share=share, **why(now), **fields),
        now,
    )


@pytest.mark.parametrize("spent", [0, 250, 300])
@pytest.mark.parametrize("later", [timedelta(0), 10 * DAY])
def test_archived_and_back(tree: Tree, quarter: Period, spent: int, later: timedelta) -> None:
    if spent:
        spend(tree[AUK], spent)
    said = archived(tree[AUK])
    assert said[AUK].granted_after == spent * CREDIT
    assert said[SCIENCE].reserve_after == (300 - spent) * CREDIT
    reactivated(tree[AUK], 40_000, HALF + later)


def test_a_whole_program_and_its_siblings_shares(tree: Tree, quarter: Period) -> None:
    spend(tree[PETREL], 20)
    said = archived(tree[SCIENCE], siblings={tree[VISION]: 100_000})
    assert set(said) == set(tree)
    reactivated(tree[SCIENCE], 50_000, HALF + DAY, siblings={tree[VISION]: 50_000})


# --- Over the API ---------------------------------------------------------------------------------


def looked(api_of: Any, path: str, body: dict[str, Any], who: str = "admin") -> dict[str, Any]:
    answer = api_of(who).post(f"/api/v1/budgets/{path}/change-sets/preview/", body)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
def at_half(cast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.clock.now", lambda: HALF)


@pytest.mark.usefixtures("at_half")
def test_the_call_that_previews_shares_says_it_too(
    api_of: Any, tree: Tree, quarter: Period
) -> None:
    spend(tree[PETREL], 100)
    body = looked(api_of, PETREL, {"move": {"to": VISION, "share": 25_000}})
    assert (body["parent"], body["taken_along_mgpus"]) == (VISION, 50 * CREDIT)
    assert (body["gains"], body["loses"]) == ([], [PETREL])
    change = budgets.foresee_move(
        budget=tree[PETREL], to=tree[VISION], share=25_000, now=HALF
    )  # fmt: skip
    rows = {row["path"]: row for row in body["rows"]}
    for one in effects.tree_effects(change=change, period=quarter, now=HALF):
        row = rows.pop(one.budget.path)
        assert seen(one) == (
            row["effective_thousandths"],
            row["granted_mgpus"],
            row["spendable_mgpus"],
            row["reserve_mgpus"],
        )
        assert row["change_mgpus"] == row["granted_mgpus"] - row["granted_before_mgpus"]
        assert row["taken_along_mgpus"] == one.along_mgpus
    assert rows == {}
    back = looked(api_of, PETREL, {"archive": {}})["rows"]
    assert {row["path"]: row["reserve_mgpus"] // CREDIT for row in back} == {
        SCIENCE: 200, PETREL: 100
    }  # fmt: skip


@pytest.mark.usefixtures("at_half")
def test_nobody_reads_there_of_what_they_may_not_see(
    api_of: Any, cast: Any, tree: Tree, quarter: Period
) -> None:
    services.grant(
        budget=tree[SCIENCE], amount_mgpus=CREDIT, author=make_user(), note="x", key="k", now=HALF
    )
    body = looked(api_of, PETREL, {"move": {"to": AUK, "share": 100_000}}, "manager")
    assert {row["path"] for row in body["rows"]} == {SCIENCE, PETREL, AUK}
    below = looked(api_of, AUK, {"archive": {"siblings": {"petrel": 100_000}}}, "manager")
    assert {row["path"] for row in below["rows"]} == {SCIENCE, PETREL, AUK}
    make_role(cast["manager"], tree[TERN], "manager")
    move = {"move": {"to": TERN, "share": 10_000}}
    across = {row["path"] for row in looked(api_of, AUK, move, "manager")["rows"]}
    everything = {row["path"] for row in looked(api_of, AUK, move)["rows"]}
    assert (across, everything - across) == ({SCIENCE, AUK, TERN}, {VISION})
    whole = looked(api_of, SCIENCE, {"archive": {}})
    assert {row["path"] for row in whole["rows"]} == {"orlo", SCIENCE, PETREL, AUK}


@pytest.mark.usefixtures("at_half")
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "Give one of shares, move, archive and reactivate"),
        ({"archive": {}, "move": {"to": VISION, "share": 0}}, "Give one of shares, move"),
        ({"archive": {}, "effective_at": "2026-12-01T00:00:00Z"}, "leave the instant out"),
        ({"move": {"to": VISION, "share": 25_001}}, "0.001 % too much"),
        ({"move": {"to": SCIENCE, "share": 0}}, "can't move below"),
        ({"move": {"to": "orlo/none", "share": 0}}, "no such budget"),
        ({"reactivate": {"share": 0}}, "is not archived"),
        ({"archive": {"siblings": {"auk": 100_001}}}, "100"),
    ],
)
def test_what_could_not_be_done_is_refused_in_the_same_words(
    api_of: Any, tree: Tree, body: dict[str, Any], says: str
) -> None:
    answer = api_of("admin").post(f"/api/v1/budgets/{PETREL}/change-sets/preview/", body)
    assert answer.status_code == 400
    assert says in answer.content.decode()


def test_what_waits_keeps_its_budget(tree: Tree, quarter: Period) -> None:
    hold(tree[PETREL], 1)
    with pytest.raises(Refused, match="1 jobs of orlo/science/petrel wait or run"):
        budgets.foresee_archive(budget=tree[PETREL], now=HALF)


def test_what_is_scheduled_has_to_fit_too(tree: Tree, quarter: Period) -> None:
    make_shares(tree[VISION], {tree[TERN]: 90_000}, at=HALF)
    make_shares(tree[VISION], {tree[TERN]: 95_000}, at=HALF + DAY)
    with pytest.raises(Refused, match="scheduled for 21 Nov 2026 00:00 UTC"):
        budgets.foresee_move(budget=tree[PETREL], to=tree[VISION], share=10_000, now=HALF)


def test_what_was_moved_and_archived_in_one_second_comes_back_elsewhere(
    tree: Tree, quarter: Period
) -> None:
    for number, (path, amount) in enumerate({PETREL: 121, AUK: 99, TERN: 140}.items()):
        spend(tree[path], amount, T0 + number * SECOND)
    moved(tree[PETREL], tree[AUK], 0, HALF)
    archived(Budget.objects.get(pk=tree[PETREL].pk), HALF)
    reactivated(Budget.objects.get(pk=tree[PETREL].pk), 7_777, HALF + DAY)


# --- Any tree -------------------------------------------------------------------------------------


@settings(
    max_examples=10,
    phases=[Phase.explicit, Phase.generate],  # each example is a story of its own: none is smaller
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_whatever_came_before(data: st.DataObject, tree: Tree, quarter: Period) -> None:
    """Any spending, then three changes one after another, each as it was said."""
    with transaction.atomic():
        leaves = [tree[path] for path in (PETREL, AUK, TERN)]
        for number, leaf in enumerate(leaves):
            if amount := data.draw(st.integers(0, 300)):
                spend(leaf, amount, T0 + number * SECOND)
        now = HALF
        for _ in range(3):
            now += data.draw(st.sampled_from([timedelta(0), SECOND, DAY]))
            _one_change(data, tree, now)
        transaction.set_rollback(True)


def _one_change(data: st.DataObject, tree: Tree, now: datetime) -> None:
    rows = {path: Budget.objects.get(pk=one.pk) for path, one in tree.items()}
    budget = rows[data.draw(st.sampled_from([SCIENCE, VISION, PETREL, AUK, TERN]))]
    share = data.draw(st.sampled_from([0, 7_777, 25_000]))
    try:
        if budget.archived_at is not None:
            reactivated(budget, share, now)
        elif data.draw(st.booleans()):
            moved(budget, rows[data.draw(st.sampled_from(sorted(rows)))], share, now)
        else:
            archived(budget, now)
    except Refused:
        pass
