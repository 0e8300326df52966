"""What people must know of a history before they trust its figures, in sentences."""

from django.utils.translation import ngettext

from allocator.core.traces import Trace
from allocator.simulating.history import LeftOut, Past

Counted = tuple[int, str]  # how many, and a sentence with room for the number


def notes(past: Past) -> list[str]:
    """Return what the trace of a window leaves out or guesses, a sentence each."""
    counted = [*_guessed(past), *_befell(past), *_left_out(past.left_out)]
    return [text % {"n": f"{n:,}"} for n, text in counted if n]


def _guessed(past: Past) -> list[Counted]:
    return [
        (
            past.estimated,
            ngettext(
                "%(n)s job has not ended: how long it takes is its estimate.",
                "%(n)s jobs have not ended: how long they take is their estimate.",
                past.estimated,
            ),
        ),
        (
            past.carried,
            ngettext(
                "%(n)s job waited or ran when the window began: it starts with what was left.",
                "%(n)s jobs waited or ran when the window began: they start with what was left.",
                past.carried,
            ),
        ),
    ]


def _left_out(left: LeftOut) -> list[Counted]:
    return [
        (
            left.never_ran,
            ngettext(
                "%(n)s job that never ran is left out.",
                "%(n)s jobs that never ran are left out.",
                left.never_ran,
            ),
        ),
        (
            left.befell,
            ngettext(
                "%(n)s window or failure is left out: another fleet is simulated.",
                "%(n)s windows and failures are left out: another fleet is simulated.",
                left.befell,
            ),
        ),
        (
            left.waiting_for_others,
            ngettext(
                "%(n)s job that waited for other jobs to the end is left out.",
                "%(n)s jobs that waited for other jobs to the end are left out.",
                left.waiting_for_others,
            ),
        ),
        (
            left.no_leaf,
            ngettext(
                "%(n)s job is left out: its budget takes no work under these shares.",
                "%(n)s jobs are left out: their budgets take no work under these shares.",
                left.no_leaf,
            ),
        ),
        (
            left.too_large,
            ngettext(
                "%(n)s job is left out: the fleet has no block of its size.",
                "%(n)s jobs are left out: the fleet has no block of their size.",
                left.too_large,
            ),
        ),
    ]


def of_trace(trace: Trace) -> list[str]:
    """Return what people must know of a trace of their own."""
    n = trace.rounded
    if not n:
        return []
    text = ngettext(
        "%(n)s job gets more GPUs than it asks: a block is a power of two.",
        "%(n)s jobs get more GPUs than they ask: a block is a power of two.",
        n,
    )
    return [text % {"n": f"{n:,}"}]


def _befell(past: Past) -> list[Counted]:
    return [
        (
            len(past.trace.services),
            ngettext(
                "%(n)s real-time service wants what was forecast for it, or its profile.",
                "%(n)s real-time services want what was forecast for them, or their profiles.",
                len(past.trace.services),
            ),
        ),
        (
            len({(one.node, one.start_s) for one in past.events.windows}),
            ngettext(
                "%(n)s node is drained for maintenance, as it was.",
                "%(n)s times a node is drained for maintenance, as it was.",
                len({(one.node, one.start_s) for one in past.events.windows}),
            ),
        ),
        (
            len(past.events.failures),
            ngettext(
                "%(n)s time a node is down, as it was.",
                "%(n)s times a node is down, as it was.",
                len(past.events.failures),
            ),
        ),
    ]
