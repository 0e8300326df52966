"""Sessions on pages, in the API and on the command line: the same answers everywhere."""

from datetime import timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from allocator import sessions
from allocator.pages import job as pages
from allocator.pages.session_words import refusal
from client import tables
from client.__main__ import _parser
from clusters.connectors import KINDS
from clusters.models import Drain
from config import clock
from tests import factories as make
from tests.factories import HOUR, T0
from tests.flaky import Flaky
from tests.helpers import CREDIT, Institute, make_institute
from tests.pages_world import client_of, text_of
from tests.test_sessions import HOUR_S, MINUTE, ends, extend, run_of, started, work
from workloads.models import Extension, Job

pytestmark = pytest.mark.django_db
AT = T0 + 40 * MINUTE


@pytest.fixture
def place(monkeypatch) -> Institute:
    made = make_institute()
    make.make_role(made.user, made.petrel, "member")
    stand_at(monkeypatch, AT)
    return made


def stand_at(monkeypatch, instant) -> None:
    monkeypatch.setattr(clock, "now", lambda: instant)
    for module in ("workloads.views", "config.shell"):
        monkeypatch.setattr(f"{module}.now", lambda: instant)


def api(user: Any) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def ask(user: Any, job: Job, more_s: Any = 1800, **given: Any) -> Any:
    headers = given.pop("headers", {})
    body = {"more_s": more_s} | given
    return api(user).post(f"/api/v1/jobs/{job.pk}/extend/", body, headers=headers)


def page_says(user: Any, job: Job, more: str = "30 min", *, htmx: bool = True, **given: Any) -> str:
    headers = {"HX-Request": "true"} if htmx else {}
    body = {"more": more} | given
    answer = client_of(user).post(f"/jobs/{job.pk}/extend", body, headers=headers, follow=not htmx)
    assert answer.status_code == 200
    return text_of(answer)


# --- Extending ------------------------------------------------------------------------------------


def test_api_page_and_command_line_give_the_same_answer(place):
    job = started(place)
    Drain.objects.create(node=run_of(job).holdings.get().node, starts_at=T0 + 90 * MINUTE)
    node = run_of(job).holdings.get().node
    sentence = (
        "It can be extended until 01:30 UTC at most (30 min more): "
        f"node {node.name} is drained from then on."
    )
    answer = ask(place.user, job, 3600)
    assert answer.status_code == 409
    told = answer.json()
    assert (told["detail"], told["rule"], told["until"], told["most_s"]) == (
        *(sentence, "draining", "2026-10-01T01:30:00Z", 30 * 60),
    )
    assert sentence in page_says(place.user, job, "1 h")
    assert sentence in page_says(place.user, job, "1 h", htmx=False)
    detail = api(place.user).get(f"/api/v1/jobs/{job.pk}/").json()
    (kept,) = detail["extensions"]
    assert (kept["refusal"], kept["again"]) == (sentence, 2)
    assert (kept["asked_at"], kept["last_at"]) == ("2026-10-01T00:40:00Z",) * 2
    assert f"{sentence} (someone, 2026-10-01T00:40:00Z, 3 times)" in tables.job(detail)
    told = text_of(client_of(place.user).get(f"/jobs/{job.pk}"))
    assert told.count(sentence) == 1
    assert "Asked 2 times more, last at 00:40, with the same answer." in told


def test_the_command_line_tells_what_was_answered_last(place):
    job = started(place)
    for more_s, minute in ((12 * HOUR_S, 1), (1800, 2), (12 * HOUR_S, 3)):
        sessions.extend(job=job, by=place.user, more_s=more_s, now=T0 + minute * MINUTE)
    detail = api(place.user).get(f"/api/v1/jobs/{job.pk}/").json()
    shown = detail["extensions"]
    assert [(one["granted"], one["again"]) for one in shown] == [(False, 0), (True, 0), (False, 0)]
    earlier = shown[0] | {"again": 1, "last_at": "2026-10-01T00:50:00Z"}
    said = tables.job(detail | {"extensions": [earlier, *shown[1:]]})
    assert "2026-10-01T00:50:00Z, 2 times)" in said


def test_the_api_extends_and_shows_the_job(place):
    job = started(place)
    answer = ask(place.user, job, 1800)
    assert answer.status_code == 200
    told = answer.json()
    assert told["session"] is True
    assert (told["time_limit_s"], told["time_box"]["ends_at"]) == (5400, "2026-10-01T01:30:00Z")
    assert told["extensions"] == [
        {
            "asked_by": "someone",
            "asked_at": "2026-10-01T00:40:00Z",
            "more_s": 1800,
            "ended_at": "2026-10-01T01:00:00Z",
            "asked_until": "2026-10-01T01:30:00Z",
            "granted": True,
            "rule": "",
            "refusal": "",
            "again": 0,
            "last_at": "2026-10-01T00:40:00Z",
        }
    ]


def test_the_page_extends_says_so_and_renews_the_form(place):
    job = started(place)
    shown = client_of(place.user).get(f"/jobs/{job.pk}").content.decode()
    key = shown.split('id="extend-key" name="key" value="')[1].split('"')[0]
    assert len(key) == 32
    assert "Extended by 30 min: it ends at 01:30 UTC." in page_says(place.user, job, key=key)
    answer = client_of(place.user).post(
        f"/jobs/{job.pk}/extend", {"more": "30 min", "key": key}, headers={"HX-Request": "true"}
    )
    assert 'hx-swap-oob="true"' in answer.content.decode()
    assert f'value="{key}"' not in answer.content.decode()
    assert ends(job)[0] == T0 + 90 * MINUTE, "the same form twice extends once"
    assert "someone extended it by 30 min" in text_of(answer)
    assert "This form was sent before" in page_says(place.user, job, "31 min", key=key)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("", "Ask for a minute more, or longer: 30 min, say."),
        ("59 s", "Ask for a minute more, or longer: 30 min, say."),
        ("soon", "Write a length of time such as 90 min, 1 h 30 or 2 d, not “soon”."),
        ("9999999999 d", "Give at most 366 days."),
    ],
)
def test_a_page_s_slip_is_said_and_changes_nothing(place, more, sentence):
    job = started(place)
    assert sentence in page_says(place.user, job, more)
    assert not Extension.objects.exists()


@pytest.mark.parametrize("more_s", [None, 59, -60, "1800", 1800.0, True, 10**12])
def test_the_api_takes_whole_seconds_from_a_minute(place, more_s):
    job = started(place)
    assert ask(place.user, job, more_s).status_code == 400
    assert ends(job)[0] == T0 + HOUR


def test_a_key_in_the_header_or_the_body_extends_once(place):
    job = started(place)
    for _ in range(2):
        assert ask(place.user, job, headers={"Idempotency-Key": "k"}).status_code == 200
        assert ask(place.user, job, idempotency_key="k").status_code == 200
    assert ends(job)[0] == T0 + 90 * MINUTE
    other = ask(place.user, job, 3600, idempotency_key="k")
    assert (other.status_code, other.json()["job"]) == (409, job.pk)
    both = ask(place.user, job, idempotency_key="k", headers={"Idempotency-Key": "l"})
    assert both.status_code == 400


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({}, "It has not started yet: its time box begins when it does."),
        (
            {"session": False, "minimum_runtime_s": 60},
            "Only a session can be extended: this job was not submitted as one.",
        ),
    ],
)
def test_what_can_t_be_extended_at_all_is_said(place, asked, sentence):
    job = work(place, **asked)
    answer = ask(place.user, job)
    assert (answer.status_code, answer.json()["detail"]) == (409, sentence)
    assert answer.json()["until"] is None
    assert sentence in page_says(place.user, job)


def test_every_state_has_its_words(place):
    for rule in ("ended", "cancelled", "stopping", "unfunded", "busy"):
        assert refusal(rule, {}, now=AT).endswith(".")
    said = [
        refusal(rule, {"at": "2026-10-01T00:30:00Z"}, now=AT) for rule in ("over", "unprotected")
    ]
    assert all("00:30 UTC" in one for one in said)
    nothing = {"binding": None, "needed_mgpus": 0, "spendable_mgpus": 0}
    limits = {"until": "2026-10-01T01:00:00Z", "most_s": 0}
    assert refusal("credits", limits | nothing, now=AT) == (
        "It can't be extended beyond 01:00 UTC: no period is active, so nothing can be set aside."
    )
    short = {"binding": "orlo/x", "needed_mgpus": 8 * CREDIT, "spendable_mgpus": 3 * CREDIT}
    assert refusal("credits", limits | short, now=AT).endswith(
        "orlo/x has 3.00 credits to spend, and 8.00 are needed."
    )
    assert refusal("bound", limits | {"hours": 12}, now=AT).endswith("at most 12 h here.")


# --- Who may --------------------------------------------------------------------------------------


def test_those_may_extend_who_submitted_it_or_manage_its_budget(place):
    cast = make.make_cast(place.tree)
    job = started(place)
    expected = {"admin": 200, "manager": 200, "member": 403, "viewer": 403}
    expected["colleague"] = 403
    for name, user in cast.items():
        status = expected.get(name, 200 if name == "root" else 404)
        assert ask(user, job, 60).status_code == status, name
        page = client_of(user).post(f"/jobs/{job.pk}/extend", {"more": "1 min"})
        assert page.status_code == (302 if status == 200 else status), name
        if status != 404:
            shown = client_of(user).get(f"/jobs/{job.pk}").content.decode()
            assert ('id="extend-form"' in shown) == (status == 200)
    assert client_of(place.user).get(f"/jobs/{job.pk}/extend").status_code == 405


def test_who_lost_their_role_may_not_extend_their_own(place):
    job = started(place)
    place.user.roles.all().delete()
    assert ask(place.user, job).status_code == 404
    make.make_role(place.user, place.petrel, "viewer")
    assert ask(place.user, job).status_code == 403


# --- What it costs --------------------------------------------------------------------------------


def box_of(place: Institute, job: Job, now: Any) -> Any:
    return pages.page(place.user, job.pk, now=now).box


def test_before_a_timestep_is_closed_what_is_parked_is_not_measured(place):
    job = started(place)
    now = T0 + 15 * MINUTE
    box = box_of(place, job, now)
    assert (box.so_far_mgpus, box.an_hour_mgpus, box.rest_mgpus) == (
        *(2 * CREDIT, 8 * CREDIT, 6 * CREDIT),
    )
    assert (box.held_mgpus, box.parked_mgpus, box.measured_until) == (6 * CREDIT, None, None)
    assert (box.left_s, box.ends_at) == (45 * 60, T0 + HOUR)


def test_once_it_is_closed_page_api_and_command_line_show_what_was_parked(place, monkeypatch):
    idle = [[600, 1200], [1800, None]]
    job = started(place, spec={"simulate": {"duration_s": 9 * HOUR_S, "idle": idle}})
    answer = api(place.user).get(f"/api/v1/jobs/{job.pk}/").json()
    assert answer["time_box"]["parked_mgpus"] is None
    assert "not measured" in tables.job(answer)
    assert "of it parked" in text_of(client_of(place.user).get(f"/jobs/{job.pk}"))
    assert "not measured" in text_of(client_of(place.user).get(f"/jobs/{job.pk}"))
    place.cycle(AT)
    told = api(place.user).get(f"/api/v1/jobs/{job.pk}/").json()["time_box"]
    sixth = 8 * CREDIT // 6
    assert (told["parked_mgpus"], told["parked_gpu_seconds"]) == (sixth, 8 * 600)
    assert told["measured_until"] == "2026-10-01T00:30:00Z"
    assert told["so_far_mgpus"] == 4 * sixth
    text = text_of(client_of(place.user).get(f"/jobs/{job.pk}"))
    assert "of it parked" in text
    assert "1.3 up to 00:30" in text
    shown = tables.job(api(place.user).get(f"/api/v1/jobs/{job.pk}/").json())
    assert "5.33 credits, parked: 1.33 up to 2026-10-01T00:30:00Z" in shown
    assert "8.00 an hour, 2.67 to its end" in shown


def test_a_cluster_that_tells_no_idle_time_leaves_it_unmeasured(place, monkeypatch):
    monkeypatch.setitem(KINDS, "simulated", Flaky)
    monkeypatch.setattr(Flaky, "failing", {("idle", "before")})
    job = started(place)
    place.cycle(AT)
    box = box_of(place, job, AT)
    assert (box.parked_mgpus, box.measured_until) == (None, None)


def test_an_unfunded_session_costs_nothing(monkeypatch):
    place = make_institute(credits=0)
    make.make_role(place.user, place.petrel, "member")
    job = started(place, when_unfunded="run")
    box = box_of(place, job, T0 + MINUTE)
    assert (box.an_hour_mgpus, box.rest_mgpus, box.so_far_mgpus) == (0, 0, 0)
    assert box.cannot == ("It runs unfunded: nothing is set aside for it, so it can't be extended.")


def test_a_session_that_waits_or_has_ended_and_other_jobs_have_no_running_box(place):
    batch, waiting = place.submit(place.auk), work(place)
    assert box_of(place, waiting, T0).ends_at is None
    assert pages.page(make.make_user(is_superuser=True), batch.pk, now=T0).box is None
    place.cycle(T0)
    place.cycle(T0 + 2 * HOUR)
    assert box_of(place, waiting, T0 + 2 * HOUR) is None


# --- Shown ----------------------------------------------------------------------------------------


def test_lists_mark_sessions(place, monkeypatch):
    waiting = [work(place, AT, name=f"desk-{n}") for n in range(3)]
    place.cycle(AT)
    make.make_role(place.user, place.tree["orlo"], "viewer")
    monkeypatch.setattr("allocator.views.now", lambda: AT, raising=False)
    jobs = text_of(client_of(place.user).get("/jobs"))
    assert jobs.count(" session ") == 3
    overview = text_of(client_of(place.user).get("/"))
    assert " session " in overview
    listed = api(place.user).get("/api/v1/jobs/").json()["results"]
    assert {one["id"]: one["session"] for one in listed} == {one.pk: True for one in waiting}
    assert tables.jobs(listed).count("training, session") == 3
    assert run_of(waiting[0]).state == "running"
    assert f"ends {AT + HOUR:%H:%M}" in jobs


def test_its_story_and_contract_are_a_session_s(place):
    job = started(place)
    extend(job, 30, T0 + 20 * MINUTE)
    text = text_of(client_of(place.user).get(f"/jobs/{job.pk}"))
    for words in (
        "; it has cost 5.3 cr.",
        "40 min of 1 h 30 are over.",
        "8 GPUs for 1 h: 8.0 cr",
        "all of its time box is set aside",
        "training, as a session",
        "Its time box ends at 01:30 , in 50 min",
        "someone extended it by 30 min",
        "4.0 cr more were set aside",
    ):
        assert words in text, words


def test_the_form_submits_a_session_and_quotes_its_box(place):
    form = {
        "budget": "orlo/science/petrel",
        "name": "desk",
        "kind": "training",
        "gpus": "4",
        "session": "on",
        "time_limit_s": "90 min",
        "minimum_runtime_s": "10 min",  # typed before it was a session
        "resumable": "on",
        "urgency": "normal",
        "when_unfunded": "wait",
    }
    quote = text_of(client_of(place.user).post("/jobs/quote", form))
    assert "6.0 cr" in quote
    assert "1 h 30 on 4 GPUs" in quote
    answer = client_of(place.user).post("/jobs/new", form)
    assert answer.status_code == 302, text_of(answer)
    job = Job.objects.get()
    assert (job.session, job.minimum_runtime_s, job.resumable) == (True, 5400, False)
    refused = client_of(place.user).post("/jobs/new", form | {"time_limit_s": ""})
    assert "Give a session a time limit" in text_of(refused)


def test_the_api_submits_a_session(place):
    body = {
        "budget": "orlo/science/petrel",
        "name": "desk",
        "kind": "training",
        "gpus": 1,
        "session": True,
        "time_limit_s": 3600,
    }
    told = api(place.user).post("/api/v1/jobs/", body).json()
    assert (told["session"], told["minimum_runtime_s"]) == (True, 3600)
    assert told["time_box"]["ends_at"] is None
    assert told["time_box"]["held_mgpus"] == CREDIT
    refused = api(place.user).post("/api/v1/jobs/", body | {"resumable": True})
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["field"] == "resumable"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("1h", 3600), ("1h30m", 5400), ("45min", 2700), ("1h 5m", 3900)],
)
def test_the_command_line_reads_lengths_of_time(text, seconds):
    asked = _parser().parse_args(["extend", "18", text])
    assert (asked.job, asked.more, asked.key) == (18, seconds, None)


@pytest.mark.parametrize("text", ["", "30", "h", "m", "0m", "30s", "1.5h"])
def test_the_command_line_refuses_what_it_can_t_read(text, capsys):
    with pytest.raises(SystemExit):
        _parser().parse_args(["extend", "18", text])
    assert "no length of time such as 30m or 1h30m" in capsys.readouterr().err


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_in_a_browser_it_is_extended_without_leaving_the_page(browser_page, monkeypatch):
    place = make_institute()
    make.make_role(place.user, place.petrel, "member")
    job = started(place)
    stand_at(monkeypatch, AT)
    page = browser_page(place.user, f"/jobs/{job.pk}")
    for end in ("01:30", "02:00"):  # the second time with another key
        page.click('#job [data-dialog="extend"]')
        page.fill("#extend-more", "30 min")
        page.click("#extend-form .btn-primary")
        page.wait_for_selector(f"text=Extended by 30 min: it ends at {end} UTC.")
        assert not page.is_visible("#extend-form")
    assert ends(job)[0] == T0 + 2 * HOUR


def test_a_page_asks_a_constant_number_of_queries_more(place, django_assert_max_num_queries):
    job = started(place)
    for n in range(5):
        extend(job, 1, T0 + (10 + n) * timedelta(minutes=1))
    with django_assert_max_num_queries(45):
        pages.page(place.user, job.pk, now=AT)
