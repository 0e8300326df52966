"""A burn report as an XLSX workbook: a sheet to read, then every section as it is, all typed."""

import io
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import xlsxwriter
from xlsxwriter.worksheet import Worksheet

from ledger.burn_report import BurnReport, BurnRow
from ledger.exports.sections import CREDIT, Cell, Section, sections, shown
from ledger.exports.text import HEADER
from ledger.full_report import FullReport

Value = Cell | Decimal
# A spreadsheet keeps 15 digits of a number; longer ones are written as text, so that none is lost.
EXACT = 10**15
WIDTHS = {"path": 30, "name": 22, "person": 20, "username": 16, "budget": 30, "what": 32}
OPTIONS = {
    "in_memory": True,
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
    "default_date_format": "yyyy-mm-dd",
}


def burn_workbook(full: FullReport) -> bytes:
    """Return the workbook; one and the same for one and the same report."""
    parts = (_summary(full.burn), *sections(full))
    return workbook(_title(full.burn), parts, made=full.burn.now)


def workbook(title: str, parts: Iterable[Section], *, made: datetime) -> bytes:
    """Return a workbook of sections, a sheet each."""
    stream = io.BytesIO()
    book = xlsxwriter.Workbook(stream, OPTIONS)
    book.set_properties({"title": title, "created": _naive(made)})
    for section in parts:
        _Sheet(book, section).write()
    book.close()
    return stream.getvalue()


def _title(burn: BurnReport) -> str:
    return f"{burn.budget}, {burn.period}"


def _naive(at: datetime) -> datetime:
    return at.replace(tzinfo=None)


class _Sheet:
    """One section on a sheet of its own: a fixed header, the last row set off where it is a sum."""

    def __init__(self, book: Any, section: Section) -> None:
        self.section = section
        self.sheet: Worksheet = book.add_worksheet(section.name)
        self.head = book.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "top"})
        self.formats = {
            (kind, strong): book.add_format({"num_format": number, "bold": strong})
            for kind, number in (("", "General"), ("int", "#,##0"), ("credits", "#,##0.00"))
            for strong in (False, True)
        }

    def write(self) -> None:
        sheet, section = self.sheet, self.section
        sheet.freeze_panes(1, 1)
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        sheet.set_paper(9)  # A4
        for column, name in enumerate(section.columns):
            sheet.set_column(column, column, WIDTHS.get(name, 16))
            sheet.write_string(0, column, name, self.head)
        for number, row in enumerate(section.rows, 1):
            strong = row[0] in ("total", None) or row[1] == "all others"
            for column, cell in enumerate(row):
                self._write(number, column, cell, strong)

    def _write(self, row: int, column: int, cell: Value, strong: bool) -> None:
        sheet, plain = self.sheet, self.formats["", strong]
        if cell is None or cell == "":
            return
        if isinstance(cell, Decimal):
            sheet.write_number(row, column, cell, self.formats["credits", strong])
        elif isinstance(cell, int) and abs(cell) < EXACT:
            sheet.write_number(row, column, cell, self.formats["int", strong])
        elif isinstance(cell, date):
            sheet.write_datetime(row, column, cell)
        else:
            sheet.write_string(row, column, str(cell), plain)


def _summary(burn: BurnReport) -> Section:
    """Return the budgets as people read them: credits, days, GPU-hours, with two decimals."""
    rows = [_read(row, shown(row.path), row.is_reserve) for row in burn.rows]
    rows.append(_read(burn.total, "total", False))
    columns = (*HEADER[:7], "runway, days", *HEADER[8:10], "delivered, %", *HEADER[11:])
    return Section("Summary", columns, tuple(rows))  # type: ignore[arg-type]


def _read(row: BurnRow, label: str, is_reserve: bool) -> tuple[Value, ...]:
    return (f"{label} (reserve)" if is_reserve else label, *(get(row) for get in _READ))


def _hundredths(value: int, unit: int) -> Decimal:
    """Return value ÷ unit, rounded half up (away from 0) to two decimals, without a float."""
    sign = -1 if value < 0 else 1
    return Decimal(sign * ((abs(value) * 200 + unit) // (2 * unit))).scaleb(-2)


def _over(name: str, unit: int) -> Callable[[BurnRow], Decimal | None]:
    def get(row: BurnRow) -> Decimal | None:
        value = getattr(row, name)
        return None if value is None else _hundredths(value, unit)

    return get


def _delivered(row: BurnRow) -> Decimal | None:
    if not row.owed_gpu_seconds or row.delivered_gpu_seconds is None:
        return None
    return _hundredths(row.delivered_gpu_seconds * 100, row.owed_gpu_seconds)


_READ: Sequence[Callable[[BurnRow], Decimal | None]] = (
    *(_over(f"{name}_mgpus", CREDIT) for name in ("granted", "settled", "in_flight", "held")),
    _over("spendable_mgpus", CREDIT),
    _over("pace_per_mille", 1000),
    _over("runway_hours", 24),
    *(_over(f"forecast_{name}_mgpus", CREDIT) for name in ("low", "high")),
    _delivered,
    _over("burned_mgpus", CREDIT),
    *(_over(f"{name}_gpu_seconds", 3600) for name in ("busy", "parked", "realtime", "unfunded")),
)
