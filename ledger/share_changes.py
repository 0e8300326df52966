"""What change sets move in the grants of the period that they take effect in; once for each set."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from django.db import transaction
from django.db.models import Max, Q, QuerySet, Sum

from budgets import shares
from budgets.models import ChangeSet, Period, PlannedCapacity
from budgets.periods import active
from budgets.shares import TreeNode, Vector
from ledger.entries import write
from ledger.figures import Accounts, accounts
from ledger.instants import to_seconds, whole
from ledger.kept import CHANGES, KEPT, giving_back, is_number, kept_by, kept_in, step
from ledger.lock import lock_ledger
from ledger.membership import Membership
from ledger.models import Entry
from ledger.moves import Move, Used, moves_at, taken_along
from ledger.period_plans import granted_by_shares
from ledger.rounding import Place, dues

Kind = Entry.Kind
SECOND = timedelta(seconds=1)
# `grant:change:<change set>:<budget>:under:<parent>`: the ledger has followed a budget's move.
UNDER = "under"
# `grant:begun:<period>:<budget>:under:<parent>`: the start had it there already that very second.
BEGUN = "grant:begun:"
Trees = Mapping[int | None, Mapping[int, TreeNode]]
MOVE = "move:"  # and the change set, the budget that moves, the node whose grant it moves


@transaction.atomic
def apply_change_set(*, change_set: ChangeSet, now: datetime) -> list[Entry]:
    """Write what an approved change set moves in the active period's grants; once.

    One entry per affected node: change of effective share × planned GPU-seconds of [effective,
    end of the period) × rate. A fall stops where granted would drop below what the node has
    settled, in flight and held, and a later rise is first set against what it could not take
    (`ledger.kept`). A budget that moves takes along what it has saved (`ledger.moves`). Sets that
    take effect at one instant count together. An entry of 0 on the parent marks the set as
    applied. What sets of later instants have moved already is set right by what is due with this
    one. Writes nothing for a set that isn't approved, isn't in effect yet, or is applied already.
    """
    now = whole(now, "now")
    lock_ledger()
    period = active(now)
    approved = change_set.status == ChangeSet.Status.APPROVED
    if period is None or not approved or not _counts_in(period, change_set, now):
        return []
    marks = Entry.objects.filter(kind=Kind.GRANT, key__startswith=f"{CHANGES}{change_set.pk}:")
    if marks.exists():
        return []
    entries = list(_Changes(change_set, period, accounts(period=period, at=now), now).entries())
    write(entries)
    for at in _applied_after(period, change_set.effective_at):
        found = accounts(period=period, at=now)
        moved = {entry.budget_id for entry in entries if entry.amount_mgpus}
        again = list(_Changes(change_set, period, found, now, at=at, moved=moved).steps())
        write(again)
        entries += again
    return [entry for entry in entries if entry.amount_mgpus]


def _applied_after(period: Period, at: datetime) -> list[datetime]:
    """Return later instants of which sets are applied: of two managers at once the first by the
    clock may be the last to be written, and the other's set didn't know of it."""
    marks = Entry.objects.filter(kind=Kind.GRANT, key__startswith=CHANGES, period=period)
    return list(marks.filter(at__gt=at).order_by("at").values_list("at", flat=True).distinct())


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A period's amounts before and after a change of shares or of the tree.

    By budget id in milli-GPU-seconds: ``kept`` is how much more a budget would keep than is due to
    it, ``along`` what goes along with one that moves, on either branch; ``after`` has all of it.
    """

    before: Accounts
    after: Accounts
    kept: Mapping[int, int]
    along: Mapping[int, int]


def foresee(
    *,
    period: Period,
    vectors: Mapping[int, Vector],
    moved: Mapping[int, int],
    at: datetime,
    now: datetime,
) -> Foreseen:
    """Return what other vectors of some parents would move in a period that runs; unwritten.

    By the rules that `apply_change_set` writes by, from ``at`` on, with what is spent and held
    ``now``. ``moved``: below whom budgets would stand from then on that stand elsewhere now.
    """
    before = accounts(period=period, at=now)
    # Also one that was moved and archived in one second comes back to where it never stood.
    seconds = to_seconds(now)
    elsewhere = (
        (pk, parent)
        for parent, vector in vectors.items()
        for pk in vector
        if before.tree.parent(pk, seconds) != parent
    )
    moved = dict(elsewhere) | dict(moved)
    if moved:
        tree = before.tree.with_moves(moved, to_seconds(at))
        after = accounts(period=period, at=now, tree=tree)
    else:
        after = replace(before, granted=defaultdict(int, before.granted))
    asked = ChangeSet(status=ChangeSet.Status.APPROVED, effective_at=at, decided_at=now)
    asked.parent_id = next(iter(vectors))
    kept: dict[int, int] = defaultdict(int)
    along: dict[int, int] = defaultdict(int)
    if _counts_in(period, asked, max(at, now)):
        for entry in list(_Changes(asked, period, after, now, vectors).entries()):
            after.granted[entry.budget_id] += entry.amount_mgpus
            if entry.kind == Kind.TRANSFER:
                along[entry.budget_id] += entry.amount_mgpus
            elif f":{KEPT}:" in (entry.key or ""):
                kept[entry.budget_id] += int(entry.key.rpartition(":")[2])
    return Foreseen(before, after, kept, along)


def waiting(*, period: Period, until: datetime) -> list[ChangeSet]:
    """Return what took effect in a period by an instant and isn't applied yet, in order.

    A set of the period's first second counts if it was approved in that very second: the period
    may have started before it was. What of it is in the period's grants moves nothing.
    """
    approved = ChangeSet.objects.filter(status=ChangeSet.Status.APPROVED)
    first = Q(effective_at=period.starts_at, decided_at__gte=period.starts_at)
    inside = Q(effective_at__gt=period.starts_at, effective_at__lte=until)
    marks = Entry.objects.filter(kind=Kind.GRANT, key__startswith=CHANGES, at__gte=period.starts_at)
    # What is no number is no set's, and ``unreadable_keys`` tells of it.
    done = {key.split(":")[2] for key in marks.values_list("key", flat=True)}
    sets = approved.filter(first | inside).order_by("effective_at", "pk")
    return [one for one in sets if str(one.pk) not in done and _counts_in(period, one, until)]


def _counts_in(period: Period, change_set: ChangeSet, now: datetime) -> bool:
    at, decided = change_set.effective_at, change_set.decided_at
    if at > now or at < period.starts_at:
        return False
    if at > period.starts_at:
        return True
    return decided is not None and decided >= at and _start_of(period).exists()


def begun_under(period: Period, tree: Membership) -> dict[int, int]:
    """Return below whom a period's start finds budgets that move in its first second, by id.

    What it grants and carries over stands there already: no change set takes it along again.
    """
    moves = moves_at(at=period.starts_at, tree=tree, followed={})
    return {move.budget_id: move.new[1] for move in moves}


def unlike_shares(period: Period) -> Iterator[tuple[datetime, int, int, int]]:
    """Yield where a budget's grants aren't what shares say: instant, id, due, granted; mGPU-s.

    At the period's start and at each change since; what a fall could not take counts as taken. Of
    who left the tree nothing is said: what it gave back was free then.
    """
    pending = {one.effective_at for one in waiting(period=period, until=period.ends_at - SECOND)}
    start = dict(_start_of(period).values_list("budget_id").annotate(total=Sum("amount_mgpus")))
    handled = _handled(period)
    for at in sorted({period.starts_at, *handled} - pending):
        mine, due = handled.get(at, {}), {}
        if at == period.starts_at:
            mine = {pk: start.get(pk, 0) + mine.get(pk, 0) for pk in {*start, *mine}}
            due = dict.fromkeys(mine, 0) if start else {}
            for (_, pk), amount in granted_by_shares(period=period).items() if start else ():
                due[pk] = due.get(pk, 0) + amount
        else:
            worth = _worth(period, at)
            # Each rounded down by itself was the rule once.
            due = {
                pk: mine.get(pk, 0) if mine.get(pk, 0) == worth.rounded_apart(pk) else worth.due(pk)
                for pk in {*worth.dues, *mine} - worth.gone
            }
        for pk in sorted(due):
            if mine.get(pk, 0) != due[pk]:
                yield at, pk, due[pk], mine.get(pk, 0)


def _handled(period: Period) -> dict[datetime, dict[int, int]]:
    """Return what change sets moved, or kept instead, by instant and budget id."""
    found: dict[datetime, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    rows = Entry.objects.filter(period=period, kind=Kind.GRANT, key__startswith=CHANGES)
    for at, key, budget_id, amount in rows.order_by().values_list(
        "at", "key", "budget_id", "amount_mgpus"
    ):
        found[at][budget_id] += amount - kept_by(key)
    return found


def last_move(period: Period) -> datetime | None:
    """Return the newest instant of a period at which the ledger has followed a budget's move."""
    marks = Entry.objects.filter(period=period, kind=Kind.GRANT, key__startswith=CHANGES)
    return marks.filter(key__contains=f":{UNDER}:").aggregate(newest=Max("at"))["newest"]


def unreadable_keys(period: Period) -> Iterator[tuple[datetime, int, str]]:
    """Yield marks and grants of change sets whose key can't be read: instant, budget id, key."""
    sets = set(map(str, ChangeSet.objects.values_list("pk", flat=True)))
    rows = Entry.objects.filter(period=period, kind=Kind.GRANT, key__startswith=CHANGES)
    for at, budget_id, key in rows.order_by("pk").values_list("at", "budget_id", "key"):
        *_, what, number = key.split(":")
        if key.split(":")[2] not in sets or (what == KEPT and not is_number(number)):
            yield at, budget_id, key


def _start_of(period: Period) -> QuerySet[Entry]:
    """Return what starting a period granted by shares."""
    return Entry.objects.filter(
        period=period, kind=Kind.GRANT, key__startswith=f"grant:{period.pk}:"
    ).order_by()


@dataclass(frozen=True, slots=True)
class _Worth:
    """What effective shares are worth until the period ends, before and after an instant, by
    budget id in milli-GPU-seconds; ``gone``: who left the tree then; ``dues``: what grants move by.
    """

    before: dict[int, int]
    after: dict[int, int]
    gone: frozenset[int]
    dues: dict[int, int]

    def due(self, budget_id: int) -> int:
        return self.dues.get(budget_id, 0)

    def rounded_apart(self, budget_id: int) -> int:
        return self.after.get(budget_id, 0) - self.before.get(budget_id, 0)


def _worth(period: Period, at: datetime, instead: Mapping[int, Vector] | None = None) -> _Worth:
    total = to_seconds(period.ends_at) - to_seconds(period.starts_at)
    rest = Fraction(to_seconds(period.ends_at) - to_seconds(at), total)
    planned = PlannedCapacity.objects.filter(period=period)
    wholes = {one.pool_id: rest * one.gpu_seconds * one.rate_per_mille for one in planned}
    before = shares.trees(at=at - SECOND, pools=[None, *wholes])
    after = shares.trees(at=at, pools=[None, *wholes], instead=instead)
    gone = frozenset(before[None].keys() - after[None].keys())
    worth = _rounded(after, wholes)
    if at == period.starts_at:  # shares were granted by what was approved when it started
        rows = _start_of(period).values_list("budget_id")
        granted = dict(rows.annotate(total=Sum("amount_mgpus")))
        known = {*granted, *worth}
        moved = {pk: worth.get(pk, 0) - granted.get(pk, 0) for pk in known}
        return _Worth(granted, worth, gone, moved)
    return _Worth(_rounded(before, wholes), worth, gone, due_by_shares(before, after, wholes))


def _rounded(trees: Trees, wholes: Mapping[int, Fraction]) -> dict[int, int]:
    amounts: dict[int, int] = defaultdict(int)
    for pool_id in wholes:
        for budget_id, place in _places(trees, pool_id, wholes).items():
            amounts[budget_id] += int(place.worth)
    return amounts


def due_by_shares(before: Trees, after: Trees, wholes: Mapping[int, Fraction]) -> dict[int, int]:
    """Return what a change from one tree to another moves, by budget id, in milli-GPU-seconds.

    ``wholes``: what all of each pool is worth from then on, by its id. Rounded pool by pool, as a
    period's start is.
    """
    found: dict[int, int] = defaultdict(int)
    for pool_id in wholes:
        both = (_places(trees, pool_id, wholes) for trees in (before, after))
        for budget_id, amount in dues(*both).items():
            found[budget_id] += amount
    return found


def _places(trees: Trees, pool_id: int, wholes: Mapping[int, Fraction]) -> dict[int, Place]:
    return {
        pk: Place(node.parent_id, node.effective * wholes[pool_id])
        for pk, node in trees[pool_id].items()
    }


class _Changes:
    """The entries of one change set, and of all that takes effect with it and isn't written yet."""

    def __init__(
        self,
        change_set: ChangeSet,
        period: Period,
        found: Accounts,
        now: datetime,
        instead: Mapping[int, Vector] | None = None,
        *,
        at: datetime | None = None,
        moved: Collection[int] = (),
    ) -> None:
        self.change_set, self.period, self.found, self.now = change_set, period, found, now
        self.at, self.again = at or change_set.effective_at, at is not None
        self.moved = moved  # what the set has moved at earlier instants already
        tail = f":again:{to_seconds(self.at)}" if self.again else ""
        self.key = f"{CHANGES}{change_set.pk}{tail}"
        self.worth = _worth(period, self.at, instead)
        self.kept = kept_in(period)
        self.handled: dict[int, int] = defaultdict(int)  # of what is due at the instant
        self.followed: dict[int, int] = {}
        self.shifted: dict[int, int] = defaultdict(int)  # in what is free, by these entries
        self._read()

    def entries(self) -> Iterator[Entry]:
        yield from self.steps()
        yield self._mark(self.change_set.parent_id, "applied")

    def steps(self) -> Iterator[Entry]:
        moves = moves_at(at=self.at, tree=self.found.tree, followed=self.followed)
        for move in moves:
            yield from self._step(move.budget_id)
            yield from self._take_along(move)
        known = {*self.worth.before, *self.worth.after, *self.worth.gone, *self.handled}
        for budget_id in sorted(known - {move.budget_id for move in moves}):
            yield from self._step(budget_id)

    def _read(self) -> None:
        """Read what sets of the same instant have moved already."""
        known = Q(key__startswith=CHANGES) | Q(key__startswith=BEGUN)
        entries = Entry.objects.filter(known, period=self.period, kind=Kind.GRANT, at=self.at)
        # Of no timestep, as every grant is, and sorted here: else a database that sorts by the key
        # of a million charges reads them all.
        entries = entries.filter(timestep=None).order_by()
        rows = sorted(entries.values_list("pk", "key", "budget_id", "amount_mgpus"))
        for _pk, key, budget_id, amount in rows:
            *_, what, number = key.split(":")
            self.handled[budget_id] += amount - kept_by(key)
            if what == UNDER:
                self.followed[budget_id] = int(number)

    def _step(self, budget_id: int) -> Iterator[Entry]:
        """Yield what a budget's grant moves by, and what changes in what it keeps."""
        due = self.worth.due(budget_id) - self.handled[budget_id]
        gone = budget_id in self.worth.gone
        if self.again and (budget_id not in self.moved if gone else not due):
            return  # who has left the tree has given back what it had then
        free = self.found.free(budget_id) + self.shifted[budget_id]
        rule = giving_back if gone else step
        found = rule(due=due, free=free, kept=self.kept.get(budget_id, 0))
        self.shifted[budget_id] += found.written
        if found.written:
            yield self._entry(Kind.GRANT, budget_id, found.written, _note(due, found.written))
        if found.kept:
            yield self._mark(budget_id, f"{budget_id}:{KEPT}:{found.kept}")

    def _take_along(self, move: Move) -> Iterator[Entry]:
        pk = move.budget_id
        used = Used(period=self.period, at=self.at, found=self.found)
        room = min((self.found.free(one) + self.shifted[one] for one in move.left), default=None)
        unused = used.unused(pk) + self.shifted[pk]
        amount = taken_along(unused=unused, worth=self.worth.after.get(pk, 0), room=room)
        for node, moved in move.amounts(amount).items():
            self.shifted[node] += moved
            if moved:
                entry = self._entry(Kind.TRANSFER, node, moved, "goes along with a budget: ")
                entry.key = f"{MOVE}{self.change_set.pk}:{pk}:{node}"
                yield entry
        yield self._mark(pk, f"{pk}:{UNDER}:{move.new[1]}")

    def _mark(self, budget_id: int, tail: str) -> Entry:
        entry = self._entry(Kind.GRANT, budget_id, 0)
        entry.key = f"{self.key}:{tail}"
        return entry

    def _entry(self, kind: Entry.Kind, budget_id: int, amount: int, words: str = "") -> Entry:
        return Entry(
            kind=kind,
            budget_id=budget_id,
            period=self.period,
            at=self.at,
            amount_mgpus=amount,
            author_id=self.change_set.author_id,
            note=f"{words}{self.change_set.reason}"[:300],
            key=f"{self.key}:{budget_id}",
            created_at=self.now,
        )


def _note(due: int, written: int) -> str:
    if written == due:
        return ""
    return "as far as it is free: " if due < 0 else "less what was kept before: "
