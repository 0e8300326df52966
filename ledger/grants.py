"""Credits given by people: grants, transfers and adjustments. Each has an author and a note."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Sum
from django.db.models.functions import Abs

from budgets.access import EVERYTHING, Standing
from budgets.models import Budget, Period
from budgets.periods import active
from budgets.refusals import AMOUNT_MAX, SUM_MAX
from budgets.refusals import credits as credits
from ledger.entries import write
from ledger.figures import Accounts, accounts
from ledger.instants import LedgerError, iso, whole
from ledger.lock import lock_ledger
from ledger.membership import Membership
from ledger.models import Entry

NOTE_MAX, KEY_MAX = 300, 120
GRANTS, TRANSFERS, ADJUSTS = "grant:by-hand:", "transfer:", "adjust:"
CORRECTS = f"{ADJUSTS}of:"  # and the id of the closed period that an adjustment is about
# Entries of 0, beside a transfer's: `grant:way:<key>:<source>:<target>`. What it wrote follows from
# them, so that a half that is gone shows.
WAY = "grant:way:"
DECIDED = (Entry.Kind.GRANT, Entry.Kind.CARRY, Entry.Kind.TRANSFER, Entry.Kind.ADJUST)


class KeyTaken(LedgerError):
    """The key was given for another decision before; nothing is written."""


class WrongNote(LedgerError):
    """The reason is missing, or is too long as it would stand beside the entry."""


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
        raise LedgerError(f"The key {key!r} reads as if it named a closed period: give another.")
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
    _check_keys([way := f"{WAY}{key}:{source.pk}:{target.pk}"])
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
        raise LedgerError(f"{target.path} is archived: choose a budget that can spend.")
    if amount_mgpus <= 0:
        raise LedgerError("A transfer needs an amount above 0: swap the budgets to reverse it.")
    if source == target:
        raise LedgerError(f"{source.path} can't transfer to itself: choose another budget.")


def way_between(
    tree: Membership, source: Budget, target: Budget, amount: int, *, at: int
) -> dict[int, int]:
    """Return what each node on the way gets by a transfer, by budget id; ``at`` in seconds."""
    down, up = tree.chain(source.pk, at), tree.chain(target.pk, at)
    common = set(down) & set(up)
    if not common:
        raise LedgerError(f"{source.path} and {target.path} are in different organisations.")
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
            f"{source.path} has {credits(reserve)} credits in reserve, not {credits(amount)}: "
            "move less, or take it from one of the budgets below."
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
            f"Above this budget there are fewer than {credits(-falling[short[0]])} credits that "
            "are neither spent nor set aside: move less."
        )
    worst = min(seen, key=lambda node: (found.free(node) + falling[node], node))
    raise LedgerError(
        f"{paths[worst]} has {credits(max(0, found.free(worst)))} credits "
        f"that are neither spent nor set aside, not {credits(-falling[worst])}: move less."
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
    return KeyTaken(f"The key {key!r} stands for another decision: give a new one.")


def open_period(now: datetime) -> Period:
    """Return the active period; LedgerError where there is none."""
    period = active(now)
    if period is None:
        raise LedgerError(f"No period is active at {iso(now)}: start one first.")
    return period


def refuse_an_amount(amount: int) -> None:
    """Raise LedgerError for 0 and for more than the database's sums have room for."""
    if not 0 < abs(amount) <= AMOUNT_MAX:
        raise LedgerError(f"Give an amount other than 0, of at most {credits(AMOUNT_MAX)} credits.")


def refuse_a_sum_beyond(period: Period, amounts: Iterable[int]) -> None:
    """Raise LedgerError where all that was decided in a period would be more than sums can hold."""
    # By the index of a period's sums: a budget has thousands of charges to each of these.
    budgets = list(Budget.objects.values_list("pk", flat=True))
    rows = Entry.objects.filter(period=period, budget__in=budgets, kind__in=DECIDED).order_by()
    known = rows.aggregate(total=Sum(Abs("amount_mgpus")))["total"] or 0
    if known + sum(map(abs, amounts)) > SUM_MAX:
        raise LedgerError(
            f"All that is granted, moved and adjusted in {period.name}, up and down and at every "
            f"level, may come to {credits(SUM_MAX)} credits, and would come to more: give less."
        )


def refuse_an_open_period(of: Period | None) -> None:
    """Raise LedgerError where a period that is corrected by name isn't closed."""
    if of is not None and of.status != Period.Status.CLOSED:
        raise LedgerError(f"{of.name} is not closed: correct it without naming it.")


def checked_note(note: str, prefix: str = "") -> str:
    """Return a reason as it stands beside an entry, after a prefix. Raises WrongNote."""
    if not note.strip():
        raise WrongNote("Give a reason: it stands beside the entry for good.")
    if len(whole_note := prefix + note.strip()) > NOTE_MAX:
        after = f" with {prefix.strip()!r} before it" if prefix else ""
        raise WrongNote(f"The reason is longer than {NOTE_MAX} characters{after}: shorten it.")
    return whole_note


def _check(note: str, amounts: Iterable[int], keys: Iterable[str]) -> None:
    checked_note(note)
    for amount in amounts:
        refuse_an_amount(amount)
    _check_keys(keys)


def _check_keys(keys: Iterable[str]) -> None:
    if any(len(key) > KEY_MAX for key in keys):
        raise LedgerError("The key is too long: give one of at most 90 characters.")
    if any(key != key.strip() for key in keys):
        raise LedgerError("The key ends in a blank: leave that out.")


def _write(
    kind: Entry.Kind,
    period: Period,
    amounts: dict[int, int],
    keys: Iterable[str],
    author: User,
    note: str,
    now: datetime,
) -> list[Entry]:
    _check(note, amounts.values(), keys := list(keys))
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
