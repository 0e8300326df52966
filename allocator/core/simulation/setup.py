"""What a simulation is of: a fleet, a tree of budgets, and the contract's settings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ..events import NOTHING, Events
from ..fairshare import ShareNode
from ..problem import FULL_SHARE, MAX_GPUS, BudgetNode, Node
from ..validate import ProblemError, shown

HOUR_S = 3600
NODES = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]?)")
MOST_GPUS_A_NODE = 62
ROOT = "trace"


@dataclass(frozen=True)
class Setup:
    """Everything but the jobs. Seconds; the defaults are the product's.

    ``unlimited``: every budget can pay for whatever it asks; else each is granted its entitlement
    of the simulated span at its start. ``spread`` is the σ of the log-normal error with which
    durations are declared, drawn with ``seed``; 0: they are known exactly. ``iterations`` are the
    improving passes of each plan. ``refunds``: a run that a node's failure ends is given back what
    it was charged.
    """

    nodes: tuple[Node, ...]
    tree: tuple[BudgetNode, ...]
    seconds: int
    unlimited: bool = False
    spread: float = 0.5
    seed: int = 0
    iterations: int | None = 0
    timestep_minutes: int = 30
    horizon: int = 48
    window_s: int = 7 * 24 * HOUR_S
    preempted_percent: int = 5
    preempted_again_s: int = 2 * HOUR_S
    default_minimum_s: int = 2 * HOUR_S
    longest_minimum_s: int = 8 * HOUR_S
    offered_first: int = 4
    offered_short: int = 2
    events: Events = NOTHING
    refunds: bool = True

    @property
    def step_s(self) -> int:
        return 60 * self.timestep_minutes

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


@dataclass(frozen=True)
class Budgets:
    """The tree with its arithmetic. Nodes are numbered in the order in which they are given."""

    nodes: tuple[BudgetNode, ...]
    number: Mapping[str, int] = field(init=False)
    above: tuple[tuple[int, ...], ...] = field(init=False)  # a node and all above it
    part: tuple[Fraction, ...] = field(init=False)  # effective shares
    leaves: tuple[int, ...] = field(init=False)
    programs: tuple[int, ...] = field(init=False)  # right below the root, or the roots

    def __post_init__(self) -> None:
        number = {node.path: n for n, node in enumerate(self.nodes)}
        parent = [None if node.parent is None else number[node.parent] for node in self.nodes]
        roots = [n for n, above in enumerate(parent) if above is None]
        above = tuple(_upwards(n, parent) for n in range(len(parent)))
        part = tuple(_part(self.nodes, line, alone=len(roots) == 1) for line in above)
        inner = set(parent)
        below = [n for n, up in enumerate(parent) if up in roots]
        put = object.__setattr__
        put(self, "number", number)
        put(self, "above", above)
        put(self, "part", part)
        put(self, "leaves", tuple(n for n in range(len(parent)) if n not in inner))
        put(self, "programs", tuple(below if len(roots) == 1 and below else roots))

    def entitled(self, node: int, gpu_seconds: int) -> int:
        """Its effective share of so many GPU-seconds, rounded down."""
        part = self.part[node]
        return part.numerator * gpu_seconds // part.denominator


def nodes_of(text: str) -> tuple[Node, ...]:
    """Read ``56x8``: nodes × GPUs. Raises `ProblemError`."""
    match = NODES.fullmatch(text.strip())
    if match is None or int(match[2]) > MOST_GPUS_A_NODE:
        raise ProblemError(
            f"--nodes {text!r}: give NODESxGPUS as in 56x8, with 1 to {MOST_GPUS_A_NODE} GPUs a "
            "node."
        )
    count, gpus = int(match[1]), int(match[2])
    if count * gpus > MAX_GPUS:
        raise ProblemError(
            f"--nodes {text!r}: that is {count * gpus:,} GPUs, and at most {MAX_GPUS:,} go: give "
            "fewer nodes."
        )
    return tuple(Node(f"n{n + 1:04}", gpus) for n in range(count))


def equal_tree(groups: Iterable[str]) -> tuple[BudgetNode, ...]:
    """One organisation whose projects are the groups, with equal shares."""
    names = sorted(set(groups))
    root = ROOT
    while root in names:
        root += "+"
    shares = _thousandths([Fraction(1)] * len(names))
    leaves = (BudgetNode(name, root, share, 0) for name, share in zip(names, shares, strict=True))
    return (BudgetNode(root, None, FULL_SHARE, 0), *leaves)


def tree_of(nodes: Sequence[ShareNode], groups: Iterable[str]) -> tuple[BudgetNode, ...]:
    """A tree file's nodes as budgets; each group must be a leaf of it. Raises `ProblemError`."""
    children: dict[str | None, list[ShareNode]] = {}
    names = {node.name for node in nodes}
    for node in nodes:
        if isinstance(node.shares, str):
            raise ProblemError(f"node {node.name!r}: shares must be a number to simulate with.")
        if node.parent is not None and node.parent not in names:
            raise ProblemError(f"node {node.name!r}: there is no node {node.parent!r}.")
        children.setdefault(node.parent, []).append(node)
    lost = sorted(set(groups) - {node.name for node in nodes if node.name not in children})
    if lost:
        raise ProblemError(
            f"the trace's group {shown(lost[0])} is no leaf of the tree: give it a node there."
        )
    share = {
        node.name: part
        for siblings in children.values()
        for node, part in zip(siblings, _shares(siblings), strict=True)
    }
    found = tuple(BudgetNode(node.name, node.parent, share[node.name], 0) for node in nodes)
    _no_circle(found)
    return found


def _shares(siblings: Sequence[ShareNode]) -> list[int]:
    return _thousandths([Fraction(node.shares) for node in siblings])


def _thousandths(shares: Sequence[Fraction]) -> list[int]:
    """Each one's part of the sum in thousandths of a percent, 100 % together unless all are 0."""
    total = sum(shares)
    if not total:
        return [0] * len(shares)
    exact = [share * FULL_SHARE / total for share in shares]
    found = [int(part) for part in exact]
    by_rest = sorted(range(len(found)), key=lambda n: (found[n] - exact[n], n))
    for n in by_rest[: FULL_SHARE - sum(found)]:
        found[n] += 1
    return found


def _no_circle(nodes: Sequence[BudgetNode]) -> None:
    parent = {node.path: node.parent for node in nodes}
    for path in parent:
        seen, at = {path}, parent[path]
        while at is not None:
            if at in seen:
                raise ProblemError(f"node {path!r} hangs on no root; break the circle of parents.")
            seen.add(at)
            at = parent[at]


def _upwards(node: int, parent: Sequence[int | None]) -> tuple[int, ...]:
    line: list[int] = []
    at: int | None = node
    while at is not None:
        line.append(at)
        at = parent[at]
    return tuple(line)


def _part(nodes: Sequence[BudgetNode], line: tuple[int, ...], *, alone: bool) -> Fraction:
    """The product of the shares up to the root; a single root has everything."""
    product = Fraction(1)
    for n in line:
        if nodes[n].parent is not None or not alone:
            product *= Fraction(nodes[n].shares, FULL_SHARE)
    return product
