"""How well batches of inference are forecast, on published throughputs that were held out.

Whole groups are left out of the history: a type of GPU, a size class of models, the pages of one
engine. The formulas have seen no row: their constants are those of training, or assumptions.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from forecasting.core.correction import KNOWN, History, fit_correction
from forecasting.core.describing import NOVEL, Described
from forecasting.core.inference import PRIOR, described, estimate, estimate_on
from forecasting.core.inference_spec import settle

from .forecasts import QUOTE_S, off
from .inference_rows import Row, all_rows
from .measuring import timed
from .tables import Floor, Table, milliseconds, percent

ENGINE, ALONE = "engine", "formulas alone"
WORDS = {"gpu": "the type of GPU", "size": "the size of the model", ENGINE: "the engine"}
EVERYTHING = "all"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row: what was new about it; log errors (forecast ÷ truth) and of the range's ends."""

    way: str
    table: str
    error: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Result:
    outcomes: Sequence[Outcome]
    quote_s: float


def measure_all() -> Result:
    rows = all_rows()
    settled = [settle(row.spec) for row in rows]
    found = [estimate_on(job, row.gpus) for job, row in zip(settled, rows, strict=True)]
    jobs = [described(job, one) for job, one in zip(settled, found, strict=True)]
    history = History.of(jobs, [row.seconds for row in rows])
    outcomes = list(_alone(rows, history))
    for way in WORDS:
        outcomes += _held_out(way, rows, jobs, history)
    learned = fit_correction(history, ways=())
    quote_s = median(timed(estimate, row.spec, learned, row.gpus)[1] for row in rows[::5])
    return Result(outcomes, quote_s)


def _alone(rows: Sequence[Row], history: History) -> Iterator[Outcome]:
    for row, truth in zip(rows, history.target, strict=True):
        yield Outcome(ALONE, row.table, -truth, PRIOR[0] - truth, PRIOR[1] - truth)


def _held_out(
    way: str, rows: Sequence[Row], jobs: Sequence[Described], history: History
) -> Iterator[Outcome]:
    groups = [row.table.split()[0] for row in rows]
    if way != ENGINE:
        groups = [job.novel[NOVEL.index(way)] for job in jobs]
    for group in dict.fromkeys(groups):
        out = np.array([i for i, of in enumerate(groups) if of == group])
        rest = np.array([i for i, of in enumerate(groups) if of != group])
        learned = fit_correction(history.where(rest), ways=(KNOWN if way == ENGINE else way,))
        for i in out:
            factors, truth = learned.correct(jobs[i], PRIOR), float(history.target[i])
            low, high = factors.p10 - truth, factors.p90 - truth
            yield Outcome(way, rows[i].table, factors.p50 - truth, low, high)


def _cases(rows: Sequence[Outcome]) -> Iterator[tuple[str, str, list[Outcome]]]:
    for way in dict.fromkeys(row.way for row in rows):
        some = [row for row in rows if row.way == way]
        for table in (*dict.fromkeys(row.table for row in some), EVERYTHING):
            yield way, table, [row for row in some if table in (row.table, EVERYTHING)]


def tables(result: Result) -> list[Table]:
    found = []
    for way, table, rows in _cases(result.outcomes):
        below = sum(row.high >= 0 for row in rows) / len(rows)
        inside = sum(row.low <= 0 <= row.high for row in rows) / len(rows)
        wide = math.exp(median(row.high - row.low for row in rows))
        bias = math.exp(-median(row.error for row in rows))
        figures = (percent(off([row.error for row in rows])), f"{bias:.2f}")
        ranges = (percent(below), percent(inside), f"{wide:.2f}")
        name = ALONE if way == ALONE else f"history without {WORDS[way]}"
        found.append((name, table, str(len(rows)), *figures, *ranges))
    head = (
        "forecast by",
        "table",
        "rows",
        "median error",
        "truth ÷ forecast",
        "truth ≤ p90",
        "p10 ≤ truth ≤ p90",
        "p90 ÷ p10",
    )
    return [Table("Batch inference, against published throughputs", head, found, left=2)]


def floors(result: Result) -> list[Floor]:
    told = f"{milliseconds(result.quote_s)} ms"
    found = [Floor("inference: one", EVERYTHING, "≤ 5 ms", told, result.quote_s <= QUOTE_S)]
    asked = {"gpu": 0.35, "size": 0.25}
    for way, table, rows in _cases(result.outcomes):
        if way in asked and table == EVERYTHING:
            error, most = off([row.error for row in rows]), asked[way]
            what = f"inference, new: {WORDS[way]}; error"
            found.append(Floor(what, table, f"≤ {percent(most)}", percent(error), error <= most))
    return found


def to_json(result: Result) -> Any:
    return asdict(result)
