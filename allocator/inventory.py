"""Which pools and nodes there are, changed by people on pages, over the API and by commands.

What the ledger names stays: a node is taken out of use from an instant on, never deleted, and no
instant is one that is charged already. Who may is asked first, of `budgets.access`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max, QuerySet

from allocator import emptying, requests, timesteps
from allocator.installing import checked_reason, checked_word
from budgets import decisions
from budgets.models import Decision
from clusters.models import Cluster, Drain, Node, Pool
from clusters.node_lists import WrongList, expand
from clusters.refusals import Refused, check_instant
from clusters.saying import instant, number
from clusters.saying import say as _
from clusters.windows import Span
from ledger.lock import lock_ledger
from ledger.models import ClosedTimestep

GPUS_MAX = 62  # of a node: its states are bit masks in a signed 64-bit integer
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST = 1_000  # nodes at once
LABEL_MAX = 100
SECOND = timedelta(seconds=1)
TRIGGER = "drain"  # of the replan: nodes come and go


@dataclass(frozen=True)
class Addition:
    """Nodes that would be added to a pool; not saved yet."""

    pool: Pool
    nodes: tuple[Node, ...]
    at: datetime
    reason: str

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


@dataclass(frozen=True)
class Retirement:
    """A node that would be taken out of use, and when it is surely empty."""

    node: Node
    at: datetime
    reason: str
    outlook: emptying.WindowOutlook


# --- Nodes ----------------------------------------------------------------------------------------


def proposed_nodes(
    *,
    pool: Pool,
    nodes: str,
    gpus: int,
    label: str,
    effective_at: datetime | None,
    reason: str,
    now: datetime,
) -> Addition:
    """Return the nodes that would be added, after the pool's last. Writes nothing; raises Refused.

    `nodes` names them as a list such as ``h100-n[01-08]``; each has as many GPUs.
    """
    names, why = _new_names(nodes), checked_reason(reason)
    if not 1 <= gpus <= GPUS_MAX:
        raise Refused("gpus", _("Give 1 to %(most)s GPUs a node.", most=GPUS_MAX))
    word = checked_word(label, "label", LABEL_MAX, may_be_empty=True)
    at = _at(effective_at, pool.cluster, now)
    last = pool.nodes.aggregate(last=Max("position"))["last"]
    first = 0 if last is None else last + 1
    made = (
        Node(pool=pool, name=name, gpus=gpus, label=word, position=first + n, active_from=at)
        for n, name in enumerate(names)
    )
    return Addition(pool, tuple(made), at, why)


def add_nodes(*, pool: Pool, by: User | None, now: datetime, **asked: object) -> Addition:
    """Add nodes to a pool. Arguments and refusals as `proposed_nodes` has them."""
    with _changing():
        made = proposed_nodes(pool=pool, now=now, **asked)  # type: ignore[arg-type]
        Node.objects.bulk_create(made.nodes)
        for node in made.nodes:
            after = f"{pool.slug}, {node.gpus} × GPU, from {_utc(made.at)}"
            _note(node, "", after, made.reason, by, now)
        requests.replan(TRIGGER)
    return made


def label_node(*, node: Node, label: str, reason: str, by: User | None, now: datetime) -> Node:
    """Write what people call a node; its name stays, by which its cluster knows it."""
    word, why = checked_word(label, "label", LABEL_MAX, may_be_empty=True), checked_reason(reason)
    with transaction.atomic():
        node = Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        if node.label == word:
            raise Refused("label", _("That is its label already: write another one."))
        before, node.label = node.label, word
        node.save(update_fields=["label"])
        _note(node, before, word, why, by, now)
    return node


def proposed_retirement(
    *, node: Node, effective_at: datetime | None, reason: str, now: datetime
) -> Retirement:
    """Return what taking a node out of use would be. Writes nothing; raises Refused.

    It is empty by then, since what runs there leaves by its contract: never before that.
    """
    why = checked_reason(reason)
    if node.active_until is not None and node.active_until <= now:
        until = instant(node.active_until)
        words = _("%(name)s is not in use any more since %(at)s.", name=node.name, at=until)
        raise Refused("effective_at", words)
    at = _at(effective_at, node.pool.cluster, now)
    if at <= node.active_from:
        words = _(
            "%(name)s comes into use at %(at)s: give a later instant, or call it off.",
            name=node.name,
            at=instant(node.active_from),
        )
        raise Refused("effective_at", words)
    if at == node.active_until:
        raise Refused("effective_at", _("It is to leave then already: give another instant."))
    span = Span((node,), max(now, _empty_from(at)), None, why)
    return Retirement(node, at, why, emptying.of_span(span, now=now))


def retire(
    *, node: Node, effective_at: datetime | None, reason: str, by: User | None, now: datetime
) -> Node:
    """Take a node out of use from an instant on, and plan nothing on it that would outlast that.

    Raises Refused as `proposed_retirement`, and for an instant at which it isn't surely empty.
    """
    with _changing():
        node = Node.objects.select_related("pool__cluster").get(pk=node.pk)
        asked = proposed_retirement(node=node, effective_at=effective_at, reason=reason, now=now)
        refuse_under_a_run(asked)
        before = f"until {_utc(node.active_until)}" if node.active_until else ""
        _own_drain(node).delete()
        node.active_until = asked.at
        node.save(update_fields=["active_until"])
        Drain.objects.create(node=node, starts_at=_empty_from(asked.at), reason=asked.reason)
        _note(node, before, f"until {_utc(asked.at)}", asked.reason, by, now)
        requests.replan(TRIGGER)
    return node


def keep(*, node: Node, reason: str, by: User | None, now: datetime) -> Node:
    """Leave a node in use that was to leave later."""
    why = checked_reason(reason)
    with _changing():
        node = Node.objects.select_related("pool__cluster").get(pk=node.pk)
        until = node.active_until
        if until is None or until <= _first(node.pool.cluster, now):
            words = _("Nothing is to be undone: it is in use for good, or has left already.")
            raise Refused("reason", words)
        _own_drain(node).delete()
        node.active_until = None
        node.save(update_fields=["active_until"])
        _note(node, f"until {_utc(until)}", "in use", why, by, now)
        requests.replan(TRIGGER)
    return node


def call_off(*, node: Node, reason: str, by: User | None, now: datetime) -> None:
    """Drop a node that hasn't come into use: nothing names it yet, and its name is free again."""
    why = checked_reason(reason)
    with _changing():
        node = Node.objects.select_related("pool__cluster").get(pk=node.pk)
        if node.active_from <= _first(node.pool.cluster, now):
            words = _("%(name)s is in use: take it out of use instead.", name=node.name)
            raise Refused("reason", words)
        if node.drains.exclude(window=None).exists():
            words = _("A window is set on %(name)s: call that off first.", name=node.name)
            raise Refused("reason", words)
        before = f"{node.pool.slug}, from {_utc(node.active_from)}"
        node.drains.all().delete()
        node.delete()
        _note(node, before, "called off", why, by, now)
        requests.replan(TRIGGER)


def refuse_under_a_run(asked: Retirement) -> None:
    """Refuse an instant at which something may still run there."""
    free = asked.outlook.free_from
    if asked.outlook.runs and free >= asked.at:
        raise Refused(
            "effective_at",
            _(
                "Something runs on %(name)s, which is surely empty at %(at)s: take it out of use "
                "after that.",
                name=asked.node.name,
                at=instant(free),
            ),
        )


def _own_drain(node: Node) -> QuerySet[Drain]:
    """What empties a node that is to leave."""
    drains = Drain.objects.filter(node=node, window=None, ends_at=None)
    until = node.active_until
    return drains.filter(starts_at=_empty_from(until)) if until else drains.none()


def _empty_from(until: datetime) -> datetime:
    """The last tick before a node leaves: what its cycle stops there is not lost with the node."""
    return timesteps.floor(until - SECOND)


def _new_names(text: str) -> list[str]:
    try:
        names = expand(text)
    except WrongList as error:
        raise Refused("nodes", str(error)) from None
    if not names:
        raise Refused("nodes", _("Name a node at least."))
    if len(names) > MOST:
        words = _("These are more than %(most)s nodes: name fewer.", most=number(MOST))
        raise Refused("nodes", words)
    for name in names:
        if not NAME.fullmatch(name):
            words = _(
                "%(name)s is no name of a node: letters, digits, points, - and _, 64 at most.",
                name=repr(name),
            )
            raise Refused("nodes", words)
    taken = Node.objects.filter(name__in=names).order_by("name").values_list("name", flat=True)
    for name in taken[:1]:
        words = _("There is, or was, a node %(name)s: a name is given once only.", name=name)
        raise Refused("nodes", words)
    return names


# --- What both need -------------------------------------------------------------------------------


@contextmanager
def _changing() -> Iterator[None]:
    """Have no cycle look at the nodes, and no timestep closed, while they are changed."""
    with requests.single_flight() as alone:
        if not alone:
            raise Refused("reason", _("A cycle is being planned right now: ask again in a moment."))
        with transaction.atomic():
            lock_ledger()
            yield


def _first(cluster: Cluster, now: datetime) -> datetime:
    """The first instant that is neither over, nor charged, nor observed."""
    closed = ClosedTimestep.objects.order_by("-end").first()
    seen = Cluster.objects.values_list("observed_until", flat=True).get(pk=cluster.pk)
    told = (now.replace(microsecond=0), closed.end if closed else None, seen)
    return max(at for at in told if at is not None)


def _at(asked: datetime | None, cluster: Cluster, now: datetime) -> datetime:
    first = _first(cluster, now)
    if asked is None:
        return first
    check_instant(asked, "effective_at")
    if asked < first:
        raise Refused(
            "effective_at",
            _(
                "What was before %(first)s is accounted for, and stays so: give an instant from "
                "then on.",
                first=instant(first),
            ),
        )
    return asked


def _utc(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _note(node: Node, before: str, after: str, reason: str, by: User | None, now: datetime) -> None:
    words = {"subject": node.name, "before": before, "after": after, "reason": reason}
    decisions.note(kind=Decision.Kind.NODE, by=by, now=now, **words)
