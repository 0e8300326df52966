"""Granting credits and adjusting what is settled by hand: what it would do, what was written."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.http import Http404

from allocator.pages.transfers import Priced, priced
from budgets import hues, periods, shares
from budgets.access import NOT_HERE, Action, Person, Standing, get_budget_or_404, standing
from budgets.hues import Hue
from budgets.models import Budget, Period
from budgets.refusals import CREDIT
from ledger import reports
from ledger import services as ledger
from ledger.models import Entry
from ledger.reports import Figures
from ledger.services import Change, Kind, LedgerError

LATELY = 12
PLACES, EXACT = 2, 7  # decimals of credits: as all pages show them; as they are typed


@dataclass(frozen=True)
class Subject:
    """Which budget it is about, and in what amounts are counted. ``held``: what the reader may."""

    budget: Budget
    held: Standing
    hues: Mapping[str, Hue]
    period: Period | None
    closed: list[Period]
    pools: list[Priced]
    parents: frozenset[str]  # paths of the budgets that have others below them
    now: datetime

    @property
    def hue(self) -> Hue:
        return self.hues[self.budget.path]


@dataclass(frozen=True)
class Moved:
    """What an entry would do to one budget."""

    name: str
    hue: Hue
    change: Change
    has_children: bool

    @property
    def overdraws(self) -> bool:
        """Whether its children would have more than it."""
        return self.has_children and self.change.reserve[1] < min(0, self.change.reserve[0])


@dataclass(frozen=True)
class Preview:
    """What an entry would do to the budget, then to those above it that the reader sees."""

    kind: Kind
    amount_mgpus: int
    moved: list[Moved]
    beyond: int | None = 0
    problem: str = ""

    @property
    def is_grant(self) -> bool:
        return self.kind == Kind.GRANT

    @property
    def hides_reserve(self) -> bool:
        """Whether it is a grant out of a reserve that the reader doesn't see."""
        return self.is_grant and self.amount_mgpus > 0 and self.beyond is None

    @property
    def places(self) -> int:
        """How many decimals of credits tell the amount."""
        return EXACT if self.amount_mgpus * 10**PLACES % CREDIT else PLACES

    @property
    def parent(self) -> Moved | None:
        return self.moved[1] if len(self.moved) > 1 else None


def subject(user: Person, *, path: str, now: datetime) -> Subject:
    """Return what may be written about a budget; Http404 for who may write nothing."""
    budget, held = get_budget_or_404(user, path), standing(user)
    if not held.can(Action.ADMINISTER, path):
        raise Http404(NOT_HERE)
    closed = Period.objects.filter(status=Period.Status.CLOSED).order_by("-starts_at")
    return Subject(
        budget=budget,
        held=held,
        hues=hues.of_budgets(),
        period=periods.active(now),
        closed=list(closed),
        pools=priced(now),
        parents=frozenset(
            node.budget.path for node in shares.tree(at=now).values() if node.children
        ),
        now=now,
    )


def preview(found: Subject, *, kind: Kind, amount_mgpus: int, of: Period | None) -> Preview:
    """Return what an entry would do now, or the sentence that refuses it."""
    try:
        effect = ledger.preview_by_hand(
            kind=kind,
            budget=found.budget,
            amount_mgpus=amount_mgpus,
            of=of,
            now=found.now,
            held=found.held,
        )
    except LedgerError as error:
        return Preview(kind, amount_mgpus, [], problem=str(error))
    paths = [one.path for one in effect.changes]
    names = dict(Budget.objects.filter(path__in=paths).values_list("path", "name"))
    moved = [
        Moved(names[one.path], found.hues[one.path], one, one.path in found.parents)
        for one in effect.changes
    ]
    return Preview(kind, amount_mgpus, moved, beyond=effect.beyond)


def figures(found: Subject) -> Figures | None:
    """Return what the budget has now; None without a period."""
    period = found.period
    return reports.figures(period=period, now=found.now).get(found.budget.pk) if period else None


def lately(budget: Budget, *, limit: int = LATELY) -> list[Entry]:
    """Return what was granted to a budget and adjusted in it by hand, the newest first."""
    rows = ledger.entries_by_hand([budget.pk]).select_related("author", "period")
    return list(rows.order_by("-pk")[:limit])
