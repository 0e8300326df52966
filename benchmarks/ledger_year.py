"""A year of an institute's ledger, made in bulk by the ledger's own writer.

Some 500 budgets in three levels, runs of a day on 8 GPUs, each charged, released and topped up
every timestep, so that a charge comes with two more entries as it does in use. Some runs are
unfunded, parked for a part, real time, or refunded. After the year a full fleet is running: 2,000
runs on 4,096 GPUs for six hours, held, topped up and charged by the product itself.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from django.contrib.auth.models import User
from django.db import transaction

from allocator import closing, delivery
from allocator.models import Delivery
from budgets.change_sets import approve, write_set
from budgets.models import WHOLE, Budget, Period
from budgets.vectors import vector_from
from clusters.models import Cluster, Node, Pool, PoolRate
from ledger import services
from ledger.entries import write
from ledger.models import ClosedTimestep, Entry
from workloads.models import Holding, Job, Run

START = datetime(2026, 1, 1, 5, tzinfo=UTC)  # midnight in New York
END = datetime(2027, 1, 1, 5, tzinfo=UTC)
LIVE = datetime(2026, 12, 30, 12, tzinfo=UTC)  # the full fleet starts
STEP = timedelta(minutes=30)
LIVE_STEPS = 12
RUN_STEPS = 48  # how long a run of the year lasts
RATE = 1000
GPUS, LIVE_RUNS, LIVE_GPUS = 8, 2000, 4096
PROGRAMS = 20
OWED = 60  # leaves that want something in a timestep
CREDIT = 3_600_000
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class World:
    root: Budget
    leaves: tuple[Budget, ...]
    period: Period
    pool: Pool
    nodes: tuple[Node, ...]
    user: User
    now: datetime  # ten minutes after the last closed timestep


def build(*, charges: int, budgets: int, seed: int, progress: Progress) -> World:
    """Fill an empty, migrated database."""
    random = Random(seed)
    user = User.objects.create_superuser("bench", "bench@example.org", "bench")
    pool, nodes = _fleet()
    root, leaves = _tree(budgets, user)
    period = Period.objects.create(
        name="2026", starts_at=START, ends_at=END, status="active", time_zone="America/New_York"
    )
    world = World(
        *(root, leaves, period, pool, nodes, user),
        now=LIVE + LIVE_STEPS * STEP + timedelta(minutes=10),
    )
    _grant(world, charges)
    _year(world, charges, random, progress)
    _deliveries(world, random, progress)
    _full_fleet(world, progress)
    return world


def _fleet() -> tuple[Pool, tuple[Node, ...]]:
    cluster = Cluster.objects.create(slug="bench", name="Bench")
    pool = Pool.objects.create(cluster=cluster, slug="h100", name="h100", gpu_type="h100")
    PoolRate.objects.create(pool=pool, effective_at=START, rate_per_mille=RATE)
    nodes = [
        Node(pool=pool, name=f"n{i}", gpus=GPUS, position=i, active_from=START)
        for i in range(LIVE_GPUS // GPUS)
    ]
    Node.objects.bulk_create(nodes)
    return pool, tuple(Node.objects.order_by("position"))


def _tree(budgets: int, user: User) -> tuple[Budget, tuple[Budget, ...]]:
    root = Budget.objects.create(slug="orlo", path="orlo", name="Orlo")
    programs = [_child(root, f"p{i}") for i in range(min(PROGRAMS, max(1, budgets // 4)))]
    leaves = [
        _child(programs[i % len(programs)], f"b{i}") for i in range(budgets - 1 - len(programs))
    ]
    for parent in (root, *programs):
        children = [one for one in (*programs, *leaves) if one.parent_id == parent.pk]
        vector = vector_from(dict.fromkeys(children, WHOLE // len(children)), {})
        made = write_set(
            parent=parent,
            vector=vector,
            before={},
            reason="as agreed",
            author=user,
            base=None,
            effective_at=START,
            now=START,
        )
        approve(change_set=made, by=user, now=START)
    return root, tuple(leaves)


def _child(parent: Budget, slug: str) -> Budget:
    path = f"{parent.path}/{slug}"
    return Budget.objects.create(parent=parent, slug=slug, path=path, name=slug.title())


def _grant(world: World, charges: int) -> None:
    """Grant every budget more than it will spend."""
    credits = 10 * (charges * GPUS // 2 + LIVE_GPUS * 24)
    entries = [
        Entry(
            kind=Entry.Kind.GRANT,
            budget=one,
            period=world.period,
            at=START,
            amount_mgpus=credits * CREDIT,
            author=world.user,
            key=f"grant:bench:{one.pk}",
            created_at=START,
        )
        for one in Budget.objects.order_by("pk")
    ]
    with transaction.atomic():
        write(entries)


def _year(world: World, charges: int, random: Random, progress: Progress) -> None:
    """Start as many runs every day as make up the charges, at any timestep of the day."""
    days = (LIVE - START).days
    runs = max(1, charges // RUN_STEPS)
    for day in range(days):
        first = START + timedelta(days=day)
        count = runs * (day + 1) // days - runs * day // days
        starts = [first + random.randrange(RUN_STEPS) * STEP for _ in range(count)]
        made = _runs(world, starts, random)
        with transaction.atomic():
            write([entry for run in made for entry in _entries(world, run, random)])
        if day % 30 == 29:
            progress(f"{day + 1} of {days} days")
    steps = [START + number * STEP for number in range((LIVE - START) // STEP)]
    ClosedTimestep.objects.bulk_create(
        ClosedTimestep(start=at, end=at + STEP, closed_at=at + STEP) for at in steps
    )


def _runs(world: World, starts: list[datetime], random: Random) -> list[Run]:
    length = RUN_STEPS * STEP
    kinds = random.choices(["training", "batch_inference", "realtime"], [80, 15, 5], k=len(starts))
    jobs = Job.objects.bulk_create(
        _job(world, random.choice(world.leaves), at, kind, GPUS, ended_at=min(at + length, LIVE))
        for at, kind in zip(starts, kinds, strict=True)
    )
    return Run.objects.bulk_create(
        Run(
            job=job,
            number=1,
            pool=world.pool,
            state=Run.State.ENDED,
            decided_at=job.submitted_at,
            started_at=job.submitted_at,
            ended_at=job.ended_at,
            end_reason=Run.EndReason.COMPLETED,
        )
        for job in jobs
    )


def _job(world: World, budget: Budget, at: datetime, kind: str, gpus: int, **fields: object) -> Job:
    state = Job.State.COMPLETED if fields.get("ended_at") else Job.State.RUNNING
    estimates = dict.fromkeys(("estimate_p10_s", "estimate_p50_s", "estimate_p90_s"), 86_400)
    return Job(
        budget=budget,
        submitted_by=world.user,
        submitted_at=at,
        state_since=at,
        name="bench",
        kind=kind,
        gpus=gpus,
        minimum_runtime_s=3600,
        state=state,
        **estimates,
        **fields,
    )


def _entries(world: World, run: Run, random: Random) -> Iterator[Entry]:
    """Yield what a run leaves in the ledger: a hold, a release and a charge every timestep."""
    assert run.started_at is not None
    assert run.ended_at is not None
    funded, parks = random.random() < 0.9, random.random() < 0.3
    held = GPUS * int(STEP.total_seconds())
    amount = held * RATE if funded else 0
    at = run.started_at
    while at < run.ended_at:
        if funded:
            yield _entry(world, run, Entry.Kind.HOLD, at, amount)
        yield _entry(
            *(world, run, Entry.Kind.CHARGE, at, amount),
            until=at + STEP,
            timestep=at,
            pool_id=world.pool.pk,
            funded=funded,
            gpu_seconds=held,
            parked_gpu_seconds=random.randrange(held) if parks else 0,
        )
        if funded:
            yield _entry(world, run, Entry.Kind.RELEASE, at, amount)
        at += STEP
    if funded and random.random() < 0.02:
        yield _entry(world, run, Entry.Kind.REFUND, run.ended_at, 3 * amount)


def _entry(world: World, run: Run, kind: str, at: datetime, amount: int, **fields: object) -> Entry:
    return Entry(
        kind=kind,
        budget_id=run.job.budget_id,
        period_id=world.period.pk,
        at=at,
        amount_mgpus=amount,
        job_id=run.job_id,
        attempt=1,
        run_id=run.pk,
        key=f"{kind}:{run.pk}:{at:%Y-%m-%dT%H:%M:%SZ}",
        created_at=at,
        **fields,
    )


def _deliveries(world: World, random: Random, progress: Progress) -> None:
    """What some leaves, all programs and the whole were owed and got, timestep by timestep."""
    owed = GPUS * int(STEP.total_seconds())
    above = [world.root, *Budget.objects.filter(parent=world.root)]
    for day in range((LIVE - START).days):
        first = START + timedelta(days=day)
        Delivery.objects.bulk_create(
            Delivery(
                timestep=first + number * STEP,
                budget=budget,
                pool=world.pool,
                entitled_gpu_seconds=owed,
                demand_gpu_seconds=random.randrange(2 * owed),
                funded_gpu_seconds=random.randrange(2 * owed),
            )
            for number in range(RUN_STEPS)
            for budget in (*above, *random.sample(world.leaves, min(OWED, len(world.leaves))))
        )
        delivery.sum_days(before=first + timedelta(days=1))
    progress("delivered of owed")


def _full_fleet(world: World, progress: Progress) -> None:
    """Run 2,000 jobs on all GPUs, and close six hours of timesteps as a cycle does."""
    wide = LIVE_GPUS // 2 - LIVE_RUNS  # so many hold four GPUs, the others two
    sizes = [4] * wide + [2] * (LIVE_RUNS - wide)
    jobs = Job.objects.bulk_create(
        _job(world, world.leaves[i % len(world.leaves)], LIVE, "training", gpus, funded=True)
        for i, gpus in enumerate(sizes)
    )
    runs = Run.objects.bulk_create(
        Run(
            job=job,
            number=1,
            pool=world.pool,
            state=Run.State.RUNNING,
            decided_at=LIVE,
            started_at=LIVE,
            protected_until=LIVE + 2 * STEP,
        )
        for job in jobs
    )
    Holding.objects.bulk_create(_holdings(world, runs, sizes))
    amounts = [(job, 2 * STEP.seconds * job.gpus * RATE) for job in jobs]
    services.place_holds(wanted=amounts, now=LIVE)
    for number in range(LIVE_STEPS):
        close(world, LIVE + number * STEP)
        progress(f"{number + 1} of {LIVE_STEPS} timesteps of a full fleet")


def _holdings(world: World, runs: list[Run], sizes: list[int]) -> Iterator[Holding]:
    taken = 0  # GPUs, from the first node on
    for run, gpus in zip(runs, sizes, strict=True):
        node, first = world.nodes[taken // GPUS], taken % GPUS
        mask = (1 << gpus) - 1 << first
        yield Holding(run=run, node=node, mask=mask, started_at=LIVE, funded=True)
        taken += gpus


def close(world: World, at: datetime) -> None:
    """Charge a timestep and top up the holds for the next, as a tick does."""
    end = at + STEP
    with transaction.atomic():
        assert services.close_timestep(start=at, end=end, parked={}, now=end)
        live = closing.held_past(end)
        assert not services.cover(runs=live, start=end, end=end + STEP, now=end)
