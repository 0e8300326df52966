"""One line of a CSV file, value by value: what can't be read gets a sentence with its line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from .validate import ProblemError

DAY_S = 24 * 3600
MOST_SECONDS = 366 * DAY_S
LONGEST = 90  # characters of a name
MOST_NUMBERS = 10_080  # of a list: the minutes of a week


class BadRow(ValueError):
    """One sentence about one line."""


def check_columns(found: Sequence[str] | None, required: Sequence[str], name: str) -> None:
    """Raise `ProblemError` where a file's first line lacks a column, or has one twice."""
    columns = found or ()
    missing = [column for column in required if column not in columns]
    if missing:
        raise ProblemError(
            f"{name} has no column {missing[0]}: it needs {', '.join(required)} in its first line."
        )
    twice = [column for column in columns if column and columns.count(column) > 1]
    if twice:
        raise ProblemError(f"{name} has column {twice[0]} twice: leave one out.")


@dataclass(frozen=True)
class Line:
    """One line of the file, and where it stands."""

    where: str
    row: Mapping[str, str | None]

    def check_width(self) -> None:
        """Refuse values beyond the columns: something with a comma in it, most likely."""
        # csv.DictReader keeps them as a list under None, which its type doesn't tell.
        beyond = cast(Mapping[None, list[str]], self.row).get(None, ())
        more = sum(bool(value.strip()) for value in beyond)
        if more:
            values = "one value" if more == 1 else f"{more} values"
            raise BadRow(
                f"{self.where}: it has {values} more than there are columns: put what has a comma "
                "in it in quotes."
            )

    def value(self, name: str) -> str:
        value = (self.row.get(name) or "").strip()
        if len(value) > LONGEST or not value.isprintable():
            raise BadRow(
                f"{self.where}: {name} is {value[:20]!r}, but must be at most {LONGEST} printable "
                "characters."
            )
        return value

    def text(self, name: str) -> str:
        if not (value := self.value(name)):
            raise BadRow(f"{self.where}: {name} is empty.")
        return value

    def whole(self, name: str, *, least: int, most: int = MOST_SECONDS) -> int:
        value = self.value(name)
        if not _is_whole(value) or not least <= int(value) <= most:
            raise BadRow(
                f"{self.where}: {name} is {value!r}, but must be a whole number from {least} to "
                f"{most}."
            )
        return int(value)

    def maybe(self, name: str, *, least: int, most: int = MOST_SECONDS) -> int | None:
        return self.whole(name, least=least, most=most) if self.value(name) else None

    def wholes(self, name: str, *, most: int) -> tuple[int, ...]:
        """Whole numbers from 0 on, with blanks between them."""
        values = (self.row.get(name) or "").split()
        if len(values) > MOST_NUMBERS:
            raise BadRow(
                f"{self.where}: {name} has {len(values):,} numbers, but at most {MOST_NUMBERS:,} "
                "go: give a longer step."
            )
        for value in values:
            if not _is_whole(value) or int(value) > most:
                raise BadRow(
                    f"{self.where}: {name} has {value[:20]!r}, but must be whole numbers from 0 to "
                    f"{most} with blanks between them."
                )
        return tuple(map(int, values))

    def one_of(self, name: str, accepted: tuple[str, ...], default: str) -> str:
        value = self.value(name).lower() or default
        if value not in accepted:
            raise BadRow(
                f"{self.where}: {name} is {value!r}, but must be one of {', '.join(accepted)}."
            )
        return value


def _is_whole(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= 15
