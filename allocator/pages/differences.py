"""The tree at two instants: which budgets are different, and the change sets between."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet, prefetch_related_objects
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.pages import changes
from allocator.pages.changes import Change
from budgets import diffs, diffs_shown, hues, periods
from budgets.access import Person, Standing, get_budget_or_404, is_within, standing
from budgets.diffs import Kind, Place
from budgets.diffs_shown import Shown
from budgets.hues import Hue
from budgets.models import WHOLE, Budget, ChangeSet, FormerName, Share
from budgets.names import Names
from clusters.models import Pool
from ledger import asking
from ledger.instants import iso

MOST_SETS = 60
AT_ONCE = 8  # how many sets are read at once to find the last that moved something
SECOND, WEEK = timedelta(seconds=1), timedelta(days=7)
WORDS = {
    Kind.CREATED: gettext_lazy("created"),
    Kind.REACTIVATED: gettext_lazy("re-activated"),
    Kind.ARCHIVED: gettext_lazy("archived"),
    Kind.MOVED: gettext_lazy("moved"),
    Kind.RENAMED: gettext_lazy("renamed"),
    Kind.SHARE: gettext_lazy("another share"),
}


@dataclass(frozen=True)
class ShareLine:
    """A share overall, or in one pool; thousandths of a percent. None: it had none, or as overall.

    `effective` is that of the root.
    """

    pool: str
    before: int | None
    after: int | None
    effective_before: int | None
    effective_after: int | None

    @property
    def change(self) -> int | None:
        return None if None in (self.before, self.after) else (self.after or 0) - (self.before or 0)


@dataclass(frozen=True)
class Row:
    """One budget that is different. `path` is today's, where the reader may see it."""

    shown: Shown
    path: str
    hue: Hue
    words: list[str]
    lines: list[ShareLine]
    former: list[FormerName]

    @property
    def moved_from(self) -> str:
        """The place that it left, as far as the reader may know it."""
        before = self.shown.before
        if Kind.MOVED not in self.shown.difference.kinds or before is None:
            return ""
        return _parent(before.path) if before.path else _("elsewhere")


@dataclass(frozen=True)
class Group:
    """The rows of one parent, by its path at the later instant."""

    parent: str
    rows: list[Row]


@dataclass(frozen=True)
class Preset:
    """Two instants that are often asked about."""

    label: str
    query: str
    is_chosen: bool


@dataclass(frozen=True)
class Page:
    """All that the page says; instants in UTC."""

    budget: Budget
    hue: Hue
    start: datetime
    end: datetime
    groups: list[Group]
    count: int
    counts: list[tuple[str, int]]  # by what happened
    sets: list[Change]
    more: int  # sets that are left out
    presets: list[Preset]
    is_ahead: bool  # of now: with what is scheduled

    @property
    def exact(self) -> dict[str, str]:
        """Both instants by the field that carries them unseen, since times come twice in autumn."""
        return {"from_at": iso(self.start), "to_at": iso(self.end)}


def page(
    user: Person, *, budget: Budget, given: Mapping[str, str], zone: ZoneInfo, now: datetime
) -> Page:
    """Return what is different at or below a budget, as one person may see it. Constant queries.

    `given` has `from` and `to`: instants, or dates and times of the zone; left out they are the
    open period's start (else a week ago) and now. Raises LedgerError or Refused, in a sentence.
    """
    held, period = standing(user), periods.active(now)
    start = asked(given, "from", zone) or (period.starts_at if period else now - WEEK)
    end = asked(given, "to", zone) or now
    found = diffs_shown.shown(diffs.diff(top=budget, start=start, end=end), held)
    painted = hues.of_budgets()
    rows = list(_rows(found, held, painted, start, end))
    sets = _sets(budget, found, start, end)
    prefetch_related_objects(sets[:MOST_SETS], "shares__budget", "shares__pool")
    last = _last(budget, now)
    ways = [
        (_("Last change"), last and last - SECOND, last),
        (_("This period"), period and period.starts_at, None),
        (_("Last 7 days"), now - WEEK, None),
    ]
    kinds = [kind for row in rows for kind in row.shown.difference.kinds]
    return Page(
        budget=budget,
        hue=painted[budget.path],
        start=start,
        end=end,
        groups=_groups(rows),
        count=len(rows),
        counts=[(str(word), kinds.count(kind)) for kind, word in WORDS.items() if kind in kinds],
        sets=changes.of_sets(sets[:MOST_SETS], names=Names.load()),
        more=max(0, len(sets) - MOST_SETS),
        presets=[
            Preset(label, _query(since, until, given), (since, until or now) == (start, end))
            for label, since, until in ways
            if since
        ],
        is_ahead=end > now,
    )


def subject(user: Person, *, path: str) -> Budget:
    """Return whose tree is compared; Http404 for who may not see it."""
    return get_budget_or_404(user, path)


def asked(given: Mapping[str, str], field: str, zone: ZoneInfo) -> datetime | None:
    """Return an instant that was asked for; without a zone of its own it is a time of `zone`.

    The form sends the instant that it showed too (`from_at`, `to_at`): as long as the time is the
    same in `zone` that is the one, also where the time comes twice.
    """
    text = given.get(field, "").strip()
    if not text:
        return None
    at, shown = _read(text), _read(given.get(f"{field}_at", ""))
    if at is not None and at.tzinfo is None and len(text) > len("2026-10-01"):
        if shown is not None and shown.tzinfo and _on_clocks(shown, zone) == at:
            text = shown.isoformat()
        else:
            text = asking.on_clocks(at, field, zone).isoformat()
    return asking.instant(text, field, zone).astimezone(UTC)


def _read(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def _on_clocks(at: datetime, zone: ZoneInfo) -> datetime | None:
    try:
        return at.astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        return None


def _query(start: datetime, end: datetime | None, given: Mapping[str, str]) -> str:
    until = {"to": iso(end)} if end else {}
    zone = {"zone": given["zone"]} if given.get("zone") else {}
    return urlencode({"from": iso(start)} | until | zone)


# --- What is different ---------------------------------------------------------------------------


def _rows(
    found: Iterable[Shown],
    held: Standing,
    painted: Mapping[str, Hue],
    start: datetime,
    end: datetime,
) -> Iterator[Row]:
    pools = dict(Pool.objects.values_list("slug", "name"))
    found = list(found)
    renamed = [one.difference.budget.pk for one in found if Kind.RENAMED in one.difference.kinds]
    ended = FormerName.objects.filter(budget__in=renamed, until__gt=start, until__lte=end)
    former = list(ended.select_related("author"))
    for one in found:
        budget = one.difference.budget
        seen = held.sees(budget.path)
        yield Row(
            shown=one,
            path=budget.path if seen else "",
            hue=painted[budget.path],
            words=[str(WORDS[kind]) for kind in one.difference.kinds],
            lines=list(_lines(one, pools)),
            former=[name for name in former if seen and name.budget_id == budget.pk],
        )


def _lines(one: Shown, pools: Mapping[str, str]) -> Iterator[ShareLine]:
    before = one.before.whole if one.before else None
    after = one.after.whole if one.after else None
    yield ShareLine(
        "",
        before.thousandths if before else None,
        after.thousandths if after else None,
        _part(before.effective if before else None),
        _part(after.effective if after else None),
    )
    for slug, name in pools.items():
        was, becomes = _override(before, slug), _override(after, slug)
        if was != becomes:
            in_pool = (place.effective_in[slug] if place else None for place in (before, after))
            yield ShareLine(name, was, becomes, *map(_part, in_pool))


def _override(place: Place | None, slug: str) -> int | None:
    return place.overrides.get(slug) if place else None


def _part(effective: Fraction | None) -> int | None:
    return None if effective is None else int(effective * WHOLE)


def _groups(rows: Iterable[Row]) -> list[Group]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        place = row.shown.after or row.shown.before
        path = place.path if place else None
        found.setdefault(_parent(path) if path else _("elsewhere"), []).append(row)
    return [Group(parent, below) for parent, below in found.items()]


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


# --- The change sets -----------------------------------------------------------------------------


def _sets(
    budget: Budget, found: Iterable[Shown], start: datetime, end: datetime
) -> list[ChangeSet]:
    """Return the sets between that divide a budget or one below it, and those that made `found`.

    The newest first. All are of parents that the reader sees, as what is shown of `found` is.
    """
    made = {one.pk for row in found for one in row.by}
    between = diffs.came_into_force(start=start, end=end)
    return [
        one
        for one in reversed(between)
        if one.pk in made or is_within(one.parent.path, budget.path)
    ]


def _last(budget: Budget, now: datetime) -> datetime | None:
    """Return the last instant at which shares or names at or below a budget changed."""
    below = Q(path=budget.path) | Q(path__startswith=f"{budget.path}/")
    rows = Budget.objects.filter(below)
    renamed = FormerName.objects.filter(budget__in=rows, until__lte=now).order_by("until").last()
    until = renamed.until if renamed else None
    instants = (_last_own(budget, now), _last_below(rows, now), until)
    return max((one for one in instants if one is not None), default=None)


def _last_own(budget: Budget, now: datetime) -> datetime | None:
    """Return when a budget's own share last changed, however many sets moved its siblings' since.

    Two queries, which read nothing of the siblings.
    """
    if budget.parent_id is None:
        return None
    sets = ChangeSet.objects.filter(parent=budget.parent_id, status=ChangeSet.Status.APPROVED)
    rows: dict[int, dict[int | None, int]] = {}
    own = Share.objects.filter(change_set__in=sets, budget=budget)
    for version, pool, share in own.values_list("change_set__version", "pool", "thousandths"):
        rows.setdefault(version, {})[pool] = share
    instants = sets.filter(effective_at__lte=now).values_list("version", "effective_at")
    moved = [at for version, at in instants if rows.get(version) != rows.get(version - 1)]
    return max(moved, default=None)


def _last_below(rows: QuerySet[Budget], now: datetime) -> datetime | None:
    """Return when shares of these budgets' children last changed; a set may leave all as it was."""
    sets = ChangeSet.objects.filter(parent__in=rows, status=ChangeSet.Status.APPROVED)
    related = sets.filter(effective_at__lte=now).select_related("parent", "author")
    related = related.prefetch_related("shares__budget", "shares__pool")
    newest = related.order_by("-effective_at", "-version", "-pk")
    first = 0
    while batch := list(newest[first : first + AT_ONCE]):
        for change in changes.of_sets(batch):
            if change.moves:
                return change.change_set.effective_at
        first += AT_ONCE
    return None
