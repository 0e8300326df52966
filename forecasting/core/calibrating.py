"""A service's profile from its traffic, timestep by timestep: of a week, and of the next days.

A timestep needs the peak of the traffic's steps in it; a step longer than a timestep needs as much
in each. Needs are kept between the least and the most GPUs that the owner allows, and the least
profile above them that keeps the swap cap is what the allocator is handed, so that it is never
asked for a change that it may not make.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from .backtest import Score, needs, pinball, score
from .demand import VERSION, Ahead, Model, ahead, learn, week_profile
from .levels import Horizon
from .profile import DemandError, Traffic, finite, whole
from .ramps import MOST_GPUS, gpus_for, least_cycle, least_profile

ENOUGH_DAYS = 14  # of history, of which half the steps are known
HELD_OUT_DAYS = 3  # that a profile is tried on before it is put in force
FIRM = 3  # timesteps with the capacity's quantile: this one, the next, and the one after
NO_WORSE = 1.05  # times the loss of the profile in force, which may have seen the days before
SLACK = 0.05  # GPUs a timestep on top: what one GPU too many costs at the quantile 0.95


@dataclass(frozen=True)
class Terms:
    """What turns rates into GPUs of a service: a GPU's rate a second, bounds, swap cap."""

    per_gpu: float
    cap: int
    quantile: float
    least: int
    most: int
    timestep_s: int

    def __post_init__(self) -> None:
        finite(self.per_gpu, "The rate that one GPU does", 1e-9)
        finite(self.quantile, "A quantile", 0.5, 0.9999)
        whole(self.cap, "A swap cap", 1, MOST_GPUS)
        whole(self.most, "The most GPUs", 1, MOST_GPUS)
        whole(self.least, "The least GPUs", 0, self.most)

    def gpus(self, rate: float) -> int:
        """GPUs that a rate needs, within the bounds, however high it is."""
        if rate >= self.per_gpu * self.most:
            return self.most
        return max(self.least, min(self.most, gpus_for(rate, self.per_gpu)))


@dataclass(frozen=True)
class Tried:
    """How a profile did on days that it had not seen; shares of 1, loss in GPUs a timestep."""

    timesteps: int
    time_covered: float
    demand_covered: float
    over: float
    broken: int
    loss: float
    peak_over: float  # over-provision of reserving the peak of the days before

    def to_dict(self) -> dict[str, Any]:
        return {
            key: round(value, 6) if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }


def check_steps(step_s: int, timestep_s: int) -> None:
    """Refuse steps of traffic that neither fill a timestep nor are filled by several."""
    if timestep_s % step_s and step_s % timestep_s:
        raise DemandError(
            f"Traffic in steps of {step_s // 60} min can't be read by timesteps of "
            f"{timestep_s // 60} min: steps must fill a timestep, or be filled by several."
        )


def by_timestep(traffic: Traffic, timestep_s: int) -> Traffic:
    """Traffic with steps of a timestep, by its peaks, or of a multiple of one as it is."""
    check_steps(traffic.step_s, timestep_s)
    return traffic if traffic.step_s >= timestep_s else traffic.coarser(timestep_s)


def check_enough(*, days: float, known: int, of: int) -> None:
    """Refuse a history that is too short, or has too many gaps, to say what a week is like."""
    if days < ENOUGH_DAYS:
        raise DemandError(
            f"There are {days:.1f} days of traffic: a profile takes {ENOUGH_DAYS} days at least."
        )
    if known * 2 < of:
        raise DemandError(
            f"Of {days:.0f} days of traffic {of - known} of {of} steps are gaps: a profile takes "
            "half of them at least."
        )


def week(model: Model, traffic: Traffic, terms: Terms) -> tuple[int, ...]:
    """GPUs of each timestep of the local week from Monday on; it repeats within the swap cap."""
    slots = week_profile(
        model, traffic, per_gpu=terms.per_gpu, cap=None, quantile=terms.quantile
    ).gpus
    each = max(1, traffic.step_s // terms.timestep_s)
    bounded = [max(terms.least, min(terms.most, gpus)) for gpus in slots for _ in range(each)]
    return least_cycle(bounded, terms.cap).gpus


def compose(
    *,
    found: Ahead | None,
    of_week: Callable[[datetime], int],
    start: datetime,
    timesteps: int,
    base: int | None,
    terms: Terms,
) -> tuple[int, ...]:
    """GPUs of each timestep from `start` on, within the swap cap throughout.

    As far as the forecast by the recent level reaches it is followed, if there is one; then the
    week's profile. `base` is what the first timestep was told before: it stays, since
    it is settled, or may be, and all that follows is reached from it.
    """
    asked = []
    for t in range(timesteps):
        at = start + timedelta(seconds=terms.timestep_s * t)
        rate = _rate(found, at, firm=t < FIRM)
        asked.append(of_week(at) if rate is None else terms.gpus(rate))
    if base is None:
        return least_profile(asked, terms.cap).gpus
    return (base, *least_profile(asked[1:], terms.cap, base).gpus)


def _rate(found: Ahead | None, at: datetime, *, firm: bool) -> float | None:
    if found is None:
        return None
    place = int((at - found.start).total_seconds()) // found.step_s
    if not 0 <= place < len(found.median):
        return None
    return (found.capacity if firm else found.median)[place]


# --- Trying a profile ----------------------------------------------------------------------------


def held_out(traffic: Traffic) -> int:
    """The steps that are known before those that a profile is tried on."""
    return len(traffic.rates) - HELD_OUT_DAYS * traffic.per_day


def follow(traffic: Traffic, terms: Terms, model: Model | None = None) -> list[int]:
    """GPUs of each held-out step, as a model would have said step by step, knowing what was known.

    Without a model one is fitted to what was known before them.
    """
    train = held_out(traffic)
    model = model or learn(traffic.first(train))
    cap = terms.cap * max(1, traffic.step_s // terms.timestep_s)
    provided: list[int] = []
    for step in range(train, len(traffic.rates)):
        known = traffic.first(step, days=8)
        found = ahead(model, known, traffic.per_day, terms.quantile)
        rates = (*found.capacity[:2], *found.median[2:])
        before = provided[-1] if provided else None
        provided.append(least_profile([terms.gpus(rate) for rate in rates], cap, before).gpus[0])
    return provided


def tried(provided: Sequence[int], traffic: Traffic, terms: Terms, cap: int | None) -> Tried:
    """Hold what would have been provided in the held-out steps against what they needed."""
    train = held_out(traffic)
    every = needs(traffic, terms.per_gpu)
    needed = every[train:]
    found = score(provided, needed, cap)
    actual = np.array([np.nan if need is None else need for need in needed], np.float64)
    loss = pinball(np.array(provided, np.float64), actual, terms.quantile)
    peak = max((need for need in every[:train] if need is not None), default=0)
    reserved = score([peak] * len(needed), needed)
    return _tried(found, loss, reserved.over)


def _tried(found: Score, loss: float, peak_over: float) -> Tried:
    return Tried(
        timesteps=found.timesteps,
        time_covered=found.time_covered,
        demand_covered=found.demand_covered,
        over=found.over,
        broken=found.broken,
        loss=loss,
        peak_over=peak_over,
    )


def is_sound(new: Tried, present: Tried | None) -> bool:
    """Whether a new profile is put in force; where the present one says nothing, on its own."""
    if new.broken:
        return False
    return present is None or new.loss <= present.loss * NO_WORSE + SLACK


# --- A model as it is kept ------------------------------------------------------------------------


def packed(model: Model, quantile: float) -> dict[str, Any]:
    """A model as JSON: of its errors the median and one quantile, which is all that is asked."""
    return {
        "method": VERSION,
        "quantile": quantile,
        "week": model.week.tolist(),
        "floor": model.floor,
        "step_s": model.step_s,
        "zone": model.zone,
        "until": model.until.astimezone(UTC).isoformat(),
        "horizons": [
            {
                "steps": one.steps,
                "blend": one.blend.tolist(),
                "errors": [one.quantile(0.5), one.quantile(quantile)],
            }
            for one in model.horizons
        ],
    }


def unpacked(kept: dict[str, Any]) -> Model:
    """The model again: it forecasts at the quantile that it was packed for as it did before."""
    horizons = tuple(
        Horizon(
            one["steps"],
            np.array(one["blend"], np.float64),
            np.array(one["errors"], np.float64),
            np.array([0.5, 1.0]),
        )
        for one in kept["horizons"]
    )
    return Model(
        np.array(kept["week"], np.float64),
        kept["floor"],
        horizons,
        kept["step_s"],
        kept["zone"],
        datetime.fromisoformat(kept["until"]),
    )
