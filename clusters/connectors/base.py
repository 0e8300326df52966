"""What a connector answers and does. All instants are whole UTC seconds, all calls idempotent."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class Placement:
    """GPUs of one node as a bit mask: bit i is GPU i."""

    node: str
    mask: int


@dataclass(frozen=True, kw_only=True)
class StartOrder:
    """A run to start. ``external_id`` is never used for two runs."""

    external_id: str
    placements: tuple[Placement, ...]
    command: str
    spec: dict[str, Any]
    expected_s: int  # what is left of its expected duration
    progress_s: int = 0  # work kept from earlier runs of the job
    time_limit_s: int | None = None  # ended at it by the cluster
    open_ended: bool = False  # a service: runs until it is stopped


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """What the cluster says of one run. ``outcome`` once ended: completed, failed, timed_out,
    node_failure or stopped."""

    external_id: str
    started_at: datetime
    ended_at: datetime | None = None
    outcome: str = ""


@dataclass(frozen=True, kw_only=True)
class GpuReport:
    """Which GPUs of a node are held, free and down from an instant on, as bit masks."""

    node: str
    at: datetime
    held: int
    free: int
    down: int


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """A node's change of state: up or down."""

    node: str
    at: datetime
    state: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """All that happened in [since, at], in order of time."""

    at: datetime
    runs: tuple[RunReport, ...] = ()
    gpus: tuple[GpuReport, ...] = ()
    nodes: tuple[NodeReport, ...] = ()


@dataclass(frozen=True, kw_only=True)
class IdleWindow:
    """A question: how long did a run's GPUs sit idle in [start, end)?"""

    external_id: str
    start: datetime
    end: datetime
    gpus: int


class ConnectorError(Exception):
    """The cluster could not be reached or refused; the call may be repeated as it is."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The cluster won't start this run, and why: it goes back to the queue."""

    external_id: str
    reason: str


class Connector(Protocol):
    """Observe and drive one cluster."""

    def problem_with(self, spec: Mapping[str, Any]) -> str | None:
        """What of a job's ``spec`` the cluster could never carry out: one sentence, or None."""

    def observe(
        self, *, since: datetime | None, at: datetime, live: Collection[str]
    ) -> Observation:
        """What happened since then; ``live`` names the runs that Allotment believes in.

        ``since`` None is the first look: the present state of every node is reported.
        """

    def start(self, order: StartOrder, *, at: datetime) -> RunReport | Refusal:
        """Start a run; a second call with its id answers as the first did."""

    def stop(self, external_id: str, *, at: datetime) -> RunReport:
        """Stop a run; of one that has ended already, tell how it ended."""

    def set_time_limit(self, order: StartOrder, *, at: datetime) -> RunReport:
        """Give a run another time limit, that of its order, counted from its start.

        Of one that has ended already, tell how it ended; a second call answers as the first did.
        """

    def resize(
        self, external_id: str, placements: Sequence[Placement], *, at: datetime
    ) -> datetime:
        """Give a service another set of GPUs from now on; answer since when it has that set."""

    def idle(self, windows: Sequence[IdleWindow]) -> list[int]:
        """Idle GPU-seconds of each window, in their order."""
