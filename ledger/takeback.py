"""Carrying out checkpoints: what is due goes back to the parents' reserves, once and in order."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from django.db import transaction

from budgets import checkpoints
from budgets.models import Checkpoint, CheckpointResult, Period
from budgets.one_by_one import Tries
from ledger.awards import KEY
from ledger.figures import closed_until
from ledger.grants import transfer
from ledger.instants import LedgerError, whole
from ledger.lock import lock_ledger
from ledger.losses import Loss, losses
from ledger.takeback_notices import note, tell_taken, when
from ledger.takeback_rests import newest_done, take_rests

Status = Period.Status


def take_due(*, now: datetime) -> list[Checkpoint]:
    """Carry out every checkpoint whose instant has passed, in order; return those carried out.

    One waits until all that ran before it is charged, so those after it wait too. One whose period
    is over by then, or never started, takes nothing: its grants are gone. What the newest could
    not take, since it was set aside, is taken too, as far as it is free by now, and what it could
    not give back is given back. Raises Stuck, once all else is done, where a checkpoint, or what it
    moves of one budget, can't be; later ones of the same period count what earlier ones took, so
    they wait for a checkpoint that can't be.
    """
    now, tries = whole(now, "now"), Tries(LedgerError)
    due = Checkpoint.objects.filter(done_at=None, at__lte=now).order_by("at", "pk")
    done, stuck = [], set()
    for one in due.select_related("period"):
        if one.period_id in stuck:
            continue
        what = f"The checkpoint of {when(one)} can't be carried out"
        carried_out = tries.go(what, partial(_carry_out, one.pk, tries, now))
        if carried_out:
            done.append(one)
        elif carried_out is None:
            stuck.add(one.period_id)
    tries.go("What checkpoints left can't be taken", partial(take_rests, now=now))
    tries.go("What is owed by checkpoints can't be given back", partial(_give_owed, tries, now))
    return tries.end(done)


@transaction.atomic
def _carry_out(pk: int, tries: Tries, now: datetime) -> bool:
    """Carry out one checkpoint; False if it has to wait, or another worker was quicker."""
    lock_ledger()
    rows = Checkpoint.objects.select_for_update(of=("self",)).select_related("period", "author")
    checkpoint = rows.filter(pk=pk, done_at=None).first()
    if checkpoint is None:
        return False
    if now < checkpoint.period.ends_at:
        if checkpoint.period.status != Status.ACTIVE or not _is_charged(checkpoint):
            return False
        _take(checkpoint, losses(checkpoint=checkpoint, now=now), tries, now)
    checkpoint.done_at = now
    checkpoint.save(update_fields=["done_at"])
    return True


def _is_charged(checkpoint: Checkpoint) -> bool:
    until = closed_until()
    return until is not None and until >= checkpoint.at


def _take(checkpoint: Checkpoint, found: Sequence[Loss], tries: Tries, now: datetime) -> None:
    moved = {}
    for loss in sorted(found, key=lambda one: one.back_mgpus > 0):  # what is taken can go back
        what = f"{loss.budget.path} at the checkpoint of {when(checkpoint)} stays as it is"
        moved[loss.budget] = tries.go(what, partial(_move, checkpoint, loss, now))
    # Who gets nothing back yet has no result yet either: that is how `_give_owed` knows.
    seen = [loss for loss in found if moved[loss.budget] or not loss.back_mgpus]
    _note_results(checkpoint, [moved[loss.budget] or loss.unmoved for loss in seen], now)


@transaction.atomic
def _give_owed(tries: Tries, now: datetime) -> int:
    """Give back what the newest checkpoint could not; return to how many budgets.

    As far as the reserve has it by now, but not while anything else is stuck that may add to it.
    """
    lock_ledger()
    if (checkpoint := newest_done(now)) is None or not (owed := _owed(checkpoint)):
        return 0
    given = []
    for loss in losses(checkpoint=checkpoint, now=now, only=owed):
        if tries.problems and loss.back_mgpus < loss.found.back:
            continue
        what = f"What {loss.budget.path} is to get back from {loss.parent.path} stays there"
        if (moved := tries.go(what, partial(_move, checkpoint, loss, now))) is not None:
            given.append(moved)
    _note_results(checkpoint, given, now)
    return len(given)


def _owed(checkpoint: Checkpoint) -> set[int]:
    """Return the ids of those that a checkpoint has looked at and has no result of."""
    if not checkpoint.gives_back or checkpoint.done_at is None:
        return set()
    known = checkpoint.results.values_list("budget_id", flat=True)
    return checkpoints.projects(checkpoint, now=checkpoint.done_at).keys() - set(known)


def _note_results(checkpoint: Checkpoint, found: Sequence[Loss], now: datetime) -> None:
    CheckpointResult.objects.bulk_create(
        CheckpointResult(
            checkpoint=checkpoint,
            budget=loss.budget,
            granted_mgpus=loss.granted_mgpus,
            used_mgpus=loss.used_mgpus,
            planned_mgpus=loss.planned_mgpus,
            due_mgpus=loss.due_mgpus,
            taken_mgpus=loss.amount_mgpus,
            returned_mgpus=loss.back_mgpus,
            spared=loss.spared,
        )
        for loss in found
    )
    tell_taken(checkpoint=checkpoint, taken=found, now=now)


@transaction.atomic
def _move(checkpoint: Checkpoint, loss: Loss, now: datetime) -> Loss:
    """Write what a checkpoint moves of one budget: what it takes, or what it gives back."""
    key = f"{KEY}:{checkpoint.pk}:{loss.budget.pk}"
    moves = [(source, loss.parent, amount) for source, amount in loss.taken_from]
    if loss.back_mgpus:
        moves = [(loss.parent, loss.budget, loss.back_mgpus)]
    for source, target, amount in moves:
        below = source not in (loss.budget, loss.parent)
        transfer(
            source=source,
            target=target,
            amount_mgpus=amount,
            author=checkpoint.author,
            note=note(checkpoint, loss),
            key=f"{key}:from:{source.pk}" if below else key,
            now=now,
        )
    return loss
