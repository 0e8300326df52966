"""The scenario file: JSON in and out of a `Problem`. Every field is known or refused."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .problem import (
    BatchJob,
    BudgetNode,
    Drain,
    Job,
    Kind,
    Node,
    Problem,
    RealtimeJob,
    Running,
)
from .validate import ProblemError, shown

Fields = Mapping[str, Any]

_TOP = ("name", "horizon", "timestep_minutes", "nodes", "jobs")
_TOP_MORE = ("time_decay", "shortfall_penalty", "overrun", "drains", "budgets", "family")
_TOP_PLAIN = ("time_decay", "shortfall_penalty", "overrun", "family")
_BATCH = ("name", "kind", "priority", "gpus", "duration")
_BATCH_MORE = ("arrival", "pools", "budget", "funded", "running", "minimum", "debug")
_RUNNING_MORE = ("protected", "shielded", "barred", "ahead")
_REALTIME = ("name", "kind", "priority", "demand", "swap_cap")
_REALTIME_MORE = ("held", "pools", "budget", "funded", "steady")
MAX_BYTES = 8 << 20  # 4,096 GPUs and 10,000 jobs take 2 MB


def parse_problem(source: bytes | str) -> Problem:
    """A problem from the text of a scenario file; raises `ProblemError` with one sentence."""
    return read_problem(parse_json(source))


def parse_json(source: bytes | str) -> Any:
    """JSON without NaN, infinity or a repeated field; raises `ProblemError`."""
    if len(source) > MAX_BYTES:
        raise ProblemError(
            f"the file has more than the {MAX_BYTES >> 20} MB that it may have: split it up."
        )
    try:
        return json.loads(source, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except ProblemError:
        raise
    except RecursionError:
        raise ProblemError("the file is not usable JSON: it is nested too deeply.") from None
    except ValueError as error:  # also a UnicodeDecodeError, and integers of too many digits
        reason = str(error).splitlines()[0]
        raise ProblemError(f"the file is not valid JSON: {reason}.") from None


def read_problem(data: object) -> Problem:
    """A `Problem` from the decoded scenario format; unknown and missing fields are refused."""
    top = _fields(data, "the scenario", _TOP, _TOP_MORE)
    more = {key: top[key] for key in _TOP_PLAIN if key in top}
    if not isinstance(more.get("family", ""), str):
        raise ProblemError(f"family must be a text, not {shown(more['family'])}.")
    return Problem(
        name=top["name"],
        horizon=top["horizon"],
        timestep_minutes=top["timestep_minutes"],
        nodes=tuple(_node(item) for item in _rows(top, "nodes")),
        jobs=tuple(_job(item) for item in _rows(top, "jobs")),
        drains=tuple(_drain(item) for item in _rows(top, "drains")),
        budgets=tuple(_budget(item) for item in _rows(top, "budgets")),
        **more,
    )


def write_problem(problem: Problem) -> dict[str, Any]:
    """The scenario format of a problem; optional fields appear where they say something."""
    data: dict[str, Any] = {"name": problem.name}
    if problem.family:
        data["family"] = problem.family
    data |= {
        "horizon": problem.horizon,
        "timestep_minutes": problem.timestep_minutes,
        "time_decay": problem.time_decay,
        "shortfall_penalty": problem.shortfall_penalty,
        "overrun": problem.overrun,
        "nodes": [{"name": n.name, "gpus": n.gpus, "pool": n.pool} for n in problem.nodes],
        "jobs": [_job_fields(job) for job in problem.jobs],
    }
    if problem.drains:
        data["drains"] = [{"node": d.node, "from": d.start, "to": d.end} for d in problem.drains]
    if problem.budgets:
        data["budgets"] = [vars(budget).copy() for budget in problem.budgets]
    return data


def _node(item: object) -> Node:
    return Node(**_fields(item, "a node", ("name", "gpus"), ("pool",)))


def _drain(item: object) -> Drain:
    row = _fields(item, "a drain", ("node", "from", "to"), ())
    return Drain(node=row["node"], start=row["from"], end=row["to"])


def _budget(item: object) -> BudgetNode:
    names = ("path", "parent", "shares", "usage")
    return BudgetNode(**_fields(item, "a budget", names, ("entitled",)))


def _job(item: object) -> Job:
    what = "a job"
    if isinstance(item, Mapping) and isinstance(item.get("name"), str):
        what = f"job {shown(item['name'])}"
    kind = item.get("kind") if isinstance(item, Mapping) else None
    if kind == Kind.REALTIME:
        row = dict(_fields(item, what, _REALTIME, _REALTIME_MORE))
        del row["kind"]
        if row.get("held", ()) is None:
            raise ProblemError(f"{what}: held must be a list of GPUs; leave it out if unknown.")
        return RealtimeJob(**row)
    row = dict(_fields(item, what, _BATCH, _BATCH_MORE))
    if not isinstance(kind, str) or kind not in list(Kind):
        raise ProblemError(f"{what}: kind must be one of {', '.join(Kind)}, not {shown(kind)}.")
    row["kind"] = Kind(kind)
    if "running" in row:
        row["running"] = _running(row["running"], what)
    return BatchJob(**row)


def _running(item: object, what: str) -> Running:
    row = _fields(item, f"{what}: running", ("first_gpu", "remaining"), _RUNNING_MORE)
    try:
        return Running(**{"protected": row["remaining"], **row})
    except ProblemError as error:
        raise ProblemError(f"{what}: {error}") from None


def _job_fields(job: Job) -> dict[str, Any]:
    row: dict[str, Any] = {"name": job.name, "kind": str(job.kind), "priority": job.priority}
    if isinstance(job, BatchJob):
        row |= {"gpus": job.gpus, "duration": job.duration, "arrival": job.arrival}
    else:
        row |= {"demand": list(job.demand), "swap_cap": job.swap_cap}
        if job.held is not None:
            row["held"] = list(job.held)
        if job.steady:
            row["steady"] = True
    if job.pools:
        row["pools"] = list(job.pools)
    if job.budget is not None:
        row |= {"budget": job.budget, "funded": job.funded}
    elif not job.funded:
        row["funded"] = False
    if isinstance(job, BatchJob) and job.running is not None:
        row["running"] = _running_fields(job.running)
    if isinstance(job, BatchJob) and job.minimum is not None:
        row["minimum"] = job.minimum
    if isinstance(job, BatchJob) and job.debug:
        row["debug"] = True
    return row


def _running_fields(running: Running) -> dict[str, Any]:
    row = vars(running).copy()
    named = {name: list(row.pop(name)) for name in ("shielded", "barred")}
    if not row["ahead"]:
        del row["ahead"]
    return row | {name: given for name, given in named.items() if given}


def _fields(item: object, what: str, needed: Sequence[str], more: Sequence[str]) -> Fields:
    if not isinstance(item, Mapping):
        raise ProblemError(f"{what} must be an object with fields, not {shown(item)}.")
    for key in item:
        if key not in needed and key not in more:
            raise ProblemError(f"{what}: {shown(key)} is not a field of the format; remove it.")
    for key in needed:
        if key not in item:
            raise ProblemError(f"{what}: the field {key!r} is missing.")
    return item


def _rows(top: Fields, key: str) -> Sequence[Any]:
    rows = top.get(key, ())
    if not isinstance(rows, (list, tuple)):
        raise ProblemError(f"{key} must be a list, not {shown(rows)}.")
    return rows


def _refuse_constant(constant: str) -> None:
    raise ProblemError(f"the file holds {constant}; every number must be finite.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ProblemError(f"the field {shown(twice)} is given twice in one object; keep one.")
    return row
