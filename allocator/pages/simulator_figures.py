"""What came of a simulation, as tables: policies side by side, waits, and budget by budget."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.models import Simulation
from allocator.pages.names import Names
from allocator.pages.simulator_measures import Course, Line, lines, thousandths
from allocator.simulating import results, telling
from budgets.hues import Hue
from budgets.models import WHOLE
from clusters.palette import HUES

POLICY_WORDS = {
    "fairshare": gettext_lazy("fairshare"),
    "fifo": gettext_lazy("first in, first out"),
    "backfill": gettext_lazy("backfill"),
    "priority": gettext_lazy("priority"),
    "shortest-first": gettext_lazy("shortest first"),
    "peak-reserve": gettext_lazy("peak reserve"),
}
POLICY_RULES = {
    "fairshare": gettext_lazy("ours: shares, minimum runtime, then interruptible"),
    "fifo": gettext_lazy("a job that is too large now holds up all behind it"),
    "backfill": gettext_lazy("others start beside the first that is too large now"),
    "priority": gettext_lazy(
        "by urgency, then age; one that is too large now holds up all behind it"
    ),
    "shortest-first": gettext_lazy("the shortest declared that fits"),
    "peak-reserve": gettext_lazy("each group has nodes of its own for its peak"),
}
SHARES_WORDS = {
    "now": gettext_lazy("shares of today"),
    "draft": gettext_lazy("the draft"),
    "given": gettext_lazy("shares as given"),
}
CLASS_WORDS = {
    "debug": gettext_lazy("Debug"),
    "small": gettext_lazy("Small"),
    "large": gettext_lazy("Large"),
}
# The axis of waits, logarithmic: seconds and their words.
TICKS = ((60, "1 min"), (600, "10 min"), (3600, "1 h"), (6 * 3600, "6 h"), (86_400, "1 d"))
SHORTEST_S, LONGEST_S = 10, 32 * 86_400


@dataclass(frozen=True)
class Column:
    """A course: which policy under which shares."""

    number: int
    name: str
    rule: str


@dataclass(frozen=True)
class Range:
    """A class's waits under one course; places on the axis as SVG lengths."""

    column: Column
    p50_s: int
    p90_s: int
    p99_s: int
    unstarted: int
    left: str
    dot: str
    right: str


@dataclass(frozen=True)
class WaitClass:
    """Jobs of a class, and what they waited under each course."""

    name: str
    what: str
    jobs: int
    ranges: list[Range]


@dataclass(frozen=True)
class Got:
    """What a budget got: GPU-seconds, delivered of owed (thousandths of a percent), waits."""

    held_gpu_seconds: int
    unfunded_gpu_seconds: int
    owed_gpu_seconds: int
    delivered: int | None
    p50_s: int | None
    p90_s: int | None


NOTHING = Got(0, 0, 0, None, None, None)  # of a budget that a course doesn't have


@dataclass(frozen=True)
class Change:
    """By how much ours differs from its base; the words beside the sign say what that means."""

    held_gpu_seconds: int
    held_words: str
    delivered: int | None
    delivered_words: str
    p50_s: int | None
    p50_words: str
    p90_s: int | None
    p90_words: str


@dataclass(frozen=True)
class BudgetRow:
    """A budget: what it is entitled to and asked for, what it did and what each course gave."""

    path: str
    name: str
    hue: Hue
    depth: int
    is_leaf: bool
    entitled_gpu_seconds: int
    asked_gpu_seconds: int
    did: Got | None
    got: list[Got]
    change: Change | None


@dataclass(frozen=True)
class Figures:
    """All that the page of a simulation that is done says in numbers."""

    jobs: int
    gpus: int
    seconds: int
    notes: list[str]
    columns: list[Column]
    lines: list[Line]
    waits: list[WaitClass]
    budgets: list[BudgetRow]
    base: Column | None  # with two courses: what ours is compared with
    ours: Column
    delivered: tuple[int | None, int | None]  # base, ours
    hidden: bool  # budgets that the reader may not see have no row
    ticks: list[tuple[str, str]] = field(default_factory=list)

    @property
    def projects(self) -> list[BudgetRow]:
        return [row for row in self.budgets if row.is_leaf]

    @property
    def has_history(self) -> bool:
        return any(row.did is not None for row in self.budgets)


def figures(row: Simulation, names: Names) -> Figures | None:
    """Return a simulation's figures as far as the reader sees its budgets; None: not done."""
    result = results.seen(row, names.held)
    if result is None:
        return None
    courses: list[Course] = result["courses"]
    columns = [_column(number, one, courses) for number, one in enumerate(courses)]
    pair = _pair(courses)
    base, ours = pair or (None, 0)
    return Figures(
        jobs=result["jobs"],
        gpus=result["gpus"],
        seconds=result["seconds"],
        notes=_notes(result),
        columns=columns,
        lines=lines(courses, pair),
        waits=[_waits(name, courses, columns) for name in CLASS_WORDS],
        budgets=_budgets(row, result, names, pair),
        base=None if base is None else columns[base],
        ours=columns[ours],
        delivered=(
            None if base is None else thousandths(courses[base]["delivered_by_window"]),
            thousandths(courses[ours]["delivered_by_window"]),
        ),
        hidden=results.is_of_budgets(row) and not names.whole(),
        ticks=[(_place(seconds), words) for seconds, words in TICKS],
    )


def _column(number: int, one: Course, courses: Sequence[Course]) -> Column:
    policy, shares = str(POLICY_WORDS[one["policy"]]), str(SHARES_WORDS[one["shares"]])
    policies = {course["policy"] for course in courses}
    trees = {course["shares"] for course in courses}
    if len(trees) == 1:
        return Column(number, policy, str(POLICY_RULES[one["policy"]]))
    name = shares if len(policies) == 1 else f"{policy}, {shares}"
    return Column(number, name, str(POLICY_RULES[one["policy"]]))


def _pair(courses: Sequence[Course]) -> tuple[int, int] | None:
    """(base, ours) of two courses: today and the draft, or another policy and the first."""
    if len(courses) != 2:
        return None
    return (1, 0) if courses[0]["shares"] == courses[1]["shares"] else (0, 1)


# --- Waits ---------------------------------------------------------------------------------------


def _waits(name: str, courses: Sequence[Course], columns: Sequence[Column]) -> WaitClass:
    first = courses[0]
    large = first["large_gpus"]
    what = {
        "debug": _("at most 8 GPUs, 15 minutes"),
        "small": _("under %(gpus)s GPUs") % {"gpus": large},
        "large": _("%(gpus)s GPUs and more") % {"gpus": large},
    }
    ranges = [
        _range(course["waits"][name], column)
        for course, column in zip(courses, columns, strict=True)
    ]
    return WaitClass(str(CLASS_WORDS[name]), what[name], first["waits"][name]["jobs"], ranges)


def _range(waits: Mapping[str, int], column: Column) -> Range:
    return Range(
        column=column,
        p50_s=waits["p50_s"],
        p90_s=waits["p90_s"],
        p99_s=waits["p99_s"],
        unstarted=waits["unstarted"],
        left=_place(waits["p50_s"]),
        dot=_place(waits["p90_s"]),
        right=_place(waits["p99_s"]),
    )


def _place(seconds: int) -> str:
    """Where a wait stands on the axis, as an SVG length."""
    inside = min(LONGEST_S, max(SHORTEST_S, seconds))
    part = math.log(inside / SHORTEST_S) / math.log(LONGEST_S / SHORTEST_S)
    return f"{100 * part:.2f}%"


# --- Budgets -------------------------------------------------------------------------------------


def _budgets(
    row: Simulation, result: Mapping[str, Any], names: Names, pair: tuple[int, int] | None
) -> list[BudgetRow]:
    courses = [{one["path"]: one for one in c["budgets"]} for c in result["courses"]]
    first = _all(courses)
    did = {one["path"]: one for one in result["did"] or ()}
    inner = {one["parent"] for one in first.values()}
    own = results.is_of_budgets(row)
    tops = _tops(list(first.values()))
    found = []
    for path, one in first.items():
        got = [_got(course[path]) if path in course else NOTHING for course in courses]
        found.append(
            BudgetRow(
                path=path,
                name=names.name(path) if own else path,
                hue=names.hue_of(path) if own else hue_of_group(path, first, tops),
                depth=_depth(path, first),
                is_leaf=path not in inner,
                entitled_gpu_seconds=one["entitled_gpu_seconds"],
                asked_gpu_seconds=one["asked_gpu_seconds"],
                did=_got(did[path]) if path in did else None,
                got=got,
                change=_change(got[pair[0]], got[pair[1]]) if pair else None,
            )
        )
    return found


def _all(courses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every budget of any course by path: a draft may archive one, or bring one back.

    One that only a later course has stands behind what is below its parent.
    """
    found = dict(courses[0])
    for course in courses[1:]:
        for path, one in course.items():
            if path in found:
                continue
            paths, parent = list(found), one["parent"]
            beside = [n for n, other in enumerate(paths) if _is_below(other, parent, found)]
            paths.insert(beside[-1] + 1 if beside else len(paths), path)
            found = {other: found.get(other, one) for other in paths}
    return found


def _is_below(path: str, top: str | None, nodes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a node is this one or below it."""
    at: str | None = path
    while at is not None and at != top:
        at = nodes[at]["parent"] if at in nodes else None
    return at is not None and at == top


def _tops(budgets: Sequence[Mapping[str, Any]]) -> list[str]:
    """The nodes right below a single root, or the roots: what a hue stands for."""
    roots = [one["path"] for one in budgets if one["parent"] is None]
    below = [one["path"] for one in budgets if one["parent"] in roots]
    return below if len(roots) == 1 and below else roots


def hue_of_group(path: str, nodes: Mapping[str, Mapping[str, Any]], tops: Sequence[str]) -> Hue:
    """Return the hue of a node of a tree file: that of the first level above it, 0 past four."""
    at: str | None = path
    while at is not None and at not in tops:
        at = nodes[at]["parent"] if at in nodes else None
    place = tops.index(at) + 1 if at in tops else 0
    return place if place <= HUES else 0


def _depth(path: str, nodes: Mapping[str, Mapping[str, Any]]) -> int:
    depth, at = 0, nodes[path]["parent"]
    while at is not None and at in nodes:
        depth, at = depth + 1, nodes[at]["parent"]
    return depth


def _got(one: Mapping[str, Any]) -> Got:
    owed, waits = one["owed_gpu_seconds"], one["waits"]
    return Got(
        held_gpu_seconds=one["funded_gpu_seconds"] + one["unfunded_gpu_seconds"],
        unfunded_gpu_seconds=one["unfunded_gpu_seconds"],
        owed_gpu_seconds=owed,
        delivered=one["delivered_gpu_seconds"] * WHOLE // owed if owed else None,
        p50_s=waits["p50_s"] if waits["jobs"] else None,
        p90_s=waits["p90_s"] if waits["jobs"] else None,
    )


def _change(before: Got, after: Got) -> Change:
    held = after.held_gpu_seconds - before.held_gpu_seconds
    delivered = _less(after.delivered, before.delivered)
    p50, p90 = _less(after.p50_s, before.p50_s), _less(after.p90_s, before.p90_s)
    return Change(
        held_gpu_seconds=held,
        held_words=_words(held, _("more"), _("less")),
        delivered=delivered,
        delivered_words=_words(delivered, _("more"), _("less")),
        p50_s=p50,
        p50_words=_words(p50, _("longer"), _("shorter")),
        p90_s=p90,
        p90_words=_words(p90, _("longer"), _("shorter")),
    )


def _less(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _words(difference: int | None, more: str, less: str) -> str:
    if difference is None:
        return ""
    return _("as now") if not difference else more if difference > 0 else less


def _notes(result: dict[str, Any]) -> list[str]:
    """Say in the reader's language what is to be known; results of older versions are English."""
    return [telling.told(*one) for one in result["noted"]] if "noted" in result else result["notes"]
