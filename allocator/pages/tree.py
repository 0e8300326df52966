"""The tree of budgets: who is entitled to what, and who keeps to it; one line a budget."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from allocator.pages import burning, changes, painting
from allocator.pages.burning import Burn
from allocator.pages.changes import Change
from allocator.pages.painting import Filling, Tile
from allocator.pages.sunburst import Sunburst, sunburst
from budgets import hues, periods, shares
from budgets.access import Action, Person, Standing, standing
from budgets.hues import Hue
from budgets.models import WHOLE, Budget, Period
from budgets.names import Former, Past
from budgets.shares import TreeNode
from clusters.models import Pool

SHOW = ("all", "above", "below", "mine")
LAST_CHANGES = 4
DEEPEST = 5  # levels that are indented further; below that all stand alike


@dataclass(frozen=True)
class Line:
    """A row: a budget, or what a parent keeps in reserve (then `burn` is None)."""

    budget: Budget
    hue: Hue
    level: int
    parent_row: int | None
    has_children: bool
    is_reserve: bool
    share: int | None
    effective: int
    entitled_gpu_seconds: int | None
    reserve_mgpus: int | None = None
    burn: Burn | None = None
    can_place: bool = False
    former: tuple[Former, ...] = ()  # what it was called, the latest first
    was: Former | None = None  # the one of them by which alone it fits the words

    @property
    def text(self) -> str:
        """What filters look at."""
        return f"{self.budget.name} {self.budget.path}".casefold()

    @property
    def css(self) -> str:
        return f"l{min(self.level, DEEPEST)}"


@dataclass(frozen=True)
class Page:
    """All that the page of the tree says."""

    lines: list[Line]
    counts: Mapping[str, int]
    show: str
    words: str
    pools: list[Pool]
    pool: Pool | None
    period: Period | None
    elapsed: int | None  # thousandths of a percent
    top: Line | None  # where the reader sees one budget that holds all others
    kept: int  # of the top, in reserve; thousandths of a percent
    ahead: list[Line]
    judged: bool
    fill: Filling
    tiles: list[Tile]
    rings: Sunburst
    changes: list[Change]
    editable: Budget | None

    @property
    def shared(self) -> int:
        """Of the top, among its children; thousandths of a percent."""
        return WHOLE - self.kept

    @property
    def ahead_one(self) -> bool:
        return len(self.ahead) == 1


def page(
    user: Person,
    *,
    now: datetime,
    show: str = "all",
    words: str = "",
    sort: str = "",
    pool: str = "",
    fill: str = "",
) -> Page:
    """Read the tree as one person may see it. A constant number of queries.

    `show` is one of SHOW, `sort` a column's key with a minus for falling, `pool` a pool's slug
    whose shares and entitlement are shown in place of those of all, `fill` one of painting.FILLS.
    """
    held, pools = standing(user), list(Pool.objects.all())
    chosen = next((one for one in pools if one.slug == pool), None)
    period = periods.active(now)
    every = shares.every_budget()
    nodes = shares.tree(at=now, pool=chosen, budgets=every)
    burns = burning.burns(period=period, now=now) if period else {}
    reader = _Reader(held, nodes, burns, _entitled(period, chosen), hues.of_budgets(every.values()))
    lines = list(_with_former(reader.lines(), held, words, every))
    filters = _filters(held)
    elapsed = int(periods.elapsed(period, now) * WHOLE) if period else None
    budgets = [line for line in lines if not line.is_reserve]
    tops = [line for line in budgets if line.parent_row is None]
    top = tops[0] if len(tops) == 1 else None
    programs = [line for line in budgets if top and line.parent_row == top.budget.pk]
    filled = painting.filling(fill, elapsed)
    kept, ahead = _reserve_of(lines, top), [one for one in programs or tops if _is_high(one)]
    return Page(
        lines=_sorted(_kept(lines, filters.get(show, filters["all"]), words), sort),
        counts={name: sum(map(fits, budgets)) for name, fits in filters.items()},
        show=show if show in filters else "all",
        words=words,
        pools=pools,
        pool=chosen,
        period=period,
        elapsed=elapsed,
        top=top,
        kept=kept,
        ahead=ahead,
        judged=any(line.burn and line.burn.judged for line in tops),
        fill=filled,
        tiles=painting.tiles(lines, filled),
        rings=sunburst(lines, filled),
        changes=changes.history(_parents(budgets), held=held, limit=LAST_CHANGES),
        editable=next((one.budget for one in budgets if _may_edit(held, one)), None),
    )


def _is_high(line: Line) -> bool:
    return line.burn is not None and line.burn.is_high


def _parents(lines: list[Line]) -> list[int]:
    return [line.budget.pk for line in lines if line.has_children]


def children(
    held: Standing,
    *,
    budget: Budget,
    nodes: Mapping[int, TreeNode],
    burns: Mapping[int, Burn],
    period: Period | None,
    painted: Mapping[str, Hue],
    sort: str = "",
) -> list[Line]:
    """Return the lines of a budget's children and its reserve, as the tree has them."""
    reader = _Reader(held, nodes, burns, _entitled(period, None), painted)
    below = [replace(line, has_children=False) for line in reader.children(budget.pk)]
    return _sorted(below, sort)  # none with anything to fold


def _may_edit(held: Standing, line: Line) -> bool:
    return line.has_children and held.can(Action.EDIT_SHARES, line.budget.path)


def _reserve_of(lines: list[Line], top: Line | None) -> int:
    own = [one.share for one in lines if one.is_reserve and top and one.budget == top.budget]
    return (own[0] or 0) if own else 0


Fits = Callable[[Line], bool]


def _filters(held: Standing) -> dict[str, Fits]:
    """Which lines each choice shows; "mine" where someone sees more than they have a role in."""
    own = {path for path, _ in held.roles}
    filters: dict[str, Fits] = {
        "all": lambda line: True,
        "above": lambda line: line.burn is not None and line.burn.is_high,
        "below": lambda line: line.burn is not None and line.burn.is_low,
    }
    if own:
        filters["mine"] = lambda line: line.budget.path in own
    return filters


class _Reader:
    """Makes the lines in the order of the tree, from what has been read."""

    def __init__(
        self,
        held: Standing,
        nodes: Mapping[int, TreeNode],
        burns: Mapping[int, Burn],
        entitled: Mapping[int, int],
        painted: Mapping[str, Hue],
    ) -> None:
        self.held, self.nodes, self.burns, self.entitled = held, nodes, burns, entitled
        self.seen = {pk for pk, node in nodes.items() if held.sees(node.budget.path)}
        self.hues = painted

    def lines(self) -> Iterator[Line]:
        for pk in self.nodes:
            if self._parent(pk) is None and pk in self.seen:
                yield from self._below(pk, 0)

    def _parent(self, pk: int) -> int | None:
        parent = self.nodes[pk].parent_id
        return parent if parent in self.seen else None

    def _below(self, pk: int, level: int) -> Iterator[Line]:
        node = self.nodes[pk]
        yield self._line(node, level)
        for child in node.children:
            yield from self._below(child, level + 1)
        yield from self._rest(node, level + 1)

    def children(self, pk: int) -> Iterator[Line]:
        """Yield the lines right below a budget."""
        node = self.nodes[pk]
        yield from (self._line(self.nodes[child], 1) for child in node.children)
        yield from self._rest(node, 1)

    def _rest(self, node: TreeNode, level: int) -> Iterator[Line]:
        rest = WHOLE - sum(self.nodes[child].thousandths for child in node.children)
        if node.children and rest > 0:
            yield self._reserve(node, level, rest)

    def _line(self, node: TreeNode, level: int) -> Line:
        pk = node.budget.pk
        return Line(
            budget=node.budget,
            hue=self.hues[node.budget.path],
            level=level,
            parent_row=self._parent(pk),
            has_children=bool(node.children),
            is_reserve=False,
            share=None if node.parent_id is None else node.thousandths,
            effective=int(node.effective * WHOLE),
            entitled_gpu_seconds=self.entitled.get(pk),
            burn=self.burns.get(pk),
            can_place=self._can_place(node),
        )

    def _can_place(self, node: TreeNode) -> bool:
        above = self.nodes[node.parent_id].budget.path if node.parent_id is not None else None
        return above is not None and self.held.can(Action.PROPOSE_SHARES, above)

    def _reserve(self, node: TreeNode, level: int, rest: int) -> Line:
        pk = node.budget.pk
        mine = self.entitled.get(pk)
        given = sum(self.entitled.get(child, 0) for child in node.children)
        burn = self.burns.get(pk)
        return Line(
            budget=node.budget,
            hue=self.hues[node.budget.path],
            level=level,
            parent_row=pk,
            has_children=False,
            is_reserve=True,
            share=rest,
            effective=int(node.effective * rest),
            entitled_gpu_seconds=None if mine is None else mine - given,
            reserve_mgpus=burn.figures.reserve_mgpus if burn else None,
        )


def _entitled(period: Period | None, pool: Pool | None) -> dict[int, int]:
    """Return the GPU-seconds each budget is entitled to in the whole period, by budget id."""
    if period is None:
        return {}
    capacities = period.capacities.all()
    slices = [
        shares.CapacitySlice(one.pool_id, period.starts_at, period.ends_at, one.gpu_seconds)
        for one in (capacities if pool is None else capacities.filter(pool=pool))
    ]
    totals: dict[int, int] = {}
    for (budget, _), seconds in shares.entitled_gpu_seconds(slices=slices).items():
        totals[budget] = totals.get(budget, 0) + seconds
    return totals


def _with_former(
    lines: Iterable[Line], held: Standing, words: str, every: Mapping[int, Budget]
) -> Iterator[Line]:
    """Yield the lines with what the reader may know of what their budgets were called."""
    past, wanted = Past.load(every), words.casefold().strip()
    changed = set(past.changed())
    for line in lines:
        if line.is_reserve or line.budget.pk not in changed:
            yield line
            continue
        former = past.of(line.budget, known=lambda one: held.knows(one.path))
        fits = None if wanted in line.text else (one for one in former if wanted in one.text)
        yield replace(line, former=tuple(former), was=next(fits, None) if fits else None)


def _kept(lines: list[Line], fits: Fits, words: str) -> list[Line]:
    """Return the lines that fit, with all above them so that the tree stays one."""
    wanted = words.casefold().strip()
    rows = {line.budget.pk: line for line in lines if not line.is_reserve}
    keep: set[int] = set()
    for line in rows.values():
        found = wanted in line.text or line.was is not None
        step: int | None = line.budget.pk if fits(line) and found else None
        while step is not None and step not in keep:
            keep.add(step)
            step = rows[step].parent_row
    everything = len(keep) == len(rows)
    return [
        line for line in lines if line.budget.pk in keep and (everything or not line.is_reserve)
    ]


# What each column sorts by; None comes last either way.
COLUMNS: Mapping[str, Callable[[Line], Any]] = {
    "name": lambda line: line.budget.name.casefold(),
    "share": lambda line: line.share,
    "effective": lambda line: line.effective,
    "entitled": lambda line: line.entitled_gpu_seconds,
    "granted": lambda line: line.burn and line.burn.figures.granted_mgpus,
    "settled": lambda line: line.burn and line.burn.settled_part,
    "pace": lambda line: line.burn and line.burn.pace,
    "delivered": lambda line: line.burn and line.burn.delivered_part,
    "runway": lambda line: line.burn and line.burn.runway_s,
    "spendable": lambda line: line.burn and line.burn.figures.spendable_mgpus,
}


def _sorted(lines: list[Line], sort: str) -> list[Line]:
    """Sort siblings among themselves, so that each stays under its parent; reserves stay last."""
    key = COLUMNS.get(sort.removeprefix("-"))
    if key is None:
        return lines
    falling = sort.startswith("-")
    rows_here = {line.budget.pk for line in lines if not line.is_reserve}
    below: dict[int | None, list[Line]] = {}
    for line in lines:
        below.setdefault(line.parent_row if line.parent_row in rows_here else None, []).append(line)

    def order(line: Line) -> tuple[bool, bool, Any]:
        value = key(line)
        if isinstance(value, int | Decimal):
            value = -value if falling else value
        return line.is_reserve, value is None, value if value is not None else 0

    def walk(parent: int | None) -> Iterator[Line]:
        rows = below.get(parent, [])
        if sort == "-name":
            ordered = sorted(rows, key=lambda r: r.budget.name.casefold(), reverse=True)
            rows = sorted(ordered, key=lambda r: r.is_reserve)
        else:
            rows = sorted(rows, key=order)
        for line in rows:
            yield line
            if not line.is_reserve:
                yield from walk(line.budget.pk)

    return list(walk(None))
