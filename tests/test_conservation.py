"""Conservation: charged + unfunded + free + down = inventory, or the difference is named."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from budgets.models import Budget
from clusters.models import GpuState, Node
from ledger import reports, services
from ledger.entries import write
from ledger.models import Entry
from tests.factories import (
    HOUR,
    T0,
    TIMESTEP,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
)
from tests.ledger_world import CREDIT, close, give, ledger, log_gpus
from workloads import services as workloads
from workloads.models import Holding, Job, Run

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def petrel(tree: dict[str, Budget]) -> Budget:
    give(tree["orlo/science/petrel"], 1000, make_period())
    return tree["orlo/science/petrel"]


@pytest.fixture
def nodes(petrel: Budget) -> list[Node]:
    """Two nodes of 4 GPUs; logs and runs agree.

    The first: 2 GPUs funded from the start, 1 unfunded for the second ten minutes, the rest free.
    The second: one GPU down from minute 25, all down from minute 40.
    """
    pool = make_pool("a100")
    first, second = make_nodes(pool, 2, gpus=4)
    make_run(make_job(petrel), {first: 0b0011})
    start, end = T0 + 10 * MINUTE, T0 + 20 * MINUTE
    make_run(make_job(petrel), {first: 0b0100}, started_at=start, ended_at=end, funded=False)
    log_gpus(first, T0 - HOUR)
    log_gpus(first, T0, held=0b0011)
    log_gpus(first, start, held=0b0111)
    log_gpus(first, end, held=0b0011)
    log_gpus(second, T0 - HOUR)
    log_gpus(second, T0 + 25 * MINUTE, down=0b1000)
    log_gpus(second, T0 + 40 * MINUTE, down=0b1111)
    return [first, second]


def rows(timesteps: int = 2) -> list[reports.ConservationRow]:
    return reports.conservation(start=T0, end=T0 + timesteps * TIMESTEP)


def differences() -> list[str]:
    return [str(one) for one in reports.differences(start=T0, end=T0 + HOUR)]


def test_every_gpu_second_is_somewhere(nodes: list[Node]) -> None:
    close(2)
    first, second = rows()
    assert (first.pool, first.timestep) == ("a100", T0)
    assert first.inventory == 2 * 4 * 1800
    assert first.charged == 2 * 1800
    assert first.unfunded == 600
    assert first.down == 5 * 60
    assert first.free == (2 * 1800 - 600) + (4 * 1800 - 300)
    assert second.charged == 2 * 1800
    assert second.down == 10 * 60 + 20 * 60 * 4
    assert second.free == 2 * 1800 + 3 * 600
    assert [row.difference for row in (first, second)] == [0, 0]
    assert differences() == []
    assert reports.entry_problems(start=T0, end=T0 + HOUR) == []


def test_only_closed_timesteps_are_proven(nodes: list[Node]) -> None:
    assert rows() == []
    close(1)
    assert [row.timestep for row in rows()] == [T0]


def test_a_node_counts_while_it_is_in_use(nodes: list[Node]) -> None:
    Node.objects.filter(pk=nodes[1].pk).update(
        active_from=T0 + 5 * MINUTE, active_until=T0 + 35 * MINUTE
    )
    close(2)
    first, second = rows()
    assert first.inventory == 4 * 1800 + 4 * 1500
    assert second.inventory == 4 * 1800 + 4 * 300
    assert (first.difference, second.difference) == (0, 0)


def test_a_gpu_without_a_log_is_unaccounted_and_named(nodes: list[Node]) -> None:
    GpuState.objects.filter(node=nodes[1], at__lt=T0 + MINUTE).delete()
    close(1)
    (row,) = rows(1)
    assert row.unaccounted == 25 * 60 * 4
    assert row.difference == row.unaccounted
    assert differences() == [
        f"a100 2026-10-01T00:00:00Z: inventory is {25 * 60 * 4} GPU-seconds more than is known: "
        f"node {nodes[1].name}"
    ]


def test_a_state_that_no_bit_tells_is_unaccounted(nodes: list[Node]) -> None:
    GpuState.objects.filter(node=nodes[1]).update(free=0b0001, down=0)
    close(1)
    (row,) = rows(1)
    assert row.unaccounted == 3 * 1800


def test_a_charge_that_no_log_bears_out_is_named_though_the_sums_agree(
    nodes: list[Node], petrel: Budget
) -> None:
    (silent,) = make_nodes(nodes[0].pool, gpus=4)
    run = make_run(make_job(petrel), {silent: 0b1111})
    close(1)
    (row,) = rows(1)
    assert (row.difference, row.unaccounted) == (0, 4 * 1800)
    assert differences() == [
        f"a100 2026-10-01T00:00:00Z: no log tells the state of {4 * 1800} GPU-seconds: "
        f"node {silent.name}, run {run.pk}"
    ]


def test_held_by_the_log_and_by_no_run_is_a_difference(nodes: list[Node]) -> None:
    state = GpuState.objects.get(node=nodes[1], at=T0 - HOUR)
    state.held, state.free = 0b1, 0b1110
    state.save()
    close(1)
    (one,) = reports.differences(start=T0, end=T0 + TIMESTEP)
    assert (one.gpu_seconds, one.nodes, one.runs) == (1500, (f"node {nodes[1].name}",), ())


def test_a_run_on_gpus_that_are_down_is_a_difference(nodes: list[Node], petrel: Budget) -> None:
    run = make_run(make_job(petrel), {nodes[1]: 0b1000}, started_at=T0 + 25 * MINUTE)
    close(1)
    (one,) = reports.differences(start=T0, end=T0 + TIMESTEP)
    assert one.gpu_seconds == -300
    assert one.nodes == (f"node {nodes[1].name}",)
    assert one.runs == (f"run {run.pk}",)


def test_a_run_that_was_not_charged_is_named_by_both_checks(nodes: list[Node]) -> None:
    close(1)
    run = Run.objects.earliest("pk")
    # Somebody writes into the past: the holding began before what was charged.
    Holding.objects.filter(run=run).update(mask=0b1011)
    (problem,) = reports.entry_problems(start=T0, end=T0 + HOUR)
    assert problem.rule == "charge"
    assert problem.sentence == (
        f"run {run.pk} of orlo/science/petrel, timestep 2026-10-01T00:00:00Z, funded: "
        f"held {3 * 1800} GPU-seconds, charged {2 * 1800}"
    )


def test_the_proof_asks_a_constant_number_of_questions(nodes: list[Node], petrel: Budget) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as asked:
            assert all(row.difference == 0 for row in rows(4))
        return len(asked)

    close(1)
    few = queries()
    for node in make_nodes(nodes[0].pool, 6):
        make_run(make_job(petrel), {node: 1}, started_at=T0 + TIMESTEP)
        log_gpus(node, T0 - HOUR)
        log_gpus(node, T0 + TIMESTEP, held=1)
    close(3, since=T0 + TIMESTEP)
    assert queries() == few


# --- Other breaches -------------------------------------------------------------------------------


def forge(**fields: Any) -> None:
    """Write an entry that no service would."""
    charge = Entry.objects.filter(kind="charge").earliest("pk")
    charge.pk = None
    for name, value in fields.items():
        setattr(charge, name, value)
    with transaction.atomic():
        write([charge])


def problems() -> list[tuple[str, str]]:
    found = reports.entry_problems(start=T0, end=T0 + HOUR)
    return [(one.rule, one.sentence) for one in found]


def test_a_second_charge_of_the_same_seconds_is_named(nodes: list[Node]) -> None:
    close(1)
    run = Run.objects.earliest("pk")
    forge(key="forged", at=T0 + 29 * MINUTE)
    where = f"run {run.pk} of orlo/science/petrel, timestep 2026-10-01T00:00:00Z"
    assert problems() == [
        (
            "charged twice",
            f"{where}: from 2026-10-01T00:29:00Z on 3600000 mGPU-s for 3600 GPU-seconds are "
            "charged, from 2026-10-01T00:00:00Z on 3600000 for 3600",
        )
    ]


def test_a_release_of_what_was_never_held_is_named(nodes: list[Node]) -> None:
    close(1)
    forge(key="forged", kind="release", amount_mgpus=5, gpu_seconds=0)
    assert [rule for rule, _ in problems()] == ["hold"]


def test_a_refund_above_the_charges_is_named(nodes: list[Node]) -> None:
    close(1)
    forge(key="forged", kind="refund", amount_mgpus=2 * 1800 * 1000 + 7, gpu_seconds=0)
    run = Run.objects.earliest("pk")
    assert problems() == [
        (
            "refund",
            f"run {run.pk} of orlo/science/petrel, 2026 Q4: 3600007 mGPU-s given back of "
            "3600000 charged",
        )
    ]


def test_a_busy_hour_with_every_kind_of_end_is_clean(nodes: list[Node], petrel: Budget) -> None:
    """Holds, top-ups, an early end, a turn to unfunded and a node failure, then both proofs."""
    pool = make_pool("h100", rate=2000)
    machines = make_nodes(pool, 3)
    ends = [Run.EndReason.COMPLETED, Run.EndReason.NODE_FAILURE, None]
    for node, reason in zip(machines, ends, strict=True):
        log_gpus(node, T0 - HOUR)
        log_gpus(node, T0, held=0xFF)
        job = make_job(petrel, state=Job.State.RUNNING)
        services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
        run = make_run(job, {node: 0xFF})
        services.cover(runs=[run], start=T0, end=T0 + TIMESTEP, now=T0)
        at = T0 + 17 * MINUTE
        if reason is None:
            workloads.unfund(run=run, at=at)
            services.release_rest(job=job, attempt=1, at=at, now=at)
            continue
        workloads.end_run(run=run, reason=reason, at=at)
        services.release_rest(job=job, attempt=1, at=at, now=at)
        log_gpus(node, at, down=0xFF if reason == Run.EndReason.NODE_FAILURE else 0)
    close(2)
    assert differences() == []
    assert problems() == []
    assert len(ledger()) > 10
