"""Checks a FOCUS cost-and-usage file, of ours or of anybody, against the rules of the format.

Read row by row, with keys in a temporary file, so that one of any length is checked in the same
memory. What is wrong is told per rule and column: in which row first, and in how many.
`focus_rules` has the rules of a row.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ledger.exports import focus_columns as focus
from ledger.exports.focus_keys import Keys
from ledger.exports.focus_rules import Fault, Seen, faults_of, faults_of_keys
from ledger.instants import LedgerError

NAME_MAX = 50


@dataclass(slots=True)
class Broken:
    """One rule broken in one column: the first row (1 is the header), and how many more."""

    row: int
    column: str
    sentence: str
    others: int = 0

    def __str__(self) -> str:
        more = f" (and {self.others} more rows)" if self.others else ""
        return f"row {self.row}{more}: {self.column}: {self.sentence}"


@dataclass(slots=True)
class Checked:
    """What a file came to; ``amount_mgpus`` is the sum of what only our files tell, else None."""

    version: str
    rows: int = 0
    amount_mgpus: int | None = None
    broken: list[Broken] = field(default_factory=list)


def check_file(path: Path, *, version: str = "") -> Checked:
    """Check a file; LedgerError if it can't be read as CSV in UTF-8, or the version is unknown."""
    if version and version not in focus.VERSIONS:
        raise LedgerError(f"There are no rules for {version!r}: {' or '.join(focus.VERSIONS)}.")
    try:
        with path.open(encoding="utf-8", newline="") as stream, closing(Keys()) as keys:
            return _check(csv.reader(stream, strict=True), version, keys)
    except OSError as error:
        raise LedgerError(f"{path} can't be read ({error.strerror}).") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise LedgerError(f"{path} is no CSV file in UTF-8 ({error}).") from None


def _check(rows: Iterable[list[str]], version: str, keys: Keys) -> Checked:
    stream = iter(rows)
    header = next(stream, [])
    if not any(header):
        raise LedgerError("The file is empty: a cost-and-usage file begins with a line of columns.")
    version = version or _version_of(header)
    checked, told, seen = Checked(version), dict[tuple[str, str], Broken](), Seen(version, keys)

    def tell(row: int, found: Iterable[Fault]) -> None:
        for one in found:
            known = told.get((one.rule, one.column))
            others = known.others + 1 if known else 0
            if known and known.row <= row:
                known.others = others
            else:
                told[one.rule, one.column] = Broken(row, one.column, one.sentence, others)

    tell(1, _header_faults(header, version))
    number = 1
    for number, cells in enumerate(stream, 2):
        seen.row = number
        if len(cells) != len(header):
            words = f"the row has {len(cells)} cells, the header {len(header)}"
            tell(number, [Fault("cells", "row", words)])
        else:
            tell(number, faults_of(dict(zip(header, cells, strict=True)), seen))
    for row, fault in faults_of_keys(keys):
        tell(row, [fault])
    checked.rows, checked.amount_mgpus = number - 1, seen.amount_mgpus
    checked.broken = sorted(told.values(), key=lambda one: (one.row, one.column))
    return checked


def _version_of(header: Sequence[str]) -> str:
    newer = {column.name for column in focus.PROVIDERS["1.4"]} & set(header)
    return "1.4" if newer else "1.2"


def _header_faults(header: Sequence[str], version: str) -> Iterator[Fault]:
    known = focus.known(version)
    for name in sorted(focus.mandatory(version) - set(header)):
        yield Fault("mandatory", name, f"FOCUS {version} must have this column")
    for name in sorted({name for name in header if header.count(name) > 1}):
        yield Fault("twice", name, "the column is there twice")
    ours = [name for name in header if name not in known]
    for name in ours:
        if not name.startswith("x_"):
            yield Fault("x_", name, f"no column of FOCUS {version}: name your own x_…")
        elif not (name[2:].isalnum() and name[2:3].isupper() and name.isascii()):
            yield Fault("pascal", name, "write its name in PascalCase behind x_")
        elif len(name) > NAME_MAX:
            yield Fault("long", name, f"its name has more than {NAME_MAX} characters")
    first = next((n for n, name in enumerate(header) if name not in known), len(header))
    for name in header[first:]:
        if name in known:
            yield Fault("order", name, "it comes after a custom column: those stand last")
