"""Checkpoints as they are written and removed, and whom they spare."""

from datetime import datetime
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from budgets import checkpoints
from budgets.models import WHOLE, Budget, Checkpoint, Exemption, Period
from budgets.refusals import Refused
from ledger import services
from ledger.losses import losses
from tests.factories import T0, T1, make_checkpoint, make_period, someone
from tests.ledger_world import CREDIT, give, give_alone
from tests.takeback_world import DAY, NREL, QUARTER, SECOND, carry_out, taken

pytestmark = pytest.mark.django_db


@pytest.fixture
def petrel(tree: dict[str, Budget]) -> Budget:
    return tree["orlo/science/petrel"]


@pytest.fixture
def period(petrel: Budget) -> Period:
    made = make_period()
    give(petrel, 100_000, made)
    return made


# --- Writing them ---------------------------------------------------------------------------------


def add(period: Period, **fields: Any) -> Checkpoint:
    given: dict[str, Any] = {
        "at": T0 + QUARTER,
        "measured": "planned",
        "removed_of": "planned",
        "cumulative": True,
        "steps": [(20_000, 80_000), (70_000, 20_000)],
        "author": someone(),
        "now": T0,
    }
    return checkpoints.add_checkpoint(period=period, **(given | fields))


def test_a_checkpoint_is_written_as_it_was_given(period) -> None:
    made = add(period, spared_days=60, own_plans=False, gives_back=True, initial_only=True)
    made.refresh_from_db()
    assert made.steps == [[20_000, 80_000], [70_000, 20_000]]
    assert (made.spared_days, made.own_plans, made.created_at) == (60, False, T0)
    assert (made.gives_back, made.initial_only) == (True, True)
    assert add(period, at=T0 + 7 * DAY, now=T0 - 30 * DAY).initial_only is False


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"at": T0}, "must lie inside 2026 Q4"),
        ({"at": T1}, "must lie inside 2026 Q4"),
        ({"at": T0 + 7 * DAY - SECOND}, "7 days at least"),
        ({"at": T0 + 7 * DAY - SECOND, "now": T0 - 30 * DAY}, "as many from the start of 2026 Q4"),
        ({"cumulative": False, "gives_back": True}, "Only what is counted in all is given back"),
        ({"measured": "spent"}, "Measure against planned or granted."),
        ({"removed_of": "all"}, "Remove of planned or remaining or unused."),
        ({"steps": [(20_000, 10_000), (30_000, 20_000)]}, "Order the steps"),
        ({"steps": [(0, WHOLE)]}, "above 0"),
        ({"spared_days": 367}, "0 to 366 days"),
    ],
)
def test_a_checkpoint_that_makes_no_sense_is_refused(period, fields, said) -> None:
    assert said in refusal(lambda: add(period, **fields))
    assert not Checkpoint.objects.exists()


def test_two_checkpoints_at_one_instant_are_refused(period) -> None:
    add(period)
    assert "already" in refusal(lambda: add(period))


def test_a_checkpoint_of_a_closed_period_is_refused(db) -> None:
    closed = make_period(status="closed")
    assert "is closed" in refusal(lambda: add(closed))


def test_a_checkpoint_can_be_removed_until_its_instant(petrel, period) -> None:
    made = add(period)
    exemption(made, petrel)
    checkpoints.remove_checkpoint(checkpoint=made, now=made.at - SECOND)
    assert not Checkpoint.objects.exists()
    kept = add(period)
    assert "is over" in refusal(lambda: checkpoints.remove_checkpoint(checkpoint=kept, now=kept.at))


def test_the_database_refuses_to_change_a_result(petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    carry_out(checkpoint)
    results = checkpoint.results.all()
    for change in (lambda: results.update(taken_mgpus=0), results.get(budget=petrel).delete):
        with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
            change()
    assert taken(checkpoint) == {"petrel": 20_000}


# --- Whom it spares -------------------------------------------------------------------------------


def exemption(checkpoint: Checkpoint, budget: Budget, **fields: Any) -> Exemption:
    return checkpoints.ask_exemption(
        checkpoint=checkpoint, budget=budget, reason="a new cluster", by=someone(), now=T0, **fields
    )


def decide(asked: Exemption, *, approve: bool = True, now: datetime = T0 + DAY) -> Exemption:
    return checkpoints.decide_exemption(
        exemption=asked, approve=approve, reason="agreed", by=someone(), now=now
    )


@pytest.mark.parametrize(
    ("answer", "lost"), [(True, {}), (False, {"petrel": 20_000}), (None, {"petrel": 20_000})]
)
def test_only_an_approved_exemption_spares(petrel, period, answer, lost) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    asked = exemption(checkpoint, petrel)
    if answer is not None:
        decide(asked, approve=answer)
    assert carry_out(checkpoint) == lost
    assert checkpoint.results.get(budget=petrel).spared == ("exempt" if answer else "")


def test_an_exemption_is_of_one_checkpoint(petrel, period) -> None:
    first, second = (make_checkpoint(period, T0 + n * QUARTER, NREL) for n in (1, 2))
    decide(exemption(first, petrel))
    assert carry_out(first) == {}
    assert carry_out(second) == {"petrel": 40_000}


def refusal(act: Any) -> str:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.sentence


def test_an_exemption_is_asked_and_decided_once_before_the_checkpoint(tree, petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    asked = exemption(checkpoint, petrel)
    assert "asked already" in refusal(lambda: exemption(checkpoint, petrel))
    late = refusal(lambda: decide(asked, now=checkpoint.at))
    assert late == "The checkpoint is over: ask for a transfer instead."
    decide(asked, approve=False)
    assert refusal(lambda: decide(asked)) == "The exemption is declined already."
    again = exemption(checkpoint, petrel)  # with a better reason
    decide(again)
    assert Exemption.objects.filter(status="approved").count() == 1
    said = refusal(
        lambda: checkpoints.ask_exemption(
            checkpoint=checkpoint, budget=petrel, reason="x", by=someone(), now=checkpoint.at
        )
    )
    assert said == late


def test_an_exemption_needs_a_project_and_reasons(tree, petrel, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    assert "is none" in refusal(lambda: exemption(checkpoint, tree["orlo/science"]))
    asked: dict[str, Any] = {"checkpoint": checkpoint, "budget": petrel, "by": someone(), "now": T0}
    for reason, said in ((" ", "Give a reason"), ("x" * 2001, "2000 characters")):
        assert said in refusal(lambda r=reason: checkpoints.ask_exemption(reason=r, **asked))
    one = exemption(checkpoint, petrel)
    empty = refusal(
        lambda: checkpoints.decide_exemption(
            exemption=one, approve=True, reason="", by=someone(), now=T0
        )
    )
    assert "Give a reason" in empty
    one.refresh_from_db()
    assert one.status == "asked"


def test_new_budgets_are_spared_for_as_long_as_it_says(tree, petrel, period) -> None:
    auk = tree["orlo/science/auk"]
    give_alone(tree["orlo/science"], 1, period)
    services.transfer(
        source=tree["orlo/science"], target=auk, amount_mgpus=CREDIT, author=someone(),
        note="a start", key="auk", now=T0 + 3 * DAY,
    )  # fmt: skip
    checkpoint = make_checkpoint(period, T0 + QUARTER, [(70, 80)], spared_days=23)
    found = {
        loss.budget.slug: loss.spared for loss in losses(checkpoint=checkpoint, now=T0 + 4 * DAY)
    }
    assert found == {"auk": "first granted less than 23 days before", "petrel": "", "tern": ""}
    assert carry_out(checkpoint) == {"petrel": 20_000}
