"""Compiled ahead: after `warm`, no problem of any shape makes numba compile anything."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

from allocator.core import compiled, warm
from allocator.core.solve import solve
from allocator.core.validate import CannotCompile
from tests.core.problems import random_problem

ROOT = Path(__file__).parents[2]


def versions() -> dict[str, int]:
    """How many versions of each compiled function there are in this process."""
    found = {}
    for info in pkgutil.iter_modules(compiled.__path__):
        module: ModuleType = importlib.import_module(f"{compiled.__name__}.{info.name}")
        for name, function in vars(module).items():
            if hasattr(function, "py_func") and function.py_func.__module__ == module.__name__:
                found[f"{info.name}.{name}"] = len(function.signatures)
    return found


def test_after_warming_up_nothing_is_compiled_any_more() -> None:
    code = (
        "from tests.core.test_warm import *\n"
        "warm.warm(); before = versions(); assert len(before) > 40\n"
        "[len(solve(random_problem(Random(s)), iterations=12).reasons) for s in range(150)]\n"
        "print({name: (before[name], now) for name, now in versions().items()"
        " if now != before[name]})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "{}\n", done.stderr


def test_what_cannot_be_compiled_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("no locator available\nand a long story")

    monkeypatch.setattr(warm, "solve", broken)
    with pytest.raises(CannotCompile, match="RuntimeError: no locator available") as caught:
        warm.warm()
    assert "\n" not in str(caught.value)


def test_without_numba_the_sentence_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from allocator.core.warm import CannotCompile, warm\n"
        "try: warm()\n"
        "except CannotCompile as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "install the packages of requirements/base.txt" in done.stdout, done.stderr


def test_random_problems_reach_what_is_compiled() -> None:
    """Else the first test would prove nothing."""
    kinds = [random_problem(Random(seed)) for seed in range(150)]
    assert any(made.realtime and made.budgets for made in kinds)
    assert any(solve(made, iterations=2).preemptions for made in kinds)
