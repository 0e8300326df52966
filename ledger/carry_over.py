"""What goes on into the next period: a part of what was granted and not spent, never decayed."""

from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction

from budgets.models import WHOLE, Period
from ledger.figures import accounts

SECOND = timedelta(seconds=1)


def carried(*, period: Period, previous: Period) -> dict[int, int]:
    """Return what each budget, subtree included, takes along, in milli-GPU-seconds by id.

    By the policy of ``period``, from all that ``previous`` granted and settled, whenever that was;
    0 for whoever spent it all, or more.
    """
    if not period.carry_over_cap:
        return {}
    last = previous.ends_at - SECOND
    found = accounts(period=previous, at=last)
    unspent = {one: max(0, found.granted[one] - found.settled[one]) for one in found.tree}
    roots = {one: found.tree.chain(one, found.at)[-1] for one in found.tree}
    most = period.carry_over_max_mgpus
    return capped(unspent, roots, cap=period.carry_over_cap, most=most)


def capped(
    unspent: Mapping[int, int], roots: Mapping[int, int], *, cap: int, most: int | None
) -> dict[int, int]:
    """Return ⌊unspent × part⌋ by budget, where it isn't 0. Pure.

    The part is ``cap`` thousandths of a percent, or less where the organisation (by ``roots``)
    would take along more than ``most``: then it is what gives it just that, for all alike.
    """
    amounts = {}
    for budget, left in unspent.items():
        part, whole = Fraction(cap, WHOLE), unspent[roots[budget]]
        if most is not None and whole:
            part = min(part, Fraction(most, whole))
        if amount := int(left * part):
            amounts[budget] = amount
    return amounts
