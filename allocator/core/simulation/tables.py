"""Policies side by side, as lines of text."""

from collections.abc import Callable, Sequence

from .measures import CLASSES, LIMITED, Outcome, Waits

HOUR_S = 3600
Figure = Callable[[Outcome], str]
OF_WHOM = (
    "Owed delivered is that of programs, right below the root, together; worst budget is the leaf",
    "with the least part. What one asks beyond its part while others ask less is owed above it.",
)


def comparison(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each figure, a column for each policy; then each budget under each policy."""
    rows = [("", *(outcome.policy for outcome in outcomes))]
    shown = [*FIGURES]
    if any(outcome.services for outcome in outcomes):
        shown += OF_SERVICES
    if any(outcome.down_gpu_seconds for outcome in outcomes):
        shown += OF_FAILURES
    rows += [(name, *(figure(outcome) for outcome in outcomes)) for name, figure in shown]
    for kind in (LIMITED, *CLASSES):
        rows.append(_of_class(kind, outcomes))
    lines = _aligned(rows)
    lines += ["", *OF_WHOM]
    for outcome in outcomes:
        lines += ["", *_budgets(outcome)]
    return lines


def percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.2f} %"


def hours(gpu_seconds: int) -> str:
    return f"{gpu_seconds / HOUR_S:,.0f}"


def span(seconds: int) -> str:
    """A wait as people read it."""
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 2 * HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR_S:.1f} h"


def waits(found: Waits) -> str:
    """p50, p90 and p99 of a class's waits."""
    if not found.jobs:
        return "-"
    return " / ".join(span(one) for one in (found.p50_s, found.p90_s, found.p99_s))


FIGURES: tuple[tuple[str, Figure], ...] = (
    ("occupancy", lambda o: percent(o.occupancy)),
    ("while demand >= capacity", lambda o: percent(o.crowded_occupancy)),
    ("owed delivered", lambda o: percent(o.delivered)),
    ("worst budget", lambda o: percent(o.worst_delivered)),
    ("  which is", lambda o: o.worst_budget or "-"),
    ("owed delivered, by window", lambda o: percent(o.delivered_by_window)),
    ("worst budget, by window", lambda o: percent(o.worst_by_window)),
    ("  which is", lambda o: o.worst_budget_by_window or "-"),
    ("funded GPU-h", lambda o: hours(o.funded_gpu_seconds)),
    ("unfunded GPU-h", lambda o: hours(o.unfunded_gpu_seconds)),
    ("useful GPU-h", lambda o: hours(o.useful_gpu_seconds)),
    ("jobs ended", lambda o: f"{o.completed + o.timed_out} of {o.jobs}"),
    ("preemptions", lambda o: f"{o.preemptions:,}"),
    ("lost to preemption", lambda o: f"{o.lost:,}"),
    ("starved", lambda o: f"{o.starved:,}"),
    ("rho p50", lambda o: "-" if o.rho_p50 is None else f"{o.rho_p50:.2f}"),
    ("rho p90", lambda o: "-" if o.rho_p90 is None else f"{o.rho_p90:.2f}"),
)
OF_SERVICES: tuple[tuple[str, Figure], ...] = (
    ("real time, GPU-h", lambda o: hours(o.realtime_gpu_seconds)),
    ("real time, wanted GPU-h", lambda o: hours(o.realtime_wanted_gpu_seconds)),
    ("real time, shortfall GPU-h", lambda o: hours(o.shortfall_gpu_seconds)),
)
OF_FAILURES: tuple[tuple[str, Figure], ...] = (
    ("down GPU-h", lambda o: hours(o.down_gpu_seconds)),
    ("runs ended by failures", lambda o: f"{o.failed_runs:,}"),
)


def _of_class(kind: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    name = f"wait {kind.replace('_', ' ')}"
    if kind == "large":
        least = outcomes[0].large_gpus
        name += f" (>= {least} GPU{'s' * (least != 1)})"
    return (f"{name} p50/p90/p99", *(waits(outcome.waits[kind]) for outcome in outcomes))


def _budgets(outcome: Outcome) -> list[str]:
    head = (outcome.policy, "entitled", "asked", "funded", "unfunded", "owed", "delivered", "")
    rows = [head]
    for one in outcome.budgets:
        owed, got = one.owed_gpu_seconds, one.delivered_gpu_seconds
        rows.append(
            (
                one.path,
                *(hours(one.entitled_gpu_seconds), hours(one.asked_gpu_seconds)),
                *(hours(one.funded_gpu_seconds), hours(one.unfunded_gpu_seconds)),
                *(hours(owed), hours(got), percent(got / owed if owed else None)),
            )
        )
    return _aligned(rows)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
