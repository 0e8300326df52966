"""Services beside the full fleet, for the bench of pages: held, charged, asked for."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from clusters.models import GpuState, Node
from forecasting.models import DemandForecast, DemandScore, RatePerGpu, TrafficBucket
from ledger.entries import write
from ledger.models import Entry
from workloads.models import Holding, Job, Run, Service

from .ledger_year import GPUS, START, STEP, World
from .pages_work import FULL, Maker, charge, in_parts

SERVICES = 40
OLDEST_DAYS, DAYS = 90, 7  # that the first service, and each other one, has run for
TRAFFIC_DAYS = 28
BUCKET = timedelta(minutes=15)
MICRO = 1_000_000


def add(maker: Maker) -> Job:
    """Run services on nodes of their own; return one with thousands of charges."""
    serve_the_year()
    nodes = _nodes(maker.world)
    made = [
        _service(maker, node, maker.live_until - timedelta(days=DAYS if number else OLDEST_DAYS))
        for number, node in enumerate(nodes)
    ]
    maker.progress(f"{len(made)} services")
    return made[0]


def serve_the_year() -> None:
    """Say what the year's services were to hold: a simulation of its end reads it."""
    lacking = Job.objects.filter(kind=Job.Kind.REALTIME, service=None)
    Service.objects.bulk_create(
        Service(job=job, profile=[GPUS] * 24, swap_cap=GPUS) for job in lacking
    )


def _nodes(world: World) -> list[Node]:
    last = world.nodes[-1].position
    made = Node.objects.bulk_create(
        Node(pool=world.pool, name=f"s{i}", gpus=GPUS, position=last + 1 + i, active_from=START)
        for i in range(SERVICES)
    )
    GpuState.objects.bulk_create(
        GpuState(node=node, at=START, held=0, free=FULL, down=0) for node in made
    )
    return made


def _service(maker: Maker, node: Node, since: datetime) -> Job:
    job = Job.objects.create(
        budget=maker.random.choice(maker.world.leaves),
        submitted_by=maker.random.choice(maker.people),
        submitted_at=since,
        state_since=since,
        name=f"chat-{node.name}",
        kind=Job.Kind.REALTIME,
        gpus=GPUS,
        minimum_runtime_s=0,
        state=Job.State.RUNNING,
        funded=True,
        estimate_p10_s=0,
        estimate_p50_s=0,
        estimate_p90_s=0,
    )
    service = Service.objects.create(job=job, profile=[4] * 12 + [GPUS] * 12, swap_cap=4)
    run = Run.objects.create(
        job=job,
        number=1,
        pool=maker.world.pool,
        state=Run.State.RUNNING,
        decided_at=since,
        started_at=since,
        charged_until=maker.live_until,
    )
    Holding.objects.create(run=run, node=node, mask=FULL, funded=True, started_at=since)
    for entries in in_parts(_charges(maker, run, since)):
        write(entries)
    _asked_for(maker, service, since)
    return job


def _charges(maker: Maker, run: Run, since: datetime) -> Iterator[Entry]:
    while since < maker.live_until:
        yield charge(maker, run, since, since + STEP, GPUS * STEP.seconds)
        since += STEP


def _asked_for(maker: Maker, service: Service, since: datetime) -> None:
    """Give it traffic, what was forecast of it and how that did."""
    random, end = maker.random, maker.live_until
    RatePerGpu.objects.create(service=service, source="declared", rate_micro=10 * MICRO, at=since)
    since = max(since, end - timedelta(days=TRAFFIC_DAYS))
    TrafficBucket.objects.bulk_create(
        TrafficBucket(
            service=service, at=since + n * BUCKET, rate_micro=random.randrange(70 * MICRO)
        )
        for n in range((end - since) // BUCKET)
    )
    Service.objects.filter(pk=service.pk).update(traffic_step_minutes=15)
    DemandForecast.objects.bulk_create(
        DemandForecast(service=service, at=since + n * STEP, gpus=GPUS, source="declared")
        for n in range((end - since) // STEP)
    )
    DemandScore.objects.bulk_create(
        _score(service, since + timedelta(days=n)) for n in range((end - since).days)
    )


def _score(service: Service, day: datetime) -> DemandScore:
    sums = dict.fromkeys(("needed", "forecast", "met", "held", "declared"), 48 * GPUS)
    return DemandScore(
        service=service,
        day=day.date(),
        calibrated=False,
        timesteps=48,
        covered=46,
        short=4,
        loss_milli=20_000,
        declared_loss_milli=20_000,
        **sums,
    )
