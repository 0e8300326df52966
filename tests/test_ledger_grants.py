"""Grants, transfers, adjustments and periods: what a budget has, and who decided it."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from allocator import steering
from budgets import structure
from budgets.models import Budget, ChangeSet, Period
from ledger import reports, services
from ledger.entries import Attempt
from ledger.models import Entry
from tests.factories import (
    HOUR,
    T0,
    T1,
    TIMESTEP,
    make_budget,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_shares,
    make_user,
)
from tests.ledger_world import CREDIT, close, give, ledger

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


@pytest.fixture
def author() -> User:
    return make_user("ada")


@pytest.fixture
def period() -> Period:
    return make_period()


def granted(tree: dict[str, Budget], period: Period, at: Any = T0) -> dict[str, float]:
    found = reports.figures(period=period, now=at)
    return {path: found[budget.pk].granted_mgpus / CREDIT for path, budget in tree.items()}


# --- Grants ---------------------------------------------------------------------------------------


def test_a_grant_has_an_author_a_reason_and_one_effect_however_often_it_is_sent(
    tree: dict[str, Budget], period: Period, author: User
) -> None:
    petrel = tree["orlo/science/petrel"]
    order: dict[str, Any] = {
        "budget": petrel,
        "amount_mgpus": 5 * CREDIT,
        "author": author,
        "note": "deadline",
        "key": "mail-17",
        "now": T0,
    }
    first, again = services.grant(**order), services.grant(**order)
    assert first.pk == again.pk
    assert (first.author, first.note, first.period) == (author, "deadline", period)
    assert granted(tree, period)["orlo/science/petrel"] == 5
    assert granted(tree, period)["orlo/science"] == 0  # of that very node alone
    with pytest.raises(services.LedgerError, match="stands for another decision"):
        services.grant(**order | {"amount_mgpus": 6 * CREDIT})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"note": " "}, "Give a reason"),
        ({"note": "x" * 301}, "longer than 300"),
        ({"amount_mgpus": 0}, "other than 0"),
        ({"amount_mgpus": 10**17 + 1}, "at most 27,777,777,777.78 credits"),
        ({"key": "k" * 120}, "at most 90 characters"),
        ({"now": T0.replace(microsecond=5)}, "fraction of a second"),
    ],
)
def test_a_bad_grant_is_refused_in_a_sentence(
    tree: dict[str, Budget], period: Period, author: User, change: dict[str, Any], words: str
) -> None:
    order: dict[str, Any] = {
        "budget": tree["orlo"],
        "amount_mgpus": 5 * CREDIT,
        "author": author,
        "note": "deadline",
        "key": "mail-17",
        "now": T0,
    }
    with pytest.raises(services.LedgerError, match=words):
        services.grant(**order | change)
    assert not Entry.objects.exists()


def test_what_is_claimed_can_not_be_taken_back(
    tree: dict[str, Budget], period: Period, author: User
) -> None:
    petrel = tree["orlo/science/petrel"]
    give(petrel, 10, period)
    services.place_hold(job=make_job(petrel), amount_mgpus=8 * CREDIT, now=T0)
    take: dict[str, Any] = {"budget": petrel, "author": author, "note": "cut", "now": T0}
    with pytest.raises(services.LedgerError, match=r"petrel has 2\.00 credits .* not 3\.00"):
        services.grant(amount_mgpus=-3 * CREDIT, key="a", **take)
    services.grant(amount_mgpus=-2 * CREDIT, key="b", **take)
    assert granted(tree, period)["orlo/science/petrel"] == 8


def test_an_adjustment_moves_what_is_settled_both_ways(
    tree: dict[str, Budget], period: Period, author: User
) -> None:
    petrel = tree["orlo/science/petrel"]
    for number, amount in enumerate((7, -3)):
        services.adjust(
            budget=petrel, amount_mgpus=amount * CREDIT, author=author, note="miscounted",
            key=str(number), now=T0,
        )  # fmt: skip
    found = reports.figures(period=period, now=T0)
    assert found[petrel.pk].settled_mgpus == 4 * CREDIT
    assert found[tree["orlo"].pk].settled_mgpus == 4 * CREDIT
    assert found[tree["orlo/vision"].pk].settled_mgpus == 0


def test_without_an_active_period_nothing_is_granted(tree: dict[str, Budget], author: User) -> None:
    with pytest.raises(services.LedgerError, match="No period is active"):
        services.grant(
            budget=tree["orlo"], amount_mgpus=1, author=author, note="x", key="x", now=T0
        )


# --- Transfers ------------------------------------------------------------------------------------


@pytest.fixture
def shared_out(tree: dict[str, Budget], period: Period) -> dict[str, Budget]:
    """10 credits for each project, so 20 for science, 10 for vision, 30 for orlo."""
    for leaf in ("orlo/science/petrel", "orlo/science/auk", "orlo/vision/tern"):
        give(tree[leaf], 10, period)
    return tree


def move(source: Budget, target: Budget, credits: int, author: User, key: str = "t") -> Any:
    return services.transfer(
        source=source, target=target, amount_mgpus=credits * CREDIT, author=author,
        note="agreed", key=key, now=T0,
    )  # fmt: skip


def test_a_transfer_moves_both_branches_up_to_the_common_ancestor(
    shared_out: dict[str, Budget], period: Period, author: User
) -> None:
    tree = shared_out
    move(tree["orlo/science/petrel"], tree["orlo/vision/tern"], 4, author)
    assert granted(tree, period) == {
        "orlo": 30,
        "orlo/science": 16,
        "orlo/science/petrel": 6,
        "orlo/science/auk": 10,
        "orlo/vision": 14,
        "orlo/vision/tern": 14,
    }
    before = ledger()
    assert len(move(tree["orlo/science/petrel"], tree["orlo/vision/tern"], 4, author)) == 4
    assert ledger() == before
    with pytest.raises(services.LedgerError, match="another decision"):
        move(tree["orlo/science/petrel"], tree["orlo/vision/tern"], 5, author)


@pytest.mark.parametrize("what", ["moved", "archived", "closed"])
def test_a_key_is_known_again_wherever_its_budgets_are_by_then(
    shared_out: dict[str, Budget], period: Period, author: User, what: str
) -> None:
    tree = shared_out
    petrel, auk = tree["orlo/science/petrel"], tree["orlo/science/auk"]
    written = move(petrel, auk, 4, author)
    asked: dict[str, Any] = {"author": author, "reason": "r", "now": T0 + HOUR}
    if what == "moved":
        steering.move_budget(budget=petrel, to=tree["orlo/vision"], share=0, **asked)
    elif what == "archived":
        steering.archive_budget(budget=auk, **asked)
    else:
        Period.objects.update(status="closed")
    petrel.refresh_from_db()
    auk.refresh_from_db()
    before = ledger()
    assert move(petrel, auk, 4, author) == written
    with pytest.raises(services.KeyTaken, match="'t' stands for another decision"):
        move(petrel, auk, 5, author)
    assert ledger() == before


def test_one_key_is_one_transfer_whatever_its_budgets(
    shared_out: dict[str, Budget], period: Period, author: User
) -> None:
    tree = shared_out
    petrel, auk, science = (tree[f"orlo/science{end}"] for end in ("/petrel", "/auk", ""))
    move(petrel, auk, 1, author)
    before = ledger()
    others = [
        (auk, petrel), (petrel, science), (science, auk), (tree["orlo/vision/tern"], tree["orlo"])
    ]  # fmt: skip
    for source, target in others:
        with pytest.raises(services.KeyTaken, match="another decision: give a new one"):
            move(source, target, 1, author)
    assert ledger() == before
    move(petrel, science, 1, author, "t:1")  # goes on like the first, and is another
    assert len(move(petrel, auk, 1, author)) == 2
    with pytest.raises(services.KeyTaken):  # the same half of petrel's, and no other
        move(petrel, tree["orlo"], 1, author, "t:1")


def test_between_siblings_their_parent_keeps_what_it_has(
    shared_out: dict[str, Budget], period: Period, author: User
) -> None:
    tree = shared_out
    move(tree["orlo/science/petrel"], tree["orlo/science/auk"], 10, author)
    found = granted(tree, period)
    assert (found["orlo/science/petrel"], found["orlo/science/auk"]) == (0, 20)
    assert found["orlo/science"] == 20


def test_a_transfer_names_the_node_that_binds(
    shared_out: dict[str, Budget], period: Period, author: User
) -> None:
    tree = shared_out
    petrel, auk = tree["orlo/science/petrel"], tree["orlo/science/auk"]
    services.grant(
        budget=petrel, amount_mgpus=50 * CREDIT, author=author, note="x", key="x", now=T0
    )
    services.place_hold(job=make_job(auk), amount_mgpus=10 * CREDIT, now=T0)
    before = ledger()
    # petrel alone could give 11, but science has only 10 that nobody claims.
    with pytest.raises(services.LedgerError, match=r"^orlo/science has 10\.00 credits"):
        move(petrel, tree["orlo/vision/tern"], 11, author)
    assert ledger() == before
    move(petrel, tree["orlo/vision/tern"], 10, author)


def test_a_reserve_gives_what_is_in_it_and_takes_it_back(
    shared_out: dict[str, Budget], period: Period, author: User
) -> None:
    tree = shared_out
    science, auk = tree["orlo/science"], tree["orlo/science/auk"]
    with pytest.raises(services.LedgerError, match=r"orlo/science has 0\.00 credits in reserve"):
        move(science, auk, 1, author)
    move(auk, science, 3, author, "back")
    found = reports.figures(period=period, now=T0)[science.pk]
    assert (found.granted_mgpus, found.reserve_mgpus) == (20 * CREDIT, 3 * CREDIT)
    move(science, tree["orlo/science/petrel"], 3, author, "out")
    assert reports.figures(period=period, now=T0)[science.pk].reserve_mgpus == 0


def test_a_program_gives_upwards_no_more_than_its_reserve(
    shared_out: dict[str, Budget], period: Period, author: User
) -> None:
    tree = shared_out
    science, orlo = tree["orlo/science"], tree["orlo"]
    move(tree["orlo/science/auk"], science, 3, author, "back")
    before = ledger()
    wanted: dict[str, Any] = {
        "source": science, "target": orlo, "amount_mgpus": 15 * CREDIT, "now": T0,
    }  # fmt: skip
    sentence = (
        r"^orlo/science has 3\.00 credits in reserve, not 15\.00: move less, or take it from one "
        r"of the budgets below\.$"
    )
    with pytest.raises(services.LedgerError, match=sentence):
        services.preview_transfer(**wanted)
    with pytest.raises(services.LedgerError, match=sentence):
        move(science, orlo, 15, author)
    assert ledger() == before
    move(science, orlo, 3, author)
    found = reports.figures(period=period, now=T0)
    assert [found[one.pk].reserve_mgpus for one in (science, orlo)] == [0, 3 * CREDIT]
    assert found[science.pk].granted_mgpus == 17 * CREDIT


def test_a_budget_between_gives_as_much_as_it_gets(
    shared_out: dict[str, Budget], period: Period, author: User
) -> None:
    tree = shared_out
    move(tree["orlo/science/petrel"], tree["orlo"], 10, author)
    found = reports.figures(period=period, now=T0)
    assert [found[tree[one].pk].reserve_mgpus for one in ("orlo/science", "orlo")] == [
        0, 10 * CREDIT,
    ]  # fmt: skip


def test_a_program_gives_no_more_than_its_reserve(
    shared_out: dict[str, Budget], period: Period, author: User
) -> None:
    tree = shared_out
    science, tern = tree["orlo/science"], tree["orlo/vision/tern"]
    move(tree["orlo/science/auk"], science, 3, author, "back")
    with pytest.raises(services.LedgerError, match=r"orlo/science has 3\.00 credits in reserve"):
        move(science, tern, 4, author)
    move(science, tern, 3, author)
    assert reports.figures(period=period, now=T0)[science.pk].reserve_mgpus == 0


def test_bad_transfers_are_refused(
    shared_out: dict[str, Budget], period: Period, author: User
) -> None:
    tree = shared_out
    with pytest.raises(services.LedgerError, match="above 0"):
        move(tree["orlo/science/petrel"], tree["orlo/vision/tern"], -1, author)
    with pytest.raises(services.LedgerError, match="to itself"):
        move(tree["orlo"], tree["orlo"], 1, author)
    with pytest.raises(services.LedgerError, match="different organisations"):
        move(tree["orlo/science/petrel"], make_budget("elsewhere"), 1, author)


# --- Periods --------------------------------------------------------------------------------------


def test_a_period_grants_effective_share_times_capacity_times_rate(
    tree: dict[str, Budget], author: User
) -> None:
    one, two = make_pool(), make_pool(rate=2000)
    period = make_period(status="approved", capacity={one: 3600 * 100})
    period.capacities.create(pool=two, gpu_seconds=3600 * 10, rate_per_mille=2000)
    result = services.start_period(period=period, at=T0, author=author)
    assert granted(tree, period) == {
        "orlo": 120,
        "orlo/science": 72,
        "orlo/science/petrel": 36,
        "orlo/science/auk": 36,
        "orlo/vision": 48,
        "orlo/vision/tern": 48,
    }
    assert result.granted[tree["orlo"].pk] == 120 * CREDIT
    assert Entry.objects.filter(kind="grant", pool=two).count() == 6
    period.refresh_from_db()
    assert period.status == "active"
    with pytest.raises(services.LedgerError, match="isn't approved"):
        services.start_period(period=period, at=T0, author=author)


def test_grants_are_rounded_down(author: User) -> None:
    root = make_budget("orlo")
    thirds = [make_budget(f"b{n}", parent=root) for n in range(3)]
    make_shares(root, dict(zip(thirds, (33_333, 33_333, 33_334), strict=True)))
    period = make_period(status="approved", capacity={make_pool(): 8}, rate=1)
    services.start_period(period=period, at=T0)
    amounts = Entry.objects.order_by("budget__path").values_list("budget__slug", "amount_mgpus")
    # 8 × 0.33333 = 2.66664: nearer to 3
    assert list(amounts) == [("orlo", 8), ("b0", 2), ("b1", 2), ("b2", 2)]


@pytest.mark.parametrize(
    ("status", "capacity", "at", "words"),
    [
        ("draft", True, T0, "isn't approved"),
        ("approved", False, T0, "no planned capacity"),
        ("approved", True, T0 - DAY, "starts at 2026-10-01T00:00:00Z"),
        ("approved", True, T1, "ended at 2027-01-01T00:00:00Z"),
    ],
)
def test_a_period_that_can_not_start_writes_nothing(
    tree: dict[str, Budget], status: str, capacity: bool, at: Any, words: str
) -> None:
    period = make_period(status=status, capacity={make_pool(): 3600} if capacity else {})
    with pytest.raises(services.LedgerError, match=words):
        services.start_period(period=period, at=at)
    period.refresh_from_db()
    assert period.status == status
    assert not Entry.objects.exists()


def two_periods(petrel: Budget, *, cap: int, capacity: int = 3600 * 100) -> tuple[Period, Period]:
    """An active period of one timestep with 100 credits for petrel, and the next, approved."""
    border = T0 + TIMESTEP
    first = make_period("one", ends_at=border)
    give(petrel, 100, first)
    pool = make_pool()
    following = make_period(
        "two", starts_at=border, ends_at=T1, status="approved", carry_over_cap=cap,
        capacity={pool: capacity},
    )  # fmt: skip
    return first, following


def test_a_capped_part_of_the_unspent_grant_is_carried_over(tree: dict[str, Budget]) -> None:
    petrel = tree["orlo/science/petrel"]
    _, following = two_periods(petrel, cap=25_000)
    (node,) = make_nodes(make_pool(rate=5000))
    make_run(make_job(petrel), {node: 0xFF}, ended_at=T0 + TIMESTEP)  # 20 credits
    close()
    result = services.start_period(period=following, at=T0 + TIMESTEP)
    carried = {path: result.carried.get(budget.pk, 0) / CREDIT for path, budget in tree.items()}
    assert carried == {
        "orlo": 20,
        "orlo/science": 20,
        "orlo/science/petrel": 20,
        "orlo/science/auk": 0,
        "orlo/vision": 0,
        "orlo/vision/tern": 0,
    }
    assert granted(tree, following, T0 + TIMESTEP)["orlo/science/petrel"] == 30 + 20


def test_an_overspender_carries_nothing_and_without_a_cap_nobody_does(
    tree: dict[str, Budget],
) -> None:
    petrel = tree["orlo/science/petrel"]
    _, following = two_periods(petrel, cap=100_000)
    (node,) = make_nodes(make_pool(rate=30_000))
    make_run(make_job(petrel), {node: 0xFF}, ended_at=T0 + TIMESTEP)  # 120 credits of 100
    close()
    assert services.start_period(period=following, at=T0 + TIMESTEP).carried == {}


def test_carry_over_waits_until_the_period_before_is_charged_to_its_end(
    tree: dict[str, Budget],
) -> None:
    petrel = tree["orlo/science/petrel"]
    first, following = two_periods(petrel, cap=25_000)
    (node,) = make_nodes(make_pool())
    make_run(make_job(petrel), {node: 0xFF})
    with pytest.raises(services.LedgerError, match="one isn't charged to its end"):
        services.start_period(period=following, at=T0 + TIMESTEP)
    with pytest.raises(services.LedgerError, match="isn't charged to its end"):
        services.close_period(period=first, at=T0 + TIMESTEP)
    close()
    services.start_period(period=following, at=T0 + TIMESTEP)
    services.close_period(period=first, at=T0 + TIMESTEP)
    first.refresh_from_db()
    assert first.status == "closed"


def test_open_holds_go_on_into_the_next_period_as_far_as_it_has_credits(
    tree: dict[str, Budget],
) -> None:
    petrel = tree["orlo/science/petrel"]
    first, following = two_periods(petrel, cap=0)  # petrel gets 30 of its 100 credits
    (node,) = make_nodes(make_pool())
    running, waiting, poor = make_job(petrel, state="running"), make_job(petrel), make_job(petrel)
    for job, amount in ((running, 16), (waiting, 15), (poor, 8)):
        services.place_hold(job=job, amount_mgpus=amount * CREDIT, now=T0)
    make_run(running, {node: 0xFF})
    # Started before the last timestep of the old period is closed: what ran stays there.
    result = services.start_period(period=following, at=T0 + TIMESTEP)
    assert result.moved == [Attempt(running.pk, 1), Attempt(waiting.pk, 1)]
    assert result.unfunded == [Attempt(poor.pk, 1)]
    end = close()
    old = reports.figures(period=first, now=T0 + TIMESTEP - timedelta(seconds=1))[petrel.pk]
    new = reports.figures(period=following, now=end)[petrel.pk]
    assert (old.settled_mgpus, old.held_mgpus) == (4 * CREDIT, 0)
    assert (new.held_mgpus, new.spendable_mgpus) == (27 * CREDIT, 3 * CREDIT)
    assert services.sweep_holds(now=end) == []
    services.close_period(period=first, at=end)
    assert reports.entry_problems(start=T0, end=end) == []


def test_a_period_closes_once_it_is_over(tree: dict[str, Budget]) -> None:
    first, _ = two_periods(tree["orlo"], cap=0)
    with pytest.raises(services.LedgerError, match="ends at 2026-10-01T00:30:00Z"):
        services.close_period(period=first, at=T0)
    services.close_period(period=first, at=T0 + TIMESTEP)
    with pytest.raises(services.LedgerError, match="isn't active"):
        services.close_period(period=first, at=T0 + TIMESTEP)


# --- Change sets ----------------------------------------------------------------------------------


@pytest.fixture
def quarter(tree: dict[str, Budget]) -> Period:
    """An active period of 100 days with 1,000 credits."""
    pool = make_pool()
    period = make_period(status="approved", ends_at=T0 + 100 * DAY, capacity={pool: 3600 * 1000})
    services.start_period(period=period, at=T0)
    return period


def change(tree: dict[str, Budget], science: int, vision: int, at: Any) -> ChangeSet:
    shares = {tree["orlo/science"]: science, tree["orlo/vision"]: vision}
    return make_shares(tree["orlo"], shares, at=at)


def test_a_change_set_moves_the_rest_of_the_period_once(
    tree: dict[str, Budget], quarter: Period
) -> None:
    at = T0 + 75 * DAY
    change_set = change(tree, 40_000, 60_000, at)
    assert services.apply_change_set(change_set=change_set, now=at - HOUR) == []
    entries = services.apply_change_set(change_set=change_set, now=at)
    assert len(entries) == 5
    expected = {
        "orlo": 1000,
        "orlo/science": 600 - 50,  # a fifth less of the last quarter
        "orlo/science/petrel": 300 - 25,
        "orlo/science/auk": 300 - 25,
        "orlo/vision": 400 + 50,
        "orlo/vision/tern": 400 + 50,
    }
    assert granted(tree, quarter, at) == expected
    assert services.apply_change_set(change_set=change_set, now=at + DAY) == []
    assert services.apply_due_change_sets(now=at + DAY) == []
    assert granted(tree, quarter, at) == expected
    assert {entry.note for entry in entries} == {"as agreed"}


def test_sets_of_one_instant_count_together(tree: dict[str, Budget], quarter: Period) -> None:
    at = T0 + 50 * DAY
    top = change(tree, 50_000, 50_000, at)
    below = make_shares(
        tree["orlo/science"],
        {tree["orlo/science/petrel"]: 100_000, tree["orlo/science/auk"]: 0},
        at=at,
    )
    services.apply_change_set(change_set=below, now=at)
    services.apply_change_set(change_set=top, now=at)
    found = granted(tree, quarter, at)
    assert found["orlo/science"] == 600 - 50
    assert found["orlo/science/petrel"] == 300 + 100  # 30 % → 50 % of half the period
    assert found["orlo/science/auk"] == 300 - 150


def test_a_fall_stops_at_what_is_claimed(tree: dict[str, Budget], quarter: Period) -> None:
    petrel = tree["orlo/science/petrel"]
    services.place_hold(job=make_job(petrel), amount_mgpus=299 * CREDIT, now=T0)
    at = T0 + 75 * DAY
    services.apply_change_set(change_set=change(tree, 0, 100_000, at), now=at)
    found = granted(tree, quarter, at)
    assert found["orlo/science/petrel"] == 299
    assert found["orlo/science/auk"] == 300 - 75
    entry = Entry.objects.get(budget=petrel, amount_mgpus__lt=0)
    assert entry.note.startswith("as far as it is free")


def test_an_archived_budget_gives_back_all_that_is_free(
    tree: dict[str, Budget], quarter: Period, author: User
) -> None:
    auk, at = tree["orlo/science/auk"], T0 + 75 * DAY
    services.adjust(
        budget=auk, amount_mgpus=40 * CREDIT, author=author, note="used", key="u", now=T0
    )
    structure.archive_budget(budget=auk, author=author, reason="done", now=at)
    services.apply_due_change_sets(now=at)
    assert granted(tree, quarter, at) == {
        "orlo": 1000,
        "orlo/science": 600,
        "orlo/science/petrel": 300,
        "orlo/science/auk": 40,
        "orlo/vision": 400,
        "orlo/vision/tern": 400,
    }
    found = reports.figures(period=quarter, now=at)[tree["orlo/science"].pk]
    assert found.reserve_mgpus == 260 * CREDIT
    auk.refresh_from_db()
    with pytest.raises(services.LedgerError, match="auk is archived"):
        services.transfer(
            source=tree["orlo/vision/tern"], target=auk, amount_mgpus=CREDIT, author=author,
            note="x", key="k", now=at,
        )  # fmt: skip


def test_due_sets_are_applied_and_those_in_the_period_s_grants_are_not(
    tree: dict[str, Budget], quarter: Period
) -> None:
    at = T0 + 50 * DAY
    change(tree, 50_000, 50_000, at)
    assert len(services.apply_due_change_sets(now=at)) == 5
    assert services.apply_due_change_sets(now=at) == []
    start = ChangeSet.objects.filter(effective_at=T0).first()
    assert start is not None
    assert services.apply_change_set(change_set=start, now=at) == []


def test_a_period_that_starts_late_counts_what_changed_meanwhile(tree: dict[str, Budget]) -> None:
    period = make_period(
        status="approved", ends_at=T0 + 100 * DAY, capacity={make_pool(): 3600 * 1000}
    )
    at = T0 + 50 * DAY
    change(tree, 50_000, 50_000, at)
    services.start_period(period=period, at=at + DAY)
    assert granted(tree, period, at + DAY)["orlo/science"] == 550
