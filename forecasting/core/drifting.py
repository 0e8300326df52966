"""Whether forecasts of a kind have lost their way: the newest against what should be, and before.

Two limits each way: it begins beyond the outer ones and ends within the inner ones, so that what
lies between changes nothing and nobody is told again and again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .tally import Scored, tally

# Per mille of truths that p90 covers: outside these it begins, inside the others it ends.
OUTER, INNER = (800, 980), (830, 970)
# Of the median error before, per mille.
WORSE, CALM = 1500, 1300
BEFORE = 200  # forecasts before the newest, to compare with
LEAST_BEFORE = 50
LEAST_ERROR = 20  # per mille: errors below 2 % are no worse for being 1.5 times as large


@dataclass(frozen=True, slots=True)
class Drift:
    """Of `number` forecasts what p90 covered and the median error, per mille; what is wrong.

    `before` is the median error of the `compared` forecasts before, None where there are too few.
    `is_calm` says that nothing is even near a limit.
    """

    number: int
    covered: int
    error: int
    before: int | None
    compared: int
    covers_wrongly: bool
    errs_more: bool
    is_calm: bool

    @property
    def begins(self) -> bool:
        return self.covers_wrongly or self.errs_more


def look(newest: Sequence[Scored], before: Sequence[Scored], *, window: int) -> Drift | None:
    """Judge `window` newest forecasts; None as long as there are fewer."""
    now = tally(newest)
    if now is None or now.number < window:
        return None
    then = tally(before) if len(before) >= LEAST_BEFORE else None
    covered, error = now.below_p90, now.median_error
    usual = None if then is None else max(then.median_error, LEAST_ERROR)
    return Drift(
        number=now.number,
        covered=covered,
        error=error,
        before=None if then is None else then.median_error,
        compared=0 if then is None else then.number,
        covers_wrongly=not OUTER[0] <= covered <= OUTER[1],
        errs_more=usual is not None and 1000 * error >= WORSE * usual,
        is_calm=INNER[0] <= covered <= INNER[1] and (usual is None or 1000 * error <= CALM * usual),
    )
