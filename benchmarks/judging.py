"""Is a plan legal? The core's own check, and the independent judge where it is at hand."""

import importlib.util
import json
import math
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from allocator.core.check import check, check_guard, objective
from allocator.core.plan import Plan
from allocator.core.problem import Problem

SHARED = Path(__file__).parents[2] / "shared"


def broken(problem: Problem, plan: Plan, construction: Plan | None = None) -> list[str]:
    """A sentence per broken rule; none if the plan is legal.

    With a construction, the fairness guard is checked too.
    """
    found = [violation.text for violation in check(problem, plan)]
    if construction is not None:
        found += [violation.text for violation in check_guard(problem, plan, construction)]
    return found + _judged(problem, plan)


def judge_at_hand() -> bool:
    return _judge() is not None


def _judged(problem: Problem, plan: Plan) -> list[str]:
    """What the judge says of the plan as a file, and of its value."""
    judge = _judge()
    if judge is None:
        return []
    with tempfile.TemporaryDirectory() as directory:
        scenario = _written(Path(directory, "scenario.json"), problem.to_dict())
        answer = {"scenario": problem.name, "grid": plan.grid()}
        verdict = judge.judge(scenario, _written(Path(directory, "plan.json"), answer))
    found = [f"judge: {text}" for text in verdict["violations"]]
    if not found and not math.isclose(
        verdict["objective"], objective(problem, plan), rel_tol=1e-9, abs_tol=1e-6
    ):
        found.append(f"judge: worth {verdict['objective']}, not {objective(problem, plan)}")
    return found


def _written(file: Path, data: dict[str, Any]) -> Any:
    file.write_text(json.dumps(data))
    return json.loads(file.read_text())


@cache
def _judge() -> ModuleType | None:
    file = SHARED / "judge" / "check_plan.py"
    spec = importlib.util.spec_from_file_location("check_plan", file)
    if not file.exists() or spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
