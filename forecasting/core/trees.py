"""Small gradient-boosted trees: each asks the same few questions of all rows (oblivious trees)."""

from dataclasses import dataclass

import numpy as np

from .describing import Floats, Ints

BINS, DEPTH, TREES, RATE = 20, 3, 60, 0.15
LEAST = 4.0  # a leaf is shrunk as if so many further rows said nothing
CLIPPED = 0.95  # what lies further out counts as if it lay there
SAMPLED = 20_000  # rows that a fit looks at, at most
WIDTH, SPLIT = BINS + 1, 1 << (DEPTH - 1)  # bins of a feature; leaves that are split at most
AT_A_TIME = 1024  # rows that are asked together, so that they stay near


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
        if len(features) > AT_A_TIME:
            starts = range(0, len(features), AT_A_TIME)
            return np.concatenate([self.predict(features[k : k + AT_A_TIME]) for k in starts])
        bits = features[:, self.questions] > self.limits  # rows × trees × depth
        leaf = bits @ (1 << np.arange(DEPTH))
        found: Floats = self.base + self.leaves[np.arange(len(self.leaves)), leaf].sum(axis=1)
        return found


def fit_trees(features: Floats, target: Floats, *, rate: float = RATE) -> Trees:
    """Boost: each tree is fitted to what the earlier ones leave, clipped."""
    step = -(-len(target) // SAMPLED)
    features, target = features[::step], target[::step]
    edges = [_edges(column) for column in features.T]
    bins = _Bins.of(
        np.stack(
            [np.searchsorted(e, c, side="left") for e, c in zip(edges, features.T, strict=True)]
        )
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


@dataclass(frozen=True, slots=True)
class _Bins:
    """Which bin each row lies in, features × rows, and what trees ask of it again and again.

    `cells` are places in a table of features × `SPLIT` leaves × `WIDTH` bins as long as all rows
    lie in one leaf; `count` is how many rows lie in each then.
    """

    of_rows: Ints
    cells: Ints
    count: Floats

    @classmethod
    def of(cls, bins: Ints) -> "_Bins":
        features = len(bins)
        cells = bins + np.arange(features)[:, None] * (SPLIT * WIDTH)
        return cls(bins, cells, _table(cells, None, features, 1))


def _grow(bins: _Bins, rest: Floats) -> tuple[list[tuple[int, int]], Ints]:
    """The questions of one tree, each the best for all leaves together, and each row's leaf."""
    leaf = np.zeros(len(rest), dtype=np.int64)
    weights = np.tile(rest, len(bins.of_rows))
    asked = []
    for depth in range(DEPTH):
        feature, at = _best_split(bins, leaf, weights, 1 << depth)
        leaf = leaf + ((bins.of_rows[feature] > at).astype(np.int64) << depth)
        asked.append((feature, at))
    return asked, leaf


def _best_split(bins: _Bins, leaf: Ints, weights: Floats, leaves: int) -> tuple[int, int]:
    """The feature and limit with the greatest gain, summed over leaves."""
    features = len(bins.of_rows)
    if leaves == 1:
        cells, count = bins.cells, bins.count
    else:
        cells = bins.cells + leaf * WIDTH
        count = _table(cells, None, features, leaves)
    total = _table(cells, weights, features, leaves)
    above_count, above = count[:, :, -1:] - count, total[:, :, -1:] - total
    gain = (total**2 / (count + LEAST) + above**2 / (above_count + LEAST)).sum(axis=1)
    feature, at = np.unravel_index(int(np.argmax(gain)), gain.shape)
    return int(feature), int(at)


def _table(cells: Ints, weights: Floats | None, features: int, leaves: int) -> Floats:
    """Rows (or their weights) up to each bin: features × leaves × bins."""
    found = np.bincount(cells.ravel(), weights, minlength=features * SPLIT * WIDTH)
    summed: Floats = found.reshape(features, SPLIT, WIDTH)[:, :leaves].cumsum(axis=2)
    return summed
