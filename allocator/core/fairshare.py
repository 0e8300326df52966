"""Fair Tree: who is most under-served, in exact integers.

Level fair share of a budget = (its part of its siblings' shares) / (its part of their usage). The
tree is walked from the root in falling level fair share; leaves are ranked in the order in which
they are met, and a leaf's factor is its rank / number of leaves. Share 0 comes last, usage 0 first;
siblings that tie are merged and their children compared together; ties share the best rank.

Source: Slurm's Fair Tree (PriorityFlags=FAIR_TREE, "fair_tree.html"). The peer compares floating
point numbers, so it can split an exact tie; this compares fractions of integers, so it never does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, Final, cast

from .fairtree import NOWHERE, ROOT, leaves_before
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


class Factors(Mapping[str, Fraction]):
    """Fair Tree factors in (0, 1] by leaf, exact: rank from the end / number of leaves.

    Only those that are asked for are divided out.
    """

    def __init__(self, before: dict[str, int]) -> None:
        self._before = before  # leaves that are ahead of it, by leaf

    def __getitem__(self, leaf: str) -> Fraction:
        return Fraction(len(self._before) - self._before[leaf], len(self._before))

    def __iter__(self) -> Iterator[str]:
        return iter(self._before)

    def __len__(self) -> int:
        return len(self._before)


def factors(nodes: Sequence[ShareNode]) -> Factors:
    """Fair Tree factor of every leaf."""
    names = [node.name for node in nodes]
    parents = [node.parent for node in nodes]
    shares, usage = [node.shares for node in nodes], [node.usage for node in nodes]
    return _ranked(names, parents, shares, usage)


def budget_factors(budgets: Iterable[BudgetNode]) -> Factors:
    """Fair Tree factors of a problem's budgets, by path of the leaf."""
    budgets = list(budgets)
    paths, parents = [b.path for b in budgets], [b.parent for b in budgets]
    shares, usage = [b.shares for b in budgets], [b.usage for b in budgets]
    return _ranked(paths, parents, shares, usage)


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


def _ranked(
    names: Sequence[str],
    parents: Sequence[str | None],
    shares: Sequence[Fraction | int | str],
    usage: Sequence[Fraction | int],
) -> Factors:
    above = _numbers(names, parents, {name: i for i, name in enumerate(names)})
    order = _parents_first(names, above)
    whole, flat = _whole_shares(shares)
    inner = set(above) - {ROOT}
    home = _homes(above, order, flat & inner)
    used = [0 if i in inner else one for i, one in enumerate(_whole(usage))]
    leaves, before = leaves_before(home, whole, used, sorted(flat - inner))
    return Factors({names[i]: n for i, n in zip(leaves.tolist(), before.tolist(), strict=True)})


def _homes(above: Sequence[int], order: Sequence[int], flat: set[int]) -> list[int]:
    """Return where each competes: children of "parent" accounts one level up."""
    home = list(above)
    for i in order if flat else ():
        if above[i] in flat:
            home[i] = home[above[i]]
    return [NOWHERE if i in flat else one for i, one in enumerate(home)] if flat else home


def _numbers(
    names: Sequence[str], parents: Sequence[str | None], number: Mapping[str, int]
) -> list[int]:
    """Return the parent's number of each node."""
    try:
        return [ROOT if parent is None else number[parent] for parent in parents]
    except KeyError as missing:
        name = names[parents.index(missing.args[0])]
        raise ProblemError(f"node {name!r}: there is no node {missing.args[0]!r}.") from None


def _parents_first(names: Sequence[str], above: Sequence[int]) -> Sequence[int]:
    if all(parent < i for i, parent in enumerate(above)):
        return range(len(above))
    children: dict[int, list[int]] = {}
    for i, parent in enumerate(above):
        children.setdefault(parent, []).append(i)
    order = list(children.get(ROOT, ()))
    for i in order:  # grows while it is read
        order.extend(children.get(i, ()))
    if len(order) < len(names):
        lost = min(set(names) - {names[i] for i in order})
        raise ProblemError(f"node {lost!r} hangs on no root; break the circle of parents.")
    return order


def _whole_shares(shares: Sequence[Fraction | int | str]) -> tuple[list[int], set[int]]:
    """Return shares as integers of one scale, and the numbers of those that are "parent"."""
    if str not in set(map(type, shares)):
        return _whole(cast(Sequence[Fraction | int], shares)), set()
    flat = {i for i, one in enumerate(shares) if isinstance(one, str)}
    return _whole([0 if isinstance(one, str) else one for one in shares]), flat


def _whole(values: Sequence[Fraction | int]) -> list[int]:
    """Return numbers as integers of one scale."""
    if set(map(type, values)) <= {int}:
        return list(cast(Sequence[int], values))
    scale = lcm(*(Fraction(one).denominator for one in values))
    return [int(one * scale) for one in values]
