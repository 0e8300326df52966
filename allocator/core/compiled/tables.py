"""The arrays that compiled code works on, by name: G GPUs, K block sizes, P sets of pools."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


class Fleet(NamedTuple):
    """Static geometry. `wall[k, i]`: all ones where no block of size k may start at GPU i."""

    horizon: int
    sizes: Rows  # [K], rising
    wall: Words  # [K, G]
    node_of: Rows  # [G]
    node_first: Rows  # [nodes + 1]
    starts_node: Flags  # [G]: the GPU is the first of its node
    ends_node: Flags  # [G]
    outside: Words  # [P, G]: all ones where the GPU is in none of the pools; set 0 is any pool


class Items(NamedTuple):
    """What is placed: one row per waiting job, or rest of a run that may be stopped."""

    size: Rows  # index into Fleet.sizes
    gpus: Rows
    length: Rows
    allowed: Words  # timesteps at which it may start, whatever else is placed
    pools: Rows  # index into Fleet.outside
    value: Floats  # per GPU-timestep, before decay
    leaf: Rows
    funded: Flags
    earliest: Rows
    order: Rows  # place in the file
    rest: Flags  # what is left of a run that was stopped


class Grid(NamedTuple):
    """Busy cells per GPU and, ORed, per block; `scratch` is room for one search."""

    rows: Words  # [G]
    blocks: Words  # [K, G]
    scratch: Words  # [G]


class Services(NamedTuple):
    """Real-time services, in the order in which they are served; S of them.

    `counts[s, t]` is what the service holds at t. Held GPUs are a word of ones in `held`.
    """

    counts: Rows  # [S, H]
    cap: Rows  # [S]
    pools: Rows  # [S]: index into Fleet.outside
    starts: Flags  # [S]: whether what it holds now is known, so that the cap binds at timestep 0
    steady: Flags  # [S]: whether it keeps that in timestep 0
    held: Words  # [S, G]
    corner: Flags  # [G]: where services gather


class Search(NamedTuple):
    """What the search over orders is about: n places in the order, C classes of equal jobs.

    The order is one of classes: each place takes the oldest job of its class that has no place yet,
    so of two equal jobs the older never starts later.
    """

    kind: Rows  # [n]: class of each item
    members: Rows  # [n]: items by class, oldest first
    begins: Rows  # [C]: where a class begins in members
    funded: int  # the first so many places are for funded items
    worth: Floats  # [H + 1]: sum of decay^u over u < t
    floor: Rows  # [L, H]: what each leaf is owed in every prefix, in GPU-timesteps
    group: Rows  # [n]: row of floor for each item, -1: none
    slack: Rows  # [D, H]: cells of each pool that jobs may take when services move aside
    domain: Rows  # [G]: row of slack for each GPU
    moves: bool  # whether services may move aside
    hinted: int  # passes that try the hint first
    hint: Rows  # [n]: items in the order of their hinted starts
    hint_start: Rows  # [n], -1: none
    hint_first: Rows  # [n]


class Desk(NamedTuple):
    """Room for one pass, made once: compiled code makes no arrays of its own."""

    order: Rows  # [n]
    choice: Rows  # [n]
    start: Rows  # [n]
    first: Rows  # [n]
    used: Rows  # [C]
    tight: Words  # [D]
    slack: Rows  # [D, H]
    given: Rows  # [L, H]
    serving: Words  # [S, G]


class Room(NamedTuple):
    """Room for one service at a time to move aside."""

    busy: Words  # [G]: when others need the GPU
    deadline: Rows  # [G]: the first such timestep from now on
    have: Flags  # [G]
    due: Rows  # [65]: held GPUs by deadline


class State(NamedTuple):
    """Where the search is; changed in place, so that it can be stopped and go on."""

    random: Words  # [1]
    order: Rows  # [n]
    choice: Rows  # [n]: how each place chooses among blocks
    value: Floats  # [2]: of the order at hand, of the best plan
    start: Rows  # [n]: of the best plan, -1: not placed
    first: Rows  # [n]: first GPU in the best plan
    serving: Words  # [S, G]: in the best plan
    aside: Flags  # [1]: whether the best plan has its own `serving`
