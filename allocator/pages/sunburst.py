"""The sunburst of the tree page: a ring a level, angle = effective share, filled outward.

It says what the treemap says, and the levels between the organisation and the leaves too. Angles
are in turns from the top, clockwise; lengths in units of the picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi, sin, sqrt
from typing import TYPE_CHECKING

from allocator.pages.painting import LETTER, Filling, by_parent, svg
from budgets.hues import Hue
from budgets.models import WHOLE

if TYPE_CHECKING:
    from allocator.pages.tree import Line

SIZE = 300.0  # of the picture, both ways
CENTRE, OUTER, HOLE = SIZE / 2, 149.0, 36.0
GAP = 1.0
FONT, ROOM = 13.0, 8.0  # height of a letter, and what a name wants beside its length
ACROSS = 2.0  # the same of a name that stands across the ring: its ends are level with no edge
THINNEST = 0.0005  # of a turn: what is narrower can be neither seen nor hit
FULL = 0.9999  # of a turn: an arc that ends where it began is not drawn


@dataclass(frozen=True)
class Band:
    """Part of a ring: from one radius to another, over a span of turns."""

    inner: float
    outer: float
    start: float
    end: float

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2

    @property
    def radius(self) -> float:
        return (self.inner + self.outer) / 2

    def up_to(self, part: float) -> Band:
        """Return its inner part, up to a part of 1 of its thickness."""
        return Band(self.inner, self.inner + (self.outer - self.inner) * part, self.start, self.end)

    def path(self) -> str:
        """Return its outline as the data of an SVG path."""
        if self.end - self.start >= FULL:
            half = self.start + 0.5
            last = self.end - (1 - FULL)
            halves = ((self.start, half), (half, last))
            return "".join(Band(self.inner, self.outer, *one).path() for one in halves)
        back = f"L{_point(self.inner, self.end)}{_arc(self.inner, self.end, self.start)}Z"
        return f"M{_point(self.outer, self.start)}{_arc(self.outer, self.start, self.end)}{back}"

    def edge(self) -> str:
        """Return its outer arc alone."""
        end = min(self.end, self.start + FULL)
        return f"M{_point(self.outer, self.start)}{_arc(self.outer, self.start, end)}"


@dataclass(frozen=True)
class Sector:
    """A budget, or a parent's reserve, as part of a ring. Texts are those of SVG attributes."""

    line: Line
    hue: Hue
    path: str
    filled: str
    mark: str
    part: int | None  # thousandths of a percent that it is filled with
    name_at: str  # a transform, empty where the name has no room


@dataclass(frozen=True)
class Sunburst:
    """All rings, and what stands in the middle where one budget holds all others."""

    sectors: list[Sector]
    top: Line | None
    top_part: int | None


def sunburst(lines: Sequence[Line], fill: Filling) -> Sunburst:
    """Return the sectors of all budgets and reserves, each over its parent's angle.

    Fewer than two compare with nothing, so there are none then.
    """
    below = by_parent(lines)
    tops = below[None]
    top = tops[0] if len(tops) == 1 else None
    levels = max((line.level for line in lines), default=0) + (0 if top else 1)
    thick = (OUTER - HOLE) / max(1, levels)
    rings = _Rings(below, fill, thick, first=1 if top else 0)
    found = list(rings.around(below[top.budget.pk] if top else tops, 0.0, 1.0))
    found = found if len(found) > 1 else []
    return Sunburst(found, top, fill.part(top) if top else None)


@dataclass(frozen=True)
class _Rings:
    below: Mapping[int | None, list[Line]]
    fill: Filling
    thick: float
    first: int  # the level of the innermost ring

    def around(self, siblings: Sequence[Line], start: float, span: float) -> Iterator[Sector]:
        """Yield siblings one after another over a span, each followed by what is below it."""
        total = sum(line.effective for line in siblings)
        for line in siblings:
            part = span * line.effective / total if total else 0.0
            if part >= THINNEST:
                yield self._sector(line, start, start + part)
                if not line.is_reserve:
                    yield from self.around(self.below[line.budget.pk], start, part)
            start += part

    def _sector(self, line: Line, start: float, end: float) -> Sector:
        inner = HOLE + (line.level - self.first) * self.thick
        band = Band(inner + GAP, inner + self.thick, start, end)
        named = "" if line.is_reserve else _name_at(band, len(line.budget.name) * LETTER)
        return Sector(
            line=line,
            hue=line.hue,
            path=band.path(),
            filled=band.up_to(self.fill.drawn(line)).path(),
            mark="" if self.fill.mark is None else band.up_to(self.fill.mark / WHOLE).edge(),
            part=self.fill.part(line),
            name_at=named,
        )


def _name_at(band: Band, length: float) -> str:
    """Return where a name of some length stands upright in a band: along the ring, or across.

    The one of the two that is nearer to level comes first; "" where neither has room.
    """
    turn = band.middle * 360
    thick, width = band.outer - band.inner, (band.end - band.start) * 2 * pi * band.radius
    bulge = band.inner - sqrt(max(0.0, band.inner**2 - (length / 2) ** 2))
    along = width >= length + ROOM and thick >= FONT + bulge
    across = thick >= length + ACROSS and (band.end - band.start) * 2 * pi * band.inner >= FONT
    tight = thick < length + ROOM  # it touches both edges: only where it can't lie along
    level = min(turn % 180, 180 - turn % 180) <= 45  # along the ring, the name lies flatter
    if not along and not across:
        return ""
    tilt = turn if along and (level or tight) else turn + 90
    x, y = _place(band.radius, band.middle)
    return f"translate({svg(x)} {svg(y)}) rotate({svg((tilt + 90) % 180 - 90)})"


def _place(radius: float, turn: float) -> tuple[float, float]:
    angle = turn * 2 * pi
    return CENTRE + radius * sin(angle), CENTRE - radius * cos(angle)


def _point(radius: float, turn: float) -> str:
    return " ".join(svg(one) for one in _place(radius, turn))


def _arc(radius: float, start: float, end: float) -> str:
    """Return an arc from where one is to a turn; backwards where the end comes first."""
    large, clockwise = int(abs(end - start) > 0.5), int(end > start)
    return f"A{svg(radius)} {svg(radius)} 0 {large} {clockwise} {_point(radius, end)}"
