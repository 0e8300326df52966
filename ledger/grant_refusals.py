"""What entries given by people must keep: amounts, reasons, keys and periods."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Sum
from django.db.models.functions import Abs

from budgets.models import Budget, Period
from budgets.periods import active
from budgets.refusals import AMOUNT_MAX, SUM_MAX, credits
from clusters.saying import say as _
from ledger.instants import LedgerError, iso
from ledger.models import Entry

NOTE_MAX, KEY_MAX = 300, 120
DECIDED = (Entry.Kind.GRANT, Entry.Kind.CARRY, Entry.Kind.TRANSFER, Entry.Kind.ADJUST)


class KeyTaken(LedgerError):
    """The key was given for another decision before; nothing is written."""


class WrongNote(LedgerError):
    """The reason is missing, or is too long as it would stand beside the entry."""


def open_period(now: datetime) -> Period:
    """Return the active period; LedgerError where there is none."""
    period = active(now)
    if period is None:
        raise LedgerError(_("No period is active at %(now)s: start one first.", now=iso(now)))
    return period


def refuse_an_amount(amount: int) -> None:
    """Raise LedgerError for 0 and for more than the database's sums have room for."""
    if not 0 < abs(amount) <= AMOUNT_MAX:
        raise LedgerError(
            _("Give an amount other than 0, of at most %(most)s credits.", most=credits(AMOUNT_MAX))
        )


def refuse_a_sum_beyond(period: Period, amounts: Iterable[int]) -> None:
    """Raise LedgerError where all that was decided in a period would be more than sums can hold."""
    # By the index of a period's sums: a budget has thousands of charges to each of these.
    budgets = list(Budget.objects.values_list("pk", flat=True))
    rows = Entry.objects.filter(period=period, budget__in=budgets, kind__in=DECIDED).order_by()
    known = rows.aggregate(total=Sum(Abs("amount_mgpus")))["total"] or 0
    if known + sum(map(abs, amounts)) > SUM_MAX:
        raise LedgerError(
            _(
                "All that is granted, moved and adjusted in %(period)s, up and down and at "
                "every level, may come to %(most)s credits, and would come to more: give less.",
                period=period.name,
                most=credits(SUM_MAX),
            )
        )


def refuse_an_open_period(of: Period | None) -> None:
    """Raise LedgerError where a period that is corrected by name isn't closed."""
    if of is not None and of.status != Period.Status.CLOSED:
        raise LedgerError(_("%(of)s is not closed: correct it without naming it.", of=of.name))


def checked_note(note: str, prefix: str = "") -> str:
    """Return a reason as it stands beside an entry, after a prefix. Raises WrongNote."""
    if not note.strip():
        raise WrongNote(_("Give a reason: it stands beside the entry for good."))
    if len(whole_note := prefix + note.strip()) > NOTE_MAX:
        after = _(" with %(strip)s before it", strip=repr(prefix.strip())) if prefix else ""
        raise WrongNote(
            _(
                "The reason is longer than %(most)s characters%(after)s: shorten it.",
                most=NOTE_MAX,
                after=after,
            )
        )
    return whole_note


def check(note: str, amounts: Iterable[int], keys: Iterable[str]) -> None:
    checked_note(note)
    for amount in amounts:
        refuse_an_amount(amount)
    check_keys(keys)


def check_keys(keys: Iterable[str]) -> None:
    if any(len(key) > KEY_MAX for key in keys):
        raise LedgerError(_("The key is too long: give one of at most 90 characters."))
    if any(key != key.strip() for key in keys):
        raise LedgerError(_("The key ends in a blank: leave that out."))
