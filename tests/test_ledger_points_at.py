"""An entry points at rows that are there and stay; and nobody empties the ledger's tables."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest
from django.db import IntegrityError, connection, connections, transaction

from budgets.models import Budget, Period
from clusters.models import Pool
from ledger.entries import write
from ledger.models import (
    ClosedTimestep,
    Entry,
    JobRollup,
    JobSettled,
    Rollup,
    WholeRollup,
)
from tests.factories import (
    T0,
    TIMESTEP,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    someone,
)
from tests.factories import make_tree as made_tree
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db(transaction=True)
on_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's own")
NOWHERE = 10**9
POINTS_AT: dict[str, type[Any]] = {
    "period_id": Period,
    "budget_id": Budget,
    "job_id": Job,
    "run_id": Run,
    "pool_id": Pool,
}


@pytest.fixture
def charge() -> dict[str, Any]:
    """The columns of an entry that points at all that one can."""
    someone()
    period, pool = make_period(), make_pool()
    job = make_job(made_tree()["orlo/science/petrel"])
    run = make_run(job, {make_nodes(pool, 1)[0]: 0xFF})
    return {
        "kind": "charge", "period_id": period.pk, "budget_id": job.budget_id, "job_id": job.pk,
        "run_id": run.pk, "pool_id": pool.pk, "attempt": 1, "at": T0, "until": T0 + TIMESTEP,
        "timestep": T0, "gpu_seconds": 8, "amount_mgpus": 8000, "key": "a", "created_at": T0,
    }  # fmt: skip


def insert(**values: Any) -> None:
    Entry.objects.bulk_create([Entry(**values)])


def gone(model: type[Any]) -> None:
    """Delete all rows past Django, which would look for what points at them itself."""
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {model._meta.db_table}")


@pytest.mark.parametrize("column", POINTS_AT)
def test_an_entry_of_no_such_row_is_refused(charge: dict[str, Any], column: str) -> None:
    rows = [charge, charge | {"key": "b", column: NOWHERE}]
    with pytest.raises(IntegrityError), transaction.atomic():
        Entry.objects.bulk_create(Entry(**row) for row in rows)
    assert not Entry.objects.exists()


def test_an_entry_that_points_at_nothing_it_need_not_is_written(charge: dict[str, Any]) -> None:
    insert(**charge | {"job_id": None, "run_id": None, "pool_id": None})
    insert(**charge | {"key": "b"})
    assert Entry.objects.count() == 2


@on_postgresql
@pytest.mark.parametrize(("column", "model"), POINTS_AT.items())
def test_what_an_entry_points_at_stays(charge: dict[str, Any], column: str, model: Any) -> None:
    insert(**charge)
    mine = f"WHERE id = {charge[column]}"
    at_once(f"UPDATE {model._meta.db_table} SET id = id")
    for act in (f"DELETE FROM {model._meta.db_table}", f"UPDATE {model._meta.db_table} SET id = 0"):
        with pytest.raises(IntegrityError, match=f"an entry's {column}"):
            at_once(f"{act} {mine}")
    assert model.objects.filter(pk=charge[column]).exists()


def at_once(sql: str) -> None:
    """Do it, and take it back before foreign keys of other tables are looked at."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
        transaction.set_rollback(True)


@on_postgresql
@pytest.mark.parametrize("first", ["entry", "delete"])
def test_of_an_entry_and_a_delete_at_once_one_is_refused(
    charge: dict[str, Any], first: str
) -> None:
    """Whoever comes second waits, and is told what the first has done."""
    run = Run.objects.get(pk=charge["run_id"])
    run.pk, run.number, run.state = None, 2, Run.State.ENDED  # nothing else points at it
    run.save()
    acts: dict[str, Callable[[], Any]] = {
        "entry": lambda: insert(**charge | {"run_id": run.pk}),
        "delete": lambda: Run.objects.filter(pk=run.pk)._raw_delete("default"),
    }
    second = "delete" if first == "entry" else "entry"
    done, waits = Event(), Event()
    refused: list[IntegrityError] = []

    def later() -> None:
        try:
            done.wait(20)
            waits.set()
            acts[second]()
        except IntegrityError as error:
            refused.append(error)
        finally:
            connections.close_all()

    thread = Thread(target=later)
    thread.start()
    with transaction.atomic():
        acts[first]()
        done.set()
        assert waits.wait(20)
        thread.join(0.3)
    thread.join(20)
    assert len(refused) == 1
    assert Entry.objects.count() == (first == "entry")
    assert Run.objects.filter(pk=run.pk).exists() == (first == "entry")


@on_postgresql
@pytest.mark.parametrize("model", [Entry, ClosedTimestep])
def test_nobody_empties_a_table_of_the_ledger(charge: dict[str, Any], model: Any) -> None:
    with transaction.atomic():
        write([Entry(**charge)])
    ClosedTimestep.objects.create(start=T0, end=T0 + TIMESTEP, closed_at=T0 + TIMESTEP)
    for cascade in ("", " CASCADE"):
        with pytest.raises(IntegrityError, match="append-only"), connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {model._meta.db_table}{cascade}")
    assert model.objects.exists()


@on_postgresql
@pytest.mark.parametrize("model", POINTS_AT.values())
def test_nobody_empties_what_entries_point_at(charge: dict[str, Any], model: Any) -> None:
    with transaction.atomic():
        write([Entry(**charge)])
    for one in (Rollup, WholeRollup, JobRollup, JobSettled):
        gone(one)
    table = model._meta.db_table  # the first that is asked, before those that it takes along
    told = pytest.raises(IntegrityError, match=f"{table} has rows that entries point at")
    with told, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {table} CASCADE")
    assert model.objects.exists()
