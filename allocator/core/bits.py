"""Bit words: a GPU's horizon is one 64-bit word, and placing a job is a few shifts and ORs.

`Busy` keeps, for every block size asked for, the OR of the block's rows (bit t set = some GPU of
the block is busy at timestep t). Free starts of length d come from ORing d shifted copies, doubled
each time, so a look-up costs log2(d) operations on one word per block. The loops are compiled
(compiled/blocks.py); single words are Python integers here.
"""

import numpy as np

from .compiled import blocks
from .compiled.tables import Grid, Rows, Words
from .layout import Layout, Pools


def span(start: int, end: int) -> int:
    """The word with bits [start, end) set; end is cut at 64."""
    end = min(end, 64)
    return (1 << end) - (1 << start) if end > start else 0


def spans(starts: Rows, ends: Rows) -> Words:
    """The words of many spans; each starts at 0 or later, and none is longer than 64."""
    return below(ends) & ~below(starts)


def below(ends: Rows) -> Words:
    """Words with the bits below an end set, which is at least 0."""
    found: Words = _BELOW[np.minimum(ends, 64)]
    return found


def lowest(word: int) -> int:
    """Index of the lowest set bit; the word must not be 0."""
    return (word & -word).bit_length() - 1


_BELOW = np.array([span(0, end) for end in range(65)], np.uint64)


class Busy:
    """The grid's busy cells as words per GPU and per block."""

    def __init__(self, layout: Layout, rows: Words) -> None:
        self.layout = layout
        room = np.empty((len(layout.fleet.sizes), layout.gpus), np.uint64)
        self.grid = Grid(rows.copy(), room, np.empty(layout.gpus, np.uint64))
        blocks.build(layout.fleet, self.grid)

    @property
    def rows(self) -> Words:
        """Per GPU: the word of the timesteps in which it is busy. Read only: `hold` writes."""
        return self.grid.rows

    def block_words(self, size: int) -> Words:
        """Per block of the size, by first GPU: when one of its GPUs is busy."""
        return self.grid.blocks[self.layout.size_index[size]]

    @classmethod
    def room(cls, layout: Layout) -> "Busy":
        """Room that something compiled fills in."""
        blank = cls.__new__(cls)
        blank.layout = layout
        gpus, sizes = layout.gpus, len(layout.fleet.sizes)
        words = np.empty((sizes + 2, gpus), np.uint64)
        blank.grid = Grid(words[0], words[2:], words[1])
        return blank

    def copy(self) -> "Busy":
        """An independent copy, cheaper than building anew."""
        twin = Busy.__new__(Busy)
        twin.layout = self.layout
        twin.grid = Grid(*(words.copy() for words in self.grid))
        return twin

    def replace(self, rows: Words) -> None:
        """Start again from other rows: the only way to free cells."""
        self.grid.rows[:] = rows
        blocks.build(self.layout.fleet, self.grid)

    def hold(self, first: int, size: int, word: int) -> None:
        """Mark the word's timesteps busy on GPUs [first, first + size)."""
        blocks.hold(self.layout.fleet, self.grid, first, size, np.uint64(word))

    def free_starts(self, size: int, length: int, allowed: int, pools: Pools) -> Words:
        """Per block: the timesteps among `allowed` at which `length` free timesteps begin."""
        layout = self.layout
        free = np.zeros(layout.gpus, np.uint64)
        k, p = layout.size_index[size], layout.pools_index[pools]
        blocks.free_starts(layout.fleet, self.grid, k, length, np.uint64(allowed), p, free)
        return free

    def earliest(
        self, size: int, length: int, allowed: int, pools: Pools
    ) -> tuple[int, int] | None:
        """(timestep, first GPU) of the earliest free start among `allowed`, on the best block."""
        layout = self.layout
        k, p = layout.size_index[size], layout.pools_index[pools]
        t, first = blocks.earliest(layout.fleet, self.grid, k, length, np.uint64(allowed), p)
        return None if t < 0 else (t, first)

    def best_block(self, at: Rows, size: int, word: int) -> int:
        """The block, among first GPUs `at`, that leaves the free pool most usable.

        Most contact with busy cells and node borders on both sides, then the fullest node, then the
        lowest GPU.
        """
        free = np.zeros(self.layout.gpus, np.uint64)
        free[at] = 1
        k = self.layout.size_index[size]
        return blocks.best_block(self.layout.fleet, self.grid, k, free, 0, np.uint64(word))


def union(words: Words) -> int:
    """All words ORed, as a Python integer."""
    return int(np.bitwise_or.reduce(words)) if len(words) else 0


def starts_at(words: Words, t: int) -> Rows:
    """Indices of the words whose bit t is set."""
    return np.flatnonzero(words & np.uint64(1 << t)).astype(np.int64)
