"""What befell the own fleet in a window of the history: maintenance, failures, nodes to come.

A window of maintenance is known from when somebody set it, and is at each instant what its record
says it was then. A node that came into use within the history is taken for down until then.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby, zip_longest

from django.db.models import Q

from allocator.core.events import Events, Failure, Window
from clusters import services as clusters
from clusters.models import Drain, Node, NodeState, WindowEvent

SECOND = timedelta(seconds=1)


def read(*, start: datetime, end: datetime, names: Collection[str]) -> Events:
    """Return what befell the nodes of these names in [start, end), in seconds from its start.

    A constant number of queries.
    """
    reader = _Reader(start, end, frozenset(names))
    windows = [*reader.windows(), *reader.drains()]
    return Events(tuple(windows), tuple(sorted(reader.failures(), key=lambda one: one.down_s)))


class _Reader:
    def __init__(self, start: datetime, end: datetime, names: frozenset[str]) -> None:
        self.start, self.end, self.names = start, end, names

    def _second(self, at: datetime) -> int:
        return (at - self.start) // SECOND

    def windows(self) -> Iterator[Window]:
        """One for each node and version of a window that counted within the history."""
        lasts = Q(ends_at=None) | Q(ends_at__gt=self.start)
        rows = WindowEvent.objects.filter(at__lt=self.end).order_by("window_id", "version")
        touching = WindowEvent.objects.filter(lasts, starts_at__lt=self.end, at__lt=self.end)
        for _, events in groupby(
            rows.filter(window__in=touching.values("window")), lambda event: event.window_id
        ):
            yield from self._versions(list(events))

    def _versions(self, events: Sequence[WindowEvent]) -> Iterator[Window]:
        for event, following in zip_longest(events, events[1:]):
            until = None if following is None else self._second(following.at)
            if event.kind == WindowEvent.Kind.CALLED_OFF or (until is not None and until <= 0):
                continue
            for name in event.nodes:
                if name in self.names:
                    known = max(0, self._second(event.at))
                    yield Window(name, *self._span(event), known_s=known, replaced_s=until)

    def drains(self) -> Iterator[Window]:
        """Those that a script wrote: nobody knows since when they were known."""
        lasts = Q(ends_at=None) | Q(ends_at__gt=self.start)
        rows = Drain.objects.filter(lasts, window=None, starts_at__lt=self.end)
        for drain in rows.select_related("node").order_by("starts_at", "pk"):
            if drain.node.name in self.names:
                yield Window(drain.node.name, *self._span(drain))

    def _span(self, of: WindowEvent | Drain) -> tuple[int, int | None]:
        return self._second(of.starts_at), None if of.ends_at is None else self._second(of.ends_at)

    def failures(self) -> Iterator[Failure]:
        """By the log of what clusters said of their nodes."""
        late = Node.objects.filter(active_from__gt=self.start, active_from__lt=self.end)
        for name, since in late.values_list("name", "active_from"):
            if name in self.names:
                yield Failure(name, 0, self._second(since), is_new=True)
        before = Q(pk__in=clusters.newest(NodeState, at=self.start))
        inside = Q(at__gt=self.start, at__lt=self.end)
        rows = NodeState.objects.filter(before | inside).order_by("at", "pk")
        down: dict[str, int] = {}
        for name, at, state in rows.values_list("node__name", "at", "state"):
            if name not in self.names:
                continue
            if state == NodeState.State.DOWN:
                down.setdefault(name, max(0, self._second(at)))
            elif name in down:
                yield Failure(name, down.pop(name), self._second(at))
        for name, since_s in down.items():
            yield Failure(name, since_s, None)
