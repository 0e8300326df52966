"""Requests for more as pages: what is to be decided, what each decision would do, what was."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from allocator import choices
from allocator.choices import Choice
from budgets import hues, shares
from budgets.access import (
    Action,
    Person,
    Standing,
    get_budget_or_404,
    get_request_or_404,
    may_withdraw,
    own_notices,
    standing,
    visible_q,
)
from budgets.hues import Hue
from budgets.models import Budget, Notice, Request

RELATED = ("budget__parent", "asked_by", "decided_by", "source", "change_set", "set_back")
DECIDED = 50  # of those decided, the newest
NOTICES = 100


@dataclass(frozen=True)
class Row:
    """One request, and what its reader may do about it."""

    request: Request
    hue: Hue
    source: Budget | None  # None, too, where the reader may not know it
    may_decide: bool
    may_withdraw: bool
    choices: list[Choice] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.request.status == Request.Status.OPEN

    @property
    def in_percent(self) -> bool:
        return self.request.unit == Request.Unit.PERCENT

    @property
    def can_be_granted(self) -> bool:
        return any(choice.most > 0 for choice in self.choices)


@dataclass(frozen=True)
class Page:
    """The list: what the reader may decide, what waits for others, what was decided."""

    to_decide: list[Row]
    waiting: list[Row]
    decided: list[Row]


@dataclass(frozen=True)
class Asking:
    """A budget's own page of requests: the form stands beside those there were."""

    budget: Budget
    share: int | None
    rows: list[Row]
    can_ask: bool


@dataclass(frozen=True)
class Told:
    """What one was told, the newest first."""

    notices: list[Notice]
    unread: int


def page(user: Person, *, now: datetime) -> Page:
    """Read the requests that one person may see. A constant number of queries."""
    seen = Request.objects.filter(visible_q(user, "budget__")).select_related(*RELATED)
    still_open = seen.filter(status=Request.Status.OPEN).order_by("created_at", "pk")
    closed = seen.exclude(status=Request.Status.OPEN).order_by("-decided_at", "-pk")[:DECIDED]
    rows = _rows(user, [*still_open, *closed], now)
    return Page(
        to_decide=[row for row in rows if row.is_open and row.may_decide],
        waiting=[row for row in rows if row.is_open and not row.may_decide],
        decided=[row for row in rows if not row.is_open],
    )


def detail(user: Person, *, pk: int, now: datetime) -> Row:
    """Read one request with the choices its reader has; Http404 if they may not see it."""
    return _rows(user, [get_request_or_404(user, pk)], now)[0]


def asking(user: Person, *, path: str, now: datetime) -> Asking:
    """Read what a budget's page of requests says; Http404 if one may not see the budget."""
    budget = get_budget_or_404(user, path)
    share = shares.share_of(budget, now)
    asked = budget.requests.select_related(*RELATED).order_by("-pk")[:DECIDED]
    may = standing(user).can(Action.ASK, path)
    can_ask = may and share is not None and not budget.is_root
    return Asking(budget, share, _rows(user, asked, now), can_ask)


def open_for(user: Person, *, budget: Budget, now: datetime) -> list[Row]:
    """Read the open requests for one budget, which the caller knows may be seen."""
    asked = budget.requests.filter(status=Request.Status.OPEN)
    if not asked.exists():  # as for almost all budgets; the rest of it joins nine tables
        return []
    return _rows(user, asked.select_related(*RELATED).order_by("-pk"), now)


def told(user: Person) -> Told:
    """Read what one person was told."""
    own = own_notices(user)
    return Told(list(own[:NOTICES]), own.filter(read_at=None).count())


def counts(user: Person) -> dict[str, int]:
    """Return how many requests wait for one person's decision, and how many notices to be read."""
    held = standing(user)
    parents = Request.objects.filter(status=Request.Status.OPEN).values_list(
        "budget__parent__path", flat=True
    )
    return {
        "requests": sum(held.can(Action.DECIDE_REQUESTS, path) for path in parents if path),
        "notices": own_notices(user).filter(read_at=None).count(),
    }


def _rows(user: Person, found: Iterable[Request], now: datetime) -> list[Row]:
    found, held = list(found), standing(user)
    deciding = [
        one for one in found if one.status == Request.Status.OPEN and _may_decide(held, one)
    ]
    offered = choices.choices(deciding, held=held, at=now) if deciding else {}
    painted = hues.of_budgets() if found else {}
    return [_row(user, held, one, painted, offered) for one in found]


def _row(
    user: Person,
    held: Standing,
    one: Request,
    painted: Mapping[str, Hue],
    offered: Mapping[int, list[Choice]],
) -> Row:
    known = one.source is not None and held.knows(one.source.path)
    is_open = one.status == Request.Status.OPEN
    return Row(
        request=one,
        hue=painted[one.budget.path],
        source=one.source if known else None,
        may_decide=one.pk in offered,
        may_withdraw=is_open and may_withdraw(held, user, one),
        choices=offered.get(one.pk, []),
    )


def _may_decide(held: Standing, one: Request) -> bool:
    parent: Any = one.budget.parent
    return parent is not None and held.can(Action.DECIDE_REQUESTS, parent.path)
