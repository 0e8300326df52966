"""Rectangles whose areas are shares: the squarified treemap, in plain numbers.

Source: Bruls, Huizing, van Wijk, "Squarified Treemaps" (2000). Rows are laid along the shorter
side of what is left, and a rectangle joins a row while that makes the row's worst one squarer.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """A rectangle, in the units of the picture."""

    x: float
    y: float
    width: float
    height: float

    def inside(self, gap: float) -> "Box":
        """Return the box drawn in by a gap on every side; never smaller than nothing."""
        return Box(
            self.x + min(gap, self.width / 2),
            self.y + min(gap, self.height / 2),
            max(0.0, self.width - 2 * gap),
            max(0.0, self.height - 2 * gap),
        )


def squarify(weights: Sequence[float], box: Box) -> list[Box]:
    """Return a box for each weight, in their order, that together fill the given one.

    Areas are proportional to the weights, of which none may be negative; where all are 0, none
    has an area.
    """
    total = sum(weights)
    if total <= 0:
        return [Box(box.x, box.y, 0.0, 0.0) for _ in weights]
    scale = box.width * box.height / total
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    boxes: dict[int, Box] = {}
    while order:
        row = _row([weights[i] * scale for i in order], min(box.width, box.height))
        laid, box = _lay([weights[i] * scale for i in order[:row]], box)
        boxes.update(zip(order[:row], laid, strict=True))
        order = order[row:]
    return [boxes[i] for i in range(len(weights))]


def _row(areas: Sequence[float], side: float) -> int:
    """Return how many of the areas, the largest first, stand in one row along a side."""
    count = 1
    while count < len(areas) and _worst(areas[: count + 1], side) <= _worst(areas[:count], side):
        count += 1
    return count


def _worst(areas: Sequence[float], side: float) -> float:
    """Return the greatest ratio of the sides of any rectangle in a row; 1 is a square."""
    total = sum(areas)
    if total <= 0 or side <= 0 or areas[-1] <= 0:
        return float("inf")
    return max(side * side * areas[0] / total**2, total**2 / (side * side * areas[-1]))


def _lay(areas: Sequence[float], box: Box) -> tuple[list[Box], Box]:
    """Lay one row along the shorter side; return its boxes and what is left of the space."""
    total = sum(areas)
    upright = box.width >= box.height
    side = box.height if upright else box.width
    thick = total / side if side else 0.0
    laid, at = [], 0.0
    for area in areas:
        length = area / thick if thick else 0.0
        if upright:
            laid.append(Box(box.x, box.y + at, thick, length))
        else:
            laid.append(Box(box.x + at, box.y, length, thick))
        at += length
    if upright:
        return laid, Box(box.x + thick, box.y, max(0.0, box.width - thick), box.height)
    return laid, Box(box.x, box.y + thick, box.width, max(0.0, box.height - thick))
