"""What may be decided on an open request, and what each decision would do. Nothing is written."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from allocator.pages import effects
from budgets import periods, shares
from budgets.access import Action, Standing
from budgets.models import WHOLE, Budget, Period, Request
from budgets.refusals import credits, percent
from budgets.shares import TreeNode
from clusters.saying import say as _
from ledger import figures
from ledger.figures import Accounts

Unit, Decision = Request.Unit, Request.Decision


@dataclass(frozen=True)
class Choice:
    """Granting all that is asked for out of one budget.

    ``share_before`` and ``share_after`` are thousandths of a percent, where percent is asked for:
    what the parent has not shared out, or the sibling's share. The credits are the ancestor's
    reserve, or what the sibling can spend; None without a period. ``problem`` says why it can't
    be, ``most`` is how much can, in the request's unit.
    """

    source: Budget
    decision: str
    share_before: int | None
    share_after: int | None
    before_mgpus: int | None
    after_mgpus: int | None
    most: int
    problem: str = ""


@dataclass(frozen=True)
class Books:
    """What choices are worked out from, read once for any number of requests."""

    nodes: dict[int, TreeNode]
    found: Accounts | None
    period: Period | None
    at: datetime
    worth: dict[int, int] = field(default_factory=dict)  # of 100 % of a parent, by its id

    @classmethod
    def read(cls, at: datetime) -> "Books":
        """Read shares, credits and the period as they are at an instant."""
        period = periods.active(at)
        found = figures.accounts(period=period, at=at) if period else None
        return cls(shares.tree(at=at), found, period, at)

    def worth_of(self, parent: Budget) -> int:
        """Return what 100 % of a parent is worth until the period ends, in milli-GPU-seconds."""
        if parent.pk not in self.worth:
            by_pool = effects.of_parent(parent=parent, period=self.period, at=self.at)
            self.worth[parent.pk] = sum(by_pool.values())
        return self.worth[parent.pk]

    def reserve(self, budget: Budget) -> int | None:
        """Return what an ancestor has to give."""
        return None if self.found is None else self.found.reserve(budget.pk)

    def own(self, budget: Budget) -> int | None:
        """Return what a sibling has to give: of one with others below it, its reserve at most."""
        return None if self.found is None else self.found.own(budget.pk)

    def free(self, budget: Budget) -> int | None:
        return None if self.found is None else self.found.free(budget.pk)

    def spendable(self, budget: Budget, less: int = 0) -> int | None:
        """Return what a budget can spend, or could if it had less."""
        if self.found is None:
            return None
        above = self.found.tree.chain(budget.pk, self.found.at)[1:]
        own = self.found.free(budget.pk) - less
        return min([own, *(self.found.free(node) for node in above)])


def choices(
    requests: Iterable[Request], *, held: Standing, at: datetime
) -> dict[int, list[Choice]]:
    """Return what someone may choose for each open request, by its id; a few queries for all."""
    books = Books.read(at)
    return {one.pk: list(_choices(one, held, books)) for one in requests}


def _choices(request: Request, held: Standing, books: Books) -> Iterator[Choice]:
    node = books.nodes.get(request.budget_id)
    if node is None or node.parent_id is None:
        return
    parent = books.nodes[node.parent_id]
    may = Action.DECIDE_REQUESTS
    above = shares.path_to_root(books.nodes, parent.budget.pk)
    for one in [parent] if request.unit == Unit.PERCENT else above:
        if held.can(may, one.budget.path):
            yield _from_reserve(request, one, books)
    if held.can(may, parent.budget.path):
        for child in parent.children:
            if child != node.budget.pk:
                yield _from_sibling(request, books.nodes[child], parent, books)


def _from_reserve(request: Request, source: TreeNode, books: Books) -> Choice:
    budget, reserve = source.budget, books.reserve(source.budget)
    if request.unit == Unit.CREDITS:
        most = max(0, reserve or 0)
        after = None if reserve is None else reserve - request.asked
        problem = _short(request, most, _("%(most)s credits in reserve", most=credits(most)), books)
        return Choice(budget, Decision.RESERVE, None, None, reserve, after, most, problem)
    rows = [books.nodes[child] for child in source.children]
    pools = {None, *(pool for row in rows for pool in row.overrides)}
    taken = [
        sum(row.thousandths if pool is None else _in_pool(row, pool) for row in rows)
        for pool in pools
    ]
    left = WHOLE - max(taken, default=0)
    after = None if reserve is None else reserve - _worth(request, budget, books)
    problem = _short(
        request, left, _("%(left)s that it has not shared out", left=percent(left)), books
    )
    return Choice(
        budget, Decision.RESERVE, left, left - request.asked, reserve, after, left, problem
    )


def _from_sibling(request: Request, source: TreeNode, parent: TreeNode, books: Books) -> Choice:
    budget, before = source.budget, books.spendable(source.budget)
    if request.unit == Unit.CREDITS:
        after = books.spendable(budget, request.asked)
        most = max(0, books.own(budget) or 0)
        problem = _short(request, most, _("%(most)s credits to give", most=credits(most)), books)
        return Choice(budget, Decision.SIBLING, None, None, before, after, most, problem)
    share = min(source.thousandths, *source.overrides.values(), WHOLE)
    # A fall stops at what is spent and set aside.
    fall = min(_worth(request, parent.budget, books), max(0, books.free(budget) or 0))
    problem = _short(request, share, percent(share), books)
    return Choice(
        budget,
        Decision.SIBLING,
        share,
        share - request.asked,
        before,
        books.spendable(budget, fall),
        share,
        problem,
    )


def _in_pool(row: TreeNode, pool: int) -> int:
    return row.overrides.get(pool, row.thousandths)


def _worth(request: Request, parent: Budget, books: Books) -> int:
    return books.worth_of(parent) * request.asked // WHOLE


def _short(request: Request, most: int, has: str, books: Books) -> str:
    """Say why not, or nothing."""
    if request.unit == Unit.CREDITS and books.found is None:
        return _("No period is active: there are no credits to give.")
    return "" if request.asked <= most else _("It has only %(has)s.", has=has)
