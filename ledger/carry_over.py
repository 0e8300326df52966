"""What goes on into the next period: a part of what was granted and not spent, never decayed."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction

from django.db.models import QuerySet

from budgets.models import WHOLE, Period
from ledger.figures import GRANTED, SETTLES, Accounts, accounts
from ledger.instants import to_seconds
from ledger.membership import Membership
from ledger.models import Entry

SECOND = timedelta(seconds=1)


def carried(
    *, period: Period, previous: Period, until: int | None = None, tree: Membership | None = None
) -> dict[int, int]:
    """Return what each budget, subtree included, takes along, in milli-GPU-seconds by id.

    By the policy of ``period``, from all that ``previous`` granted and settled, whenever that was;
    0 for whoever spent it all, or more. As it was before the entry of id ``until`` was written.
    ``tree``: who stood under whom then, where that isn't what is known by now.
    """
    if not period.carry_over_cap:
        return {}
    last = previous.ends_at - SECOND
    found = accounts(period=previous, at=last, tree=tree)
    if until is not None:
        _leave_out(found, Entry.objects.filter(period=previous, pk__gte=until))
    unspent = {one: max(0, found.granted[one] - found.settled[one]) for one in found.tree}
    roots = {one: found.tree.chain(one, found.at)[-1] for one in found.tree}
    most = period.carry_over_max_mgpus
    amounts = capped(unspent, roots, cap=period.carry_over_cap, most=most)
    return moved(amounts, found.tree, since=found.at, at=to_seconds(period.starts_at))


def moved(amounts: Mapping[int, int], tree: Membership, *, since: int, at: int) -> dict[int, int]:
    """Return the same amounts where budgets stand at an instant, not where they did. Pure.

    Between two periods a budget may have moved. It takes along what was spendable where it stood,
    the least over it and its ancestors: each of those that it leaves has so much less, each of
    those that it joins so much more. One after another, the deepest first.
    """
    parents = {one: tree.parent(one, since) for one in tree}
    movers = [one for one in tree if parents[one] != tree.parent(one, at)]
    depth = {one: len(tree.chain(one, since)) for one in movers}
    found: dict[int, int] = defaultdict(int, amounts)
    for one in sorted(movers, key=lambda mover: (-depth[mover], mover)):
        old = _climb(one, parents)
        parents[one] = tree.parent(one, at)
        new = _climb(one, parents)
        found[one] = taken = min(found[node] for node in old)
        for node in old:
            found[node] -= 0 if node in new else taken
        for node in new:
            found[node] += 0 if node in old else taken
    return {one: amount for one, amount in sorted(found.items()) if amount}


def _climb(one: int, parents: Mapping[int, int | None]) -> list[int]:
    chain: list[int] = []
    node: int | None = one
    while node is not None and node not in chain:
        chain.append(node)
        node = parents[node]
    return chain


def _leave_out(found: Accounts, later: QuerySet[Entry]) -> None:
    rows = later.order_by().values_list("kind", "budget_id", "at", "amount_mgpus")
    for kind, budget_id, at, amount in rows.filter(kind__in=(*GRANTED, *SETTLES)):
        if kind in GRANTED:
            found.granted[budget_id] -= amount
        else:
            for node in found.tree.chain(budget_id, to_seconds(at)):
                found.settled[node] -= SETTLES[Entry.Kind(kind)] * amount


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
