"""A fitted correction as bytes, and back: arrays and JSON, nothing that runs when it is read."""

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from .correction import Correction, Errors, Fitted, Local, Model
from .describing import Standard
from .robust import Robust
from .trees import Trees

FORMAT = 1
Arrays = dict[str, npt.NDArray[Any]]


class Unreadable(ValueError):
    """These bytes hold no correction that this code can read."""


def pack(correction: Correction) -> bytes:
    """Return a correction as a compressed .npz: `read` gives an equal one."""
    told: dict[str, Any] = {
        "format": FORMAT,
        "rows": correction.rows,
        "seen": [sorted(one) for one in correction.seen],
        "ways": sorted(correction.errors),
        "model": None,
    }
    arrays: Arrays = {}
    for way, errors in correction.errors.items():
        arrays |= {f"{way} features": errors.features, f"{way} errors": errors.errors}
    if correction.model is not None:
        told["model"] = _pack_model(correction.model, arrays)
    arrays["told"] = np.frombuffer(json.dumps(told).encode(), dtype=np.uint8)
    kept = io.BytesIO()
    np.savez_compressed(kept, allow_pickle=False, **cast(Any, arrays))
    return kept.getvalue()


def unpack(data: bytes) -> Correction:
    """Read what `pack` wrote; raises Unreadable."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as kept:
            arrays = {name: kept[name] for name in kept.files}
        told = json.loads(arrays["told"].tobytes())
        if told["format"] != FORMAT:
            raise Unreadable(f"Format {told['format']} isn't {FORMAT}.")
        errors = {
            way: Errors(arrays[f"{way} features"], arrays[f"{way} errors"]) for way in told["ways"]
        }
        model = None if told["model"] is None else _unpack_model(told["model"], arrays)
        return Correction(told["rows"], model, errors, tuple(map(frozenset, told["seen"])))
    except (KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile, ValueError) as error:
        raise Unreadable(f"These bytes hold no correction: {error}") from error


def _pack_model(model: Model, arrays: Arrays) -> dict[str, Any]:
    standard, local, trees = model.standard, model.local, model.fitted.trees
    for name in ("middle", "spread", "low", "high"):
        arrays[f"standard {name}"] = getattr(standard, name)
    for name in ("features", "same", "rest"):
        arrays[f"local {name}"] = getattr(local, name)
    for k, line in enumerate(model.fitted.lines):
        arrays[f"line {k} slopes"] = line.slopes
        for j, offsets in enumerate(line.offsets):
            arrays[f"line {k} offsets {j}"] = offsets
    if trees is not None:
        for name in ("questions", "limits", "leaves"):
            arrays[f"trees {name}"] = getattr(trees, name)
    return {
        "known": [sorted(known, key=known.__getitem__) for known in model.known],
        "lines": [[line.intercept, len(line.offsets)] for line in model.fitted.lines],
        "trees": None if trees is None else trees.base,
    }


def _unpack_model(told: Mapping[str, Any], arrays: Arrays) -> Model:
    lines = tuple(
        Robust(
            intercept,
            arrays[f"line {k} slopes"],
            tuple(arrays[f"line {k} offsets {j}"] for j in range(offsets)),
        )
        for k, (intercept, offsets) in enumerate(told["lines"])
    )
    trees = None
    if told["trees"] is not None:
        parts = (arrays[f"trees {name}"] for name in ("questions", "limits", "leaves"))
        trees = Trees(told["trees"], *parts)
    return Model(
        Standard(*(arrays[f"standard {name}"] for name in ("middle", "spread", "low", "high"))),
        tuple({label: k for k, label in enumerate(known)} for known in told["known"]),
        Fitted(lines, trees),
        Local(*(arrays[f"local {name}"] for name in ("features", "same", "rest"))),
    )
