"""Reviews as pages: which there are, and one pack with what is kept of it and what was said."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from zoneinfo import ZoneInfo

from django.db.models import Count
from django.urls import reverse

from allocator.models import ReviewComment, ReviewRecord, Simulation
from allocator.pages import review_sheets
from allocator.pages.review_decisions import quantity
from allocator.pages.review_sheets import Sheets
from allocator.reviews import building, commenting, keeping
from allocator.reviews.differing import Difference, differences
from allocator.reviews.keeping import Kept
from allocator.reviews.pack import Pack
from budgets import hues
from budgets.access import Action, Person, get_budget_or_404, simulated_q, standing, visible
from budgets.hues import Hue
from budgets.models import Budget, Period
from clusters.reading import reading
from ledger import reports
from ledger.membership import Membership
from ledger.models import ClosingStatement
from ledger.segments import STARTED

LIVE = "live"
PERIODS = 12
SEEN_DIFFERENCES = 12


# --- The list ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A budget's review of a period: settled and granted in mGPU-s; None: nothing to tell."""

    budget: Budget
    hue: Hue
    depth: int
    granted_mgpus: int
    settled_mgpus: int
    version: int  # newest record's; 0: the review was not held
    held_on: date | None
    comments: int

    @property
    def settled_part(self) -> int | None:
        granted = self.granted_mgpus
        return self.settled_mgpus * 100_000 // granted if granted > 0 else None


@dataclass(frozen=True)
class Reviewed:
    """One period's reviews that the reader may see."""

    period: Period
    entries: list[Entry]


@reading()
def listing(user: Person, *, now: datetime) -> list[Reviewed]:
    """Return the periods that have started, the newest first. A constant number of queries."""
    started = Period.objects.filter(status__in=STARTED, starts_at__lte=now)
    periods = list(started.order_by("-starts_at")[:PERIODS])
    budgets = _programs(user)
    painted = hues.of_budgets() if budgets else {}
    figures = _figures(periods, {one.pk for one in budgets}, now)
    held, said = _held(periods), _said(periods)
    found = []
    for period in periods:
        entries = []
        for one in budgets:
            if (mine := figures.get((period.pk, one.pk))) is None:
                continue
            version, held_on = held.get((period.pk, one.pk), (0, None))
            entries.append(
                Entry(
                    budget=one,
                    hue=painted[one.path],
                    depth=one.path.count("/"),
                    granted_mgpus=mine[0],
                    settled_mgpus=mine[1],
                    version=version,
                    held_on=held_on,
                    comments=said.get((period.pk, one.pk), 0),
                )
            )
        found.append(Reviewed(period, entries))
    return found


def _programs(user: Person) -> list[Budget]:
    """The organisation and its programs, or the highest budgets that the reader sees."""
    seen = {one.path: one for one in visible(user).order_by("path")}
    tops = [path for path in seen if path.count("/") < 2 or path.rpartition("/")[0] not in seen]
    return [seen[path] for path in tops]


def _figures(
    periods: Collection[Period], ids: set[int], now: datetime
) -> dict[tuple[int, int], tuple[int, int]]:
    """Granted and settled by period and budget: of closed ones by their statements."""
    found = {}
    rows = ClosingStatement.objects.filter(period__in=periods, budget_id__in=ids)
    for row in rows:
        granted = row.granted_mgpus + row.carried_mgpus + row.transferred_mgpus
        found[row.period_id, row.budget_id] = granted, row.settled_mgpus
    for period in periods:
        if period.status == Period.Status.ACTIVE:
            tree = Membership.load()
            for pk, one in reports.figures(period=period, now=now, tree=tree, only=ids).items():
                if pk in ids:
                    found[period.pk, pk] = one.granted_mgpus, one.settled_mgpus
    return found


def _held(periods: Collection[Period]) -> dict[tuple[int, int], tuple[int, date]]:
    rows = ReviewRecord.objects.filter(period__in=periods).order_by("version")
    listed = rows.values_list("period_id", "budget_id", "version", "held_on")
    return {(period, budget): (version, day) for period, budget, version, day in listed}


def _said(periods: Collection[Period]) -> dict[tuple[int, int], int]:
    rows = ReviewComment.objects.filter(period__in=periods, withdrawn_at=None).order_by()
    counted = rows.values_list("period_id", "budget_id").annotate(number=Count("pk"))
    return {(period, budget): number for period, budget, number in counted}


# --- One pack ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comment:
    """A comment as its reader may change it."""

    row: ReviewComment
    author: str
    may_edit: bool
    may_withdraw: bool


@dataclass(frozen=True)
class Waiting:
    """A request that waits for a decision."""

    what: str
    who: str
    url: str


@dataclass(frozen=True)
class Page:
    """A pack: the one that is kept where the review was held, else the live one.

    ``changed`` says what differs by now from what was kept.
    """

    budget: Budget
    period: Period
    above: list[Budget]
    beside: list[Budget]
    hue: Hue
    pack: Pack
    sheets: Sheets
    kept: Kept | None
    records: list[ReviewRecord]
    changed: list[Difference]
    more_changed: int
    comments: list[Comment]
    may_hold: bool
    may_comment: bool
    today: date
    now: datetime

    @property
    def waiting(self) -> list[Waiting]:
        """Requests that wait for a decision, in a live pack."""
        if self.kept is not None:
            return []
        return [
            Waiting(
                what=f"#{one.pk}, {quantity(one, one.asked)}, {one.label}",
                who=one.asked_by,
                url=reverse("request", args=[one.pk]),
            )
            for one in self.pack.asked
            if one.status == "open"
        ]

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """The kinds of files, and what they are called."""
        return (("pdf", "PDF"), ("xlsx", "XLSX"), ("csv", "CSV"))

    @property
    def query(self) -> str:
        """The version that the files are of, where an address must say it."""
        if self.kept is not None:
            return str(self.kept.row.version)
        return LIVE if self.records else ""

    @property
    def over(self) -> bool:
        """Whether the period was over when the pack was made."""
        return self.pack.about.now >= self.pack.about.ends_at

    @property
    def next_version(self) -> int:
        return self.version + 1

    @property
    def version(self) -> int:
        """Of the newest record; 0 before the review is held."""
        return self.records[0].version if self.records else 0


@dataclass(frozen=True)
class Asked:
    """Whose pack of which period somebody asked for, and in which version."""

    budget: Budget
    period: Period
    records: list[ReviewRecord]
    version: int | None  # None: as it is now


def ask(user: Person, *, pk: int, path: str, version: str = "") -> Asked:
    """Return what was asked for; Http404 for what there isn't, or isn't to be seen.

    Without a version the newest that was kept, and where there is none, the live one.
    """
    budget = get_budget_or_404(user, path)
    period = keeping.period_or_404(pk)
    rows = keeping.records(budget=budget, period=period)
    if version == LIVE or not (version or rows):
        return Asked(budget, period, rows, None)
    if not version:
        return Asked(budget, period, rows, rows[0].version)
    is_number = version.isascii() and version.isdecimal() and len(version) < 10
    return Asked(budget, period, rows, int(version) if is_number else 0)


def pack_of(asked: Asked, *, now: datetime) -> tuple[Pack, Kept | None]:
    """Return the pack that was asked for, and the record that it is from. Raises LedgerError."""
    budget, period = asked.budget, asked.period
    if asked.version is None:
        return building.build(budget=budget, period=period, now=now), None
    found = keeping.kept(budget=budget, period=period, version=asked.version)
    return found.pack, found


def sheets_of(user: Person, pack: Pack) -> Sheets:
    """Return a pack's sheets as somebody may read them."""
    return review_sheets.sheets(pack, seen_options=options_seen(user, pack).__contains__)


def options_seen(user: Person, pack: Pack) -> set[int]:
    """Return which simulations of a pack somebody may see."""
    ids = [one.pk for one in pack.options]
    if not ids:
        return set()
    mine = Simulation.objects.filter(simulated_q(user), pk__in=ids)
    return set(mine.values_list("pk", flat=True))


@reading()
def page(user: Person, *, asked: Asked, now: datetime) -> Page:
    """Return the page of a pack. A constant number of queries. Raises LedgerError."""
    budget, period = asked.budget, asked.period
    pack, kept = pack_of(asked, now=now)
    changed: tuple[Difference, ...] = ()
    if kept is not None:
        live = building.build(budget=budget, period=period, now=now)
        changed = differences(kept.pack, live)
    held = standing(user)
    seen = {one.path: one for one in visible(user)}
    return Page(
        budget=budget,
        period=period,
        above=[one for path in _above(budget.path) if (one := seen.get(path))],
        beside=_beside(budget, seen),
        hue=pack.about.painted,
        pack=pack,
        sheets=sheets_of(user, pack),
        kept=kept,
        records=asked.records,
        changed=list(changed[:SEEN_DIFFERENCES]),
        more_changed=max(0, len(changed) - SEEN_DIFFERENCES),
        comments=_comments(user, budget, period, now),
        may_hold=held.can(Action.HOLD_REVIEWS, budget.path),
        may_comment=held.can(Action.COMMENT, budget.path),
        today=now.astimezone(ZoneInfo(period.time_zone)).date(),
        now=now,
    )


def _above(path: str) -> list[str]:
    slugs = path.split("/")
    return ["/".join(slugs[:number]) for number in range(1, len(slugs))]


MOST_BESIDE = 6


def _beside(budget: Budget, seen: Mapping[str, Budget]) -> list[Budget]:
    """The budget and those beside it, to go from one to the other."""
    mine = [
        one
        for one in seen.values()
        if one.parent_id == budget.parent_id and one.archived_at is None
    ]
    mine.sort(key=lambda one: one.pk)
    return mine if 1 < len(mine) <= MOST_BESIDE else []


def _comments(user: Person, budget: Budget, period: Period, now: datetime) -> list[Comment]:
    rows = ReviewComment.objects.filter(budget=budget, period=period).select_related("author")
    return [
        Comment(
            row=row,
            author=row.author.get_full_name() or row.author.username,
            may_edit=commenting.may_edit(user, row, now),
            may_withdraw=row.author_id == user.pk and row.withdrawn_at is None,
        )
        for row in rows.order_by("pk")
    ]
