"""Grants and adjustments by hand: what one would do, and writing it once, within what is free."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_noop

from budgets.access import EVERYTHING, Standing, standing
from budgets.models import Budget, Period
from budgets.refusals import AMOUNT_MAX, CREDIT, credits
from clusters.saying import joined
from clusters.saying import say as _
from ledger.figures import Accounts, accounts
from ledger.grants import (
    GRANTS,
    KeyTaken,
    adjust,
    checked_note,
    grant,
    key_by_hand,
    open_period,
    refuse_a_fall_below_claims,
    refuse_a_sum_beyond,
    refuse_an_amount,
    refuse_an_open_period,
)
from ledger.instants import LedgerError, to_seconds, whole
from ledger.lock import lock_ledger
from ledger.membership import Membership
from ledger.models import Entry
from ledger.segments import periods_in_force

# Seven decimals hold every amount that is a whole number of milli-GPU-seconds and ends: a credit
# is 2⁷ × 3² × 5⁵ of them.
TYPED = re.compile(r"([+-]?)([0-9]{1,11})(?:\.([0-9]{1,7}))?")
WRONG = gettext_noop("Give credits other than 0 as a decimal number, such as 250.5 or -12.25")

# Other adjustments correct the charges of a run that ended earlier than was known.
WRITTEN = Q(kind=Entry.Kind.GRANT, key__startswith=GRANTS) | Q(
    kind=Entry.Kind.ADJUST, author__isnull=False, run=None
)


class Kind(StrEnum):
    """What people write by hand: credits given or taken back; a correction of what is settled."""

    GRANT = "grant"
    ADJUST = "adjust"


@dataclass(frozen=True, slots=True)
class Change:
    """What an entry would do to a budget or an ancestor: pairs of before and after, in mGPU-s."""

    path: str
    granted: tuple[int, int]
    settled: tuple[int, int]
    spendable: tuple[int, int]
    reserve: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Effect:
    """What an entry would do: to the budget first, then to each ancestor that the reader sees.

    ``beyond`` is how much more than the parent's reserve a grant gives, in milli-GPU-seconds; None
    where the reader doesn't see the parent: a yes or no would tell its reserve to who asks often.
    """

    changes: tuple[Change, ...]
    beyond: int | None

    @property
    def goes_beyond(self) -> bool | None:
        """Whether it gives more than that; None likewise."""
        return None if self.beyond is None else self.beyond > 0


@dataclass(frozen=True, slots=True)
class Written:
    """The entry of a decision; ``anew`` unless its key had written it before."""

    entry: Entry
    anew: bool


def read_credits(text: str) -> int:
    """Return credits that were typed, exactly, in milli-GPU-seconds. Raises LedgerError."""
    found = TYPED.fullmatch(text.strip())
    if found is None:
        raise LedgerError(joined((_(WRONG), ".")))
    sign, before, after = found.group(1), found.group(2), found.group(3) or ""
    amount, rest = divmod(int(before + after) * CREDIT, 10 ** len(after))
    if rest:
        raise LedgerError(
            _("A credit has 3,600,000 parts and no smaller ones: give fewer decimals.")
        )
    if not 0 < amount <= AMOUNT_MAX:
        raise LedgerError(
            _("%(wrong)s, of at most %(most)s.", wrong=_(WRONG), most=credits(AMOUNT_MAX))
        )
    return -amount if sign == "-" else amount


@dataclass(frozen=True, slots=True)
class ByHand:
    """What somebody granted to a budget, or adjusted in it, by hand, in milli-GPU-seconds."""

    at: datetime
    kind: str
    budget: str  # its path of today
    amount_mgpus: int
    author: str
    reason: str


def by_hand_between(
    *, budget: Budget, start: datetime, end: datetime, tree: Membership
) -> tuple[ByHand, ...]:
    """Return what was written by hand in [start, end) to what stood below a budget then, in order.

    The adjustments of a report's interval are part of its corrections; the others are refunds.
    """
    ever = set().union(*(ids for *_, ids in tree.below(budget.pk, *map(to_seconds, (start, end)))))
    found = entries_by_hand(() if len(ever) == len(list(tree)) else ever)
    rows = found.filter(at__gte=start, at__lt=end).order_by("at", "pk")
    return tuple(
        ByHand(
            *(entry.at, entry.kind, entry.budget.path, entry.amount_mgpus),
            *(entry.author.username if entry.author else "", entry.note),
        )
        for entry in rows.select_related("budget", "author")
        if budget.pk in tree.chain(entry.budget_id, to_seconds(entry.at))
    )


def entries_by_hand(budget_ids: Collection[int] = ()) -> QuerySet[Entry]:
    """Return what people granted to budgets (none: to any) and adjusted in them by hand."""
    mine = Entry.objects.filter(WRITTEN, kind__in=(Entry.Kind.GRANT, Entry.Kind.ADJUST))
    if budget_ids:
        # By the index of a period's sums, and unordered: a budget has thousands of charges to each.
        mine = mine.filter(period__in=periods_in_force(), budget_id__in=budget_ids)
    return Entry.objects.filter(pk__in=list(mine.order_by().values_list("pk", flat=True)))


def note_by_hand(note: str, of: Period | None) -> str:
    """Return a reason as it is written, after the closed period's name. Raises WrongNote."""
    return checked_note(note, f"For {of.name}: " if of is not None else "")


def preview_by_hand(
    *,
    kind: Kind,
    budget: Budget,
    amount_mgpus: int,
    now: datetime,
    of: Period | None = None,
    held: Standing = EVERYTHING,
) -> Effect:
    """Return what an entry would do, unwritten, as far as who holds these roles may know it.

    They see the budget. Raises LedgerError where `write_by_hand` would.
    """
    now = whole(now, "now")
    _refuse_a_period(kind, of)
    found = accounts(period=(period := open_period(now)), at=now)
    _refuse(found, kind, budget, amount_mgpus, held)
    refuse_a_sum_beyond(period, [amount_mgpus])
    return _seen(_effect(found, kind, budget, amount_mgpus), held)


@transaction.atomic
def write_by_hand(
    *,
    kind: Kind,
    budget: Budget,
    amount_mgpus: int,
    author: User,
    note: str,
    key: str,
    now: datetime,
    of: Period | None = None,
) -> Written:
    """Write a grant or an adjustment in the open period, once for a key.

    Granted never falls below settled + in flight + held: of the budget, nor, by an adjustment, of
    its ancestors. ``of`` is the closed period that an adjustment corrects; its note says so.
    """
    now = whole(now, "now")
    lock_ledger()
    _refuse_a_period(kind, of)
    if (known := _known(key)) is not None:
        if (known.key, known.budget_id, known.amount_mgpus) != (
            key_by_hand(kind, key, of),
            budget.pk,
            amount_mgpus,
        ):
            raise KeyTaken(
                _("The key %(key)s stands for another decision: give a new one.", key=repr(key))
            )
        return Written(known, anew=False)
    found = accounts(period=open_period(now), at=now)
    _refuse(found, kind, budget, amount_mgpus, standing(author))
    if kind == Kind.GRANT:
        made = grant(
            budget=budget, amount_mgpus=amount_mgpus, author=author, note=note, key=key, now=now
        )
    else:
        made = adjust(
            budget=budget,
            amount_mgpus=amount_mgpus,
            author=author,
            note=note_by_hand(note, of),
            key=key,
            now=now,
            of=of,
        )
    return Written(made, anew=True)


def _refuse_a_period(kind: Kind, of: Period | None) -> None:
    if of is not None and kind != Kind.ADJUST:
        raise LedgerError(_("Only an adjustment is about a closed period: leave the period out."))
    refuse_an_open_period(of)


def _refuse(found: Accounts, kind: Kind, budget: Budget, amount: int, held: Standing) -> None:
    refuse_an_amount(amount)
    if kind == Kind.GRANT:
        if amount > 0 and budget.archived_at is not None:
            raise LedgerError(
                _("%(budget)s is archived: choose a budget that can spend.", budget=budget.path)
            )
        refuse_a_fall_below_claims(found, {budget.pk: amount})
    else:
        chain = found.tree.chain(budget.pk, found.at)
        refuse_a_fall_below_claims(found, dict.fromkeys(chain, -amount), held=held)


def _seen(effect: Effect, held: Standing) -> Effect:
    """Leave out what the reader may not know: ancestors out of sight, what a parent there has."""
    mine, *above = effect.changes
    known = not above or held.sees(above[0].path)
    return Effect(
        (mine, *(one for one in above if held.sees(one.path))),
        effect.beyond if known else None,
    )


def _effect(found: Accounts, kind: Kind, budget: Budget, amount: int) -> Effect:
    chain = found.tree.chain(budget.pk, found.at)
    given = amount if kind == Kind.GRANT else 0
    spent = amount - given
    # A grant is one budget's alone; what is settled counts in every ancestor too.
    free = {node: found.free(node) for node in chain}
    then = {node: free[node] + (given if node == budget.pk else 0) - spent for node in chain}
    paths = dict(Budget.objects.filter(pk__in=chain).values_list("pk", "path"))
    changes = []
    for place, node in enumerate(chain):
        own, reserve = given if place == 0 else 0, found.reserve(node)
        granted, settled = found.granted[node], found.settled[node]
        left = reserve + own - (given if place == 1 else 0)
        changes.append(
            Change(
                path=paths[node],
                granted=(granted, granted + own),
                settled=(settled, settled + spent),
                spendable=(
                    min(free[one] for one in chain[place:]),
                    min(then[one] for one in chain[place:]),
                ),
                reserve=(reserve, left),
            )
        )
    beyond = max(0, given - max(0, changes[1].reserve[0])) if len(changes) > 1 else 0
    return Effect(tuple(changes), beyond)


def _known(key: str) -> Entry | None:
    """Return what a key has written, whatever it was and whichever period it was about."""
    closed = Period.objects.filter(status=Period.Status.CLOSED)
    keys = [key_by_hand(kind, key) for kind in Kind]
    keys += [key_by_hand(Kind.ADJUST, key, one) for one in closed]
    return Entry.objects.filter(key__in=keys).first()
