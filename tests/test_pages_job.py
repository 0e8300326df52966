"""A job's page: its story, its axis, its credits, why it waits; and cancelling it."""

import csv
import io
import re
from copy import deepcopy
from datetime import timedelta

import pytest

from allocator.models import Outlook
from allocator.pages import charge_bars, job_axis
from allocator.pages import job as pages
from ledger import reports
from ledger.entries import write
from ledger.models import Entry
from tests import factories as make
from tests.factories import HOUR, T0
from tests.ledger_world import CREDIT
from tests.pages_day import NOW, go_on, stand_at
from tests.pages_world import cells, client_of, number_of, queries
from tests.pages_world import text_of as words_of
from workloads import services as workloads
from workloads.models import Job, JobEvent, Run


@pytest.fixture
def day(played, db, monkeypatch):
    stand_at(monkeypatch, NOW)
    return deepcopy(played)


@pytest.fixture
def tree(day):
    return day.place.tree


def text_of(answer):
    """What a reader reads, with no space before a mark of punctuation."""
    return re.sub(r" (?=[,.;:])", "", words_of(answer))


def url(job, tail=""):
    return f"/jobs/{job.pk}{tail}"


def read(user, job, now=NOW):
    return pages.page(user, job.pk, now=now)


def open_as(user, job):
    return client_of(user).get(url(job))


def percent(text):
    return float(text.rstrip("%"))


# --- Who may -------------------------------------------------------------------------------------


def test_a_job_is_shown_to_those_who_see_its_budget_and_else_not_there(cast, day):
    storm = day.jobs["storm"]
    expected = {"admin": 200, "manager": 200, "member": 200, "viewer": 200}
    for name in ("admin", "manager", "member", "viewer", "stranger", "nobody"):
        status = expected.get(name, 404)
        assert open_as(cast[name], storm).status_code == status
        assert client_of(cast[name]).get(url(storm, "/charges.csv")).status_code == status
    assert client_of(None).get(url(storm)).status_code == 302
    assert client_of(cast["admin"]).get("/jobs/999999").status_code == 404


def test_those_may_cancel_who_submitted_it_or_manage_its_budget(cast, day):
    flood = day.jobs["flood"]
    for name, may in (("admin", True), ("manager", True), ("member", False), ("viewer", False)):
        assert read(cast[name], flood).may_cancel is may
        assert ("Cancel flood?" in text_of(open_as(cast[name], flood))) is may
    Job.objects.filter(pk=flood.pk).update(submitted_by=cast["member"])
    assert read(cast["member"], flood).may_cancel is True
    assert read(cast["colleague"], flood).may_cancel is False


def test_a_waiting_job_is_cancelled_at_once_and_its_hold_released(cast, day):
    flood = day.jobs["flood"]
    before = reports.spendable(budget=day.place.petrel, now=NOW)
    client = client_of(cast["manager"])
    answer = client.post(url(flood, "/cancel"))
    assert (answer.status_code, answer["Location"]) == (302, url(flood))
    assert day.job("flood").state == "cancelled"
    assert reports.spendable(budget=day.place.petrel, now=NOW) == before + 16 * 3600 * 1000
    text = text_of(client.get(url(flood)))
    assert "Cancelled at 02:12 before it ran; it cost nothing." in text
    assert "Cancelled by manager" in text
    assert client.post(url(flood, "/cancel")).status_code == 302  # again: nothing more happens


def test_a_running_job_is_stopped_by_the_next_cycle(cast, day):
    storm = day.jobs["storm"]
    client_of(cast["manager"]).post(url(storm, "/cancel"))
    assert day.job("storm").state == "running"
    assert "Being cancelled" in text_of(open_as(cast["manager"], storm))
    go_on(NOW, NOW + timedelta(minutes=20))
    assert day.job("storm").state == "cancelled"
    assert "manager asked to cancel it" in text_of(open_as(cast["manager"], storm))


def test_cancelling_needs_the_right_and_a_post(cast, day):
    flood = day.jobs["flood"]
    assert client_of(cast["member"]).post(url(flood, "/cancel")).status_code == 403
    assert client_of(cast["stranger"]).post(url(flood, "/cancel")).status_code == 404
    assert client_of(cast["manager"]).get(url(flood, "/cancel")).status_code == 405
    assert client_of(None).post(url(flood, "/cancel")).status_code == 302
    assert day.job("flood").state == "queued"


# --- Credits -------------------------------------------------------------------------------------


def test_credits_are_the_ledger_s(cast, day):
    storm = day.job("storm")
    money = read(cast["admin"], storm).money
    entries = Entry.objects.filter(job=storm)
    charged = sum(e.amount_mgpus for e in entries.filter(kind="charge"))
    run = Run.objects.get(job=storm, state="running")
    in_flight = 8 * int((NOW - run.charged_until).total_seconds()) * 1000
    assert money.in_flight_mgpus == in_flight
    assert money.so_far_mgpus == charged + in_flight
    assert [(r.number, r.timesteps) for r in money.runs] == [(1, 2), (2, 1)]
    assert sum(r.amount_mgpus for r in money.runs) == charged
    assert money.parked_mgpus == 2 * 8 * 900 * 1000
    answer = open_as(cast["admin"], storm)
    assert cells(answer, "So far")[1] == f"{money.so_far_mgpus / CREDIT:.1f}"
    assert cells(answer, "of it parked")[1] == "4.0"
    figures = reports.figures(period=day.place.period, now=NOW)[day.place.petrel.pk]
    flood_holds = 16 * 3600 * 1000
    assert money.held_mgpus == figures.held_mgpus - flood_holds


def test_the_quote_is_the_first_estimate_s_price(cast, day):
    storm = day.job("storm")
    quoted = read(cast["admin"], storm).money.quoted
    forecast = storm.forecasts.first()
    assert quoted == tuple(8 * 1000 * s for s in (forecast.p10_s, forecast.p50_s, forecast.p90_s))
    text = text_of(open_as(cast["admin"], storm))
    assert f"{quoted[0] / CREDIT:.1f} – {quoted[2] / CREDIT:.1f} cr" in text


def test_at_the_end_is_so_far_and_the_rest_at_its_rate(cast, day):
    page = read(cast["admin"], day.job("storm"))
    low, likely, high = page.money.at_end
    rest = int((page.ends[1] - NOW).total_seconds())
    assert likely == page.money.so_far_mgpus + rest * 8 * 1000
    assert low <= likely <= high


def test_charges_as_csv_are_the_entries_in_integers(cast, day):
    storm = day.jobs["storm"]
    answer = client_of(cast["member"]).get(url(storm, "/charges.csv"))
    assert answer["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    entries = list(Entry.objects.filter(job=storm, kind="charge").order_by("at"))
    assert len(rows) == len(entries) == 3
    assert rows[0] == {
        "run": "1",
        "timestep": "2026-10-01T00:00:00Z",
        "start": "2026-10-01T00:00:00Z",
        "end": "2026-10-01T00:30:00Z",
        "funded": "1",
        "gpu_seconds": "14400",
        "parked_gpu_seconds": "7200",
        "amount_mgpus": "14400000",
    }
    assert sum(int(row["amount_mgpus"]) for row in rows) == sum(e.amount_mgpus for e in entries)


# --- The story -----------------------------------------------------------------------------------


def told(page):
    return [(entry.kind, entry.at) for one in page.story.days for entry in one.entries]


def test_the_story_is_told_in_order_with_what_lies_between_events(cast, day):
    page = read(cast["admin"], day.job("storm"))
    assert [kind for kind, _ in told(page)] == [
        "submitted",
        "funded",
        "started",
        "run_preempted",
        "waited",
        "funded",
        "started",
    ]
    assert told(page)[3][1] == T0 + HOUR
    text = text_of(open_as(cast["admin"], day.jobs["storm"]))
    assert (
        "Funded: 8.0 cr held Minimum runtime 1 h × 8 GPUs × the rate, set aside in Petrel." in text
    )
    assert "Waited 30 min" in text
    assert "2.0 GPU-hours of it were parked." in text


def test_protection_that_ended_is_told(cast, day, monkeypatch):
    later = T0 + 3 * HOUR
    go_on(NOW, later)
    stand_at(monkeypatch, later)
    page = read(cast["admin"], day.job("storm"), later)
    run = Run.objects.get(job=day.jobs["storm"], number=2)
    assert ("interruptible", run.protected_until) in told(page)
    assert "interruptible since 02:30" in text_of(open_as(cast["admin"], day.jobs["storm"]))


def test_a_preemption_is_told_with_the_numbers_that_decided_it(cast, day):
    storm = day.jobs["storm"]
    decided = JobEvent.objects.get(job=storm, kind="preempted_decided").data
    assert decided["by_job"] == day.jobs["fold"].pk
    answer = open_as(cast["admin"], storm)
    text = text_of(answer)
    assert "Preempted by tern/fold, after 1 h 00" in text
    assert "Compared at Orlo, the first budget above both" in text
    mine, theirs = decided["victim_share"], decided["preemptor_share"]
    row = cells(answer, "Part of Orlo’s shares")  # noqa: RUF001
    assert row[1:] == ["40.0 %", "60.0 %"]
    row = cells(answer, "Part of its usage, window and this plan")
    for told_part, side in zip(row[1:], (theirs, mine), strict=True):
        assert told_part == f"{side['usage'] * 100 / side['siblings_usage']:.1f} %"


def test_who_preempted_it_is_told_to_those_who_may_know(cast, day):
    text = text_of(open_as(cast["member"], day.jobs["storm"]))
    assert "Preempted by another budget’s work, after 1 h 00" in text  # noqa: RUF001
    assert "fold" not in text
    assert "Tern" not in text
    assert "Vision" not in text


def test_every_kind_of_event_has_words(cast, day):
    job = day.job("sky")
    run = job.runs.get()
    kinds = [f"run_{reason}" for reason in Run.EndReason.values]
    for kind in [*kinds, "cancelled", "cancel_requested", "unfunded", "funds_lost"]:
        workloads.log(job, kind, at=NOW, run=run if kind.startswith("run") else None)
    text = text_of(open_as(cast["admin"], job))
    for words in (
        "Its node failed after",
        "Failed after",
        "Ended at its time limit",
        "The cluster refused it",
        "Unfunded from here",
        "Its hold was given up",
        "Stopped after",
    ):
        assert words in text
    assert not re.search(r"\brun_[a-z_]+|funds_lost|cancel_requested", text)


def test_what_was_given_back_is_a_row_of_its_own(cast, day):
    job = day.job("sky")
    before = Entry.objects.filter(job=job, kind="charge").first()
    assert before is not None
    fields = {
        field.attname: getattr(before, field.attname)
        for field in Entry._meta.concrete_fields
        if field.attname in ("budget_id", "period_id", "at", "job_id", "run_id", "created_at")
    }
    write([Entry(**fields, kind="adjust", amount_mgpus=-2 * CREDIT, key="late")])
    text = text_of(open_as(cast["admin"], job))
    assert re.search(r"Adjusted \S* ?.2\.0 ", text)


# --- Why it waits --------------------------------------------------------------------------------

SOON = NOW + HOUR
RULES = [
    # rule, its data, what the chip says, what the sentence says, what releases it
    (
        "behind",
        {"behind": [{"job": 1, "name": "fold", "budget": "orlo/vision/tern"}]},
        "Behind Tern",
        "A job whose budget is more entitled holds the block that it gets.",
        "Released when they end",
    ),
    (
        "behind",
        {"behind": [{"job": 77, "name": "a", "budget": "orlo/science/petrel"}]},
        "Behind #77",
        "Another job of Petrel is before it: urgency, then age decide inside a budget.",
        "Released when they end",
    ),
    (
        "unfunded_behind",
        {"behind": [{"job": 1, "name": "fold", "budget": "orlo/vision/tern"}] * 4},
        "Unfunded, 4 ahead of it",
        "It is unfunded, so funded work goes first.",
        "and one more",
    ),
    ("no_block", {}, "No block of 16 before 03:12", "No 16 neighbouring GPUs", "Released when"),
    (
        "draining",
        {"node": "h100-n1"},
        "Draining h100-n1",
        "h100-n1 in it is being emptied",
        "Released when the maintenance is over",
    ),
    (
        "pool",
        {"pools": ["b200"]},
        "Its pools are full, b200 isn’t",  # noqa: RUF001
        "it could start in b200 now",
        "submit it again with more pools",
    ),
    ("beyond_horizon", {}, "fit into 24 h", "The plan looks 24 h ahead", "as the plan moves on"),
    ("starts_now", {}, "Starts now", "Its turn has come", ""),
    (
        "not_funded",
        {
            "binding": "orlo/science/petrel",
            "needed_mgpus": 16 * CREDIT,
            "spendable_mgpus": 12 * CREDIT,
        },
        "Not funded: Petrel",
        "Its hold needs 16.0 cr; spendable are 12.0 cr, and Petrel binds.",
        "Released by 4.0 cr more",
    ),
    (
        "dependency",
        {"job": 77, "name": "first", "state": "queued"},
        "Waits for #77",
        "It may start once first has completed.",
        "if it fails, this one waits until you cancel it",
    ),
    (
        "refused",
        {
            "cluster": "Mainland",
            "reason": "image not found",
            "times": 3,
            "until": "2026-10-08T14:32:00Z",
        },
        "Refused, tried again at",
        "Mainland refused to start it 3 times in a row: image not found.",
        "Others get its block meanwhile.",
    ),
    ("inactive", {}, "Its budget is not active", "no place in the tree", ""),
    ("unreachable", {}, "Cluster unreachable", "does not answer", ""),
]


@pytest.mark.parametrize(("rule", "data", "chip", "sentence", "release"), RULES)
def test_each_rule_says_what_binds_and_what_releases_it(
    cast, day, rule, data, chip, sentence, release
):
    flood = day.jobs["flood"]
    Outlook.objects.filter(job=flood).update(
        rule=rule,
        data={"gpus": 16, **data},
        start_low=NOW + HOUR / 2,
        start_likely=SOON,
        start_high=SOON + HOUR,
    )
    text = text_of(open_as(cast["admin"], flood))
    assert chip in text
    assert sentence in text
    assert release in text
    assert "starts between 02:42 and 04:12, likely 03:12" in text
    assert chip in text_of(client_of(cast["admin"]).get("/jobs?state=waiting"))


def test_a_job_that_nobody_can_start_yet_says_who_must_act(cast, day):
    Outlook.objects.filter(job=day.jobs["flood"]).update(
        rule="not_funded", data={}, start_low=None, start_likely=None, start_high=None
    )
    answer = open_as(cast["admin"], day.jobs["flood"])
    assert "can’t start before somebody acts" in text_of(answer)  # noqa: RUF001
    assert 'class="chip act"' in answer.content.decode()


def test_others_ahead_of_it_have_no_names(cast, day):
    Outlook.objects.filter(job=day.jobs["flood"]).update(
        rule="behind",
        data={"behind": [{"job": 3, "name": "fold", "budget": "orlo/vision/tern"}]},
    )
    text = text_of(open_as(cast["member"], day.jobs["flood"]))
    assert "Behind a better entitled budget" in text
    assert "another budget’s work" in text  # noqa: RUF001
    assert "fold" not in text


def test_the_estimate_of_the_end_is_that_of_its_whole_duration(cast, day):
    storm = day.job("storm")
    low, likely, high = read(cast["admin"], storm).ends
    run = Run.objects.get(job=storm, state="running")
    begun = run.started_at - timedelta(seconds=storm.progress_s)
    assert storm.progress_s == 3600
    assert likely == begun + timedelta(seconds=storm.estimate_p50_s)
    assert NOW <= low <= likely <= high
    Job.objects.filter(pk=storm.pk).update(estimate_p90_s=60, estimate_p50_s=60, estimate_p10_s=60)
    text = text_of(open_as(cast["admin"], storm))
    assert "It is overdue, and has cost" in text
    assert "longer than nine in ten jobs like it" in text


# --- The axis ------------------------------------------------------------------------------------


def test_the_axis_lays_waits_runs_and_charges_out_in_time(cast, day):
    page = read(cast["admin"], day.job("storm"))
    axis = page.axis
    first, second = (one for one in axis.runs if one.kind == "protected")
    per_hour = percent(first.width)
    assert first.seconds == 3600
    assert percent(axis.cuts[0].x) == pytest.approx(percent(first.x) + per_hour, abs=0.01)
    assert percent(second.x) == pytest.approx(percent(first.x) + 1.5 * per_hour, abs=0.01)
    assert percent(axis.now) == pytest.approx(
        percent(first.x) + (NOW - T0).total_seconds() / 3600 * per_hour, abs=0.01
    )
    assert [wait.seconds for wait in axis.waits] == [1800]
    assert [bar.kind for bar in axis.bars] == ["funded"] * 3 + ["in_flight"]
    assert (axis.bars[0].height, axis.bars[0].parked) == ("36.0", "18.0")
    assert axis.bars[1].parked == ""
    assert percent(axis.low) <= percent(axis.likely) <= percent(axis.high) <= 100


def test_what_is_charged_at_once_stands_one_on_the_other(cast, day):
    job = day.jobs["sky"]
    first = Entry.objects.filter(job=job, kind="charge").order_by("at").first()
    Entry.objects.create(
        **{f.attname: getattr(first, f.attname) for f in Entry._meta.fields if f.name != "id"}
        | {"key": f"{first.key}:unfunded", "funded": False, "amount_mgpus": 0}
    )
    axis = read(cast["admin"], job).axis
    assert axis.most_gpu_seconds == 2 * first.gpu_seconds
    below, above = axis.bars[:2]
    assert (below.kind, below.y, below.height) == ("funded", "116.0", "18.0")
    assert (above.kind, above.y, above.height) == ("unfunded", "98.0", "18.0")


def test_a_job_of_many_charges_has_no_more_bars_than_can_be_told_apart(cast, day):
    job = day.jobs["sky"]
    first = Entry.objects.filter(job=job, kind="charge").order_by("at").first()
    as_it_is = {f.attname: getattr(first, f.attname) for f in Entry._meta.fields if f.name != "id"}
    length = first.until - first.at
    Entry.objects.bulk_create(
        Entry(
            **as_it_is
            | {"at": first.at - n * length, "until": first.until - n * length, "key": f"{n}:bars"}
        )
        for n in range(1, 600)
    )
    page = read(cast["admin"], job)
    assert len(page.axis.bars) <= charge_bars.MOST + 1
    assert len(page.money.charges.lines) > 600
    assert "GPU-time per 2 h, up to" in text_of(open_as(cast["admin"], job))


def test_marks_are_round_hours_of_the_reader_s_zone(cast, day):
    marks = read(cast["admin"], day.job("storm")).axis.marks
    assert 3 <= len(marks) <= job_axis.MARKS + 1
    assert all(mark.at.minute in (0, 30) for mark in marks)
    assert marks[0].new_day
    assert [mark.odd for mark in marks[:3]] == [False, True, False]


def test_an_axis_of_any_length_has_few_marks(cast, day):
    for span in (timedelta(minutes=5), timedelta(days=1), timedelta(days=45)):
        job = make.make_job(day.place.petrel, at=NOW - span)
        marks = read(cast["admin"], job).axis.marks
        assert len(marks) <= job_axis.MARKS + 1


def test_an_ended_job_s_axis_ends_with_it(cast, day):
    axis = read(cast["admin"], day.job("sky")).axis
    assert axis.now == axis.rest == axis.likely == ""
    text = text_of(open_as(cast["admin"], day.jobs["sky"]))
    assert "Completed at 01:30 after one run; it cost 12.0 cr." in text


# --- Kinds of jobs -------------------------------------------------------------------------------


def test_a_service_s_page_tells_its_demand_and_no_end(cast, day, monkeypatch):
    job = day.place.serve(day.place.petrel, NOW, profile=(0,) * 3 + (4,) * 21, swap_cap=4)
    later = T0 + 4 * HOUR
    go_on(NOW, later)
    stand_at(monkeypatch, later)
    answer = open_as(cast["member"], job)
    assert answer.status_code == 200
    text = text_of(answer)
    assert "Demand 0 – 4 GPUs" in text
    assert "Swap cap 4 GPUs a timestep" in text
    assert "Estimate of the end" not in text
    assert read(cast["member"], job, later).ends is None


def test_an_unfunded_job_says_so(cast, day, monkeypatch):
    job = day.place.submit(day.place.petrel, NOW, name="free", gpus=1, minimum_runtime_s=0)
    assert "0: unfunded by choice" in text_of(open_as(cast["member"], job))
    assert read(cast["member"], job).money.quoted is None


def test_dependencies_are_links_both_ways(cast, day):
    answer = open_as(cast["admin"], day.jobs["stars"])
    assert f'href="{url(day.jobs["flood"])}"' in answer.content.decode()
    assert f"Waits for it {number_of(day.jobs['stars'])}" in text_of(
        open_as(cast["admin"], day.jobs["flood"])
    )
    # Auk's job is not told to Petrel's member.
    assert "Waits for it" not in text_of(open_as(cast["member"], day.jobs["flood"]))


def test_the_command_is_shown_as_text(cast, day):
    job = make.make_job(day.place.petrel, command="<script>alert(1)</script>", name="<b>x")
    html = open_as(cast["member"], job).content.decode()
    assert "&lt;script&gt;alert(1)" in html
    assert "<script>alert" not in html
    assert "<b>x" not in html


def test_htmx_gets_the_live_part_with_an_etag(cast, day):
    client = client_of(cast["member"])
    part = client.get(url(day.jobs["storm"]), headers={"HX-Request": "true"})
    assert "<html" not in part.content.decode()
    assert "<dialog" not in part.content.decode()
    again = client.get(
        url(day.jobs["storm"]),
        headers={"HX-Request": "true", "If-None-Match": part.headers["ETag"]},
    )
    assert again.status_code == 304


def test_twice_the_runs_and_charges_take_as_many_queries(cast, day):
    client = client_of(cast["admin"])
    storm = day.jobs["storm"]
    queries(client, url(storm))
    few = queries(client, url(storm))
    for n in range(5):
        make.make_run(
            storm,
            {day.place.nodes[0]: 1},
            number=100 + n,
            started_at=T0 - HOUR,
            ended_at=T0 - HOUR / 2,
        )
        workloads.log(storm, "unfunded", at=NOW)
    assert queries(client, url(storm)) == few
