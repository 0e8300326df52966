"""A problem refuses nonsense in one sentence, and its file format loses nothing."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from allocator.core import crosscheck
from allocator.core.problem import BatchJob, Drain, Node, Problem, ProblemError
from allocator.core.scenario import parse_problem
from tests.core.problems import job, problem, random_problem, run, service

SCENARIOS = Path(__file__).parents[3] / "shared" / "scenarios"

GOOD: dict[str, Any] = {
    "name": "good",
    "horizon": 4,
    "timestep_minutes": 30,
    "time_decay": 0.97,
    "shortfall_penalty": 8.0,
    "overrun": False,
    "nodes": [{"name": "n0", "gpus": 8, "pool": "a"}, {"name": "n1", "gpus": 8}],
    "jobs": [
        {"name": "j", "kind": "training", "priority": 3, "gpus": 2, "duration": 2, "arrival": 0},
        {"name": "r", "kind": "training", "priority": 3, "gpus": 4, "duration": 4, "arrival": 0,
         "running": {"first_gpu": 4, "remaining": 3, "protected": 1}},
        {"name": "s", "kind": "realtime", "priority": 3, "demand": [1, 2, 2, 1], "swap_cap": 1,
         "held": [0]},
    ],
    "drains": [{"node": "n1", "from": 1, "to": 3}],
}  # fmt: skip

BUDGETS: list[dict[str, Any]] = [
    {"path": "o", "parent": None, "shares": 100000, "usage": 0, "entitled": 0},
    {"path": "o/a", "parent": "o", "shares": 60000, "usage": 5, "entitled": 0},
    {"path": "o/b", "parent": "o", "shares": 40000, "usage": 5, "entitled": 0},
]

# (where to change, the bad value, what the sentence must speak of)
BAD: list[tuple[tuple[Any, ...], Any, str]] = [
    (("surprise",), 1, "'surprise' is not a field"),
    (("nodes", 0, "colour"), "red", "'colour' is not a field"),
    (("jobs", 0, "gpu"), 1, "'gpu' is not a field"),
    (("jobs", 1, "running", "end"), 1, "'end' is not a field"),
    (("drains", 0, "why"), "x", "'why' is not a field"),
    (("horizon",), 65, "at most 64, not 65"),
    (("horizon",), 0, "at least 1"),
    (("horizon",), True, "whole number, not true"),
    (("horizon",), 4.0, "whole number, not 4.0"),
    (("timestep_minutes",), 0, "at least 1"),
    (("time_decay",), 1.5, "between 0 and 1"),
    (("time_decay",), float("nan"), "finite"),
    (("shortfall_penalty",), float("inf"), "finite"),
    (("time_decay",), 10**400, "between 0 and 1, not 1000"),
    (("name",), "\ud800", "no half surrogate"),
    (("jobs", 0, "name"), "\udfff", "no half surrogate"),
    (("overrun",), 1, "true or false"),
    (("name",), "", "non-empty text"),
    (("family",), 3, "family must be a text"),
    (("nodes",), [], "at least one node"),
    (("nodes",), {}, "nodes must be a list"),
    (("nodes", 0, "gpus"), -8, "at least 1, not -8"),
    (("nodes", 0, "gpus"), 65_536, "at most 65536 GPUs together"),
    (("nodes", 1, "name"), "n0", "listed twice"),
    (("jobs", 0, "name"), "r", "listed twice"),
    (("jobs", 0, "name"), "j+", "must not end in '+'"),
    (("jobs", 0, "kind"), "magic", "kind must be one of"),
    (("jobs", 0, "gpus"), 3, "power of two, not 3"),
    (("jobs", 0, "gpus"), -2, "at least 1"),
    (("jobs", 0, "gpus"), 32, "at most the fleet's 16"),
    (("jobs", 0, "duration"), 0, "at least 1"),
    (("jobs", 0, "arrival"), -1, "at least 0"),
    (("jobs", 0, "priority"), True, "number, not true"),
    (("jobs", 0, "priority"), float("nan"), "finite"),
    (("jobs", 0, "priority"), "high", "must be a number"),
    (("jobs", 0, "pools"), ["z"], "no node is in pool 'z'"),
    (("jobs", 0, "pools"), "a", "list of texts"),
    (("jobs", 0, "funded"), "yes", "true or false"),
    (("jobs", 1, "running", "first_gpu"), 6, "neither inside a node nor whole nodes"),
    (("jobs", 1, "running", "first_gpu"), 0, "GPU 0 is held by"),
    (("jobs", 1, "running", "first_gpu"), 14, "no GPU 16"),
    (("jobs", 1, "running", "remaining"), 0, "at least 1"),
    (("jobs", 1, "running", "protected"), 4, "at most remaining"),
    (("jobs", 1, "running"), 4, "must be an object"),
    (("jobs", 2, "demand"), [1, 2, 3], "4 entries, one per timestep, not 3"),
    (("jobs", 2, "demand"), [1, 2, 17, 1], "at most the fleet's 16 GPUs, not 17"),
    (("jobs", 2, "demand"), [1, -2, 2, 1], "at least 0"),
    (("jobs", 2, "swap_cap"), -1, "at least 0"),
    (("jobs", 2, "held"), [0, 0], "each GPU once"),
    (("jobs", 2, "held"), [99], "no GPU 99"),
    (("jobs", 2, "held"), [0, 1, 2], "its demand there must be at least 2, not 1"),
    (("jobs", 2, "held"), None, "held must be a list"),
    (("jobs", 2, "steady"), 1, "true or false"),
    (("drains", 0, "node"), "n9", "no such node"),
    (("drains", 0, "to"), 1, "to must be after from"),
    (("drains",), [{"node": "n0", "from": 0, "to": 4}], "drained while it is protected"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"held": None}, "steady needs held"),
        (
            {"held": [0, 1]},
            "may shed 0 by timestep 0, so its demand there must be at least 2, not 1",
        ),
        ({"held": [8], "demand": [2, 2, 2, 2], "swap_cap": 0}, "fewer than are drained"),
    ],
)
def test_a_steady_service_must_be_able_to_keep_what_it_holds(changed: Any, says: str) -> None:
    scenario = copy.deepcopy(GOOD)
    scenario["jobs"][2] |= {"steady": True} | changed
    if changed["held"] is None:
        del scenario["jobs"][2]["held"]
    with pytest.raises(ProblemError, match=says):
        Problem.from_dict(scenario)


def test_a_steady_service_comes_back_from_its_file() -> None:
    scenario = copy.deepcopy(GOOD)
    scenario["jobs"][2]["steady"] = True
    made = Problem.from_dict(scenario)
    assert made.realtime[0].steady
    assert Problem.from_dict(made.to_dict()) == made


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    at: Any = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return data


@pytest.mark.parametrize(("path", "value", "says"), BAD)
def test_bad_input_gets_one_sentence(path: tuple[Any, ...], value: Any, says: str) -> None:
    with pytest.raises(ProblemError) as refused:
        Problem.from_dict(changed(path, value))
    sentence = str(refused.value)
    assert says in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("field", ["name", "horizon", "nodes", "jobs"])
def test_a_missing_field_is_named(field: str) -> None:
    data = {key: value for key, value in GOOD.items() if key != field}
    with pytest.raises(ProblemError, match=f"'{field}' is missing"):
        Problem.from_dict(data)


@pytest.mark.parametrize(
    ("row", "field", "value", "says"),
    [
        (1, "shares", 60001, "more than 100 %"),
        (1, "shares", -1, "at least 0"),
        (1, "usage", -1, "at least 0"),
        (1, "usage", 1.5, "whole number"),
        (1, "usage", 1 << 62, "all budgets together must be at most"),
        (2, "parent", "x", "no budget 'x'"),
        (2, "path", "o/a", "listed twice"),
        (0, "parent", "o/a", "its own ancestor"),
    ],
)
def test_bad_budgets_get_one_sentence(row: int, field: str, value: Any, says: str) -> None:
    budgets: list[dict[str, Any]] = copy.deepcopy(BUDGETS)
    budgets[row][field] = value
    data = GOOD | {"jobs": [], "budgets": budgets}
    with pytest.raises(ProblemError, match=says):
        Problem.from_dict(data)


@pytest.mark.parametrize(("budget", "says"), [("o", "no leaf"), (None, "no budget is named")])
def test_a_job_must_belong_to_a_leaf(budget: str | None, says: str) -> None:
    row = GOOD["jobs"][0] | ({} if budget is None else {"budget": budget})
    with pytest.raises(ProblemError, match=says):
        Problem.from_dict(GOOD | {"jobs": [row], "budgets": BUDGETS})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[]", "must be an object"),
        ('{"horizon": NaN}', "every number must be finite"),
        ('{"horizon": 3, "horizon": 4}', "given twice"),
        ("[" * 100_000, "nested too deeply"),
        (b"\xff\xfe\x00", "not valid JSON"),
        ('{"horizon": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
)
def test_unusable_text_gets_one_sentence(text: str | bytes, says: str) -> None:
    with pytest.raises(ProblemError) as refused:
        parse_problem(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_drain_that_the_swap_cap_cannot_leave_is_refused() -> None:
    with pytest.raises(ProblemError, match="start the drain later"):
        problem(
            service("s", [2, 2, 2, 2], held=(0, 1)),
            drains=(Drain("n0", 0, 1),),
        )


def test_protection_past_the_horizon_needs_overrun() -> None:
    long_run = run("r", 0, 2, remaining=9, protected=6)
    with pytest.raises(ProblemError, match="set overrun"):
        problem(long_run)
    assert problem(long_run, overrun=True).batch == (long_run,)


def test_the_file_format_loses_nothing_on_random_problems() -> None:
    for seed in range(200):
        made = random_problem(Random(seed))
        text = json.dumps(made.to_dict())
        assert parse_problem(text) == made


def test_the_shared_scenarios_read_and_write_back() -> None:
    files = sorted(SCENARIOS.glob("*-*.json"))
    if not files:
        pytest.skip("../shared/scenarios is not here")
    for file in files:
        data = json.loads(file.read_bytes())
        for node in data["nodes"]:
            node.setdefault("pool", "default")
        for row in data["jobs"]:
            if "budget" in row:
                row.setdefault("funded", True)
        written = Problem.from_dict(data).to_dict()
        assert written == {key: value for key, value in data.items() if value != []}


def test_problems_are_values() -> None:
    one, other = problem(job("a", 2)), problem(job("a", 2))
    assert one == other
    assert one.gpus == 8
    assert one.nodes == (Node("n0", 8),)
    with pytest.raises(AttributeError):
        one.horizon = 5  # type: ignore[misc]


def test_runs_looked_at_at_once_are_judged_as_one_by_one() -> None:
    """Runs shifted, in other pools, or drained: the quick look sees what the slow one says."""
    judged = {True: 0, False: 0}
    for seed in range(400):
        rng = Random(seed)
        made = _disturbed(rng, random_problem(rng))
        if made is None:
            continue
        try:
            crosscheck._present(made)
            legal = True
        except ProblemError:
            legal = False
        assert crosscheck._runs_can_stay(made) == legal, seed
        judged[legal] += 1
    assert min(judged.values()) > 40


def _disturbed(rng: Random, made: Problem) -> Problem | None:
    """The problem unchecked, with its runs somewhere else; None: it has none."""
    if not any(job.running for job in made.batch):
        return None
    jobs = tuple(_moved(rng, job, made.gpus) for job in made.batch)
    pools = {node.pool for node in made.nodes}
    jobs = tuple(replace(job, pools=()) if not pools.issuperset(job.pools) else job for job in jobs)
    drains = (Drain(made.nodes[0].name, 0, 1),) if rng.random() < 0.2 else made.drains
    found = object.__new__(Problem)
    given = {name: getattr(made, name) for name in made.__dataclass_fields__}
    found.__dict__.update(given | {"jobs": jobs, "drains": drains, "overrun": True})
    return found


def _moved(rng: Random, job: BatchJob, gpus: int) -> BatchJob:
    if job.running is None or rng.random() < 0.8:
        return job
    if rng.random() < 0.3:
        return replace(job, pools=("a",))
    first = max(0, job.running.first_gpu + rng.choice([-1, 1, 2, gpus]))
    return replace(job, running=replace(job.running, first_gpu=first))
