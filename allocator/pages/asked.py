"""A budget's declarations against what its jobs used: the figures, and the picture's points."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from budgets import hues
from budgets.access import Person, get_budget_or_404
from budgets.hues import Hue
from clusters.reading import reading
from forecasting import asked
from forecasting.asked import AskedAgainstUsed, Line, ServiceLine
from forecasting.core.inflation import Inflation
from forecasting.core.quantiles import PER_MILLE

ROWS = 8
POINTS = 400  # of the picture: the newest


@dataclass(frozen=True)
class Row:
    """One project or person; `times` and `took` in hundredths as the tag `number` takes them."""

    key: str
    name: str
    jobs: int
    times: float
    took: int
    beyond_gpu_seconds: int


@dataclass(frozen=True)
class Served:
    """One service: how many times what its traffic needed its profile declares."""

    job: int
    name: str
    times: float | None


@dataclass(frozen=True)
class Page:
    """What the part says; `picture` is what static/charts.js draws."""

    found: AskedAgainstUsed
    days: int
    projects: list[Row]
    people: list[Row]
    services: list[Served]
    picture: dict[str, Any] | None

    @property
    def picture_json(self) -> str:
        """For an attribute: htmx drops JSON blocks of what it fetches."""
        return json.dumps(self.picture, separators=(",", ":"))

    @property
    def median(self) -> float | None:
        """How many times what is used is asked, at the median."""
        one = self.found.duration
        return one.median_per_mille / PER_MILLE if one else None

    @property
    def low(self) -> float | None:
        one = self.found.duration
        return one.low_per_mille / PER_MILLE if one else None

    @property
    def high(self) -> float | None:
        one = self.found.duration
        return one.high_per_mille / PER_MILLE if one else None

    @property
    def suggested(self) -> float | None:
        """What to declare of what one would, as in 0.62."""
        one = self.found.duration
        return one.suggests / PER_MILLE if one and one.suggests else None

    @property
    def limit_part(self) -> int | None:
        """What of their time limits nine of ten jobs would fit in, in thousandths of a percent."""
        one = self.found.limit
        return one.nine_of_ten_per_mille * 100 if one and one.suggests else None

    @property
    def parked_part(self) -> int | None:
        """What of the GPU-time held was parked, in thousandths of a percent."""
        held = self.found.held_gpu_seconds
        return self.found.parked_gpu_seconds * 100_000 // held if held else None


@reading()
def page(user: Person, *, path: str, now: datetime) -> Page:
    """Return the part of the page for who may see the budget. A constant number of queries."""
    budget = get_budget_or_404(user, path)
    since = now - timedelta(days=asked.DAYS)
    found = asked.asked_against_used(budget=budget, since=since, now=now, reader=user)
    leaf = {one.key for one in found.projects} <= {budget.path}
    return Page(
        found=found,
        days=asked.DAYS,
        projects=[] if leaf else [_row(one) for one in found.projects[:ROWS]],
        people=[_row(one) for one in found.people[:ROWS]],
        services=[_served(one) for one in found.services[:ROWS]],
        picture=_picture(found.duration, found.pairs, hues.of_budgets().get(budget.path, 0)),
    )


def _row(one: Line) -> Row:
    found = one.found
    times = found.median_per_mille / PER_MILLE
    return Row(one.key, one.name, found.jobs, times, found.took_per_mille, found.beyond_gpu_seconds)


def _served(one: ServiceLine) -> Served:
    times = None if one.per_mille is None else one.per_mille / PER_MILLE
    return Served(one.job, one.name, times)


def _picture(
    found: Inflation | None, pairs: tuple[tuple[int, int], ...], hue: Hue
) -> dict[str, Any] | None:
    if found is None:
        return None
    points = [[max(1, used), asked_s] for used, asked_s in pairs[-POINTS:]]
    return {"hue": hue, "points_s": points, "times_per_mille": found.median_per_mille}
