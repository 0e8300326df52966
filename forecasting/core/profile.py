"""A service's week: what its traffic does at which local hour, apart from how much there is of it.

Traffic is a series of rates (requests or tokens per second), one a step, on the clock of the
service's zone: a day with a clock change repeats an hour or skips one, as its users do. A gap is
None and says nothing; a rate of 0 says that nobody came.

Everything is learned from logarithms, y = log(rate + floor), so that a day of twice the traffic has
the same shape. From day d of level L_d (its median), by medians whose weights halve every
`HALF_LIFE_DAYS` days:

    of a slot  =  agreed · median over days of (y - L_d)
    own        =  agreed · n ÷ (n + SHRINK) · (median over the n days of that weekday - of a slot)
    weekday    =  agreed · median over those n days of (L_d - median of L_d-3 … L_d+3)
    shape      =  of a slot + own (means of three neighbouring slots) + weekday

Agreed is 1 - noise ÷ mean square of what was found, 0 at least: noise is the square of 1.4826 times
the median distance of days from it, ÷ n. A weekday counts once it was seen `LEAST_LIKE` times.
One holiday or launch among several like days moves no median. A day at less than an eighth of the
days around it is an outage and is left out, as are its hours where it lasted less.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

DAY_S = 24 * 3600
LEAST_STEP_S = 300
MOST_STEPS = 100_000  # a year of 5-minute steps
KEPT_DAYS = 56  # older traffic weighs a sixteenth and less: it is left out
HALF_LIFE_DAYS = 14
LEAST_LIKE = 3  # days of a weekday that tell it: of two, one odd one would be half of it
SHRINK = 2.0  # days of any weekday that weigh as much as one's own
EPOCH = date(1970, 1, 1).toordinal()
NORMAL = 1.4826  # standard deviations in a median distance, where errors are normal
OUTAGE = math.log(8)  # a fall to less than an eighth is one, until it lasts
FLOOR = 0.01  # of the median rate: below it two rates are alike
HIGHEST_RATE = 1e15


class DemandError(ValueError):
    """What can't be forecast from, as one sentence that says what to change."""


def finite(value: object, what: str, least: float, most: float = HIGHEST_RATE) -> float:
    """The number, or a sentence: no number, not finite, or out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise DemandError(f"{what} must be a number, not {value!r}.")
    if not math.isfinite(value) or not least <= value <= most:
        raise DemandError(f"{what} must lie between {least:g} and {most:g}, not at {value!r}.")
    return float(value)


def whole(value: object, what: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise DemandError(f"{what} must be a whole number from {least} to {most}, not {value!r}.")
    return value


@dataclass(frozen=True)
class Traffic:
    """Rates of a service, oldest first: one a step of `step_s` seconds, None where none is known.

    `start` is the first step's beginning (with an offset, whole seconds); `zone` names the clock
    that its users live by. A step is 5 minutes to an hour and divides the hour.
    """

    start: datetime
    step_s: int
    rates: tuple[float | None, ...]
    zone: str = "UTC"

    def __post_init__(self) -> None:
        whole(self.step_s, "A step of traffic, in seconds,", LEAST_STEP_S, 3600)
        if 3600 % self.step_s:
            raise DemandError(f"A step of traffic must divide an hour; {self.step_s} s do not.")
        if not isinstance(self.start, datetime) or self.start.utcoffset() is None:
            raise DemandError("The start of traffic must be an instant with an offset from UTC.")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            raise DemandError(
                f"There is no time zone {self.zone!r}: name one as Europe/Paris."
            ) from (None)
        if not 0 < len(self.rates) <= MOST_STEPS:
            raise DemandError(
                f"Traffic has 1 to {MOST_STEPS} steps, not {len(self.rates)}: give its newest."
            )
        self._check_rates()
        if all(rate is None for rate in self.rates):
            raise DemandError("Traffic must hold one known rate at least; all its steps are gaps.")
        object.__setattr__(self, "rates", tuple(self.rates))

    def _check_rates(self) -> None:
        """One look at all; only if something is wrong, one at each to name it."""
        if all(rate is None or type(rate) is float for rate in self.rates):
            known = self.values()
            known = known[~np.isnan(known)]
            gaps = sum(rate is None for rate in self.rates)
            sound = len(known) + gaps == len(self.rates)
            if sound and np.all((known >= 0) & (known <= HIGHEST_RATE)):
                return
        for n, rate in enumerate(self.rates):
            if rate is not None:
                finite(rate, f"The rate of step {n}", 0)

    @property
    def per_day(self) -> int:
        return DAY_S // self.step_s

    @property
    def end(self) -> datetime:
        """The instant after the last step: what is forecast begins there."""
        return self.start.astimezone(UTC) + timedelta(seconds=self.step_s * len(self.rates))

    def values(self) -> Floats:
        """Shape ``(steps,)``; a gap is NaN."""
        return np.array([math.nan if rate is None else rate for rate in self.rates], np.float64)

    def first(self, steps: int, days: int | None = None) -> "Traffic":
        """What was known after so many steps; only the newest days of it, if so many are named."""
        away = 0 if days is None else max(0, steps - days * self.per_day)
        start = self.start.astimezone(UTC) + timedelta(seconds=self.step_s * away)
        return Traffic(start, self.step_s, self.rates[away:steps], self.zone)

    def recent(self, days: int = KEPT_DAYS) -> "Traffic":
        """The newest days."""
        return self.first(len(self.rates), days)

    def coarser(self, step_s: int) -> "Traffic":
        """Peaks of longer steps (a multiple, at most an hour): what a timestep must be able to do.

        A longer step of gaps alone is a gap; steps at the end that fill none are left out.
        """
        whole(step_s, "A longer step, in seconds,", self.step_s, 3600)
        if step_s % self.step_s:
            raise DemandError(f"{step_s} s are no multiple of the traffic's {self.step_s} s.")
        each = step_s // self.step_s
        parts = [self.rates[n : n + each] for n in range(0, len(self.rates) - each + 1, each)]
        if not parts:
            raise DemandError(f"Traffic must fill one step of {step_s} s at least.")
        known = [[rate for rate in part if rate is not None] for part in parts]
        peaks = tuple(max(part) if part else None for part in known)
        return Traffic(self.start, step_s, peaks, self.zone)


def clock(start: datetime, step_s: int, steps: int, zone: str) -> tuple[Integers, Integers]:
    """Local day (ordinal) and slot in it, of each step: shape ``(steps,)`` each."""
    place = ZoneInfo(zone)
    at = int(start.timestamp()) + step_s * np.arange(steps, dtype=np.int64)
    # Clocks change on half hours of UTC: between two of them the offset stands.
    halves, of = np.unique(at // 1800, return_inverse=True)
    shifts = [datetime.fromtimestamp(int(half) * 1800, place).utcoffset() for half in halves]
    offsets = np.array([shift.total_seconds() if shift else 0 for shift in shifts], np.int64)
    days, seconds = np.divmod(at + offsets[of], DAY_S)
    return days + EPOCH, seconds // step_s


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """Of each column: shape ``(rows, columns)`` and ``(rows,)`` to ``(columns,)``; NaN is left out.

    The middle of the two where half of the weight lies on either side; NaN for an empty column.
    """
    if not len(values):
        return np.full(values.shape[1], np.nan)
    order = np.argsort(values, axis=0, kind="stable")  # NaN last
    ranked = np.take_along_axis(values, order, axis=0)
    weight = np.where(np.isnan(ranked), 0.0, weights[order])
    running = np.cumsum(weight, axis=0)
    half = running[-1] / 2
    near = 1e-9 * half
    low = np.argmax(running >= half - near, axis=0)
    high = np.argmax(running > half + near, axis=0)
    columns = np.arange(values.shape[1])
    middle: Floats = (ranked[low, columns] + ranked[high, columns]) / 2
    return np.where(half > 0, middle, np.nan)


@dataclass(frozen=True)
class Days:
    """Traffic by local day: `table` of shape ``(days, slots)`` holds y, NaN where none is known."""

    table: Floats
    weekdays: Integers  # (days,), Monday is 0
    weights: Floats  # (days,): of the newest 1
    levels: Floats  # (days,)

    @cached_property
    def around(self) -> Floats:
        """The median level of each day and the three on either side of it: shape ``(days,)``."""
        wide = np.concatenate(([math.nan] * 3, self.levels, [math.nan] * 3))
        windows = np.lib.stride_tricks.sliding_window_view(wide, 7)
        return weighted_median(windows.T, np.ones(7))

    def shape_of(self, weekday: int, without: int | None = None) -> Floats:
        """Shape ``(slots,)``: what that weekday adds to the level; `without` one day, if named."""
        others = np.arange(len(self.weights)) != (-1 if without is None else without)
        return self.within(weekday, others) + self._weekday(others, weekday)

    def within(self, weekday: int, others: Booleans) -> Floats:
        """Shape ``(slots,)``: what slots of that weekday add to its day's level, on other days."""
        known = others & ~np.isnan(self.levels)
        like = known & (self.weekdays == weekday)
        centred = self.table - self.levels[:, None]
        of_slot = np.nan_to_num(weighted_median(centred[known], self.weights[known]))
        if not np.any(known):
            return of_slot
        noise = np.nanmedian(np.abs(centred[known] - of_slot))
        within = (NORMAL * float(noise)) ** 2
        own = weighted_median(centred[like], self.weights[like]) - of_slot
        of_slot = of_slot * agreed(of_slot, within / np.sum(known))
        own = np.where(np.isnan(own), 0.0, own)
        count = int(np.sum(like))
        if count < LEAST_LIKE:
            own = np.zeros(len(own))
        else:
            own = own * agreed(own, within / count) * count / (count + SHRINK)
        return _smooth(of_slot + own)

    def _weekday(self, others: Booleans, weekday: int) -> float:
        """What a weekday's level is above the days around it, as far as weekdays agree on it."""
        above = self.levels - self.around
        use = others & ~np.isnan(above)
        groups = [np.flatnonzero(use & (self.weekdays == day)) for day in range(7)]
        own = groups[weekday]
        if len(own) < LEAST_LIKE:
            return 0.0
        middles = {
            day: float(np.median(above[group])) for day, group in enumerate(groups) if len(group)
        }
        apart = [
            np.abs(above[group] - middles[day]) * math.sqrt(len(group) / (len(group) - 1))
            for day, group in enumerate(groups)
            if len(group) > 1
        ]
        within = (NORMAL * float(np.median(np.concatenate(apart)))) ** 2
        share = agreed(np.array(list(middles.values())), within / len(own))
        return share * float(weighted_median(above[own, None], self.weights[own])[0])


def agreed(found: Floats, noise: float) -> float:
    """How much of the mean square of what was found is more than noise: 0 to 1."""
    square = float(np.mean(np.square(found)))
    return max(0.0, 1 - noise / square) if square else 0.0


def _smooth(slots: Floats) -> Floats:
    """Means of three neighbours: the ends have one neighbour in their own day."""
    wide = np.concatenate((slots[:1], slots, slots[-1:]))
    smoothed: Floats = (wide[:-2] + wide[1:-1] + wide[2:]) / 3
    return smoothed


def by_day(y: Floats, days: Integers, slots: Integers, per_day: int) -> Days:
    """Lay a series out by day. The hour that a clock change repeats counts by its mean."""
    first, count = int(days[0]), int(days[-1] - days[0]) + 1
    known = ~np.isnan(y)
    cells = (days - first) * per_day + slots
    total = np.bincount(cells[known], y[known], minlength=count * per_day)
    number = np.bincount(cells[known], minlength=count * per_day)
    table = np.where(number > 0, total / np.maximum(number, 1), np.nan).reshape(count, per_day)
    weekdays = (np.arange(first, first + count) + 6) % 7
    weights = 2.0 ** (-np.arange(count - 1, -1, -1) / HALF_LIFE_DAYS)
    levels = weighted_median(table.T, np.ones(per_day))
    rough = Days(table, weekdays, weights, levels)
    table[np.nan_to_num(levels - rough.around) < -OUTAGE] = np.nan  # a day of outage is no day
    centred = table - weighted_median(table.T, np.ones(per_day))[:, None]
    table[np.nan_to_num(centred - weighted_median(centred, weights)) < -OUTAGE] = np.nan
    rough = Days(table, weekdays, weights, weighted_median(table.T, np.ones(per_day)))
    # A day that is known in part has a level once its hours are compared with others' hours.
    every = np.ones(count, np.bool_)
    week = np.array([rough.within(weekday, every) for weekday in range(7)])
    return Days(
        table, weekdays, weights, weighted_median((table - week[weekdays]).T, np.ones(per_day))
    )


def week_of(found: Days) -> Floats:
    """The shape of a week: ``(7, slots)``."""
    return np.array([found.shape_of(weekday) for weekday in range(7)])


def floor_of(rates: Sequence[float] | Floats) -> float:
    """Added to every rate before its logarithm: a hundredth of the median of those above 0."""
    above = np.array([rate for rate in rates if rate > 0])
    return FLOOR * float(np.median(above)) if len(above) else 1.0
