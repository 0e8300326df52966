"""From rates to GPUs, and from GPUs to the least profile that keeps a swap cap.

A service gains at most `cap` GPUs and loses at most `cap` from one timestep to the next: what the
allocator holds it to. A profile that follows demand step by step breaks that at a morning's rise;
one that keeps it must start to rise early.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .profile import DemandError, finite, whole

MOST_GPUS = 1_000_000
MOST_TIMESTEPS = 100_000


@dataclass(frozen=True)
class Ramp:
    """GPUs of each timestep, and how many each is short of need (0 but where nothing can help)."""

    gpus: tuple[int, ...]
    short: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, numbers in (("GPUs", self.gpus), ("GPUs short", self.short)):
            for number in numbers:
                whole(number, name, 0, MOST_GPUS)
        if len(self.gpus) != len(self.short):
            raise DemandError("A ramp says of each timestep how many GPUs it is short.")


def gpus_for(rate: float, per_gpu: float) -> int:
    """The least whole number of GPUs that does `rate`, if each does `per_gpu` (both a second).

    A rate that is a whole number of GPUs but for the last digit of a float takes no GPU more.
    """
    finite(rate, "A rate", 0)
    finite(per_gpu, "The rate that one GPU does", 1e-9)
    gpus = math.ceil(rate / per_gpu * (1 - 1e-12))
    if gpus > MOST_GPUS:
        raise DemandError(
            f"{rate:g} a second would need {gpus} GPUs: is a GPU's {per_gpu:g} right?"
        )
    return gpus


def least_profile(needs: Sequence[int], cap: int | None, held: int | None = None) -> Ramp:
    """The least profile above `needs` that changes by at most `cap` GPUs a timestep.

    `held` GPUs just before the first timestep bound it too, both ways: what can't be had in time is
    `short`, what can't be given back in time is kept. No cap (None): the needs themselves.

    Least, and why. Without `held` let p be any profile that keeps the cap and lies above the needs.
    Between timesteps s and t it changes by at most cap·|s - t|, so p(t) >= p(s) - cap·|s - t| >=
    need(s) - cap·|s - t| for every s: p lies above the upper envelope

        e(t) = max over s of need(s) - cap·|s - t|.

    e itself lies above the needs (s = t) and keeps the cap (a maximum of lines that each change by
    cap). So e is feasible and below every feasible p at each timestep at once: the least, whatever
    it costs. Two passes make it, since e(t) = max(need(t), e(t - 1) - cap, e(t + 1) - cap).

    With `held` no profile is above r(t) = held + cap·(t + 1), nor below l(t) = held - cap·(t + 1).
    Needs clipped to r are the most of them that any profile can cover at each timestep, and one
    covers all of it: e of max(l, min(need, r)). It stays under r, as r itself keeps the cap. By the
    argument above it is the least of those, and `short` is what no profile could have covered.
    """
    found = _needs(needs)
    if held is not None:
        whole(held, "The GPUs held before", 0, MOST_GPUS)
    if cap is None:
        return Ramp(tuple(found), (0,) * len(found))
    whole(cap, "A swap cap", 1, MOST_GPUS)
    bounded = list(found)
    if held is not None:
        reach = [(held - cap * (t + 1), held + cap * (t + 1)) for t in range(len(found))]
        pairs = zip(found, reach, strict=True)
        bounded = [max(low, min(need, high)) for need, (low, high) in pairs]
    gpus = _envelope(bounded, cap)
    short = tuple(max(0, need - have) for need, have in zip(found, gpus, strict=True))
    return Ramp(tuple(gpus), short)


def least_cycle(needs: Sequence[int], cap: int | None) -> Ramp:
    """The least profile of a day or week that repeats: its last timestep is followed by its first.

    As `least_profile`, with distances the shorter way round: the middle of three rounds, since what
    lies more than half a round away is dominated by its copy that lies nearer.
    """
    found = _needs(needs)
    count = len(found)
    if cap is None:
        return Ramp(tuple(found), (0,) * count)
    whole(cap, "A swap cap", 1, MOST_GPUS)
    return Ramp(tuple(_envelope(found * 3, cap)[count : 2 * count]), (0,) * count)


def violations(gpus: Sequence[int], cap: int | None, held: int | None = None) -> int:
    """Timesteps that change by more than the cap allows."""
    if cap is None:
        return 0
    before = [*([] if held is None else [held]), *gpus]
    return sum(abs(new - old) > cap for old, new in pairwise(before))


def _envelope(needs: Sequence[int], cap: int) -> list[int]:
    found = list(needs)
    for t in range(1, len(found)):
        found[t] = max(found[t], found[t - 1] - cap)
    for t in range(len(found) - 2, -1, -1):
        found[t] = max(found[t], found[t + 1] - cap)
    return found


def _needs(needs: Sequence[int]) -> list[int]:
    if not 0 < len(needs) <= MOST_TIMESTEPS:
        raise DemandError(f"Needs must be 1 to {MOST_TIMESTEPS} timesteps, not {len(needs)}.")
    return [
        whole(need, f"The GPUs needed in timestep {t}", 0, MOST_GPUS)
        for t, need in enumerate(needs)
    ]
