"""How long a job will take, as a range, from few or many like jobs. Integers throughout.

A range is the 10th, 50th and 90th percentile of what like jobs took. Percentiles, not means, so
that one job that hung for a week moves nothing. A thin history says little, so it is blended with
a prior as if the prior were `STRENGTH` jobs more:

    p = (n · p_of_history + STRENGTH · p_of_prior) ÷ (n + STRENGTH), rounded half up

With a declared duration d the history is of *ratios* (what it took per mille of what was
declared) and the prior is d itself, from half of it to half as much again; so declarations that
always come true at 60 % are soon read as 60 %. `docs/forecasting.md` has worked tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass

VERSION = "quantiles-1"
STRENGTH = 4
LONGEST_S = 2**31 - 1  # what the database's integer holds
PER_MILLE = 1000
ENDLESS_S = 30 * 24 * 3600  # of a service, which has no end of its own: past every horizon


@dataclass(frozen=True)
class Range:
    """The 10th, 50th and 90th percentile, in seconds (or per mille): p10 ≤ p50 ≤ p90."""

    p10: int
    p50: int
    p90: int

    def __post_init__(self) -> None:
        if not 0 < self.p10 <= self.p50 <= self.p90 <= LONGEST_S:
            raise ValueError(f"A range must rise from above 0: {self.p10}, {self.p50}, {self.p90}.")


# A declared duration without any history: from half of it to half as much again.
DECLARED_PRIOR = Range(500, 1000, 1500)


def quantile(values: Sequence[int], per_mille: int) -> int:
    """Return a quantile (0 to 1000 per mille) of integers, between ranks by a straight line.

    The position is (n − 1) · per mille ÷ 1000, as in R's type 7; rounded half up.
    """
    if not values:
        raise ValueError("A quantile needs one value at least.")
    if not 0 <= per_mille <= PER_MILLE:
        raise ValueError(f"A quantile lies between 0 and 1000 per mille, not at {per_mille}.")
    ordered = sorted(values)
    rank, rest = divmod((len(ordered) - 1) * per_mille, PER_MILLE)
    low, high = ordered[rank], ordered[min(rank + 1, len(ordered) - 1)]
    return low + ((high - low) * rest + PER_MILLE // 2) // PER_MILLE


def from_history(history: Sequence[int], prior: Range, *, strength: int = STRENGTH) -> Range:
    """Return the range of a history, shrunk towards a prior; the prior itself without history."""
    if not history:
        return prior
    count = len(history)

    def blended(per_mille: int, of_prior: int) -> int:
        total = count + strength
        value = (count * quantile(history, per_mille) + strength * of_prior + total // 2) // total
        return min(max(value, 1), LONGEST_S)

    return Range(blended(100, prior.p10), blended(500, prior.p50), blended(900, prior.p90))


def from_declared(declared_s: int, ratios: Sequence[int], *, strength: int = STRENGTH) -> Range:
    """Return the range of a job whose duration was declared, in seconds.

    `ratios` are what like jobs took, per mille of what had been declared for them.
    """
    if declared_s <= 0:
        raise ValueError(f"A declared duration is above 0 s, not {declared_s}.")
    ratio = from_history(ratios, DECLARED_PRIOR, strength=strength)
    return Range(*(_part(declared_s, value) for value in (ratio.p10, ratio.p50, ratio.p90)))


def _part(seconds: int, per_mille: int) -> int:
    value = (seconds * per_mille + PER_MILLE // 2) // PER_MILLE
    return min(max(value, 1), LONGEST_S)
