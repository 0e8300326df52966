"""A burn report as aligned tables for a terminal: credits, GPU-hours, percent."""

from collections.abc import Iterable, Sequence
from zoneinfo import ZoneInfo

from ledger.burn_report import BurnReport, BurnRow
from ledger.full_report import FullReport
from ledger.reports import credits
from ledger.spenders import Spenders

HEADER = (
    *("budget", "granted", "settled", "in flight", "held", "spendable", "pace", "runway"),
    *("forecast from", "to", "delivered"),
    *("burned", "busy h", "parked h", "real time h", "unfunded h"),
)
LEGEND = (
    "Amounts in credits, times in GPU-hours; pace 1.00 is on time. Forecast: what is settled at "
    "the period's end, four times out of five. Spendable of (reserve) is that of the whole budget: "
    "it doesn't add up."
)


def burn_table(full: FullReport) -> str:
    """Return the report's budgets with their total, then its dearest jobs and people."""
    burn, zone = full.burn, ZoneInfo(full.zone)
    rows = [_cells(row, _label(row, burn)) for row in (*burn.rows, burn.total)]
    start, end, now = (
        f"{at.astimezone(zone):%Y-%m-%d %H:%M}" for at in (burn.start, burn.end, burn.now)
    )
    return "\n".join(
        (
            f"{burn.budget}, {burn.period}: burned from {start} to {end} {full.zone}, as of {now}",
            table(HEADER, rows, rules=[len(rows) - 1]),
            LEGEND,
            *_spenders(full.spenders),
        )
    )


def summary(burn: BurnReport) -> list[tuple[str, ...]]:
    """Return the same rows of words, the header first."""
    return [HEADER, *(_cells(row, _label(row, burn)) for row in (*burn.rows, burn.total))]


def _label(row: BurnRow, burn: BurnReport) -> str:
    if row is burn.total:
        return "total"
    if row.is_reserve:
        return "(reserve)"
    return row.path.removeprefix(f"{burn.budget}/")


def _cells(row: BurnRow, label: str) -> tuple[str, ...]:
    amounts = (row.granted_mgpus, row.settled_mgpus, row.in_flight_mgpus, row.held_mgpus)
    times = (
        *(row.busy_gpu_seconds, row.parked_gpu_seconds),
        *(row.realtime_gpu_seconds, row.unfunded_gpu_seconds),
    )
    return (
        label,
        *map(credits, (*amounts, row.spendable_mgpus)),
        "-" if row.pace_per_mille is None else f"{row.pace_per_mille / 1000:.2f}",
        "-" if row.runway_hours is None else f"{row.runway_hours / 24:.1f} d",
        *map(_or_dash, (row.forecast_low_mgpus, row.forecast_high_mgpus)),
        _delivered(row),
        credits(row.burned_mgpus),
        *map(hours, times),
    )


def _or_dash(amount: int | None) -> str:
    return "-" if amount is None else credits(amount)


def _delivered(row: BurnRow) -> str:
    if not row.owed_gpu_seconds or row.delivered_gpu_seconds is None:
        return "-"
    return f"{row.delivered_gpu_seconds * 1000 // row.owed_gpu_seconds / 10:.1f} %"


def hours(seconds: int) -> str:
    """Return GPU-seconds as people read them, in GPU-hours with two decimals."""
    return f"{seconds / 3600:,.2f}"


def _spenders(spent: Spenders) -> Iterable[str]:
    if not spent.jobs:
        return
    jobs = [
        (f"#{job.job} {job.name}", job.person, credits(job.settled_mgpus), hours(job.gpu_seconds))
        for job in spent.jobs
    ]
    people = [
        (one.name, str(one.jobs), credits(one.settled_mgpus), hours(one.gpu_seconds))
        for one in spent.people
    ]
    others, further = spent.other_jobs, spent.other_people
    more = str(spent.job_count - sum(one.jobs for one in spent.people))
    jobs.append(("all others", "", credits(others[0]), hours(others[1])))
    people.append(("all others", more, credits(further[0]), hours(further[1])))
    yield ""
    yield table(("dearest jobs", "by", "burned", "GPU-hours"), jobs)
    yield ""
    yield table(("people", "jobs", "burned", "GPU-hours"), people)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], rules: Iterable[int] = ()) -> str:
    """Return lines of aligned columns, the first to the left; a rule above the rows in `rules`."""
    rows = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = []
    for number, row in enumerate(rows):
        if number == 1 or number - 1 in set(rules):
            lines.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
