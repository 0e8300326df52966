"""Alarms: something is wrong and somebody must act. One open alarm per kind."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime

from allocator.models import Alarm
from clusters.saying import Said, in_english, joined, kept
from clusters.saying import say as _

logger = logging.getLogger(__name__)

TEXT_MAX = 300
UNREACHABLE = "unreachable:"  # and the cluster's slug
# Kinds of the open alarms, where they were read once for a whole cycle.
_known: ContextVar[set[str] | None] = ContextVar("open_alarms", default=None)


@contextmanager
def read_once() -> Iterator[None]:
    """Read once which alarms are open: a cycle clears many kinds, and hardly ever is one open.

    One that another process raises meanwhile is cleared by the next cycle.
    """
    open_now = Alarm.objects.filter(cleared_at=None).values_list("kind", flat=True)
    before = _known.set(set(open_now))
    try:
        yield
    finally:
        _known.reset(before)


def raise_alarm(*, kind: str, text: str, at: datetime, **data: object) -> Alarm:
    """Open an alarm, or keep the open one of its kind with the newest text.

    What is kept of a sentence that was said can be said to readers of any language.
    """
    known = _known.get()
    if known is not None:
        known.add(kind)
    sentence = kept(text) if isinstance(text, Said) else {}
    said = {"text": in_english(text)[:TEXT_MAX], "sentence": sentence, "data": data}
    # Of several who raise it at once the database lets one; the others find that one.
    alarm, is_new = Alarm.objects.get_or_create(
        kind=kind, cleared_at=None, defaults={**said, "raised_at": at}
    )
    if not is_new:
        for name, value in said.items():
            setattr(alarm, name, value)
        alarm.save(update_fields=said)
    return alarm


def raise_for_each(*, kind: str, problems: Sequence[str], at: datetime) -> Alarm:
    """Open one alarm for several sentences; the log has each, also those it has no room for."""
    for problem in problems:
        logger.warning("%s: %s", kind, in_english(problem))
    return raise_alarm(kind=kind, text=summary(problems), at=at)


def summary(problems: Sequence[str]) -> str:
    """Return as many sentences as there is room for, and how many more there are."""
    text = joined(problems, " ")
    shown = len(problems)
    while len(in_english(text)) > TEXT_MAX and shown:
        shown -= 1
        text = joined([*problems[:shown], _more(len(problems) - shown)], " ")
    if shown or not problems:
        return text
    more = in_english(_more(len(problems) - 1))
    more = f" {more}" if problems[1:] else ""
    return f"{in_english(problems[0])[: TEXT_MAX - len(more) - 1]}…{more}"


def _more(number: int) -> Said:
    return _("And %(number)s more: the log names each.", number=number)


def clear(*, kind: str, at: datetime) -> None:
    if not _may_be_open(kind):
        return
    Alarm.objects.filter(kind=kind, cleared_at=None).update(cleared_at=at)


def note(*, kind: str, **data: object) -> None:
    """Add to what an open alarm knows."""
    for alarm in Alarm.objects.filter(kind=kind, cleared_at=None):
        alarm.data |= data
        alarm.save(update_fields=["data"])


def is_open(*, kind: str) -> bool:
    return _may_be_open(kind) and Alarm.objects.filter(kind=kind, cleared_at=None).exists()


def unreachable() -> set[str]:
    """Slugs of the clusters that could not be reached when they were last asked.

    One that answers but for some calls (``answers`` in the alarm's data) is not among them.
    """
    if not _may_be_open(UNREACHABLE):
        return set()
    open_now = Alarm.objects.filter(kind__startswith=UNREACHABLE, cleared_at=None)
    return {
        alarm.kind.removeprefix(UNREACHABLE)
        for alarm in open_now
        if not alarm.data.get("answers", False)
    }


def _may_be_open(prefix: str) -> bool:
    known = _known.get()
    return known is None or any(kind.startswith(prefix) for kind in known)
