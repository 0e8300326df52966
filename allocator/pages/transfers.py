"""Moving credits from one budget to another by hand: to where, what it would do, what was moved."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.http import Http404

from budgets import hues, periods, shares
from budgets.access import NOT_HERE, Action, Person, Standing, get_budget_or_404, standing
from budgets.hues import Hue
from budgets.models import Budget, Period
from budgets.shares import TreeNode
from clusters.models import Pool
from ledger import reports
from ledger import services as ledger
from ledger.instants import to_seconds
from ledger.models import Entry
from ledger.rates import Rates
from ledger.reports import Figures
from ledger.services import LedgerError, Side

LATELY = 12


@dataclass(frozen=True)
class Target:
    """A budget that may be given to; its depth in the tree. ``above``: its reserve gets it."""

    budget: Budget
    depth: int
    above: bool


@dataclass(frozen=True)
class Priced:
    """A pool, and what a GPU-hour of it costs now, in milli-GPU-seconds."""

    pool: Pool
    rate_per_mille: int

    @property
    def hour_mgpus(self) -> int:
        return 3600 * self.rate_per_mille


@dataclass(frozen=True)
class Subject:
    """Out of which budget credits are moved, to which they may be, and in what they are counted."""

    source: Budget
    hue: Hue
    hues: Mapping[str, Hue]
    period: Period | None
    targets: list[Target]
    pools: list[Priced]
    has_children: bool
    now: datetime


@dataclass(frozen=True)
class Moved:
    """What a transfer would do to one budget."""

    budget: Budget
    hue: Hue
    side: Side
    has_children: bool


@dataclass(frozen=True)
class Preview:
    """Who gives and who gets, each before what is above it; or why it can't be."""

    amount_mgpus: int
    gives: list[Moved]
    gets: list[Moved]
    problem: str = ""

    @property
    def sides(self) -> list[list[Moved]]:
        return [self.gives, self.gets]

    @property
    def source(self) -> Budget:
        return self.gives[0].budget

    @property
    def target(self) -> Budget:
        return self.gets[0].budget


def subject(user: Person, *, path: str, now: datetime) -> Subject:
    """Return what may be moved out of a budget; Http404 for who may move nothing."""
    source = get_budget_or_404(user, path)
    nodes, held = shares.tree(at=now), standing(user)
    if not may_transfer(held, nodes.get(source.pk), nodes):
        raise Http404(NOT_HERE)
    painted = hues.of_budgets()
    return Subject(
        source=source,
        hue=painted[path],
        hues=painted,
        period=periods.active(now),
        targets=list(_targets(held, source, nodes)),
        pools=priced(now),
        has_children=bool(nodes[source.pk].children),
        now=now,
    )


def may_transfer(held: Standing, node: TreeNode | None, nodes: Mapping[int, TreeNode]) -> bool:
    """Say whether a person may move credits out of a budget: down, up or to its siblings."""
    if node is None:
        return False
    parent = nodes[node.parent_id].budget if node.parent_id is not None else None
    down = bool(node.children) and held.can(Action.TRANSFER, node.budget.path)
    return down or (parent is not None and held.can(Action.TRANSFER, parent.path))


def preview(found: Subject, *, target: Budget, amount_mgpus: int) -> Preview:
    """Return what moving credits would do now, or the sentence that refuses it."""
    try:
        sides = ledger.preview_transfer(
            source=found.source, target=target, amount_mgpus=amount_mgpus, now=found.now
        )
    except LedgerError as error:
        return Preview(amount_mgpus, [], [], str(error))
    nodes = shares.tree(at=found.now)
    moved = [_moved(found, nodes[side.budget_id], side) for side in sides]
    gets = [one for one in moved if one.side.moved > 0 or one.budget == target]
    gives = [one for one in moved if one not in gets]
    return Preview(
        amount_mgpus,
        gives=sorted(gives, key=lambda one: one.budget != found.source),
        gets=sorted(gets, key=lambda one: one.budget != target),
    )


def figures(found: Subject) -> Figures | None:
    """Return what the budget has now; None without a period."""
    period = found.period
    return reports.figures(period=period, now=found.now).get(found.source.pk) if period else None


def lately(found: Subject) -> list[Entry]:
    """Return what transfers brought to the budget and took from it, the newest first."""
    # By the index of a period's sums, and unordered: a budget has thousands of charges to each.
    periods = list(Period.objects.values_list("pk", flat=True))
    mine = Entry.objects.filter(period__in=periods, budget=found.source, kind=Entry.Kind.TRANSFER)
    newest = sorted(mine.order_by().values_list("pk", flat=True), reverse=True)[:LATELY]
    rows = Entry.objects.filter(pk__in=newest).select_related("author", "period")
    return list(rows.order_by("-pk"))


def _targets(held: Standing, source: Budget, nodes: Mapping[int, TreeNode]) -> list[Target]:
    """Every budget that the person sees and may give to, in the order of the tree."""
    found = []
    for node in nodes.values():
        one = node.budget
        if one == source or not held.sees(one.path):
            continue
        if held.can(Action.TRANSFER, ledger.place_of_transfer(source, one).path):
            above = source.path.startswith(f"{one.path}/")
            found.append(Target(one, node.depth, above))
    return sorted(found, key=lambda target: target.budget.path.split("/"))


def priced(now: datetime) -> list[Priced]:
    """Return every pool with its rate of now."""
    rates, at = Rates.load(), to_seconds(now)
    return [Priced(pool, rates.at(pool.pk, at)) for pool in Pool.objects.all()]


def _moved(found: Subject, node: TreeNode, side: Side) -> Moved:
    return Moved(node.budget, found.hues[node.budget.path], side, bool(node.children))
