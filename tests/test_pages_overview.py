"""The overview: each number is a report's, each GPU is told once, nobody sees too much."""

import re
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from html import unescape

import pytest
from django.template.loader import render_to_string
from django.utils import timezone

from allocator import delivery
from allocator.models import Alarm, Outlook
from allocator.pages import burning, overview
from allocator.pages.overview_trends import ratio
from clusters.models import NodeState
from ledger import reports
from ledger.models import ClosedTimestep
from tests import factories as make
from tests.factories import HOUR, T0
from tests.ledger_world import log_gpus
from tests.pages_day import NOW, stand_at
from tests.pages_world import cells, client_of, number_of, queries, text_of
from workloads.models import Job

WEEK = timedelta(days=7)


@pytest.fixture
def day(played, db, monkeypatch):
    stand_at(monkeypatch, NOW)
    return deepcopy(played)


@pytest.fixture
def tree(day):
    return day.place.tree


def read(user, **query):
    return overview.page(user, now=NOW, query=query)


def test_who_is_signed_out_is_sent_to_sign_in(db):
    answer = client_of(None).get("/")
    assert (answer.status_code, answer["Location"]) == (302, "/sign-in?next=/")


def test_everyone_signed_in_sees_the_cluster(cast):
    for name in ("admin", "member", "stranger", "nobody"):
        assert client_of(cast[name]).get("/").status_code == 200


def test_availability_and_occupancy_are_the_logs_gpus(cast, day):
    log_gpus(day.place.nodes[1], NOW, held=0x0F, down=0xC0)
    page = read(cast["admin"])
    assert (page.census.inventory, page.census.healthy, page.census.held) == (16, 14, 12)
    text = text_of(client_of(cast["admin"]).get("/"))
    assert "Availability ? 87.5 % 14 of 16 GPUs healthy" in text
    assert "Occupancy ? 85.7 % 12 of 14 held" in text


def test_the_lines_are_the_conservation_proof_s(cast):
    until = ClosedTimestep.objects.order_by("-end").first().end
    page = overview.page(cast["admin"], now=until, query={"span": "24h"})
    rows = reports.conservation(start=T0, end=until)
    assert [row.timestep for row in rows] == [T0 + make.TIMESTEP * n for n in range(4)]
    held = [(row.charged + row.unfunded, row.free, row.inventory) for row in rows]
    assert page.occupancy.line[-5:-1] == [ratio(h, h + free) for h, free, _ in held]
    assert page.availability.line[-5:-1] == [ratio(h + free, whole) for h, free, whole in held]
    assert page.occupancy.line[-6] == 0  # before anything ran
    assert page.occupancy.line[-1] is None  # of the timestep that begins


def test_utilization_is_what_of_the_charges_was_not_parked(cast, day):
    page = read(cast["admin"])
    charges = [c for j in day.jobs.values() for c in reports.job_charges(job=j).lines]
    held = sum(c.gpu_seconds for c in charges)
    parked = sum(c.parked_gpu_seconds for c in charges)
    assert parked == 2 * 8 * 900
    assert page.utilization.mean == ratio(held - parked, held)
    assert page.utilization.now == ratio(16 * 1800 - 8 * 900, 16 * 1800)


def test_delivered_is_the_summary_s(cast, tree):
    page = read(cast["admin"])
    root = delivery.summary(start=NOW - WEEK, end=NOW)[tree["orlo"].pk]
    assert root.owed_gpu_seconds > 0
    assert page.delivered.mean == ratio(root.delivered_gpu_seconds, root.owed_gpu_seconds)


def test_the_strip_has_every_gpu_once(cast, day):
    log_gpus(day.place.nodes[1], NOW, held=0x0F, down=0xC0)
    for name in ("admin", "member", "nobody"):
        parts = read(cast[name]).strip_parts
        assert sum(part["value"] for part in parts) == 16
    by_label = {part["label"]: part["value"] for part in read(cast["admin"]).strip_parts}
    assert by_label["Down"] == 2
    assert by_label["Free"] == 2


def test_a_program_s_gpus_are_told_to_those_who_may_see_them(cast):
    admin = {use.name: use.gpus for use in read(cast["admin"]).census.uses}
    assert admin == {"Science": 8, "Vision": 8}
    member = {use.name: use.gpus for use in read(cast["member"]).census.uses}
    assert member == {"Science": 8, "": 8}
    nobody = {use.name: use.gpus for use in read(cast["nobody"]).census.uses}
    assert nobody == {"": 16}


def test_a_program_s_part_of_the_strip_is_only_what_one_may_see_of_it(cast, day):
    Job.objects.filter(budget__path="orlo/vision/tern").update(budget=day.place.auk)
    assert {use.name: use.gpus for use in read(cast["manager"]).census.uses}["Science"] == 16
    member = {use.name: use.gpus for use in read(cast["member"]).census.uses}
    assert member == {"Science": 8, "": 8}


def test_parked_now_is_what_the_last_closed_timestep_says(cast):
    page = read(cast["admin"])
    assert page.census.parked == 4  # 8 GPUs for half of the timestep
    assert page.census.parked_of == T0 + timedelta(minutes=90)


def test_burn_lines_are_the_reports_figures(cast, tree, day):
    answer = client_of(cast["admin"]).get("/")
    found = burning.burns(period=day.place.period, now=NOW)
    for path in ("orlo/science", "orlo/science/petrel", "orlo/vision/tern"):
        burn = found[tree[path].pk]
        row = cells(answer, tree[path].name)
        assert row[2] == f"{burn.figures.settled_mgpus * 100 / burn.figures.granted_mgpus:.1f}"
        assert row[3] == f"{burn.pace:.2f}"


def test_a_reader_sees_the_burn_of_their_own_budgets_only(cast):
    page = read(cast["member"])
    assert [line.budget.path for line in page.projects] == ["orlo/science/petrel"]
    assert page.programs == []
    assert "Tern" not in text_of(client_of(cast["member"]).get("/"))


def test_the_page_opens_with_who_is_ahead_of_plan(cast, day, monkeypatch):
    late = T0 + timedelta(days=10)
    monkeypatch.setattr("allocator.views.now", lambda: late)
    assert (
        overview.page(cast["admin"], now=late, query={}).ahead is None
    )  # of ten days two hours were used
    text = text_of(client_of(cast["admin"]).get("/"))
    assert "No project burns faster than planned. 2 jobs wait" in text


def test_who_is_ahead_is_named_before_there_is_a_verdict(cast):
    page = read(cast["admin"])
    first, *others = page.projects
    assert not first.burn.judged
    page = replace(page, projects=[replace(first, over_mgpus=5 * 3_600_000), *others])
    said = render_to_string("allocator/_overview_answer.html", {"page": page})
    assert f"<b>{first.budget.name}</b> has burned most against plan so far: 5 cr above" in said
    assert "that is no verdict yet" in said


def test_parked_budgets_lead_to_their_pages(cast):
    html = client_of(cast["admin"]).get("/").content.decode()
    parked = html[html.index('id="h-pk"') :]
    assert '<a href="/budgets/orlo/science/petrel">Petrel</a>' in parked[:2500]


def test_parked_has_its_price(cast, tree):
    page = read(cast["admin"])
    (petrel,) = page.parked.leaves
    assert petrel.budget == tree["orlo/science/petrel"]
    assert petrel.time.parked_mgpus == 2 * 8 * 900 * 1000
    assert page.parked.total.parked == 2 * 8 * 900
    assert "Parked GPUs cost 4.0 cr in the last 7 days." in text_of(
        client_of(cast["admin"]).get("/")
    )
    assert read(cast["stranger"]).parked.leaves == []


def test_parked_is_told_by_day_of_the_reader_s_zone(cast):
    page = read(cast["admin"])
    assert [day.time.parked for day in page.parked.days] == [0] * 7 + [2 * 8 * 900]
    assert page.parked.worst.day == page.parked.days[-1].day == NOW.date()
    with timezone.override("America/Sao_Paulo"):  # UTC-3: midnight in NOW's first three hours
        days = read(cast["admin"]).parked.days
    assert [day.time.parked for day in days] == [0] * 7 + [2 * 8 * 900]
    assert days[-1].day == NOW.date() - timedelta(days=1)
    with timezone.override("Atlantic/Cape_Verde"):  # its midnight is at 01:00, between both
        days = read(cast["admin"]).parked.days
    assert [day.time.parked for day in days][-2:] == [8 * 900, 8 * 900]
    text = client_of(cast["admin"]).get("/").content.decode()
    assert "Cost of parked GPUs by day:" in text
    assert "Thu 1 Oct 4.0 cr" in text
    assert "Most on Thu 1 Oct: 4.0 cr" in text


@pytest.mark.parametrize(("who", "path"), [("admin", "orlo"), ("member", "orlo/science/petrel")])
def test_parked_leads_to_the_report_that_tells_who_and_when(cast, who, path):
    client = client_of(cast[who])
    link = re.search(r'href="(/budgets/[^"]+/report[^"]+)"', client.get("/").content.decode())
    assert link
    assert link[1].startswith(f"/budgets/{path}/report?from=2026-")
    answer = client.get(unescape(link[1]))
    assert answer.status_code == 200
    assert 'class="bad" role="alert"' not in answer.content.decode()


def test_waiting_is_grouped_by_the_rule_that_binds(cast, day):
    page = read(cast["admin"])
    rules = {o.job.name: o.rule for o in Outlook.objects.select_related("job")}
    assert rules["stars"] == "dependency"
    groups = {group.rule: (group.jobs, group.gpus) for group in page.waiting.groups}
    assert groups == {rules["flood"]: (1, 16), "dependency": (1, 8)}
    assert f"Waits for {number_of(day.jobs['flood'])}" in text_of(client_of(cast["admin"]).get("/"))


def test_a_job_without_an_outlook_is_not_planned_yet(cast, day):
    Outlook.objects.all().delete()
    assert [g.rule for g in read(cast["admin"]).waiting.groups] == ["not_planned"]
    assert "Not planned yet" in text_of(client_of(cast["admin"]).get("/"))


def test_next_starts_are_those_of_the_newest_plan(cast, day):
    lines = read(cast["admin"]).next_starts
    assert [line.job.name for line in lines] == ["flood"]
    assert read(cast["stranger"]).next_starts == []


def test_alarms_say_what_who_and_where(cast):
    Alarm.objects.create(kind="unreachable:mainland", raised_at=NOW - HOUR, text="timed out")
    Alarm.objects.create(kind="unreachable:x", raised_at=NOW, cleared_at=NOW, text="over")
    text = text_of(client_of(cast["admin"]).get("/"))
    assert "1 open mainland has not answered since 01:12" in text
    assert "For operations · Open plan" in text


def test_alarms_are_counted_as_the_health_check_counts_them(cast, day):
    Alarm.objects.create(kind="unreachable:mainland", raised_at=NOW - HOUR, text="timed out")
    Outlook.objects.filter(job=day.jobs["flood"]).update(rule="not_funded", data={})
    for name, warnings in (("admin", 1), ("stranger", 0)):  # what one may see, one is warned of
        client = client_of(cast[name])
        page = read(cast[name])
        assert page.open_alarms == client.get("/healthz").json()["allocator"]["open_alarms"] == 1
        assert page.warnings == warnings
    assert "1 open · one warning" in text_of(client_of(cast["admin"]).get("/"))


def test_a_cluster_that_answers_but_for_some_calls_is_told_as_that(cast):
    text = "Mainland didn't start allotment-3-1: OSError: disk full"
    alarm = {"kind": "unreachable:mainland", "raised_at": NOW - HOUR, "text": text}
    Alarm.objects.create(**alarm, data={"answers": True})
    shown = text_of(client_of(cast["admin"]).get("/"))
    assert f"mainland fails some calls {text} Since 01:12" in shown
    assert "has not answered" not in shown


def test_jobs_that_wait_for_funds_are_an_alarm_of_the_budget_that_binds(cast, day):
    data = {"binding": "orlo/science", "needed_mgpus": 2, "spendable_mgpus": 1}
    Outlook.objects.filter(job=day.jobs["flood"]).update(rule="not_funded", data=data)
    text = text_of(client_of(cast["manager"]).get("/"))
    assert "Science can’t pay for one job They wait for funds." in text  # noqa: RUF001
    # Science's means are nothing that Petrel's member may know.
    assert "pay for" not in text_of(client_of(cast["member"]).get("/"))


def test_a_refused_plan_s_text_is_for_those_who_see_everything(cast):
    Alarm.objects.create(kind="illegal_plan", raised_at=NOW, text="tern/fold overlaps")
    assert "tern/fold overlaps" in text_of(client_of(cast["admin"]).get("/"))
    member = text_of(client_of(cast["member"]).get("/"))
    assert "A plan was refused" in member
    assert "tern/fold" not in member


def test_a_node_that_is_down_is_named_with_its_reason(cast, day):
    node = day.place.nodes[0]
    NodeState.objects.create(node=node, at=NOW, state="down", reason="3 XID errors")
    assert f"{node.name} is down 3 XID errors. For operations" in text_of(
        client_of(cast["admin"]).get("/")
    )


def test_a_pool_narrows_the_measures(cast, day):
    other = make.make_pool("b200", cluster=day.place.cluster)
    make.make_nodes(other, 1)
    assert read(cast["admin"]).census.inventory == 24
    page = read(cast["admin"], pool="b200")
    assert (page.census.inventory, page.census.held, page.census.unseen) == (8, 0, 8)
    assert page.delivered.mean is None
    assert "– %" in text_of(client_of(cast["admin"]).get("/?pool=b200"))
    assert read(cast["admin"], pool="none").pool is None


def test_htmx_gets_the_live_part_with_an_etag(cast):
    client = client_of(cast["admin"])
    part = client.get("/", headers={"HX-Request": "true"})
    assert "<html" not in part.content.decode()
    assert "Occupancy" in part.content.decode()
    again = client.get("/", headers={"HX-Request": "true", "If-None-Match": part.headers["ETag"]})
    assert again.status_code == 304


def test_twice_the_jobs_take_as_many_queries(cast, day):
    client = client_of(cast["admin"])
    queries(client, "/")
    for n in range(5):
        make.make_job(day.place.auk, at=NOW - n * HOUR)
    few = queries(client, "/")
    for n in range(20):
        make.make_job(day.place.tern, at=NOW - n * HOUR)
    assert queries(client, "/") == few
    assert Job.objects.filter(state="queued").count() == 27
