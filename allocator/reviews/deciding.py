"""What was asked, decided, changed and simulated for a budget in an interval of a period."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q

from allocator.models import Simulation
from allocator.pages import changes
from allocator.reviews.pack import Asked, Change, Mark, Moved, Option
from allocator.simulating.inputs import trees_of
from budgets.access import Standing
from budgets.models import WHOLE, Budget, ChangeSet, Request
from ledger.by_hand import ByHand
from ledger.models import Entry

MOST_ASKED, MOST_CHANGES, MOST_OPTIONS, MARKS = 8, 6, 4, 6
MOST_OWN = 24  # changes of the budget's own share that are counted
SECOND = timedelta(seconds=1)
SHOWN = (ChangeSet.Status.APPROVED, ChangeSet.Status.PROPOSED)


def name_of(user: User | None) -> str:
    """Return how a pack names a person."""
    return (user.get_full_name() or user.username) if user else ""


def asked(
    *, budget: Budget, ids: Collection[int], start: datetime, end: datetime, least: Standing
) -> tuple[tuple[Asked, ...], int]:
    """Return requests that were made, decided or open in the interval, and how many more.

    Open ones first, then the newest. Two queries.
    """
    inside = Q(created_at__gte=start, created_at__lt=end) | Q(
        decided_at__gte=start, decided_at__lt=end
    )
    still_open = Q(status=Request.Status.OPEN, created_at__lt=end)
    found = Request.objects.filter(inside | still_open, budget_id__in=ids)
    related = found.select_related("budget", "asked_by", "decided_by", "source")
    rows = sorted(
        related, key=lambda one: (one.status == Request.Status.OPEN, one.created_at, one.pk)
    )[::-1]
    return tuple(_asked(one, least) for one in rows[:MOST_ASKED]), max(0, len(rows) - MOST_ASKED)


def _asked(one: Request, least: Standing) -> Asked:
    known = one.source is not None and least.knows(one.source.path)
    return Asked(
        pk=one.pk,
        budget=one.budget.path,
        label=one.budget.name,
        unit=one.unit,
        asked=one.asked,
        given=one.given,
        reason=one.reason,
        asked_by=name_of(one.asked_by),
        created_at=one.created_at,
        until=one.until,
        status=one.status,
        decision=one.decision,
        source=one.source.path if one.source is not None and known else "",
        answer=one.answer,
        decided_by=name_of(one.decided_by),
        decided_at=one.decided_at,
    )


def changed(
    *, budget: Budget, ids: Collection[int], start: datetime, end: datetime
) -> tuple[tuple[Change, ...], int]:
    """Return the changes of the budget's own share, and of shares below it, in the interval.

    Those that took effect in it or are proposed, the newest first, and how many more there are;
    what held from the period's start is its plan.
    """
    inside = Q(effective_at__gt=start, effective_at__lt=end, status=ChangeSet.Status.APPROVED)
    proposed = Q(status=ChangeSet.Status.PROPOSED, created_at__lt=end, effective_at__gte=start)
    within = inside | proposed
    sets = ChangeSet.objects.filter(within, parent_id__in=ids)
    newest = sets.select_related("parent", "author", "decided_by").order_by("-effective_at", "-pk")
    rows = list(newest.prefetch_related("shares__budget", "shares__pool")[:MOST_CHANGES])
    more = sets.count() - len(rows) if len(rows) == MOST_CHANGES else 0
    own = changes.of_child(budget, limit=MOST_OWN, within=within)
    found = [*changes.of_sets(rows), *own]
    found.sort(key=lambda one: (one.change_set.effective_at, one.change_set.pk), reverse=True)
    more += max(0, len(found) - MOST_CHANGES)
    return tuple(_change(one) for one in found[:MOST_CHANGES]), more


def _change(one: changes.Change) -> Change:
    row = one.change_set
    return Change(
        pk=row.pk,
        parent=row.parent.path,
        status=row.status,
        reason=row.reason,
        author=name_of(row.author),
        effective_at=row.effective_at,
        moves=tuple(Moved(move.name, move.pool, move.before, move.after) for move in one.moves),
    )


def transfers(budget: Budget, *, start: datetime, end: datetime) -> tuple[tuple[ByHand, ...], int]:
    """Return the newest transfers that somebody decided, and how many more.

    Those to and from the budget, and those between its reserve and a child, of which the budget
    itself has no entry. Two queries.
    """
    found = Entry.objects.filter(
        Q(budget=budget) | Q(budget__parent=budget),
        kind=Entry.Kind.TRANSFER,
        at__gte=start,
        at__lt=end,
        author__isnull=False,
    )
    decided: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for pk, key, budget_id in found.order_by("-at", "-pk").values_list("pk", "key", "budget_id"):
        decided[key.rpartition(":")[0]].append((pk, budget_id))
    told_by = (_half(halves, budget.pk) for halves in decided.values())
    ids = [pk for pk in told_by if pk is not None]
    rows = Entry.objects.filter(pk__in=ids[:MOST_CHANGES]).select_related("author", "budget")
    told = tuple(
        ByHand(one.at, one.kind, one.budget.path, one.amount_mgpus, name_of(one.author), one.note)
        for one in rows.order_by("-at", "-pk")
    )
    return told, len(ids) - len(told)


def _half(halves: list[tuple[int, int]], budget: int) -> int | None:
    """Return the entry of a transfer that a budget's pack tells: its own, or its only child's.

    Between two children nothing comes to the budget or leaves its reserve.
    """
    own = next((pk for pk, budget_id in halves if budget_id == budget), None)
    return own or (halves[0][0] if len(halves) == 1 else None)


def marks(budget: Budget, *, start: datetime, end: datetime) -> tuple[Mark, ...]:
    """Return the changes of the budget's own share inside the period, oldest first."""
    within = Q(status__in=SHOWN, effective_at__gt=start, effective_at__lt=end)
    found = changes.of_child(budget, limit=MARKS, within=within)
    named = [Mark(one.change_set.effective_at, _label(one), one.is_open) for one in found]
    return tuple(sorted(named, key=lambda one: one.at))


def _label(one: changes.Change) -> str:
    overall = next((move for move in one.moves if not move.pool), None)
    moved = f" {_percent(overall.before)} → {_percent(overall.after)}" if overall else ""
    return f"#{one.change_set.pk}{moved}"


def _percent(thousandths: int | None) -> str:
    return "–" if thousandths is None else f"{thousandths / 1000:g}"


def options(budget: Budget, *, start: datetime, end: datetime) -> tuple[Option, ...]:
    """Return the newest simulations that were asked for the budget and are done. One query."""
    done = Simulation.objects.filter(budget=budget, state=Simulation.State.DONE)
    inside = done.filter(created_at__gte=start, created_at__lt=end)
    rows = inside.defer("trace", "events", "picture").order_by("-pk")[:MOST_OPTIONS]
    return tuple(one for row in rows for one in _option(row, budget))


def _option(row: Simulation, budget: Budget) -> Iterator[Option]:
    """A simulation's first policy, under the shares it was asked for."""
    courses: list[dict[str, Any]] = (row.result or {}).get("courses", [])
    ours = next((one for one in courses if one["shares"] != "now"), None) or next(
        iter(courses), None
    )
    if ours is None:
        return
    base = next(
        (one for one in courses if one["shares"] == "now" and one["policy"] == ours["policy"]), None
    )
    base = base if base is not ours else None
    called = _called(row, budget)
    delivered, wait = _of(ours, called)
    delivered_before, wait_before = _of(base, called) if base else (None, None)
    yield Option(
        pk=row.pk,
        name=_title(row),
        shares=row.shares,
        policy=ours["policy"],
        delivered_part=delivered,
        p50_s=wait,
        before_delivered_part=delivered_before,
        before_p50_s=wait_before,
    )


def _title(row: Simulation) -> str:
    if row.name:
        return row.name
    if row.change_set_id is not None:
        return f"#{row.change_set_id}"
    return row.trace_name


def _called(row: Simulation, budget: Budget) -> str:
    """Return the path by which a simulation names a budget: that of back then.

    Since then the budget may have been renamed or moved, and another one may have its path.
    """
    known: dict[int, str] = {}
    for tree in trees_of(row).values():
        known |= tree.budgets
    return known.get(budget.pk, "") if known else budget.path  # a tree file's nodes have no ids


def _of(course: Mapping[str, Any], path: str) -> tuple[int | None, int | None]:
    """What a budget got of what it was owed, and its jobs' median wait."""
    mine: Iterable[Mapping[str, Any]] = course["budgets"]
    found = next((one for one in mine if one["path"] == path), None)
    if found is None:
        return None, None
    owed, got = found["owed_gpu_seconds"], found["delivered_gpu_seconds"]
    waits = found["waits"]
    return (got * WHOLE // owed if owed else None), (waits["p50_s"] if waits["jobs"] else None)
