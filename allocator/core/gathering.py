"""Services gather in one corner of the grid, so that blocks elsewhere become whole again.

A service that grew while the corner was taken holds GPUs here and there, and each of them keeps a
block from every job that needs the whole of it, for as long as the service lives. So it leaves them
as its swap cap allows, for GPUs of the corner, from when those are free; inside the corner nothing
moves any more.
"""

from dataclasses import replace

import numpy as np

from .compiled.tables import Flags, Rows, Words
from .layout import Layout
from .realtime import Roster, stack

Move = tuple[int, int]  # position in Roster.base, timestep from which it is another GPU's


def place(roster: Roster, layout: Layout, busy: Words) -> Words | None:
    """All services as words [services, GPUs], gathered where that leaves more blocks whole.

    None where some GPU is in the way of their stacks. `busy` words are not free.
    """
    still = stack(roster, layout, busy)
    corner = corner_of(roster, layout)
    moves = [] if corner is None else _moves(roster, layout, busy, corner)
    if corner is None or not moves:
        return still
    moved = stack(_split(roster, moves), layout, busy)
    if still is None or moved is None:
        return still if moved is None else moved
    return moved if _cells(moved, ~corner) < _cells(still, ~corner) else still


def corner_of(roster: Roster, layout: Layout) -> Flags | None:
    """Per GPU: whether services would use it if they and drains were alone; None: nobody moves."""
    if not len(roster.base):
        return None
    empty = roster.base[:0], roster.base_needed[:0], roster.base_service[:0]
    alone = replace(_all_open(roster), base=empty[0], base_needed=empty[1], base_service=empty[2])
    serving = stack(alone, layout, layout.drained)
    return None if serving is None else np.any(serving != 0, axis=0)


def _moves(roster: Roster, layout: Layout, busy: Words, corner: Flags) -> list[Move]:
    """Which held GPUs outside the corner are left when, lowest first."""
    outside = np.flatnonzero(~corner[roster.base] & (roster.base_needed != 0))
    free = np.flatnonzero(corner & ~np.isin(np.arange(layout.gpus), roster.base))
    if not len(outside) or not len(free):
        return []
    rows = sorted((int(busy[gpu]).bit_length(), -gpu) for gpu in free.tolist())
    spare = [_spare(roster, s) for s in range(len(roster.services))]
    moves = []
    for position in sorted(outside.tolist(), key=lambda position: roster.base[position]):
        s = int(roster.base_service[position])
        closed = layout.fleet.outside[roster.pools[s]]
        open_rows = [row for row in rows if not closed[-row[1]]]
        if not open_rows:
            continue
        needed = int(roster.base_needed[position])
        for t in range(open_rows[0][0], layout.horizon):
            if spare[s][t] > 0 and needed >> t & 1:
                spare[s][t] -= 1
                rows.remove(open_rows[0])
                moves.append((position, t))
                break
    return moves


def _spare(roster: Roster, s: int) -> list[int]:
    """Per timestep: what the swap cap allows beyond the service's own growing and shrinking."""
    service, counts = roster.services[s], roster.counts[s]
    before = (len(service.held or ()), *counts)
    return [service.cap_into(t) - abs(now - before[t]) for t, now in enumerate(counts)]


def _split(roster: Roster, moves: list[Move]) -> Roster:
    """The roster with positions that are open from some timestep on."""
    base_needed = roster.base_needed.copy()
    needed, owner = [roster.needed], [roster.owner]
    for position, t in moves:
        before = base_needed[position] & np.uint64((1 << t) - 1)
        needed.append(np.array([base_needed[position] ^ before], np.uint64))
        owner.append(roster.base_service[position : position + 1])
        base_needed[position] = before
    words, owners = _by_length(np.concatenate(needed), np.concatenate(owner))
    return replace(roster, base_needed=base_needed, needed=words, owner=owners)


def _all_open(roster: Roster) -> Roster:
    words = np.concatenate([roster.base_needed, roster.needed])
    owner = np.concatenate([roster.base_service, roster.owner])
    words, owner = _by_length(words, owner)
    return replace(roster, needed=words, owner=owner)


def _by_length(words: Words, owner: Rows) -> tuple[Words, Rows]:
    """Those needed longest first; what nobody needs is left out."""
    order = np.argsort(-np.bitwise_count(words).astype(np.int64), kind="stable")
    order = order[words[order] != 0]
    return words[order], owner[order]


def _cells(serving: Words, where: Flags) -> int:
    return int(np.bitwise_count(serving[:, where]).sum())
