"""What change sets move in grants: no time is granted twice, and none is lost."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from allocator import steering
from allocator.pages.effects import effects
from budgets.models import Budget, ChangeSet, Period
from budgets.shares import Vector
from ledger import kept, reports, services
from ledger.models import Entry
from tests.factories import HOUR, T0, make_job, make_period, make_pool, make_shares, make_user
from tests.ledger_world import CREDIT

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
PETREL, AUK, TERN = "orlo/science/petrel", "orlo/science/auk", "orlo/vision/tern"


@pytest.fixture
def quarter(tree: dict[str, Budget]) -> Period:
    """An active period of 100 days with 1,000 credits."""
    period = make_period(
        status="approved", ends_at=T0 + 100 * DAY, capacity={make_pool(): 3600 * 1000}
    )
    services.start_period(period=period, at=T0)
    return period


def credits_of(tree: dict[str, Budget], period: Period, now: datetime) -> dict[str, int]:
    figures = reports.figures(period=period, now=now)
    assert all(not figures[one.pk].granted_mgpus % CREDIT for one in tree.values())
    return {path: figures[one.pk].granted_mgpus // CREDIT for path, one in tree.items()}


def change(tree: dict[str, Budget], science: int, vision: int, at: datetime) -> ChangeSet:
    """Change the programs' shares, in percent, and apply it; compare with what was foretold."""
    wanted = {tree["orlo/science"]: science * 1000, tree["orlo/vision"]: vision * 1000}
    vector: Vector = {budget.pk: {None: share} for budget, share in wanted.items()}
    period = Period.objects.get()
    shown = effects(parent=tree["orlo"], vector=vector, period=period, at=at, now=at)
    change_set = make_shares(tree["orlo"], wanted, at=at)
    written = services.apply_change_set(change_set=change_set, now=at)
    foretold = {one.budget.pk: one.change_mgpus for one in shown if one.change_mgpus}
    assert {entry.budget_id: entry.amount_mgpus for entry in written} == foretold
    return change_set


def spend(budget: Budget, credits: int, at: datetime = T0) -> None:
    services.adjust(
        budget=budget, amount_mgpus=credits * CREDIT, author=make_user(), note="used",
        key=f"{budget.pk}:{at}", now=at,
    )  # fmt: skip


BEFORE = {
    "orlo": 1000, "orlo/science": 600, PETREL: 300, AUK: 300, "orlo/vision": 400, TERN: 400
}  # fmt: skip


def test_what_a_fall_could_not_take_is_not_granted_again(
    tree: dict[str, Budget], quarter: Period
) -> None:
    """60 % → 0 → 60 % with all of petrel's and 300 of science's 600 credits spent."""
    spend(tree[PETREL], 300)
    change(tree, 0, 100, T0 + 25 * DAY)
    found = credits_of(tree, quarter, T0 + 25 * DAY)
    assert found == BEFORE | {
        "orlo/science": 300, PETREL: 300, AUK: 75, "orlo/vision": 850, TERN: 850
    }  # fmt: skip
    assert kept.kept_in(quarter) == {
        tree["orlo/science"].pk: 150 * CREDIT,
        tree[PETREL].pk: 225 * CREDIT,
    }
    change(tree, 60, 40, T0 + 25 * DAY + HOUR)
    back = reports.figures(period=quarter, now=T0 + 26 * DAY)
    lost = CREDIT * 1000 * 6 // 24000  # an hour's worth of 60 %
    assert back[tree[PETREL].pk].granted_mgpus == 300 * CREDIT
    assert back[tree["orlo/science"].pk].granted_mgpus == 600 * CREDIT - lost
    assert back[tree[AUK].pk].granted_mgpus == 300 * CREDIT - lost // 2
    assert back[tree[TERN].pk].granted_mgpus == 400 * CREDIT + lost
    programs = [tree["orlo/science"].pk, tree["orlo/vision"].pk]
    assert sum(back[pk].granted_mgpus for pk in programs) == 1000 * CREDIT


@pytest.mark.parametrize("steps", [(0, 60), (0, 20, 0, 60), (30, 0, 60), (0, 40, 60), (90, 0, 60)])
def test_whatever_the_way_the_end_is_that_of_the_shares(
    tree: dict[str, Budget], quarter: Period, steps: tuple[int, ...]
) -> None:
    """All at half the period but for a second each: what is granted is within these seconds."""
    spend(tree[PETREL], 200)
    spend(tree[AUK], 300, T0 + HOUR)
    at = T0 + 50 * DAY
    for number, science in enumerate(steps):
        change(tree, science, 100 - science, at + number * timedelta(seconds=1))
    figures = reports.figures(period=quarter, now=at + HOUR)
    slack = len(steps) * 1000 * CREDIT // int((100 * DAY).total_seconds()) + len(steps)
    for path, credits in BEFORE.items():
        assert abs(figures[tree[path].pk].granted_mgpus - credits * CREDIT) <= slack, path


def test_sets_of_one_instant_leave_nothing_kept(tree: dict[str, Budget], quarter: Period) -> None:
    spend(tree[PETREL], 300)
    at = T0 + 25 * DAY
    change(tree, 0, 100, at)
    change(tree, 60, 40, at)
    assert credits_of(tree, quarter, at) == BEFORE
    assert kept.kept_in(quarter) == {}


def test_a_move_of_shares_takes_nothing_that_came_by_transfer(
    tree: dict[str, Budget], quarter: Period
) -> None:
    """What is kept makes a rise less, and never more than nothing."""
    spend(tree[PETREL], 300)
    change(tree, 0, 100, T0 + 50 * DAY)
    services.transfer(
        source=tree[TERN], target=tree[PETREL], amount_mgpus=40 * CREDIT, author=make_user(),
        note="agreed", key="t", now=T0 + 51 * DAY,
    )  # fmt: skip
    change(tree, 10, 90, T0 + 60 * DAY)  # worth 20 to petrel, of the 150 that it kept
    found = credits_of(tree, quarter, T0 + 60 * DAY)
    assert found[PETREL] == 340
    assert kept.kept_in(quarter)[tree[PETREL].pk] == 130 * CREDIT
    assert not Entry.objects.filter(budget=tree[PETREL], kind="grant", amount_mgpus__lt=0).exists()


def test_a_rise_beyond_what_is_kept_is_less_by_it_and_says_so(
    tree: dict[str, Budget], quarter: Period
) -> None:
    spend(tree[PETREL], 300)
    change(tree, 50, 50, T0 + 50 * DAY)  # 25 less are due, none is free
    change(tree, 90, 10, T0 + 75 * DAY)  # 50 more are due
    assert credits_of(tree, quarter, T0 + 75 * DAY)[PETREL] == 325
    entry = Entry.objects.filter(budget=tree[PETREL]).exclude(amount_mgpus=0).latest("pk")
    assert entry.note.startswith("less what was kept before: ")
    assert kept.kept_in(quarter) == {}


def test_what_is_kept_ends_with_the_period(tree: dict[str, Budget], quarter: Period) -> None:
    spend(tree[PETREL], 300)
    change(tree, 0, 100, T0 + 50 * DAY)
    following = make_period(
        "next", status="draft", starts_at=quarter.ends_at, ends_at=quarter.ends_at + DAY
    )
    assert kept.kept_in(following) == {}


@pytest.mark.parametrize(("spent", "granted", "keeps"), [(300, 300, 0), (250, 300, 0), (0, 150, 0)])
def test_archived_and_back_is_not_granted_twice(
    tree: dict[str, Budget], quarter: Period, spent: int, granted: int, keeps: int
) -> None:
    """At half the period: its share is worth 150 of 300. What it saved stays with its parent."""
    spend(tree[AUK], spent) if spent else None
    author, at = make_user(), T0 + 50 * DAY
    steering.archive_budget(budget=tree[AUK], author=author, reason="over", now=at)
    assert credits_of(tree, quarter, at)[AUK] == spent
    later = at + timedelta(seconds=1)
    why: dict[str, Any] = {"author": author, "reason": "on", "now": later}
    steering.reactivate_budget(budget=tree[AUK], share=50_000, **why)
    figures = reports.figures(period=quarter, now=later)
    a_second = 300 * CREDIT // int((100 * DAY).total_seconds()) + 2
    assert abs(figures[tree[AUK].pk].granted_mgpus - granted * CREDIT) <= a_second
    left = kept.kept_in(quarter).get(tree[AUK].pk, 0)
    assert left <= a_second


def test_archived_and_back_in_one_second_is_as_it_was(
    tree: dict[str, Budget], quarter: Period
) -> None:
    spend(tree[AUK], 100)
    why: dict[str, Any] = {"author": make_user(), "reason": "on and off", "now": T0 + 50 * DAY}
    steering.archive_budget(budget=tree[AUK], **why)
    steering.reactivate_budget(budget=tree[AUK], share=50_000, **why)
    assert credits_of(tree, quarter, T0 + 50 * DAY) == BEFORE
    assert kept.kept_in(quarter) == {}


def test_archiving_an_overdrawn_budget_grants_it_nothing(
    tree: dict[str, Budget], quarter: Period
) -> None:
    spend(tree[AUK], 400)
    steering.archive_budget(budget=tree[AUK], author=make_user(), reason="over", now=T0 + DAY)
    assert credits_of(tree, quarter, T0 + DAY)[AUK] == 300


def test_only_what_is_free_falls_and_a_hold_is_never_taken(
    tree: dict[str, Budget], quarter: Period
) -> None:
    services.place_hold(job=make_job(tree[PETREL]), amount_mgpus=290 * CREDIT, now=T0)
    change(tree, 0, 100, T0 + 50 * DAY)
    change(tree, 60, 40, T0 + 50 * DAY)
    assert credits_of(tree, quarter, T0 + 50 * DAY) == BEFORE


# --- Written in another order than their clocks say -----------------------------------------------


@pytest.mark.parametrize("spent", [0, 290])
@pytest.mark.parametrize("late", [timedelta(seconds=1), DAY])
def test_a_set_that_is_written_after_a_later_one_sets_right_what_that_moved(
    tree: dict[str, Budget], quarter: Period, late: timedelta, spent: int
) -> None:
    """Two managers at once: the first by the clock is the last whose set is written."""
    if spent:
        spend(tree[PETREL], spent)
    first, second = T0 + 50 * DAY, T0 + 50 * DAY + late
    below = {tree[PETREL]: 20_000, tree[AUK]: 80_000}
    above = {tree["orlo/science"]: 50_000, tree["orlo/vision"]: 50_000}
    for parent, wanted, at in ((tree["orlo/science"], below, second), (tree["orlo"], above, first)):
        change_set = make_shares(parent, wanted, at=at)
        services.apply_change_set(change_set=change_set, now=second)
        assert services.apply_change_set(change_set=change_set, now=second) == []
    figures = reports.figures(period=quarter, now=second)
    days = late / DAY
    due = 10 * CREDIT * (0.3 * 50 + 0.25 * days + 0.4 * (50 - days))
    assert figures[tree[AUK].pk].granted_mgpus == pytest.approx(due, abs=2)
    assert figures[tree[PETREL].pk].granted_mgpus >= spent * CREDIT
    assert [str(one) for one in reports.entry_problems(start=T0, end=second)] == []


def test_what_an_archived_budget_was_given_since_stays_and_no_share_of_before_comes_back(
    tree: dict[str, Budget], quarter: Period
) -> None:
    now = T0 + 50 * DAY
    steering.archive_budget(budget=tree[PETREL], author=make_user(), reason="no", now=now + DAY)
    before = reports.figures(period=quarter, now=now + DAY)[tree[PETREL].pk].granted_mgpus
    given: dict[str, Any] = {"author": make_user(), "note": "by hand", "now": now + DAY}
    services.grant(budget=tree[PETREL], amount_mgpus=7, key="k", **given)
    change_set = make_shares(tree["orlo/vision"], {tree[TERN]: 50_000}, at=now)
    services.apply_change_set(change_set=change_set, now=now + DAY)
    figures = reports.figures(period=quarter, now=now + DAY)
    assert figures[tree[PETREL].pk].granted_mgpus == before + 7
    above = {tree["orlo/science"]: 80_000, tree["orlo/vision"]: 20_000}
    change_set = make_shares(tree["orlo"], above, at=now)
    services.apply_change_set(change_set=change_set, now=now + DAY)
    figures = reports.figures(period=quarter, now=now + DAY)
    assert figures[tree[PETREL].pk].granted_mgpus == 0
    assert [str(one) for one in reports.entry_problems(start=T0, end=now + DAY)] == []


# --- The first second of a period -----------------------------------------------------------------


def test_a_set_of_the_first_second_that_came_after_the_start_counts(
    tree: dict[str, Budget], quarter: Period
) -> None:
    change(tree, 50, 50, T0)
    expected = BEFORE | {
        "orlo/science": 500, PETREL: 250, AUK: 250, "orlo/vision": 500, TERN: 500
    }  # fmt: skip
    assert credits_of(tree, quarter, T0) == expected
    services.apply_due_change_sets(now=T0 + HOUR)
    assert credits_of(tree, quarter, T0 + HOUR) == expected


def test_a_due_set_of_the_first_second_is_found(tree: dict[str, Budget], quarter: Period) -> None:
    wanted = {tree["orlo/science"]: 50_000, tree["orlo/vision"]: 50_000}
    make_shares(tree["orlo"], wanted, at=T0)
    assert len(services.apply_due_change_sets(now=T0 + HOUR)) == 5
    assert services.apply_due_change_sets(now=T0 + HOUR) == []
    assert credits_of(tree, quarter, T0 + HOUR)["orlo/science"] == 500


def test_a_set_of_the_first_second_that_the_start_knew_moves_nothing(
    tree: dict[str, Budget],
) -> None:
    period = make_period(
        status="approved", ends_at=T0 + 100 * DAY, capacity={make_pool(): 3600 * 1000}
    )
    wanted = {tree["orlo/science"]: 50_000, tree["orlo/vision"]: 50_000}
    change_set = make_shares(tree["orlo"], wanted, at=T0)
    services.start_period(period=period, at=T0)
    assert services.apply_change_set(change_set=change_set, now=T0 + HOUR) == []
    assert services.apply_due_change_sets(now=T0 + HOUR) == []
    assert credits_of(tree, period, T0 + HOUR)["orlo/science"] == 500


def test_a_period_that_shares_never_started_has_no_first_second_to_change(
    tree: dict[str, Budget],
) -> None:
    """Nothing of it was granted by shares, so a set of its first second corrects nothing.

    ``change`` compares what is foretold with what is written.
    """
    period = make_period(ends_at=T0 + 100 * DAY, capacity={make_pool(): 3600 * 1000})
    change(tree, 50, 50, T0)
    assert credits_of(tree, period, T0) == dict.fromkeys(tree, 0)


def test_a_budget_of_the_first_second_has_its_share_once(
    tree: dict[str, Budget], quarter: Period
) -> None:
    made = steering.create_budget(
        parent=tree["orlo/science"], slug="skua", name="Skua", share=10_000, reason="new",
        siblings={tree[AUK]: 40_000}, author=make_user(), now=T0,
    )  # fmt: skip
    found = credits_of(tree | {"skua": made}, quarter, T0)
    assert (found["skua"], found[AUK], found[PETREL]) == (60, 240, 300)
    steering.archive_budget(budget=made, author=make_user(), reason="no", now=T0)
    found = credits_of(tree | {"skua": made}, quarter, T0)
    assert (found["skua"], found[AUK]) == (0, 240)
