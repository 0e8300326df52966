"""What a service will need: fitted nightly, forecast each timestep, as rates and as GPUs."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from .levels import Horizon, Known, fit, know, scale, seen
from .profile import (
    DemandError,
    Floats,
    Traffic,
    by_day,
    clock,
    finite,
    floor_of,
    week_of,
    whole,
)
from .ramps import Ramp, gpus_for, least_cycle, least_profile

VERSION = "weekly-1"
FURTHEST_DAYS = 7
CAPACITY = 0.99


@dataclass(frozen=True)
class Model:
    """A service's week and how its level moves, as its traffic up to `until` shows them."""

    week: Floats  # (7, slots): log
    floor: float
    horizons: tuple[Horizon, ...]
    step_s: int
    zone: str
    until: datetime


@dataclass(frozen=True)
class Ahead:
    """Rates of the steps after what is known: the median, and the quantile that was asked for."""

    start: datetime
    step_s: int
    median: tuple[float, ...]
    capacity: tuple[float, ...]
    quantile: float
    version: str = VERSION


def learn(traffic: Traffic) -> Model:
    """Fit a service's week and its level's moves to its newest `KEPT_DAYS` days."""
    recent = traffic.recent()
    rates = recent.values()
    floor = floor_of(rates)
    y = np.log(rates + floor)
    days, slots = clock(recent.start, recent.step_s, len(y), recent.zone)
    table = by_day(y, days, slots, recent.per_day)
    # A day is compared with the shape of other days, so that errors are those of days to come.
    others = np.array([table.shape_of(int(day), n) for n, day in enumerate(table.weekdays)])
    levels = y - others[days - days[0], slots]
    horizons = fit(know(levels, recent.per_day), recent.per_day)
    return Model(week_of(table), floor, horizons, recent.step_s, recent.zone, recent.end)


def ahead(model: Model, traffic: Traffic, steps: int, quantile: float = CAPACITY) -> Ahead:
    """Forecast the `steps` after `traffic`, which the model may have learned from in part.

    The newest week of it counts; it must reach back a day.
    """
    per_day = traffic.per_day
    whole(steps, "Steps to forecast", 1, FURTHEST_DAYS * per_day)
    finite(quantile, "A quantile", 0.5, 0.9999)
    if (traffic.step_s, traffic.zone) != (model.step_s, model.zone):
        raise DemandError("Traffic must have the step and the zone that the model was fitted to.")
    recent = traffic.recent(8)
    if len(recent.rates) < per_day:
        raise DemandError("A forecast needs the last day's traffic at least; give more of it.")
    y = np.log(recent.values() + model.floor)
    days, slots = clock(recent.start, recent.step_s, len(y) + steps, recent.zone)
    shape = model.week[(days + 6) % 7, slots]
    known = know(y - shape[: len(y)], per_day, last=True)
    median, margin = _levels(model, known, steps, per_day, quantile)
    rise = shape[len(y) :] + median
    likely, high = (_rates(log, model.floor) for log in (rise, rise + margin))
    return Ahead(recent.end, recent.step_s, likely, high, quantile)


def _rates(logs: Floats, floor: float) -> tuple[float, ...]:
    return tuple(np.maximum(np.exp(logs) - floor, 0.0).tolist())


def _levels(
    model: Model, known: Known, steps: int, per_day: int, quantile: float
) -> tuple[Floats, Floats]:
    """Medians of the level, and what the quantile adds; a line between fitted distances."""
    last = len(known.filled) - 1
    far = np.arange(1, steps + 1)
    same = last + (far - 1) % per_day + 1 - per_day
    inputs = seen(known, np.full(steps, -1), same)
    at = [horizon.steps for horizon in model.horizons]
    blends = np.stack([horizon.blend for horizon in model.horizons])
    blend = np.stack([np.interp(far, at, column) for column in blends.T], axis=1)
    units = [float(scale(known, distance, per_day)[-1]) for distance in at]
    pairs = list(zip(model.horizons, units, strict=True))
    middle, high = (
        np.interp(far, at, [horizon.quantile(share) * unit for horizon, unit in pairs])
        for share in (0.5, quantile)
    )
    median = known.base[-1] + np.sum(inputs * blend, axis=1) + middle
    return median, np.maximum(high - middle, 0.0)


def gpus_ahead(
    found: Ahead,
    *,
    per_gpu: float,
    cap: int | None,
    held: int | None = None,
    firm: int | None = None,
) -> Ramp:
    """The least GPUs that do the forecast's capacity and keep the swap cap from `held` on.

    `per_gpu` is the rate that one GPU was measured to do. In a timestep that is already settled
    nothing changes: ask for those after it. Only the first `firm` timesteps (all, if not named) are
    acted on before the next forecast: those have the capacity's quantile, later ones the median,
    so that a ramp starts early for what is likely and not for everything that might come.
    """
    known = len(found.capacity) if firm is None else whole(firm, "Firm timesteps", 1, 100_000)
    rates = (*found.capacity[:known], *found.median[known:])
    needs = [gpus_for(rate, per_gpu) for rate in rates]
    return least_profile(needs, cap, held)


def week_profile(
    model: Model, traffic: Traffic, *, per_gpu: float, cap: int | None, quantile: float = CAPACITY
) -> Ramp:
    """GPUs of each slot of the local week from Monday on, as a service's profile that repeats.

    The peak of a slot that a clock change repeats; the one that it skips is bridged.
    """
    found = ahead(model, traffic, 7 * traffic.per_day, quantile)
    days, slots = clock(found.start, found.step_s, len(found.capacity), traffic.zone)
    needs = [0] * (7 * traffic.per_day)
    for day, slot, rate in zip(days.tolist(), slots.tolist(), found.capacity, strict=True):
        place = (day + 6) % 7 * traffic.per_day + slot
        needs[place] = max(needs[place], gpus_for(rate, per_gpu))
    return least_cycle(needs, cap)
