"""When a service's traffic is missed: how often it comes, and how long it may stay away."""

LEAST_S = 3600  # nobody is called sooner
UNKNOWN_S = 24 * 3600  # it came once: for so long the recent level is followed
MOST_S = 48 * 3600
STEPS = 3  # steps of traffic that may be missing
TIMES = 2  # what one list takes at most ÷ what the slowest of late took
FADES = (3, 4)  # what the slowest counts for, with each list that comes


def cadence(before_s: int | None, gap_s: int) -> int:
    """Seconds between lists that bring something new: the longest of late, at least 1."""
    part, of = FADES
    return max(1, gap_s, (before_s or 0) * part // of)


def allowed(step_s: int, cadence_s: int | None) -> int:
    """Seconds that may pass since the last such list; a cadence that isn't known is a day."""
    if cadence_s is None:
        return UNKNOWN_S
    return min(MOST_S, max(LEAST_S, STEPS * step_s, TIMES * cadence_s))
