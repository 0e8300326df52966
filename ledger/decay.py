"""How much older use counts in fair share: half as much for every half-life. Pure.

Ages are whole UTC hours and weights integers, so that sums are exact and the same everywhere.
"""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache

HOUR = 3600
ONE = 2**32  # the weight of what was used within the hour
DIGITS = 40


@dataclass(frozen=True, slots=True)
class Decay:
    """Weights of a window that ends at ``end`` (seconds since 1970). Half-life 0: all equal."""

    end: int
    half_life_hours: int

    def weight(self, at: int) -> int:
        """Return what a unit used at an instant counts for, in units of 1 / ONE."""
        if not self.half_life_hours:
            return ONE
        return weight_of(max(0, self.end // HOUR - at // HOUR), self.half_life_hours)

    def marks(self, start: int, end: int) -> list[int]:
        """Return the bounds of what counts alike in [start, end)."""
        if not self.half_life_hours:
            return [start, end]
        return [start, *range(start // HOUR * HOUR + HOUR, end, HOUR), end]


@cache
def weight_of(age_hours: int, half_life_hours: int) -> int:
    """Return ONE × 2^(−age ÷ half-life), rounded to the nearest; never 0, so that all use counts.

    In decimals: a float's power may differ from machine to machine.
    """
    halvings, rest = divmod(age_hours, half_life_hours)
    with localcontext() as context:
        context.prec = DIGITS
        part = Decimal(2) ** (Decimal(-rest) / half_life_hours)
        return max(1, int((ONE * part / 2**halvings).to_integral_value()))


def rounded_up(weighted: int) -> int:
    """Return a sum of amounts × weights in whole units; of a little there is always one."""
    return -(-weighted // ONE)
