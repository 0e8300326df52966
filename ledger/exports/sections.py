"""A burn report as tables of integers, the same for every kind of file."""

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from typing import Any

from ledger.burn import DayBurn
from ledger.burn_report import BurnRow
from ledger.by_hand import ByHand
from ledger.full_report import FullReport
from ledger.instants import iso
from ledger.spenders import JobSpent, PersonSpent

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet computes and does not show
CREDIT = 3_600_000  # milli-GPU-seconds
Cell = int | str | date | None


@dataclass(frozen=True, slots=True)
class Section:
    """One table: money in milli-GPU-seconds, time in GPU-seconds, as the columns' names say."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def sections(full: FullReport) -> list[Section]:
    parts = (_budgets, _days, _jobs, _people, _by_hand, _about)
    return [part(full) for part in parts]


def burn_csv(full: FullReport) -> str:
    """Return the budgets of a report as CSV: a line per row, the total last."""
    text = io.StringIO()
    writer = csv.writer(text)
    budgets = _budgets(full)
    writer.writerow(budgets.columns)
    writer.writerows(budgets.rows)
    return text.getvalue()


def checksum(full: FullReport) -> str:
    """Return the SHA-256 of the report's CSV file, in hexadecimal digits."""
    return hashlib.sha256(burn_csv(full).encode()).hexdigest()


def as_json(full: FullReport) -> dict[str, Any]:
    """Return the whole report as plain values, instants in ISO 8601."""
    answer = asdict(full.burn)
    for name in ("period_start", "period_end", "start", "end", "now", "closed_until"):
        answer[name] = iso(answer[name]) if answer[name] else None
    spent = full.spenders
    return answer | {
        "zone": full.zone,
        "days": [asdict(day) | {"day": day.day.isoformat()} for day in full.days],
        "jobs": [asdict(job) for job in spent.jobs],
        "other_jobs": _others(spent.other_jobs, spent.job_count - len(spent.jobs)),
        "people": [asdict(person) for person in spent.people],
        "other_people": _others(spent.other_people, spent.person_count - len(spent.people)),
        "by_hand": [asdict(one) | {"at": iso(one.at)} for one in full.by_hand],
        "checksum": checksum(full),
    }


def shown(text: str) -> str:
    """Return what people typed such that a spreadsheet shows it, whatever it begins with."""
    computed = text.startswith(FORMULA) or text.lstrip().startswith(FORMULA)
    return f"'{text}" if computed else text


def _others(amounts: tuple[int, int], number: int) -> dict[str, int]:
    return {"number": number, "settled_mgpus": amounts[0], "gpu_seconds": amounts[1]}


def _names(of: type[Any], *without: str) -> tuple[str, ...]:
    return tuple(one.name for one in fields(of) if one.name not in without)


def _cells(row: Any, columns: Sequence[str]) -> tuple[Cell, ...]:
    found = (getattr(row, name) for name in columns)
    return tuple(shown(cell) if isinstance(cell, str) else cell for cell in found)


def _budgets(full: FullReport) -> Section:
    columns = _names(BurnRow, "is_reserve")

    def rows() -> Iterator[tuple[Cell, ...]]:
        for row in full.burn.rows:
            yield ("reserve" if row.is_reserve else "budget", *_cells(row, columns))
        yield ("total", *_cells(full.burn.total, columns))

    return Section("Budgets", ("row", *columns), tuple(rows()))


def _days(full: FullReport) -> Section:
    columns = _names(DayBurn)
    return Section("Days", columns, tuple(_cells(day, columns) for day in full.days))


def _jobs(full: FullReport) -> Section:
    columns = _names(JobSpent)
    rows = [_cells(job, columns) for job in full.spenders.jobs]
    rest = (None, "all others", "", "", "", *full.spenders.other_jobs)
    return Section("Jobs", columns, (*rows, rest))


def _people(full: FullReport) -> Section:
    columns, spent = _names(PersonSpent), full.spenders
    rows = [_cells(person, columns) for person in spent.people]
    jobs = spent.job_count - sum(person.jobs for person in spent.people)
    return Section("People", columns, (*rows, ("", "all others", jobs, *spent.other_people)))


def _by_hand(full: FullReport) -> Section:
    columns = _names(ByHand, "at")
    rows = ((iso(one.at), *_cells(one, columns)) for one in full.by_hand)
    return Section("By hand", ("at", *columns), tuple(rows))


def _about(full: FullReport) -> Section:
    burn = full.burn
    closed = iso(burn.closed_until) if burn.closed_until else "nothing yet"
    rows: tuple[tuple[Cell, ...], ...] = (
        ("budget", shown(burn.budget)),
        ("period", shown(burn.period)),
        ("period from", iso(burn.period_start)),
        ("period to", iso(burn.period_end)),
        ("burned from", iso(burn.start)),
        ("burned to", iso(burn.end)),
        ("as of", iso(burn.now)),
        ("charged up to", closed),
        ("rows by", burn.by),
        ("days in the time zone", full.zone),
        ("milli-GPU-seconds in a credit", CREDIT),
        ("SHA-256 of the CSV file", checksum(full)),
    )
    return Section("About", ("what", "value"), rows)
