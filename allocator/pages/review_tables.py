"""Tables of a review pack: cells that the page writes as HTML and the PDF draws."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One cell; ``bar`` is what the tag `bullet` takes, ``numeric`` stands right."""

    text: str = ""
    numeric: bool = False
    is_bad: bool = False
    url: str = ""
    bar: dict[str, Any] | None = None


@dataclass(frozen=True)
class Column:
    """A heading; ``weight`` is its part of the width on paper."""

    name: str
    numeric: bool = False
    weight: float = 1.0
    is_bar: bool = False
    most_lines: int = 99  # on paper; what is longer ends in an ellipsis


@dataclass(frozen=True)
class Table:
    """A table under its title, with a total and a note where it has them."""

    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    foot: list[Cell] = field(default_factory=list)
    note: str = ""
    nothing: str = ""  # what is said in the place of no rows

    @property
    def widths(self) -> list[str]:
        """Each column's part of the width, as HTML and SVG write it."""
        whole = sum(column.weight for column in self.columns)
        return [f"{100 * column.weight / whole:.2f}%" for column in self.columns]


def text(value: str, *, numeric: bool = False, bad: bool = False, url: str = "") -> Cell:
    return Cell(value, numeric, bad, url)


def num(value: str, bad: bool = False) -> Cell:
    return Cell(value, True, bad)
