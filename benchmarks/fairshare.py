"""Fair Tree over growing trees: the factor of every leaf, from shares and usage in memory."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from allocator.core.fairshare import budget_factors
from allocator.core.problem import FULL_SHARE, BudgetNode

from .measuring import timed
from .tables import Floor, Table, median, milliseconds

LARGE = 10_000
LIMIT = 0.020  # seconds for that many
MORE_REPEATS = 15


@dataclass(frozen=True, slots=True)
class Shape:
    """A seeded tree: so many nodes, each inner one with so many children."""

    name: str
    nodes: int
    children: int
    used: int = 1000  # leaves that have usage, per mille
    even: bool = False  # all siblings with one share and one usage: everything ties


SHAPES = (
    Shape("10 children each", 1000, 10),
    Shape("10 children each", LARGE, 10),
    Shape("3 children each", LARGE, 3),
    Shape("100 children each", LARGE, 100),
    Shape("a tenth of the leaves used", LARGE, 10, used=100),
    Shape("all siblings tie", LARGE, 10, even=True),
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """How long one shape took: the median in seconds, and the most it may be."""

    name: str
    nodes: int
    leaves: int
    seconds: float
    limit: float | None


def measure_all(*, repeats: int, shapes: Iterable[Shape] = SHAPES) -> list[Ranked]:
    return [_measured(shape, max(repeats, MORE_REPEATS)) for shape in shapes]


def _measured(shape: Shape, repeats: int) -> Ranked:
    tree = list(make_tree(shape))
    leaves = len(budget_factors(tree))
    seconds = median(timed(budget_factors, tree)[1] for _ in range(repeats)) or 0.0
    limit = LIMIT if shape.nodes >= LARGE else None
    return Ranked(shape.name, shape.nodes, leaves, seconds, limit)


def make_tree(shape: Shape) -> Iterable[BudgetNode]:
    """Yield the nodes, parents first."""
    rng = Random(f"{shape}")
    yield BudgetNode("o", None, FULL_SHARE, 0)
    paths = ["o"]
    for i in range(shape.nodes - 1):
        parent = paths[i // shape.children]
        paths.append(f"{parent}/{i % shape.children}")
        share, usage = rng.randint(1, FULL_SHARE // shape.children), rng.randint(1, 10**9)
        if shape.even:
            share, usage = FULL_SHARE // shape.children, 600
        yield BudgetNode(paths[-1], parent, share, usage if rng.random() * 1000 < shape.used else 0)


def tables(rows: Sequence[Ranked]) -> list[Table]:
    head = ("tree", "nodes", "leaves", "median, ms", "at most, ms")
    found = [
        (
            *(row.name, f"{row.nodes:,}", f"{row.leaves:,}"),
            *(milliseconds(row.seconds), milliseconds(row.limit)),
        )
        for row in rows
    ]
    return [Table("Fair share of a whole tree", head, found)]


def floors(rows: Sequence[Ranked]) -> list[Floor]:
    return [
        Floor(
            what="fair share: ms",
            where=f"{row.nodes:,} nodes, {row.name}",
            asked=f"≤ {1000 * row.limit:g}",
            measured=milliseconds(row.seconds),
            met=row.seconds <= row.limit,
        )
        for row in rows
        if row.limit is not None
    ]


def to_json(rows: Sequence[Ranked]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
