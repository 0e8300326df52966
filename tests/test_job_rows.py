"""Jobs and runs as columns: the same as their objects have, for as many as there are."""

from dataclasses import fields

import pytest

from allocator import job_rows
from allocator.job_rows import JobRow, RunRow
from tests import factories as make
from tests.factories import HOUR, T0
from workloads.models import Job

pytestmark = pytest.mark.django_db


def test_a_row_has_what_the_object_has(tree):
    petrel = tree["orlo/science/petrel"]
    made = [make.make_job(petrel, at=T0), make.make_job(petrel, at=T0 + HOUR, state="completed")]
    found = job_rows.jobs([job.pk for job in made])
    for job in Job.objects.all():
        for name in (*(field.name for field in fields(JobRow)), "is_realtime", "has_ended"):
            assert getattr(found[job.pk], name) == getattr(job, name), name


def test_a_run_s_row_has_what_the_object_has(tree):
    (node,) = make.make_nodes(make.make_pool())
    run = make.make_run(make.make_job(tree["orlo/science/petrel"], at=T0), {node: 0x0F})
    run.refresh_from_db()
    found = job_rows.runs([run.pk])[run.pk]
    assert {f.name: getattr(found, f.name) for f in fields(RunRow)} == {
        f.name: getattr(run, f.name) for f in fields(RunRow)
    }


def test_jobs_of_one_budget_share_it_and_take_two_queries(tree, django_assert_num_queries):
    petrel = tree["orlo/science/petrel"]
    pks = [make.make_job(petrel, at=T0).pk for _ in range(5)]
    with django_assert_num_queries(2):
        found = job_rows.jobs(pks)
    assert len({id(row.budget) for row in found.values()}) == 1


def test_more_than_a_query_may_name_are_read_in_parts(tree, monkeypatch):
    monkeypatch.setattr(job_rows, "AT_ONCE", 2)
    pks = [make.make_job(tree["orlo/science/petrel"], at=T0).pk for _ in range(5)]
    assert sorted(job_rows.jobs([*pks, pks[0], 10**6])) == pks
    assert job_rows.jobs([]) == {}
