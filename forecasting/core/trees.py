"""Small gradient-boosted trees: each asks the same few questions of all rows (oblivious trees)."""

from dataclasses import dataclass

import numpy as np

from .describing import Floats, Ints

BINS, DEPTH, TREES, RATE = 20, 3, 60, 0.15
LEAST = 4.0  # a leaf is shrunk as if so many further rows said nothing
CLIPPED = 0.95  # what lies further out counts as if it lay there
SAMPLED = 20_000  # rows that a fit looks at, at most


@dataclass(frozen=True, slots=True)
class Trees:
    """`questions[tree, depth]` are features, `limits` what they exceed, `leaves` the answers."""

    base: float
    questions: Ints
    limits: Floats
    leaves: Floats

    def predict(self, features: Floats) -> Floats:
        """`features` rows × features."""
        if not len(self.leaves):
            return np.full(len(features), self.base)
        bits = features[:, self.questions] > self.limits  # rows × trees × depth
        leaf = bits @ (1 << np.arange(DEPTH))
        found: Floats = self.base + self.leaves[np.arange(len(self.leaves)), leaf].sum(axis=1)
        return found


def fit_trees(features: Floats, target: Floats, *, rate: float = RATE) -> Trees:
    """Boost: each tree is fitted to what the earlier ones leave, clipped."""
    step = -(-len(target) // SAMPLED)
    features, target = features[::step], target[::step]
    edges = [_edges(column) for column in features.T]
    bins = np.column_stack(
        [np.searchsorted(e, c, side="left") for e, c in zip(edges, features.T, strict=True)]
    )
    base = float(np.median(target))
    rest = target - base
    grown = []
    for _ in range(TREES):
        far = float(np.quantile(np.abs(rest), CLIPPED))
        clipped = np.clip(rest, -far, far)
        asked, leaf = _grow(bins, clipped)
        total = np.bincount(leaf, clipped, minlength=1 << DEPTH)
        values = rate * total / (np.bincount(leaf, minlength=1 << DEPTH) + LEAST)
        rest = rest - values[leaf]
        grown.append((asked, values))
    questions = np.array([[f for f, _ in asked] for asked, _ in grown], dtype=np.int64)
    limits = np.array([[_limit(edges[f], b) for f, b in asked] for asked, _ in grown])
    return Trees(base, questions, limits, np.array([values for _, values in grown]))


def _edges(column: Floats) -> Floats:
    return np.unique(np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1]))


def _limit(edges: Floats, at: int) -> float:
    return float(edges[at]) if at < len(edges) else np.inf


def _grow(bins: Ints, rest: Floats) -> tuple[list[tuple[int, int]], Ints]:
    """The questions of one tree, each the best for all leaves together, and each row's leaf.

    `bins` are rows × features.
    """
    leaf = np.zeros(len(rest), dtype=np.int64)
    asked = []
    for depth in range(DEPTH):
        feature, at = _best_split(bins, leaf, rest, 1 << depth)
        leaf = leaf + ((bins[:, feature] > at).astype(np.int64) << depth)
        asked.append((feature, at))
    return asked, leaf


def _best_split(bins: Ints, leaf: Ints, rest: Floats, leaves: int) -> tuple[int, int]:
    """The feature and limit with the greatest gain, summed over leaves."""
    width, features = BINS + 1, bins.shape[1]
    shape = (features, leaves, width)
    cell = bins + leaf[:, None] * width + np.arange(features) * (leaves * width)
    flat, size = cell.ravel(), features * leaves * width
    count = np.bincount(flat, minlength=size).reshape(shape).cumsum(axis=2)
    weights = np.repeat(rest, features)
    total = np.bincount(flat, weights, minlength=size).reshape(shape).cumsum(axis=2)
    above_count, above = count[:, :, -1:] - count, total[:, :, -1:] - total
    gain = (total**2 / (count + LEAST) + above**2 / (above_count + LEAST)).sum(axis=1)
    feature, at = np.unravel_index(int(np.argmax(gain)), gain.shape)
    return int(feature), int(at)
