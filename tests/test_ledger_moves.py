"""A budget that moves takes along what it has saved, and every reserve stays true."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from allocator import steering
from budgets import services as budgets
from budgets.models import Budget, Period
from ledger import kept, reports, services
from ledger.models import Entry
from ledger.moves import taken_along
from tests.factories import (
    HOUR,
    LONG_AGO,
    T0,
    TIMESTEP,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_shares,
    make_tree,
    make_user,
)
from tests.ledger_world import CREDIT, close, ledger, write_entry
from workloads.models import Job

pytestmark = pytest.mark.django_db
DAY, MINUTE, SECOND = timedelta(days=1), timedelta(minutes=1), timedelta(seconds=1)
HALF = T0 + 50 * DAY
SCIENCE, VISION = "orlo/science", "orlo/vision"
PETREL, AUK, TERN = f"{SCIENCE}/petrel", f"{SCIENCE}/auk", f"{VISION}/tern"


@pytest.fixture
def tree() -> dict[str, Budget]:
    return make_tree(at=LONG_AGO)


@pytest.fixture
def quarter(tree: dict[str, Budget]) -> Period:
    """An active period of 100 days with 1,000 credits; vision keeps a quarter of its 400."""
    make_shares(tree[VISION], {tree[TERN]: 75_000}, at=LONG_AGO)
    period = make_period(
        status="approved", ends_at=T0 + 100 * DAY, capacity={make_pool(): 3600 * 1000}
    )
    services.start_period(period=period, at=T0)
    return period


Seen = dict[str, tuple[float, ...]]


def seen(tree: dict[str, Budget], period: Period, now: datetime) -> Seen:
    """Return granted, what is spendable and reserve by path as it was before, in credits."""
    figures = reports.figures(period=period, now=now)
    for path, budget in tree.items():
        one = figures[budget.pk]
        used = one.settled_mgpus + one.in_flight_mgpus + one.held_mgpus
        assert one.granted_mgpus >= used, path
    return {
        path: tuple(
            amount // CREDIT if not amount % CREDIT else amount / CREDIT
            for amount in (one.granted_mgpus, one.spendable_mgpus, one.reserve_mgpus)
        )
        for path, one in ((path, figures[budget.pk]) for path, budget in tree.items())
    }


def spend(budget: Budget, credits: int, at: datetime = T0) -> None:
    services.adjust(
        budget=budget, amount_mgpus=credits * CREDIT, author=make_user(), note="used",
        key=f"{budget.pk}:{at}:{credits}", now=at,
    )  # fmt: skip


def give(source: Budget, target: Budget, credits: int, at: datetime) -> None:
    services.transfer(
        source=source, target=target, amount_mgpus=credits * CREDIT, author=make_user(),
        note="agreed", key=f"{source.pk}:{target.pk}:{at}:{credits}", now=at,
    )  # fmt: skip


def move(budget: Budget, to: Budget, share: int, at: datetime = HALF, **fields: Any) -> None:
    budget.refresh_from_db()
    why: dict[str, Any] = {"author": make_user(), "reason": "it is theirs now", "now": at}
    steering.move_budget(budget=budget, to=to, share=share, **why, **fields)


def clean(period: Period) -> None:
    assert reports.entry_problems(start=T0, end=period.ends_at) == []


def test_what_it_saved_goes_along_and_its_old_share_is_reserve_again(
    tree: dict[str, Budget], quarter: Period
) -> None:
    """Half the period is over. Of 300 petrel has spent 100 and saved 50; 150 are yet to come."""
    spend(tree[PETREL], 100)
    move(tree[PETREL], tree[VISION], 25_000)
    expected = {
        "orlo": (1000, 900, 0),
        SCIENCE: (550, 450, 150),
        PETREL: (200, 100, 200),  # the 50 saved, and 50 of vision's other half
        AUK: (300, 300, 300),
        VISION: (450, 450, 50),
        TERN: (300, 300, 300),
    }
    assert seen(tree, quarter, HALF) == expected
    assert services.apply_due_change_sets(now=HALF + HOUR) == []
    assert seen(tree, quarter, HALF + HOUR) == expected
    moved = Entry.objects.filter(kind="transfer").order_by("pk")
    assert [entry.amount_mgpus for entry in moved] == [-50 * CREDIT, 50 * CREDIT]
    assert {entry.note for entry in moved} == {"goes along with a budget: it is theirs now"}
    clean(quarter)


def test_neither_reserve_gives_what_is_spent(tree: dict[str, Budget], quarter: Period) -> None:
    """What petrel spent in science is no reserve there, and doesn't press on vision's."""
    spend(tree[PETREL], 100)
    move(tree[PETREL], tree[VISION], 25_000)
    for source, target, most in ((SCIENCE, AUK, 150), (VISION, TERN, 50)):
        with pytest.raises(services.LedgerError, match=rf"has {most}\.00 credits in reserve"):
            give(tree[source], tree[target], most + 1, HALF)
        give(tree[source], tree[target], most, HALF)
    found = seen(tree, quarter, HALF)
    assert [found[path][1:] for path in (SCIENCE, AUK)] == [(450, 0), (450, 450)]
    assert [found[path][1:] for path in (VISION, TERN, PETREL)] == [
        (450, 0), (350, 350), (100, 200)
    ]  # fmt: skip


def test_who_has_spent_ahead_takes_nothing_along(tree: dict[str, Budget], quarter: Period) -> None:
    """Petrel has spent 250 of 300: of the 150 its share was worth yet, 50 are left to science."""
    spend(tree[PETREL], 250)
    move(tree[PETREL], tree[VISION], 25_000)
    assert seen(tree, quarter, HALF) == {
        "orlo": (1000, 750, 0),
        SCIENCE: (600, 350, 50),
        PETREL: (250, 0, 250),
        AUK: (300, 300, 300),
        VISION: (400, 400, 100),
        TERN: (300, 300, 300),
    }
    assert kept.kept_in(quarter) == {tree[PETREL].pk: 50 * CREDIT}
    assert not Entry.objects.filter(kind="transfer").exists()


def test_what_is_held_goes_along(tree: dict[str, Budget], quarter: Period) -> None:
    """150 are held, and the new share is worth 50: the other 100 come out of the old branch."""
    spend(tree[PETREL], 150)
    services.place_hold(job=make_job(tree[PETREL]), amount_mgpus=150 * CREDIT, now=T0)
    move(tree[PETREL], tree[VISION], 25_000)
    assert seen(tree, quarter, HALF) == {
        "orlo": (1000, 700, 0),
        SCIENCE: (500, 350, 50),
        PETREL: (300, 0, 300),
        AUK: (300, 300, 300),
        VISION: (500, 350, 50),
        TERN: (300, 300, 300),
    }
    clean(quarter)


def test_no_more_goes_along_than_its_branch_has(tree: dict[str, Budget], quarter: Period) -> None:
    services.grant(
        budget=tree[PETREL], amount_mgpus=500 * CREDIT, author=make_user(), note="by hand",
        key="g", now=T0,
    )  # fmt: skip
    spend(tree[AUK], 200)
    move(tree[PETREL], tree[VISION], 0)
    found = seen(tree, quarter, HALF)
    assert found[SCIENCE] == (200, 0, -100)  # auk has 100 left by itself: science is empty
    assert found[VISION] == (800, 800, -150)
    assert found[PETREL][:2] == (650, 650)


def test_there_and_back_in_one_second_is_as_it_was(
    tree: dict[str, Budget], quarter: Period
) -> None:
    spend(tree[PETREL], 100)
    before = seen(tree, quarter, HALF)
    move(tree[PETREL], tree[VISION], 25_000)
    move(tree[PETREL], tree[SCIENCE], 50_000)
    assert seen(tree, quarter, HALF) == before
    clean(quarter)


def test_each_move_of_one_second_is_followed_with_what_came_between(
    tree: dict[str, Budget], quarter: Period
) -> None:
    spend(tree[PETREL], 100)
    move(tree[PETREL], tree[VISION], 25_000)
    give(tree[PETREL], tree[TERN], 30, HALF)
    spend(tree[PETREL], 10, HALF)
    move(tree[AUK], tree[VISION], 0)
    assert seen(tree, quarter, HALF)[SCIENCE] == (400, 300, 300)
    move(tree[PETREL], tree[SCIENCE], 50_000)
    assert seen(tree, quarter, HALF) == {
        "orlo": (1000, 890, 0),
        SCIENCE: (420, 310, 150),
        PETREL: (270, 160, 270),
        AUK: (150, 150, 150),
        VISION: (580, 580, 100),
        TERN: (330, 330, 330),
    }
    clean(quarter)


def test_up_and_down_the_tree(tree: dict[str, Budget], quarter: Period) -> None:
    spend(tree[PETREL], 100)
    move(tree[PETREL], tree["orlo"], 0)
    found = seen(tree, quarter, HALF)
    assert (found[PETREL], found[SCIENCE]) == ((150, 50, 150), (550, 450, 150))
    assert found["orlo"] == (1000, 900, 0)  # 50 with petrel, 950 in the programs of which 100 spent
    move(tree[PETREL], tree[AUK], 10_000, HALF + SECOND)
    found = seen(tree, quarter, HALF + SECOND)
    worth = 15 - 15 / (100 * 86_400)  # a tenth of auk's 30 % of what is left
    assert found["orlo"][2] == 0
    assert found[SCIENCE][0] == 600
    assert found[AUK][0] == 350
    assert found[PETREL][0] == pytest.approx(150 + worth)
    assert found[AUK][2] == pytest.approx(300 - worth)
    assert found[SCIENCE][2] == 150


def test_a_move_and_a_change_of_shares_at_one_instant(
    tree: dict[str, Budget], quarter: Period
) -> None:
    """Science falls by 200 in the second in which petrel leaves it: its savings are safe."""
    spend(tree[PETREL], 100)
    make_shares(tree["orlo"], {tree[SCIENCE]: 20_000, tree[VISION]: 80_000}, at=HALF)
    move(tree[PETREL], tree[VISION], 25_000)
    services.apply_due_change_sets(now=HALF)
    assert seen(tree, quarter, HALF) == {
        "orlo": (1000, 900, 0),
        SCIENCE: (350, 250, 50),
        PETREL: (250, 150, 250),
        AUK: (200, 200, 200),
        VISION: (650, 650, 50),
        TERN: (450, 450, 450),
    }


def test_a_fall_of_that_instant_stops_at_what_is_left_then(
    tree: dict[str, Budget], quarter: Period
) -> None:
    """200 of science's are free; petrel takes 50 along, so the fall takes 150 of 300."""
    spend(tree[PETREL], 100)
    spend(tree[AUK], 300)
    make_shares(tree["orlo"], {tree[SCIENCE]: 0, tree[VISION]: 100_000}, at=HALF)
    move(tree[PETREL], tree[VISION], 25_000)
    found = seen(tree, quarter, HALF)
    assert (found[SCIENCE], found[PETREL]) == ((400, 0, 0), (275, 175, 275))
    assert kept.kept_in(quarter)[tree[SCIENCE].pk] == 150 * CREDIT


@pytest.mark.parametrize("late", [timedelta(0), DAY])
def test_a_move_that_is_applied_late_counts_as_of_its_instant(
    tree: dict[str, Budget], quarter: Period, late: timedelta
) -> None:
    spend(tree[PETREL], 100)
    budgets.move_budget(
        budget=tree[PETREL], to=tree[VISION], share=25_000, author=make_user(), reason="x", now=HALF
    )
    if not late:
        services.apply_due_change_sets(now=HALF)
    spend(tree[PETREL], 30, HALF + HOUR)
    give(tree[TERN], tree[PETREL], 20, HALF + HOUR)
    services.apply_due_change_sets(now=HALF + late)
    assert seen(tree, quarter, HALF + DAY) == {
        "orlo": (1000, 870, 0),
        SCIENCE: (550, 450, 150),
        PETREL: (220, 90, 220),
        AUK: (300, 300, 300),
        VISION: (450, 420, 50),
        TERN: (280, 280, 280),
    }


def test_credits_that_lapse_after_a_move_leave_both_branches_right(
    tree: dict[str, Budget], quarter: Period
) -> None:
    give(tree[AUK], tree[PETREL], 40, T0 + DAY)
    move(tree[PETREL], tree[VISION], 25_000)
    give(tree[PETREL], tree[AUK], 40, HALF + DAY)
    found = seen(tree, quarter, HALF + DAY)
    assert (found[SCIENCE], found[AUK]) == ((450, 450, 150), (300, 300, 300))
    assert (found[VISION], found[PETREL]) == ((550, 550, 50), (200, 200, 200))


def test_a_run_that_goes_on_is_charged_to_where_its_budget_stood(
    tree: dict[str, Budget], quarter: Period
) -> None:
    """8 GPUs from T0 on; petrel moves in the middle of a timestep that is closed afterwards."""
    (node,) = make_nodes(make_pool())
    job = make_job(tree[PETREL], state=Job.State.RUNNING, funded=True)
    services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
    make_run(job, {node: 0xFF})
    at = T0 + 45 * MINUTE
    close()
    move(tree[PETREL], tree[VISION], 25_000, at)
    in_mid = reports.figures(period=quarter, now=at)
    assert in_mid[tree[SCIENCE].pk].in_flight_mgpus == 2 * CREDIT
    assert in_mid[tree[VISION].pk].held_mgpus == 2 * CREDIT
    soon = reports.figures(period=quarter, now=at + 5 * MINUTE)
    assert soon[tree[SCIENCE].pk].in_flight_mgpus == 2 * CREDIT
    assert soon[tree[VISION].pk].in_flight_mgpus == 8 * CREDIT // 12
    close(since=T0 + TIMESTEP)
    after = reports.figures(period=quarter, now=T0 + HOUR)
    assert after[tree[SCIENCE].pk].settled_mgpus == 6 * CREDIT
    assert after[tree[VISION].pk].settled_mgpus == 2 * CREDIT
    for path in (SCIENCE, VISION, "orlo"):
        pk = tree[path].pk
        assert in_mid[pk].reserve_mgpus == soon[pk].reserve_mgpus == after[pk].reserve_mgpus
        assert in_mid[pk].spendable_mgpus == soon[pk].spendable_mgpus == after[pk].spendable_mgpus
    keys = Entry.objects.filter(kind="charge").order_by("at").values_list("key", flat=True)
    assert [key.split("T", 1)[1] for key in keys] == ["00:00:00Z", "00:30:00Z", "00:45:00Z"]
    clean(quarter)


def test_those_who_stay_are_charged_by_whole_timesteps(
    tree: dict[str, Budget], quarter: Period
) -> None:
    (node,) = make_nodes(make_pool())
    make_run(make_job(tree[AUK], state=Job.State.RUNNING), {node: 0xFF})
    move(tree[PETREL], tree[VISION], 25_000, T0 + 15 * MINUTE)
    close()
    assert Entry.objects.filter(kind="charge").count() == 1


def test_before_the_period_a_move_moves_nothing(tree: dict[str, Budget]) -> None:
    make_shares(tree[VISION], {tree[TERN]: 75_000}, at=LONG_AGO)
    period = make_period(
        status="approved", starts_at=T0 + DAY, ends_at=T0 + 2 * DAY, capacity={make_pool(): 360_000}
    )
    move(tree[PETREL], tree[VISION], 25_000, T0 + HOUR)
    services.start_period(period=period, at=T0 + DAY)
    services.apply_due_change_sets(now=T0 + DAY)
    assert not Entry.objects.filter(kind="transfer").exists()
    found = seen(tree, period, T0 + DAY)
    assert (found[PETREL][0], found[SCIENCE][0], found[VISION][2]) == (10, 60, 0)


def test_a_move_of_the_first_second_takes_the_whole_share_back(
    tree: dict[str, Budget], quarter: Period
) -> None:
    give(tree[AUK], tree[PETREL], 40, T0)
    move(tree[PETREL], tree[VISION], 25_000, T0)
    assert seen(tree, quarter, T0) == {
        "orlo": (1000, 1000, 0),
        SCIENCE: (560, 560, 300),
        PETREL: (140, 140, 140),
        AUK: (260, 260, 260),
        VISION: (440, 440, 0),
        TERN: (300, 300, 300),
    }


def test_a_move_is_written_once(tree: dict[str, Budget], quarter: Period) -> None:
    services.apply_due_change_sets(now=HALF)
    move(tree[PETREL], tree[VISION], 25_000)
    before = ledger()
    services.apply_due_change_sets(now=HALF)
    services.apply_due_change_sets(now=HALF + DAY)
    assert ledger() == before


@pytest.mark.parametrize(
    ("unused", "worth", "room", "along"),
    [(100, 50, 400, 50), (40, 50, 400, 0), (100, 0, 60, 60), (100, 0, None, 100), (10, 0, -5, 0)],
)
def test_what_is_taken_along(unused: int, worth: int, room: int | None, along: int) -> None:
    assert taken_along(unused=unused, worth=worth, room=room) == along


def test_books_are_sound_after_a_move_within_a_timestep_that_is_not_closed(
    tree: dict[str, Budget], quarter: Period
) -> None:
    """Petrel and auk have set aside all they have; petrel's job has run for half an hour."""
    (node,) = make_nodes(make_pool())
    job = make_job(tree[PETREL], state=Job.State.RUNNING, funded=True)
    services.place_hold(job=job, amount_mgpus=300 * CREDIT, now=T0)
    services.place_hold(job=make_job(tree[AUK]), amount_mgpus=300 * CREDIT, now=T0)
    make_run(job, {node: 0xFF})
    close()
    clean(quarter)
    at = T0 + 35 * MINUTE
    move(tree[PETREL], tree[VISION], 25_000, at)
    services.place_hold(job=make_job(tree[TERN]), amount_mgpus=300 * CREDIT, now=at)
    clean(quarter)
    close(since=T0 + TIMESTEP)
    clean(quarter)


def test_a_grant_below_what_is_set_aside_is_named_after_a_move_too(
    tree: dict[str, Budget], quarter: Period
) -> None:
    """By 1, of which most is set aside and a part has run since the last close."""
    (node,) = make_nodes(make_pool())
    job, at = make_job(tree[PETREL], state=Job.State.RUNNING, funded=True), T0 + 35 * MINUTE
    services.place_hold(job=job, amount_mgpus=200 * CREDIT, now=T0)
    make_run(job, {node: 0xFF})
    close()
    move(tree[PETREL], tree[VISION], 25_000, at)
    granted = reports.figures(period=quarter, now=at)[tree[PETREL].pk].granted_mgpus
    for name, amount in (("enough", 200 * CREDIT - granted), ("wrong", -1)):
        clean(quarter)
        write_entry(
            kind="grant", budget=tree[PETREL], period=quarter, at=at, amount_mgpus=amount,
            author=make_user(), key=name, created_at=at,
        )  # fmt: skip
    (found,) = reports.entry_problems(start=T0, end=quarter.ends_at)
    assert found.sentence == (
        f"{VISION}/petrel, 2026 Q4: granted {200 * CREDIT - 1} mGPU-s, settled {4 * CREDIT} and "
        f"set aside {196 * CREDIT}"
    )


# --- Written in another order than their clocks say -----------------------------------------------


def test_a_transfer_is_judged_by_the_tree_that_was_known_then(
    tree: dict[str, Budget], quarter: Period
) -> None:
    """Of two managers at once the first by the clock may be the last whose move is written."""
    services.transfer(
        source=tree[PETREL], target=tree[AUK], amount_mgpus=20 * CREDIT, author=make_user(),
        note="more", key="a", now=HALF + SECOND,
    )  # fmt: skip
    change: dict[str, Any] = {"author": make_user(), "reason": "as agreed", "share": 0}
    steering.move_budget(budget=tree[PETREL], to=tree[AUK], now=HALF, **change)
    assert [str(one) for one in reports.entry_problems(start=T0, end=HALF)] == []


def test_what_was_taken_along_is_judged_by_the_tree_that_was_known_then(
    tree: dict[str, Budget], quarter: Period
) -> None:
    change: dict[str, Any] = {"author": make_user(), "reason": "as agreed", "share": 10_000}
    steering.move_budget(budget=tree[PETREL], to=tree[VISION], now=HALF + SECOND, **change)
    steering.move_budget(
        budget=Budget.objects.get(pk=tree[SCIENCE].pk), to=tree[VISION], now=HALF, **change
    )
    assert [str(one) for one in reports.entry_problems(start=T0, end=HALF)] == []


def test_a_transfer_by_a_tree_that_was_known_to_be_gone_is_named(
    tree: dict[str, Budget], quarter: Period
) -> None:
    change: dict[str, Any] = {"author": make_user(), "reason": "as agreed", "share": 0}
    steering.move_budget(budget=tree[PETREL], to=tree[AUK], now=HALF, **change)
    place: dict[str, Any] = {"period": quarter, "at": HALF + SECOND, "created_at": HALF + SECOND}
    petrel, auk = tree[PETREL], tree[AUK]
    for budget, amount in ((petrel, -CREDIT), (auk, CREDIT)):
        write_entry(
            kind="transfer", budget=budget, amount_mgpus=amount, key=f"transfer:a:{budget.pk}",
            author=make_user(), **place,
        )  # fmt: skip
    write_entry(
        kind="grant", budget=petrel, amount_mgpus=0, key=f"grant:way:a:{petrel.pk}:{auk.pk}",
        author=make_user(), **place,
    )  # fmt: skip
    (problem,) = reports.entry_problems(start=T0, end=HALF)
    assert problem.sentence.endswith(f"{AUK}: in mGPU-s {AUK} {CREDIT}, not 0")
