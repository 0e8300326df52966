"""A cluster that exists in the database and really runs jobs against the clock it is given.

A job's ``spec["simulate"]`` may say how it behaves: ``duration_s`` of work (default: drawn around
the expected duration from the run's id, so that it is the same each time), ``outcome`` (completed
or failed), ``fails_after_s``, and ``idle``: spans ``[from_s, to_s]`` since its start in which it
holds its GPUs and doesn't use them (``to_s`` null: until its end).
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Min, Q

from clusters.connectors.base import (
    GpuReport,
    IdleWindow,
    NodeReport,
    Observation,
    Placement,
    Refusal,
    RunReport,
    StartOrder,
)
from clusters.models import (
    Cluster,
    Node,
    NodeState,
    SimulatedFault,
    SimulatedPlacement,
    SimulatedTask,
)
from clusters.saying import number
from clusters.saying import say as _

SPREAD = 0.5  # σ of the log-normal error of an expected duration
LONGEST_S = 366 * 24 * 3600
OUTCOMES = ("completed", "failed")


class SimulatedConnector:
    """Observe and drive a simulated cluster; its memory is SimulatedTask and its placements."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def problem_with(self, spec: Mapping[str, Any]) -> str | None:
        says = spec.get("simulate", {})
        if not isinstance(says, dict):
            return _("Give simulate as an object, or leave it out.")
        for name in ("duration_s", "fails_after_s"):
            if not _is_seconds(says.get(name)):
                return _(
                    "Give %(name)s in simulate as 1 to %(longest_s)s whole seconds.",
                    name=name,
                    longest_s=number(LONGEST_S),
                )
        if says.get("outcome", OUTCOMES[0]) not in OUTCOMES:
            return _("Choose outcome in simulate from %(outcomes)s.", outcomes=", ".join(OUTCOMES))
        if not _are_spans(says.get("idle", [])):
            return _(
                "Give idle in simulate as a list of [from_s, to_s] in seconds; to_s may be null."
            )
        return None

    def observe(
        self, *, since: datetime | None, at: datetime, live: Collection[str]
    ) -> Observation:
        with transaction.atomic():
            nodes, faults = self._nodes_and_faults(at)
            self._let_time_pass(at, nodes, faults)
            tasks = SimulatedTask.objects.filter(cluster=self.cluster, external_id__in=live)
            return Observation(
                at=at,
                runs=tuple(_report(task) for task in tasks),
                gpus=tuple(self._gpu_reports(nodes, faults, since, at)),
                nodes=tuple(_node_reports(nodes, faults, since, at)),
            )

    def start(self, order: StartOrder, *, at: datetime) -> RunReport | Refusal:
        with transaction.atomic():
            known = SimulatedTask.objects.filter(external_id=order.external_id).first()
            if known is not None:
                return _report(known)
            nodes = {n.name: n for n in Node.objects.filter(pool__cluster=self.cluster)}
            if refusal := self._refusal(order, nodes, at):
                return refusal
            lasts, outcome = _behaviour(order)
            task = SimulatedTask.objects.create(
                cluster=self.cluster,
                external_id=order.external_id,
                started_at=at,
                ends_at=None if lasts is None else at + timedelta(seconds=lasts),
                outcome=outcome,
                idle=_idle_spans(order.spec),
            )
            _place(task, order.placements, nodes, at)
            return _report(task)

    def stop(self, external_id: str, *, at: datetime) -> RunReport:
        with transaction.atomic():
            self._let_time_pass(at, *self._nodes_and_faults(at))
            task = SimulatedTask.objects.get(external_id=external_id)
            if task.stopped_at is None:
                self._end(task, at=max(at, task.started_at), outcome="stopped")
            return _report(task)

    def set_time_limit(self, order: StartOrder, *, at: datetime) -> RunReport:
        with transaction.atomic():
            tasks = SimulatedTask.objects.select_for_update(no_key=True)
            task = tasks.get(external_id=order.external_id)
            if task.stopped_at is None and (task.ends_at is None or task.ends_at > at):
                lasts, task.outcome = _behaviour(order)
                task.ends_at = None if lasts is None else task.started_at + timedelta(seconds=lasts)
                task.save(update_fields=["ends_at", "outcome"])
            return _report(task)

    def resize(
        self, external_id: str, placements: Sequence[Placement], *, at: datetime
    ) -> datetime:
        with transaction.atomic():
            task = SimulatedTask.objects.get(external_id=external_id)
            if task.stopped_at is not None:
                return task.stopped_at
            nodes = {n.name: n for n in Node.objects.filter(pool__cluster=self.cluster)}
            wanted = {(nodes[p.node].pk, p.mask): p for p in placements}
            held = list(task.placements.filter(ended_at=None))
            if wanted.keys() == {(h.node_id, h.mask) for h in held}:
                touched = task.placements.exclude(ended_at__gt=at)
                return max(
                    max((p.started_at for p in touched), default=task.started_at),
                    max((p.ended_at for p in touched if p.ended_at), default=task.started_at),
                )
            for placement in held:
                if wanted.pop((placement.node_id, placement.mask), None) is None:
                    SimulatedPlacement.objects.filter(pk=placement.pk).update(ended_at=at)
            _place(task, wanted.values(), nodes, at)
            return at

    def idle(self, windows: Sequence[IdleWindow]) -> list[int]:
        ids = {window.external_id for window in windows}
        tasks = {t.external_id: t for t in SimulatedTask.objects.filter(external_id__in=ids)}
        return [_idle_seconds(tasks.get(w.external_id), w) * w.gpus for w in windows]

    def _nodes_and_faults(self, at: datetime) -> tuple[list[Node], list[SimulatedFault]]:
        nodes = list(Node.objects.filter(pool__cluster=self.cluster))
        return nodes, list(SimulatedFault.objects.filter(node__in=nodes, starts_at__lte=at))

    def _let_time_pass(self, at: datetime, nodes: list[Node], faults: list[SimulatedFault]) -> None:
        """End what has ended by now: by itself, or with its node, whichever came first."""
        running = SimulatedTask.objects.filter(cluster=self.cluster, stopped_at=None)
        failed = self._failures(at, nodes, faults)
        for task in running.filter(Q(ends_at__lte=at) | Q(pk__in=failed)):
            fault = failed.get(task.pk)
            if fault is not None and (task.ends_at is None or fault < task.ends_at):
                self._end(task, at=fault, outcome="node_failure")
            elif task.ends_at is not None:
                self._end(task, at=task.ends_at, outcome=task.outcome)

    @staticmethod
    def _failures(
        at: datetime, nodes: list[Node], faults: list[SimulatedFault]
    ) -> dict[int, datetime]:
        """Tasks whose node fails, or is taken away, by ``at`` while they hold GPUs of it → when."""
        gone = [(n.pk, n.active_until) for n in nodes if n.active_until and n.active_until <= at]
        spans: list[tuple[int, datetime, datetime | None]] = [
            *((fault.node_id, fault.starts_at, fault.ends_at) for fault in faults),
            *((pk, until, None) for pk, until in gone),
        ]
        first: dict[int, datetime] = {}
        for node_id, starts_at, ends_at in spans:
            hit = SimulatedPlacement.objects.filter(node_id=node_id, task__stopped_at=None)
            hit = hit.filter(Q(ended_at=None) | Q(ended_at__gt=starts_at))
            if ends_at is not None:
                hit = hit.filter(started_at__lt=ends_at)
            for task_id, started_at in hit.values_list("task_id", "started_at"):
                instant = max(starts_at, started_at)
                first[task_id] = min(first.get(task_id, instant), instant)
        return first

    def _end(self, task: SimulatedTask, *, at: datetime, outcome: str) -> None:
        task.stopped_at, task.outcome = at, outcome
        task.save(update_fields=["stopped_at", "outcome"])
        task.placements.filter(ended_at=None).update(ended_at=at)

    def _refusal(self, order: StartOrder, nodes: dict[str, Node], at: datetime) -> Refusal | None:
        """A real cluster too refuses GPUs that don't exist, are down or taken."""
        for placement in order.placements:
            node = nodes.get(placement.node)
            if node is None or placement.mask & ~node.full_mask or not node.is_active(at):
                return Refusal(external_id=order.external_id, reason=f"no such GPUs on {placement}")
            taken = _held_mask(node, at)
            if taken & placement.mask:
                return Refusal(
                    external_id=order.external_id, reason=f"GPUs of {node.name} are taken"
                )
            if SimulatedFault.objects.filter(node=node, starts_at__lte=at, ends_at__gt=at).exists():
                return Refusal(external_id=order.external_id, reason=f"{node.name} is down")
        return None

    def _gpu_reports(
        self,
        nodes: list[Node],
        faults: list[SimulatedFault],
        since: datetime | None,
        at: datetime,
    ) -> Iterable[GpuReport]:
        """One report per node and instant at which something changed on it in [since, at]."""
        placements: dict[int, list[SimulatedPlacement]] = defaultdict(list)
        touched = SimulatedPlacement.objects.filter(node__in=nodes, started_at__lte=at)
        if since is not None:
            touched = touched.filter(Q(ended_at=None) | Q(ended_at__gte=since))
        for placement in touched:
            placements[placement.node_id].append(placement)
        for node in nodes:
            own_faults = [f for f in faults if f.node_id == node.pk]
            for instant in _instants(node, placements[node.pk], own_faults, since, at):
                yield _gpu_report(node, placements[node.pk], own_faults, instant)


def _place(
    task: SimulatedTask,
    placements: Iterable[Placement],
    nodes: dict[str, Node],
    at: datetime,
) -> None:
    SimulatedPlacement.objects.bulk_create(
        SimulatedPlacement(task=task, node=nodes[p.node], mask=p.mask, started_at=at)
        for p in placements
    )


def _report(task: SimulatedTask) -> RunReport:
    ended = task.stopped_at is not None
    return RunReport(
        external_id=task.external_id,
        started_at=task.started_at,
        ended_at=task.stopped_at,
        outcome=task.outcome if ended else "",
    )


def _held_mask(node: Node, at: datetime) -> int:
    held = SimulatedPlacement.objects.filter(node=node, ended_at=None, started_at__lte=at)
    mask = 0
    for other in held.values_list("mask", flat=True):
        mask |= other
    return mask


def _behaviour(order: StartOrder) -> tuple[int | None, str]:
    """Seconds until the run ends by itself (None: never) and how it ends."""
    says: dict[str, Any] = order.spec.get("simulate", {})
    if order.open_ended:
        return None, "completed"
    whole = says.get("duration_s")
    if whole is None:
        left = max(1, int(order.expected_s * _error(order.external_id)))
    else:
        left = max(1, int(whole) - order.progress_s)
    outcome = str(says.get("outcome", "completed"))
    fails = says.get("fails_after_s")
    if fails is not None and fails < left:
        left, outcome = max(1, int(fails)), "failed"
    if order.time_limit_s is not None and order.time_limit_s < left:
        return order.time_limit_s, "timed_out"
    return left, outcome


def _error(external_id: str) -> float:
    """A log-normal factor around 1, drawn from the id: the same id, the same factor."""
    digest = hashlib.sha256(external_id.encode()).digest()
    u = (int.from_bytes(digest[:8], "big") + 1) / 2**64
    v = int.from_bytes(digest[8:16], "big") / 2**64
    normal = math.sqrt(-2 * math.log(min(u, 1.0))) * math.cos(2 * math.pi * v)
    return math.exp(SPREAD * normal - SPREAD**2 / 2)


def _is_seconds(value: object, least: int = 1) -> bool:
    """Whether it is a length of time, or none at all."""
    return value is None or (type(value) is int and least <= value <= LONGEST_S)


def _are_spans(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(span, list)
        and len(span) == 2
        and span[0] is not None
        and all(_is_seconds(second, 0) for second in span)
        for span in value
    )


def _idle_spans(spec: dict[str, Any]) -> list[list[int | None]]:
    return [list(span) for span in spec.get("simulate", {}).get("idle", [])]


def _idle_seconds(task: SimulatedTask | None, window: IdleWindow) -> int:
    """Whole seconds of the window inside the task's idle spans."""
    if task is None:
        return 0
    idle = 0
    for start_s, end_s in task.idle:
        start = task.started_at + timedelta(seconds=start_s)
        end = window.end if end_s is None else task.started_at + timedelta(seconds=end_s)
        overlap = min(end, window.end) - max(start, window.start)
        idle += max(0, int(overlap.total_seconds()))
    return idle


def _instants(
    node: Node,
    placements: list[SimulatedPlacement],
    faults: list[SimulatedFault],
    since: datetime | None,
    at: datetime,
) -> list[datetime]:
    """When something changed on the node in [since, at]; its beginning on the first look."""
    changes = {p.started_at for p in placements}
    changes |= {p.ended_at for p in placements if p.ended_at is not None}
    changes |= {f.starts_at for f in faults} | {f.ends_at for f in faults}
    first = node.active_from if since is None else max(since, node.active_from)
    if since is None or since <= node.active_from:
        changes.add(node.active_from)
    return sorted(c for c in changes if first <= c <= at)


def _gpu_report(
    node: Node,
    placements: list[SimulatedPlacement],
    faults: list[SimulatedFault],
    at: datetime,
) -> GpuReport:
    held = 0
    for p in placements:
        if p.started_at <= at and (p.ended_at is None or at < p.ended_at):
            held |= p.mask
    down = node.full_mask if any(f.starts_at <= at < f.ends_at for f in faults) else 0
    free = node.full_mask & ~(held | down)
    return GpuReport(node=node.name, at=at, held=held & ~down, free=free, down=down)


def _node_reports(
    nodes: list[Node], faults: list[SimulatedFault], since: datetime | None, at: datetime
) -> list[NodeReport]:
    up, down = NodeState.State.UP, NodeState.State.DOWN
    names = {node.pk: node.name for node in nodes}
    reports = [
        NodeReport(node=n.name, at=n.active_from, state=up, reason="joined")
        for n in nodes
        if n.active_from <= at and (since is None or since < n.active_from)
    ]
    for fault in faults:
        for instant, state in ((fault.starts_at, down), (fault.ends_at, up)):
            if instant <= at and (since is None or since < instant):
                reports.append(
                    NodeReport(
                        node=names[fault.node_id], at=instant, state=state, reason=fault.reason
                    )
                )
    return sorted(reports, key=lambda report: (report.at, report.node))


def next_change(*, after: datetime) -> datetime | None:
    """When the next thing happens by itself in any simulated cluster: an end, a fault, a repair,
    a node that is taken away."""
    ends = SimulatedTask.objects.filter(stopped_at=None, ends_at__gt=after)
    faults = SimulatedFault.objects.filter(starts_at__gt=after)
    repairs = SimulatedFault.objects.filter(ends_at__gt=after)
    leaving = Node.objects.filter(active_until__gt=after)
    instants = (
        ends.aggregate(first=Min("ends_at"))["first"],
        faults.aggregate(first=Min("starts_at"))["first"],
        repairs.aggregate(first=Min("ends_at"))["first"],
        leaving.aggregate(first=Min("active_until"))["first"],
    )
    return min((instant for instant in instants if instant is not None), default=None)
