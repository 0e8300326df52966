"""What must be true of transfers: what leaves one branch of the tree joins the other, in full."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from django.db.models import Q

from budgets.models import Budget, ChangeSet
from ledger.grants import TRANSFERS, WAY, way_between
from ledger.instants import LedgerError, iso, to_seconds
from ledger.kept import CHANGES
from ledger.membership import Membership
from ledger.models import Entry
from ledger.moves import Move
from ledger.problems import EntryProblem, Kind, Problems
from ledger.share_changes import BEGUN, MOVE, UNDER

Amounts = Mapping[int, int]  # milli-GPU-seconds by budget id


@dataclass(slots=True)
class _Decision:
    """The entries of one transfer, or of what one budget took along in one change set."""

    at: datetime
    first: int  # the id of the first of them
    amounts: dict[int, int] = field(default_factory=dict)

    @property
    def amount(self) -> int:
        """What most of them say; there is one, unless something is wrong."""
        return Counter(map(abs, self.amounts.values())).most_common(1)[0][0]

    @property
    def is_even(self) -> bool:
        return len({*map(abs, self.amounts.values())}) == 1


def transfer_problems() -> Problems:
    """Yield every transfer and every move of credits of which a half is gone, or is another."""
    books = _Books()
    yield from books.astray
    yield from books.halves_of_transfers()
    yield from books.halves_of_moves()


class _Books:
    """All transfers there are, by decision: as many as people and checkpoints made."""

    def __init__(self) -> None:
        self.tree = Membership.load()
        self.budgets = Budget.objects.in_bulk()
        self.decisions: dict[str, _Decision] = {}
        self.astray: list[EntryProblem] = []
        rows = Entry.objects.filter(kind=Kind.TRANSFER).order_by("pk")
        columns = ("pk", "key", "budget_id", "at", "amount_mgpus")
        for pk, key, budget_id, at, amount in rows.values_list(*columns):
            decision, _, whose = key.rpartition(":")
            mine = self.decisions.setdefault(decision, _Decision(at, pk))
            mine.amounts[budget_id] = amount
            if whose != str(budget_id):
                found = f"{key}: {amount} mGPU-s stand on {self.budgets[budget_id].path}"
                self.astray.append(EntryProblem("transfer", f"{found}, not on budget {whose}"))

    def halves_of_transfers(self) -> Problems:
        """−x from the source up, +x from the target up, to where the two meet.

        Of a transfer that no mark says the ends of: the same x everywhere, and both branches lead
        to one budget. In a second in which budgets moved, the same x is all that is asked.
        """
        marks = Entry.objects.filter(kind=Kind.GRANT, key__startswith=WAY).order_by("pk")
        ends = {}
        for pk, key, at in marks.values_list("pk", "key", "at"):
            name, *both = key.removeprefix(WAY).rsplit(":", 2)
            if len(both) != 2 or not all(self._is_budget(one) for one in both):
                yield EntryProblem("transfer", f"{key}, {iso(at)}: names no two budgets")
                continue
            source, target = (self.budgets[int(one)] for one in both)
            ends[f"{TRANSFERS}{name}"] = source, target
            self.decisions.setdefault(f"{TRANSFERS}{name}", _Decision(at, pk))
        for decision, mine in self.decisions.items():
            if not decision.startswith(TRANSFERS):
                continue
            if decision in ends:
                yield from self._unlike_way(decision, mine, *ends[decision])
            elif not self._is_whole(mine):
                yield self._problem(decision, mine, "the halves of a transfer don't match")

    def _unlike_way(
        self, decision: str, mine: _Decision, source: Budget, target: Budget
    ) -> Problems:
        where = f"from {source.path} to {target.path}"
        if not mine.amounts:
            yield EntryProblem("transfer", f"{decision}, {iso(mine.at)}, {where}: no half is there")
            return

        def way(tree: Membership) -> Amounts:
            return way_between(tree, source, target, mine.amount, at=to_seconds(mine.at))

        try:
            right = way(self.tree)
        except LedgerError as error:
            yield self._problem(decision, mine, f"{where}: {error}")
            return
        even = _moved_at(mine.at) and mine.is_even
        if mine.amounts != right and not even and mine.amounts != self._as_known(mine, way):
            yield self._problem(decision, mine, where, right)

    def _as_known(self, mine: _Decision, way: Callable[[Membership], Amounts]) -> Amounts | None:
        """Return what was right by the tree that was known then, if another came to be known since.

        Of two managers at once the first by the clock may be the last whose move is written.
        """
        marks = Entry.objects.filter(kind=Kind.GRANT, key__startswith=CHANGES, pk__gt=mine.first)
        late = marks.filter(at__lt=mine.at).order_by().values_list("key", flat=True)
        unknown = {int(one) for key in late if (one := key.split(":")[2]).isdecimal()}
        same = ChangeSet.objects.filter(pk__in=unknown).values("effective_at")
        unseen = ChangeSet.objects.filter(effective_at__in=same).values_list("pk", flat=True)
        return way(Membership.load(without=list(unseen))) if unknown else None

    def _is_whole(self, mine: _Decision) -> bool:
        seconds = to_seconds(mine.at)
        branches = [
            {node for node, amount in mine.amounts.items() if amount * sign > 0} for sign in (-1, 1)
        ]
        tops = {self._top(branch, at) for branch in branches if branch for at in (seconds,)}
        return len({*map(abs, mine.amounts.values())}) == 1 and len(tops) == 1 and None not in tops

    def _top(self, branch: set[int], seconds: int) -> int | None:
        """Return what a branch leads up to; None if it isn't one."""
        for node in branch:
            chain = self.tree.chain(node, seconds)
            if set(chain[: len(branch)]) == branch:
                return chain[len(branch)] if len(branch) < len(chain) else None
        return None

    def halves_of_moves(self) -> Problems:
        """−x on every budget of the branch that a budget left, +x on those of the one it joined.

        Where several sets moved budgets in one second, only that they add up the same.
        """
        for decision, mine in self.decisions.items():
            if not decision.startswith(MOVE):
                continue
            whose = decision.rpartition(":")[2]
            if not self._is_budget(whose):
                yield self._problem(decision, mine, f"{whose!r} is no budget that could move")
                continue
            mover = self.budgets[int(whose)]
            ways = self._moved(mover.pk, mine)
            words = f"what {mover.path} took along"
            if ways is None:
                if not mine.is_even:
                    yield self._problem(decision, mine, words)
            elif mine.amounts != ways:
                way = partial(_taken_along, mover.pk, mine)
                if mine.amounts != self._as_known(mine, way):
                    yield self._problem(decision, mine, words, ways)

    def _is_budget(self, text: str) -> bool:
        """Whether it is the id of a budget, as keys of entries have it."""
        return text.isascii() and text.isdigit() and int(text) in self.budgets

    def _moved(self, budget_id: int, mine: _Decision) -> Amounts | None:
        if len(_moved_at(mine.at)) > 1:
            return None
        return _taken_along(budget_id, mine, self.tree)

    def _problem(
        self, decision: str, mine: _Decision, words: str, right: Amounts | None = None
    ) -> EntryProblem:
        """Name each budget whose amount is another; without what is right, all of them."""
        known = defaultdict(int, right or {})
        told = [
            f"{self.budgets[pk].path} {mine.amounts.get(pk, 0)}"
            + ("" if right is None else f", not {known[pk]}")
            for pk in sorted({*mine.amounts, *known})
            if right is None or mine.amounts.get(pk, 0) != known[pk]
        ]
        return EntryProblem(
            "transfer", f"{decision}, {iso(mine.at)}, {words}: in mGPU-s {'; '.join(told)}"
        )


def _taken_along(budget_id: int, mine: _Decision, tree: Membership) -> Amounts:
    seconds = to_seconds(mine.at)
    chains = (tree.chain(budget_id, at) for at in (seconds - 1, seconds))
    return Move(budget_id, *chains).amounts(mine.amount)


def _moved_at(at: datetime) -> set[str]:
    """Return what followed moves of budgets at an instant: change sets, the start of a period."""
    known = Q(key__startswith=CHANGES) | Q(key__startswith=BEGUN)
    marks = Entry.objects.filter(known, kind=Kind.GRANT, at=at, key__contains=f":{UNDER}:")
    return {":".join(key.split(":")[1:3]) for key in marks.values_list("key", flat=True)}
