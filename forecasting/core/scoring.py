"""How good one forecast was, once the truth is known. Integers throughout."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """Pinball losses in tenths of a second, so that they are whole; less is better.

    `error_per_mille` is |p50 − actual| per mille of the actual, rounded half up; `inside` says
    whether the truth lay in p10 to p90.
    """

    loss_p10_ds: int
    loss_p50_ds: int
    loss_p90_ds: int
    error_per_mille: int
    inside: bool


def pinball_ds(forecast_s: int, actual_s: int, tenths: int) -> int:
    """The pinball loss of a forecast of the quantile `tenths` ÷ 10, in tenths of a second.

    A truth above the forecast costs the quantile's share of the difference, one below it the rest.
    """
    if not 0 < tenths < 10:
        raise ValueError(f"A quantile lies between 1 and 9 tenths, not at {tenths}.")
    above = actual_s - forecast_s
    return above * tenths if above >= 0 else -above * (10 - tenths)


def score(p10_s: int, p50_s: int, p90_s: int, actual_s: int) -> Score:
    """Score a range against what a job took, 1 s or more."""
    if actual_s < 1:
        raise ValueError(f"A duration to score by is above 0, not {actual_s} s.")
    return Score(
        loss_p10_ds=pinball_ds(p10_s, actual_s, 1),
        loss_p50_ds=pinball_ds(p50_s, actual_s, 5),
        loss_p90_ds=pinball_ds(p90_s, actual_s, 9),
        error_per_mille=(2000 * abs(p50_s - actual_s) + actual_s) // (2 * actual_s),
        inside=p10_s <= actual_s <= p90_s,
    )
