"""The fleet as the planner sees it: which blocks exist, and where nodes and pools end.

Worked out once per problem and shared by every pass. There is one block size for every number of
GPUs that some job asks for, and one row of `outside` for every set of pools.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from .compiled.tables import Flags, Fleet, Rows, Words
from .crosscheck import drained_words
from .problem import Problem

ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
NONE = np.uint64(0)
Pools = tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Static geometry of a problem's grid."""

    gpus: int
    horizon: int
    fleet: Fleet
    size_index: dict[int, int]  # GPUs of a block -> row of fleet.wall
    pools_index: dict[Pools, int]  # acceptable pools -> row of fleet.outside
    drained: Words
    pool_of: tuple[str, ...]  # per GPU
    pool_gpus: dict[str, int]  # by name
    domain: Rows  # per GPU: the place of its pool in pool_gpus
    healthy: tuple[int, ...]  # GPUs that are not drained, per timestep

    @property
    def within(self) -> int:
        """A word with one bit per timestep of the horizon."""
        return (1 << self.horizon) - 1

    def outside(self, pools: Pools) -> Words:
        """Per GPU: all ones where it is in none of the pools."""
        return self.fleet.outside[self.pools_index[pools]]

    def wall(self, size: int) -> Words:
        """Per GPU: all ones where no block of the size may start."""
        return self.fleet.wall[self.size_index[size]]


def starts_of(nodes: Iterable[tuple[int, str]], size: int, pools: Pools) -> Rows:
    """First GPUs of all legal blocks of a size in some pools (of any, where none are named).

    `nodes` are GPUs and pool of each, in the order of the grid.
    """
    still = _geometry(tuple(nodes), 1, (size,), (pools,))
    return np.flatnonzero((still.wall(size) | still.outside(pools)) == NONE)


def lay_out(problem: Problem) -> Layout:
    """The geometry for every size and every set of pools that the problem's jobs ask for."""
    sizes = sorted(set(problem.columns.gpus.tolist())) or [1]
    sets = ((), *sorted(problem.pool_sets - {()}))
    nodes = tuple((node.gpus, node.pool) for node in problem.nodes)
    still = _geometry(nodes, problem.horizon, tuple(sizes), sets)
    if not problem.drains:
        return still
    drained = np.array(drained_words(problem), dtype=np.uint64)
    return replace(still, drained=drained, healthy=_healthy(drained, problem.horizon))


@lru_cache(maxsize=16)  # a fleet is planned again and again; nobody writes to its arrays
def _geometry(
    nodes: tuple[tuple[int, str], ...],
    horizon: int,
    sizes: tuple[int, ...],
    sets: tuple[Pools, ...],
) -> Layout:
    """The layout of (GPUs, pool) per node without drains."""
    counts = np.array([gpus for gpus, _ in nodes], dtype=np.int64)
    firsts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    node_of = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    pools = [pool for _, pool in nodes]
    turns = np.array([0] + [int(a != b) for a, b in pairwise(pools)])
    stretch = np.cumsum(turns)[node_of]  # consecutive nodes of one pool
    gpus = len(node_of)
    starts = np.zeros(gpus, dtype=np.bool_)
    starts[firsts[:-1]] = True
    ends = np.zeros(gpus, dtype=np.bool_)
    ends[firsts[1:] - 1] = True
    names = sorted(set(pools))
    pool_of = tuple(pools[n] for n in node_of.tolist())
    fleet = Fleet(
        horizon=horizon,
        sizes=np.array(sizes, dtype=np.int64),
        wall=np.stack([_wall(size, node_of, stretch, starts, ends) for size in sizes]),
        node_of=node_of,
        node_first=firsts,
        starts_node=starts,
        ends_node=ends,
        outside=_outside(sets, pool_of),
    )
    return Layout(
        gpus=gpus,
        horizon=horizon,
        fleet=fleet,
        size_index={size: k for k, size in enumerate(sizes)},
        pools_index={pools: p for p, pools in enumerate(sets)},
        drained=np.zeros(gpus, dtype=np.uint64),
        pool_of=pool_of,
        pool_gpus={pool: pool_of.count(pool) for pool in names},
        domain=np.array([names.index(pool) for pool in pools], np.int64)[node_of],
        healthy=(gpus,) * horizon,
    )


def _wall(size: int, node_of: Rows, stretch: Rows, starts: Flags, ends: Flags) -> Words:
    wall = np.full(len(node_of), ALL)
    count = len(node_of) - size + 1
    if count > 0:
        last = slice(size - 1, None)
        legal = node_of[:count] == node_of[last]
        legal |= starts[:count] & ends[last] & (stretch[:count] == stretch[last])
        wall[:count][legal] = NONE
    return wall


def _outside(sets: Iterable[Pools], pool_of: Pools) -> Words:
    """A legal block lies in one pool, so its first GPU says which."""
    rows = [
        np.zeros(len(pool_of), dtype=np.uint64)
        if not pools
        else np.where([pool in pools for pool in pool_of], NONE, ALL)
        for pools in sets
    ]
    return np.stack(rows)


def _healthy(drained: Words, horizon: int) -> tuple[int, ...]:
    shifts = np.arange(horizon, dtype=np.uint64)
    gone = (drained[:, None] >> shifts) & np.uint64(1)
    return tuple(len(drained) - count for count in gone.sum(axis=0).tolist())
