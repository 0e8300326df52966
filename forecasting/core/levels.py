"""How much traffic there is, apart from its week: followed step by step, forecast hours ahead.

What the week's shape leaves, r = y - shape, is a level that drifts and bursts. Its forecast h steps
after the last known one is a blend of what is known then, all as differences from the 24-hour
median, so that twice the traffic is twice the forecast:

    r(t + h)  =  m24  +  b1 · (last - m24) + b2 · (1 h - m24) + b3 · (6 h - m24) + b4 · (7 d - m24)
                      +  b5 · (same time yesterday - m24)

(means of the last hour and the last 7 days, a median of the last 6 hours.) The b of each horizon
are a least squares fit to the history's own past, recent weeks weighing more; the errors that it
left there are the quantiles of what comes, in units of how restless the last
day was. A collapse to less than an eighth of the level is an outage, not a level: it is passed over
until it has lasted a day.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .profile import HALF_LIFE_DAYS, OUTAGE, DemandError, Floats, Integers

RIDGE = 0.02  # of the mean square of a fit's inputs: what keeps b of a short history small
CALM = 0.02  # the least restlessness: two per cent from step to step
LEAST_ERRORS = 30
NEAR_HOURS = 1


@dataclass(frozen=True)
class Known:
    """What is known after each step: ``(steps, inputs)``, the 24-hour median, restlessness.

    `filled` is the level with gaps and outages passed over; `target` has NaN there.
    """

    inputs: Floats
    base: Floats
    restless: Floats
    filled: Floats
    target: Floats


@dataclass(frozen=True)
class Horizon:
    """The blend for one distance, and its errors on history, in units of the restlessness then."""

    steps: int
    blend: Floats  # (inputs + 1,): the last is for the same time yesterday
    errors: Floats  # sorted
    weights: Floats  # of those, running sum that ends at 1

    def quantile(self, share: float) -> float:
        """The error that a share of the history's weight lies at or under."""
        place = int(np.searchsorted(self.weights, share - 1e-12))
        return float(self.errors[min(place, len(self.errors) - 1)])


def horizons_for(per_day: int) -> tuple[int, ...]:
    """Distances that are fitted, in steps: each about half as far again as the last, to a day."""
    hour = max(1, per_day // 24)
    near = {1, 2, 3, hour, 2 * hour, 3 * hour, 4 * hour, 6 * hour, 8 * hour, 12 * hour, 18 * hour}
    return tuple(sorted({*(steps for steps in near if steps < per_day), per_day}))


def know(levels: Floats, per_day: int, *, last: bool = False) -> Known:
    """What levels (NaN for gaps) let one know after each step, or after the last of them only."""
    filled, target = _pass_over(levels, per_day)
    hour, quarter = max(1, per_day // 24), per_day // 4
    base = _trailing(filled, per_day, "median", last)
    parts = (
        filled[-1:] if last else filled,
        _trailing(filled, hour, "mean", last),
        _trailing(filled, quarter, "median", last),
        _trailing(filled, 7 * per_day, "mean", last),
    )
    inputs = np.stack([part - base for part in parts], axis=1)
    moved = np.abs(np.diff(filled, prepend=filled[0]))
    restless = np.maximum(_trailing(moved, per_day, "mean", last), CALM)
    return Known(inputs, base, restless, filled, target)


def _pass_over(levels: Floats, per_day: int) -> tuple[Floats, Floats]:
    """The levels with gaps and outages filled by the last level before, and with NaN for them."""
    filled, target = levels.copy(), levels.copy()
    known = levels[~np.isnan(levels)]
    if not len(known):
        raise DemandError("Traffic must hold one known rate at least.")
    last = float(np.median(known[: max(1, per_day)]))
    low = 0
    for n, level in enumerate(levels.tolist()):
        low = low + 1 if level < last - OUTAGE else 0
        if math.isnan(level) or 0 < low <= per_day:
            filled[n], target[n] = last, math.nan
        else:
            # One burst doesn't make what follows it an outage.
            last = level if low else min(level, last + OUTAGE)
            filled[n], low = last, 0
    return filled, target


def _trailing(values: Floats, width: int, of: Literal["mean", "median"], last: bool) -> Floats:
    """Of each step and the `width - 1` before it, fewer at the start; or of the `last` only."""
    if last:
        newest = values[-width:]
        return np.array([np.median(newest) if of == "median" else np.mean(newest)])
    if of == "mean":
        total = np.concatenate(([0.0], np.cumsum(values)))
        ends = np.arange(1, len(values) + 1)
        starts = np.maximum(ends - width, 0)
        mean: Floats = (total[ends] - total[starts]) / (ends - starts)
        return mean
    early = [np.median(values[: n + 1]) for n in range(min(width - 1, len(values)))]
    if len(values) < width:
        return np.array(early)
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    return np.concatenate((np.array(early), np.median(windows, axis=1)))


def fit(known: Known, per_day: int) -> tuple[Horizon, ...]:
    """Fit every distance that the history has errors enough of; a history of two days has them."""
    found = [_fit(known, steps, per_day) for steps in horizons_for(per_day)]
    fitted = tuple(horizon for horizon in found if horizon is not None)
    if not fitted or fitted[-1].steps < per_day:
        raise DemandError("A forecast needs traffic of three days at least; give more of it.")
    return fitted


def _fit(known: Known, steps: int, per_day: int) -> Horizon | None:
    origins = np.arange(per_day, len(known.base) - steps)
    goals = origins + steps
    usable = ~np.isnan(known.target[goals])
    origins, goals = origins[usable], goals[usable]
    if len(origins) < LEAST_ERRORS:
        return None
    inputs = seen(known, origins, goals - per_day)
    above = known.target[goals] - known.base[origins]
    weights = 2.0 ** (-(len(known.base) - 1 - goals) / per_day / HALF_LIFE_DAYS)
    blend = _least_squares(inputs, above, weights / known.restless[origins] ** 2)
    errors = (above - inputs @ blend) / scale(known, steps, per_day)[origins]
    order = np.argsort(errors, kind="stable")
    running = np.cumsum(weights[order])
    return Horizon(steps, blend, errors[order], running / running[-1])


def scale(known: Known, steps: int, per_day: int) -> Floats:
    """The unit of errors: how restless the last day was, up to `NEAR_HOURS` ahead; 1 beyond."""
    near = steps <= max(1, NEAR_HOURS * per_day // 24)
    return known.restless if near else np.ones(len(known.restless))


def seen(known: Known, origins: Integers, yesterday: Integers) -> Floats:
    """Inputs of a blend: shape ``(origins, inputs + 1)``. -1 is the last origin."""
    same_time = known.filled[yesterday] - known.base[origins]
    return np.concatenate((known.inputs[origins], same_time[:, None]), axis=1)


def _least_squares(inputs: Floats, above: Floats, weights: Floats) -> Floats:
    """Ridge, reweighted three times after Huber: errors beyond 2 medians pull by their sign."""
    pull = np.ones(len(above))
    blend = np.zeros(inputs.shape[1])
    for _ in range(3):
        weighted = inputs * (weights * pull)[:, None]
        square = weighted.T @ inputs
        ridge = RIDGE * np.trace(square) / len(square) + 1e-9 * weights.sum()
        blend = np.linalg.solve(square + ridge * np.eye(len(square)), weighted.T @ above)
        errors = np.abs(above - inputs @ blend) * np.sqrt(weights)
        wide = 2 * max(float(np.median(errors)), 1e-9)
        pull = np.minimum(1.0, wide / np.maximum(errors, 1e-12))
    return blend
