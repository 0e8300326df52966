"""A tiny institute to run cycles in, and what must hold after any cycle whatever happened before.

Nothing here reads a clock. The invariants are worked out from holdings, the simulated cluster's
memory and the GPU log, never by the code that they judge.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from django.contrib.auth.models import User

from allocator import admission, cycle, playing, timesteps
from allocator.models import Alarm, Cycle
from budgets.models import Budget, Period
from clusters.models import Cluster, GpuState, Node, Pool, PoolRate, SimulatedTask
from ledger import reports
from ledger.models import ClosedTimestep, Entry
from tests import factories as make
from tests.factories import T0
from tests.ledger_world import give_all
from workloads.models import Holding, Job, Run
from workloads.specs import JobSpec

CREDIT = 3_600_000  # one GPU-hour at rate 1, in milli-GPU-seconds
PLENTY = 1_000_000  # credits


@dataclass
class Institute:
    """One pool of a simulated cluster, a tree of budgets, a period, and somebody who submits."""

    cluster: Cluster
    pool: Pool
    nodes: list[Node]
    tree: dict[str, Budget]
    period: Period
    user: User
    entries: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # as they were last seen

    @property
    def petrel(self) -> Budget:
        return self.tree["orlo/science/petrel"]

    @property
    def auk(self) -> Budget:
        return self.tree["orlo/science/auk"]

    @property
    def tern(self) -> Budget:
        return self.tree["orlo/vision/tern"]

    def submit(self, budget: Budget, at: datetime = T0, **asked: Any) -> Job:
        """Submit a resumable training job of 8 GPUs for 2 h, protected for 1 h, or as asked.

        ``lasts`` and ``fails_after`` are what the simulated cluster makes of it, in seconds.
        """
        behaves = {"duration_s": asked.pop("lasts", asked.get("expected_duration_s", 7200))}
        if "fails_after" in asked:
            behaves["fails_after_s"] = asked.pop("fails_after")
        wanted: dict[str, Any] = {
            "name": "work",
            "kind": "training",
            "gpus": 8,
            "expected_duration_s": 7200,
            "minimum_runtime_s": 3600,
            "resumable": True,
            "spec": {"simulate": behaves},
        }
        return admission.submit(
            budget=budget, user=self.user, spec=JobSpec(**(wanted | asked)), now=at
        )

    def serve(self, budget: Budget, at: datetime = T0, **asked: Any) -> Job:
        """Submit a real-time service of 4 GPUs all day with a swap cap of 4, or as asked."""
        wanted = {"name": "chat", "kind": "realtime", "profile": (4,) * 24, "swap_cap": 4}
        spec = JobSpec(**(wanted | asked))  # type: ignore[arg-type]
        return admission.submit(budget=budget, user=self.user, spec=spec, now=at)

    def check(self, *, at: datetime, settled: bool = True) -> None:
        """Assert every invariant, and that no entry seen before has changed.

        Unsettled: a cluster may be away. What it runs is in flight, and only when it is charged
        does it turn out what of it could not be paid.
        """
        self.entries = assert_invariants(at=at, before=self.entries, settled=settled, funds=settled)

    def cycle(self, at: datetime, trigger: str = "test") -> Cycle:
        """Run one cycle and assert the invariants."""
        made = cycle.run(at=at, trigger=trigger)
        assert made is not None, "another cycle held the lock"
        self.check(at=at)
        return made

    def play(
        self, start: datetime, end: datetime, arrivals: Iterable[playing.Arrival] = ()
    ) -> list[Cycle]:
        """Play a span of time on the virtual clock, with the invariants after every cycle."""
        made = []
        for one in playing.play(start=start, end=end, arrivals=list(arrivals)):
            assert one.status == Cycle.Status.COMMITTED, one.problems
            self.check(at=one.at)
            made.append(one)
        assert not Alarm.objects.filter(cleared_at=None).exists()
        assert_reconciled()
        return made


def make_institute(
    *,
    nodes: int = 2,
    gpus: int = 8,
    credits: Mapping[str, int] | int = PLENTY,
    shares: Mapping[str, int] = make.TREE,
    **period: Any,
) -> Institute:
    """Return an institute; `credits` for each leaf, or by path of leaf."""
    cluster = make.make_cluster("mainland")
    pool = make.make_pool("h100", cluster=cluster)
    tree = make.make_tree(shares)
    made = Institute(
        cluster=cluster,
        pool=pool,
        nodes=make.make_nodes(pool, nodes, gpus=gpus),
        tree=tree,
        period=make.make_period(**period),
        user=make.someone(),
    )
    parents = {path.rpartition("/")[0] for path in tree}
    leaves = [path for path in tree if path not in parents]
    given = {
        tree[path]: credits if isinstance(credits, int) else credits.get(path, 0) for path in leaves
    }
    give_all(given, made.period, T0)
    return made


def grant(budget: Budget, credits: int, *, period: Period | None = None, at: datetime = T0) -> None:
    """Grant credits to a budget and to all above it, as a grant by shares does."""
    give_all({budget: credits}, period or Period.objects.get(), at)


def arrival(at: datetime, happen: Any, *args: Any, **kwargs: Any) -> playing.Arrival:
    """Something that happens at an instant, told it by the keyword ``at``."""
    return playing.Arrival(at, lambda now: happen(*args, at=now, **kwargs))


def seconds(start: datetime, end: datetime) -> int:
    return int((end - start).total_seconds())


def assert_reconciled() -> None:
    """Assert that the ledger's own proof finds nothing either."""
    first, last = ClosedTimestep.objects.order_by("start").first(), ClosedTimestep.objects.last()
    if first is None or last is None:
        return
    assert reports.differences(start=first.start, end=last.end) == []
    assert reports.entry_problems(start=first.start, end=last.end) == []


# --- What must hold ------------------------------------------------------------------------------

Seen = dict[int, tuple[Any, ...]]


def assert_invariants(
    *, at: datetime, before: Seen | None = None, settled: bool = True, funds: bool = True
) -> Seen:
    """Assert all of them; return the entries as they are, for the next call's ``before``.

    ``settled``: every decision was carried out. ``funds``: no budget has spent what it hadn't.
    """
    _no_gpu_is_held_twice()
    _jobs_and_runs_agree(settled)
    if settled:
        _cluster_and_runs_agree()
    _protection_was_kept()
    _services_swap_once_a_timestep()
    _timesteps_are_closed_without_gaps()
    _every_second_is_charged_once()
    _time_is_conserved()
    _holds_fit_their_jobs()
    if funds:
        _nothing_is_overspent(at)
    return _entries_never_change(before or {})


def _no_gpu_is_held_twice() -> None:
    by_node: dict[int, list[Holding]] = defaultdict(list)
    for holding in Holding.objects.exclude(started_at=None).order_by("started_at", "id"):
        if holding.ended_at != holding.started_at:
            by_node[holding.node_id].append(holding)
    for holdings in by_node.values():
        live: list[Holding] = []
        for holding in holdings:
            assert holding.started_at is not None
            since = holding.started_at
            live = [h for h in live if h.ended_at is None or h.ended_at > since]
            for other in live:
                assert not other.mask & holding.mask, f"{other} and {holding} at {since}"
            live.append(holding)


def _services_swap_once_a_timestep() -> None:
    """However many cycles plan in a timestep, a service gains GPUs in one of them, within its cap.

    What it starts with is no gain; GPUs it loses to a failed node are no swap.
    """
    holdings: dict[int, list[Holding]] = defaultdict(list)
    services = Holding.objects.filter(run__job__kind=Job.Kind.REALTIME).exclude(started_at=None)
    for holding in services.select_related("run__job__service").order_by("started_at"):
        if holding.ended_at != holding.started_at:
            holdings[holding.run_id].append(holding)
    for mine in holdings.values():
        cap, gains = mine[0].run.job.service.swap_cap, set()
        instants = sorted({h.started_at for h in mine if h.started_at is not None})
        for before, now in pairwise(instants):
            gained = len(_gpus_at(mine, now) - _gpus_at(mine, before, until=now))
            assert gained <= cap, f"{mine[0].run} gained {gained} GPUs at {now}, its cap is {cap}"
            if gained:
                step = timesteps.floor(now)
                assert step not in gains, f"{mine[0].run} swapped twice in the timestep of {now}"
                gains.add(step)


def _gpus_at(holdings: list[Holding], at: Any, until: Any = None) -> set[tuple[int, int]]:
    """GPUs held at an instant, or from it up to another."""
    return {
        (h.node_id, bit)
        for h in holdings
        if h.started_at <= at and (h.ended_at is None or h.ended_at >= (until or at))
        if until or h.ended_at is None or h.ended_at > at
        for bit in range(h.mask.bit_length())
        if h.mask >> bit & 1
    }


def _jobs_and_runs_agree(settled: bool) -> None:
    live: dict[int, list[Run]] = defaultdict(list)
    for run in Run.objects.filter(state__in=Run.LIVE):
        live[run.job_id].append(run)
    for job in Job.objects.all():
        runs = live[job.pk]
        busy = job.state in (Job.State.STARTING, Job.State.RUNNING)
        assert len(runs) == (1 if busy else 0), f"{job} is {job.state} and has live runs {runs}"
        if settled and runs:
            assert runs[0].state == Run.State.RUNNING, f"{runs[0]} is {runs[0].state}"
        assert job.has_ended == (job.ended_at is not None), f"{job}: {job.state}, {job.ended_at}"
    assert not Holding.objects.filter(run__state=Run.State.ENDED, ended_at=None).exists()


def _cluster_and_runs_agree() -> None:
    """What runs at the connector runs here, on the same GPUs, and the other way round."""
    tasks = SimulatedTask.objects.filter(stopped_at=None).prefetch_related("placements")
    runs = Run.objects.filter(state=Run.State.RUNNING).prefetch_related("holdings")
    there = {task.external_id: _merged(task.placements.all()) for task in tasks}
    here = {run.external_id: _merged(run.holdings.all()) for run in runs}
    assert there == here


def _merged(rows: Iterable[Any]) -> dict[int, int]:
    """Return the GPUs that are held by node, of rows of which some have ended."""
    masks: dict[int, int] = defaultdict(int)
    for row in rows:
        if row.ended_at is None:
            assert not masks[row.node_id] & row.mask, f"{row} holds a GPU twice"
            masks[row.node_id] |= row.mask
    return dict(masks)


def _protection_was_kept() -> None:
    for run in Run.objects.filter(end_reason=Run.EndReason.PREEMPTED).exclude(ended_at=None):
        assert run.protected_until is not None
        assert run.ended_at is not None
        assert run.ended_at >= run.protected_until, f"{run} was preempted under protection"


def _timesteps_are_closed_without_gaps() -> None:
    closed = list(ClosedTimestep.objects.order_by("start"))
    for one, following in pairwise(closed):
        assert one.end == following.start, f"nothing closed from {one.end} to {following.start}"
    for one in closed:
        assert one.end - one.start == timesteps.step()


def _every_second_is_charged_once() -> None:
    """Per run, closed timestep and funding: charged GPU-seconds = held ones, at the rate."""
    held: dict[tuple[int, datetime, bool], int] = defaultdict(int)
    closed = list(ClosedTimestep.objects.values_list("start", "end"))
    holdings = list(Holding.objects.exclude(started_at=None))
    for start, end in closed:
        for h in holdings:
            assert h.started_at is not None
            inside = min(h.ended_at or end, end) - max(h.started_at, start)
            if inside.total_seconds() > 0:
                held[h.run_id, start, h.funded] += h.gpus * int(inside.total_seconds())
    charged: dict[tuple[int, datetime, bool], int] = defaultdict(int)
    rates = _rates()
    for run, timestep, funded, pool, at, gpu_seconds, amount in _charges():
        charged[run, timestep, funded] += gpu_seconds
        rate = next((rate for since, rate in rates[pool] if since <= at), 1000)
        assert amount == (gpu_seconds * rate if funded else 0), f"{run} in {timestep}"
    assert dict(charged) == dict(held)


def _charges() -> Iterable[Any]:
    charges = Entry.objects.filter(kind=Entry.Kind.CHARGE).order_by()
    return charges.values_list(
        "run_id", "timestep", "funded", "pool_id", "at", "gpu_seconds", "amount_mgpus"
    )


def _rates() -> dict[int, list[tuple[datetime, int]]]:
    """Return the rates of each pool, the latest first."""
    rates: dict[int, list[tuple[datetime, int]]] = defaultdict(list)
    for rate in PoolRate.objects.order_by("-effective_at"):
        rates[rate.pool_id].append((rate.effective_at, rate.rate_per_mille))
    return rates


def _time_is_conserved() -> None:
    """Per pool and closed timestep: charged + unfunded + free + down = inventory."""
    logs: dict[int, list[GpuState]] = defaultdict(list)
    for state in GpuState.objects.order_by("at", "id"):
        logs[state.node_id].append(state)
    charged: dict[tuple[int, datetime], int] = defaultdict(int)
    for pool_id, timestep, amount in Entry.objects.filter(kind=Entry.Kind.CHARGE).values_list(
        "pool_id", "timestep", "gpu_seconds"
    ):
        charged[pool_id, timestep] += amount  # type: ignore[index]
    nodes, pools = list(Node.objects.all()), list(Pool.objects.all())
    for closed in ClosedTimestep.objects.all():
        for pool in pools:
            inventory = idle = 0
            for node in [n for n in nodes if n.pool_id == pool.pk]:
                start = max(closed.start, node.active_from)
                end = min(closed.end, node.active_until or closed.end)
                inventory += node.gpus * max(0, seconds(start, end))
                idle += _free_or_down(logs[node.pk], start, end)
            held = charged[pool.pk, closed.start]
            assert held + idle == inventory, f"{pool} in {closed}: {held} + {idle} ≠ {inventory}"


def _free_or_down(log: list[GpuState], start: datetime, end: datetime) -> int:
    total = 0
    for state, until in zip(log, [s.at for s in log[1:]] + [end], strict=True):
        inside = seconds(max(start, state.at), min(end, until))
        total += max(0, inside) * (state.free.bit_count() + state.down.bit_count())
    return total


def _holds_fit_their_jobs() -> None:
    """No attempt has released more than it held; what nobody will spend is released."""
    open_holds: dict[tuple[int, int], int] = defaultdict(int)
    per_period: dict[tuple[int, int, int], int] = defaultdict(int)
    for entry in Entry.objects.filter(kind__in=("hold", "release")).order_by("id"):
        sign = 1 if entry.kind == Entry.Kind.HOLD else -1
        assert entry.job_id is not None
        open_holds[entry.job_id, entry.attempt] += sign * entry.amount_mgpus
        per_period[entry.job_id, entry.attempt, entry.period_id] += sign * entry.amount_mgpus
    assert all(amount >= 0 for amount in per_period.values()), per_period
    for job in Job.objects.all():
        for (job_id, attempt), amount in open_holds.items():
            if job_id == job.pk and (job.has_ended or attempt != job.attempt):
                assert amount == 0, f"{amount} of {job}, attempt {attempt}, are held for nobody"
        if job.state == Job.State.QUEUED:
            assert (open_holds[job.pk, job.attempt] > 0) == job.funded, f"{job} is not {job.funded}"


def _nothing_is_overspent(at: datetime) -> None:
    for period in Period.objects.filter(status=Period.Status.ACTIVE):
        for budget_id, figures in reports.figures(period=period, now=at).items():
            claimed = figures.settled_mgpus + figures.in_flight_mgpus + figures.held_mgpus
            assert claimed <= figures.granted_mgpus, (
                f"{Budget.objects.get(pk=budget_id).path}: {claimed} > {figures.granted_mgpus}"
            )


def _entries_never_change(before: Seen) -> Seen:
    now = {row[0]: row for row in Entry.objects.order_by("id").values_list()}
    for pk, row in before.items():
        assert now.get(pk) == row, f"entry {pk} was {row} and is {now.get(pk)}"
    return now
