"""Fair Tree kept up to date while a plan is built, compiled; turns.py tells what it means.

Siblings are compared by cross-multiplying usage and shares in 128 bits, so exactly. Each node has
two heaps of its children, for runs and for waiting jobs, in the stretch of `heap` that its children
take in the numbering. What the plan gives only ever raises a child's usage, so a heap is put right
when its top is looked at.
"""

from typing import NamedTuple

import numpy as np

from . import compiled, inner, number
from .tables import Flags, Rows
from .words import ONE

ROOT, NONE, ONE_MORE = number(0), number(-1), number(1)
WAITING, RUNNING = number(0), number(1)
ALWAYS, NEVER = number(-(1 << 62)), number(1 << 62)
STAY, WAIT = 10, 11  # the stay bonus as a ratio: 11 / 10 of the level fair share
HALF = np.uint64(32)
LOW = (ONE << HALF) - ONE


class Tree(NamedTuple):
    """N budgets; the children of a node are numbered one after another, by path."""

    parent: Rows  # -1 at the root
    depth: Rows
    shares: Rows
    children: Rows  # where a node's children begin; it has `many` of them
    many: Rows
    window: Rows  # usage before the plan
    usage: Rows  # with what the plan has given
    first: Rows  # what the plan gives in its first timestep
    entitled: Rows
    open: Rows  # [2, N]: jobs below that want a turn
    heap: Rows  # [2, N]
    length: Rows  # [2, N]: of each node's heap
    queued: Flags  # [2, N]: whether a child is in its parent's heap
    stored: Rows  # [2, N]: its usage when it was put there


@inner
def product_less(a: int, b: int, c: int, d: int) -> bool:
    """Whether a * b < c * d, all at least 0, b and d below 2^31."""
    a_low, c_low = np.uint64(a) & LOW, np.uint64(c) & LOW
    left_low, right_low = a_low * np.uint64(b), c_low * np.uint64(d)
    left = (np.uint64(a) >> HALF) * np.uint64(b) + (left_low >> HALF)
    right = (np.uint64(c) >> HALF) * np.uint64(d) + (right_low >> HALF)
    if left != right:
        return bool(left < right)
    return bool((left_low & LOW) < (right_low & LOW))


@inner
def _before(tree: Tree, a: int, used_a: int, b: int, used_b: int) -> bool:
    """Whether sibling a comes before b: share 0 last, least served, larger share, path."""
    shares_a, shares_b = tree.shares[a], tree.shares[b]
    if (shares_a == 0) != (shares_b == 0):
        return shares_b == 0
    if product_less(used_a, max(shares_b, 1), used_b, max(shares_a, 1)):
        return True
    if product_less(used_b, max(shares_a, 1), used_a, max(shares_b, 1)):
        return False
    return shares_a > shares_b if shares_a != shares_b else a < b


@inner
def _sift_up(tree: Tree, turn: int, begin: int, at: int) -> None:
    heap, stored = tree.heap[turn], tree.stored[turn]
    while at > 0:
        above = (at - 1) // 2
        child, other = heap[begin + at], heap[begin + above]
        if not _before(tree, child, stored[child], other, stored[other]):
            return
        heap[begin + at], heap[begin + above] = other, child
        at = above


@inner
def _sift_down(tree: Tree, turn: int, begin: int, length: int) -> None:
    heap, stored, at = tree.heap[turn], tree.stored[turn], 0
    while True:
        best, below = at, 2 * at + 1
        for side in range(below, min(below + 2, length)):
            child, other = heap[begin + side], heap[begin + best]
            if _before(tree, child, stored[child], other, stored[other]):
                best = side
        if best == at:
            return
        heap[begin + at], heap[begin + best] = heap[begin + best], heap[begin + at]
        at = best


@compiled
def open_turns(tree: Tree, leaf: int, turn: int, number: int) -> None:
    """So many more jobs of the leaf want a turn."""
    node = leaf
    while node != -1:
        tree.open[turn, node] += number
        if node != ROOT and number > 0 and not tree.queued[turn, node]:
            above = tree.parent[node]
            begin, at = tree.children[above], tree.length[turn, above]
            tree.heap[turn, begin + at] = node
            tree.stored[turn, node] = tree.usage[node]
            tree.queued[turn, node] = True
            tree.length[turn, above] = at + 1
            _sift_up(tree, turn, begin, at)
        node = tree.parent[node]


@compiled
def close_turn(tree: Tree, leaf: int, turn: int) -> None:
    """A job of the leaf has had its turn."""
    node = leaf
    while node != -1:
        tree.open[turn, node] -= 1
        node = tree.parent[node]


@inner
def _top(tree: Tree, at: int, turn: int) -> int:
    """The child whose turn is next, -1: none."""
    begin = tree.children[at]
    while tree.length[turn, at] > 0:
        child = tree.heap[turn, begin]
        if tree.open[turn, child] == 0:
            last = tree.length[turn, at] - 1
            tree.heap[turn, begin] = tree.heap[turn, begin + last]
            tree.length[turn, at] = last
            tree.queued[turn, child] = False
        elif tree.stored[turn, child] == tree.usage[child]:
            return child
        else:
            tree.stored[turn, child] = tree.usage[child]
        _sift_down(tree, turn, begin, tree.length[turn, at])
    return -1


@inner
def _stays(tree: Tree, run: int, wait: int) -> bool:
    """Whether a run of one sibling comes before a waiting job of another, bonus included."""
    shares_r, shares_w = tree.shares[run], tree.shares[wait]
    if (shares_r == 0) != (shares_w == 0):
        return shares_w == 0
    wanted, kept = WAIT * max(shares_r, 1), STAY * max(shares_w, 1)
    return not product_less(tree.usage[wait], wanted, tree.usage[run], kept)


@compiled
def next_turn(tree: Tree) -> tuple[int, int]:
    """(leaf, what for) of the most under-served leaf that wants a turn; (-1, 0): all had theirs."""
    at, turn = ROOT, NONE
    while tree.many[at] > 0:
        if turn >= 0:
            child = _top(tree, at, turn)
        else:
            run, wait = _top(tree, at, RUNNING), _top(tree, at, WAITING)
            child = run if run >= 0 else wait
            if run != wait:
                stays = run >= 0 and (wait < 0 or _stays(tree, run, wait))
                child, turn = (run, RUNNING) if stays else (wait, WAITING)
        if child < 0:
            return -1, 0
        at = child
    if turn < 0:
        turn = RUNNING if tree.open[RUNNING, at] else WAITING
    return at, turn


@compiled
def give(tree: Tree, leaf: int, seconds: int, first_seconds: int) -> None:
    """The plan gives a leaf GPU-seconds, `first_seconds` of them in the first timestep."""
    node = leaf
    while node != -1:
        tree.usage[node] += seconds
        tree.first[node] += first_seconds
        node = tree.parent[node]


@compiled
def apart(tree: Tree, leaf: int, other: int) -> tuple[int, int]:
    """The two ancestors that are siblings: where the leaves are compared."""
    while tree.parent[leaf] != tree.parent[other]:
        if tree.depth[leaf] >= tree.depth[other]:
            leaf = tree.parent[leaf]
        else:
            other = tree.parent[other]
    return leaf, other


@compiled
def outranks(tree: Tree, leaf: int, other: int) -> bool:
    """Whether a waiting job of `leaf` comes before a run of `other`, stay bonus included."""
    if leaf == other:
        return False
    a, b = apart(tree, leaf, other)
    return not _stays(tree, b, a)


@compiled
def inside(tree: Tree, leaf: int, below: int, seconds: int) -> bool:
    """Inside its entitlement at every level up to `below`, with `seconds` more at once."""
    node = leaf
    while True:
        if tree.window[node] + tree.first[node] + seconds > tree.entitled[node]:
            return False
        if node == below:
            return True
        node = tree.parent[node]


@compiled
def gives_way(tree: Tree, leaf: int, asks: int, other: int) -> int:
    """GPU-seconds that a funded run of `other` must add to its leaf's first timestep at least for
    a funded job of `leaf` that `asks` so many to stop it; turns.py has the rule."""
    if leaf == other:
        return NEVER
    a, b = apart(tree, leaf, other)
    if _stays(tree, b, a):
        return NEVER
    if inside(tree, leaf, a, asks):
        return ALWAYS
    room, node = NEVER, other
    while True:
        room = min(room, tree.entitled[node] - tree.window[node] - tree.first[node])
        if node == b:
            return room + 1
        node = tree.parent[node]
