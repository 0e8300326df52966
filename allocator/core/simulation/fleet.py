"""Which GPUs are free, as the bits of one integer, and where a block may start.

The same blocks as the planner's: a power of two of contiguous GPUs inside a node, or whole
consecutive nodes.
"""

from collections.abc import Sequence

from ..problem import Node


class Fleet:
    """Bit g of a mask is GPU g; a mask of starts has the first GPU of each block."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.gpus = sum(node.gpus for node in nodes)
        self.whole = (1 << self.gpus) - 1
        self.free = self.whole
        self.node_bits: list[int] = []
        self.node_of: list[int] = []
        first = 0
        for node in nodes:
            self.node_bits.append(((1 << node.gpus) - 1) << first)
            self.node_of += [len(self.node_bits) - 1] * node.gpus
            first += node.gpus
        self._sizes = [(node.gpus, node.pool) for node in nodes]
        self._legal: dict[int, int] = {}

    def take(self, first: int, gpus: int) -> None:
        bits = block(first, gpus)
        assert self.free & bits == bits, "two runs on one GPU"
        self.free ^= bits

    def give_back(self, first: int, gpus: int) -> None:
        self.free |= block(first, gpus)

    def withdraw(self, bits: int) -> None:
        """No run may start on these any more: a service has them, or their node is down."""
        assert self.free & bits == bits, "two on one GPU"
        self.free ^= bits

    def restore(self, bits: int) -> None:
        """They are free again."""
        assert not self.free & bits, "free twice"
        self.free |= bits

    def starts(self, open_gpus: int, gpus: int) -> int:
        """First GPUs of the legal blocks of a size that lie in a mask."""
        found, wide = open_gpus, 1
        while wide < gpus and found:
            found &= found >> wide
            wide *= 2
        return found & self.legal(gpus)

    def legal(self, gpus: int) -> int:
        """First GPUs of all legal blocks of a size."""
        if gpus not in self._legal:
            self._legal[gpus] = self._all_legal(gpus)
        return self._legal[gpus]

    def fits(self, gpus: int) -> bool:
        """Whether the empty fleet has such a block at all."""
        return self.legal(gpus) != 0

    def best(self, starts: int, gpus: int, free: int) -> int:
        """Of the starts, the one in the node with fewest free GPUs, of equals the lowest."""
        best, least = -1, 1 << 30
        while starts:
            first = (starts & -starts).bit_length() - 1
            n = self.node_of[first]
            left = (self.node_bits[n] & free).bit_count()
            if left < least:
                best, least = first, left
                if left <= gpus:
                    break
            starts &= ~self.node_bits[n]
        return best

    def _all_legal(self, gpus: int) -> int:
        found, first = 0, 0
        for n, (size, _) in enumerate(self._sizes):
            if size >= gpus:
                found |= ((1 << (size - gpus + 1)) - 1) << first
            elif self._whole_nodes(n, gpus):
                found |= 1 << first
            first += size
        return found

    def _whole_nodes(self, n: int, gpus: int) -> bool:
        total, pool = 0, self._sizes[n][1]
        for size, its_pool in self._sizes[n:]:
            if total >= gpus or its_pool != pool:
                break
            total += size
        return total == gpus


def block(first: int, gpus: int) -> int:
    """The mask of GPUs [first, first + gpus)."""
    return ((1 << gpus) - 1) << first
