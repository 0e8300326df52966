"""Rows → Problem: the only translation between the database and the core.

``take`` reads, in a constant number of queries, all that the plan depends on at one instant, and
relaxes what no plan could keep ("feasible first"), saying so in ``Snapshot.relaxed``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from allocator import calls, entitlements, refusals, timesteps
from allocator.core import contract
from allocator.core import problem as core
from allocator.core.weights import gpu_seconds, time_decay, urgencies, weight
from allocator.draining import Draining, protected_steps
from allocator.models import Cycle
from allocator.stopped import Stopped
from budgets import shares
from clusters import services as clusters
from clusters.models import Drain, Node
from workloads.demand import demand_over, done_s
from workloads.models import Job, Run


@dataclass(frozen=True)
class Excluded:
    """A queued job that no plan may start now, and the rule that forbids it."""

    job: Job
    rule: str
    data: dict[str, object]


@dataclass
class Snapshot:
    """A problem, and what its names and rows stand for."""

    at: datetime
    origin: datetime  # start of timestep 0
    problem: core.Problem
    nodes: list[Node]
    jobs: dict[str, Job]  # by name in the problem
    runs: dict[str, Run]  # live runs by the name of their job
    excluded: list[Excluded] = field(default_factory=list)
    relaxed: list[str] = field(default_factory=list)
    version: int = 0
    settled: bool = False  # an earlier cycle was committed in this timestep
    tree: dict[int, shares.TreeNode] = field(default_factory=dict)
    healthy: dict[str, int] = field(default_factory=dict)  # GPUs by pool

    def entitled_gpus(self, job: Job) -> int:
        """Healthy GPUs of the acceptable pools × the leaf's effective share, rounded down."""
        named = {pool.slug for pool in job.pools.all()} or set(self.healthy)
        gpus = sum(count for pool, count in self.healthy.items() if pool in named)
        return int(self.tree[job.budget_id].effective * gpus)

    def instant(self, timestep: int) -> datetime:
        """When a timestep starts; timestep 0 is now."""
        return self.at if timestep == 0 else self.origin + timesteps.step() * timestep

    def blocks(self, gpus: range | tuple[int, ...]) -> list[tuple[Node, int]]:
        """Rows of the grid → nodes and bit masks."""
        masks: dict[int, int] = {}
        firsts = self.problem.first_gpu_of
        for gpu in gpus:
            n = self.problem.node_of[gpu]
            masks[n] = masks.get(n, 0) | 1 << (gpu - firsts[n])
        return [(self.nodes[n], mask) for n, mask in sorted(masks.items())]


class NothingToPlan(Exception):
    """There is no GPU that a plan could use: none is in use, or no cluster can be reached."""


def take(*, at: datetime, version: int) -> Snapshot:
    """Read the problem of an instant. ``version`` is the allocator's before anything was read.

    Raises NothingToPlan.
    """
    builder = _Builder(at)
    if not builder.nodes:
        raise NothingToPlan
    return builder.snapshot(version)


def name_of(job_id: int) -> str:
    return f"job-{job_id}"


class _Builder:
    """Reads once, then builds one part of the problem after another."""

    def __init__(self, at: datetime) -> None:
        self.at = at
        self.origin = timesteps.floor(at)
        self.step = timesteps.step()
        self.step_s = int(self.step.total_seconds())
        self.into_s = -((self.origin - at) // timedelta(seconds=1))
        self.horizon: int = settings.HORIZON_TIMESTEPS
        committed = Cycle.objects.filter(at__gte=self.origin, status=Cycle.Status.COMMITTED)
        self.settled = committed.exists()
        # A cluster that can't be reached is not planned: what runs there goes on.
        self.unreachable = calls.unplanned()
        live = Run.objects.filter(state__in=Run.LIVE).select_related("pool")
        self.runs = {
            run.job_id: run
            for run in live.exclude(pool__cluster__slug__in=self.unreachable).prefetch_related(
                "holdings"
            )
        }
        self.down = clusters.nodes_down(at=at)
        self.drained = Drain.objects.exclude(ends_at__lte=at).exists()
        self.nodes = self._grid()
        jobs = self._jobs().filter(Q(state=Job.State.QUEUED) | Q(pk__in=self.runs))
        self.live = [job for job in jobs if job.pk in self.runs]
        self.queued = [job for job in jobs if job.state == Job.State.QUEUED]
        self.refused = refusals.paused(at=at)
        window = entitlements.window_start(at)
        self.history = shares.History.load(since=window, until=self._first_end())
        self.tree = self.history.tree(at)
        # One reading says what budgets are called: one may have been renamed or moved meanwhile.
        for job in (*self.live, *self.queued):
            if job.budget_id in self.tree:
                job.budget = self.tree[job.budget_id].budget
        self.held_on: dict[int, int] = defaultdict(int)  # node → GPUs held by live runs
        for run in self.runs.values():
            for holding in run.holdings.all():
                self.held_on[holding.node_id] += holding.gpus if holding.ended_at is None else 0
        self.relaxed: list[str] = []
        self.excluded: list[Excluded] = []
        self.row_of = {}
        self.pool_gpus: dict[str, int] = defaultdict(int)
        first = 0
        for node in self.nodes:
            self.row_of[node.pk] = first
            self.pool_gpus[node.pool.slug] += node.gpus
            first += node.gpus
        self.gpus = first
        self.pinned_until: dict[int, int] = defaultdict(int)  # node → timesteps still protected
        self.stopped = Stopped.lately(runs=self.runs, live=self.live, at=at)

    def _grid(self) -> list[Node]:
        """Nodes in use, and those that left under a run that has yet to leave them."""
        held = {h.node_id for run in self.runs.values() for h in run.holdings.all()}
        nodes = []
        for node in clusters.all_nodes():
            if not node.is_active(self.at):
                if node.pk not in held:
                    continue
                self.down.setdefault(node.pk, "retired")
            if node.pool.cluster.slug not in self.unreachable:
                nodes.append(node)
        return nodes

    @staticmethod
    def _jobs():  # type: ignore[no-untyped-def]
        related = Job.objects.select_related("budget", "service")
        return related.prefetch_related("pools__cluster", "dependencies__budget").order_by("id")

    def snapshot(self, version: int) -> Snapshot:
        until = self._first_end()
        budgets = entitlements.budget_nodes(
            tree=self.tree, at=self.at, until=until, history=self.history
        )
        plannable = sorted(filter(self._may_start, self.queued), key=self._place)
        known = {job.pk: job for job in [*self.live, *plannable]}
        factors = entitlements.factors(budgets)
        urgent = urgencies(
            (job.budget_id, job.urgency, gpu_seconds(job.gpus, job.estimate_p50_s))
            for job in known.values()
        )
        jobs = []
        for job in known.values():
            value = weight(
                factor=factors.get(job.budget.path),
                urgency=urgent.factor(job.budget_id, job.urgency),
                funded=job.funded or job.is_realtime,
            )
            jobs.append(self._job(job, value))
        problem = core.Problem(
            name=self.at.strftime("cycle %Y-%m-%dT%H:%M:%SZ"),
            family="cycle",
            horizon=self.horizon,
            timestep_minutes=settings.TIMESTEP_MINUTES,
            time_decay=time_decay(settings.TIMESTEP_MINUTES),
            overrun=True,
            nodes=tuple(core.Node(n.name, n.gpus, n.pool.slug) for n in self.nodes),
            jobs=tuple(jobs),
            drains=tuple(self._draining().drains()),
            budgets=budgets,
        )
        return Snapshot(
            at=self.at,
            origin=self.origin,
            problem=problem,
            nodes=self.nodes,
            jobs={name_of(pk): job for pk, job in known.items()},
            runs={name_of(pk): run for pk, run in self.runs.items()},
            excluded=self.excluded,
            relaxed=self.relaxed,
            version=version,
            settled=self.settled,
            tree=self.tree,
            healthy=self._healthy(),
        )

    def _place(self, job: Job) -> tuple[int, int]:
        """Sorts waiting jobs of one leaf and urgency: the greatest age in GPU-seconds first."""
        waited = int((self.at - job.submitted_at).total_seconds())
        return -contract.aged(job.gpus, waited), job.pk

    def _healthy(self) -> dict[str, int]:
        healthy: dict[str, int] = defaultdict(int)
        for node in self.nodes:
            if node.pk not in self.down:
                healthy[node.pool.slug] += node.gpus
        return dict(healthy)

    def _first_end(self) -> datetime:
        return self.origin + self.step

    def _may_start(self, job: Job) -> bool:
        """Whether a plan may start a queued job; else why not goes into ``excluded``."""
        if job.budget_id not in self.tree:
            return self._leave_out(job, "inactive", budget=job.budget.path)
        waits_for = [d for d in job.dependencies.all() if d.state != Job.State.COMPLETED]
        if waits_for:
            first = waits_for[0]
            told = {"job": first.pk, "name": first.name, "budget": first.budget.path}
            return self._leave_out(job, "dependency", **told, state=first.state)
        if job.pk in self.refused:
            return self._leave_out(job, refusals.RULE, **self.refused[job.pk].as_data())
        by_choice = job.minimum_runtime_s == 0
        runs_anyway = job.when_unfunded == Job.WhenUnfunded.RUN
        if not (job.funded or by_choice or runs_anyway or job.is_realtime):
            return self._leave_out(job, "not_funded")
        return self._can_fit(job)

    def _leave_out(self, job: Job, rule: str, /, **data: object) -> bool:
        self.excluded.append(Excluded(job, rule, data))
        return False

    def _can_fit(self, job: Job) -> bool:
        """Whether an acceptable pool is large enough, as it was when the job was admitted."""
        pools = self._acceptable(job)
        if not pools and any(pool.cluster.slug in self.unreachable for pool in job.pools.all()):
            return self._leave_out(job, "unreachable")
        most = max((self.pool_gpus[pool] for pool in pools), default=0)
        if most < (1 if job.is_realtime else job.gpus):
            return self._leave_out(job, "no_block", gpus=job.gpus)
        return True

    def _acceptable(self, job: Job) -> tuple[str, ...]:
        """Pools of the grid that a job asked for; all of them if it named none."""
        named = {pool.slug for pool in job.pools.all()}
        return tuple(pool for pool in self.pool_gpus if not named or pool in named)

    def _job(self, job: Job, value: float) -> core.Job:
        return self._service(job, value) if job.is_realtime else self._batch(job, value)

    def _batch(self, job: Job, value: float) -> core.BatchJob:
        run = self.runs.get(job.pk)
        left = contract.remaining_s(
            done_s(job, run, at=self.at),
            (job.estimate_p50_s, job.estimate_p90_s),
            job.time_limit_s,
            self.step_s,
        )
        if run is None and job.funded and self.drained:
            # It may stay that long, however soon it is expected to end: no drain may come first.
            left = max(left, job.minimum_runtime_s)
        duration = contract.planned_duration(into_s=self.into_s, left_s=left, step_s=self.step_s)
        return core.BatchJob(
            name=name_of(job.pk),
            kind=core.Kind(job.kind),
            priority=value,
            gpus=job.gpus,
            duration=duration,
            pools=self._acceptable(job) if job.pools.all() else (),
            budget=job.budget.path,
            funded=job.funded,
            running=None if run is None else self._running(run, duration),
            minimum=self._minimum(job, duration),
            debug=contract.is_debug(job.gpus, job.time_limit_s),
        )

    def _minimum(self, job: Job, duration: int) -> int | None:
        """Timesteps after which a job that starts could be stopped again without losing its work.

        Only what resumes by itself is started in a gap that is too short for all of it, and gives
        way to its own budget's jobs.
        """
        if not job.resumable:
            return None
        return contract.planned_minimum(
            into_s=self.into_s,
            protected_s=job.minimum_runtime_s if job.funded else 0,
            duration=duration,
            step_s=self.step_s,
        )

    def _running(self, run: Run, remaining: int) -> core.Running:
        rows = self._rows(run)
        protected = protected_steps(run, at=self.at, origin=self.origin)
        remaining = max(remaining, protected)
        for holding in run.holdings.all():
            self._pin(holding.node_id, protected)
        return core.Running(
            first_gpu=rows[0],
            remaining=remaining,
            protected=protected,
            **self.stopped.told(run.job_id, name_of),
        )

    def _pin(self, node_id: int, timesteps_left: int) -> None:
        self.pinned_until[node_id] = max(self.pinned_until[node_id], timesteps_left)

    def _rows(self, run: Run) -> tuple[int, ...]:
        """Rows of the grid that a run holds now."""
        return tuple(
            self.row_of[h.node_id] + bit
            for h in sorted(run.holdings.all(), key=lambda h: (self.row_of[h.node_id], h.pk))
            if h.ended_at is None
            for bit in range(h.mask.bit_length())
            if h.mask >> bit & 1
        )

    def _service(self, job: Job, value: float) -> core.RealtimeJob:
        run = self.runs.get(job.pk)
        wanted = demand_over(job.service, start=self.origin, step=self.step, timesteps=self.horizon)
        held = None if run is None else tuple(sorted(set(self._rows(run))))
        demand = [min(gpus, self.gpus) for gpus in wanted]
        if held is not None:
            demand = self._feasible_demand(job, demand, len(held))
        return core.RealtimeJob(
            name=name_of(job.pk),
            priority=value,
            demand=tuple(demand),
            swap_cap=job.service.swap_cap,
            held=held,
            steady=self.settled and held is not None,
            pools=(self._pool_of_service(job, run),),
            budget=job.budget.path,
        )

    def _pool_of_service(self, job: Job, run: Run | None) -> str:
        """A run is charged by one pool's rate, so a service stays in its pool; a new one goes
        where most healthy GPUs are free, of equals the first in the grid."""
        if run is not None:
            return str(run.pool.slug)
        free: dict[str, int] = dict.fromkeys(self._acceptable(job), 0)
        for node in self.nodes:
            if node.pool.slug in free and node.pk not in self.down:
                free[node.pool.slug] += node.gpus - self.held_on[node.pk]
        return max(free, key=lambda pool: free[pool])

    def _feasible_demand(self, job: Job, demand: list[int], held: int) -> list[int]:
        """A service sheds at most its swap cap, and within a timestep it does not change.

        Demand below what the cap lets it shed is raised to that; once a cycle was committed in
        the present timestep, its set stands as that one made it.
        """
        cap = job.service.swap_cap
        relaxed = contract.feasible_demand(demand, held=held, cap=cap, settled=self.settled)
        if not self.settled and relaxed != demand:
            gpus = "1 GPU" if cap == 1 else f"{cap} GPUs"
            self.relaxed.append(f"{job.name} sheds at most {gpus} a timestep from {held}.")
        return relaxed

    def _draining(self) -> Draining:
        return Draining(
            at=self.at,
            origin=self.origin,
            horizon=self.horizon,
            nodes=self.nodes,
            down=self.down,
            protected=self.pinned_until,
            services=[(job, self.runs[job.pk]) for job in self.live if job.is_realtime],
            settled=self.settled,
            relaxed=self.relaxed,
        )
