"""How forecasts of demand would have done on traffic that was unseen when they were made."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .demand import Ahead, ahead, gpus_ahead, learn
from .profile import DemandError, Floats, Traffic, finite, whole
from .ramps import gpus_for, violations


@dataclass(frozen=True)
class Score:
    """Of the timesteps whose demand is known: gaps count for nothing.

    `time_covered`: the share of timesteps with GPUs enough. `demand_covered`: the share of needed
    GPU-timesteps that was there. `over`: mean of provided ÷ mean of needed - 1. `broken`: timesteps
    that changed by more than the swap cap.
    """

    timesteps: int
    time_covered: float
    demand_covered: float
    over: float
    broken: int


def score(provided: Sequence[int], needed: Sequence[int | None], cap: int | None = None) -> Score:
    """Hold what was provided against what was needed, timestep by timestep (None: not known)."""
    if len(provided) != len(needed):
        raise DemandError("What was provided and what was needed must have as many timesteps.")
    pairs = [(have, need) for have, need in zip(provided, needed, strict=True) if need is not None]
    wanted = sum(need for _, need in pairs)
    if not wanted:
        raise DemandError("There must be some demand to hold GPUs against.")
    return Score(
        timesteps=len(pairs),
        time_covered=sum(have >= need for have, need in pairs) / len(pairs),
        demand_covered=sum(min(have, need) for have, need in pairs) / wanted,
        over=sum(have for have, _ in pairs) / wanted - 1,
        broken=violations(provided, cap),
    )


def rolling(
    traffic: Traffic, train: int, every: int, quantile: float, far: int | None = None
) -> list[Ahead]:
    """Forecast a day (or `far` steps) from each `every`-th step after the first `train`.

    Each knows what was known then: the model is fitted anew once a day, the level is the step's.
    """
    per_day = traffic.per_day
    whole(train, "Steps to learn from first", per_day, len(traffic.rates) - 1)
    whole(every, "Steps between forecasts", 1, far or per_day)
    made: list[Ahead] = []
    for step in range(train, len(traffic.rates), every):
        if not made or (step - train) % per_day < every:
            model = learn(traffic.first(step))
        made.append(ahead(model, traffic.first(step, days=8), far or per_day, quantile))
    return made


def play(
    traffic: Traffic, train: int, every: int, made: Sequence[Ahead], per_gpu: float, cap: int | None
) -> Score:
    """Provide GPUs as the forecasts of `rolling` say, each from what the last one left held."""
    needed = needs(traffic, per_gpu)[train:]
    provided: list[int] = []
    for found in made:
        held = provided[-1] if provided else None
        provided += gpus_ahead(found, per_gpu=per_gpu, cap=cap, held=held, firm=every + 1).gpus[
            :every
        ]
    return score(provided[: len(needed)], needed, cap)


def needs(traffic: Traffic, per_gpu: float) -> list[int | None]:
    """GPUs that each step needed, None in a gap."""
    return [None if rate is None else gpus_for(rate, per_gpu) for rate in traffic.rates]


def pinball(forecast: Floats, actual: Floats, quantile: float) -> float:
    """Mean pinball loss: under costs `quantile` a unit, over 1 - `quantile`; NaN is left out."""
    finite(quantile, "A quantile", 0, 1)
    below = actual - forecast
    loss = np.maximum(quantile * below, (quantile - 1) * below)
    found = float(np.nanmean(loss)) if np.any(~np.isnan(loss)) else math.nan
    if math.isnan(found):
        raise DemandError("There must be one known rate to hold a forecast against.")
    return found
