"""Robust regression with offsets of groups, shrunk by their count.

    residual ≈ a + b · features + Σ offset(group)

By Huber's loss (rows beyond `HUBER` spreads count less), with a ridge on b, and each offset shrunk
to nothing as if `SHRINK` further rows said nothing: offset = Σ w·r ÷ (Σ w + SHRINK). Fitted by
turns, features and then each kind of group, until nothing moves much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .describing import Floats, Ints

HUBER = 1.345  # 95 % as efficient as least squares where errors are normal (Huber 1964)
LEAST_SPREAD = 0.01  # no job repeats its duration better than to 1 %
ROUNDS, TURNS = 5, 3


@dataclass(frozen=True, slots=True)
class Robust:
    """The fitted line and offsets; `offsets[k][code]` with one more, of 0, for an unknown group."""

    intercept: float
    slopes: Floats
    offsets: tuple[Floats, ...]

    def predict(self, features: Floats, groups: Sequence[Ints]) -> Floats:
        """`features` standardised, `groups` by code, −1 for unknown."""
        found: Floats = self.intercept + features @ self.slopes
        for offsets, of in zip(self.offsets, groups, strict=True):
            found = found + offsets[of]
        return found


def fit_robust(
    features: Floats,
    groups: Sequence[Ints],
    target: Floats,
    *,
    ridge: float = 10.0,
    shrink: float = 4.0,
    huber: float = HUBER,
) -> Robust:
    """Fit; `features` standardised (rows × features), groups as codes from 0 on."""
    rows, width = features.shape
    design = np.column_stack([np.ones(rows), features])
    penalty = np.diag([1e-6, *[ridge] * width])
    sizes = [int(of.max()) + 1 for of in groups]
    offsets = [np.zeros(size + 1) for size in sizes]
    weights, line = np.ones(rows), np.zeros(width + 1)
    for _ in range(ROUNDS):
        weighted = design * weights[:, None]
        gram = np.einsum("ij,ik->jk", weighted, design) + penalty  # starts no threads
        for _ in range(TURNS):
            others = _sum(offsets, groups, rows)
            line = np.linalg.solve(gram, weighted.T @ (target - others))
            _fit_offsets(offsets, groups, target - design @ line, weights, shrink)
        rest = target - design @ line - _sum(offsets, groups, rows)
        weights = _weights(rest, huber)
    return Robust(float(line[0]), line[1:], tuple(offsets))


def _sum(offsets: Sequence[Floats], groups: Sequence[Ints], rows: int) -> Floats:
    found = np.zeros(rows)
    for one, of in zip(offsets, groups, strict=True):
        found += one[of]
    return found


def _fit_offsets(
    offsets: list[Floats], groups: Sequence[Ints], rest: Floats, weights: Floats, shrink: float
) -> None:
    """Each kind of group in turn, from what the others leave."""
    left = rest - _sum(offsets, groups, len(rest))
    for one, of in zip(offsets, groups, strict=True):
        left += one[of]
        size = len(one) - 1
        total = np.bincount(of, weights * left, minlength=size)
        one[:size] = total / (np.bincount(of, weights, minlength=size) + shrink)
        left -= one[of]


def _weights(rest: Floats, huber: float) -> Floats:
    spread = 1.4826 * float(np.median(np.abs(rest - np.median(rest))))
    spread = max(spread, LEAST_SPREAD)
    far = np.abs(rest) / spread
    found: Floats = np.where(far <= huber, 1.0, huber / np.maximum(far, huber))
    return found
