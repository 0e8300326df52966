"""The figures that policies are compared by, each with its formula and what is better."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy

from budgets.models import WHOLE

Course = Mapping[str, Any]
PERCENT, HOURS, COUNT, RATIO = "percent", "hours", "count", "ratio"
STEPS = {PERCENT: 100, HOURS: 3600}  # a tenth of a percent, an hour
MORE, LESS = 1, -1  # what is better; 0: neither


@dataclass(frozen=True)
class Cell:
    """A figure in its line's unit; `note` says whose it is."""

    value: int | float | None
    is_best: bool = False
    note: str = ""


@dataclass(frozen=True)
class Line:
    """One figure under every course. With two courses also by how much ours differs."""

    name: str
    formula: str
    unit: str
    cells: list[Cell]
    difference: int | float | None = None
    verdict: str = ""  # better, worse, same, or empty


@dataclass(frozen=True)
class Spec:
    """A line of the table: which figure, in which unit, and whether more of it is better."""

    name: Any
    formula: Any
    unit: str
    better: int
    of: Callable[[Course], int | float | None]
    note: Callable[[Course], str] = lambda _: ""


def thousandths(ratio: float | None) -> int | None:
    """Return a ratio in thousandths of a percent, as pages write it."""
    return None if ratio is None else round(ratio * WHOLE)


def _ratio(name: str) -> Callable[[Course], int | None]:
    return lambda course: thousandths(course[name])


def _plain(name: str) -> Callable[[Course], int | float | None]:
    return lambda course: course[name]


def _last_of(name: str) -> Callable[[Course], str]:
    """What a budget is called; those that were kept before it was told have no name."""
    return lambda course: str(course.get(name, "")).rpartition("/")[2]


def _maybe(name: str) -> Callable[[Course], int | float | None]:
    return lambda course: course.get(name)


SPECS = (
    Spec(
        gettext_lazy("Occupancy"),
        gettext_lazy("held GPU-time ÷ all GPU-time of the span"),
        *(PERCENT, MORE, _ratio("occupancy")),
    ),
    Spec(
        gettext_lazy("Occupancy while crowded"),
        gettext_lazy("the same over the seconds in which GPUs held and asked for filled the fleet"),
        *(PERCENT, MORE, _ratio("crowded_occupancy")),
    ),
    Spec(
        gettext_lazy("Delivered of owed, by window"),
        gettext_lazy(
            "owed = the lesser of entitlement and demand; delivered = the lesser of funded use and "
            "owed, summed over each fair-share window"
        ),
        *(PERCENT, MORE, _ratio("delivered_by_window")),
    ),
    Spec(
        gettext_lazy("Worst budget, by window"),
        gettext_lazy(
            "the project with the least part delivered of what it was owed; above the whole where "
            "programs are owed what one project asks beyond its part while others ask less"
        ),
        *(PERCENT, MORE, _ratio("worst_by_window")),
        _last_of("worst_budget_by_window"),
    ),
    Spec(
        gettext_lazy("Delivered of owed, by timestep"),
        gettext_lazy("the same for each timestep by itself, then summed"),
        *(PERCENT, MORE, _ratio("delivered")),
    ),
    Spec(
        gettext_lazy("Worst budget, by timestep"),
        gettext_lazy("the project with the least part delivered, timestep by timestep"),
        *(PERCENT, MORE, _ratio("worst_delivered")),
        _last_of("worst_budget"),
    ),
    Spec(
        gettext_lazy("Useful GPU-hours"),
        gettext_lazy("held, less what is lost to preemption and what is parked"),
        *(HOURS, MORE, _plain("useful_gpu_seconds")),
    ),
    Spec(
        gettext_lazy("Funded GPU-hours"),
        gettext_lazy("held by runs that their budget paid for"),
        *(HOURS, 0, _plain("funded_gpu_seconds")),
    ),
    Spec(
        gettext_lazy("Unfunded GPU-hours"),
        gettext_lazy("held by runs that nobody paid for: free, and stopped first"),
        *(HOURS, 0, _plain("unfunded_gpu_seconds")),
    ),
    Spec(
        gettext_lazy("Jobs ended"),
        gettext_lazy("completed, or ended at their time limit, within the span"),
        *(COUNT, MORE, lambda course: course["completed"] + course["timed_out"]),
    ),
    Spec(
        gettext_lazy("Preemptions"),
        gettext_lazy("runs that were stopped for another job"),
        *(COUNT, LESS, _plain("preemptions")),
    ),
    Spec(
        gettext_lazy("Jobs lost to preemption"),
        gettext_lazy("preempted, and not resumable"),
        *(COUNT, LESS, _plain("lost")),
    ),
    Spec(
        gettext_lazy("Finish-time fairness ρ, p50"),
        gettext_lazy(
            "submission to end ÷ the same on as many GPUs as the budget is entitled to, first in, "
            "first out; at most 1 is no worse than a cluster of its own"
        ),
        *(RATIO, LESS, _plain("rho_p50")),
    ),
    Spec(
        gettext_lazy("Finish-time fairness ρ, p90"),
        gettext_lazy("the same; nine of ten jobs have less"),
        *(RATIO, LESS, _plain("rho_p90")),
    ),
    Spec(
        gettext_lazy("Starved jobs"),
        gettext_lazy("never started, though submitted over a day before the end"),
        *(COUNT, LESS, _plain("starved")),
    ),
)
# Shown where some course has any of it; what was kept before there were services has none.
BESIDES = (
    Spec(
        gettext_lazy("Real-time GPU-hours"),
        gettext_lazy("held by real-time services"),
        *(HOURS, 0, _maybe("realtime_gpu_seconds")),
    ),
    Spec(
        gettext_lazy("Real-time shortfall"),
        gettext_lazy("GPU-hours that real-time services wanted and did not hold"),
        *(HOURS, LESS, _maybe("shortfall_gpu_seconds")),
    ),
    Spec(
        gettext_lazy("Runs ended by failures"),
        gettext_lazy("jobs and services whose node went down"),
        *(COUNT, LESS, _maybe("failed_runs")),
    ),
    Spec(
        gettext_lazy("GPU-hours of nodes that were down"),
        gettext_lazy(
            "also of nodes not in use yet; not counted as healthy in entitlement and occupancy"
        ),
        *(HOURS, 0, _maybe("down_gpu_seconds")),
    ),
)


def lines(courses: Sequence[Course], pair: tuple[int, int] | None) -> list[Line]:
    """Return every figure of some courses; with a pair (base, ours) also how ours differs."""
    shown = [spec for spec in BESIDES if any(spec.of(course) for course in courses)]
    return [_line(spec, courses, pair) for spec in (*SPECS, *shown)]


def _line(spec: Spec, courses: Sequence[Course], pair: tuple[int, int] | None) -> Line:
    # As precise as they are shown, so that no figure is better than one that reads the same.
    values = [_shown(spec.of(course), spec.unit) for course in courses]
    known = [value for value in values if value is not None]
    best = None
    if spec.better and len(set(known)) > 1:
        best = max(known) if spec.better == MORE else min(known)
    difference, verdict = None, ""
    if pair is not None:
        before, after = values[pair[0]], values[pair[1]]
        if before is not None and after is not None:
            difference = _shown(after - before, spec.unit)
            verdict = _verdict(spec, difference or 0)
    cells = [
        Cell(value, best is not None and value == best, spec.note(course))
        for value, course in zip(values, courses, strict=True)
    ]
    return Line(str(spec.name), str(spec.formula), spec.unit, cells, difference, verdict)


def _shown(value: float | None, unit: str) -> int | float | None:
    """A value as precise as its unit is shown."""
    if value is None or unit == COUNT:
        return value
    if unit == RATIO:
        return round(value, 2)
    step = STEPS[unit]
    return step * round(value / step)


def _verdict(spec: Spec, difference: float) -> str:
    if not difference:
        return "same"
    if not spec.better:
        return ""
    return "better" if difference * spec.better > 0 else "worse"
