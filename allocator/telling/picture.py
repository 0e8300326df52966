"""The plan as a picture in text: a row for each node, a column for each timestep."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

FREE, DRAINED = "·", "▒"


@dataclass(frozen=True)
class Canvas:
    """A plan, and how to draw it. ``letters`` gives each budget's letter, by path."""

    snapshot: dict[str, Any]
    plan: dict[str, Any]
    origin: datetime
    zone: tzinfo
    letters: Mapping[str, str]


def draw(canvas: Canvas) -> Iterator[str]:
    """Draw it: a letter is the budget that holds most of a node, small where it is unfunded."""
    yield from _axis(canvas)
    first = 0
    pool = None
    for node in canvas.snapshot["nodes"]:
        if pool not in (None, node.get("pool")):
            yield ""
        pool = node.get("pool")
        rows = canvas.plan["grid"][first : first + node["gpus"]]
        first += node["gpus"]
        cells = _node(canvas, node["name"], rows)
        yield f"  {node['name']:<10} {cells}  {_now(rows)} of {node['gpus']}"
    yield f"  {'held':<10} {_held(canvas)}"


def _node(canvas: Canvas, name: str, rows: list[list[str | None]]) -> str:
    letters = _letters(canvas)
    dark = _drained(canvas, name)
    return "".join(
        DRAINED if t in dark else _cell([row[t] for row in rows], letters)
        for t in range(canvas.snapshot["horizon"])
    )


def _cell(jobs: list[str | None], letters: Mapping[str, str]) -> str:
    """The letter of whoever holds most; free only where most of the node is."""
    marks = Counter(FREE if job is None else letters[job.removesuffix("+")] for job in jobs)
    return min(marks, key=lambda mark: (-marks[mark], mark == FREE, mark))


def _letters(canvas: Canvas) -> dict[str, str]:
    found = {}
    for job in canvas.snapshot["jobs"]:
        letter = canvas.letters.get(job.get("budget", ""), "?")
        found[job["name"]] = letter if job.get("funded", True) else letter.lower()
    return found


def _drained(canvas: Canvas, node: str) -> set[int]:
    windows = [d for d in canvas.snapshot.get("drains", []) if d["node"] == node]
    return {t for d in windows for t in range(d["from"], d["to"])}


def _held(canvas: Canvas) -> str:
    """Held GPUs in tenths of all: 9 is nine tenths and more, ■ is all of them."""
    grid = canvas.plan["grid"]
    marks = []
    for t in range(canvas.snapshot["horizon"]):
        held = sum(row[t] is not None for row in grid)
        marks.append("■" if held == len(grid) else str(held * 10 // len(grid)))
    return "".join(marks)


def _now(rows: list[list[str | None]]) -> int:
    return sum(row[0] is not None for row in rows)


def _axis(canvas: Canvas) -> Iterator[str]:
    """Hours of the zone above the columns they start at, every four hours."""
    minutes = canvas.snapshot["timestep_minutes"]
    line = [" "] * (canvas.snapshot["horizon"] + 6)
    for t in range(canvas.snapshot["horizon"]):
        local = (canvas.origin + timedelta(minutes=minutes * t)).astimezone(canvas.zone)
        if local.minute == 0 and local.hour % 4 == 0:
            line[t : t + 5] = local.strftime("%H:%M")
    yield f"  {'':<10} {''.join(line).rstrip():<{canvas.snapshot['horizon']}}  held now"
