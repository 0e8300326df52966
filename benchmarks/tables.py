"""Tables for a terminal and for a page."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a head, and rows of text; `left` columns are aligned left."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left: int = 1

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = [self.title, ""]
        for row in (self.head, *self.rows):
            cells = [
                cell.ljust(width) if i < self.left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def markdown(self) -> str:
        rule = [":--" if i < self.left else "--:" for i in range(len(self.head))]
        rows = ["| " + " | ".join(row) + " |" for row in (self.head, rule, *self.rows)]
        return "\n".join([f"**{self.title}**", "", *rows])


def show(tables: Iterable[Table], *, markdown: bool) -> str:
    return "\n\n".join(table.markdown() if markdown else table.text() for table in tables)


def put_into(page: str, name: str, tables: Iterable[Table]) -> str:
    """The page with the tables between `<!-- bench NAME -->` and `<!-- /bench NAME -->`."""
    start, end = f"<!-- bench {name} -->", f"<!-- /bench {name} -->"
    if start not in page or end not in page.split(start, 1)[1]:
        return page
    before, rest = page.split(start, 1)
    after = rest.split(end, 1)[1]
    return f"{before}{start}\n\n{show(tables, markdown=True)}\n\n{end}{after}"


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f} %"


def signed(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:+.1f} %"


def times(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}×"


def milliseconds(seconds: float | None) -> str:
    """Three significant digits, but no more than microseconds."""
    if seconds is None:
        return NOTHING
    ms = 1000 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


def median(values: Iterable[float | None]) -> float | None:
    """The median of those that are known, None where none is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def floors_table(floors: Sequence["Floor"]) -> Table:
    """What is asked for, and whether it is met."""
    rows = [(f.what, f.where, f.asked, f.measured, "met" if f.met else "MISSED") for f in floors]
    head = ("asked for", "where", "at least or most", "measured", "")
    return Table("What is asked for, and what came out", head, rows, left=2)


@dataclass(frozen=True, slots=True)
class Floor:
    """One figure that is asked for: `where` is a family, a fleet or a scenario."""

    what: str
    where: str
    asked: str
    measured: str
    met: bool
