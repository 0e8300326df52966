"""Checkpoints carried out: what is due goes to the reserve, once, in order, and no further."""

import random
from datetime import datetime
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from allocator import keeping, steering
from allocator.models import Alarm
from budgets import checkpoints
from budgets.models import Budget, Checkpoint, CheckpointResult, Notice, Period
from budgets.refusals import Refused
from ledger import reports, services, takeback, takeback_rests
from ledger.grants import transfer
from ledger.instants import LedgerError
from ledger.losses import losses
from ledger.models import Entry
from ledger.takeback import take_due
from ledger.takeback_rests import taken_since
from tests.factories import (
    HOUR,
    T0,
    T1,
    make_budget,
    make_checkpoint,
    make_job,
    make_nodes,
    make_period,
    make_plan,
    make_pool,
    make_role,
    make_run,
    make_shares,
    make_user,
    someone,
)
from tests.ledger_world import CREDIT, give, write_entry
from tests.pages_world import client_of, text_of
from tests.takeback_world import (
    DAY,
    NREL,
    QUARTER,
    SECOND,
    carry_out,
    charged_until,
    granted,
    reserve,
    taken,
    transfers,
    use,
)

pytestmark = pytest.mark.django_db
AGES: dict[str, Any] = {"steps": [(100, 100)], "removed_of": "unused", "gives_back": True}
TOLD_LATE: dict[str, Any] = {"created_at": T0 + QUARTER + DAY}


@pytest.fixture
def petrel(tree: dict[str, Budget]) -> Budget:
    return tree["orlo/science/petrel"]


@pytest.fixture
def science(tree: dict[str, Budget]) -> Budget:
    return tree["orlo/science"]


@pytest.fixture
def period(petrel: Budget) -> Period:
    made = make_period()
    give(petrel, 100_000, made)
    return made


# --- What is taken --------------------------------------------------------------------------------


def test_five_percent_used_of_a_million_loses_285_000(petrel, science) -> None:
    period = make_period()
    give(petrel, 1_000_000, period)
    at = T0 + 30 * DAY
    may = make_checkpoint(
        period, at, [(10, 30), (15, 15)],
        measured="granted", removed_of="remaining", cumulative=False,
    )  # fmt: skip
    use(petrel, 50_000, at - DAY)
    assert carry_out(may) == {"petrel": 285_000}
    assert granted(petrel, period, at + HOUR) == 715_000
    assert granted(science, period, at + HOUR) == 1_000_000
    assert reserve(science, period, at + HOUR) == 285_000
    (entry,) = Entry.objects.filter(kind="transfer")
    assert entry.key == f"transfer:takeback:{may.pk}:{petrel.pk}:{petrel.pk}"
    assert entry.note == (
        f"Checkpoint of {at:%Y-%m-%dT%H:%MZ}: used 50,000.00 of 1,000,000.00 granted, less than "
        "10.000 %: 30.000 % of what remains."
    )
    assert (entry.author, entry.at) == (may.author, at + HOUR)
    assert reports.entry_problems(start=T0, end=at) == []


def test_a_cumulative_table_takes_what_is_missing_in_all(petrel, period) -> None:
    first, second, third = (make_checkpoint(period, T0 + n * QUARTER, NREL) for n in (1, 2, 3))
    use(petrel, 12_000, T0 + DAY)
    assert carry_out(first) == {"petrel": 8_750}
    use(petrel, 18_000, first.at + DAY)
    assert carry_out(second) == {"petrel": 1_250}
    use(petrel, 30_000, second.at + DAY)
    assert carry_out(third) == {}
    result = third.results.get(budget=petrel)
    assert (result.used_mgpus, result.planned_mgpus) == (60_000 * CREDIT, 75_000 * CREDIT)
    assert granted(petrel, period, third.at + HOUR) == 90_000


def test_an_own_plan_is_what_use_is_measured_against(petrel, period) -> None:
    make_plan(petrel, period, [10, 20, 70])
    at = datetime(2026, 11, 1, tzinfo=T0.tzinfo)
    own = make_checkpoint(period, at, [(100, 100)], removed_of="unused")
    use(petrel, 8_000, T0 + DAY)
    assert carry_out(own) == {"petrel": 2_000}


def test_a_checkpoint_may_go_by_time_alone(petrel, period) -> None:
    make_plan(petrel, period, [0, 0, 100])
    even = make_checkpoint(period, T0 + QUARTER, [(100, 100)], removed_of="unused", own_plans=False)
    assert carry_out(even) == {"petrel": 25_000}


def test_a_plan_made_after_the_checkpoint_changes_nothing(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, [(100, 100)], removed_of="unused")
    make_plan(petrel, period, [0, 0, 100], created_at=checkpoint.at + SECOND)
    assert carry_out(checkpoint) == {"petrel": 25_000}


def test_only_projects_lose_and_each_by_itself(tree, period) -> None:
    auk, tern = tree["orlo/science/auk"], tree["orlo/vision/tern"]
    give(auk, 4_000, period)
    give(tern, 1_000, period)
    use(auk, 1_000, T0 + DAY)
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    assert carry_out(checkpoint) == {"petrel": 20_000, "tern": 200}
    found = set(checkpoint.results.values_list("budget__path", flat=True))
    assert found == {"orlo/science/petrel", "orlo/science/auk", "orlo/vision/tern"}
    assert reserve(tree["orlo/vision"], period, T0 + QUARTER + HOUR) == 200


def test_a_budget_that_left_the_tree_loses_nothing(tree, petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    make_shares(tree["orlo/science"], {tree["orlo/science/auk"]: 50_000}, at=T0 + DAY)
    assert carry_out(checkpoint) == {}


# --- Once, in order, late -------------------------------------------------------------------------


def test_a_checkpoint_is_carried_out_once(period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    carry_out(checkpoint)
    before = transfers()
    assert before
    for days in (0, 1, 2):
        assert take_due(now=checkpoint.at + HOUR + days * DAY) == []
    assert transfers() == before


def test_it_waits_until_all_before_it_is_charged(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    later = make_checkpoint(period, T0 + QUARTER + HOUR, NREL)
    assert take_due(now=later.at + DAY) == []
    charged_until(checkpoint.at - SECOND - HOUR)
    assert take_due(now=later.at + DAY) == []
    assert not CheckpointResult.objects.exists()
    charged_until(checkpoint.at)
    assert take_due(now=later.at + DAY) == [checkpoint]


def test_nothing_is_taken_before_its_instant(period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    charged_until(checkpoint.at)
    assert take_due(now=checkpoint.at - SECOND) == []
    assert take_due(now=checkpoint.at) == [checkpoint]


def test_after_an_outage_it_takes_what_it_would_have_taken(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    use(petrel, 10_000, checkpoint.at - SECOND)
    use(petrel, 90_000, checkpoint.at)  # a second too late
    give(petrel, 100_000, period)
    charged_until(checkpoint.at)
    expected = 2 * 25_000 * 55 // 100  # 10,000 of 50,000 planned of 200,000 are 20 %
    assert take_due(now=checkpoint.at + 40 * DAY) == [checkpoint]
    assert taken(checkpoint) == {"petrel": expected}


def test_what_is_granted_after_its_instant_doesn_t_count(tree, petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    services.grant(
        budget=petrel, amount_mgpus=100_000 * CREDIT, author=someone(), note="more", key="more",
        now=checkpoint.at + SECOND,
    )  # fmt: skip
    charged_until(checkpoint.at)
    take_due(now=checkpoint.at + DAY)
    assert taken(checkpoint) == {"petrel": 20_000}


@pytest.mark.parametrize("seed", range(6))
def test_late_and_in_time_come_to_the_same(tree, seed: int) -> None:
    """Whatever the tables: what a budget keeps doesn't depend on when checkpoints are carried out.

    What is spendable lies above what any of them takes, so that nothing stops short.
    """
    outcomes = []
    for late in (False, True):
        with transaction.atomic():
            dice = random.Random(seed)
            outcomes.append(_play(tree, dice, late=late))
            transaction.set_rollback(True)
    assert outcomes[0] == outcomes[1]
    assert any(outcomes[0])


def _play(tree: dict[str, Budget], dice: random.Random, *, late: bool) -> list[dict[str, int]]:
    period, petrel, auk = make_period(), tree["orlo/science/petrel"], tree["orlo/science/auk"]
    give(petrel, 50_000, period)
    give(auk, 7_000, period)
    made = []
    for number in (1, 2, 3):
        steps = zip(sorted(dice.sample(range(10, 100), 2)), (40, 15), strict=True)
        fields: dict[str, Any] = {
            "measured": dice.choice(Checkpoint.Measured.values),
            "removed_of": dice.choice(Checkpoint.RemovedOf.values),
            "cumulative": dice.random() < 0.7,
            "initial_only": dice.random() < 0.3,
        }
        fields["gives_back"] = fields["cumulative"] and dice.random() < 0.6
        at = T0 + number * QUARTER
        made.append(make_checkpoint(period, at, list(steps), created_at=at - 7 * DAY, **fields))
    for number, one in enumerate(made):
        use(petrel, dice.randrange(2_000), one.at - DAY)
        use(auk, dice.randrange(500), one.at - HOUR)
        if number and dice.random() < 0.5:  # after the one before, and before this one is told of
            by_hand(petrel, dice.randrange(1, 3_000), made[number - 1].at + 2 * HOUR)
        if not late:
            carry_out(one)
    if late:
        charged_until(made[-1].at)
        assert take_due(now=made[-1].at + HOUR) == made
    return [taken(one) for one in made]


def test_a_period_that_is_over_is_left_alone(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    charged_until(T1)
    assert take_due(now=T1) == [checkpoint]
    assert not transfers()
    assert not checkpoint.results.exists()
    assert take_due(now=T1 + DAY) == []


def test_a_period_that_has_not_started_is_left_alone(tree) -> None:
    period = make_period(status="approved")
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    charged_until(checkpoint.at)
    assert take_due(now=checkpoint.at + HOUR) == []
    Period.objects.filter(pk=period.pk).update(status="active")
    assert take_due(now=checkpoint.at + HOUR) == [checkpoint]


# --- What is given back ---------------------------------------------------------------------------


def test_what_a_manager_gives_back_is_no_base_of_the_next(tree, petrel, science, period) -> None:
    """8,750 were taken and given back: the next looks at 50,000 planned, not at 54,375."""
    first, second = (make_checkpoint(period, T0 + n * QUARTER, NREL, **TOLD_LATE) for n in (1, 2))
    use(petrel, 12_000, T0 + DAY)
    assert carry_out(first) == {"petrel": 8_750}
    services.transfer(
        source=science, target=petrel, amount_mgpus=8_750 * CREDIT, author=someone(),
        note="it was our fault", key="back", now=first.at + 2 * HOUR,
    )  # fmt: skip
    use(petrel, 18_000, first.at + DAY)
    (loss,) = [one for one in losses(checkpoint=second, now=second.at) if one.budget == petrel]
    assert (loss.granted_mgpus, loss.planned_mgpus) == (100_000 * CREDIT, 50_000 * CREDIT)
    assert carry_out(second) == {"petrel": 1_250}
    assert granted(petrel, period, second.at + HOUR) == 98_750


def test_what_one_was_due_is_the_same_when_later_ones_are_over(petrel, period) -> None:
    first, second = (make_checkpoint(period, T0 + n * QUARTER, **AGES) for n in (1, 2))
    carry_out(first)
    carry_out(second)
    found = {one.budget.slug: one for one in losses(checkpoint=first, now=second.at + HOUR)}
    assert (found["petrel"].due_mgpus, found["petrel"].case.taken) == (25_000 * CREDIT, 0)


def test_a_checkpoint_gives_back_what_use_made_up_for(petrel, science, period) -> None:
    first, second, third = (make_checkpoint(period, T0 + n * QUARTER, **AGES) for n in (1, 2, 3))
    use(petrel, 10_000, T0 + DAY)
    assert carry_out(first) == {"petrel": 15_000}
    use(petrel, 30_000, first.at + DAY)
    assert carry_out(second) == {}
    assert granted(petrel, period, second.at + HOUR) == 90_000
    assert reserve(science, period, second.at + HOUR) == 10_000
    result = second.results.get(budget=petrel)
    assert (result.due_mgpus, result.returned_mgpus) == (0, 5_000 * CREDIT)
    (entry,) = Entry.objects.filter(kind="transfer", budget=petrel, amount_mgpus__gt=0)
    assert entry.note == (
        f"Checkpoint of {second.at:%Y-%m-%dT%H:%MZ}: given back, use made up for it: 40,000.00 of "
        "50,000.00 are used."
    )
    use(petrel, 35_000, second.at + DAY)
    carry_out(third)
    assert granted(petrel, period, third.at + HOUR) == 100_000
    assert take_due(now=third.at + DAY) == []


def test_what_the_reserve_has_no_more_is_not_given_back(tree, petrel, science, period) -> None:
    give(tree["orlo/science/auk"], 100, period)
    first, second, third = (make_checkpoint(period, T0 + n * QUARTER, **AGES) for n in (1, 2, 3))
    use(petrel, 10_000, T0 + DAY)
    assert carry_out(first) == {"auk": 25, "petrel": 15_000}
    services.transfer(
        source=science, target=tree["orlo/science/auk"], amount_mgpus=15_000 * CREDIT,
        author=someone(), note="needs it", key="auk", now=first.at + 2 * HOUR,
    )  # fmt: skip
    use(petrel, 40_000, first.at + DAY)
    found = {one.budget.slug: one for one in losses(checkpoint=second, now=second.at)}
    assert found["petrel"].found.back == 15_000 * CREDIT
    assert found["petrel"].back_mgpus == (25 + found["auk"].amount_mgpus // CREDIT) * CREDIT
    carry_out(second)
    got = second.results.get(budget=petrel).returned_mgpus
    assert got == found["petrel"].back_mgpus
    assert "more are not in the reserve" in Entry.objects.get(budget=petrel, amount_mgpus=got).note
    assert reserve(science, period, second.at + HOUR) == 0
    services.transfer(
        source=tree["orlo/science/auk"], target=science, amount_mgpus=10_000 * CREDIT,
        author=someone(), note="did not", key="auk back", now=second.at + 2 * HOUR,
    )  # fmt: skip
    use(petrel, 30_000, second.at + DAY)
    carry_out(third)  # what was missing then is given back now
    assert third.results.get(budget=petrel).returned_mgpus >= 10_000 * CREDIT


def test_both_sides_are_told_what_is_given_back(tree, petrel, period) -> None:
    make_role(lead := make_user("lead"), petrel, "manager")
    make_role(manager := make_user("manager"), tree["orlo/science"], "manager")
    first, second = (make_checkpoint(period, T0 + n * QUARTER, **AGES) for n in (1, 2))
    carry_out(first)
    use(petrel, 40_000, first.at + DAY)
    carry_out(second)
    when = f"{second.at:%-d %B %Y %H:%M} (UTC)"
    texts = [Notice.objects.filter(user=user).latest("pk").text for user in (lead, manager)]
    assert texts == [
        "orlo/science/petrel got back 15,000.00 credits from the reserve of orlo/science at the "
        f"checkpoint of {when}: use made up for it: 40,000.00 of 50,000.00 are used.",
        "15,000.00 credits of the reserve of orlo/science were given back at the checkpoint of "
        f"{when}: petrel 15,000.00.",
    ]


def test_what_is_granted_later_is_left_alone_where_the_first_grant_counts(petrel, period) -> None:
    own = make_checkpoint(
        period, T0 + 3 * QUARTER, [(100, 100)], removed_of="unused", initial_only=True
    )
    by_hand(petrel, 100_000, T0 + QUARTER)
    use(petrel, 60_000, T0 + 2 * QUARTER)
    assert carry_out(own) == {"petrel": 15_000}


# --- No more than what was announced --------------------------------------------------------------


def test_what_is_given_after_leads_were_told_takes_no_more(petrel, period) -> None:
    """80 % of what was planned were used; 100,000 more a day before would make it 40 %."""
    checkpoint = make_checkpoint(period, T0 + 2 * QUARTER, NREL)
    use(petrel, 40_000, T0 + DAY)
    told = checkpoint.at - 30 * DAY
    assert not any(loss.due_mgpus for loss in losses(checkpoint=checkpoint, now=told))
    by_hand(petrel, 100_000, told + SECOND)
    (loss,) = [one for one in losses(checkpoint=checkpoint, now=told + DAY) if one.budget == petrel]
    assert (loss.granted_mgpus, loss.planned_mgpus) == (200_000 * CREDIT, 50_000 * CREDIT)
    assert carry_out(checkpoint) == {}


def test_what_is_given_by_the_day_that_leads_are_told_counts(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + 2 * QUARTER, NREL)
    use(petrel, 40_000, T0 + DAY)
    by_hand(petrel, 100_000, checkpoint.at - 30 * DAY)
    assert carry_out(checkpoint) == {"petrel": 35_000}


def by_hand(budget: Budget, credits: int, at: datetime) -> None:
    """Grant a budget and all above it credits, as an administrator may."""
    node: Budget | None = budget
    while node is not None:
        key = f"{node.pk}:{at.isoformat()}"
        amount = credits * CREDIT
        services.grant(
            budget=node, amount_mgpus=amount, author=someone(), note="more", key=key, now=at
        )
        node = node.parent


def test_who_divides_a_project_hides_nothing(tree, petrel, science, period) -> None:
    """Its manager creates a budget in it, and has it hold all the credits, a day before."""
    checkpoint = make_checkpoint(period, T0 + 2 * QUARTER, NREL)
    use(petrel, 3_000, T0 + DAY)
    at = checkpoint.at - DAY
    inner, other = (make_budget(slug, parent=petrel) for slug in ("inner", "other"))
    make_shares(petrel, {inner: 100_000, other: 0}, at=at)
    for budget, credits in ((inner, 70_000), (other, 2_000)):
        services.transfer(
            source=petrel, target=budget, amount_mgpus=credits * CREDIT, author=someone(),
            note="hidden", key=budget.slug, now=at,
        )  # fmt: skip
    checkpoints.ask_exemption(
        checkpoint=checkpoint, budget=petrel, reason="divided", by=someone(), now=at
    )
    with pytest.raises(Refused, match="is none"):
        checkpoints.ask_exemption(
            checkpoint=checkpoint, budget=inner, reason="mine", by=someone(), now=at
        )
    found = {one.budget.slug: one for one in losses(checkpoint=checkpoint, now=at)}
    assert found.keys() == {"auk", "petrel", "tern"}
    assert found["petrel"].amount_mgpus == 40_000 * CREDIT
    assert carry_out(checkpoint) == {"petrel": 40_000}
    later = checkpoint.at + HOUR
    assert [granted(one, period, later) for one in (petrel, inner, other)] == [
        60_000,
        58_000,
        2_000,
    ]
    assert reserve(science, period, later) == 40_000
    before = transfers()
    assert take_due(now=later + DAY) == []
    assert transfers() == before


def test_what_was_divided_before_it_is_announced_is_looked_at_apart(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + 2 * QUARTER, NREL)
    inner = make_budget("inner", parent=petrel)
    make_shares(petrel, {inner: 100_000}, at=checkpoint.at - 30 * DAY)
    found = losses(checkpoint=checkpoint, now=checkpoint.at - DAY)
    assert {one.budget.slug for one in found} == {"auk", "inner", "tern"}


# --- No further than what is free -----------------------------------------------------------------


def test_what_is_spent_or_set_aside_stays_and_the_note_says_so(petrel, period) -> None:
    checkpoint = make_checkpoint(
        period, T0 + QUARTER, [(99, 100)], measured="granted", removed_of="remaining"
    )
    job = make_job(petrel)
    assert services.place_hold(job=job, amount_mgpus=30_000 * CREDIT, now=T0).funded
    use(petrel, 10_000, T0 + DAY)
    assert carry_out(checkpoint) == {"petrel": 60_000}
    result = checkpoint.results.get(budget=petrel)
    assert result.due_mgpus == 90_000 * CREDIT
    assert Entry.objects.get(kind="transfer").note.endswith(
        "30,000.00 more are due, but spent or set aside."
    )
    figures = reports.figures(period=period, now=checkpoint.at + HOUR)[petrel.pk]
    assert (figures.spendable_mgpus, figures.held_mgpus) == (0, 30_000 * CREDIT)


def test_where_nothing_is_free_nothing_is_taken(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    use(petrel, 120_000, checkpoint.at + SECOND)  # after it, and more than there is
    assert carry_out(checkpoint) == {}
    assert checkpoint.results.get(budget=petrel).due_mgpus == 20_000 * CREDIT
    assert not transfers()


# --- Dry run --------------------------------------------------------------------------------------


def test_as_things_stand_is_what_is_taken_if_nothing_changes(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    use(petrel, 3_000, T0 + DAY)
    before = losses(checkpoint=checkpoint, now=T0 + 2 * DAY)
    expected = {loss.budget.slug: loss.amount_mgpus // CREDIT for loss in before if loss.due_mgpus}
    assert not CheckpointResult.objects.exists()
    assert carry_out(checkpoint) == expected == {"petrel": 20_000}


def test_what_use_avoids_it(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    use(petrel, 3_000, T0 + DAY)
    (loss,) = [
        one for one in losses(checkpoint=checkpoint, now=T0 + 3 * DAY) if one.budget == petrel
    ]
    assert loss.missing_mgpus == 14_500 * CREDIT  # 70 % of 25,000 less 3,000
    assert loss.missing_a_day_mgpus == 725 * CREDIT  # in 20 days
    use(petrel, 14_500, checkpoint.at - SECOND)
    assert carry_out(checkpoint) == {}


def test_what_is_lost_at_the_present_rate(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    now = T0 + 13 * DAY
    use(petrel, 700 * 7, now - DAY)
    charged_until(T0 + 30 * 60 * SECOND)
    charged_until(now)
    (loss,) = [one for one in losses(checkpoint=checkpoint, now=now) if one.budget == petrel]
    assert loss.rate_mgpus == 700 * CREDIT
    assert loss.due_mgpus == 20_000 * CREDIT  # 4,900 of 25,000 as things stand
    assert loss.due_at_rate_mgpus == 8_750 * CREDIT  # 4,900 + 7,000


def test_what_runs_counts_as_used_before_it_is_charged(tree, petrel, period) -> None:
    (node,) = make_nodes(make_pool())
    make_run(make_job(petrel), {node: 0xFF})
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    found = losses(checkpoint=checkpoint, now=T0 + 2 * HOUR)
    assert [loss.used_mgpus for loss in found if loss.budget == petrel] == [16 * CREDIT]


def test_a_dry_run_asks_a_constant_number_of_queries(tree, period):
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as seen:
            losses(checkpoint=checkpoint, now=T0 + DAY)
        counts.append(len(seen))
        more = [make_budget(parent=tree["orlo/vision"]) for _ in range(10)]
        make_shares(
            tree["orlo/vision"], {tree["orlo/vision/tern"]: 0} | dict.fromkeys(more, 1_000), at=T0
        )
    assert counts[0] == counts[1]


# --- What was set aside ---------------------------------------------------------------------------


@pytest.fixture
def short(petrel: Budget, period: Period) -> Checkpoint:
    """A checkpoint that was due 90,000 and took 60,000, since a job had set aside the others."""
    made = make_checkpoint(
        period, T0 + QUARTER, [(99, 100)], measured="granted", removed_of="remaining"
    )
    assert services.place_hold(job=make_job(petrel), amount_mgpus=30_000 * CREDIT, now=T0).funded
    use(petrel, 10_000, T0 + DAY)
    assert carry_out(made) == {"petrel": 60_000}
    return made


def cancel(amount: int, at: datetime) -> None:
    """Release so many of the credits that the job had set aside."""
    hold = Entry.objects.get(kind="hold")
    write_entry(
        kind="release", budget=hold.budget, job=hold.job, period=hold.period, at=at,
        amount_mgpus=amount * CREDIT, key=f"{hold.key}:released:{amount}", created_at=at,
    )  # fmt: skip


def test_jobs_that_are_cancelled_after_a_checkpoint_keep_nothing_from_it(
    petrel, science, period, short
) -> None:
    make_role(lead := make_user("lead"), petrel, "manager")
    make_role(manager := make_user("manager"), science, "manager")
    now = short.at + DAY
    take_due(now=now)
    assert granted(petrel, period, now) == 40_000  # the job may still run
    cancel(10_000, now)
    take_due(now=now + HOUR)
    take_due(now=now + HOUR)
    assert (granted(petrel, period, now + HOUR), reserve(science, period, now + HOUR)) == (
        30_000, 70_000,
    )  # fmt: skip
    short.refresh_from_db()
    assert taken_since(short) == {petrel.pk: 10_000 * CREDIT}
    page = client_of(make_user(is_superuser=True)).get(f"/periods/{period.pk}/checkpoints")
    told = "Took 70,000 credits: Petrel 70,000 (10,000 of it later, as jobs ended) of 90,000 due"
    assert told in text_of(page)
    cancel(20_000, now + HOUR)
    take_due(now=now + 2 * HOUR)
    assert granted(petrel, period, now + 2 * HOUR) == 10_000
    assert taken_since(short) == {petrel.pk: 30_000 * CREDIT}
    start = f"transfer:takeback:{short.pk}:{petrel.pk}"
    assert [key for key, _ in transfers()] == [
        f"{start}:{petrel.pk}", f"{start}:rest:1:{petrel.pk}", f"{start}:rest:2:{petrel.pk}",
    ]  # fmt: skip
    text = (
        "orlo/science/petrel lost 10,000.00 more credits to the reserve of orlo/science by the "
        f"checkpoint of {short.at:%-d %B %Y %H:%M} (UTC): they were set aside then, and are free "
        "now."
    )
    for user in (lead, manager):
        assert Notice.objects.filter(user=user).earliest("pk").text == text


def test_what_the_job_spends_and_what_was_given_since_is_not_taken(petrel, period, short) -> None:
    now = short.at + DAY
    by_hand(petrel, 5_000, now)
    take_due(now=now + HOUR)
    assert granted(petrel, period, now + HOUR) == 45_000
    cancel(30_000, now + HOUR)
    use(petrel, 25_000, now + HOUR)  # it ran, and gave back 5,000
    take_due(now=now + 2 * HOUR)
    assert granted(petrel, period, now + 2 * HOUR) == 40_000
    by_hand(petrel, 50_000, now + 3 * HOUR)
    take_due(now=now + 4 * HOUR)
    assert granted(petrel, period, now + 4 * HOUR) == 90_000


def test_no_more_than_was_due_is_taken_in_all(petrel, period) -> None:
    """Less was due than is free once the job is gone."""
    made = make_checkpoint(
        period, T0 + QUARTER, [(99, 80)], measured="granted", removed_of="remaining"
    )
    assert services.place_hold(job=make_job(petrel), amount_mgpus=30_000 * CREDIT, now=T0).funded
    assert carry_out(made) == {"petrel": 70_000}
    cancel(30_000, made.at + HOUR)
    for days in (1, 2):
        take_due(now=made.at + days * DAY)
        assert granted(petrel, period, made.at + days * DAY) == 20_000


def test_who_divides_a_project_afterwards_keeps_nothing_of_what_comes_free(
    petrel, science, period, short
) -> None:
    now = short.at + DAY
    inner = make_budget("inner", parent=petrel)
    make_shares(petrel, {inner: 100_000}, at=now)
    services.grant(
        budget=inner, amount_mgpus=33_000 * CREDIT, author=someone(), note="all but 7,000 of its",
        key="inner", now=now,
    )  # fmt: skip
    cancel(13_000, now + HOUR)
    for hours in (1, 2):
        take_due(now=now + hours * HOUR)
        later = now + hours * HOUR
        assert [granted(one, period, later) for one in (petrel, inner)] == [27_000, 27_000]
        assert reserve(science, period, later) == 73_000
    short.refresh_from_db()
    assert taken_since(short) == {petrel.pk: 13_000 * CREDIT}
    start = f"transfer:takeback:{short.pk}:{petrel.pk}:rest:1"
    assert {key: amount for key, amount in transfers() if ":rest:" in key} == {
        f"{start}:{petrel.pk}": -7_000 * CREDIT,
        f"{start}:from:{inner.pk}:{inner.pk}": -6_000 * CREDIT,
        f"{start}:from:{inner.pk}:{petrel.pk}": -6_000 * CREDIT,
    }
    cancel(17_000, now + 3 * HOUR)
    take_due(now=now + 4 * HOUR)
    assert taken_since(short) == {petrel.pk: 30_000 * CREDIT}


def test_what_comes_free_in_an_archived_part_of_a_project_stops_no_checkpoint(
    petrel, period
) -> None:
    checkpoint = make_checkpoint(period, T0 + 2 * QUARTER, NREL)
    at = checkpoint.at - DAY
    inner, other = (make_budget(slug, parent=petrel) for slug in ("inner", "other"))
    make_shares(petrel, {inner: 50_000, other: 50_000}, at=at)
    services.transfer(
        source=petrel, target=inner, amount_mgpus=70_000 * CREDIT, author=someone(), note="n",
        key="inner", now=at,
    )  # fmt: skip
    make_shares(petrel, {other: 100_000}, at=at + HOUR)
    assert carry_out(checkpoint) == {"petrel": 30_000}
    take_due(now=checkpoint.at + DAY)
    assert keeping.keep_checkpoints(at=checkpoint.at + 2 * DAY) == 0
    assert alarm() is None


def test_the_next_checkpoint_counts_it_and_ends_it(petrel, period, short) -> None:
    """What the second finds due stands for what the first was short of."""
    second = make_checkpoint(period, short.at + 10 * DAY, [(1, 1)])
    cancel(10_000, short.at + DAY)
    take_due(now=short.at + 2 * DAY)
    (loss,) = [one for one in losses(checkpoint=second, now=second.at) if one.budget == petrel]
    assert loss.case.taken == 70_000 * CREDIT
    assert carry_out(second) == {}
    cancel(20_000, second.at + DAY)
    take_due(now=second.at + 2 * DAY)
    assert granted(petrel, period, second.at + 2 * DAY) == 30_000


# --- After a move ---------------------------------------------------------------------------------


def test_what_a_moved_budget_spent_is_no_reserve_to_give_back_from(tree, petrel, science) -> None:
    period, auk = make_period(), tree["orlo/science/auk"]
    give(petrel, 100_000, period)
    give(auk, 20_000, period)
    first, second = (make_checkpoint(period, T0 + n * QUARTER, **AGES) for n in (1, 2))
    use(petrel, 10_000, T0 + DAY)
    use(auk, 20_000, T0 + DAY)
    assert carry_out(first)["petrel"] == 15_000
    now = first.at + DAY
    steering.move_budget(
        budget=auk, to=tree["orlo/vision"], share=0, author=someone(), reason="r", now=now
    )
    # Of science's 120,000 auk has spent 20,000 and petrel has 85,000; all that is left leaves.
    assert reserve(science, period, now) == 15_000
    services.transfer(
        source=science, target=tree["orlo"], amount_mgpus=15_000 * CREDIT, author=someone(),
        note="n", key="z", now=now,
    )  # fmt: skip
    use(petrel, 40_000, now)
    assert carry_out(second) == {}
    (row,) = CheckpointResult.objects.filter(checkpoint=second, budget=petrel)
    assert (row.returned_mgpus, reserve(science, period, second.at + HOUR)) == (0, 0)


def test_of_a_divided_project_no_more_is_taken_than_its_reserve_has(tree, petrel) -> None:
    """A child that spent 10 and moved away has spent them out of no other's grant."""
    period = make_period()
    give(petrel, 100, period)
    made = make_checkpoint(period, T0 + 2 * QUARTER, [(100, 100)])
    at = made.at - 2 * DAY
    inner, other = (make_budget(slug, parent=petrel) for slug in ("inner", "other"))
    make_shares(petrel, {inner: 50_000, other: 50_000}, at=at)
    for budget, amount in ((inner, 10), (other, 50)):
        services.transfer(
            source=petrel, target=budget, amount_mgpus=amount * CREDIT, author=someone(),
            note="n", key=budget.slug, now=at,
        )  # fmt: skip
    use(inner, 10, at + HOUR)
    steering.move_budget(
        budget=inner, to=tree["orlo/vision"], share=0, author=someone(), reason="r", now=at + DAY
    )
    assert reserve(petrel, period, at + DAY) == 40
    # Half of 100 was planned to date, all of which is due: 40 of the reserve, 10 of the other.
    assert carry_out(made) == {"petrel": 50}
    now = made.at + HOUR
    assert (granted(petrel, period, now), granted(other, period, now)) == (50, 40)
    assert reserve(petrel, period, now) == 0


# --- One that can't be done -----------------------------------------------------------------------


def failing(real: Any, budget: Budget, error: Exception) -> Any:
    def act(**named: Any) -> Any:
        if named["source"] == budget:
            raise error
        return real(**named)

    return act


def alarm() -> str | None:
    found = Alarm.objects.filter(kind="checkpoints", cleared_at=None).first()
    return None if found is None else found.text


def test_a_budget_of_which_nothing_can_be_moved_holds_up_no_other(
    tree, petrel, science, monkeypatch
) -> None:
    period, auk = make_period(), tree["orlo/science/auk"]
    for budget in (petrel, auk):
        give(budget, 100, period)
    first = make_checkpoint(period, T0 + QUARTER, [(100, 100)])
    later = make_checkpoint(period, first.at + 5 * DAY, [(100, 100)])
    make_role(make_user("lead"), auk, "manager")
    charged_until(first.at)
    bad = failing(transfer, petrel, LedgerError("no."))
    with monkeypatch.context() as patch:
        patch.setattr(takeback, "transfer", bad)
        patch.setattr(takeback_rests, "transfer", bad)
        keeping.keep_checkpoints(at=first.at + HOUR)
        assert alarm() == (
            f"orlo/science/petrel at the checkpoint of {first.at:%-d %B %Y %H:%M} (UTC) stays as "
            "it is: no. What orlo/science/petrel is due to orlo/science stays: no."
        )
    first.refresh_from_db()
    assert first.done_at is not None
    assert taken(first) == {"auk": 25}
    # The next was told all the same, and what is due is taken once it can be.
    assert Notice.objects.filter(key__startswith=f"checkpoint:{later.pk}:").exists()
    keeping.keep_checkpoints(at=first.at + DAY)
    assert (alarm(), granted(petrel, period, first.at + DAY)) == (None, 75)


def test_what_cannot_be_given_back_is_tried_again_until_it_is(
    tree, petrel, science, period, monkeypatch
) -> None:
    auk = tree["orlo/science/auk"]
    make_role(lead := make_user("lead"), petrel, "manager")
    make_role(manager := make_user("manager"), science, "manager")
    give(auk, 100, period)
    first, second = (make_checkpoint(period, T0 + n * QUARTER, **AGES) for n in (1, 2))
    use(petrel, 10_000, T0 + DAY)
    carry_out(first)
    use(petrel, 40_000, first.at + DAY)
    use(auk, 50, first.at + DAY)
    charged_until(second.at)
    real = transfer

    def bad(**named: Any) -> Any:
        if named["target"] == petrel:
            raise LedgerError("no.")
        return real(**named)

    with monkeypatch.context() as patch:
        patch.setattr(takeback, "transfer", bad)
        for hours in (1, 2):
            keeping.keep_checkpoints(at=second.at + hours * HOUR)
            stays = "What orlo/science/petrel is to get back from orlo/science stays there: no."
            assert str(alarm()).endswith(stays)
    second.refresh_from_db()
    assert second.done_at == second.at + HOUR
    assert granted(petrel, period, second.at + 2 * HOUR) == 85_000
    assert dict(second.results.values_list("budget__slug", "returned_mgpus")) == {
        "auk": 25 * CREDIT,
        "tern": 0,
    }
    for hours in (3, 4):
        keeping.keep_checkpoints(at=second.at + hours * HOUR)
        assert (alarm(), granted(petrel, period, second.at + hours * HOUR)) == (None, 100_000)
    assert second.results.get(budget=petrel).returned_mgpus == 15_000 * CREDIT
    key = f"transfer:takeback:{second.pk}:{petrel.pk}:{petrel.pk}"
    assert Entry.objects.get(key=key).amount_mgpus == 15_000 * CREDIT
    told = [Notice.objects.filter(user=user).latest("pk").text for user in (lead, manager)]
    assert "got back 15,000.00 credits" in told[0]
    assert told[1].endswith("petrel 15,000.00.")
    problems = reports.entry_problems(start=T0, end=second.at)
    assert {one.rule for one in problems} <= {"gap"}


def test_what_goes_back_waits_for_what_is_to_be_taken_for_it(
    tree, petrel, science, period, monkeypatch
) -> None:
    """All in the reserve was given to auk, whose take-back is stuck: petrel's is out of that."""
    auk = tree["orlo/science/auk"]
    give(auk, 100, period)
    first, second = (make_checkpoint(period, T0 + n * QUARTER, **AGES) for n in (1, 2))
    use(petrel, 10_000, T0 + DAY)
    carry_out(first)
    services.transfer(
        source=science, target=auk, amount_mgpus=15_025 * CREDIT, author=someone(), note="n",
        key="auk", now=first.at + HOUR,
    )  # fmt: skip
    use(petrel, 40_000, first.at + DAY)
    charged_until(second.at)
    bad = failing(transfer, auk, LedgerError("no."))
    with monkeypatch.context() as patch:
        patch.setattr(takeback, "transfer", bad)
        patch.setattr(takeback_rests, "transfer", bad)
        keeping.keep_checkpoints(at=second.at + HOUR)
    assert not second.results.filter(budget=petrel).exists()
    due = second.results.get(budget=auk).due_mgpus
    assert 0 < due < 15_000 * CREDIT
    keeping.keep_checkpoints(at=second.at + 2 * HOUR)
    assert alarm() is None
    assert second.results.get(budget=petrel).returned_mgpus == due


def test_a_checkpoint_that_fails_keeps_the_period_in_order_and_nothing_else_waiting(
    tree, petrel, monkeypatch
) -> None:
    over = make_period("over", starts_at=T0 - QUARTER, ends_at=T0, status="closed")
    period = make_period()
    give(petrel, 100, period)
    old = make_checkpoint(over, T0 - DAY, [(100, 100)])
    first, second, ahead = (
        make_checkpoint(period, T0 + QUARTER + n * DAY, [(100, 100)]) for n in (0, 1, 8)
    )
    make_role(make_user("lead"), petrel, "manager")
    charged_until(second.at)
    real = losses

    def fail(*, checkpoint: Checkpoint, now: datetime) -> Any:
        if checkpoint == first:
            raise ZeroDivisionError
        return real(checkpoint=checkpoint, now=now)

    with monkeypatch.context() as patch:
        patch.setattr(takeback, "losses", fail)
        keeping.keep_checkpoints(at=second.at + HOUR)
    assert "can't be carried out (ZeroDivisionError): the log says why." in str(alarm())
    done = Checkpoint.objects.exclude(done_at=None)
    assert set(done) == {old}
    assert Notice.objects.filter(key__startswith=f"checkpoint:{ahead.pk}:").exists()
    keeping.keep_checkpoints(at=second.at + 2 * HOUR)
    assert alarm() is None
    assert set(done.all()) == {old, first, second}
