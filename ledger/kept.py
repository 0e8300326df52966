"""How far a grant follows its share, and what a fall could not take.

A fall stops at what a budget has spent or set aside. What it should have taken and didn't is kept
by the budget and remembered, so that a later rise gives the same time only once: it is first set
against what is kept. One rule for what is written and what a preview says.
"""

from collections import defaultdict
from typing import NamedTuple

from budgets.models import Period
from ledger.models import Entry

# Keys of entries of 0 that say by how much what a budget keeps has changed:
# `grant:change:<change set>:<budget>:kept:<milli-GPU-seconds>`.
CHANGES, KEPT = "grant:change:", "kept"


class Step(NamedTuple):
    """What a grant moves by, and by how much what is kept changes with it; milli-GPU-seconds."""

    written: int
    kept: int


def step(*, due: int, free: int, kept: int) -> Step:
    """Return what a change of share moves. Pure.

    ``due`` is what the change is worth until the period ends, ``free`` granted − settled −
    in flight − held, ``kept`` what falls before could not take. Credits that came otherwise are
    never taken for what is kept: only a rise is less by it.
    """
    if due >= 0:
        paid = min(due, kept)
        return Step(due - paid, -paid)
    written = max(due, -max(0, free))
    return Step(written, written - due)


def giving_back(*, due: int, free: int, kept: int) -> Step:
    """Return the same for a budget that is archived: all that is free is its parent's again.

    What that is more than is due is set against what is kept.
    """
    written = -max(0, free)
    return Step(written, max(-kept, written - due))


def kept_in(period: Period) -> dict[int, int]:
    """Return what budgets keep in a period beyond their shares, by id, in milli-GPU-seconds."""
    marks = Entry.objects.filter(period=period, kind=Entry.Kind.GRANT, amount_mgpus=0)
    marks = marks.filter(key__startswith=CHANGES, key__contains=f":{KEPT}:").order_by()
    found: dict[int, int] = defaultdict(int)
    for key, budget_id in marks.values_list("key", "budget_id"):
        found[budget_id] += int(key.rpartition(":")[2])
    return {budget_id: amount for budget_id, amount in found.items() if amount}


def kept_by(key: str) -> int:
    """Return what a mark says that a budget keeps; 0 for other keys."""
    *_, what, number = key.split(":")
    return int(number) if what == KEPT and is_number(number) else 0


def is_number(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdigit()
