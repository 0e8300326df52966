"""How budgets say no: sentences for people, by field, and what a stale base carries."""

from budgets.models import Budget, ChangeSet
from clusters.refusals import Refused, check_instant

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
            f"The shares of {parent.path} are at version {self.theirs} now, but yours start from "
            f"version {mine}: look at what was changed and base yours on version {self.theirs}."
        )


def percent(thousandths: int) -> str:
    """Return thousandths of a percent as people read them: 33333 → '33.333 %'."""
    sign = "-" if thousandths < 0 else ""
    whole, rest = divmod(abs(thousandths), 1000)
    return f"{sign}{whole}.{rest:03d} %"


def credits(amount_mgpus: int) -> str:
    """Return an amount as people read it, in credits with two decimals: '1,234.50'."""
    sign = "-" if amount_mgpus < 0 else ""
    hundredths = (abs(amount_mgpus) * 100 + CREDIT // 2) // CREDIT
    return f"{sign}{hundredths // 100:,}.{hundredths % 100:02d}"
