"""How budgets say no: sentences for people, by field, and what a stale base carries."""

from budgets.models import Budget, ChangeSet
from clusters.refusals import Refused, check_instant
from clusters.saying import Figure, hundredths, percent
from clusters.saying import say as _

__all__ = [
    "AMOUNT_MAX",
    "CREDIT",
    "SUM_MAX",
    "Refused",
    "StaleBase",
    "check_instant",
    "credits",
    "percent",
]

# Milli-GPU-seconds, of what the database's integers hold (9.2 × 10¹⁸): what one decision may move;
# and all that decisions move in a period, in and out, so that no sum of theirs is beyond it.
AMOUNT_MAX = 10**17
SUM_MAX = 4 * 10**18
CREDIT = 3_600_000  # milli-GPU-seconds: one GPU-hour at rate 1000 per mille


class StaleBase(Exception):
    """Another change set of the parent was approved since the one this was based on.

    `theirs` and `mine` are versions: of the newest approved set, and of the base of the refused
    one. Show both and ask again with `theirs` as the base.
    """

    def __init__(self, *, parent: Budget, theirs: ChangeSet | None, mine: int) -> None:
        self.parent = parent
        self.theirs = theirs.version if theirs else 0
        self.mine = mine
        super().__init__(
            _(
                "The shares of %(parent)s are at version %(theirs)s now, but yours start from "
                "version %(mine)s: look at what was changed and base yours on version %(theirs)s.",
                parent=parent.path,
                theirs=self.theirs,
                mine=mine,
            )
        )


def credits(amount_mgpus: int) -> Figure:
    """Return an amount as people read it, in credits with two decimals: '1,234.50'."""
    hundredth = CREDIT // 100
    rounded = (abs(amount_mgpus) + hundredth // 2) // hundredth
    return hundredths(-rounded if amount_mgpus < 0 else rounded)
