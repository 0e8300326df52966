"""The treemap of the tree page: area = effective share, filled from below = settled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from allocator.pages.treemap import Box, squarify
from budgets.hues import Hue
from budgets.models import WHOLE

if TYPE_CHECKING:
    from allocator.pages.tree import Line

WIDTH, HEIGHT = 300.0, 560.0
GAP = 1.0
# A name needs so much space, its number so much more; both in units of the picture.
LETTER, MARGIN, LINE, NUMBER = 6.6, 12.0, 18.0, 48.0


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
    elapsed_y: str
    text_x: str
    name_y: str
    part_y: str
    has_name: bool
    has_part: bool  # on a line of its own
    has_part_beside: bool


def tiles(lines: Sequence[Line], elapsed: int | None) -> list[Tile]:
    """Return the tiles of all leaves and reserves, each inside its parent's rectangle.

    One tile alone compares with nothing, so there is none then.
    """
    tops = [line for line in lines if line.parent_row is None]
    boxes = squarify([line.effective for line in tops], Box(1, 1, WIDTH - 2, HEIGHT - 2))
    found = [
        tile
        for top, box in zip(tops, boxes, strict=True)
        for tile in _inside(top, box, lines, elapsed)
    ]
    return found if len(found) > 1 else []


def _inside(line: Line, box: Box, lines: Sequence[Line], elapsed: int | None) -> Iterator[Tile]:
    if line.is_reserve or not line.has_children:
        if line.effective > 0:
            yield _tile(line, box.inside(GAP), elapsed)
        return
    below = [one for one in lines if one.parent_row == line.budget.pk]
    inner = box.inside(GAP / 2)
    for child, part in zip(below, squarify([one.effective for one in below], inner), strict=True):
        yield from _inside(child, part, lines, elapsed)


def _tile(line: Line, box: Box, elapsed: int | None) -> Tile:
    settled = min(WHOLE, max(0, (line.burn.settled_part if line.burn else 0) or 0))
    filled = box.height * settled / WHOLE
    name = len(line.budget.name) * LETTER
    named = not line.is_reserve and name + MARGIN <= box.width and box.height >= LINE
    mark = None if elapsed is None else box.height * (1 - elapsed / WHOLE)
    # The dashed line would strike the number out.
    below = box.height >= 2 * LINE and box.width >= NUMBER and not (mark and LINE < mark < 2 * LINE)
    return Tile(
        line=line,
        hue=line.hue,
        x=_svg(box.x),
        y=_svg(box.y),
        width=_svg(box.width),
        height=_svg(box.height),
        fill_y=_svg(box.y + box.height - filled),
        fill_height=_svg(filled),
        elapsed_y="" if mark is None else _svg(box.y + mark),
        text_x=_svg(box.x + 6),
        name_y=_svg(box.y + 16),
        part_y=_svg(box.y + 31),
        has_name=named,
        has_part=named and below,
        has_part_beside=named and not below and name + MARGIN + NUMBER <= box.width,
    )


def _svg(value: float) -> str:
    return f"{value:.1f}"
