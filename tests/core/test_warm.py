"""Compiled ahead: after `warm`, no problem of any shape makes numba compile anything."""

import hashlib
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from allocator.core import compiled, warm
from allocator.core.plan import Result
from allocator.core.solve import solve
from allocator.core.validate import CannotCompile
from config.launcher import environment
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


def test_what_has_no_wrapper_is_called_by_compiled_code_alone() -> None:
    """From Python such a call would end the process."""
    inner = set()
    for info in pkgutil.iter_modules(compiled.__path__):
        module: ModuleType = importlib.import_module(f"{compiled.__name__}.{info.name}")
        for name, function in vars(module).items():
            if getattr(function, "targetoptions", {}).get("no_cpython_wrapper"):
                inner.add(f"{info.name}.{name}")
    assert len(inner) > 30
    modules = "|".join(sorted({one.split(".")[0] for one in inner} | {"compiled"}))
    files = [f for top in ("allocator", "tests", "benchmarks") for f in (ROOT / top).rglob("*.py")]
    for file in (f for f in files if f.parent != compiled.HERE):
        text = file.read_text()
        if "compiled" not in text:  # it has words of its own that look the same
            continue
        for name in sorted({one.split(".")[1] for one in inner}):
            assert not re.search(rf"\b({modules})\.{name}\b", text), f"{file}: {name}"
            assert not re.search(rf"compiled\.\w+ import .*\b{name}\b", text), f"{file}: {name}"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Compiled code somewhere else, of three files, one of them a stranger's."""
    monkeypatch.setattr(compiled, "FOLDER", tmp_path)
    for name in ("a.nbi", "below/b.nbc", "note.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_what_is_damaged_on_disk_is_thrown_away_and_made_anew(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def damaged(*args: object, **options: object) -> Result:
        if (folder / "a.nbi").exists():
            raise EOFError("Ran out of input")
        return solve(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(warm, "solve", damaged)
    assert not warm.is_ready()
    warm.warm()
    assert not warm.is_ready(), "what was loaded before the fault is not on disk any more"
    warm.warm()
    assert warm.is_ready()
    assert sorted(file.name for file in folder.rglob("*.*")) == ["note.txt"]


def test_what_cannot_be_compiled_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise OSError("no space left\nand a long story")

    monkeypatch.setattr(warm, "solve", broken)
    with pytest.raises(CannotCompile, match="OSError: no space left") as caught:
        warm.warm()
    assert "\n" not in str(caught.value)
    assert not warm.is_ready()


def test_another_folder_is_never_taken_silently(tmp_path: Path) -> None:
    """numba would turn to one in the user's home that is not named for the sources."""
    (tmp_path / "file").touch()
    code = (
        "from allocator.core.warm import CannotCompile, warm\n"
        "try: warm()\n"
        "except CannotCompile as error: print(error)"
    )
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "file")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert "set NUMBA_CACHE_DIR to a folder that can be written to" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1


def test_the_launcher_looks_for_compiled_code_where_it_is_kept() -> None:
    sources = b"".join(file.read_bytes() for file in sorted(environment.COMPILED.glob("*.py")))
    assert compiled.FOLDER.name == hashlib.sha256(sources).hexdigest()[:16]
    assert compiled.HERE == environment.COMPILED


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


def test_of_older_versions_only_the_last_used_stays(tmp_path: Path, monkeypatch: Any) -> None:
    """Beside what is no version's folder, which is nobody's to remove."""
    names = ["a" * 16, "b" * 16, "0" * 16]
    for age, name in enumerate(names):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
        os.utime(tmp_path / name / "lock", (1000 - age, 1000 - age))
    ours, others = tmp_path / ("f" * 16), [tmp_path / "unlocked", tmp_path / ("c" * 16)]
    for folder in (ours, *others):
        folder.mkdir()
    monkeypatch.setattr(compiled, "FOLDER", ours)
    monkeypatch.setattr(warm, "_plan_all", lambda: None)
    warm.warm()
    left = {one.name for one in tmp_path.iterdir()}
    assert left == {ours.name, "a" * 16, *(one.name for one in others)}
