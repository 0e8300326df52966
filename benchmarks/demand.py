"""How well the demand of services is forecast: coverage and over-provision, with ramps kept.

Public request rates of three language models (10-minute steps, 14 days: ten to learn from, four to
be tested on) and GPUs in use in a public cluster (a month of half hours), read from ../shared/data
where that is at hand. A GPU is taken to do a sixteenth of a service's mean rate of the first ten
days, so that swap caps of one and two GPUs mean the same for all. Windows without data are gaps.
"""

import csv
from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from forecasting.core.backtest import Score, needs, pinball, play, rolling, score
from forecasting.core.profile import Floats, Traffic
from forecasting.core.ramps import least_profile

from .tables import Floor, Table, percent

CURVES = Path(__file__).parents[2] / "shared" / "data" / "curves"
RATES = "servegen_rates_10min.csv"
CLUSTER = "helios_earth_vc_gpus_30min_2020-05.csv"
SERVICES = ("m-large", "m-mid", "m-small")
TRAIN_DAYS, MEAN_GPUS = 10, 16
CAPS: tuple[int | None, ...] = (1, 2, None)
QUANTILES = (0.95, 0.99)
NEXT, DAY = "each timestep", "once a day"
WAYS = ((600, NEXT), (1800, NEXT), (1800, DAY))
FIRST_ORIGIN = 14  # days of the cluster's month that are known before its first forecast
FORECASTERS = ("forecast", "same hour yesterday", "same hour last week")
OVER, COVERED = 0.25, 0.99


@dataclass(frozen=True, slots=True)
class Played:
    """One service, forecast in one way, at one quantile and swap cap."""

    service: str
    step_s: int
    forecast: str
    quantile: float
    cap: int | None
    score: Score


@dataclass(frozen=True, slots=True)
class Reserved:
    """What needs no forecast: the peak, kept for good; and what only hindsight could do."""

    service: str
    step_s: int
    peak: Score
    hindsight: Score
    known: dict[str, Score]
    chased: float  # over-provision of the last rate times the least constant that covers 99 %


@dataclass(frozen=True, slots=True)
class Ahead:
    """The next 24 hours of GPUs in use: mean absolute errors and pinball losses by forecaster."""

    name: str
    error: dict[str, float]
    loss: dict[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    played: list[Played]
    reserved: list[Reserved]
    ahead: list[Ahead]


def measure_all(curves: Path | None = None) -> Result:
    """Measure on the files that are at hand; nothing where none is."""
    place = curves or CURVES
    played: list[Played] = []
    reserved: list[Reserved] = []
    for service, traffic in services(place).items():
        for step_s in sorted({step for step, _ in WAYS}):
            reserved.append(_reserved(service, traffic.coarser(step_s)))
        for step_s, forecast in WAYS:
            played += _played(service, traffic.coarser(step_s), forecast)
    return Result(played, reserved, [_ahead(*named) for named in cluster(place).items()])


def services(place: Path) -> dict[str, Traffic]:
    """Rates by service; a window without clients has no data."""
    path = place / RATES
    if not path.exists():
        return {}
    found: dict[str, dict[int, float | None]] = defaultdict(dict)
    for row in csv.DictReader(path.open()):
        known = row["requests_per_s"] and int(row["active_clients"] or 0)
        rate = float(row["requests_per_s"]) if known else None
        found[row["model"]][int(row["timestamp_s"]) // 600] = rate
    # The files say no date: their first day is taken for a Monday.
    start = datetime(2025, 1, 6, tzinfo=UTC)
    return {
        name: Traffic(start, 600, tuple(found[name].get(n) for n in range(14 * 144)))
        for name in SERVICES
    }


def cluster(place: Path) -> dict[str, Traffic]:
    """GPUs in use, of all groups together and of the largest four."""
    path = place / CLUSTER
    if not path.exists():
        return {}
    found: dict[str, list[float]] = defaultdict(list)
    total: dict[str, float] = defaultdict(float)
    for row in csv.DictReader(path.open()):
        found[row["group"]].append(float(row["running_gpus"]))
        total[row["timestamp"]] += float(row["running_gpus"])
    start = datetime(2020, 5, 1, tzinfo=UTC)
    largest = sorted(found, key=lambda name: (-sum(found[name]), name))[:4]
    series = {"all groups": list(total.values()), **{name: found[name] for name in largest}}
    return {name: Traffic(start, 1800, tuple(rates)) for name, rates in series.items()}


def per_gpu(traffic: Traffic) -> float:
    known = traffic.first(TRAIN_DAYS * traffic.per_day).values()
    return float(np.nanmean(known)) / MEAN_GPUS


def _played(service: str, traffic: Traffic, forecast: str) -> list[Played]:
    train, rate = TRAIN_DAYS * traffic.per_day, per_gpu(traffic)
    every, far = (1, traffic.per_day // 4) if forecast == NEXT else (traffic.per_day,) * 2
    rows = []
    for quantile in QUANTILES:
        made = rolling(traffic, train, every, quantile, far)
        for cap in CAPS:
            found = play(traffic, train, every, made, rate, cap)
            rows.append(Played(service, traffic.step_s, forecast, quantile, cap, found))
    return rows


def _reserved(service: str, traffic: Traffic) -> Reserved:
    train, rate = TRAIN_DAYS * traffic.per_day, per_gpu(traffic)
    needed = needs(traffic, rate)
    past, tested = needed[:train], needed[train:]
    peaks = [max(need for need in part if need is not None) for part in (past, tested)]
    peak, hindsight = (score([most] * len(tested), tested) for most in peaks)
    truth = [need or 0 for need in tested]
    known = {_cap(cap): score(least_profile(truth, cap).gpus, tested, cap) for cap in CAPS if cap}
    chased = _chased(traffic.values(), train)
    return Reserved(service, traffic.step_s, peak, hindsight, known, chased)


def _chased(rates: Floats, train: int) -> float:
    before, after = rates[train - 1 : -1], rates[train:]
    known = ~np.isnan(before) & ~np.isnan(after)
    before, after = before[known], after[known]
    times = float(np.quantile(after / before, COVERED))
    return times * float(np.mean(before)) / float(np.mean(after)) - 1


def _ahead(name: str, traffic: Traffic) -> Ahead:
    """Each day from the first origin on is forecast at its beginning. A baseline's 0.9 is itself
    and the 0.9-quantile of its own errors up to then: it knows how wrong it is."""
    per_day, actual = traffic.per_day, traffic.values()
    train = FIRST_ORIGIN * per_day
    made = rolling(traffic, train, per_day, 0.9)
    tested = actual[train:]
    median, high = (
        np.concatenate([np.array(getattr(day, what)) for day in made])[: len(tested)]
        for what in ("median", "capacity")
    )
    error = {"forecast": float(np.mean(np.abs(median - tested)))}
    loss = {"forecast": pinball(high, tested, 0.9)}
    for label, lag in zip(FORECASTERS[1:], (per_day, 7 * per_day), strict=True):
        plain = actual[train - lag : len(actual) - lag]
        error[label] = float(np.mean(np.abs(plain - tested)))
        loss[label] = pinball(plain + _margins(actual, train, lag, per_day), tested, 0.9)
    return Ahead(name, error, loss)


def _margins(actual: Floats, train: int, lag: int, per_day: int) -> Floats:
    errors = actual[lag:] - actual[:-lag]
    days = [
        np.full(per_day, np.quantile(errors[: origin - lag], 0.9))
        for origin in range(train, len(actual), per_day)
    ]
    return np.concatenate(days)[: len(actual) - train]


def tables(result: Result) -> list[Table]:
    return [_services_table(result), _reserved_table(result), _ahead_table(result)]


def _services_table(result: Result) -> Table:
    head = ["service", "timestep", "forecast", "swap cap"]
    for quantile in QUANTILES:
        head += [f"{quantile}: time covered", "demand covered", "over-provision"]
    rows: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in result.played:
        key = (row.service, f"{row.step_s // 60} min", row.forecast, _cap(row.cap))
        cells = (row.score.time_covered, row.score.demand_covered, row.score.over)
        rows[key] += map(percent, cells)
    body = [(*key, *cells) for key, cells in rows.items()]
    title = "Demand of services, four days after ten: capacity at quantiles 0.95 and 0.99"
    return Table(title, tuple(head), body, left=3)


def _reserved_table(result: Result) -> Table:
    head = (
        *("service", "timestep", "peak of ten days: time covered", "demand covered"),
        *("over-provision", "peak in hindsight: over", "known ahead, cap 1: over", "cap 2"),
        "last rate × best constant: over",
    )
    rows = [
        (
            *(row.service, f"{row.step_s // 60} min", percent(row.peak.time_covered)),
            *(percent(row.peak.demand_covered), percent(row.peak.over)),
            percent(row.hindsight.over),
            *(percent(found.over) for found in row.known.values()),
            percent(row.chased),
        )
        for row in result.reserved
    ]
    return Table(
        "The same four days without a forecast, and with perfect knowledge", head, rows, left=2
    )


def _ahead_table(result: Result) -> Table:
    names = FORECASTERS
    head = ("GPUs in use", *(f"MAE: {name}" for name in names), *(f"0.9: {name}" for name in names))
    rows = []
    every = [("all groups", [row for row in result.ahead if row.name == "all groups"])]
    every.append(
        ("mean of the largest four", [row for row in result.ahead if row.name != "all groups"])
    )
    for label, group in every:
        if group:
            errors = [f"{np.mean([row.error[name] for row in group]):.2f}" for name in names]
            losses = [f"{np.mean([row.loss[name] for row in group]):.2f}" for name in names]
            rows.append((label, *errors, *losses))
    return Table("The next 24 hours of a cluster: error, and pinball loss at 0.9", head, rows)


def floors(result: Result) -> list[Floor]:
    found = []
    for row in result.played:
        if row.cap is None and row.forecast == NEXT:
            timed = row.quantile == QUANTILES[-1]
            covered = row.score.time_covered if timed else row.score.demand_covered
            what = "of the time" if timed else "of the demand"
            found.append(
                Floor(
                    f"99 % {what} covered, over-provision at most 25 %",
                    f"{row.service}, {row.step_s // 60} min",
                    "99 %, 25 %",
                    f"{percent(covered)}, {percent(row.score.over)}",
                    covered >= COVERED and row.score.over <= OVER,
                )
            )
    if result.played:
        broken = sum(row.score.broken for row in result.played)
        found.append(Floor("swap caps broken", "all", "0", str(broken), broken == 0))
    for group in result.ahead[:1]:
        for what, by in (("MAE", group.error), ("pinball at 0.9", group.loss)):
            own, best = by["forecast"], min(by[name] for name in FORECASTERS[1:])
            asked = f"below {best:.2f}"
            found.append(Floor(f"next 24 h: {what}", group.name, asked, f"{own:.2f}", own < best))
    return found


def to_json(result: Result) -> Any:
    return asdict(result)


def _cap(cap: int | None) -> str:
    return "none" if cap is None else str(cap)
