"""Features as they are given, checked before anything is computed: nonsense gets one sentence."""

from dataclasses import dataclass
from numbers import Real
from typing import Any

from .hardware import near

MOST_GPUS = 65_536
PER_LAYER = 12.0  # parameters of a dense transformer's layer, in h²: 4 of attention, 8 beside it
WIDTH_OF = 128.0  # its h for each of its layers


class SpecError(ValueError):
    """A job that can't be estimated; one sentence says what to change."""


def within(name: str, value: Any, least: float, most: float, *, whole: bool = False) -> None:
    """Refuse what is no number, not in the limits, or not whole where it must be."""
    if type(value) not in (int, float) and (isinstance(value, bool) or not isinstance(value, Real)):
        raise SpecError(f"{name} must be a number, not {str(value)[:40]!r}.")
    number = float(value)
    if not least <= number <= most:  # NaN isn't either
        raise SpecError(f"{name} must be between {least:g} and {most:g}, not {number:g}.")
    if whole and number != int(number):
        raise SpecError(f"{name} must be a whole number, not {number:g}.")


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise SpecError(near(name, str(value), known))


@dataclass(frozen=True, slots=True)
class Shape:
    """Layers and hidden size of a dense transformer, given or continuous figures."""

    layers: float
    hidden: float
    derived: bool

    @classmethod
    def of(cls, parameters: float, layers: float | None, hidden: float | None) -> "Shape":
        """12·L·h² parameters and h near 128·L (Kaplan et al. 2020; GPT-3's table).

        Not rounded, so that a larger model never looks smaller in any of its terms.
        """
        if layers and hidden:
            return cls(layers, hidden, False)
        if hidden:
            return cls(max(1.0, parameters / (PER_LAYER * hidden**2)), hidden, True)
        found = layers or max(1.0, (parameters / (PER_LAYER * WIDTH_OF**2)) ** (1 / 3))
        return cls(found, max(64.0, (parameters / (PER_LAYER * found)) ** 0.5), True)


@dataclass(frozen=True, slots=True)
class Parts:
    """Bytes on the fullest GPU, by what they hold."""

    parts: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        return sum(size for _, size in self.parts)
