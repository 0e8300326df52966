"""A budget's burn report with what was owed and delivered: as a file, and as a page to print."""

from collections.abc import Mapping

from allocator import delivery
from ledger.burn_report import Delivered
from ledger.exports.files import File, burn_file
from ledger.exports.focus_columns import DEFAULT
from ledger.full_report import Asked


def file_of(asked: Asked, *, kind: str, focus_version: str = DEFAULT) -> File:
    """Return a burn report as a file; LedgerError for what there is no report of."""

    def delivered() -> Mapping[int, Delivered]:
        return delivery.summary(start=asked.start, end=asked.end)

    return burn_file(asked, kind=kind, delivered=delivered, focus_version=focus_version)
