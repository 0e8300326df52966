"""What a cycle reads does not grow with the years: of logs and ledgers no table is read whole."""

import re
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocator import cycle
from clusters.models import GpuState, NodeState, SimulatedFault, SimulatedTask
from forecasting.models import Forecast
from ledger.models import ClosedTimestep, Entry
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import make_institute
from workloads.models import Holding, Job, JobEvent, Run

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="it reads SQLite's query plans"),
]
GROWING = {
    model._meta.db_table
    for model in (Entry, Job, JobEvent, Run, Holding, GpuState, NodeState, SimulatedTask, Forecast)
} | {ClosedTimestep._meta.db_table}
ALIASED = re.compile(r'(?:FROM|JOIN) "(\w+)" (\w+)')


def whole_reads(sql: str) -> Iterator[str]:
    """Growing tables that a query goes through from one end to the other."""
    names = {alias: table for table, alias in ALIASED.findall(sql)}
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        steps = [row[3] for row in cursor.fetchall()]
    for step in steps:
        found = re.match(r"SCAN (\w+)", step)
        if sql.endswith("LIMIT 1") and "USING" in step:
            continue  # the first of an index
        if found and names.get(found[1], found[1]) in GROWING:
            yield f"{step}: {sql[:2000]}"


@pytest.mark.parametrize("at", [T0 + HOUR, T0 + HOUR + TIMESTEP / 2])
def test_no_table_that_grows_is_read_whole(at):
    place = make_institute(nodes=3)
    for n in range(3):
        place.submit(place.petrel, name=f"job{n}", lasts=5000)
    place.serve(place.tern, profile=(2, 4) * 12)
    SimulatedFault.objects.create(node=place.nodes[0], starts_at=T0 + HOUR, ends_at=T0 + 2 * HOUR)
    place.play(T0, T0 + HOUR - TIMESTEP)
    place.submit(place.auk, at=at, minimum_runtime_s=3600)
    with CaptureQueriesContext(connection) as queries:
        cycle.run(at=at, trigger="test")
    asked = {q["sql"] for q in queries if q["sql"].startswith("SELECT")}
    assert len(asked) > 30
    assert [read for sql in sorted(asked) for read in whole_reads(sql)] == []
