"""How good many forecasts were, together: errors, coverage, losses, and plain ones to beat."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from .scoring import pinball_ds

QUANTILES = ((10, 1), (50, 5), (90, 9))  # percent, tenths
PER_MILLE = 1000


@dataclass(frozen=True, slots=True)
class Scored:
    """A forecast and the truth, in seconds; what was declared; the mean of earlier truths; GPUs."""

    p10_s: int
    p50_s: int
    p90_s: int
    actual_s: int
    declared_s: int | None = None
    mean_s: int | None = None
    gpus: int = 1

    @property
    def loss_ds(self) -> int:
        """Pinball losses at p10, p50 and p90 together, in tenths of a second."""
        said = (self.p10_s, self.p50_s, self.p90_s)
        return sum(
            pinball_ds(f, self.actual_s, t) for f, (_, t) in zip(said, QUANTILES, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Against:
    """Mean pinball loss (tenths of a second) of `number` forecasts, and of a plain one instead."""

    number: int
    ours_ds: int
    theirs_ds: int


@dataclass(frozen=True, slots=True)
class Tally:
    """Of `number` forecasts. Shares and errors per mille, losses in tenths of a second.

    `below` are the shares of truths at most p10, p50, p90, which should be 100, 500, 900;
    `inside` that of truths from p10 to p90, which should be 800.
    """

    number: int
    mean_error: int
    median_error: int
    inside: int
    below: tuple[int, int, int]
    loss_ds: int
    said_gpu_s: int  # Σ GPUs × p50
    taken_gpu_s: int
    declared: Against | None
    mean: Against | None

    @property
    def below_p90(self) -> int:
        return self.below[2]


def tally(rows: Sequence[Scored]) -> Tally | None:
    """Add up; None of nothing."""
    if not rows:
        return None
    number = len(rows)
    errors = sorted(_error(row) for row in rows)
    below = [sum(row.actual_s <= getattr(row, f"p{q}_s") for row in rows) for q, _ in QUANTILES]
    inside = sum(row.p10_s <= row.actual_s <= row.p90_s for row in rows)
    return Tally(
        number=number,
        mean_error=_part(sum(errors), number),
        median_error=(errors[(number - 1) // 2] + errors[number // 2] + 1) // 2,
        inside=_part(PER_MILLE * inside, number),
        below=(
            _part(PER_MILLE * below[0], number),
            _part(PER_MILLE * below[1], number),
            _part(PER_MILLE * below[2], number),
        ),
        loss_ds=_part(sum(row.loss_ds for row in rows), number),
        said_gpu_s=sum(row.gpus * row.p50_s for row in rows),
        taken_gpu_s=sum(row.gpus * row.actual_s for row in rows),
        declared=_against([(row, row.declared_s) for row in rows if row.declared_s]),
        mean=_against([(row, row.mean_s) for row in rows if row.mean_s]),
    )


def earlier_means(ended: Sequence[tuple[float, int]], made: Sequence[float]) -> list[int | None]:
    """For each instant the mean of the truths that were known by then; None before the first.

    `ended` are (instant, seconds), in any order.
    """
    known = sorted(ended)
    instants = [at for at, _ in known]
    sums = list(accumulate((seconds for _, seconds in known), initial=0))
    counts = [bisect_right(instants, at) for at in made]
    return [_part(sums[count], count) if count else None for count in counts]


def _error(row: Scored) -> int:
    return _part(PER_MILLE * abs(row.p50_s - row.actual_s), row.actual_s)


def _against(rows: Sequence[tuple[Scored, int | None]]) -> Against | None:
    """A plain forecast says one number, whatever the quantile."""
    if not rows:
        return None
    ours = sum(row.loss_ds for row, _ in rows)
    theirs = sum(
        pinball_ds(plain or 1, row.actual_s, tenths)
        for row, plain in rows
        for _, tenths in QUANTILES
    )
    return Against(len(rows), _part(ours, len(rows)), _part(theirs, len(rows)))


def _part(total: int, number: int) -> int:
    """A quotient, rounded half up."""
    return (2 * total + number) // (2 * number)
