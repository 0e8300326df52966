"""Bit words: a GPU's horizon is one 64-bit word, and placing a job is a few shifts and ORs.

`Busy` keeps, for every block size asked for, the OR of the block's rows (bit t set = some GPU of
the block is busy at timestep t). Free starts of length d come from ORing d shifted copies, doubled
each time, so a look-up costs log2(d) operations on one word per block.
"""

import numpy as np

from .layout import Layout, Rows, Words


def span(start: int, end: int) -> int:
    """The word with bits [start, end) set; end is cut at 64."""
    end = min(end, 64)
    return (1 << end) - (1 << start) if end > start else 0


def lowest(word: int) -> int:
    """Index of the lowest set bit; the word must not be 0."""
    return (word & -word).bit_length() - 1


def smear(words: Words, length: int) -> Words:
    """Bit t of the answer is set where any of bits [t, t + length) is; past bit 63 is free."""
    wide = 1
    length = min(length, 64)
    while wide < length:
        step = min(wide, length - wide)
        words = words | (words >> np.uint64(step))
        wide += step
    return words


class Busy:
    """The grid's busy cells as words per GPU and per block."""

    def __init__(self, layout: Layout, rows: Words, sizes: tuple[int, ...] | None = None) -> None:
        self.layout = layout
        self.rows = rows.copy()
        self.sizes = layout.sizes if sizes is None else sizes
        self.blocks: dict[int, Words] = {}
        self._build()

    def _build(self) -> None:
        words, wide = self.rows, 1
        for size in self.sizes:
            while wide < size:
                words = words[:-wide] | words[wide:]
                wide *= 2
            self.blocks[size] = words | self.layout.wall[size]

    def copy(self) -> "Busy":
        """An independent copy, cheaper than building anew."""
        twin = Busy.__new__(Busy)
        twin.layout, twin.sizes = self.layout, self.sizes
        twin.rows = self.rows.copy()
        twin.blocks = {size: words.copy() for size, words in self.blocks.items()}
        return twin

    def replace(self, rows: Words) -> None:
        """Start again from other rows: the only way to free cells."""
        self.rows = rows.copy()
        self._build()

    def hold(self, first: int, size: int, word: int) -> None:
        """Mark the word's timesteps busy on GPUs [first, first + size)."""
        mask = np.uint64(word)
        last = first + size
        self.rows[first:last] |= mask
        for width, words in self.blocks.items():
            words[max(first - width + 1, 0) : last] |= mask

    def free_starts(self, size: int, length: int, allowed: int, pools: tuple[str, ...]) -> Words:
        """Per block: the timesteps among `allowed` at which `length` free timesteps begin."""
        busy = smear(self.blocks[size], length)
        if pools:
            busy = busy | self.layout.outside[pools, size]
        return ~busy & np.uint64(allowed)

    def earliest(
        self, size: int, length: int, allowed: int, pools: tuple[str, ...]
    ) -> tuple[int, int] | None:
        """(timestep, first GPU) of the earliest free start among `allowed`, on the best block."""
        if not allowed:
            return None
        free = self.free_starts(size, length, allowed, pools)
        found = union(free)
        if not found:
            return None
        t = lowest(found)
        word = span(t, min(t + length, self.layout.horizon))
        return t, self.best_block(starts_at(free, t), size, word)

    def best_block(self, at: Rows, size: int, word: int) -> int:
        """The block, among first GPUs `at`, that leaves the free pool most usable.

        Most contact with busy cells and node borders on both sides, then the fullest node, then the
        lowest GPU.
        """
        if len(at) == 1:
            return int(at[0])
        layout, mask = self.layout, np.uint64(word)
        used = np.bitwise_count(self.rows & mask).astype(np.int64)
        total = word.bit_count()
        last = at + (size - 1)
        left = np.where(layout.starts_node[at], total, used[at - 1])
        right = np.where(layout.ends_node[last], total, used[(last + 1) % layout.gpus])
        fill = np.add.reduceat(used, layout.node_first)[layout.node_of[at]]
        score = (left + right) * (64 * layout.gpus + 1) + fill
        return int(at[np.argmax(score)])


def union(words: Words) -> int:
    """All words ORed, as a Python integer."""
    return int(np.bitwise_or.reduce(words)) if len(words) else 0


def starts_at(words: Words, t: int) -> Rows:
    """Indices of the words whose bit t is set."""
    return np.flatnonzero(words & np.uint64(1 << t)).astype(np.int64)
