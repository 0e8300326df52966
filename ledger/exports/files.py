"""One function for every kind of file, so that command, API and pages give the same."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from django.conf import settings

from clusters.saying import say as _
from ledger.burn_report import Delivered
from ledger.exports import focus_columns, sections, text, workbook
from ledger.exports.focus import focus_csv
from ledger.exports.focus_rows import Money
from ledger.full_report import Asked, FullReport, full_report
from ledger.instants import LedgerError

CSV = "text/csv; charset=utf-8"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
KINDS = ("table", "csv", "json", "xlsx", "focus")


@dataclass(frozen=True, slots=True)
class File:
    """A file to be sent or written; those of a long one are made while they are read."""

    name: str
    content_type: str
    chunks: Iterable[bytes]
    is_long: bool = False

    def read(self) -> bytes:
        return b"".join(self.chunks)


def burn_file(
    asked: Asked,
    *,
    kind: str,
    delivered: Callable[[], Mapping[int, Delivered]],
    focus_version: str = focus_columns.DEFAULT,
) -> File:
    """Return a burn report as a file of a kind; LedgerError for what there is no report of.

    ``delivered`` is called where the file has it: GPU-seconds owed and delivered, by budget id.
    """
    if kind == "focus":
        return _focus(asked, focus_version)
    maker = _MAKERS.get(kind)
    if maker is None:
        raise LedgerError(
            _(
                "There is no format %(kind)s: choose %(kinds)s.",
                kind=repr(kind),
                kinds=", ".join(KINDS),
            )
        )
    make, content_type, ending = maker
    full = full_report(asked, delivered=delivered())
    return File(f"{_stem(asked)}.{ending}", content_type, [make(full)])


def _focus(asked: Asked, version: str) -> File:
    money = Money(settings.FOCUS_CREDIT_PRICE, settings.FOCUS_CURRENCY, settings.FOCUS_NAMES_PEOPLE)
    chunks = focus_csv(
        budget=asked.budget,
        start=asked.start,
        end=asked.end,
        version=version,
        money=money,
    )
    return File(f"{_stem(asked)}.focus-{version}.csv", CSV, chunks, is_long=True)


def _stem(asked: Asked) -> str:
    return f"burn-{asked.budget.path.replace('/', '-')}-{asked.end:%Y-%m-%d}"


def _table(full: FullReport) -> bytes:
    return f"{text.burn_table(full)}\n".encode()


def _csv(full: FullReport) -> bytes:
    return sections.burn_csv(full).encode()


def _json(full: FullReport) -> bytes:
    return f"{json.dumps(sections.as_json(full), indent=2)}\n".encode()


_MAKERS: dict[str, tuple[Callable[[FullReport], bytes], str, str]] = {
    "table": (_table, "text/plain; charset=utf-8", "txt"),
    "csv": (_csv, CSV, "csv"),
    "json": (_json, "application/json", "json"),
    "xlsx": (workbook.burn_workbook, XLSX, "xlsx"),
}
