"""The page of one window of maintenance: when its nodes are free, and what happens to each run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import Http404

from allocator import emptying, window_effects
from allocator.emptying import How, NodeOutlook, Stay, WindowOutlook
from allocator.job_rows import JobRow
from allocator.models import Outlook
from allocator.pages.names import Names
from allocator.window_effects import Effect
from budgets.access import Person, may_administer
from budgets.hues import Hue
from clusters import services as clusters
from clusters import windows
from clusters.models import Node, Pool, Window, WindowEvent
from clusters.saying import say as _
from clusters.windows import Span
from workloads.models import Job


@dataclass(frozen=True)
class Named:
    """A job as the reader may know it: None and no label where they may not see it."""

    job: Job | JobRow | None
    label: str
    hue: Hue


@dataclass(frozen=True)
class RunLine:
    """A run that holds GPUs of the window, and what happens to it."""

    named: Named
    stay: Stay
    returns: datetime | None  # when the plan lets it go on elsewhere, once it was stopped

    @property
    def fate(self) -> str:
        """Which sentence tells it: ends, protected, interruptible, service, starting, stopping."""
        if self.stay.ends_first and self.stay.how != How.STOPPING:
            return "ends"
        return str(self.stay.how)


@dataclass(frozen=True)
class NodeLine:
    """One node of a window; `because` what holds it longest."""

    one: NodeOutlook
    because: Named | None


@dataclass(frozen=True)
class Moved:
    """A job with an instant: a planned start that moves, or a likely start of what waits."""

    named: Named
    gpus: int
    at: datetime | None


@dataclass(frozen=True)
class Does:
    """What a window does, or would do."""

    outlook: WindowOutlook
    nodes: list[NodeLine]
    runs: list[RunLine]
    interrupted: int
    moves: list[Moved]
    because: Named | None

    @property
    def span(self) -> Span:
        return self.outlook.span


@dataclass(frozen=True)
class WindowPage:
    """All that the page shows. `does` is None once the window is over or called off."""

    now: datetime
    window: Window
    state: str
    nodes: list[str]
    gpus: int
    span: Span
    does: Does | None
    waiting: list[Moved]
    events: list[WindowEvent]
    may_change: bool

    @property
    def has_begun(self) -> bool:
        return self.window.starts_at < self.now

    @property
    def first(self) -> WindowEvent:
        return self.events[0]

    @property
    def lately(self) -> list[WindowEvent]:
        return list(reversed(self.events))

    @property
    def a_day_gpu_seconds(self) -> int:
        """What it takes a day, of one without an end."""
        return self.gpus * 24 * 3600


def find(pk: int) -> Window:
    """Return a window with its record; else Http404."""
    found = windows.with_record(Window.objects.filter(pk=pk)).first()
    if found is None:
        raise Http404(_("There is no such window."))
    return found


def page(user: Person, pk: int, *, now: datetime) -> WindowPage:
    """Read one window. A constant number of queries."""
    window = find(pk)
    names = Names.load(user)
    events = list(window.events.all())
    state = window.state(now)
    ahead = state in (Window.State.PLANNED, Window.State.OPEN)
    gpus = dict(Node.objects.order_by().values_list("name", "gpus"))
    nodes = list(events[0].nodes)
    return WindowPage(
        now=now,
        window=window,
        state=state,
        nodes=nodes,
        gpus=sum(gpus.get(name, 0) for name in nodes),
        span=windows.span_of(window),
        does=_does(names, emptying.of_window(window, now=now)) if ahead else None,
        waiting=[_waits(names, row) for row in window_effects.waiting(nodes)] if ahead else [],
        events=events,
        may_change=ahead and may_administer(user),
    )


def require(user: Person) -> None:
    """Http404 for who may set no window: the page that sets them isn't there for them."""
    if not may_administer(user):
        raise Http404(_("There is no such page, or none that you may see."))


def pools(now: datetime) -> list[tuple[Pool, list[Node]]]:
    """Return the nodes that can be chosen, by pool."""
    found: dict[int, tuple[Pool, list[Node]]] = {}
    for node in clusters.active_nodes(at=now):
        found.setdefault(node.pool_id, (node.pool, []))[1].append(node)
    return list(found.values())


def preview(user: Person, asked: dict[str, Any], *, now: datetime) -> Does:
    """Return what a window would do. Raises Refused as `clusters.windows.proposed` does."""
    span = windows.proposed(**asked, now=now)
    return _does(Names.load(user), emptying.of_span(span, now=now))


def preview_change(user: Person, window: Window, to: dict[str, Any], *, now: datetime) -> Does:
    """Return what a window would do once it is changed. Raises Refused."""
    span = windows.changed(window=window, now=now, **to)
    return _does(Names.load(user), emptying.of_span(span, now=now, instead_of=window))


def _does(names: Names, outlook: WindowOutlook) -> Does:
    effect: Effect = window_effects.effect(outlook)
    because = outlook.because
    return Does(
        outlook=outlook,
        nodes=[_node(names, one) for one in outlook.nodes],
        runs=[
            RunLine(_named(names, stay.job), stay, _returns(effect, stay)) for stay in outlook.runs
        ],
        interrupted=len(effect.interrupted),
        moves=[Moved(_named(names, m.job), m.job.gpus, m.at) for m in effect.moves],
        because=None if because is None else _named(names, because.job),
    )


def _returns(effect: Effect, stay: Stay) -> datetime | None:
    at = effect.returns.get(stay.run.job_id)
    return at if at is not None and stay.job.resumable and at >= stay.likely else None


def _node(names: Names, one: NodeOutlook) -> NodeLine:
    return NodeLine(one, _named(names, one.stays[0].job) if one.stays else None)


def _waits(names: Names, row: Outlook) -> Moved:
    return Moved(_named(names, row.job), row.job.gpus, row.start_likely)


def _named(names: Names, job: Job | JobRow) -> Named:
    path = job.budget.path
    if not names.sees(path):
        return Named(None, "", 0)
    return Named(job, f"{job.budget.slug}/{job.name}", names.hue_of(path))
