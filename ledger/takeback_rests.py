"""What a checkpoint could not take since it was set aside: taken once it is free again."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from django.db import transaction
from django.db.models import Count, F, QuerySet, Sum

from budgets import periods, shares
from budgets.models import Budget, Checkpoint, CheckpointResult
from budgets.one_by_one import Stuck, Tries
from ledger.awards import KEY, MARK
from ledger.divided import first_of, sources
from ledger.figures import GRANTED, accounts
from ledger.grants import transfer
from ledger.instants import LedgerError
from ledger.lock import lock_ledger
from ledger.models import Entry
from ledger.takeback_notices import rest_note, tell_rest


def take_rests(*, now: datetime) -> int:
    """Take what was due at the newest checkpoint and is free only now; return of how many budgets.

    Or jobs that are submitted before a checkpoint and cancelled after it would keep credits from
    it. Until the next checkpoint of the period, which looks at all of it anew. What a budget was
    given since is left alone. Raises Stuck, once all others are done, where one can't be.
    """
    newest = newest_done(now)
    if newest is None or not _short(newest).exists():
        return 0
    count, problems = _take(now)
    if problems:
        raise Stuck(count, problems)
    return count


@transaction.atomic
def _take(now: datetime) -> tuple[int, list[str]]:
    """Take what is free; return of how many budgets, and what could not be taken."""
    lock_ledger()
    if (checkpoint := newest_done(now)) is None:
        return 0, []
    rows, tree = list(_short(checkpoint)), shares.tree(at=now)
    looked_at = set(checkpoint.results.values_list("budget_id", flat=True))
    found = accounts(period=checkpoint.period, at=now)
    earlier, gained = _earlier(checkpoint, rows), _gained(checkpoint, rows)
    tries, count = Tries(LedgerError), 0
    for row in rows:
        number, taken = earlier.get(row.budget_id, (0, 0))
        free = [one for one in sources(found, row.budget_id, others=looked_at) if one[0] in tree]
        most = sum(amount for _, amount in free) - max(0, gained.get(row.budget_id, 0))
        amount = min(row.due_mgpus - row.taken_mgpus - taken, most)
        node = tree.get(row.budget_id)
        if amount <= 0 or node is None or node.parent_id is None:
            continue
        parent = tree[node.parent_id].budget
        what = f"What {row.budget.path} is due to {parent.path} stays"
        parts = [(tree[pk].budget, part) for pk, part in first_of(free, amount)]
        took = partial(_take_rest, checkpoint, row.budget, parent, parts, number + 1, now)
        count += tries.go(what, took) is not None
    return count, tries.problems


@transaction.atomic
def _take_rest(
    checkpoint: Checkpoint,
    budget: Budget,
    parent: Budget,
    parts: Sequence[tuple[Budget, int]],
    number: int,
    now: datetime,
) -> int:
    key = f"{KEY}:{checkpoint.pk}:{budget.pk}:rest:{number}"
    for source, part in parts:
        transfer(
            source=source,
            target=parent,
            amount_mgpus=part,
            author=checkpoint.author,
            note=rest_note(checkpoint),
            key=key if source == budget else f"{key}:from:{source.pk}",
            now=now,
        )
    amount = sum(part for _, part in parts)
    tell_rest(
        checkpoint=checkpoint,
        budget=budget,
        parent=parent,
        amount_mgpus=amount,
        key=key,
        now=now,
    )
    return amount


def taken_since(checkpoint: Checkpoint) -> Mapping[int, int]:
    """Return what was taken as it came free after a checkpoint, by budget id; milli-GPU-seconds."""
    rows = list(_short(checkpoint)) if checkpoint.done_at else []
    return {pk: total for pk, (_, total) in _earlier(checkpoint, rows).items()}


def newest_done(now: datetime) -> Checkpoint | None:
    """Return the checkpoint of the running period that was carried out last."""
    period = periods.active(now)
    if period is None:
        return None
    done = period.checkpoints.exclude(done_at=None).select_related("period", "author")
    return done.order_by("-at").first()


def _short(checkpoint: Checkpoint) -> QuerySet[CheckpointResult]:
    """Return of whom less was taken than was due."""
    rows = CheckpointResult.objects.filter(checkpoint=checkpoint, taken_mgpus__lt=F("due_mgpus"))
    return rows.select_related("budget").order_by("budget__path")


def _earlier(
    checkpoint: Checkpoint, rows: Sequence[CheckpointResult]
) -> Mapping[int, tuple[int, int]]:
    """Return how often a rest was taken already, and how much of it, by budget id."""
    mine = _entries(checkpoint, rows).filter(key__startswith=f"{MARK}{checkpoint.pk}:")
    sums = mine.filter(key__contains=":rest:").values("budget_id").order_by("budget_id")
    found = sums.annotate(number=Count("pk"), total=Sum("amount_mgpus"))
    return {row["budget_id"]: (row["number"], -row["total"]) for row in found}


def _gained(checkpoint: Checkpoint, rows: Sequence[CheckpointResult]) -> Mapping[int, int]:
    """Return what each budget was granted since the checkpoint was carried out, by budget id."""
    since = _entries(checkpoint, rows).filter(created_at__gte=checkpoint.done_at)
    others = since.exclude(key__startswith=MARK).values("budget_id").order_by("budget_id")
    return dict(others.annotate(total=Sum("amount_mgpus")).values_list("budget_id", "total"))


def _entries(checkpoint: Checkpoint, rows: Sequence[CheckpointResult]) -> QuerySet[Entry]:
    ids = [row.budget_id for row in rows]
    return Entry.objects.filter(period=checkpoint.period, budget__in=ids, kind__in=GRANTED)
