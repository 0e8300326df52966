"""Whether what was learned anew is any better: errors on rows that the fits hadn't seen."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .correction import KNOWN, THIN, Correction, History, Played, fit_correction, play
from .describing import Floats, Ints

AT_A_TIME = 500  # rows: each is compared with thousands


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Median |forecast ÷ truth − 1| over `rows` that were held out, of physics and corrected."""

    rows: int
    physics: float
    corrected: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to switch to what was learned, and the sentence that says why (not).

    `old` is the old one's error on the `compared` newest rows, which neither had seen; None where
    those are fewer than `THIN`.
    """

    switch: bool
    why: str
    compared: int = 0
    old: float | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """A correction and how it did on what was held out, by way."""

    correction: Correction
    played: dict[str, Played]
    held_out: dict[str, HeldOut]


def learn_and_play(history: History) -> Learned:
    """Fit, and measure on held-out rows: at random, and by whole groups."""
    played = play(history) if len(history) >= THIN else {}
    scores = {
        way: HeldOut(
            len(one.rows), median_error(history.target[one.rows]), median_error(one.errors)
        )
        for way, one in played.items()
    }
    return Learned(fit_correction(history, played=played), played, scores)


def median_error(errors: Floats) -> float:
    """The median of |forecast ÷ truth − 1| from errors log(truth ÷ forecast)."""
    return float(np.median(np.abs(np.expm1(-errors))))


def judge(learned: Learned, history: History, old: Correction | None, newer: Ints) -> Verdict:
    """Compare with physics on all held-out rows, with the old one on those it hadn't seen.

    `newer` are the rows of the history that ended after the old one was trained.
    """
    if (found := learned.held_out.get(KNOWN)) is None:
        return Verdict(False, f"{len(history)} jobs are too few to hold any out.")
    if found.corrected > found.physics:
        return Verdict(
            False,
            f"Not better than physics: {found.corrected:.1%} off on {found.rows} held-out jobs, "
            f"physics {found.physics:.1%}.",
        )
    better = f"{found.corrected:.1%} off on {found.rows} held-out jobs, physics {found.physics:.1%}"
    if old is None or old.model is None:
        return Verdict(True, f"The first: {better}.")
    one = learned.played[KNOWN]
    fresh = np.isin(one.rows, newer)
    count = int(fresh.sum())
    if count < THIN:
        return Verdict(True, f"{better}; too few are new to compare it with the old one.")
    new, before = median_error(one.errors[fresh]), median_error(rest(old, history, one.rows[fresh]))
    said = f"{new:.1%} off on the {count} jobs that are new, the old one {before:.1%}"
    if new > before:
        return Verdict(False, f"Worse than the old one: {said}.", count, before)
    return Verdict(True, f"{said}; {better}.", count, before)


def rest(correction: Correction, history: History, rows: Ints) -> Floats:
    """Errors log(truth ÷ forecast) of a correction on rows of a history."""
    assert correction.model is not None, "one without a model is never compared"
    found = []
    for start in range(0, len(rows), AT_A_TIME):
        part = history.where(rows[start : start + AT_A_TIME])
        found.append(part.target - correction.model.predict(part.features, part.labels))
    return np.concatenate(found)


def as_json(held_out: Mapping[str, HeldOut]) -> dict[str, dict[str, float]]:
    return {
        way: {
            "rows": one.rows,
            "physics": round(one.physics, 4),
            "corrected": round(one.corrected, 4),
        }
        for way, one in held_out.items()
    }
