"""The fleet as the planner sees it: which blocks exist, and where nodes and pools end.

Computed once per problem and shared by every pass. A *level* is a block size that some job asks
for; `wall[size][i]` is all ones where no block of that size may start at GPU i, else zero.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .crosscheck import drained_words
from .problem import BatchJob, Problem

Words = NDArray[np.uint64]
Rows = NDArray[np.int64]

ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
NONE = np.uint64(0)


@dataclass(frozen=True)
class Layout:
    """Static geometry of a problem's grid."""

    gpus: int
    horizon: int
    sizes: tuple[int, ...]
    wall: dict[int, Words]
    node_of: Rows
    node_first: Rows
    starts_node: NDArray[np.bool_]  # the GPU is the first of its node
    ends_node: NDArray[np.bool_]
    drained: Words
    pool_of: tuple[str, ...]  # per GPU
    pool_gpus: dict[str, int]
    outside: dict[tuple[tuple[str, ...], int], Words]  # (pools, size): all ones where not allowed

    @property
    def within(self) -> int:
        """A word with one bit per timestep of the horizon."""
        return (1 << self.horizon) - 1


def lay_out(problem: Problem) -> Layout:
    """The geometry for every size and every set of pools that the problem's jobs ask for."""
    counts = np.array([node.gpus for node in problem.nodes], dtype=np.int64)
    firsts = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
    node_of = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    pools = [node.pool for node in problem.nodes]
    turns = np.array([0] + [int(a != b) for a, b in pairwise(pools)])
    stretch = np.cumsum(turns)[node_of]  # consecutive nodes of one pool
    starts = np.zeros(problem.gpus, dtype=np.bool_)
    starts[firsts] = True
    ends = np.zeros(problem.gpus, dtype=np.bool_)
    ends[firsts + counts - 1] = True
    sizes = tuple(sorted({job.gpus for job in problem.batch}))
    wall = {size: _wall(size, node_of, stretch, starts, ends) for size in sizes}
    pool_of = tuple(pools[n] for n in node_of.tolist())
    drained = np.zeros(problem.gpus, dtype=np.uint64)
    if problem.drains:
        drained = np.array(drained_words(problem), dtype=np.uint64)
    return Layout(
        gpus=problem.gpus,
        horizon=problem.horizon,
        sizes=sizes,
        wall=wall,
        node_of=node_of,
        node_first=firsts,
        starts_node=starts,
        ends_node=ends,
        drained=drained,
        pool_of=pool_of,
        pool_gpus={pool: pool_of.count(pool) for pool in sorted(set(pools))},
        outside=_outside(problem.batch, pool_of),
    )


def _wall(
    size: int,
    node_of: Rows,
    stretch: Rows,
    starts: NDArray[np.bool_],
    ends: NDArray[np.bool_],
) -> Words:
    count = len(node_of) - size + 1
    if count <= 0:
        return np.zeros(0, dtype=np.uint64)
    last = slice(size - 1, None)
    legal = node_of[:count] == node_of[last]
    legal |= starts[:count] & ends[last] & (stretch[:count] == stretch[last])
    return np.where(legal, NONE, ALL)


def _outside(
    jobs: tuple[BatchJob, ...], pool_of: tuple[str, ...]
) -> dict[tuple[tuple[str, ...], int], Words]:
    """A legal block lies in one pool, so its first GPU says which."""
    words: dict[tuple[tuple[str, ...], int], Words] = {}
    for job in jobs:
        key = (job.pools, job.gpus)
        if job.pools and key not in words:
            count = max(len(pool_of) - job.gpus + 1, 0)
            allowed = np.fromiter((pool in job.pools for pool in pool_of[:count]), np.bool_, count)
            words[key] = np.where(allowed, NONE, ALL)
    return words
