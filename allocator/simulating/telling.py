"""What people must know of a history before they trust its figures, in sentences."""

from collections.abc import Iterable
from typing import NamedTuple

from django.utils import translation

from allocator.core.events import NOTHING, Events
from allocator.core.traces import Trace
from allocator.simulating.history import LeftOut, Past
from clusters import saying

Note = tuple[int, str, str]  # how many, and the words of one and of many


class Words(NamedTuple):
    """A sentence about one, and about more, with room for the number; in English."""

    one: str
    many: str


Counted = tuple[int, Words]  # how many, and what is said of them


def ngettext(one: str, many: str, _number: int) -> Words:
    """Mark a sentence to be translated: it is kept in no language, and told to each reader."""
    return Words(one, many)


def told(number: int, one: str, many: str) -> str:
    """Say one of the notes in the active language."""
    return translation.ngettext(one, many, number) % {"n": saying.number(number)}


def in_english(noted: Iterable[Note]) -> list[str]:
    """Say them as the API and commands do."""
    with translation.override("en"):
        return [told(*one) for one in noted]


def notes(
    trace: Trace, events: Events, gpus: int, *, given: Events = NOTHING, past: Past | None = None
) -> list[Note]:
    """Return what people must know of a simulation before they trust it, for `told`.

    ``events`` befall the fleet of so many GPUs; ``given`` are all that were asked for, where some
    were; ``past`` is where the trace is a window's.
    """
    own = NOTHING if given else events
    counted = [*_guessed(past), *_befell(trace, own)] if past else _rounded(trace)
    counted += [*_too_large(trace, gpus), *(_given(events, given, past) if given else ())]
    if past:
        counted += _left_out(past.left_out)
    return [(n, *words) for n, words in counted if n]


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


def _rounded(trace: Trace) -> list[Counted]:
    return [
        (
            trace.rounded,
            ngettext(
                "%(n)s job gets more GPUs than it asks: a block is a power of two.",
                "%(n)s jobs get more GPUs than they ask: a block is a power of two.",
                trace.rounded,
            ),
        )
    ]


def _too_large(trace: Trace, gpus: int) -> list[Counted]:
    n = sum(one.peak > gpus for one in trace.services)
    return [
        (
            n,
            ngettext(
                "%(n)s real-time service wants more GPUs at times than there are: the rest is "
                "shortfall.",
                "%(n)s real-time services want more GPUs at times than there are: the rest is "
                "shortfall.",
                n,
            ),
        )
    ]


def _given(events: Events, given: Events, past: Past | None) -> list[Counted]:
    instead = len(past.events) if past else 0
    outside = len(given) - len(events)
    return [
        (
            len(events),
            ngettext(
                "%(n)s window or failure of a node befalls the fleet, as given.",
                "%(n)s windows and failures of nodes befall the fleet, as given.",
                len(events),
            ),
        ),
        (
            outside,
            ngettext(
                "%(n)s event that was given is of other days, and left out.",
                "%(n)s events that were given are of other days, and left out.",
                outside,
            ),
        ),
        (
            instead,
            ngettext(
                "%(n)s window or failure that there really was is left out: others are given.",
                "%(n)s windows and failures that there really were are left out: others are given.",
                instead,
            ),
        ),
    ]


def _befell(trace: Trace, events: Events) -> list[Counted]:
    """Of a history: given events are told apart."""
    drained = len({(one.node, one.start_s) for one in events.windows})
    late = sum(one.is_new for one in events.failures)
    failed = len(events.failures) - late
    return [
        (
            len(trace.services),
            ngettext(
                "%(n)s real-time service wants what was forecast for it, or its profile.",
                "%(n)s real-time services want what was forecast for them, or their profiles.",
                len(trace.services),
            ),
        ),
        (
            drained,
            ngettext(
                "%(n)s time a node is drained for maintenance, as it was.",
                "%(n)s times a node is drained for maintenance, as it was.",
                drained,
            ),
        ),
        (
            failed,
            ngettext(
                "%(n)s time a node is down, as it was.",
                "%(n)s times a node is down, as it was.",
                failed,
            ),
        ),
        (
            late,
            ngettext(
                "%(n)s node came into use after the first second: it runs nothing before, and "
                "nobody is entitled to it then.",
                "%(n)s nodes came into use after the first second: they run nothing before, and "
                "nobody is entitled to them then.",
                late,
            ),
        ),
    ]
