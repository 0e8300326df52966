"""The frame of printed reports: headings, tables, and numbers as people read them.

Integers come in, text goes out: a credit is 3,600,000 milli-GPU-seconds, shown with one decimal,
rounded half up.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from clusters.counting import plural as plural

CREDIT = 3_600_000
HOUR = 3600
WIDTH = 96


def tenths(amount: int, unit: int) -> str:
    """Show an amount in units with one decimal: 5,400,000 in credits is 1.5."""
    sign = "-" if amount < 0 else ""
    whole, rest = divmod((abs(amount) * 10 + unit // 2) // unit, 10)
    return f"{sign}{whole:,}.{rest}"


def credits(mgpus: int) -> str:
    return tenths(mgpus, CREDIT)


def hours(gpu_seconds: int) -> str:
    return tenths(gpu_seconds, HOUR)


def percent(part: Fraction, decimals: int = 1) -> str:
    """Show a part of 1 in percent."""
    return f"{float(part * 100):.{decimals}f} %"


def ratio(part: int, whole: int, decimals: int = 1) -> str:
    """Show part ÷ whole in percent; a dash where there is no whole."""
    return percent(Fraction(part, whole), decimals) if whole else "–"


def heading(text: str, aside: str = "") -> Iterator[str]:
    """A section's title and a rule under it; the aside stands at the right."""
    yield ""
    yield f"{text}{aside:>{WIDTH - len(text)}}" if aside else text
    yield "─" * WIDTH


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, indent: int = 2
) -> Iterator[str]:
    """Align columns: the first ``left`` to the left, the others to the right.

    A row of "-" alone is a rule.
    """
    lines = [list(head), *(list(row) for row in rows)]
    cells = [line for line in lines if line != ["-"]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    for line in lines:
        yield _line(line, widths, left, indent)


def _line(row: list[str], widths: list[int], left: int, indent: int) -> str:
    margin = " " * indent
    if row == ["-"]:
        return margin + "─" * (sum(widths) + 2 * (len(widths) - 1))
    cells = [
        cell.ljust(width) if i < left else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return (margin + "  ".join(cells)).rstrip()
