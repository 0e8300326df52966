"""Features as they are given, checked before anything is computed: nonsense gets one sentence."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from numbers import Real
from types import UnionType
from typing import Any, TypeVar, get_args

from .hardware import near

MOST_GPUS = 65_536
# A count may be written as people say it: 7B parameters, 2M tokens. T is 10¹².
SUFFIXES = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}  # powers of ten
NUMBER = re.compile(r"\s*([+-]?[\d_.]+)(?:[eE]([+-]?\d+)|\s*([KMBTkmbt]?))\s*")
WORDS = {"yes": True, "true": True, "no": False, "false": False}
PER_LAYER = 12.0  # parameters of a dense transformer's layer, in h²: 4 of attention, 8 beside it
WIDTH_OF = 128.0  # its h for each of its layers

Spec = TypeVar("Spec")


class SpecError(ValueError):
    """A job that can't be estimated; one sentence says what to change."""


def within(name: str, value: Any, least: float, most: float, *, whole: bool = False) -> None:
    """Refuse what is no number, not in the limits, or not whole where it must be."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SpecError(f"{name} must be a number, not {str(value)[:40]!r}.")
    number = float(value)
    if not least <= number <= most:  # NaN isn't either
        raise SpecError(f"{name} must be between {least:g} and {most:g}, not {number:g}.")
    if whole and number != int(number):
        raise SpecError(f"{name} must be a whole number, not {number:g}.")


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise SpecError(near(name, str(value), known))


def read(kind: type[Spec], given: Mapping[str, Any]) -> Spec:
    """A spec of features that came as JSON or from a form; counts may be words such as "7B"."""
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise SpecError(near("feature", str(name), known))
    told = {name: value for name, value in given.items() if value not in (None, "")}
    for name, field in known.items():
        if field.default is MISSING and name not in told:
            raise SpecError(f"Say the {name}: it must be given.")
    return kind(**{name: _value(name, known[name].type, value) for name, value in told.items()})


def _value(name: str, kind: Any, value: Any) -> Any:
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if str in kinds:
        if not isinstance(value, str):
            raise SpecError(f"{name} must be a word, not {str(value)[:40]!r}.")
        return value
    if bool in kinds:
        found = WORDS.get(value.lower()) if isinstance(value, str) else value
        if not isinstance(found, bool):
            raise SpecError(f"{name} must be yes or no, not {str(value)[:40]!r}.")
        return found
    number = _number(value) if isinstance(value, str) else value
    whole = int in kinds and isinstance(number, float) and number.is_integer()
    return int(number) if whole else number


def _number(text: str) -> float | str:
    """The number that a text says; the text itself, to be refused, where it says none."""
    if found := NUMBER.fullmatch(text):
        try:
            return float(f"{found[1]}e{found[2] or SUFFIXES[found[3].upper()]}")
        except ValueError:
            pass
    return text


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
