"""A ledger with something odd of every kind, for reports and their files."""

from datetime import timedelta

from budgets.models import Budget, Period
from ledger import services
from tests.factories import (
    HOUR,
    T0,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_service,
    make_user,
)
from tests.ledger_world import CREDIT, close, give, give_alone
from workloads.models import Run

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
END = T0 + 3 * HOUR  # of the last closed timestep
PARKED = 777


def odd_ledger(tree: dict[str, Budget], **period_fields: object) -> Period:
    """Three hours: parked, real-time and unfunded GPUs, a refund, adjustments, two rates.

    ``ada`` submitted what petrel ran, ``bo`` the rest.
    """
    period = make_period(**{"ends_at": T0 + 4 * DAY, **period_fields})  # type: ignore[arg-type]
    petrel, auk, tern = (
        tree[f"orlo/{path}"] for path in ("science/petrel", "science/auk", "vision/tern")
    )
    for number, budget in enumerate((petrel, auk, tern)):
        give(budget, 101 + number, period)
    give_alone(tree["orlo"], 13, period)
    pool = make_pool("h100", rate=1237)
    pool.rates.create(effective_at=T0 + 100 * MINUTE, rate_per_mille=1499)
    nodes = make_nodes(pool, 5)
    ada, bo = make_user("ada", first_name="Ada", last_name="Lovelace"), make_user("bo")
    run = make_run(make_job(petrel, user=ada, name="train"), {nodes[0]: 0b111})
    make_run(make_job(auk, user=bo, name="=sweep"), {nodes[1]: 0b1}, started_at=T0 + 7 * MINUTE)
    make_run(make_job(tern, user=bo, name="free"), {nodes[2]: 0xFF}, funded=False)
    make_run(make_service(tern, user=bo, name="chat"), {nodes[3]: 0b11})
    failed = make_run(
        make_job(auk, user=bo, name="failed"),
        {nodes[4]: 0b1111},
        ended_at=T0 + 71 * MINUTE,
        end_reason=Run.EndReason.NODE_FAILURE,
    )
    services.place_hold(job=make_job(tern, user=bo), amount_mgpus=CREDIT + 1, now=T0)
    idle = {(run.pk, T0): PARKED, (run.pk, T0 + HOUR): 1001, (failed.pk, T0): 60}
    close(6, parked=idle)
    services.adjust(
        budget=tree["orlo"], amount_mgpus=-17, author=make_user("meta"), note="miscounted",
        key="odd", now=T0 + 131 * MINUTE,
    )  # fmt: skip
    return period
