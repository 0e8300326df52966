"""Traces from a seed: a cluster's month as labs fill it, and debug jobs mixed into any trace.

There is no data file: the same arguments give the same jobs on every machine.
"""

import math
import random
from dataclasses import dataclass

from .contract import DEBUG_GPUS, DEBUG_S
from .traces import DAY_S, Trace, TraceJob

HOUR_S = 3600
# Submissions by hour of the day, relative: few at night, most after lunch.
BY_HOUR = (2, 1, 1, 1, 1, 1, 2, 3, 6, 9, 10, 10, 8, 10, 11, 11, 10, 9, 7, 5, 4, 4, 3, 3)
WEEKEND = 0.4  # of a working day's
SIZES = ((1, 45), (2, 8), (4, 18), (8, 20), (16, 5), (32, 3), (64, 1))  # GPUs, relative
MEDIAN_S = {1: 1800, 2: 2400, 4: 5400, 8: 3 * HOUR_S, 16: 6 * HOUR_S, 32: 9 * HOUR_S}
LARGE_MEDIAN_S = 12 * HOUR_S
SPREAD = 1.7  # σ of durations' logarithm: a few long jobs hold most of the GPU-time
LONGEST_S = 7 * DAY_S
UNEVEN = 0.7  # each group asks for so much of what the one before asks


@dataclass(frozen=True)
class Lab:
    """What a made trace is of: `demand` is GPU-time asked for ÷ what `gpus` have in it."""

    gpus: int = 448
    days: int = 28
    groups: int = 4
    demand: float = 2.5
    seed: int = 0


def made_trace(lab: Lab) -> Trace:
    """Jobs until the lab's demand is reached, spread over days, nights and groups."""
    draw = random.Random(lab.seed)
    wanted = int(lab.demand * lab.gpus * lab.days * DAY_S)
    asked, drawn = 0, []
    weights = [UNEVEN**n for n in range(lab.groups)]
    while asked < wanted:
        gpus = min(_drawn(draw, SIZES), lab.gpus)
        lasts = _duration(draw, gpus)
        group = draw.choices(range(lab.groups), weights)[0]
        drawn.append((_instant(draw, lab.days), gpus, lasts, f"group-{group + 1:02}"))
        asked += gpus * lasts
    return Trace(
        tuple(
            TraceJob(f"made-{n:06}", at, gpus, lasts, group)
            for n, (at, gpus, lasts, group) in enumerate(sorted(drawn), 1)
        )
    )


def with_debug_jobs(trace: Trace, per_day: int = 60, seed: int = 0) -> Trace:
    """The trace with so many debug jobs a day mixed in, each of one of its groups."""
    draw = random.Random(seed)
    days = trace.days if trace.rows else 0
    groups = trace.groups
    added = [
        TraceJob(
            job_id=f"debug-{n:06}",
            submit_time_s=_instant(draw, days),
            gpus=draw.choice([size for size, _ in SIZES if size <= DEBUG_GPUS]),
            duration_s=draw.randrange(30, DEBUG_S + 1),
            group=draw.choice(groups),
            time_limit_s=DEBUG_S,
        )
        for n in range(per_day * days)
    ]
    jobs = sorted((*trace.jobs, *added), key=lambda job: job.submit_time_s)
    return Trace(tuple(jobs), trace.problems, trace.services)


def _drawn(draw: random.Random, weighted: tuple[tuple[int, int], ...]) -> int:
    values, weights = zip(*weighted, strict=True)
    return int(draw.choices(values, weights)[0])


def _duration(draw: random.Random, gpus: int) -> int:
    median = MEDIAN_S.get(gpus, LARGE_MEDIAN_S)
    return max(10, min(LONGEST_S, round(median * math.exp(draw.gauss(0, SPREAD)))))


def _instant(draw: random.Random, days: int) -> int:
    weights = [WEEKEND if day % 7 > 4 else 1.0 for day in range(days)]
    day = draw.choices(range(days), weights)[0]
    hour = draw.choices(range(24), BY_HOUR)[0]
    return day * DAY_S + hour * HOUR_S + draw.randrange(HOUR_S)
