"""Calls to connectors, each guarded by itself.

Whatever a connector raises, or answers that is no answer, is the trouble of its cluster alone: it
is logged, the caller raises an alarm, and the cycle goes on with the next call, cluster and step.
A cluster that fails several calls in a row is left alone for the rest of the cycle, so that one
that can't be reached costs a few timeouts and not one for each run.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TypeVar

from allocator import alarms
from clusters.connectors import connector_for
from clusters.connectors.base import (
    Connector,
    IdleWindow,
    Observation,
    Placement,
    Refusal,
    RunReport,
    StartOrder,
)
from clusters.models import Cluster, Node
from workloads.models import Holding, Run

logger = logging.getLogger(__name__)

IN_A_ROW = 3  # calls that fail before a cluster is left alone
Answer = TypeVar("Answer")


class NoAnswer(Exception):
    """A call failed, or wasn't made because the cluster is left alone; the text is a sentence."""


class BadAnswer(Exception):
    """A connector answered what can't be true."""


class Line:
    """The calls of one cycle to one cluster. Each method is its connector's, and raises NoAnswer.

    Telling idle time often is another machine's work, so its failures count by themselves.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.observed = False
        self.failed = False  # any call but for idle time
        self._in_a_row = {"drive": 0, "idle": 0}
        self._trouble = {"drive": "", "idle": ""}

    @property
    def is_left_alone(self) -> bool:
        return self._in_a_row["drive"] >= IN_A_ROW

    @property
    def answers(self) -> bool:
        """Whether it told what happened, and goes on answering, although a call failed."""
        return self.observed and not self.is_left_alone

    def observe(
        self, *, since: datetime | None, at: datetime, live: Collection[str]
    ) -> Observation:
        def ask(connector: Connector) -> Observation:
            seen = connector.observe(since=since, at=at, live=live)
            _expect(seen, Observation)
            for report in seen.runs:
                _check(report)
            self._check_nodes({gpu.node for gpu in seen.gpus} | {node.node for node in seen.nodes})
            return seen

        seen = self._guard("tell what happened", ask)
        self.observed = True
        return seen

    def start(self, order: StartOrder, *, at: datetime) -> RunReport | Refusal:
        def ask(connector: Connector) -> RunReport | Refusal:
            answer = connector.start(order, at=at)
            return answer if isinstance(answer, Refusal) else _check(answer)

        return self._guard(f"start {order.external_id}", ask)

    def stop(self, external_id: str, *, at: datetime) -> RunReport:
        def ask(connector: Connector) -> RunReport:
            return _check(connector.stop(external_id, at=at))

        return self._guard(f"stop {external_id}", ask)

    def set_time_limit(self, order: StartOrder, *, at: datetime) -> RunReport:
        def ask(connector: Connector) -> RunReport:
            return _check(connector.set_time_limit(order, at=at))

        return self._guard(f"give {order.external_id} more time", ask)

    def resize(
        self, external_id: str, placements: Sequence[Placement], *, at: datetime
    ) -> datetime:
        def ask(connector: Connector) -> datetime:
            return _whole(connector.resize(external_id, placements, at=at))

        return self._guard(f"resize {external_id}", ask)

    def idle(self, windows: Sequence[IdleWindow]) -> list[int]:
        def ask(connector: Connector) -> list[int]:
            answers = connector.idle(windows)
            _expect(answers, list)
            if len(answers) != len(windows) or any(type(one) is not int for one in answers):
                raise BadAnswer(f"{len(windows)} whole numbers were asked for")
            return answers

        return self._guard("tell idle time", ask, of="idle")

    def _guard(self, what: str, ask: Callable[[Connector], Answer], of: str = "drive") -> Answer:
        if self.is_left_alone or self._in_a_row[of] >= IN_A_ROW:
            raise NoAnswer(self._trouble[of] or self._trouble["drive"])
        try:
            answer = ask(connector_for(self.cluster))
        except Exception as error:
            # Whatever it is: one cluster's connector must not stop all the others' cycle.
            sentence = f"{self.cluster.name} didn't {what}: {_said(error)}"
            logger.exception(sentence)
            self._in_a_row[of] += 1
            self._trouble[of] = sentence
            self.failed |= of == "drive"
            raise NoAnswer(sentence) from error
        self._in_a_row[of] = 0
        return answer

    def _check_nodes(self, names: set[str]) -> None:
        known = Node.objects.filter(pool__cluster=self.cluster).values_list("name", flat=True)
        if strange := names - set(known):
            raise BadAnswer(f"it tells of {min(strange)}, which is no node here: add it first")


class Calls:
    """The calls of one cycle: a line to each cluster."""

    def __init__(self) -> None:
        self._lines: dict[int, Line] = {}
        self._seen: set[int] | None = None

    def to(self, cluster: Cluster) -> Line:
        return self._lines.setdefault(cluster.pk, Line(cluster))

    def not_yet_ordered(self, starting: set[int]) -> set[int]:
        """Which of the runs that are to start were decided since this cycle first asked.

        What stood there at its beginning may have been ordered by a cycle that was killed.
        """
        new = set[int]() if self._seen is None else starting - self._seen
        self._seen = starting | (self._seen or set())
        return new


def unplanned() -> set[str]:
    """Slugs of the clusters that no plan may touch now: those that don't answer, and those where
    it isn't certain yet which GPUs a service has, or a start waits for GPUs of a failed stop."""
    unsure = Run.objects.filter(state=Run.State.RUNNING, job__service__pending__isnull=False)
    pending = set(unsure.values_list("pool__cluster__slug", flat=True))
    return alarms.unreachable() | pending | _entangled()


def _entangled() -> set[str]:
    """Clusters with GPUs that one run has yet to leave and another is to start on."""
    undone = Run.objects.filter(state__in=(Run.State.STARTING, Run.State.STOPPING))
    held = Holding.objects.filter(run__in=undone, ended_at=None)
    found, taken = set(), dict[int, int]()
    for slug, node, mask in held.values_list("run__pool__cluster__slug", "node_id", "mask"):
        if taken.get(node, 0) & mask:
            found.add(slug)
        taken[node] = taken.get(node, 0) | mask
    return found


def _said(error: Exception) -> str:
    """The type of an error and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _expect(answer: object, kind: type) -> None:
    if not isinstance(answer, kind):
        raise BadAnswer(f"{kind.__name__} was expected, not {type(answer).__name__}")


def _check(report: RunReport) -> RunReport:
    _expect(report, RunReport)
    _whole(report.started_at)
    if report.ended_at is not None and _whole(report.ended_at) < report.started_at:
        raise BadAnswer("a run can't end before it starts")
    return report


def _whole(instant: datetime) -> datetime:
    _expect(instant, datetime)
    if instant.tzinfo is None or instant.microsecond:
        raise BadAnswer(f"{instant} is no whole second of UTC")
    return instant
