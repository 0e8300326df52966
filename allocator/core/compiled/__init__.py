"""The planner's inner loops, compiled by numba: the only implementation of each of them.

Everything here works on arrays and knows nothing of jobs' names or budgets' paths. What a function
compiles to is kept on disk, so only the first use on a machine pays for it (`warm.py`): at set-up
or when a worker starts, never in a request. The folder is named for the sources, because numba
notices a change in a function's own file but not in the files it calls.
"""

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from ..validate import CannotCompile

HERE = Path(__file__).parent
ALL: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}
INNER = ALL | {"no_cpython_wrapper": True}
F = TypeVar("F", bound=Callable[..., object])


def number(value: int) -> int:
    """A constant; for a plain one numba compiles its own version of each function it goes to."""
    return cast(int, np.int64(value))


try:
    import numba
except ImportError as error:
    raise CannotCompile(
        f"The planner needs numba, which can't be loaded here ({error}): install the packages of "
        "requirements/base.txt on a 64-bit Linux with a CPU that numba supports."
    ) from error


def _cache() -> Path:
    """The folder for compiled code: in $NUMBA_CACHE_DIR, else beside the sources.

    Where it can't be written to numba would turn to a folder of the user's that isn't named for
    the sources, so that is refused.
    """
    sources = b"".join(file.read_bytes() for file in sorted(HERE.glob("*.py")))
    base = getattr(numba.config, "CACHE_DIR", "") or str(HERE / "__pycache__")
    folder = Path(base) / hashlib.sha256(sources).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CannotCompile(
            f"The planner's compiled code can't be kept in {folder} ({error.strerror}): set "
            "NUMBA_CACHE_DIR to a folder that can be written to."
        ) from error
    return folder


FOLDER = _cache()
setattr(numba.config, "CACHE_DIR", str(FOLDER))  # noqa: B010  numba's own are made at run time


def compiled(function: F) -> F:
    """Compile at first use, keep it on disk; the GIL is free while it runs."""
    return cast(F, numba.njit(**ALL)(function))


def inner(function: F) -> F:
    """The same for what only compiled code calls: without the wrapper that Python would need.

    Unwrapping a hundred arrays takes longer to compile than most of these functions themselves.
    """
    return cast(F, numba.njit(**INNER)(function))
