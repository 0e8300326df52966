"""Maintenance windows: set, changed, ended and called off, with a record of who did it.

A window is a promise to whoever repairs: nothing new is placed on its nodes that would overlap it.
Nobody is asked: what runs there leaves by the rules of allocator.draining. Callers ask for a replan
in the same transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Prefetch, Q, QuerySet

from clusters import services as clusters
from clusters.models import Drain, Node, Window, WindowEvent
from clusters.node_lists import WrongList, expand
from clusters.refusals import Refused, check_instant
from clusters.saying import instant
from clusters.saying import say as _

REASON_MAX = 200
_State, _Kind = Window.State, WindowEvent.Kind


class Stale(Refused):
    """Somebody changed the window after it was looked at."""


@dataclass(frozen=True)
class Span:
    """What a window is, or would be."""

    nodes: tuple[Node, ...]  # in the order of the grid
    starts_at: datetime
    ends_at: datetime | None
    reason: str

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @property
    def capacity_gpu_seconds(self) -> int | None:
        """GPU-seconds that it takes out of the plan; None while its end is open."""
        if self.ends_at is None:
            return None
        return self.gpus * int((self.ends_at - self.starts_at).total_seconds())


def find(text: str, *, at: datetime) -> tuple[Node, ...]:
    """Return the nodes of a list such as ``h100-n[01-08]``. Raises Refused."""
    try:
        names = expand(text)
    except WrongList as error:
        raise Refused("nodes", str(error)) from None
    if not names:
        raise Refused("nodes", _("Name a node at least."))
    known = {node.name: node for node in clusters.all_nodes()}
    missing = [name for name in names if name not in known]
    if missing:
        more = _(" and %(count)s more", count=len(missing) - 3) if missing[3:] else ""
        raise Refused(
            "nodes",
            _("There is no node %(missing)s%(more)s.", missing=", ".join(missing[:3]), more=more),
        )
    for name in names:
        until = known[name].active_until
        if until is not None and until <= at:
            raise Refused("nodes", _("%(name)s is not in use any more: leave it out.", name=name))
    wanted = set(names)
    return tuple(node for name, node in known.items() if name in wanted)


def proposed(
    *,
    nodes: Sequence[Node],
    starts_at: datetime | None,
    ends_at: datetime | None,
    reason: str,
    now: datetime,
) -> Span:
    """Return the window that would be set, if nothing forbids it. Writes nothing; raises Refused.

    Without `starts_at` it begins now; without `ends_at` it lasts until somebody ends it.
    """
    span = Span(tuple(nodes), starts_at or now, ends_at, reason.strip())
    if not span.nodes:
        raise Refused("nodes", _("Name a node at least."))
    check_instant(span.starts_at, "starts_at")
    if span.starts_at < now:
        raise Refused("starts_at", _("It would begin in the past: begin it now or later."))
    _check(span, now=now)
    return span


def _check(span: Span, *, now: datetime, but: Window | None = None) -> None:
    """Refuse what no window may be."""
    if span.ends_at is not None:
        check_instant(span.ends_at, "ends_at")
        if span.ends_at <= span.starts_at:
            raise Refused("ends_at", _("It would end before it begins: give a later end, or none."))
        if span.ends_at <= now:
            raise Refused(
                "ends_at", _("It would end in the past: end it now, or give a later end.")
            )
    if not span.reason:
        raise Refused("reason", _("Say why: whoever waits for the nodes reads it."))
    if len(span.reason) > REASON_MAX:
        raise Refused("reason", _("Say it in at most %(most)s characters.", most=REASON_MAX))
    other = _overlapping(span, but=but)
    if other is not None:
        number = _("window %(n)s", n=other.window_id) if other.window_id else _("a drain")
        until = _("to %(at)s", at=instant(other.ends_at)) if other.ends_at else _("without an end")
        raise Refused(
            "nodes",
            _(
                "%(node)s has %(number)s already, %(starts_at)s %(until)s: change that one, or "
                "choose another time or node.",
                node=other.node.name,
                number=number,
                starts_at=instant(other.starts_at),
                until=until,
            ),
        )


def _overlapping(span: Span, *, but: Window | None) -> Drain | None:
    """The first drain of one of the nodes that shares an instant with a span."""
    drains = Drain.objects.filter(node__in=span.nodes).select_related("node")
    drains = drains.filter(Q(ends_at=None) | Q(ends_at__gt=span.starts_at))
    # What empties a node before it is taken out of use binds no window.
    drains = drains.exclude(window=None, ends_at=None, node__active_until__isnull=False)
    if span.ends_at is not None:
        drains = drains.filter(starts_at__lt=span.ends_at)
    if but is not None:
        drains = drains.exclude(window=but)
    return drains.first()


def set_window(
    *,
    nodes: Sequence[Node],
    starts_at: datetime | None,
    ends_at: datetime | None,
    reason: str,
    by: User | None,
    now: datetime,
) -> Window:
    """Set a window. Arguments and refusals as `proposed` has them; then nothing is written."""
    with transaction.atomic():
        _lock(nodes)
        span = proposed(nodes=nodes, starts_at=starts_at, ends_at=ends_at, reason=reason, now=now)
        window = Window.objects.create(
            starts_at=span.starts_at, ends_at=span.ends_at, reason=span.reason
        )
        _write_drains(window, span)
        _record(window, span, _Kind.SET, by=by, now=now)
    return window


KEEP: Any = object()  # stands for what isn't to be changed


def changed(
    *,
    window: Window,
    now: datetime,
    version: int | None = None,
    starts_at: datetime = KEEP,
    ends_at: datetime | None = KEEP,
    reason: str = KEEP,
) -> Span:
    """Return what a window would be once it is changed. Writes nothing; raises Refused.

    `version` is the one that was looked at: Stale if it isn't the newest any more.
    """
    _refuse_if_stale(window, version)
    _refuse_if_over(window, now)
    before = span_of(window)
    span = replace(
        before,
        starts_at=before.starts_at if starts_at is KEEP else starts_at,
        ends_at=before.ends_at if ends_at is KEEP else ends_at,
        reason=before.reason if reason is KEEP else reason.strip(),
    )
    if span == before:
        raise Refused("window", _("That is what it is already: change its times or its reason."))
    if span.starts_at != before.starts_at:
        check_instant(span.starts_at, "starts_at")
        if before.starts_at <= now:
            raise Refused("starts_at", _("It has begun: only its end and its reason can change."))
        if span.starts_at < now:
            raise Refused("starts_at", _("It would begin in the past: begin it now or later."))
    _check(span, now=now, but=window)
    return span


def change(
    *, window: Window, by: User | None, now: datetime, version: int | None = None, **to: Any
) -> Window:
    """Give a window other instants or another reason, as `changed` has it."""
    with transaction.atomic():
        window = _locked(window, version)
        span = changed(window=window, now=now, **to)
        return _rewrite(window, span, _Kind.CHANGED, by=by, now=now)


def end_now(
    *, window: Window, by: User | None, now: datetime, version: int | None = None
) -> Window:
    """End a window that has begun: its nodes are in the plan again."""
    with transaction.atomic():
        window = _locked(window, version)
        _refuse_if_over(window, now)
        if window.starts_at >= now:
            raise Refused("window", _("It hasn't begun: call it off instead."))
        span = replace(span_of(window), ends_at=now)
        return _rewrite(window, span, _Kind.ENDED, by=by, now=now)


def call_off(
    *, window: Window, by: User | None, now: datetime, version: int | None = None
) -> Window:
    """Call off a window that hasn't begun: it leaves its record and nothing else."""
    with transaction.atomic():
        window = _locked(window, version)
        _refuse_if_over(window, now)
        if window.starts_at < now:
            raise Refused("window", _("It has begun: end it instead."))
        span = span_of(window)
        window.drains.all().delete()
        window.called_off_at = now
        window.version += 1
        window.save(update_fields=["called_off_at", "version"])
        _record(window, span, _Kind.CALLED_OFF, by=by, now=now)
    return window


def span_of(window: Window) -> Span:
    """Return what a window is; of one that was called off, without nodes."""
    drains = window.drains.select_related("node__pool__cluster")
    ordered = drains.order_by("node__pool__position", "node__pool_id", "node__position")
    nodes = tuple(drain.node for drain in ordered)
    return Span(nodes, window.starts_at, window.ends_at, window.reason)


def with_record(windows: QuerySet[Window]) -> QuerySet[Window]:
    """Have the records read with the windows. One query more."""
    record = WindowEvent.objects.select_related("by").order_by("version")
    return windows.prefetch_related(Prefetch("events", record))


def in_state(*states: str, at: datetime) -> QuerySet[Window]:
    """Return the windows that are in one of these states at an instant; all without any."""
    dropped, ended = Q(called_off_at__isnull=False), Q(ends_at__isnull=False, ends_at__lte=at)
    rules = {
        _State.CALLED_OFF: dropped,
        _State.OVER: ~dropped & ended,
        _State.OPEN: ~dropped & ~ended & Q(starts_at__lte=at),
        _State.PLANNED: ~dropped & ~ended & Q(starts_at__gt=at),
    }
    wanted = Q(pk__in=()) if states else Q()
    for state in states:
        wanted |= rules[_State(state)]
    return Window.objects.filter(wanted)


def _refuse_if_over(window: Window, now: datetime) -> None:
    state = window.state(now)
    if state == _State.CALLED_OFF:
        raise Refused("window", _("It was called off: set another one."))
    if state == _State.OVER:
        raise Refused("window", _("It is over: set another one."))


def _lock(nodes: Sequence[Node]) -> None:
    """Have whoever sets a window on one of these nodes wait; runs may start meanwhile."""
    rows = Node.objects.select_for_update(no_key=True).filter(pk__in=[n.pk for n in nodes])
    list(rows.order_by("pk"))


def _locked(window: Window, version: int | None) -> Window:
    found = Window.objects.select_for_update(no_key=True).get(pk=window.pk)
    _refuse_if_stale(found, version)
    _lock(span_of(found).nodes)
    return found


def _refuse_if_stale(window: Window, version: int | None) -> None:
    if version is not None and version != window.version:
        raise Stale("version", _("Somebody has changed it meanwhile: look at it again."))


def _rewrite(window: Window, span: Span, kind: str, *, by: User | None, now: datetime) -> Window:
    window.starts_at, window.ends_at, window.reason = span.starts_at, span.ends_at, span.reason
    window.version += 1
    window.save(update_fields=["starts_at", "ends_at", "reason", "version"])
    window.drains.update(starts_at=span.starts_at, ends_at=span.ends_at, reason=span.reason)
    _record(window, span, kind, by=by, now=now)
    return window


def _write_drains(window: Window, span: Span) -> None:
    Drain.objects.bulk_create(
        Drain(
            window=window,
            node=node,
            starts_at=span.starts_at,
            ends_at=span.ends_at,
            reason=span.reason,
        )
        for node in span.nodes
    )


def _record(window: Window, span: Span, kind: str, *, by: User | None, now: datetime) -> None:
    WindowEvent.objects.create(
        window=window,
        version=window.version,
        kind=kind,
        at=now,
        by=by,
        nodes=[node.name for node in span.nodes],
        starts_at=span.starts_at,
        ends_at=span.ends_at,
        reason=span.reason,
    )
