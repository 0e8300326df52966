"""The list of jobs and the submit form: filters in the address, a quote, and nothing lost."""

import re
from copy import deepcopy
from datetime import timedelta

import pytest
from django.urls import reverse

from allocator.pages import jobs, submit
from forecasting import services as forecasting
from ledger import reports
from ledger import services as ledger
from tests import factories as make
from tests.factories import HOUR, T0
from tests.ledger_world import CREDIT
from tests.pages_day import NOW, stand_at
from tests.pages_world import cells, client_of, number_of, queries, text_of
from workloads import durations
from workloads.models import Job
from workloads.specs import JobSpec

PETREL = "orlo/science/petrel"


@pytest.fixture
def day(played, db, monkeypatch):
    stand_at(monkeypatch, NOW)
    return deepcopy(played)


@pytest.fixture
def tree(day):
    return day.place.tree


def names_in(answer):
    """The jobs listed, in order."""
    return re.findall(r'class="w5">[\w-]+/([\w-]+)</a>', answer.content.decode())


# --- The list ------------------------------------------------------------------------------------


def test_who_is_signed_out_is_sent_to_sign_in(db):
    for url in ("/jobs", "/jobs/new"):
        assert client_of(None).get(url).status_code == 302
    assert client_of(None).post("/jobs/quote").status_code == 302


def test_one_lists_the_jobs_one_may_see(cast):
    assert names_in(client_of(cast["admin"]).get("/jobs?state=all")) == [
        "stars",
        "flood",
        "fold",
        "sky",
        "storm",
    ]
    assert names_in(client_of(cast["viewer"]).get("/jobs?state=all")) == ["flood", "storm"]
    assert names_in(client_of(cast["stranger"]).get("/jobs?state=all")) == ["fold"]
    assert names_in(client_of(cast["nobody"]).get("/jobs?state=all")) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["stars", "flood", "fold", "storm"]),
        ("state=waiting", ["stars", "flood"]),
        ("state=running", ["fold", "storm"]),
        ("state=ended", ["sky"]),
        ("state=nonsense", ["stars", "flood", "fold", "storm"]),
        ("state=all&budget=orlo/science", ["stars", "flood", "sky", "storm"]),
        ("state=all&budget=orlo/science/auk", ["stars", "sky"]),
        ("budget=orlo/nowhere", []),
        ("state=all&kind=quantization", []),
        ("state=waiting&reason=dependency", ["stars"]),
        ("state=all&q=ST", ["stars", "storm"]),
        ("state=all&q=tern", ["fold"]),
        ("state=all&sort=job", ["flood", "fold", "sky", "stars", "storm"]),
        ("state=all&sort=-gpus", ["flood", "stars", "fold", "sky", "storm"]),
        ("state=all&sort=secret", ["stars", "flood", "fold", "sky", "storm"]),
        ("q=%00", ["stars", "flood", "fold", "storm"]),
        ("page=99", ["stars", "flood", "fold", "storm"]),
    ],
)
def test_filters_and_sort_live_in_the_address(cast, query, found):
    assert names_in(client_of(cast["admin"]).get(f"/jobs?{query}")) == found


def test_a_number_finds_its_job(cast, day):
    number = day.jobs["sky"].pk
    assert names_in(client_of(cast["admin"]).get(f"/jobs?state=all&q=%23{number}")) == ["sky"]


def test_mine_are_those_i_submitted(cast, day):
    Job.objects.filter(name="flood").update(submitted_by=cast["member"])
    assert names_in(client_of(cast["member"]).get("/jobs?mine=1")) == ["flood"]


def test_a_line_has_state_contract_time_and_credits(cast, day):
    answer = client_of(cast["admin"]).get("/jobs?state=all")
    storm, flood = day.job("storm"), day.job("flood")
    row = cells(answer, f"petrel/storm {number_of(storm)}")
    spent = reports.job_charges(job=storm).charged_mgpus
    assert row[1:4] == ["Running", "8 h100", "protected until 02:30"]
    assert row[6] == f"{spent / CREDIT:.1f}"
    row = cells(answer, f"petrel/flood {number_of(flood)}")
    assert row[1:3] == ["Waiting", "16 any"]
    assert row[3].startswith("No block of 16 before") or row[3].startswith("Behind")
    assert row[4] == "12 min"
    row = cells(answer, f"auk/sky {number_of(day.jobs['sky'])}")
    assert (row[1], row[5]) == ("Completed", "ended 01:30")


def test_the_list_opens_with_what_runs_and_waits(cast):
    text = text_of(client_of(cast["admin"]).get("/jobs"))
    assert "2 jobs run on 16 GPUs, 2 wait for 24, the first of them for 12 min." in text
    text = text_of(client_of(cast["stranger"]).get("/jobs"))
    assert "One job runs on 8 GPUs, none waits." in text


def test_filters_that_match_nothing_can_be_cleared(cast):
    text = text_of(client_of(cast["admin"]).get("/jobs?q=nothing"))
    assert "No job matches" in text
    assert "Clear filters" in text


def test_nobody_s_list_says_what_to_do(cast):
    text = text_of(client_of(cast["nobody"]).get("/jobs"))
    assert "No job has been submitted yet." in text
    assert "You may look, but not submit" in text
    assert "Submit a job" not in text


def test_twice_the_jobs_take_as_many_queries(cast, day):
    client = client_of(cast["admin"])
    queries(client, "/jobs?state=all")
    few = queries(client, "/jobs?state=all")
    for n in range(20):
        make.make_job(day.place.auk, at=NOW - n * HOUR, pools=[day.place.pool])
    assert queries(client, "/jobs?state=all") == few


def test_the_list_is_paged(cast, day):
    for _ in range(jobs.ROWS):
        make.make_job(day.place.auk)
    first = client_of(cast["admin"]).get("/jobs?state=all")
    assert len(names_in(first)) == jobs.ROWS
    assert "1 – 50 of 55" in text_of(first)
    assert len(names_in(client_of(cast["admin"]).get("/jobs?state=all&page=2"))) == 5


# --- The form ------------------------------------------------------------------------------------


def typed(**more):
    """What a browser sends for a small training job of Petrel."""
    return {
        "budget": PETREL,
        "name": "ens-1",
        "kind": "training",
        "gpus": "8",
        "expected_duration_s": "1 h 30",
        "minimum_runtime_s": "45 min",
        "when_unfunded": "wait",
        "urgency": "high",
        "idempotency_key": "k1",
        **more,
    }


def test_one_may_choose_among_the_projects_one_may_submit_to(cast):
    page = client_of(cast["member"]).get("/jobs/new").content.decode()
    assert re.findall(r'<option value="(orlo[^"]*)"', page) == [PETREL]
    assert client_of(cast["viewer"]).get("/jobs/new").status_code == 403
    assert client_of(cast["nobody"]).get("/jobs/new").status_code == 403


def test_the_form_submits_what_was_typed(cast, day):
    client = client_of(cast["member"])
    sent = typed(resumable="on", pools=["h100"], dependencies=f"#{day.jobs['flood'].pk}")
    answer = client.post("/jobs/new", sent | {"command": "train.sh", "time_limit_s": "2h"})
    job = Job.objects.get(name="ens-1")
    assert (answer.status_code, answer["Location"]) == (302, f"/jobs/{job.pk}")
    assert (job.submitted_by, job.budget.path, job.gpus) == (cast["member"], PETREL, 8)
    assert (job.expected_duration_s, job.minimum_runtime_s, job.time_limit_s) == (5400, 2700, 7200)
    assert (job.resumable, job.urgency, job.command) == (True, "high", "train.sh")
    assert [pool.slug for pool in job.pools.all()] == ["h100"]
    assert [one.name for one in job.dependencies.all()] == ["flood"]
    assert job.funded
    assert "Submitted. This page follows it" in text_of(client.get(answer["Location"]))


def test_a_double_click_submits_once(cast):
    client = client_of(cast["member"])
    first, second = (client.post("/jobs/new", typed()) for _ in range(2))
    assert first["Location"] == second["Location"]
    assert Job.objects.filter(name="ens-1").count() == 1


def test_each_form_has_a_key_of_its_own(cast):
    keys = {
        re.search(
            r'name="idempotency_key" value="(\w+)"',
            client_of(cast["member"]).get("/jobs/new").content.decode(),
        )[1]
        for _ in range(2)
    }
    assert len(keys) == 2


def test_a_key_that_asked_for_something_else_is_renewed(cast):
    client = client_of(cast["member"])
    first = client.post("/jobs/new", typed())
    number = first["Location"].rpartition("/")[2]
    again = client.post("/jobs/new", typed(name="ens-2"))
    assert again.status_code == 200
    text = text_of(again)
    assert f"This form was sent before, as job {number}, and asked for something else" in text
    key = re.search(r'name="idempotency_key" value="(\w+)"', again.content.decode())[1]
    assert key != "k1"
    assert 'value="ens-2"' in again.content.decode()
    assert client.post("/jobs/new", typed(name="ens-2", idempotency_key=key)).status_code == 302


def test_a_service_is_submitted_with_its_profile(cast):
    sent = typed(kind="realtime", name="chat", gpus="8", profile="2 " * 12 + "4," * 12)
    sent |= {"swap_cap": "2", "time_zone": "Europe/Berlin", "step_minutes": "60"}
    answer = client_of(cast["member"]).post("/jobs/new", sent)
    assert answer.status_code == 302
    job = Job.objects.get(name="chat")
    assert (job.gpus, job.service.swap_cap, job.service.time_zone) == (4, 2, "Europe/Berlin")
    assert job.service.profile == [2] * 12 + [4] * 12


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("gpus", "12", "Ask for a power of two: 8 or 16 GPUs, not 12."),
        ("gpus", "", "Say how many GPUs: a power of two."),
        ("gpus", "eight", "Enter a whole number."),
        ("gpus", "32", "The largest acceptable pool has 16 GPUs: ask for 16 or fewer."),
        ("name", "", "This field is required."),
        ("name", "x" * 101, "Ensure this value has at most 100 characters"),
        ("expected_duration_s", "soon", "Write a length of time such as 90 min"),
        ("expected_duration_s", "400 d", "Give at most 366 days."),
        ("minimum_runtime_s", "9 h", "A minimum runtime is at most 8 h here"),
        ("time_limit_s", "10 min", "Give a minimum runtime that is not above the time limit."),
        ("budget", "orlo/vision/tern", "Select a valid choice."),
        ("budget", "orlo/science", "Select a valid choice."),
        ("kind", "mining", "Select a valid choice."),
        ("pools", "b200", "Select a valid choice."),
        ("dependencies", "first", "Give whole numbers with a space between, not “first”."),
        ("dependencies", "999999", "There is no job 999999, or none that you may see."),
        ("dependencies", "9" * 19, "Give whole numbers with a space between"),
        ("spec", "{", "This is not valid JSON"),
        ("spec", "[1]", "Give a JSON object: {…}."),
        ("spec", '{"a": NaN}', "NaN is no JSON number"),
        ("spec", '{"a": 1e999}', "numbers beyond all bounds"),
        ("spec", '{"a": "\\u0000"}', "Leave out NUL"),
        ("spec", '{"a": "\\ud800"}', "half surrogates"),
        ("spec", '{"a":' * 30 + "1" + "}" * 30, "Nest at most 20 levels"),
        ("command", "a\0b", "Null characters are not allowed."),
    ],
)
def test_bad_input_gets_a_sentence_and_loses_nothing(cast, field, value, sentence):
    before = Job.objects.count()
    answer = client_of(cast["member"]).post("/jobs/new", typed(**{field: value}))
    assert answer.status_code == 200
    assert sentence in text_of(answer)
    html = answer.content.decode()
    kept = typed() | {field: value}
    for name in ("name", "gpus", "expected_duration_s", "minimum_runtime_s", "idempotency_key"):
        if "\0" not in kept[name] and kept[name]:
            assert re.search(rf'name="{name}"[^>]*value="{re.escape(kept[name])}"', html), name
    assert Job.objects.count() == before


def test_all_that_is_wrong_is_told_at_once(cast):
    answer = client_of(cast["member"]).post(
        "/jobs/new", typed(gpus="12", expected_duration_s="soon", minimum_runtime_s="9 h")
    )
    text = text_of(answer)
    assert "3 fields need another look; nothing was submitted." in text
    assert "Ask for a power of two" in text
    assert answer.content.decode().count('aria-invalid="true"') == 3


def test_a_job_of_others_can_t_be_waited_for(cast, day):
    number = day.jobs["fold"].pk
    answer = client_of(cast["member"]).post("/jobs/new", typed(dependencies=str(number)))
    assert f"There is no job {number}, or none that you may see." in text_of(answer)


# --- The quote -----------------------------------------------------------------------------------


def quoted(user, **more):
    return text_of(client_of(user).post("/jobs/quote", typed(**more)))


def test_a_quote_is_what_a_submission_estimates_and_holds(cast, tree):
    petrel = tree[PETREL]
    spec = JobSpec(
        name="ens-1",
        kind="training",
        gpus=8,
        expected_duration_s=5400,
        minimum_runtime_s=2700,
    )
    quote = submit.quote(budget=petrel, spec=spec, now=NOW)
    said = forecasting.estimate(
        budget=petrel, kind="training", gpus=8, declared_s=5400, name="ens-1", now=NOW
    )
    assert (quote.low_s, quote.likely_s, quote.high_s) == (said.p10_s, said.p50_s, said.p90_s)
    assert quote.low_mgpus == said.p10_s * 8 * 1000
    assert quote.spendable_mgpus == reports.spendable(budget=petrel, now=NOW)
    client_of(cast["member"]).post("/jobs/new", typed())
    job = Job.objects.get(name="ens-1")
    assert quote.hold_mgpus == ledger.hold_amount(job=job, at=NOW) == 2700 * 8 * 1000
    assert (job.estimate_p10_s, job.estimate_p90_s) == (quote.low_s, quote.high_s)


def test_the_quote_s_page_shows_it(cast, tree):
    text = quoted(cast["member"])
    spendable = reports.spendable(budget=tree[PETREL], now=NOW)
    assert "Minimum runtime 45 min" in text
    assert "Hold ? 6.0" in text
    assert f"Spendable ? {spendable / CREDIT:,.1f}" in text
    assert "bound by the project itself" in text
    assert "Funded: the hold fits" in text


def test_a_time_limit_caps_the_quote(cast, tree):
    spec = JobSpec(name="a", kind="training", gpus=1, expected_duration_s=36000, time_limit_s=900)
    quote = submit.quote(budget=tree[PETREL], spec=spec, now=NOW)
    assert quote.high_s == quote.likely_s == 900
    assert quote.minimum_runtime_s == 900


def test_the_ancestor_that_binds_is_named(cast, tree, day):
    # Petrel is given a million credits more, Science is not.
    ledger.adjust(
        budget=tree["orlo/science"],
        amount_mgpus=reports.spendable(budget=tree["orlo/science"], now=NOW) - CREDIT,
        author=cast["admin"],
        note="correction",
        key="test",
        now=NOW,
    )
    text = quoted(cast["member"], minimum_runtime_s="8 h")
    assert "Spendable ? 1.0" in text
    assert "bound by Science" in text
    assert "Not funded: Science" in text
    assert "63.0 cr are missing." in text


def test_no_minimum_runtime_is_unfunded_by_choice(cast):
    text = quoted(cast["member"], minimum_runtime_s="0")
    assert "Unfunded by choice" in text
    assert "Hold ? 0.0" in text


def test_without_a_period_nothing_can_be_held(cast, day):
    day.place.period.__class__.objects.update(status="approved")
    assert "No period is active" in quoted(cast["member"])


def test_a_service_is_quoted_by_the_day(cast):
    text = quoted(cast["member"], kind="realtime", profile="4 " * 24, swap_cap="2")
    assert "96.0 cr a day, by its profile" in text
    week = quoted(cast["member"], kind="realtime", profile="2 " * 168, swap_cap="2")
    assert "48.0 cr a day, by its profile" in week


@pytest.mark.parametrize("more", [{"gpus": ""}, {"gpus": "12"}, {"budget": "orlo"}, {"kind": "x"}])
def test_an_unfinished_form_is_not_quoted(cast, more):
    assert "Choose a project, a kind and GPUs" in quoted(cast["member"], **more)


def test_the_quote_is_asked_by_post_only(cast):
    assert client_of(cast["member"]).get("/jobs/quote").status_code == 405
    assert reverse("job-quote") == "/jobs/quote"


# --- Lengths of time -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90 min", 5400),
        ("90m", 5400),
        ("1 h 30", 5400),
        ("1h30m", 5400),
        ("1:30", 5400),
        ("1.5", 5400),
        ("1,5 h", 5400),
        ("2", 7200),
        ("2 d", 172_800),
        ("1 d 6", 108_000),
        ("45 s", 45),
        ("2 min 30", 150),
        ("0", 0),
    ],
)
def test_lengths_of_time_are_read_as_people_write_them(text, seconds):
    assert durations.parse(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "1 h 1 h", "30 min 1 h", "-1 h", "1 fortnight", "1::30", "h", "5 s 5"]
)
def test_other_lengths_are_refused(text):
    with pytest.raises(ValueError, match="Write a length of time"):
        durations.parse(text)


def test_times_are_told_from_the_day_they_are_in(cast, day, monkeypatch):
    stand_at(monkeypatch, T0 + timedelta(days=1))
    row = cells(
        client_of(cast["admin"]).get("/jobs?state=ended"), f"auk/sky {number_of(day.jobs['sky'])}"
    )
    assert row[5] == "ended Thu 01:30"
