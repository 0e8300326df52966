"""The scheduling contract in numbers: what a job is promised, how a plan sees it, what is due now.

The cycle's snapshot and the simulator both build their problems with these. Seconds are whole;
``into_s`` is how far the present timestep has gone, ``step_s`` a timestep's length.
"""

from collections.abc import Container, Iterable, Iterator

from .plan import Assignment, Plan

DEBUG_GPUS = 8
DEBUG_S = 15 * 60
ANSWERED_S = 1  # what a cycle itself asks for is answered so much later
EXCHANGE_S = 24 * 3600  # two jobs that stopped each other leave each other alone for so long


def is_debug(gpus: int, time_limit_s: int | None) -> bool:
    """Whether a job is a debug job: few GPUs and a short time limit, at which it is ended."""
    return gpus <= DEBUG_GPUS and time_limit_s is not None and time_limit_s <= DEBUG_S


def aged(gpus: int, waited_s: int) -> int:
    """A job's age in GPU-seconds: of one leaf's jobs of equal urgency the oldest comes first.

    So the age of a large job grows faster, which keeps it from starving behind small ones.
    """
    return gpus * waited_s


def default_minimum_runtime(p50_s: int, default_s: int, time_limit_s: int | None) -> int:
    """Where none is given: the lesser of the likely duration, the default and the time limit."""
    return min(p50_s, default_s, time_limit_s or default_s)


def remaining_s(
    done_s: int, expected: Iterable[int], time_limit_s: int | None, timestep_s: int
) -> int:
    """Seconds of work that a job is expected to have left.

    ``expected`` are its likely duration (p50) and then the long one (p90), which counts once it has
    run longer than the first; beyond that, as much again as one timestep: an overrunning job is
    never planned as gone.
    """
    for duration in expected:
        whole = duration if time_limit_s is None else min(duration, time_limit_s)
        if done_s < whole:
            return whole - done_s
    return timestep_s


def touched(span_s: int, step_s: int) -> int:
    """Timesteps that a span touches when it begins with one: rounded up, at least 0."""
    return max(0, -(-span_s // step_s))


def planned_duration(*, into_s: int, left_s: int, step_s: int) -> int:
    """Timesteps from the present one on that a job with so much work left touches."""
    return max(1, touched(into_s + left_s, step_s))


def planned_minimum(*, into_s: int, protected_s: int, duration: int, step_s: int) -> int:
    """Timesteps after which a resumable job that starts now may be stopped and come back."""
    return min(duration, max(1, touched(into_s + protected_s, step_s)))


def starts_now(plan: Plan, running: Container[str]) -> list[Assignment]:
    """What a plan starts in its first timestep: all that is ever committed of what waits."""
    return [a for a in plan.assignments if a.start == 0 and a.job not in running]


def stops_now(plan: Plan, running: Iterable[str]) -> Iterator[str]:
    """Those of the running jobs that the plan does not go on with."""
    now = {a.job for a in plan.assignments if a.start == 0}
    return (name for name in running if name not in now)


def protected_steps(protected_until_s: int, now_s: int, step_s: int) -> int:
    """Timesteps from the present one on for which a run can't be stopped."""
    if protected_until_s <= now_s:
        return 0
    return touched(protected_until_s - now_s + now_s % step_s, step_s)


def feasible_demand(demand: Iterable[int], *, held: int, cap: int, settled: bool) -> list[int]:
    """A service's demand by timestep, raised to what its swap cap lets it shed from what it holds.

    ``settled``: it has had its swaps for the present timestep, in which its set stands.
    """
    least = held if settled else held - cap
    found = []
    for gpus in demand:
        found.append(max(gpus, least))
        least -= cap
    if settled:
        found[0] = held
    return found


def paid_gpus(gpus: int, *, entitled: int, others: int, affordable: int) -> int:
    """How many of a service's GPUs are funded: up to what its leaf is entitled to besides what
    other services of it have, and can pay."""
    return min(gpus, max(0, entitled - others), affordable)
