"""How well durations of training jobs are forecast, on published speeds that were held out.

Whole groups are left out of the history, one at a time: a type of GPU, a size class of models (a
model by name where it is no transformer), a count of GPUs; in all tables at once, so that nothing
of the group is known. Beside them rows left out at random, of which everything is known. Physics
alone has seen no row of any table.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from forecasting.core.correction import (
    FOLDS,
    KNOWN,
    METHOD,
    METHODS,
    WAYS,
    Correction,
    History,
    Model,
    fit_correction,
)
from forecasting.core.describing import NOVEL, Described, describe
from forecasting.core.estimate import estimate
from forecasting.core.physics import estimate_on
from forecasting.core.training import settle

from .forecast_rows import Row, all_rows
from .measuring import timed
from .tables import NOTHING, Floor, Table, milliseconds, percent

ASKED = {"gpu": 0.35, "size": 0.25, "count": 0.25}
COVERED = (0.85, 0.95)
QUOTE_S, RETRAIN_S, RETRAINED = 5e-3, 60.0, 100_000
WORDS = {
    KNOWN: "nothing",
    "gpu": "the type of GPU",
    "size": "the size or model",
    "count": "the count of GPUs",
}
PLAIN = ("kind", "nearest")
NAMES = {
    "physics": "physics",
    **{method: f"+ {method}" for method in METHODS},
    "kind": "mean of the kind",
    "nearest": "nearest neighbour",
}
EVERYTHING = "all"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row held out: log errors (forecast ÷ truth) of each forecast, and of the range's ends."""

    way: str
    table: str
    errors: dict[str, float]
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Result:
    outcomes: Sequence[Outcome]
    fits: dict[str, tuple[int, int]]  # table: runs that physics says fit, of how many
    quote_s: float
    retrain_s: float


def measure_all(ways: Sequence[str] = WAYS) -> Result | None:
    """None where the tables aren't at hand."""
    rows = all_rows()
    if not rows:
        return None
    jobs = [describe(row.spec, row.gpus) for row in rows]
    history = History.of(jobs, [row.seconds for row in rows])
    outcomes = [one for way in ways for one in _held_out(way, rows, jobs, history)]
    known = fit_correction(history, ways=())
    return Result(outcomes, _fits(rows), _quote_s(rows, known), _retrain_s(jobs, history))


def table_of(row: Row) -> str:
    """MLPerf's language models and its others are different things to forecast."""
    other = row.table == "mlperf" and row.spec.forward_flops
    return "mlperf, other models" if other else row.table


def _held_out(
    way: str, rows: Sequence[Row], jobs: Sequence[Described], history: History
) -> Iterator[Outcome]:
    groups = _groups(way, jobs)
    units = np.array([_unit(row) for row in rows])
    for group in dict.fromkeys(groups):
        out = np.array([i for i, of in enumerate(groups) if of == group])
        rest = np.array([i for i, of in enumerate(groups) if of != group])
        past = history.where(rest)
        learned = fit_correction(past, ways=(way,))
        points = {
            method: _points(Model.of(past, fit), history.where(out))
            for method, fit in METHODS.items()
            if method != METHOD
        }
        plain = _plain(rows, rest, out, units, history)
        for k, i in enumerate(out):
            factors, truth = learned.correct(jobs[i]), history.target[i]
            errors = {"physics": -truth, METHOD: factors.p50 - truth}
            errors |= {method: found[k] - truth for method, found in points.items()}
            errors |= {name: found[k] - units[i] for name, found in plain.items()}
            errors = {name: float(errors[name]) for name in NAMES}
            low, high = float(factors.p10 - truth), float(factors.p90 - truth)
            yield Outcome(way, table_of(rows[i]), errors, low, high)


def _groups(way: str, jobs: Sequence[Described]) -> list[str]:
    if way != KNOWN:
        return [job.novel[NOVEL.index(way)] for job in jobs]
    chance = random.Random(0)
    return [str(chance.randrange(FOLDS)) for _ in jobs]


def _points(model: Model, out: History) -> Any:
    return model.predict(out.features, out.labels)


def _unit(row: Row) -> float:
    """Log GPU-seconds a token (a sample): what plain forecasts carry over from job to job."""
    return math.log(row.seconds * row.gpus / settle(row.spec).tokens)


def _plain(
    rows: Sequence[Row], rest: Any, out: Any, units: Any, history: History
) -> dict[str, list[float]]:
    """Two forecasts without physics, which know the work and the GPUs, and scale by them."""
    kinds = [(row.spec.framework, row.spec.variant) for row in rows]
    kind = []
    for i in out:
        same = [units[j] for j in rest if kinds[j] == kinds[i]]
        kind.append(float(np.mean(same or units[rest])))
    features = history.features / np.maximum(history.features[rest].std(axis=0), 1e-9)
    features = features[:, history.features[rest].std(axis=0) > 0]
    near = [rest[np.argmin(((features[rest] - features[i]) ** 2).sum(axis=1))] for i in out]
    return {"kind": kind, "nearest": [float(units[j]) for j in near]}


def _fits(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    """All these runs did fit; of models without layers physics knows no activations."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.spec.forward_flops:
            continue
        job = settle(row.spec)
        right = estimate_on(job, row.gpus).memory.total <= job.gpu.memory_bytes
        fitted, total = found.get(table_of(row), (0, 0))
        found[table_of(row)] = (fitted + right, total + 1)
    return found


def _quote_s(rows: Sequence[Row], learned: Correction) -> float:
    """The median seconds of one forecast."""
    some = rows[:: max(1, len(rows) // 100)]
    return median(timed(estimate, row.spec, learned, row.gpus)[1] for row in some)


def _retrain_s(jobs: Sequence[Described], history: History) -> float:
    """Seconds to learn from as many jobs as a year may bring, drawn from these with noise."""
    chance = np.random.default_rng(0)
    drawn = history.where(chance.integers(0, len(jobs), RETRAINED))
    noise = 1 + 0.05 * chance.standard_normal((RETRAINED, 1))
    labels = tuple((*row[:3], f"project-{i % 300}", *row[4:]) for i, row in enumerate(drawn.labels))
    target = drawn.target + 0.1 * chance.standard_normal(RETRAINED)
    years = History(drawn.features * noise, target, labels, drawn.novel)
    return timed(fit_correction, years)[1]


def off(errors: Sequence[float]) -> float:
    """The median absolute error, as a part of the truth."""
    return median(abs(math.exp(error) - 1) for error in errors)


def _chosen(rows: Sequence[Outcome], way: str, table: str) -> list[Outcome]:
    return [row for row in rows if row.way == way and table in (row.table, EVERYTHING)]


def _cases(rows: Sequence[Outcome]) -> list[tuple[str, str]]:
    names = [*dict.fromkeys(row.table for row in rows), EVERYTHING]
    return [(way, name) for way in dict.fromkeys(row.way for row in rows) for name in names]


def tables(result: Result | None) -> list[Table]:
    if result is None:
        return [Table("The tables of training speeds aren't at hand", ("",), [])]
    rows = result.outcomes
    return [_errors_table(rows), _ranges_table(rows), _fits_table(result), _speed_table(result)]


def _errors_table(rows: Sequence[Outcome]) -> Table:
    head = ("new", "table", "rows", *NAMES.values())
    found = []
    for way, table in _cases(rows):
        some = _chosen(rows, way, table)
        figures = [percent(off([row.errors[name] for row in some])) for name in NAMES]
        found.append((WORDS[way], table, str(len(some)), *figures))
    return Table("Median absolute error on what was held out", head, found, left=2)


def _ranges_table(rows: Sequence[Outcome]) -> Table:
    head = ("new", "table", "truth ≤ p90", "p10 ≤ truth ≤ p90", "p90 ÷ p10, median")
    found = []
    for way, table in _cases(rows):
        some = _chosen(rows, way, table)
        wide = math.exp(median(row.high - row.low for row in some))
        below, inside = covered(some)
        found.append((WORDS[way], table, percent(below), percent(inside), f"{wide:.2f}"))
    return Table(f"Ranges of physics + {METHOD} on what was held out", head, found, left=2)


def covered(rows: Sequence[Outcome]) -> tuple[float, float]:
    """The parts of truths that p90 isn't below, and that lie within the range."""
    below = sum(row.high >= 0 for row in rows) / len(rows)
    return below, sum(row.low <= 0 <= row.high for row in rows) / len(rows)


def _fits_table(result: Result) -> Table:
    found = [
        (name, str(total), percent(right / total)) for name, (right, total) in result.fits.items()
    ]
    return Table("Runs that did fit in memory", ("table", "rows", "physics says so"), found)


def _speed_table(result: Result) -> Table:
    head = ("one estimate (ms)", f"learning from {RETRAINED:,} jobs (s)")
    return Table("Time", head, [(milliseconds(result.quote_s), f"{result.retrain_s:.1f}")], left=0)


def floors(result: Result | None) -> list[Floor]:
    if result is None:
        return []
    found = [
        Floor(
            "forecasts: time of one",
            EVERYTHING,
            "≤ 5 ms",
            f"{milliseconds(result.quote_s)} ms",
            result.quote_s <= QUOTE_S,
        ),
        Floor(
            "forecasts: learning",
            f"{RETRAINED:,} jobs",
            "≤ 60 s",
            f"{result.retrain_s:.1f} s",
            result.retrain_s <= RETRAIN_S,
        ),
    ]
    for way, table in _cases(result.outcomes):
        if way in ASKED:
            found += _case_floors(way, table, _chosen(result.outcomes, way, table))
    return found


def _case_floors(way: str, table: str, rows: Sequence[Outcome]) -> Iterator[Floor]:
    what, error = f"forecasts, new: {WORDS[way]}", off([row.errors[METHOD] for row in rows])
    asked = f"≤ {percent(ASKED[way])}"
    yield Floor(f"{what}; error", table, asked, percent(error), error <= ASKED[way])
    for name in PLAIN:
        other = off([row.errors[name] for row in rows])
        beaten = f"≤ {percent(other)}"
        yield Floor(f"{what}; beats {NAMES[name]}", table, beaten, percent(error), error <= other)
    if table == EVERYTHING:
        below, _ = covered(rows)
        met = COVERED[0] <= below <= COVERED[1]
        yield Floor(f"{what}; p90 covers", table, "85-95 %", percent(below), met)


def to_json(result: Result | None) -> Any:
    return NOTHING if result is None else asdict(result)
