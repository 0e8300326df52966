"""Fair Tree: who is most under-served, in exact integers.

Level fair share of a budget = (its part of its siblings' shares) / (its part of their usage). The
tree is walked from the root in falling level fair share; leaves are ranked in the order in which
they are met, and a leaf's factor is its rank / number of leaves. Share 0 comes last, usage 0 first;
siblings that tie are merged and their children compared together; ties share the best rank.

Source: Slurm's Fair Tree (PriorityFlags=FAIR_TREE, "fair_tree.html"). The peer compares floating
point numbers, so it can split an exact tie; this compares fractions of integers, so it never does.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from .problem import BudgetNode
from .validate import ProblemError, no_duplicates, number, shown, text, whole

PARENT: Final = "parent"  # shares: competes at its parent's level


@dataclass(frozen=True, slots=True)
class ShareNode:
    """A node of a tree: `shares` a number (None at a root = 1) or "parent"; usage at leaves."""

    name: str
    parent: str | None
    shares: Fraction | int | str
    usage: Fraction | int


@dataclass(slots=True)
class _Member:
    """A node while it is walked; its level fair share is `over / under`, None = infinite."""

    name: str
    shares: int = 0
    usage: int = 0
    first: bool = False  # a leaf with shares "parent": first inside its account
    children: list["_Member"] = field(default_factory=list)
    over: int = 0
    under: int = 1
    key: float = 0.0

    @property
    def is_leaf(self) -> bool:
        return not self.children


def factors(nodes: Sequence[ShareNode]) -> dict[str, Fraction]:
    """Fair Tree factor in (0, 1] of every leaf, exact."""
    roots = _build(nodes)
    ranked: list[list[str]] = []  # groups of leaves that tie, best first
    _walk(roots, ranked, tied_to=None)
    leaves = sum(map(len, ranked))
    answer: dict[str, Fraction] = {}
    rank = leaves
    for group in ranked:
        answer.update((name, Fraction(rank, leaves)) for name in group)
        rank -= len(group)
    return answer


def budget_factors(budgets: Iterable[BudgetNode]) -> dict[str, Fraction]:
    """Fair Tree factors of a problem's budgets, by path of the leaf."""
    return factors([ShareNode(b.path, b.parent, b.shares, b.usage) for b in budgets])


def read_tree(data: object) -> list[ShareNode]:
    """The tree file's nodes; raises `ProblemError` with one sentence."""
    if not isinstance(data, Mapping) or set(data) != {"tree"}:
        raise ProblemError('the file must be an object with one field, "tree".')
    rows = data["tree"]
    if not isinstance(rows, list) or not rows:
        raise ProblemError("tree must be a list of at least one node.")
    nodes = [_read_node(row) for row in rows]
    no_duplicates([node.name for node in nodes], "node")
    return nodes


def _read_node(row: object) -> ShareNode:
    if not isinstance(row, Mapping):
        raise ProblemError(f"a node of the tree must be an object, not {shown(row)}.")
    for key in row:
        if key not in ("name", "parent", "shares", "usage", "type", "account"):
            raise ProblemError(f"a node of the tree: {shown(key)} is not a field; remove it.")
    for key in ("name", "parent", "shares", "usage"):
        if key not in row:
            raise ProblemError(f"a node of the tree: the field {key!r} is missing.")
    what = f"node {text(row['name'], 'the name of a node')!r}"
    parent = row["parent"]
    if parent is not None:
        text(parent, f"{what}: parent")
    return ShareNode(row["name"], parent, _read_shares(row["shares"], parent, what),
                     _exact(row["usage"], f"{what}: usage"))  # fmt: skip


def _read_shares(shares: Any, parent: str | None, what: str) -> Fraction | int | str:
    if shares is None and parent is None:
        return 1  # a root has no siblings to compare with
    if shares == PARENT:
        if parent is None:
            raise ProblemError(f'{what}: a root has no parent, so shares can\'t be "parent".')
        return PARENT
    if isinstance(shares, str):
        raise ProblemError(f'{what}: shares must be a number or "parent", not {shown(shares)}.')
    return _exact(shares, f"{what}: shares")


def _exact(value: Any, what: str) -> Fraction | int:
    if isinstance(value, float):
        return Fraction(str(number(value, what, 0)))
    return whole(value, what, 0)


def _build(nodes: Sequence[ShareNode]) -> list[_Member]:
    """Linked members with integer shares and summed usage; "parent" accounts are flattened."""
    order = _parents_first(nodes)
    scale_s = _scale(node.shares for node in nodes)
    scale_u = _scale(node.usage for node in nodes)
    members = {node.name: _Member(node.name) for node in nodes}
    inner = {node.parent for node in nodes}
    home: dict[str | None, list[_Member]] = {None: []}  # where a node's children compete
    for node in order:
        member, level = members[node.name], home[node.parent]
        flattened = node.shares == PARENT and node.name in inner
        home[node.name] = level if flattened else member.children
        if flattened:
            continue
        member.first = node.shares == PARENT
        member.shares = 0 if isinstance(node.shares, str) else int(node.shares * scale_s)
        level.append(member)
    for node in reversed(order):
        member = members[node.name]
        if node.name not in inner:
            member.usage = int(node.usage * scale_u)
        else:
            member.usage = sum(child.usage for child in member.children)
    return home[None]


def _parents_first(nodes: Sequence[ShareNode]) -> list[ShareNode]:
    children: dict[str | None, list[ShareNode]] = {}
    names = {node.name for node in nodes}
    for node in nodes:
        if node.parent is not None and node.parent not in names:
            raise ProblemError(f"node {node.name!r}: there is no node {node.parent!r}.")
        children.setdefault(node.parent, []).append(node)
    order = list(children.get(None, ()))
    for node in order:  # grows while it is read
        order.extend(children.get(node.name, ()))
    if len(order) < len(nodes):
        lost = sorted(names - {node.name for node in order})[0]
        raise ProblemError(f"node {lost!r} hangs on no root; break the circle of parents.")
    return order


def _scale(values: Iterable[Fraction | int | str]) -> int:
    scale = 1
    for value in values:
        if isinstance(value, Fraction):
            scale = scale * value.denominator // Fraction(scale, value.denominator).denominator
    return scale


def _walk(level: list[_Member], ranked: list[list[str]], tied_to: list[str] | None) -> None:
    """Rank the leaves of one level, best first; `tied_to` is the group its best child joins."""
    _level_fair_shares(level)
    stack = [(iter(_tied_groups(level)), tied_to)]
    while stack:
        groups, joined = stack[-1]
        group = next(groups, None)
        if group is None:
            stack.pop()
            continue
        stack[-1] = (groups, None)
        leaves = sorted(member.name for member in group if member.is_leaf)
        if leaves:
            if joined is None:
                joined = []
                ranked.append(joined)
            joined.extend(leaves)
        merged = []
        for member in group:
            if member.children:
                _level_fair_shares(member.children)
                merged.extend(member.children)
        if merged:
            stack.append((iter(_tied_groups(merged)), joined))


def _level_fair_shares(siblings: list[_Member]) -> None:
    """Set over / under = (shares / Σ shares) / (usage / Σ usage); sorts by a rounded key."""
    all_shares = sum(member.shares for member in siblings)
    all_usage = sum(member.usage for member in siblings)
    for member in siblings:
        if member.first or (member.shares and not member.usage):
            member.over, member.under, member.key = 1, 0, float("inf")
        elif not member.shares:
            member.over, member.under, member.key = 0, 1, 0.0
        else:
            member.over = member.shares * all_usage
            member.under = member.usage * all_shares
            member.key = _rounded(member.over, member.under)


def _rounded(over: int, under: int) -> float:
    """The quotient as a float; past the largest there is, that one."""
    try:
        return over / under
    except OverflowError:
        return sys.float_info.max


def _tied_groups(level: list[_Member]) -> list[list[_Member]]:
    """Members in falling level fair share, exact ties together.

    Integer division is correctly rounded, so the rounded key never contradicts the exact order;
    only members with equal keys need exact fractions.
    """
    near: dict[float, list[_Member]] = {}
    for member in level:
        near.setdefault(member.key, []).append(member)
    groups: list[list[_Member]] = []
    for key in sorted(near, reverse=True):
        members = near[key]
        if all(_equal(members[0], other) for other in members):
            groups.append(members)
            continue
        exact: dict[Fraction, list[_Member]] = {}
        for member in members:
            exact.setdefault(Fraction(member.over, member.under), []).append(member)
        groups.extend(exact[share] for share in sorted(exact, reverse=True))
    return groups


def _equal(a: _Member, b: _Member) -> bool:
    return a.over * b.under == b.over * a.under
