"""A pool and a node as they are set up: what they are, who changed them, what a change would do.

Everybody who is signed in may look, as at nodes; administrators of the organisation change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from django.db.models import Q, QuerySet
from django.http import Http404

from allocator import inventory
from allocator.emptying import WindowOutlook
from budgets import hues, periods, shares
from budgets.access import Person, may_administer
from budgets.hues import Hue
from budgets.models import Decision, Period
from clusters import services as clusters
from clusters.models import Cluster, Node, Pool
from clusters.saying import say as _

DAY = 24 * 3600
HISTORY = 20
Kind = Decision.Kind


@dataclass(frozen=True)
class PoolPage:
    """``rows``: every node it has or had, in the order of the grid."""

    pool: Pool
    rows: list[NodeRow]
    gpus: int
    rate_per_mille: int
    history: list[Decision]
    may_change: bool
    now: datetime

    @property
    def in_use(self) -> int:
        return sum(row.state != "left" and row.state != "coming" for row in self.rows)


@dataclass(frozen=True)
class NodeRow:
    """``state``: coming, in_use, leaving, left."""

    node: Node
    state: str


@dataclass(frozen=True)
class NodePage:
    row: NodeRow
    history: list[Decision]
    may_change: bool
    now: datetime

    @property
    def node(self) -> Node:
        return self.row.node


@dataclass(frozen=True)
class Entitled:
    """A program's entitlement in a pool, in GPU-seconds a day: before, after."""

    name: str
    hue: Hue
    before: int
    after: int

    @property
    def more(self) -> int:
        return self.after - self.before


@dataclass(frozen=True)
class Does:
    """What a change of a pool's nodes does from an instant on.

    ``planned_gpu_seconds`` is what the period's grants were computed from, ``capacity`` what its
    nodes come to, before and after; None outside of a period.
    """

    at: datetime
    pool: Pool
    gpus: tuple[int, int]
    programs: list[Entitled]
    period: Period | None
    planned_gpu_seconds: int | None
    capacity: tuple[int, int]
    outlook: WindowOutlook | None = None

    @property
    def whole(self) -> Entitled:
        before, after = (number * DAY for number in self.gpus)
        return Entitled(self.pool.name, hues.ORGANISATION, before, after)


def require(user: Person) -> None:
    """Http404 for who changes no pools: the page that makes them isn't there for them."""
    if not may_administer(user):
        raise Http404(_("There is no such page, or none that you may see."))


def find_pool(slug: str) -> Pool:
    """Return a pool; else Http404."""
    found = Pool.objects.select_related("cluster").filter(slug=slug).first()
    if found is None:
        raise Http404(_("There is no such pool."))
    return found


def find_node(pk: int) -> Node:
    """Return a node; else Http404."""
    found = Node.objects.select_related("pool__cluster").filter(pk=pk).first()
    if found is None:
        raise Http404(_("There is no such node."))
    return found


def pool_page(user: Person, slug: str, *, now: datetime) -> PoolPage:
    """Read one pool. A constant number of queries."""
    pool = find_pool(slug)
    rows = [_row(node, now) for node in pool.nodes.order_by("position")]
    about = Q(kind__in=(Kind.POOL, Kind.RATE), subject__in=(pool.slug, pool.name))
    about |= Q(kind=Kind.NODE, subject__in=[row.node.name for row in rows])
    return PoolPage(
        pool=pool,
        rows=rows,
        gpus=sum(row.node.gpus for row in rows if row.node.is_active(now)),
        rate_per_mille=clusters.rates(at=now)[pool.pk],
        history=list(_history(about)[:HISTORY]),
        may_change=may_administer(user),
        now=now,
    )


def node_page(user: Person, pk: int, *, now: datetime) -> NodePage:
    """Read one node. A constant number of queries."""
    node = find_node(pk)
    about = Q(kind=Kind.NODE, subject=node.name)
    history = list(_history(about)[:HISTORY])
    return NodePage(_row(node, now), history, may_administer(user), now)


def added(made: inventory.Addition) -> Does:
    """Return what nodes that are added do. A constant number of queries."""
    return _does(made.pool, made.at, [(node, None) for node in made.nodes])


def retired(asked: inventory.Retirement) -> Does:
    """Return what a node that leaves does."""
    return _does(asked.node.pool, asked.at, [(asked.node, asked.at)], asked.outlook)


def _does(
    pool: Pool,
    at: datetime,
    changed: list[tuple[Node, datetime | None]],
    outlook: WindowOutlook | None = None,
) -> Does:
    """`changed`: nodes with the instant from which on they are out of use; None: for good."""
    before = list(pool.nodes.all())
    untouched = [node for node in before if node.pk not in {one.pk for one, _ in changed}]
    after = [(node, node.active_until) for node in untouched] + changed
    now = [(node, node.active_until) for node in before]
    gpus = (_gpus(now, at), _gpus(after, at))
    period = periods.active(at)
    planned = period.capacities.filter(pool=pool).first() if period else None
    return Does(
        at=at,
        pool=pool,
        gpus=gpus,
        programs=_programs(pool, at, gpus),
        period=period,
        planned_gpu_seconds=planned.gpu_seconds if planned else None,
        capacity=(_capacity(now, period), _capacity(after, period)),
        outlook=outlook,
    )


def _gpus(nodes: Iterable[tuple[Node, datetime | None]], at: datetime) -> int:
    return sum(
        node.gpus
        for node, until in nodes
        if node.active_from <= at and (until is None or at < until)
    )


def _capacity(nodes: Iterable[tuple[Node, datetime | None]], period: Period | None) -> int:
    """GPU-seconds of nodes in a period."""
    if period is None:
        return 0
    total = 0
    for node, until in nodes:
        start, end = max(node.active_from, period.starts_at), until or period.ends_at
        seconds = (min(end, period.ends_at) - start).total_seconds()
        total += node.gpus * max(0, int(seconds))
    return total


def _programs(pool: Pool, at: datetime, gpus: tuple[int, int]) -> list[Entitled]:
    """The children of the organisation, in the order of the tree."""
    painted = hues.of_budgets()
    found = []
    for node in shares.tree(at=at, pool=pool).values():
        if node.depth == 1:
            before, after = (int(Fraction(node.effective) * number * DAY) for number in gpus)
            name, hue = node.budget.name, painted[node.budget.path]
            found.append(Entitled(name, hue, before, after))
    return found


def _row(node: Node, now: datetime) -> NodeRow:
    if node.active_from > now:
        return NodeRow(node, "coming")
    if node.active_until is None:
        return NodeRow(node, "in_use")
    return NodeRow(node, "leaving" if now < node.active_until else "left")


def _history(about: Q) -> QuerySet[Decision]:
    return Decision.objects.filter(about).select_related("by").order_by("-at", "-pk")


def all_clusters() -> list[Cluster]:
    """Return the clusters that a pool can be made in."""
    return list(Cluster.objects.all())
