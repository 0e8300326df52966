"""Change sets: the whole vector of one parent's children, drafted, proposed, decided.

Callers ask `budgets.access` first whether someone may; here is what may be done at all. Whatever
consumes the parent's 100 % happens under a lock on the parent's row; the database checks the sum
and the order again. After an approval the caller has the ledger write the grants it moves
(`ledger.services.apply_change_set`).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from budgets import shares as reads
from budgets.models import Budget, ChangeSet, Share
from budgets.refusals import Refused, StaleBase, check_instant
from budgets.shares import Vector
from budgets.vectors import check_names, check_sums, vector_from
from clusters.models import Pool
from clusters.saying import say as _
from clusters.saying import state

Status = ChangeSet.Status
OPEN = (Status.DRAFT, Status.PROPOSED)
REASON_MAX = 2000


def draft_change_set(
    *,
    parent: Budget,
    shares: Mapping[Budget, int],
    overrides: Mapping[tuple[Budget, Pool], int] | None = None,
    reason: str,
    author: User,
    base_version: int,
    effective_at: datetime,
    now: datetime,
) -> ChangeSet:
    """Write down new shares for all active children of a parent, in thousandths of a percent.

    `shares` names each child once, `overrides` a child's share in single pools. Raises Refused
    (names missing or unknown, a sum over 100 % in a pool, no reason) and StaleBase (another set
    was approved since version `base_version`).
    """
    with transaction.atomic():
        locked(parent)
        vector = vector_from(shares, overrides or {})
        base = reads.head(parent)
        check_base(parent, base, base_version)
        before = reads.vector_of(base)
        check_names(parent, vector, expected=set(before))
        return write_set(
            parent=parent,
            vector=vector,
            before=before,
            reason=reason,
            author=author,
            base=base,
            effective_at=effective_at,
            now=now,
        )


def checked_vector(
    *,
    parent: Budget,
    shares: Mapping[Budget, int],
    overrides: Mapping[tuple[Budget, Pool], int] | None = None,
) -> Vector:
    """Return the vector that a draft would have, to look at what it would do. Writes nothing.

    Raises Refused as a draft does: names missing or unknown, a sum over 100 % in a pool.
    """
    vector, before = vector_from(shares, overrides or {}), reads.vector_of(reads.head(parent))
    check_names(parent, vector, expected=set(before))
    check_sums(parent, vector, before=before)
    return vector


def propose(*, change_set: ChangeSet, now: datetime) -> ChangeSet:
    """Put a draft before the parent's manager."""
    check_instant(now, "now")
    _move(change_set, Status.PROPOSED, allowed=(Status.DRAFT,))
    return change_set


def decline(*, change_set: ChangeSet, by: User, now: datetime) -> ChangeSet:
    """Turn a draft or a proposal down, for good."""
    check_instant(now, "now")
    _move(change_set, Status.DECLINED, allowed=OPEN, decided_by=by, decided_at=now)
    return change_set


def approve(*, change_set: ChangeSet, by: User, now: datetime) -> ChangeSet:
    """Put a draft or a proposal in force, from its instant on but never before `now`.

    Raises StaleBase, and marks the set stale, if another was approved since its base. Open sets
    on a base that this one outdates become stale too.
    """
    check_instant(now, "now")
    with transaction.atomic():
        parent = locked(change_set.parent)
        change_set = ChangeSet.objects.select_for_update().get(pk=change_set.pk)
        if change_set.status not in OPEN:
            raise Refused("status", _not_open(change_set))
        newest = reads.head(parent)
        stale = change_set.version != (newest.version if newest else 0) + 1
        change_set.status = Status.STALE if stale else Status.APPROVED
        change_set.decided_by, change_set.decided_at = by, now
        if not stale:
            change_set.effective_at = max(change_set.effective_at, now)
            check_sums(parent, reads.vector_of(change_set), before=reads.vector_of(newest))
        change_set.save()
        outdated = ChangeSet.objects.filter(parent=parent, status__in=OPEN)
        outdated.filter(version__lte=change_set.version).update(status=Status.STALE)
    if stale:
        raise StaleBase(parent=parent, theirs=newest, mine=change_set.version - 1)
    return change_set


def set_shares(
    *,
    parent: Budget,
    shares: Mapping[Budget, int],
    overrides: Mapping[tuple[Budget, Pool], int] | None = None,
    reason: str,
    author: User,
    base_version: int,
    effective_at: datetime | None = None,
    now: datetime,
) -> ChangeSet:
    """Draft and approve in one, for someone who may; arguments and refusals as for the draft."""
    with transaction.atomic():
        change_set = draft_change_set(
            parent=parent,
            shares=shares,
            overrides=overrides,
            reason=reason,
            author=author,
            base_version=base_version,
            effective_at=effective_at or now,
            now=now,
        )
        return approve(change_set=change_set, by=author, now=now)


# --- Shared with budgets.structure --------------------------------------------------------------


def locked(budget: Budget) -> Budget:
    """Lock a budget's row until the transaction ends, and return it as it is now.

    SQLite has no row locks: there every transaction excludes all other writers from its start.
    ``no_key``: a tick writes rows that point at the budget while it holds the ledger's lock, for
    which whoever changes shares waits next.
    """
    return Budget.objects.select_for_update(no_key=True).get(pk=budget.pk)


def locked_all(budgets: Iterable[int]) -> dict[int, Budget]:
    """Lock several budgets' rows, by id, in one order for everyone; the organisation's the last.

    For its row, the ledger's lock, wait those who have locked one other budget's: who changes
    shares, and who submits. So whoever needs both has to come to it as they do.
    """
    rows = Budget.objects.select_for_update(no_key=True).filter(pk__in=set(budgets))
    below, top = rows.exclude(parent=None), rows.filter(parent=None)
    return {one.pk: one for some in (below, top) for one in some.order_by("-pk")}


def write_set(
    *,
    parent: Budget,
    vector: Vector,
    before: Vector,
    reason: str,
    author: User,
    base: ChangeSet | None,
    effective_at: datetime,
    now: datetime,
) -> ChangeSet:
    """Check a whole vector and write it as a draft. The caller holds the parent's lock."""
    check_instant(now, "now")
    check_instant(effective_at, "effective_at")
    if not reason.strip():
        raise Refused("reason", _("Say why: a change of shares needs a reason."))
    if len(reason) > REASON_MAX or "\0" in reason:
        raise Refused(
            "reason", _("Give a reason of at most %(most)s plain characters.", most=REASON_MAX)
        )
    check_sums(parent, vector, before=before)
    change_set = ChangeSet.objects.create(
        parent=parent,
        version=(base.version if base else 0) + 1,
        reason=reason.strip(),
        author=author,
        created_at=now,
        effective_at=effective_at,
    )
    Share.objects.bulk_create(
        Share(change_set=change_set, budget_id=child, pool_id=pool, thousandths=value)
        for child, values in vector.items()
        for pool, value in values.items()
    )
    return change_set


def check_base(parent: Budget, newest: ChangeSet | None, base_version: int) -> None:
    """Refuse a base that isn't the newest approved set of the parent."""
    if base_version != (newest.version if newest else 0):
        raise StaleBase(parent=parent, theirs=newest, mine=base_version)


def _move(
    change_set: ChangeSet, to: str, *, allowed: tuple[ChangeSet.Status, ...], **changes: object
) -> None:
    """Compare and set: of two deciders at once one succeeds."""
    row = ChangeSet.objects.filter(pk=change_set.pk, status__in=allowed)
    changed = row.update(status=to, **changes)
    change_set.refresh_from_db()
    if not changed:
        raise Refused("status", _not_open(change_set))


def _not_open(change_set: ChangeSet) -> str:
    return _(
        "This change set is %(state)s: write a new one.",
        state=state(change_set.get_status_display()),
    )
