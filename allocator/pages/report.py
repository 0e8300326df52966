"""A budget's burn report with what was owed and delivered: as a file, and as a page to print."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import dropwhile
from typing import Any
from urllib.parse import urlencode

from allocator import delivery
from allocator.pages.burning import DELIVERED_AIM, FIRST_VERDICT, HIGH_PACE
from budgets import hues, periods
from budgets.access import Person, standing
from budgets.hues import Hue
from budgets.models import WHOLE, Budget
from clusters.reading import reading
from ledger import asking
from ledger.burn import DayBurn
from ledger.burn_report import BurnReport, BurnRow, Delivered, report_period
from ledger.exports.files import File, burn_file
from ledger.exports.focus_columns import DEFAULT
from ledger.exports.sections import checksum
from ledger.full_report import Asked, FullReport, full_report

MOST_DAYS = 35  # shown one by one; more are shown by week
DIGITS = 16  # of the checksum
HIGH_PER_MILLE = int(HIGH_PACE * 1000)
KEPT = ("from", "to", "by", "zone")  # of a query, for the addresses of files


def file_of(asked: Asked, *, kind: str, focus_version: str = DEFAULT) -> File:
    """Return a burn report as a file; LedgerError for what there is no report of."""

    def delivered() -> Mapping[int, Delivered]:
        return _delivered(asked)

    return burn_file(asked, kind=kind, delivered=delivered, focus_version=focus_version)


def full_of(asked: Asked) -> FullReport:
    """Return all parts of a report; LedgerError if no period covers the interval's end."""
    return full_report(asked, delivered=_delivered(asked))


def _delivered(asked: Asked) -> Mapping[int, Delivered]:
    return delivery.summary(start=asked.start, end=asked.end)


# --- The page ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One budget; parts in thousandths of a percent, None where there is nothing to compare."""

    burn: BurnRow
    name: str
    hue: Hue
    settled_part: int | None
    low_part: int | None
    high_part: int | None
    parked_part: int | None  # of what was held funded
    delivered_part: int | None
    runway_s: int | None
    is_high: bool
    is_behind: bool
    is_over: bool  # even the low end of the forecast is more than granted

    @property
    def pace_value(self) -> Decimal | None:
        pace = self.burn.pace_per_mille
        return None if pace is None else Decimal(pace).scaleb(-3)


@dataclass(frozen=True)
class Stretch:
    """What was burned on a day, or in a week that begins on it."""

    day: date
    burn: DayBurn
    parts: list[dict[str, Any]]


@dataclass(frozen=True)
class Page:
    """All that a report's page says."""

    budget: Budget
    above: list[Budget]
    hue: Hue
    full: FullReport
    burn: BurnReport
    rows: list[Row]
    total: Row
    elapsed: int
    stretches: list[Stretch]
    most_gpu_seconds: int
    by_week: bool
    checksum: str
    query: str  # of the same report's files

    @property
    def other_jobs(self) -> int:
        return self.full.spenders.job_count - len(self.full.spenders.jobs)

    @property
    def other_people(self) -> int:
        return self.full.spenders.person_count - len(self.full.spenders.people)


@reading()
def page(user: Person, *, budget: Budget, given: Mapping[str, str], now: datetime) -> Page | None:
    """Return a report, as ``given`` asks for it; None before any period started.

    Raises LedgerError, in a sentence, for what can't be reported.
    """
    asked = asking.asked(budget, given, now, held=standing(user))
    return None if asked is None else _page(user, asked, given)


def _page(user: Person, asked: Asked, given: Mapping[str, str]) -> Page:
    full = full_of(asked)
    burn, painted = full.burn, hues.of_budgets()
    period = report_period(burn.start, burn.end)
    gone = periods.elapsed(period, asked.now)
    judged = gone >= FIRST_VERDICT
    by_week = len(full.days) > MOST_DAYS
    hue = painted[burn.budget]
    shown = _weeks(full.days) if by_week else full.days
    stretches = [_stretch(day, hue) for day in dropwhile(_is_empty, shown)]
    return Page(
        budget=asked.budget,
        above=_above(user, asked.budget),
        hue=hue,
        full=full,
        burn=burn,
        rows=[_row(row, _label(row, burn), painted.get(row.path, 0), judged) for row in burn.rows],
        total=_row(burn.total, burn.name, hue, judged),
        elapsed=int(gone * WHOLE),
        stretches=stretches,
        most_gpu_seconds=max((_held(one.burn) for one in stretches), default=0),
        by_week=by_week,
        checksum=checksum(full)[:DIGITS],
        query=urlencode({name: given[name] for name in KEPT if given.get(name)}),
    )


def _above(user: Person, budget: Budget) -> list[Budget]:
    """Return the ancestors that the reader may see, from the root."""
    slugs, held = budget.path.split("/"), standing(user)
    paths = ["/".join(slugs[:n]) for n in range(1, len(slugs))]
    every = Budget.objects.filter(path__in=[path for path in paths if held.sees(path)])
    return sorted(every, key=lambda one: len(one.path))


def _label(row: BurnRow, burn: BurnReport) -> str:
    """Return a child's name, or a leaf's path below the report's budget."""
    return row.path.removeprefix(f"{burn.budget}/") if burn.by == "leaf" else row.name


def _row(row: BurnRow, name: str, hue: Hue, judged: bool) -> Row:
    funded = row.busy_gpu_seconds + row.parked_gpu_seconds + row.realtime_gpu_seconds
    granted, low = row.granted_mgpus, row.forecast_low_mgpus
    delivered = _part(row.delivered_gpu_seconds, row.owed_gpu_seconds)
    return Row(
        burn=row,
        name=name,
        hue=hue,
        settled_part=_part(row.settled_mgpus, granted),
        low_part=_part(low, granted),
        high_part=_part(row.forecast_high_mgpus, granted),
        parked_part=_part(row.parked_gpu_seconds, funded),
        delivered_part=delivered,
        runway_s=None if row.runway_hours is None else row.runway_hours * 3600,
        is_high=judged and row.pace_per_mille is not None and row.pace_per_mille >= HIGH_PER_MILLE,
        is_behind=delivered is not None and delivered < DELIVERED_AIM,
        is_over=low is not None and granted > 0 and low > granted,
    )


def _part(value: int | None, whole: int | None) -> int | None:
    return value * WHOLE // whole if value is not None and whole and whole > 0 else None


def _held(day: DayBurn) -> int:
    return (
        day.busy_gpu_seconds
        + day.parked_gpu_seconds
        + day.realtime_gpu_seconds
        + day.unfunded_gpu_seconds
    )


def _is_empty(day: DayBurn) -> bool:
    return not (_held(day) or day.settled_mgpus)


def _stretch(day: DayBurn, hue: Hue) -> Stretch:
    parts: list[dict[str, Any]] = [
        {"value": day.busy_gpu_seconds, "hue": hue},
        {"value": day.realtime_gpu_seconds, "hue": hue, "pattern": "realtime"},
        {"value": day.parked_gpu_seconds, "pattern": "parked"},
        {"value": day.unfunded_gpu_seconds, "hue": hue, "pattern": "unfunded"},
    ]
    return Stretch(day.day, day, parts)


def _weeks(days: Sequence[DayBurn]) -> list[DayBurn]:
    """Add up the days of each week, Monday to Sunday; the first and last may be shorter."""
    weeks: dict[date, list[DayBurn]] = defaultdict(list)
    for day in days:
        weeks[day.day - timedelta(days=day.day.weekday())].append(day)
    return [_added(mine) for mine in weeks.values()]


def _added(days: Sequence[DayBurn]) -> DayBurn:
    names = [name for name in DayBurn.__slots__ if name != "day"]
    sums = {name: sum(getattr(day, name) for day in days) for name in names}
    return DayBurn(day=days[0].day, **sums)
