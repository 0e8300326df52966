"""What a job computes, as people write it: an object of named features, read or refused.

Numbers may be text with a unit, as in "7B" or "1.5T"; everything else that isn't what a feature
takes is refused in one sentence that names it.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from .hardware import near
from .training import FEATURES, WHOLE, SpecError, TrainingSpec

UNITS = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
TEXTS = {
    *("gpu", "variant", "precision", "optimizer", "checkpointing", "attention", "sharding"),
    *("framework", "model", "project"),
}
SWITCHES = {"master_weights", "quantized_base"}
ALSO = {"gpu_type": "gpu", "technique": "variant"}
LONGEST_TEXT = 100
WITH_UNIT = re.compile(r"(\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,4})?) ?([kKmMbBgGtT]?)", re.ASCII)


def training_spec(
    work: Mapping[str, Any], *, gpu: str = "", gpus: int | None = None, project: str = ""
) -> TrainingSpec:
    """Read a training job; raises SpecError or UnknownName, each one sentence.

    `gpu` is the type it is to run on, unless `work` names one; `gpus` how many, if that is known.
    """
    given = features_of(work, known=FEATURES, texts=TEXTS, switches=SWITCHES, whole=WHOLE)
    if "parameters" not in given:
        raise SpecError('Say how large the model is: "parameters", such as "7B".')
    if gpus is not None and given.get("gpus", gpus) != gpus:
        raise SpecError(f"gpus is {given['gpus']:g} here and {gpus} in the job: leave it out here.")
    asked: dict[str, Any] = {"gpu": gpu, "gpus": gpus, "project": project} | given
    if not asked["gpu"]:
        raise SpecError('Say on which type of GPU: "gpu", such as "H100".')
    return TrainingSpec(**asked)


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
            raise SpecError(near("feature", written, known))
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
    found = number(name, value)
    return int(found) if name in whole and found.is_integer() else found


def number(name: str, value: Any) -> float:
    """Return a number, or text such as "7B", "1.5T", "2,048", as a number."""
    if isinstance(value, str):
        plain = value.replace(",", "").replace("_", "").strip()
        parts = WITH_UNIT.fullmatch(plain)
        if not parts:
            raise SpecError(f'{name} must be a number, such as 7e9 or "7B", not {value[:40]!r}.')
        return float(parts[1]) * UNITS[parts[2].lower()]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{name} must be a number, not {str(value)[:40]!r}.")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise SpecError(f"{name} must be a finite number.")
    return found
