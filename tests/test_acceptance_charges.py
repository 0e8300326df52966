"""Rows 17 to 29 of the acceptance tests, word by word; test_acceptance_ledger.py has each once.

What happens in one transaction, what a tick that dies leaves behind, each type of GPU, each policy,
and what the database itself keeps from being deleted.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import ProtectedError, Sum

from allocator import cycle, keeping
from allocator.models import Alarm
from budgets.models import Period
from clusters.models import SimulatedFault
from ledger import reports, services
from ledger.models import ClosedTimestep, Entry
from tests import factories as make
from tests.acceptance_world import MINUTE
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import CREDIT, Institute, assert_reconciled, make_institute
from tests.ledger_world import ledger as book
from tests.ledger_world import write_entry
from workloads import services as workloads
from workloads.models import JobEvent, Run

pytestmark = pytest.mark.django_db


def figures(place: Institute, at: datetime) -> tuple[int, int, int, int]:
    """Return what petrel has settled, in flight, held and spendable, in credits."""
    mine = reports.figures(period=place.period, now=at)[place.petrel.pk]
    parts = (mine.settled_mgpus, mine.in_flight_mgpus, mine.held_mgpus, mine.spendable_mgpus)
    assert not any(part % (CREDIT // 10) for part in parts)
    return tuple(part * 10 // CREDIT for part in parts)  # type: ignore[return-value]


class TestRow17Balance:
    """Settled, in flight, committed; and nine tenths back in the transaction that ends the job."""

    def test_what_waits_with_funds_is_committed_like_what_runs(self) -> None:
        place = make_institute(credits={"orlo/science/petrel": 100})
        place.submit(place.petrel, minimum_runtime_s=7200)
        assert figures(place, T0) == (0, 0, 160, 840)
        place.submit(place.petrel, minimum_runtime_s=3600)
        place.submit(place.petrel, minimum_runtime_s=3600)  # two nodes: it waits
        place.cycle(T0)
        assert figures(place, T0) == (0, 0, 320, 680)
        place.cycle(T0 + 30 * MINUTE)
        assert figures(place, T0 + 30 * MINUTE) == (80, 0, 240, 680)

    def test_either_it_has_ended_and_the_rest_is_free_or_neither(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = make_institute(credits={"orlo/science/petrel": 100})
        job = place.submit(place.petrel, minimum_runtime_s=3600, lasts=360)
        place.cycle(T0)
        with monkeypatch.context() as broken:
            broken.setattr("allocator.driving.ledger.release_rest", _fails)
            with pytest.raises(DatabaseError, match="the disk is full"):
                cycle.run(at=T0 + 6 * MINUTE, trigger="test")
        assert job.runs.get().state == Run.State.RUNNING
        assert not Entry.objects.filter(kind="release").exists()
        place.cycle(T0 + 6 * MINUTE)
        assert job.runs.get().state == Run.State.ENDED
        assert figures(place, T0 + 6 * MINUTE) == (0, 8, 0, 992)


def _fails(*args: Any, **kwargs: Any) -> None:
    raise DatabaseError("the disk is full")


class TestRow20ExactlyOnce:
    """A unique key; a tick that dies in its middle; three requeues."""

    def test_the_database_takes_a_key_once(self) -> None:
        place = make_institute()
        one = {
            "kind": "adjust", "budget": place.petrel, "period": place.period, "at": T0,
            "amount_mgpus": 1, "author": place.user, "note": "x", "created_at": T0,
        }  # fmt: skip
        write_entry(**one, key="charge:1:2026-10-01T00:00:00Z")
        with pytest.raises(IntegrityError), transaction.atomic():
            write_entry(**one, key="charge:1:2026-10-01T00:00:00Z")
        with pytest.raises(DatabaseError), transaction.atomic():
            write_entry(**one, key=None)

    def test_a_tick_that_dies_at_any_statement_is_done_again_whole(self) -> None:
        place = make_institute()
        for budget in (place.petrel, place.auk):
            place.submit(budget, lasts=2 * 3600)
        place.cycle(T0)
        at, before, died = T0 + TIMESTEP, book(), 0
        while True:
            with connection.execute_wrapper(_Dying(died + 1)):
                try:
                    services.close_timestep(start=T0, end=at, parked={}, now=at)
                    break
                except DatabaseError:
                    died += 1
            assert book() == before
        assert died >= 3, "the timestep, its charges and their sums"
        whole = book()
        place.cycle(at)
        assert set(whole) <= set(book())
        charged = Entry.objects.filter(kind="charge").values_list("gpu_seconds", "amount_mgpus")
        assert list(charged) == [(8 * 1800, 4 * CREDIT)] * 2
        assert_reconciled()

    def test_requeued_three_times_it_is_charged_for_what_each_run_held(self) -> None:
        place = make_institute(nodes=1)
        job = place.submit(place.petrel, lasts=2 * 3600, minimum_runtime_s=600)
        for number in range(3):
            fails = T0 + number * HOUR + 40 * MINUTE
            SimulatedFault.objects.create(
                node=place.nodes[0], starts_at=fails, ends_at=fails + 5 * MINUTE
            )
        place.play(T0, T0 + 6 * HOUR)  # each second of each run is charged once, after every cycle
        runs = list(job.runs.order_by("number"))
        assert [run.end_reason for run in runs] == ["node_failure"] * 3 + ["completed"]
        for run in runs:
            assert run.started_at
            assert run.ended_at
            held = 8 * int((run.ended_at - run.started_at).total_seconds())
            charges = Entry.objects.filter(run=run, kind="charge")
            assert charges.aggregate(sum=Sum("gpu_seconds"))["sum"] == held
            back = Entry.objects.filter(run=run, kind="refund").aggregate(sum=Sum("amount_mgpus"))
            assert (back["sum"] or 0) == (0 if run is runs[-1] else held * 1000)


class _Dying:
    """Fails at the n-th statement that writes."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        if sql.split(maxsplit=1)[0] in ("INSERT", "UPDATE", "DELETE"):
            self.left -= 1
            if self.left == 0:
                raise DatabaseError("killed")
        return execute(sql, *args)


class TestRow21Conservation:
    """Per type of GPU; and a nightly check reports any difference."""

    def test_each_pool_has_an_account_of_its_own(self) -> None:
        place = make_institute()
        other = make.make_pool("l40s", cluster=place.cluster, rate=500)
        small = make.make_nodes(other, 2, gpus=4)
        SimulatedFault.objects.create(
            node=small[1], starts_at=T0 + 10 * MINUTE, ends_at=T0 + 40 * MINUTE
        )
        place.submit(place.petrel, lasts=5000, pools=("h100",))
        place.submit(place.auk, gpus=4, lasts=700, pools=("l40s",))
        place.play(T0, T0 + 2 * HOUR)
        sums: dict[str, list[int]] = {}
        for row in reports.conservation(start=T0, end=T0 + 2 * HOUR):
            parts = [row.charged, row.unfunded, row.free, row.down]
            assert (sum(parts), row.unaccounted) == (row.inventory, 0), row
            known = sums.setdefault(row.pool, [0] * 4)
            sums[row.pool] = [a + b for a, b in zip(known, parts, strict=True)]
        assert sums == {
            "h100": [8 * 5000, 0, 16 * 7200 - 8 * 5000, 0],
            "l40s": [4 * 700, 0, 8 * 7200 - 4 * 700 - 4 * 1800, 4 * 1800],
        }
        assert keeping.keep_books(at=T0 + 3 * HOUR) == 0

    def test_the_nightly_check_names_the_pool_and_what_is_missing(self) -> None:
        place = make_institute()
        make.make_run(make.make_job(place.petrel), {place.nodes[0]: 0xFF})
        ClosedTimestep.objects.create(start=T0, end=T0 + TIMESTEP, closed_at=T0 + TIMESTEP)
        assert keeping.keep_books(at=T0 + HOUR) > 0
        (alarm,) = Alarm.objects.filter(kind="books", cleared_at=None)
        assert alarm.text.startswith("h100 2026-10-01T00:00:00Z: inventory is 28800 GPU-seconds")
        assert keeping.keep_books(at=T0 + 30 * 24 * HOUR) > 0, "time alone mends nothing"


class TestRow23Corrections:
    """A closed period gets none, whoever writes; what failure and preemption cost are rules."""

    def test_the_database_itself_keeps_a_closed_period_closed(self) -> None:
        place = make_institute()
        Period.objects.filter(pk=place.period.pk).update(status=Period.Status.CLOSED)
        with pytest.raises(DatabaseError, match="closed"), transaction.atomic():
            write_entry(
                kind="adjust", budget=place.petrel, period=place.period, at=T0, amount_mgpus=-1,
                author=place.user, note="late", key="late", created_at=T0,
            )  # fmt: skip

    @pytest.mark.parametrize(
        ("policy", "refunded"), [("all", 40 * 60), ("checkpoint", 25 * 60), ("none", 0)]
    )
    def test_a_node_failure_gives_back_by_its_policy_and_a_preemption_by_none(
        self, settings: Any, policy: str, refunded: int
    ) -> None:
        settings.NODE_FAILURE_REFUND = policy
        place = make_institute()
        runs = [
            make.make_run(make.make_job(place.petrel, state="running"), {node: 0xFF})
            for node in place.nodes
        ]
        for run, reason in zip(runs, ("node_failure", "preempted"), strict=True):
            JobEvent.objects.create(
                job=run.job, run=run, at=T0 + 15 * MINUTE, kind="checkpoint", data={}
            )
            workloads.end_run(run=run, reason=reason, at=T0 + 40 * MINUTE)
        for start in (T0, T0 + TIMESTEP):
            end = start + TIMESTEP
            services.close_timestep(start=start, end=end, parked={}, now=end)
        for run in runs[:1]:
            services.refund_run(run=run, now=T0 + HOUR, policy=policy)
        back = Entry.objects.filter(kind="refund").values_list("run_id", "amount_mgpus")
        assert sum(amount for _, amount in back) == 8 * refunded * 1000
        assert {run for run, _ in back} <= {runs[0].pk}
        with pytest.raises(services.LedgerError, match="did not end by node failure"):
            services.refund_run(run=runs[1], now=T0 + HOUR, policy=policy)


class TestRow29NothingIsDeleted:
    """Whatever entries name stays: by the ORM, and by plain SQL."""

    def test_nothing_that_an_entry_names_can_be_deleted(self) -> None:
        place = make_institute()
        job = place.submit(place.auk, lasts=1800)
        place.play(T0, T0 + HOUR)
        named = (place.auk, place.pool, place.user, place.period, job, job.runs.get())
        for row in named:
            with pytest.raises(ProtectedError), transaction.atomic():
                row.delete()
            table, before = row._meta.db_table, book()
            with pytest.raises(DatabaseError), transaction.atomic():
                delete_unseen(table, row.pk)
            assert type(row).objects.filter(pk=row.pk).exists()
            assert book() == before


def delete_unseen(table: str, pk: int) -> None:
    """Delete a row by plain SQL, and look at what refers to it as a commit would."""
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table} WHERE id = %s", [pk])
    connection.check_constraints()
