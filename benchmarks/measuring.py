"""Wall-clock times, the machine they were taken on, and fresh copies of a problem."""

import gc
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from allocator.core.problem import Problem

Answer = TypeVar("Answer")


def timed(call: Callable[..., Answer], *given: Any) -> tuple[Answer, float]:
    """The call's answer, and its seconds by a clock outside it.

    As in `timeit` no garbage is collected meanwhile: whose it would be is chance.
    """
    collecting = gc.isenabled()
    gc.disable()
    started = time.perf_counter()
    try:
        answer = call(*given)
        return answer, time.perf_counter() - started
    finally:
        if collecting:
            gc.enable()


def fresh(problem: Problem) -> Problem:
    """An equal problem that shares nothing with it, so that nothing kept with it is of use."""
    return Problem.from_dict(problem.to_dict())


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = info.read_text().splitlines() if info.exists() else []
    found = next((line.split(":", 1)[1] for line in names if line.startswith("model name")), "")
    return found.strip() or platform.processor() or sys.platform
