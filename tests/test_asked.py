"""Declared against used: the service, its page, the API, and the quote."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocator.pages import asked as asked_page
from forecasting import asked
from forecasting.asked import asked_against_used, of_project
from forecasting.demand_models import DemandScore
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_world import World, at, client_of, granted, text_of
from workloads.models import Job

pytestmark = pytest.mark.django_db
NOW = T0 + 10 * 24 * HOUR


@pytest.fixture
def world(tree) -> World:
    return granted(tree)


@pytest.fixture
def instants() -> Iterator[datetime]:
    """Starts of jobs, so that no two hold the same node."""
    return (T0 + 6 * n * HOUR for n in range(1000))


def ended(
    world: World, start: datetime, path: str, *, used_h: float = 2, asked_h: float | None = 4, **f
) -> Job:
    until = start + timedelta(hours=used_h)
    declared = None if asked_h is None else int(asked_h * 3600)
    fields = {"state": "completed", "expected_duration_s": declared, "ended_at": until} | f
    job = make.make_job(world.tree[path], **fields)
    make.make_run(job, {world.nodes[0]: 0xFF}, started_at=start, ended_at=until)
    return job


def compare(world, path="orlo", reader=None, **given):
    reader = reader or make.make_user(is_superuser=True)
    asks = {"since": T0, "now": NOW} | given
    return asked_against_used(budget=world.tree[path], reader=reader, **asks)


def test_projects_and_people_are_compared_and_the_worst_come_first(world, instants):
    ada, ben = make.make_user("ada", first_name="Ada", last_name="L"), make.make_user("ben")
    for _ in range(5):
        ended(world, next(instants), "orlo/science/petrel", asked_h=3, user=ada)
    ended(world, next(instants), "orlo/science/auk", asked_h=20, user=ben)
    found = compare(world)
    assert found.jobs == 6
    assert found.duration.median_per_mille == 1500
    assert [line.key for line in found.projects] == ["orlo/science/auk", "orlo/science/petrel"]
    assert [(line.key, line.name) for line in found.people] == [("ben", "ben"), ("ada", "Ada L")]
    assert found.projects[1].found.suggests == 666
    assert found.projects[0].found.suggests is None
    assert found.duration.beyond_gpu_seconds == 8 * 3600 * (5 * 1 + 18)
    assert found.pairs[0] == (7200, 10_800)


def test_only_jobs_that_came_to_their_end_in_the_interval_count(world, instants):
    petrel = "orlo/science/petrel"
    ended(world, next(instants), petrel)
    ended(world, next(instants), petrel, state="failed")
    ended(world, next(instants), petrel, state="cancelled")
    ended(world, next(instants), petrel, asked_h=None)
    ended(world, next(instants), petrel, state="timed_out", asked_h=None, time_limit_s=7200)
    make.make_job(world.tree[petrel], expected_duration_s=60)
    late = ended(world, NOW - HOUR, petrel)  # ends after now
    assert late.ended_at > NOW
    found = compare(world)
    assert (found.jobs, found.duration.jobs, found.limit.jobs) == (3, 1, 1)
    assert compare(world, since=T0 + 30 * HOUR).duration is None
    assert compare(world, "orlo/vision").jobs == 0


def test_what_earlier_runs_kept_counts_and_no_second_is_no_division(world, instants):
    petrel = "orlo/science/petrel"
    ended(world, next(instants), petrel, used_h=1, asked_h=4, progress_s=3600)
    assert compare(world).duration.median_per_mille == 2000
    ended(world, next(instants), petrel, used_h=0, asked_h=1)
    found = compare(world)
    assert found.duration.high_per_mille > 2_000_000
    assert found.pairs[-1] == (0, 3600)


def test_what_was_set_aside_in_vain_and_parked_is_told(world, instants):
    ended(world, next(instants), "orlo/science/petrel", used_h=0.5, minimum_runtime_s=3600)
    found = compare(world)
    assert (found.in_vain, found.in_vain_gpu_seconds) == (1, 8 * 1800)
    assert found.parked_gpu_seconds == 0


def test_names_of_people_are_for_who_manages_and_ones_own(world, instants):
    petrel = world.tree["orlo/science/petrel"]
    ada, ben = make.make_user("ada"), make.make_user("ben")
    boss, viewer = make.make_user("boss"), make.make_user("viewer")
    make.make_role(ada, petrel)
    make.make_role(viewer, petrel, "viewer")
    make.make_role(boss, world.tree["orlo/science"], "manager")
    for user in (ada, ben):
        ended(world, next(instants), petrel.path, user=user)

    def people(reader):
        return {line.key for line in compare(world, petrel.path, reader).people}

    assert people(boss) == {"ada", "ben"}
    assert people(ada) == {"ada"}
    assert people(viewer) == set()


def test_services_are_compared_by_their_profiles(world, monkeypatch):
    days = {"calibrated": False, "timesteps": 48, "covered": 48, "forecast": 96, "met": 1}
    days |= {"held": 1, "short": 0, "loss_milli": 0, "declared_loss_milli": 0}
    for name, declared, needed in (("chat", 300, 100), ("idle", 48, 0), ("fit", 90, 100)):
        job = make.make_service(world.tree["orlo/science/petrel"], name=name)
        for n in range(2):
            day = (T0 + n * 24 * HOUR).date()
            DemandScore.objects.create(
                service=job.service, day=day, declared=declared, needed=needed, **days
            )
    found = compare(world, "orlo/science")
    told = [(one.name, one.declared, one.needed, one.per_mille) for one in found.services]
    assert told == [("chat", 600, 200, 3000), ("idle", 96, 0, None), ("fit", 180, 200, 900)]
    assert compare(world, "orlo/vision").services == ()
    at(monkeypatch, NOW)
    user = make.make_user()
    make.make_role(user, world.tree["orlo"], "viewer")
    part = text_of(client_of(user).get("/budgets/orlo/science/asked"))
    assert "chat 3.00 idle – fit 0.90" in part


def test_queries_do_not_grow_with_jobs(world, instants):
    reader = make.make_user(is_superuser=True)
    counts = []
    for _ in range(2):
        for _ in range(6):
            ended(world, next(instants), "orlo/science/petrel", user=make.make_user())
        with CaptureQueriesContext(
            connection,
        ) as caught:
            compare(world, reader=reader)
        counts.append(len(caught))
    assert counts[0] == counts[1] <= 12


def test_a_quote_says_how_the_projects_declarations_came_true(world, instants):
    petrel = world.tree["orlo/science/petrel"]
    for _ in range(4):
        ended(world, next(instants), petrel.path, asked_h=4)
    assert of_project(budget=petrel, declared_s=36_000, now=NOW) is None
    ended(world, next(instants), petrel.path, asked_h=4)
    said = of_project(budget=petrel, declared_s=36_000, now=NOW)
    assert (said.jobs, said.took_per_mille, said.instead_s) == (5, 500, 18_000)
    assert of_project(budget=petrel, declared_s=None, now=NOW).instead_s is None
    assert of_project(budget=petrel, declared_s=60, now=NOW + 91 * 24 * HOUR) is None


def test_the_submit_pages_quote_has_it(world, instants, monkeypatch):
    monkeypatch.setattr("workloads.views.now", lambda: NOW)
    user = make.make_user()
    make.make_role(user, world.tree["orlo/science/petrel"])
    for _ in range(5):
        ended(world, next(instants), "orlo/science/petrel", asked_h=4)
    form = {
        **{"budget": "orlo/science/petrel", "name": "x", "kind": "training", "gpus": "8"},
        **{"urgency": "normal", "when_unfunded": "wait", "expected_duration_s": "10 h"},
    }
    told = text_of(client_of(user).post("/jobs/quote", form))
    assert "Jobs of this project took 50 % of what was declared (5 jobs, 90 days)." in told
    assert "By that, declare 5 h 00." in told


def test_the_page_loads_it_afterwards(world, instants, monkeypatch):
    at(monkeypatch, NOW)
    user = make.make_user()
    make.make_role(user, world.tree["orlo"], "manager")
    client = client_of(user)
    page = client.get("/budgets/orlo/science").content.decode()
    assert 'hx-get="/budgets/orlo/science/asked"' in page
    empty = text_of(client.get("/budgets/orlo/science/asked"))
    assert "No job that ended in the last 28 days had declared" in empty
    for n in range(5):
        ended(world, next(instants), f"orlo/science/{('petrel', 'auk')[n % 2]}", asked_h=3)
    answer = client.get("/budgets/orlo/science/asked")
    told = text_of(answer)
    assert "The median of 5 jobs asked 1.50 × what it used" in told
    assert "Declare 0.67 of what you would." in told
    assert "40.0 GPU-hours were asked and not used." in told
    html = answer.content.decode()
    assert 'href="/budgets/orlo/science/auk"' in html
    assert "<script" not in html  # htmx would drop it
    assert "points_s" in html
    page = asked_page.page(user, path="orlo/science", now=NOW)
    assert page.picture["times_per_mille"] == 1500
    assert page.picture["points_s"][0] == [7200, 10_800]


def test_the_api_answers_in_integers_and_refuses_other_days(world, instants, monkeypatch):
    monkeypatch.setattr("config.clock.now", lambda: NOW)
    user = make.make_user()
    make.make_role(user, world.tree["orlo"], "manager")
    for _ in range(5):
        ended(world, next(instants), "orlo/science/petrel", asked_h=3)
    client = client_of(user)
    body = client.get("/api/v1/budgets/orlo/asked/").json()
    assert body["duration"]["median_per_mille"] == 1500
    assert body["duration"]["suggested_per_mille"] == 666
    assert body["projects"][0]["path"] == "orlo/science/petrel"
    assert body["limit"] is None
    assert body["until"] == "2026-10-11T00:00:00Z"
    assert client.get("/api/v1/budgets/orlo/asked/?days=1").json()["jobs"] == 0
    assert client.get("/api/v1/budgets/orlo/asked/?days=0").status_code == 400
    assert client.get("/api/v1/budgets/orlo/nothing/asked/").status_code == 404
    assert asked.DAYS == 28
