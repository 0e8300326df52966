"""Correct the physical estimate by how like jobs came out, and say how sure that is.

What is learned is log(seconds ÷ physical seconds). The range is conformal: errors are taken from
fits that hadn't seen the row. A job may be new in its type of GPU, its size or its count of GPUs,
and errors are larger then; so the history is played four ways (rows left out at random; whole
types, sizes, counts left out), and a job's range comes from the errors of the way it is new.
Errors of rows like the job weigh more (Tibshirani et al. 2019), so that the range follows the mix.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .describing import GROUPS, NOVEL, Described, Floats, Ints, Standard, codes
from .robust import Robust, fit_robust
from .trees import Trees, fit_trees

THIN = 8  # fewer rows correct nothing
FOLDS = 4
KEPT = 500  # errors of each way that are kept, spread over the history
PLAYED = 10_000  # rows that the history is played with, at most
# Without errors to go by: physics is right within these factors four times out of five.
PRIOR = (-0.5, 0.6)  # log 0.61 and log 1.82
NEIGHBOURS = 3000  # rows that neighbours are sought among, at most
SAME, APART = (GROUPS.index("model"), GROUPS.index("framework")), 4.0
KNOWN, THINLY = "known", "thin"
WAYS = (KNOWN, *NOVEL)

Fit = Callable[[Floats, Sequence[Ints], Floats], "Fitted"]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A line with offsets of groups, and trees that go before it; either may be absent."""

    lines: tuple[Robust, ...]
    trees: Trees | None

    def predict(self, features: Floats, groups: Sequence[Ints]) -> Floats:
        """log(seconds ÷ physical seconds); the mean of the lines', where there are two."""
        plain = np.zeros((len(features), 0))
        found = np.zeros(len(features))
        for line in self.lines:
            if len(line.slopes):
                found += line.predict(features, groups)
            elif self.trees is not None:
                found += self.trees.predict(features) + line.predict(plain, groups)
        return found / len(self.lines)


def fit_lines(features: Floats, groups: Sequence[Ints], target: Floats) -> Fitted:
    return Fitted((fit_robust(features, groups, target),), None)


def fit_forest(features: Floats, groups: Sequence[Ints], target: Floats) -> Fitted:
    """Trees first: what features can tell carries over to groups that history hasn't seen."""
    trees = fit_trees(features, target)
    rest = target - trees.predict(features)
    return Fitted((fit_robust(np.zeros((len(target), 0)), groups, rest),), trees)


def fit_both(features: Floats, groups: Sequence[Ints], target: Floats) -> Fitted:
    line, forest = (fit(features, groups, target) for fit in (fit_lines, fit_forest))
    return Fitted(line.lines + forest.lines, forest.trees)


METHODS: dict[str, Fit] = {"lines": fit_lines, "trees": fit_forest, "both": fit_both}
METHOD = "both"  # what the bench found best on rows held out


@dataclass(frozen=True, slots=True)
class History:
    """Jobs that ran to their end, as arrays: rows × features, log errors of physics, labels."""

    features: Floats
    target: Floats
    labels: tuple[tuple[str, ...], ...]
    novel: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, rows: Sequence[Described], seconds: Sequence[float]) -> "History":
        if len(rows) != len(seconds):
            raise ValueError("Each job of a history has one duration.")
        took = np.array(seconds, dtype=np.float64)
        if not np.all(np.isfinite(took) & (took > 0)):
            raise ValueError("Durations of a history must be above 0 s.")
        features = np.array([row.features for row in rows], dtype=np.float64)
        physics = np.array([row.log_physics for row in rows], dtype=np.float64)
        labels, novel = (tuple(r.labels for r in rows), tuple(r.novel for r in rows))
        return cls(features, np.log(took) - physics, labels, novel)

    def __len__(self) -> int:
        return len(self.target)

    def where(self, chosen: Ints) -> "History":
        places = chosen.tolist()
        labels = tuple(map(self.labels.__getitem__, places))
        novel = tuple(map(self.novel.__getitem__, places))
        return History(self.features[chosen], self.target[chosen], labels, novel)


@dataclass(frozen=True, slots=True)
class Local:
    """What the fit leaves of rows, which jobs much like them inherit: Σ w·rest ÷ (Σ w + 1).

    w falls to e⁻¹ at a squared distance of 1 spread; another model or framework is 4 away.
    """

    features: Floats
    same: Floats  # rows × codes of SAME
    rest: Floats

    def predict(self, features: Floats, same: Floats) -> Floats:
        squares = (features**2).sum(axis=1)[:, None] + (self.features**2).sum(axis=1)
        apart = features @ self.features.T
        apart *= -2.0
        apart += squares
        np.maximum(apart, 0.0, out=apart)
        for k in range(same.shape[1]):
            apart += APART * (same[:, k, None] != self.same[None, :, k])
        weights = np.exp(np.negative(apart, out=apart), out=apart)
        found: Floats = weights @ self.rest / (weights.sum(axis=1) + 1.0)
        return found


@dataclass(frozen=True, slots=True)
class Model:
    """What was fitted to a history."""

    standard: Standard
    known: tuple[dict[str, int], ...]  # per kind of group
    fitted: Fitted
    local: Local

    @classmethod
    def of(cls, history: History, fit: Fit) -> "Model":
        standard = Standard.of(history.features)
        pairs = [codes([row[k] for row in history.labels]) for k in range(len(GROUPS))]
        features, groups = standard.apply(history.features), [of for _, of in pairs]
        fitted = fit(features, groups, history.target)
        step = -(-len(history) // NEIGHBOURS)
        rest = history.target - fitted.predict(features, groups)
        local = Local(features[::step], _same(groups)[::step], rest[::step])
        return cls(standard, tuple(known for known, _ in pairs), fitted, local)

    def predict(self, features: Floats, labels: Sequence[Sequence[str]]) -> Floats:
        groups = [
            np.array([known.get(row[k], -1) for row in labels], dtype=np.int64)
            for k, known in enumerate(self.known)
        ]
        at = self.standard.apply(features)
        return self.fitted.predict(at, groups) + self.local.predict(at, _same(groups))


def _same(groups: Sequence[Ints]) -> Floats:
    return np.column_stack([groups[k] for k in SAME]).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Errors:
    """Log errors of one way of leaving out, with the features (standardised) of their rows."""

    features: Floats
    errors: Floats

    def quantiles(self, at: Floats, parts: Sequence[float]) -> list[float | None]:
        """Weighted quantiles of errors at a job's features; None beyond what they can tell.

        The job itself counts as an error that may be anything, as exchangeable rows demand.
        """
        apart = ((self.features - at) ** 2).sum(axis=1) / np.sqrt(len(at))
        weights = 1.0 / (1.0 + apart)
        order = np.argsort(self.errors)
        total = float(weights.sum()) + 1.0
        upward = np.cumsum(weights[order])
        found: list[float | None] = []
        for part in parts:
            if part < 0.5:  # from below, as the mirror of what is done above
                downward = np.cumsum(weights[order[::-1]])
                k = int(np.searchsorted(downward, (1 - part) * total))
                found.append(None if k >= len(order) else float(self.errors[order[-1 - k]]))
            else:
                k = int(np.searchsorted(upward, part * total))
                found.append(None if k >= len(order) else float(self.errors[order[k]]))
        return found


@dataclass(frozen=True, slots=True)
class Corrected:
    """Log factors on the physical seconds, and the way the job is new."""

    p10: float
    p50: float
    p90: float
    way: str


@dataclass(frozen=True, slots=True)
class Correction:
    """A model of a history, and the errors it makes; without a model physics stands alone."""

    rows: int
    model: Model | None
    errors: dict[str, Errors]
    seen: tuple[frozenset[str], ...]  # per NOVEL

    def correct(self, row: Described, prior: tuple[float, float] = PRIOR) -> Corrected:
        """The factors for one job; `prior` is the range where errors don't tell any."""
        if self.model is None:
            return Corrected(prior[0], 0.0, prior[1], THINLY)
        ways = [
            way for way, seen, of in zip(NOVEL, self.seen, row.novel, strict=True) if of not in seen
        ]
        features = np.array([row.features])
        middle = float(self.model.predict(features, [row.labels])[0])
        at = self.model.standard.apply(features)[0]
        low, high = 0.0, 0.0
        for way in ways or [KNOWN]:
            found = self.errors[way].quantiles(at, (0.1, 0.9)) if way in self.errors else [None] * 2
            low = min(low, prior[0] if found[0] is None else found[0])
            high = max(high, prior[1] if found[1] is None else found[1])
        return Corrected(middle + low, middle, middle + high, "+".join(ways) or KNOWN)


@dataclass(frozen=True, slots=True)
class Played:
    """Log errors of rows by fits that hadn't seen them, and which rows of the history those are."""

    rows: Ints
    errors: Floats


def play(history: History, method: str = METHOD, ways: Iterable[str] = WAYS) -> dict[str, Played]:
    """Each way's errors, of at most `PLAYED` rows; none of a way with but one group."""
    chosen = np.arange(0, len(history), max(1, -(-len(history) // PLAYED)))
    some, fit = history.where(chosen), METHODS[method]
    found = {way: _errors(some, way, fit) for way in ways}
    return {way: Played(chosen[one.rows], one.errors) for way, one in found.items() if one}


def fit_correction(
    history: History,
    method: str = METHOD,
    ways: Iterable[str] = WAYS,
    played: Mapping[str, Played] | None = None,
) -> Correction:
    """Fit to a history, with the errors of `play`; fewer than `THIN` rows correct nothing."""
    seen = tuple(frozenset(row[k] for row in history.novel) for k in range(len(NOVEL)))
    if len(history) < THIN:
        return Correction(len(history), None, {}, seen)
    model = Model.of(history, METHODS[method])
    errors = {}
    for way, one in (play(history, method, ways) if played is None else played).items():
        step = -(-len(one.rows) // KEPT)
        features = model.standard.apply(history.features[one.rows])
        errors[way] = Errors(features[::step], one.errors[::step])
    return Correction(len(history), model, errors, seen)


def _errors(history: History, way: str, fit: Fit) -> Played | None:
    """Each row's error by a fit that hadn't seen it, nor its group; None where there is but one."""
    folds = _folds(history, way)
    found, rows = [], []
    for fold in range(FOLDS):
        out, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        if not len(out) or len(rest) < THIN:
            continue
        model = Model.of(history.where(rest), fit)
        left = history.where(out)
        found.append(left.target - model.predict(left.features, left.labels))
        rows.append(out)
    return Played(np.concatenate(rows), np.concatenate(found)) if found else None


def _folds(history: History, way: str) -> Ints:
    """Which fold each row is left out with; groups go whole, the largest first to the emptiest."""
    if way == KNOWN:
        mixed = [zlib.crc32(str(i).encode()) % FOLDS for i in range(len(history))]
        return np.array(mixed, dtype=np.int64)
    known, of = codes([row[NOVEL.index(way)] for row in history.novel])
    sizes = np.bincount(of, minlength=len(known))
    filled, fold_of = np.zeros(FOLDS), np.zeros(len(known), dtype=np.int64)
    for group in np.argsort(-sizes, kind="stable"):
        fold_of[group] = int(np.argmin(filled))
        filled[fold_of[group]] += sizes[group]
    folds: Ints = fold_of[of]
    return folds
