"""The treemap of the tree page: area = effective share, filled from below as the reader asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from allocator.pages.burning import DELIVERED_AIM
from allocator.pages.treemap import Box, squarify
from budgets.hues import Hue
from budgets.models import WHOLE

if TYPE_CHECKING:
    from allocator.pages.tree import Line

WIDTH, HEIGHT = 300.0, 440.0
GAP = 1.0
# A name needs so much space, its number so much more; both in units of the picture.
LETTER, MARGIN, LINE, NUMBER = 6.6, 12.0, 18.0, 48.0


FILLS = ("settled", "delivered")


@dataclass(frozen=True)
class Filling:
    """What the pictures of entitlement are filled with, and up to where they should be.

    ``of``: one of FILLS, the settled part of the grant or the delivered part of what was owed.
    ``mark``: the dashed line, the elapsed part of the period or the aim; None draws none. Parts are
    in thousandths of a percent.
    """

    of: str
    mark: int | None

    def part(self, line: Line) -> int | None:
        """Return how far a budget's shape is filled, None where there is nothing to compare."""
        if line.burn is None:
            return None
        return line.burn.settled_part if self.of == "settled" else line.burn.delivered_part

    def drawn(self, line: Line) -> float:
        """Return the same as a part of 1 that stays inside the shape."""
        return min(WHOLE, max(0, self.part(line) or 0)) / WHOLE


def filling(asked: str, elapsed: int | None) -> Filling:
    """Return what a reader asked for; anything unknown is the settled part."""
    return Filling("delivered", DELIVERED_AIM) if asked == FILLS[1] else Filling(FILLS[0], elapsed)


@dataclass(frozen=True)
class Tile:
    """A leaf, or a parent's reserve, as a rectangle. Numbers are those of SVG attributes."""

    line: Line
    hue: Hue
    x: str
    y: str
    width: str
    height: str
    fill_y: str
    fill_height: str
    mark_y: str
    part: int | None  # thousandths of a percent that it is filled with
    text_x: str
    name_y: str
    part_y: str
    has_name: bool
    has_part: bool  # on a line of its own
    has_part_beside: bool


def tiles(lines: Sequence[Line], fill: Filling) -> list[Tile]:
    """Return the tiles of all leaves and reserves, each inside its parent's rectangle.

    One tile alone compares with nothing, so there is none then.
    """
    below = by_parent(lines)
    tops = below[None]
    boxes = squarify([line.effective for line in tops], Box(1, 1, WIDTH - 2, HEIGHT - 2))
    found = [
        tile
        for top, box in zip(tops, boxes, strict=True)
        for tile in _inside(top, box, below, fill)
    ]
    return found if len(found) > 1 else []


def by_parent(lines: Sequence[Line]) -> Mapping[int | None, list[Line]]:
    """Return the lines below each budget, reserve included, by its id; None: those below none."""
    found: defaultdict[int | None, list[Line]] = defaultdict(list)
    for line in lines:
        found[line.parent_row].append(line)
    return found


def _inside(
    line: Line, box: Box, below: Mapping[int | None, list[Line]], fill: Filling
) -> Iterator[Tile]:
    if line.is_reserve or not line.has_children:
        if line.effective > 0:
            yield _tile(line, box.inside(GAP), fill)
        return
    children, inner = below[line.budget.pk], box.inside(GAP / 2)
    boxes = squarify([one.effective for one in children], inner)
    for child, part in zip(children, boxes, strict=True):
        yield from _inside(child, part, below, fill)


def _tile(line: Line, box: Box, fill: Filling) -> Tile:
    filled = box.height * fill.drawn(line)
    name = len(line.budget.name) * LETTER
    named = not line.is_reserve and name + MARGIN <= box.width and box.height >= LINE
    mark = None if fill.mark is None else box.height * (1 - fill.mark / WHOLE)
    # The dashed line would strike the number out.
    below = box.height >= 2 * LINE and box.width >= NUMBER and not (mark and LINE < mark < 2 * LINE)
    return Tile(
        line=line,
        hue=line.hue,
        x=svg(box.x),
        y=svg(box.y),
        width=svg(box.width),
        height=svg(box.height),
        fill_y=svg(box.y + box.height - filled),
        fill_height=svg(filled),
        mark_y="" if mark is None else svg(box.y + mark),
        part=fill.part(line),
        text_x=svg(box.x + 6),
        name_y=svg(box.y + 16),
        part_y=svg(box.y + 31),
        has_name=named,
        has_part=named and below,
        has_part_beside=named and not below and name + MARGIN + NUMBER <= box.width,
    )


def svg(value: float) -> str:
    """Return a length as an attribute of SVG, never localised."""
    return f"{value:.1f}"
