"""Bit words: a GPU's horizon is one 64-bit word, bit t for timestep t.

All words are uint64 and all counts int64; numba turns a mix of the two into floats, so every
shift is by a uint64.
"""

import numpy as np

from . import inner

ZERO = np.uint64(0)
ONE = np.uint64(1)
ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_FIVES, _THREES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_NIBBLES, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@inner
def below(t: int) -> np.uint64:
    """Bits [0, t) set; t is cut at 64."""
    if t >= 64:
        return ALL
    return (ONE << np.uint64(max(t, 0))) - ONE


@inner
def span(start: int, end: int) -> np.uint64:
    """Bits [start, end) set."""
    return below(end) & ~below(start)


@inner
def count(word: np.uint64) -> int:
    """How many bits are set."""
    word = word - ((word >> ONE) & _FIVES)
    word = (word & _THREES) + ((word >> np.uint64(2)) & _THREES)
    word = (word + (word >> np.uint64(4))) & _NIBBLES
    return int(np.int64((word * _BYTES) >> np.uint64(56)))


@inner
def lowest(word: np.uint64) -> int:
    """Index of the lowest set bit, 64 if there is none."""
    return count(~word & (word - ONE))


@inner
def shifts(
    length: int,
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64, np.uint64]:
    """Six shifts; a word ORed with itself shifted by each in turn is smeared over `length` bits.

    Always six, so that a loop over words has no branch and is turned into vector instructions.
    """
    left = min(length, 64) - 1  # bits that are not covered yet; each shift may double what is
    a = min(left, 1)
    b = min(left - a, 2)
    c = min(left - a - b, 4)
    d = min(left - a - b - c, 8)
    e = min(left - a - b - c - d, 16)
    f = left - a - b - c - d - e
    return np.uint64(a), np.uint64(b), np.uint64(c), np.uint64(d), np.uint64(e), np.uint64(f)
