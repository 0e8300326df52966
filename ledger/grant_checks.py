"""What must be true of grants and carry-over: each breach names budget, period and amounts."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from operator import or_

from django.db.models import Min, Q

from budgets.models import Budget, ChangeSet, Period
from ledger.carry_over import carried
from ledger.figures import Accounts, accounts, closed_until
from ledger.instants import from_seconds, iso, to_seconds
from ledger.membership import Membership
from ledger.models import Entry
from ledger.periods import before
from ledger.problems import EntryProblem, Kind, Problems
from ledger.running import Uncharged
from ledger.segments import STARTED
from ledger.share_changes import last_move, unlike_shares, unreadable_keys


def grant_problems() -> Problems:
    """Yield every breach of what budgets were granted in periods that have started."""
    paths = dict(Budget.objects.values_list("pk", "path"))
    for period in Period.objects.filter(status__in=STARTED).order_by("starts_at", "pk"):
        yield from granted_unlike_shares(period, paths)
        yield from carried_unlike_unspent(period, paths)
        yield from granted_below_claims(period, paths)


def granted_unlike_shares(period: Period, paths: dict[int, str]) -> Problems:
    """A period's start granted what shares were worth, and each change of them what it is worth."""
    for at, budget_id, key in unreadable_keys(period):
        yield EntryProblem(
            "grant", f"{paths[budget_id]}, {period.name}, at {iso(at)}: {key} can't be read"
        )
    for at, budget_id, due, granted in unlike_shares(period):
        yield EntryProblem(
            "grant",
            f"{paths[budget_id]}, {period.name}, at {iso(at)}: granted {granted} mGPU-s, by the "
            f"shares in force {due}",
        )


def carried_unlike_unspent(period: Period, paths: dict[int, str]) -> Problems:
    """What was carried over is the part of what was unspent that the period's policy gives."""
    mine = Entry.objects.filter(period=period, kind=Kind.CARRY).order_by("pk")
    rows = list(mine.values_list("pk", "budget_id", "amount_mgpus"))
    previous = before(period)
    if not rows and (previous is None or not period.carry_over_cap):
        return
    written: dict[int, int] = {}
    for _, budget_id, amount in rows:
        written[budget_id] = written.get(budget_id, 0) + amount
    right = _carried(written, period, previous) if previous else {}
    for budget_id in sorted({*written, *right}):
        was, due = written.get(budget_id, 0), right.get(budget_id, 0)
        if was != due:
            yield EntryProblem(
                "carry",
                f"{paths[budget_id]}, {period.name}: carried over {was} mGPU-s, by the period's "
                f"policy {due}",
            )


def _carried(written: Mapping[int, int], period: Period, previous: Period) -> Mapping[int, int]:
    """Return what is to be carried over, by the tree that was in force when that was written.

    A period's start may have seen all of what was approved in its very second, or none, or what
    came before it: what fits best is what it saw.
    """
    by_start = (Q(key__startswith=f"{kind}:{period.pk}:") for kind in (Kind.GRANT, Kind.CARRY))
    mine = Entry.objects.filter(reduce(or_, by_start), period=period).order_by()
    first = mine.aggregate(pk=Min("pk"), at=Min("created_at"))
    sets = ChangeSet.objects.filter(status=ChangeSet.Status.APPROVED, effective_at=period.starts_at)
    later = sets.filter(decided_at__gte=first["at"] or period.starts_at)
    unseen = list(later.order_by("decided_at", "pk").values_list("pk", flat=True))
    return min(
        (
            carried(
                period=period,
                previous=previous,
                until=first["pk"],
                tree=Membership.load(without=unseen[seen:]),
            )
            for seen in range(len(unseen) + 1)
        ),
        key=lambda right: len(written.items() ^ right.items()),
    )


def granted_below_claims(period: Period, paths: dict[int, str]) -> Problems:
    """A budget has settled and set aside no more than it was granted, what is below it included."""
    found = accounts(period=period, at=_followed_until(period))
    set_aside = _with_what_runs(found, period)
    for budget_id in found.tree:
        granted, settled = found.granted[budget_id], found.settled[budget_id]
        if granted < settled + set_aside[budget_id]:
            yield EntryProblem(
                "granted",
                f"{paths[budget_id]}, {period.name}: granted {granted} mGPU-s, settled {settled} "
                f"and set aside {set_aside[budget_id]}",
            )


def _followed_until(period: Period) -> datetime:
    """Return up to when entries follow the tree: the last close, or the last move since.

    What is granted and held stands where it belongs by now, however early the last close was.
    """
    last = to_seconds(period.ends_at) - 1
    closed = closed_until()
    at = from_seconds(min(last, to_seconds(closed))) if closed else period.starts_at
    return max(at, period.starts_at, last_move(period) or period.starts_at)


def _with_what_runs(found: Accounts, period: Period) -> dict[int, int]:
    """Return all of each hold by budget: what of it has run stands where its budget stood then."""
    set_aside = defaultdict(int, found.held)
    uncharged = Uncharged(since=period.starts_at, until=from_seconds(found.at), tree=found.tree)
    for mine in uncharged.by_attempt(period):
        left = mine.hold_mgpus
        for start, ran in zip(uncharged.starts, mine.parts, strict=True):
            amount = min(left, ran)
            left -= amount
            for node in found.tree.chain(mine.budget_id, start):
                set_aside[node] += amount
    return set_aside
