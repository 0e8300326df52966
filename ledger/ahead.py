"""What further days will come to, by those that were: a level that moves, and the days of the week.

Daily sums y, oldest first. A weekday's factor is the median of its days ÷ the mean of the seven
around each, drawn towards 1 as if two days more had said 1; it is known once there were two weeks.
The level follows the days ÷ their factors by exponential smoothing: each moves it by the gain α
times how far it was off, of which at most three usual steps from day to day count. Of four gains
the one counts that told the next seven days best. D days of level l and factors w come to

    likely = Σ l·w        low, high = likely ∓ 1.15 · t · s · √(Σ (1 + j·α)²), j = 0 … D − 1

which is where the sum lies four times out of five if the level wanders as it did (s: the root mean
square of the errors a day ahead; t: Student's). The 1.15 and the gains were set on backtests, which
docs/reports.md tells. Floats inside, whole milli-GPU-seconds out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median

LEAST_DAYS, MOST_DAYS, WEEK = 3, 42, 7
GAINS = (0.15, 0.25, 0.35, 0.5)
WIDER = 1.15
FURTHEST = 3.0  # usual steps from day to day that count of an error, at most
NEUTRAL = 2  # days that say 1 of a weekday
# 0.9 quantile of Student's t by degrees of freedom.
STUDENT = {2: 1.886, 3: 1.638, 4: 1.533, 5: 1.476, 6: 1.440, 8: 1.397, 12: 1.356, 18: 1.330}


@dataclass(frozen=True, slots=True)
class Pace:
    """How a budget burns: a level a day, factors of the days to come, and how sure that is."""

    level: float
    factors: tuple[float, ...]  # of the days from the next on, again after seven
    gain: float
    spread: float  # t · s · 1.15

    def sums(self, days: float) -> tuple[int, int, int]:
        """Low, likely and high of what so many days come to; never below nothing."""
        whole = math.floor(days)
        parts = [1.0] * whole + ([days - whole] if days > whole else [])
        total = self.level * sum(part * self.factors[j % WEEK] for j, part in enumerate(parts))
        variance = sum(part * (1 + j * self.gain) ** 2 for j, part in enumerate(parts))
        width = self.spread * math.sqrt(variance)
        return round(max(0.0, total - width)), round(total), round(total + width)


def pace(daily: Sequence[int]) -> Pace | None:
    """Learn from daily sums, oldest first, of which the newest 42 count; None with less than 3."""
    days = [float(one) for one in daily[-MOST_DAYS:]]
    if len(days) < LEAST_DAYS:
        return None
    factors = _factors(days)
    plain = [day / factors[i % WEEK] for i, day in enumerate(days)]
    usual = 1.4826 * median(abs(a - b) for a, b in pairwise(plain))
    followed = [_follow(plain, gain, usual) for gain in GAINS]
    best = min(followed, key=lambda one: (one.missed, one.gain))
    count = len(best.errors)
    square = sum(error * error for error in best.errors) / max(1, count - 1)
    told = max((freedom for freedom in STUDENT if freedom <= count - 1), default=2)
    turned = tuple(factors[(len(days) + j) % WEEK] for j in range(WEEK))
    return Pace(max(0.0, best.level), turned, best.gain, WIDER * STUDENT[told] * math.sqrt(square))


def _factors(days: Sequence[float]) -> list[float]:
    """Of the weekday of the first day, and the six after it; all 1 with less than two weeks."""
    if len(days) < 2 * WEEK:
        return [1.0] * WEEK
    around: list[list[float]] = [[] for _ in range(WEEK)]
    for i in range(3, len(days) - 3):
        mean = sum(days[i - 3 : i + 4]) / WEEK
        if mean > 0:
            around[i % WEEK].append(days[i] / mean)
    found = [
        (len(seen) * median(seen) + NEUTRAL) / (len(seen) + NEUTRAL) if seen else 1.0
        for seen in around
    ]
    mean = sum(found) / WEEK
    if mean <= 0:  # refunds beyond what was charged: no weekday tells
        return [1.0] * WEEK
    return [max(0.02, one / mean) for one in found]


@dataclass(frozen=True, slots=True)
class _Followed:
    gain: float
    level: float
    errors: Sequence[float]  # a day ahead
    missed: float  # mean square of what the next seven days were missed by


def _follow(days: Sequence[float], gain: float, usual: float) -> _Followed:
    level, number = float(median(days[:WEEK])), len(days)
    begun = LEAST_DAYS if number > WEEK else 0  # the first days are in the first level
    errors, levels = [], []
    for i, day in enumerate(days):
        error = day - level
        errors.append(error)
        if i >= WEEK:
            most = FURTHEST * max(usual, 0.05 * abs(level))
            level += gain * (most if error > most else -most if error < -most else error)
        else:
            level += max(gain, 1 / (i + 2)) * error
        levels.append(level)
    upto = list(accumulate(days, initial=0.0))
    judged = [
        (upto[i + 1 + WEEK] - upto[i + 1]) / WEEK - levels[i] for i in range(WEEK, number - WEEK)
    ]
    judged = judged if len(judged) >= WEEK else errors[begun:]
    missed = sum(one * one for one in judged) / len(judged)
    return _Followed(gain, level, errors[begun:], missed)
