"""What a job computes, as people write it: an object of named features, read or refused.

Numbers may be text with a unit, as in "7B" or "1.5T"; everything else that isn't what a feature
takes is refused in one sentence that names it.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any, TypeVar

from .checking import SpecError
from .hardware import near
from .training import FEATURES, WHOLE, TrainingSpec

Spec = TypeVar("Spec")

UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
TEXTS = {
    *("gpu", "variant", "precision", "optimizer", "checkpointing", "attention", "sharding"),
    *("framework", "model", "project"),
}
SWITCHES = {"master_weights", "quantized_base"}
ALSO = {"gpu_type": "gpu", "technique": "variant"}
LONGEST_TEXT = 100
MODEL_SIZE = 'Say how large the model is: "parameters", such as "7B".'
WITH_UNIT = re.compile(r"(\d[\d.,_]{0,79})((?:[eE][+-]?\d{1,4})?) ?([kKmMbBgGtT]?)", re.ASCII)
GROUPED = re.compile(r"[1-9]\d{0,2}(?:(?P<mark>[.,_])\d{3})(?:(?P=mark)\d{3})*", re.ASCII)
DECIMAL = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def training_spec(
    work: Mapping[str, Any], *, gpu: str = "", gpus: int | None = None, project: str = ""
) -> TrainingSpec:
    """Read a training job; raises SpecError or UnknownName, each one sentence.

    `gpu` is the type it is to run on, unless `work` names one; `gpus` how many, if that is known.
    """
    takes = {"known": FEATURES, "texts": TEXTS, "switches": SWITCHES, "whole": WHOLE}
    must = {"parameters": MODEL_SIZE}
    about = {"gpu": gpu, "gpus": gpus, "project": project}
    return read(TrainingSpec, work, takes=takes, must=must, about=about)


def read(
    make: Callable[..., Spec],
    work: Mapping[str, Any],
    *,
    takes: Mapping[str, Collection[str]],
    must: Mapping[str, str],
    about: Mapping[str, Any],
) -> Spec:
    """Make a spec of any kind: `takes` as `features_of` has it, `must` with what to say if absent.

    `about` is what the job itself says of GPUs and project; what the work names wins or clashes.
    """
    given = features_of(work, **takes)
    for name, sentence in must.items():
        if name not in given:
            raise SpecError(sentence)
    gpus = about["gpus"]
    if gpus is not None and given.get("gpus", gpus) != gpus:
        raise SpecError(f"gpus is {given['gpus']:g} here and {gpus} in the job: leave it out here.")
    asked = {**about, **given}
    if not asked["gpu"]:
        raise SpecError('Say on which type of GPU: "gpu", such as "H100".')
    return make(**asked)


def features_of(
    work: Mapping[str, Any],
    *,
    known: Collection[str],
    texts: Collection[str],
    switches: Collection[str],
    whole: Collection[str],
) -> dict[str, Any]:
    """Return features by their names, numbers as numbers; null is "not given"."""
    given: dict[str, Any] = {}
    for written, value in work.items():
        name = ALSO.get(written, written)
        if name not in known:
            raise SpecError(near("feature", written[:LONGEST_TEXT], known))
        if name in given:
            raise SpecError(f"{name} is given twice, once as {written}: leave one of them out.")
        if value is None:
            continue
        given[name] = _value(name, value, texts=texts, switches=switches, whole=whole)
    return given


def _value(
    name: str,
    value: Any,
    *,
    texts: Collection[str],
    switches: Collection[str],
    whole: Collection[str],
) -> str | bool | int | float:
    if name in texts:
        if not isinstance(value, str) or len(value) > LONGEST_TEXT:
            raise SpecError(f"{name} must be text of at most {LONGEST_TEXT} characters.")
        return value
    if name in switches:
        if not isinstance(value, bool):
            raise SpecError(f"{name} must be true or false, not {str(value)[:40]!r}.")
        return value
    found = number(name, value, whole=name in whole)
    return int(found) if name in whole and found.is_integer() else found


def number(name: str, value: Any, *, whole: bool = False) -> float:
    """Return a number, or text such as "7B", "1.5T", "1,5T", "2,048", as a number.

    What may be read in two ways is refused, unless the number must be `whole`.
    """
    if isinstance(value, str):
        parts = WITH_UNIT.fullmatch(value.strip())
        digits = _plain(name, parts[1], whole and not parts[3]) if parts else ""
        if not parts or not DECIMAL.fullmatch(digits):
            raise SpecError(f'{name} must be a number, such as 7e9 or "7B", not {value[:40]!r}.')
        return float(Decimal(digits + parts[2]) * UNITS[parts[3].lower()])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{name} must be a number, not {str(value)[:40]!r}.")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise SpecError(f"{name} must be a finite number.")
    return found


def _plain(name: str, digits: str, whole: bool) -> str:
    """Digits with a point before the decimals: 1.234,5 and 1,234.5 and 1234,5 are the same."""
    if "_" not in digits and digits.count(",") == 0 and digits.count(".") < 2:
        return digits
    last = max(digits.rfind("."), digits.rfind(","))
    head, mark, tail = digits[:last], digits[last : last + 1], digits[last + 1 :]
    if GROUPED.fullmatch(digits):
        plain = re.sub("[.,_]", "", digits)
        if digits.count(",") == 1 and not whole:
            raise SpecError(
                f"{name} can be read in two ways, {digits!r}: write {plain} or {head}.{tail}."
            )
        return plain
    if mark and mark not in head and (head.isdigit() or GROUPED.fullmatch(head)):
        return f"{re.sub('[.,_]', '', head)}.{tail}"
    return digits
