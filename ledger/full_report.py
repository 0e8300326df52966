"""A burn report with all its parts, as files and pages show it: budgets, days, jobs, people."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from budgets.access import EVERYTHING, NamedThen, Standing
from budgets.models import Budget
from clusters.saying import say as _
from ledger.burn import DayBurn, burn_by_day
from ledger.burn_report import SECOND, BurnReport, Delivered, burn_report
from ledger.by_hand import ByHand, by_hand_between
from ledger.instants import LedgerError
from ledger.membership import Membership
from ledger.spenders import Spenders, spenders

LONGEST = timedelta(days=3660)  # its days are listed one by one


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report is about: [start, end), as of now, by "child" or "leaf".

    ``zone``: whose midnights part the days; None: the period's. ``held``: the reader's standing;
    of a budget that moved out of their sight they read no path.
    """

    budget: Budget
    start: datetime
    end: datetime
    now: datetime
    by: str = "child"
    zone: ZoneInfo | None = None
    held: Standing = EVERYTHING


@dataclass(frozen=True, slots=True)
class FullReport:
    """``burn`` has the figures of budgets, ``zone`` the name of the one that days are cut in."""

    burn: BurnReport
    zone: str
    days: tuple[DayBurn, ...]
    spenders: Spenders
    by_hand: tuple[ByHand, ...]


def full_report(asked: Asked, *, delivered: Mapping[int, Delivered] | None = None) -> FullReport:
    """Report on all that was asked.

    Raises LedgerError if no period covers the interval's end, or for more than ten years.
    """
    budget, start, end = asked.budget, asked.start, asked.end
    if end - start > LONGEST:
        raise LedgerError(
            _("A report is about %(days)s days at most: choose fewer.", days=LONGEST.days)
        )
    tree = Membership.load()
    burn = burn_report(
        budget=budget,
        start=start,
        end=end,
        now=asked.now,
        by=asked.by,
        delivered=delivered,
        tree=tree,
    )
    zone = asked.zone or ZoneInfo(burn.time_zone)
    named = NamedThen(asked.held, min(asked.now, end - SECOND))
    spent = spenders(budget=budget, start=start, end=end, now=asked.now, tree=tree)
    return FullReport(
        burn=replace(
            burn, rows=tuple(replace(row, path=named.path(row.path)) for row in burn.rows)
        ),
        zone=str(zone),
        days=tuple(burn_by_day(budget=budget, start=start, end=end, zone=zone, tree=tree)),
        spenders=replace(
            spent, jobs=tuple(replace(job, budget=named.path(job.budget)) for job in spent.jobs)
        ),
        by_hand=tuple(
            replace(one, budget=named.path(one.budget))
            for one in by_hand_between(budget=budget, start=start, end=end, tree=tree)
        ),
    )
