"""What is to befall the nodes of a simulation: a file or lines that somebody gives, and the windows
of maintenance that are planned. What is kept of both are lines of an events file, so that a
simulation is the same whenever it is played, and by the command.

Second 0 of the span stands for the instant at which it is asked for: a window that is planned for
tomorrow comes a day after the span begins.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import Q

from allocator.core.events import NOTHING, Events, Window, read_events, write_events
from allocator.core.problem import Node
from allocator.core.validate import ProblemError
from budgets.refusals import Refused
from clusters.models import Drain
from clusters.saying import say as _

SECOND = timedelta(seconds=1)
SHOWN = 5  # sentences about rows


@dataclass(frozen=True)
class Asked:
    """An events file's text, with what sentences call it; and whether planned windows count."""

    text: str = ""
    name: str = "events.csv"
    planned: bool = False

    def __bool__(self) -> bool:
        return bool(self.text) or self.planned


NONE = Asked()


def kept(asked: Asked, nodes: Sequence[Node], *, now: datetime) -> str:
    """Return it all as an events file's text. Refused where it can't be read, or has no events."""
    names = [node.name for node in nodes]
    found = read(asked.text, asked.name, names) if asked.text else NOTHING
    if asked.text and not found:
        raise Refused("events", _("There are no events in it: give a line for each."))
    if asked.planned:
        ahead = tuple(planned(names, now=now))
        if not ahead:
            raise Refused(
                "planned_windows",
                _("No window is planned for a node of the fleet that is simulated: leave it out."),
            )
        found = replace(found, windows=(*found.windows, *ahead))
    return "".join(write_events(found)) if found else ""


def read(text: str, name: str, nodes: Sequence[str]) -> Events:
    """Return the events of a file's text. Refused where a row of it can't be read."""
    try:
        found = read_events(text.splitlines(keepends=True), name, nodes)
    except ProblemError as error:
        raise Refused("events", str(error)) from None
    if found.problems:
        raise Refused("events", unreadable(found.problems))
    return found


def planned(names: Collection[str], *, now: datetime) -> Iterator[Window]:
    """Yield the windows of these nodes that are not over, in seconds from now. One query."""
    ahead = Drain.objects.filter(Q(ends_at=None) | Q(ends_at__gt=now), node__name__in=names)
    rows = ahead.order_by("starts_at", "node__position", "pk")
    for name, starts_at, ends_at in rows.values_list("node__name", "starts_at", "ends_at"):
        end = None if ends_at is None else -((now - ends_at) // SECOND)
        yield Window(name, max(0, (starts_at - now) // SECOND), end)


def unreadable(problems: Sequence[str]) -> str:
    """Say what is wrong with the first rows, and how many more there are."""
    more = len(problems) - SHOWN
    rest = [_("%(more)s more can't be read.", more=more)] if more > 0 else []
    return " ".join([*problems[:SHOWN], *rest])
