"""Credits given by people: grants, transfers and adjustments. Each has an author and a note."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from budgets.access import EVERYTHING, Standing
from budgets.models import Budget, Period
from budgets.refusals import credits as credits
from clusters.saying import say as _
from ledger.entries import write
from ledger.figures import Accounts, accounts
from ledger.grant_refusals import NOTE_MAX as NOTE_MAX
from ledger.grant_refusals import KeyTaken as KeyTaken
from ledger.grant_refusals import WrongNote as WrongNote
from ledger.grant_refusals import check, check_keys
from ledger.grant_refusals import checked_note as checked_note
from ledger.grant_refusals import open_period as open_period
from ledger.grant_refusals import refuse_a_sum_beyond as refuse_a_sum_beyond
from ledger.grant_refusals import refuse_an_amount as refuse_an_amount
from ledger.grant_refusals import refuse_an_open_period as refuse_an_open_period
from ledger.instants import LedgerError, whole
from ledger.lock import lock_ledger
from ledger.membership import Membership
from ledger.models import Entry

GRANTS, TRANSFERS, ADJUSTS = "grant:by-hand:", "transfer:", "adjust:"
CORRECTS = f"{ADJUSTS}of:"  # and the id of the closed period that an adjustment is about
# Entries of 0, beside a transfer's: `grant:way:<key>:<source>:<target>`. What it wrote follows from
# them, so that a half that is gone shows.
WAY = "grant:way:"


@dataclass(frozen=True, slots=True)
class Side:
    """What a transfer would do to one budget, in milli-GPU-seconds: pairs of before and after.

    ``moved`` is what its grant moves by: 0 for an ancestor whose reserve gives or takes.
    """

    budget_id: int
    moved: int
    granted: tuple[int, int]
    spendable: tuple[int, int]
    reserve: tuple[int, int]


@transaction.atomic
def grant(
    *, budget: Budget, amount_mgpus: int, author: User, note: str, key: str, now: datetime
) -> Entry:
    """Give a budget credits beyond its share, or take some back (negative), in the open period.

    ``key`` names the decision: repeated, it writes nothing and returns the same entry. A budget's
    granted never falls below what it has settled, in flight and held.
    """
    now = whole(now, "now")
    lock_ledger()
    unique = key_by_hand(Entry.Kind.GRANT, key)
    if (known := _known([unique])) is not None:
        return _same(known, {budget.pk: amount_mgpus}, key)[0]
    period = open_period(now)
    if amount_mgpus < 0:
        refuse_a_fall_below_claims(accounts(period=period, at=now), {budget.pk: amount_mgpus})
    return _write(Entry.Kind.GRANT, period, {budget.pk: amount_mgpus}, [unique], author, note, now)[
        0
    ]


@transaction.atomic
def adjust(
    *,
    budget: Budget,
    amount_mgpus: int,
    author: User,
    note: str,
    key: str,
    now: datetime,
    of: Period | None = None,
) -> Entry:
    """Correct what a budget has settled, up or down, by an entry of the open period.

    ``of`` is the closed period that is corrected, if one is: its statement stays as it is, and the
    entry is shown beside it.
    """
    now = whole(now, "now")
    lock_ledger()
    refuse_an_open_period(of)
    unique = key_by_hand(Entry.Kind.ADJUST, key, of)
    if (known := _known([unique])) is not None:
        return _same(known, {budget.pk: amount_mgpus}, key)[0]
    amounts = {budget.pk: amount_mgpus}
    return _write(Entry.Kind.ADJUST, open_period(now), amounts, [unique], author, note, now)[0]


def key_by_hand(kind: str, key: str, of: Period | None = None) -> str:
    """Return the unique key of what a grant or an adjustment writes for a caller's key.

    Raises LedgerError for one that would read as if it named a closed period.
    """
    if kind == Entry.Kind.GRANT:
        return f"{GRANTS}{key}"
    if of is not None:
        return f"{CORRECTS}{of.pk}:{key}"
    if corrected_period(unique := f"{ADJUSTS}{key}") is not None:
        raise LedgerError(
            _("The key %(key)s reads as if it named a closed period: give another.", key=repr(key))
        )
    return unique


def corrected_period(key: str) -> int | None:
    """Return the id of the closed period that an adjustment's key says it is about; else None."""
    period_id, colon, _ = key.removeprefix(CORRECTS).partition(":")
    named = key.startswith(CORRECTS) and colon and period_id.isdecimal()
    return int(period_id) if named else None


@transaction.atomic
def transfer(
    *,
    source: Budget,
    target: Budget,
    amount_mgpus: int,
    author: User,
    note: str,
    key: str,
    now: datetime,
) -> list[Entry]:
    """Move credits from one budget to another in the open period.

    Writes −amount on every node from the source and +amount on every node from the target up to,
    not including, their common ancestor, so that no ancestor's granted changes. Out of a budget
    with others below it they come out of its reserve. Refused where that has less, or a node's
    granted would fall below what it has settled, in flight and held. ``key`` as for a grant,
    wherever both budgets stand by the time it is repeated.
    """
    now = whole(now, "now")
    lock_ledger()
    if (known := _moved_before(source, target, amount_mgpus, key)) is not None:
        return known
    _refuse_a_nonsense(source, target, amount_mgpus)
    found = accounts(period=(period := open_period(now)), at=now)
    amounts = way_between(found.tree, source, target, amount_mgpus, at=found.at)
    keys = [f"{TRANSFERS}{key}:{budget_id}" for budget_id in amounts]
    _refuse_an_empty_reserve(found, source, amount_mgpus)
    refuse_a_fall_below_claims(found, amounts)
    check_keys([way := f"{WAY}{key}:{source.pk}:{target.pk}"])
    written = _write(Entry.Kind.TRANSFER, period, amounts, keys, author, note, now)
    write([_entry(Entry.Kind.GRANT, next(iter(amounts)), period, 0, way, author, note, now)])
    return written


def preview_transfer(
    *, source: Budget, target: Budget, amount_mgpus: int, now: datetime
) -> list[Side]:
    """Return what a transfer would do to the source, the target and what is between; unwritten.

    From the source up, then from the target up. Raises LedgerError where `transfer` would refuse.
    """
    now = whole(now, "now")
    _refuse_a_nonsense(source, target, amount_mgpus)
    found = accounts(period=(period := open_period(now)), at=now)
    amounts = way_between(found.tree, source, target, amount_mgpus, at=found.at)
    _refuse_an_empty_reserve(found, source, amount_mgpus)
    refuse_a_fall_below_claims(found, amounts)
    refuse_a_sum_beyond(period, amounts.values())
    ends = dict.fromkeys((source.pk, *amounts, target.pk))
    return [_side(found, budget_id, amounts) for budget_id in ends]


def _side(found: Accounts, budget_id: int, amounts: dict[int, int]) -> Side:
    moved, granted = amounts.get(budget_id, 0), found.granted[budget_id]
    above = found.tree.chain(budget_id, found.at)
    below = found.tree.children(budget_id, found.at)
    reserve = found.reserve(budget_id)
    after = min(found.free(node) + amounts.get(node, 0) for node in above)
    given = sum(amounts.get(child, 0) for child in below)
    return Side(
        budget_id=budget_id,
        moved=moved,
        granted=(granted, granted + moved),
        spendable=(found.spendable(budget_id), after),
        reserve=(reserve, reserve + moved - given),
    )


def _refuse_a_nonsense(source: Budget, target: Budget, amount_mgpus: int) -> None:
    if target.archived_at is not None:
        raise LedgerError(
            _("%(target)s is archived: choose a budget that can spend.", target=target.path)
        )
    if amount_mgpus <= 0:
        raise LedgerError(_("A transfer needs an amount above 0: swap the budgets to reverse it."))
    if source == target:
        raise LedgerError(
            _("%(source)s can't transfer to itself: choose another budget.", source=source.path)
        )


def way_between(
    tree: Membership, source: Budget, target: Budget, amount: int, *, at: int
) -> dict[int, int]:
    """Return what each node on the way gets by a transfer, by budget id; ``at`` in seconds."""
    down, up = tree.chain(source.pk, at), tree.chain(target.pk, at)
    common = set(down) & set(up)
    if not common:
        raise LedgerError(
            _(
                "%(source)s and %(target)s are in different organisations.",
                source=source.path,
                target=target.path,
            )
        )
    amounts = {node: -amount for node in down if node not in common}
    return amounts | {node: amount for node in up if node not in common}


def _refuse_an_empty_reserve(found: Accounts, source: Budget, amount: int) -> None:
    """A budget with others below it gives from its reserve, up as well as down, and no more.

    No other reserve falls by a transfer: what is between gives as much as it gets.
    """
    if not found.tree.children(source.pk, found.at):
        return
    reserve = max(0, found.reserve(source.pk))
    if amount > reserve:
        raise LedgerError(
            _(
                "%(source)s has %(reserve)s credits in reserve, not %(amount)s: move less, or "
                "take it from one of the budgets below.",
                source=source.path,
                reserve=credits(reserve),
                amount=credits(amount),
            )
        )


def refuse_a_fall_below_claims(
    found: Accounts, amounts: dict[int, int], *, held: Standing = EVERYTHING
) -> None:
    """Raise LedgerError, naming the node that binds, where granted would fall too low.

    Of nodes that the reader doesn't see it tells neither which nor how much they have.
    """
    falling = {node: amount for node, amount in amounts.items() if amount < 0}
    short = [node for node in falling if found.free(node) + falling[node] < 0]
    if not short:
        return
    paths = dict(Budget.objects.filter(pk__in=short).values_list("pk", "path"))
    seen = [node for node in short if held.sees(paths[node])]
    if not seen:
        raise LedgerError(
            _(
                "Above this budget there are fewer than %(falling)s credits that are neither "
                "spent nor set aside: move less.",
                falling=credits(-falling[short[0]]),
            )
        )
    worst = min(seen, key=lambda node: (found.free(node) + falling[node], node))
    raise LedgerError(
        _(
            "%(paths)s has %(value)s credits that are neither spent nor set aside, not "
            "%(falling)s: move less.",
            paths=paths[worst],
            value=credits(max(0, found.free(worst))),
            falling=credits(-falling[worst]),
        )
    )


def _known(keys: list[str]) -> list[Entry] | None:
    return list(Entry.objects.filter(key__in=keys).order_by("pk")) or None


def _same(known: list[Entry], amounts: dict[int, int], key: str) -> list[Entry]:
    """Return what an earlier call wrote; refuse a key that stood for something else."""
    if {entry.budget_id: entry.amount_mgpus for entry in known} != amounts:
        raise _taken(key)
    return known


def _moved_before(source: Budget, target: Budget, amount: int, key: str) -> list[Entry] | None:
    """Return what a transfer of the key wrote, if there was one; refuse another decision."""
    mine = f"{TRANSFERS}{key}:"
    halves = Entry.objects.filter(kind=Entry.Kind.TRANSFER, key__startswith=mine).order_by("pk")
    # A key may go on like another one: what follows it is one id, or two.
    known = [one for one in halves if one.key == f"{mine}{one.budget_id}"]
    if not known:
        return None
    way = f"{WAY}{key}:{source.pk}:{target.pk}"
    if abs(known[0].amount_mgpus) == amount and _known([way]):
        return known
    raise _taken(key)


def _taken(key: str) -> KeyTaken:
    return KeyTaken(
        _("The key %(key)s stands for another decision: give a new one.", key=repr(key))
    )


def _write(
    kind: Entry.Kind,
    period: Period,
    amounts: dict[int, int],
    keys: Iterable[str],
    author: User,
    note: str,
    now: datetime,
) -> list[Entry]:
    check(note, amounts.values(), keys := list(keys))
    refuse_a_sum_beyond(period, amounts.values())
    entries = [
        _entry(kind, budget_id, period, amount, key, author, note, now)
        for (budget_id, amount), key in zip(amounts.items(), keys, strict=True)
    ]
    write(entries)
    return _known(keys) or []


def _entry(
    kind: Entry.Kind,
    budget_id: int,
    period: Period,
    amount: int,
    key: str,
    author: User,
    note: str,
    now: datetime,
) -> Entry:
    return Entry(
        kind=kind,
        budget_id=budget_id,
        period=period,
        at=now,
        amount_mgpus=amount,
        author=author,
        note=note.strip(),
        key=key,
        created_at=now,
    )
