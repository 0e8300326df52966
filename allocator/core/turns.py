"""Whose turn is it? Fair Tree, kept up to date while a plan is built.

The most under-served leaf is found from the root down: at each level the child with the highest
level fair share, so two leaves are compared at the first level below their common ancestor. Sibling
fractions share their denominators, so a child's place is the integer usage x (L / shares), L the
least common multiple of the siblings' shares: exact, and one comparison of integers. What the plan
gives raises that number for one child per level; heaps are corrected when they are looked at.

A running job competes with the stay bonus (10 % on its level fair share): its number counts 10
where a waiting job's counts 11.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate

from .plan import LevelShare
from .problem import FULL_SHARE, BudgetNode, Problem

ROOT = 0
STAY, WAIT = 10, 11  # the stay bonus as a ratio: 11 / 10 of the level fair share


class Turn(IntEnum):
    """What a leaf's turn is for."""

    WAITING = 0
    RUNNING = 1


Entry = tuple[bool, int, int, str, int]  # share 0 last, least served, larger share, path, child


@dataclass(slots=True)
class _Budget:
    path: str
    parent: int
    shares: int
    depth: int
    scale: int = 1  # L / shares
    window: int = 0  # usage before the plan
    usage: int = 0  # with what the plan has given
    first: int = 0  # what the plan gives in its first timestep
    entitled: int = 0


class Turns:
    """The budget tree of a problem, with turns; one nameless leaf where there are no budgets."""

    def __init__(self, problem: Problem, healthy_seconds: int) -> None:
        self._nodes = [_Budget("", -1, 0, 0)]
        self._children: list[list[int]] = [[]]
        self.leaf_of: dict[str | None, int] = {}
        self._grow(problem.budgets)
        if not problem.budgets:
            self._add("", ROOT, FULL_SHARE)
            self.leaf_of = dict.fromkeys([job.budget for job in problem.jobs], 1)
        for siblings in self._children:
            common = math.lcm(*(self._nodes[c].shares or 1 for c in siblings))
            for child in siblings:
                self._nodes[child].scale = common // (self._nodes[child].shares or common)
        self._entitle(problem, healthy_seconds)
        count = len(self._nodes)
        self._open = [[0] * count, [0] * count]
        self._heaps: list[list[list[Entry]]] = [[[] for _ in range(count)] for _ in Turn]

    def _grow(self, budgets: Iterable[BudgetNode]) -> None:
        below: dict[str | None, list[BudgetNode]] = {}
        for budget in budgets:
            below.setdefault(budget.parent, []).append(budget)
        frontier: list[tuple[str | None, int]] = [(None, ROOT)]
        for path, at in frontier:  # grows while it is read
            for budget in sorted(below.get(path, ()), key=lambda b: b.path):
                index = self._add(budget.path, at, budget.shares)
                frontier.append((budget.path, index))
                if budget.path not in below:
                    self.leaf_of[budget.path] = index
                    for node in self._up(index):
                        node.window += budget.usage
                        node.usage += budget.usage

    def _add(self, path: str, parent: int, shares: int) -> int:
        self._nodes.append(_Budget(path, parent, shares, self._nodes[parent].depth + 1))
        self._children.append([])
        self._children[parent].append(len(self._nodes) - 1)
        return len(self._nodes) - 1

    def _entitle(self, problem: Problem, healthy_seconds: int) -> None:
        stated = {budget.path: budget.entitled for budget in problem.budgets}
        part = [(1, 1)] * len(self._nodes)  # effective share as numerator and denominator
        self._part = part
        alone = len(self._children[ROOT]) == 1
        for index, node in enumerate(self._nodes):
            if index == ROOT:
                continue
            over, under = part[node.parent]
            if not (alone and node.parent == ROOT):
                over, under = over * node.shares, under * FULL_SHARE
            part[index] = over, under
            node.entitled = stated.get(node.path, 0) or over * healthy_seconds // under

    def owed_cells(self, leaf: int, healthy: Sequence[int]) -> list[int]:
        """Per prefix: the leaf's effective share of the healthy GPU-timesteps, rounded up."""
        over, under = self._part[leaf]
        return [-(-over * total // under) for total in accumulate(healthy)]

    def _up(self, leaf: int) -> Iterable[_Budget]:
        while leaf != -1:
            yield self._nodes[leaf]
            leaf = self._nodes[leaf].parent

    def give(self, leaf: int, seconds: int, first_seconds: int) -> None:
        """The plan gives a leaf GPU-seconds, `first_seconds` of them in the first timestep."""
        for node in self._up(leaf):
            node.usage += seconds
            node.first += first_seconds

    def open(self, leaf: int, turn: Turn) -> None:
        """One more job of the leaf wants a turn."""
        counts, heaps = self._open[turn], self._heaps[turn]
        while leaf != -1:
            counts[leaf] += 1
            if counts[leaf] == 1 and leaf != ROOT:
                heapq.heappush(heaps[self._nodes[leaf].parent], self._entry(leaf))
            leaf = self._nodes[leaf].parent

    def close(self, leaf: int, turn: Turn) -> None:
        """A job of the leaf has had its turn."""
        counts = self._open[turn]
        while leaf != -1:
            counts[leaf] -= 1
            leaf = self._nodes[leaf].parent

    def next(self) -> tuple[int, Turn] | None:
        """The most under-served leaf that wants a turn, and what for; None when all had theirs."""
        at, turn = ROOT, None
        while self._children[at]:
            if turn is not None:
                top = self._top(at, turn)
            else:
                top, turn = self._contest(at)
            if top is None:
                return None
            at = top[-1]
        if turn is None:
            turn = Turn.RUNNING if self._open[Turn.RUNNING][at] else Turn.WAITING
        return at, turn

    def _contest(self, at: int) -> tuple[Entry | None, Turn | None]:
        """The best child, and whether it comes for a run, for a waiting job, or (None) either."""
        run, wait = self._top(at, Turn.RUNNING), self._top(at, Turn.WAITING)
        if run is None or wait is None:
            return (wait, Turn.WAITING) if run is None else (run, Turn.RUNNING)
        if run[-1] == wait[-1]:
            return run, None
        stays = (run[0], STAY * run[1]) <= (wait[0], WAIT * wait[1])
        return (run, Turn.RUNNING) if stays else (wait, Turn.WAITING)

    def _top(self, at: int, turn: Turn) -> Entry | None:
        heap, counts = self._heaps[turn][at], self._open[turn]
        while heap:
            child = heap[0][-1]
            if not counts[child]:
                heapq.heappop(heap)
                continue
            entry = self._entry(child)
            if entry == heap[0]:
                return entry
            heapq.heapreplace(heap, entry)  # usage only grows, so what was stale moves down
        return None

    def _entry(self, child: int) -> Entry:
        node = self._nodes[child]
        return node.shares == 0, node.usage * node.scale, -node.shares, node.path, child

    def outranks(self, leaf: int, other: int) -> bool:
        """Whether a waiting job of `leaf` comes before a run of `other`, stay bonus included."""
        if leaf == other:
            return False
        a, b = map(self._entry, self._apart(leaf, other))
        return (a[0], WAIT * a[1]) < (b[0], STAY * b[1])

    def _apart(self, leaf: int, other: int) -> tuple[int, int]:
        """The two ancestors that are siblings: where the leaves are compared."""
        nodes = self._nodes
        while nodes[leaf].parent != nodes[other].parent:
            if nodes[leaf].depth >= nodes[other].depth:
                leaf = nodes[leaf].parent
            else:
                other = nodes[other].parent
        return leaf, other

    def inside(self, leaf: int, below: int, seconds: int) -> bool:
        """Inside its entitlement at every level up to `below`, with `seconds` more at once."""
        while True:
            node = self._nodes[leaf]
            if node.window + node.first + seconds > node.entitled:
                return False
            if leaf == below:
                return True
            leaf = node.parent

    def may_preempt(self, leaf: int, asks: int, other: int, keeps: int) -> bool:
        """Whether a funded job of `leaf` may stop a funded run of `other`.

        It must outrank it, and a job outside its entitlement never stops one inside. `asks` and
        `keeps` are what either would use in the first timestep, in GPU-seconds.
        """
        if not self.outranks(leaf, other):
            return False
        a, b = self._apart(leaf, other)
        return self.inside(leaf, a, asks) or not self.inside(other, b, keeps)

    def compared(
        self, leaf: int, asks: int, other: int, keeps: int
    ) -> tuple[LevelShare | None, LevelShare | None]:
        """Both sides of the comparison, to be shown; None where both are one leaf."""
        if leaf == other:
            return None, None
        a, b = self._apart(leaf, other)
        return self._level_share(leaf, a, asks), self._level_share(other, b, keeps)

    def _level_share(self, leaf: int, at: int, seconds: int) -> LevelShare:
        node = self._nodes[at]
        siblings = [self._nodes[child] for child in self._children[node.parent]]
        return LevelShare(
            path=node.path,
            shares=node.shares,
            siblings_shares=sum(sibling.shares for sibling in siblings),
            usage=node.usage,
            siblings_usage=sum(sibling.usage for sibling in siblings),
            inside=self.inside(leaf, at, seconds),
        )

    def ranks(self) -> list[int]:
        """Per node: its place if all leaves are walked now, best first (leaves only are used)."""
        places = [0] * len(self._nodes)
        stack, place = [ROOT], 0
        while stack:
            at = stack.pop()
            places[at] = place
            place += 1
            stack.extend(sorted(self._children[at], key=self._entry, reverse=True))
        return places

    def path(self, leaf: int) -> str:
        return self._nodes[leaf].path
