"""The burn report as a page, its files from page and API, and who may have them."""

import csv
import io
import json
from datetime import timedelta

import pytest

from allocator.models import Delivery
from config import clock
from ledger import reports
from tests import factories as make
from tests.burn_world import END, odd_ledger
from tests.factories import T0
from tests.pages_world import at, cells, client_of, text_of
from tests.test_reports_files import sheets

pytestmark = pytest.mark.once

MINUTE = timedelta(minutes=1)
KINDS = ("csv", "xlsx", "report.json", "focus-1.2.csv", "focus-1.4.csv")
API = "/api/v1/budgets/orlo/burn/"


@pytest.fixture
def world(cast, tree, monkeypatch):
    odd_ledger(tree)
    make.make_role(make.make_user("reader"), tree["orlo/science/petrel"], "viewer")
    at(monkeypatch, END + 7 * MINUTE)
    monkeypatch.setattr(clock, "now", lambda: END + 7 * MINUTE)
    return tree


def body(answer) -> bytes:
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


@pytest.mark.parametrize(
    ("who", "path", "status"),
    [
        ("admin", "orlo", 200), ("manager", "orlo", 404), ("manager", "orlo/science", 200),
        ("viewer", "orlo/science/petrel", 200), ("viewer", "orlo/science", 404),
        ("stranger", "orlo/science/petrel", 404), ("nobody", "orlo", 404),
        ("root", "orlo/vision/tern", 200),
    ],
)  # fmt: skip
def test_who_may_see_a_budget_may_have_its_report_and_nobody_else(
    cast, world, api_of, who, path, status
):
    client = client_of(cast[who])
    assert client.get(f"/budgets/{path}/report").status_code == status
    for kind in KINDS:
        assert client.get(f"/budgets/{path}/burn.{kind}").status_code == status, kind
    for kind in ("", "csv/", "xlsx/", "json/", "focus/", "table/"):
        assert api_of(who).get(f"/api/v1/budgets/{path}/burn/{kind}").status_code == status, kind


def test_people_are_named_only_in_reports_of_their_own_budgets(cast, world):
    page = text_of(client_of(cast["manager"]).get("/budgets/orlo/science/report"))
    assert "Ada Lovelace" in page
    page = text_of(client_of(cast["stranger"]).get("/budgets/orlo/vision/tern/report"))
    assert "Ada Lovelace" not in page


def test_the_page_says_what_the_report_says(cast, world):
    answer = client_of(cast["admin"]).get("/budgets/orlo/report")
    page = text_of(answer)
    whole = reports.burn_report(
        budget=world["orlo"], start=T0, end=END + 7 * MINUTE, now=END + 7 * MINUTE
    )
    total = whole.total
    settled = reports.credits(total.settled_mgpus).split(".")[0]
    assert f"Orlo has settled {total.settled_mgpus * 100 / total.granted_mgpus:.1f} %" in page
    assert f"{settled} of 319 cr" in page
    assert "It is too early to say what that leads to." in page
    science = whole.rows[0]
    burned = next(row for row in answer.content.decode().split("<tr>") if "Science" in row)
    assert burned
    assert cells(answer, "Science")[1:3] == [
        f"{science.granted_mgpus / 3_600_000:,.0f}",
        f"{science.settled_mgpus / 3_600_000:,.0f}",
    ]
    assert "charged up to 1 Oct 2026 03:00" in page
    assert "train" in page
    assert "=sweep" in page
    assert "1 Oct 2026 02:11 orlo settled ±0.00 meta miscounted" in page


def test_the_forecast_is_told_once_there_is_one(cast, tree, monkeypatch):
    period = make.make_period(ends_at=T0 + timedelta(days=20))
    from tests.ledger_world import close, give, write_entry

    give(tree["orlo/vision/tern"], 100, period)
    for day in range(6):
        when = T0 + timedelta(days=day)
        write_entry(
            kind="charge", budget=tree["orlo/vision/tern"], period=period, at=when,
            until=when + make.TIMESTEP, timestep=when, amount_mgpus=6 * 3_600_000,
            gpu_seconds=21_600, created_at=when, key=f"day:{day}",
        )  # fmt: skip
    now = close(1, since=T0 + timedelta(days=6) - make.TIMESTEP)
    at(monkeypatch, now)
    page = text_of(client_of(cast["admin"]).get("/budgets/orlo/report"))
    assert "it ends the period at 120 – 120 % of the grant" in page
    assert "So it runs out before." in page


def test_what_was_delivered_of_owed_is_that_of_the_interval(cast, world, api_of):
    pool = make.make_pool("b200")
    for minutes, owed in ((0, 1000), (60, 3000)):
        Delivery.objects.create(
            timestep=T0 + minutes * MINUTE, budget=world["orlo/science"], pool=pool,
            entitled_gpu_seconds=owed, demand_gpu_seconds=owed + 5, funded_gpu_seconds=900,
        )  # fmt: skip
    page = client_of(cast["admin"]).get("/budgets/orlo/report")
    assert cells(page, "Science")  # the first table's; the second's ends in what was delivered
    assert "It got 45.0 % of what it was owed." in text_of(page)
    answer = api_of("admin").get(API, {"to": "2026-10-01T00:30:00Z"}).json()
    science = answer["rows"][0]
    assert (science["owed_gpu_seconds"], science["delivered_gpu_seconds"]) == (1000, 900)


def test_files_of_page_and_api_are_the_same_report(cast, world, api_of):
    client, api = client_of(cast["admin"]), api_of("admin")
    query = {"from": "2026-10-01T00:13:00Z", "to": "2026-10-01T02:59:59Z", "by": "leaf"}
    pairs = (
        ("csv", "csv/"),
        ("xlsx", "xlsx/"),
        ("report.json", "json/"),
        ("focus-1.2.csv", "focus/"),
    )
    for kind, address in pairs:
        mine = client.get(f"/budgets/orlo/burn.{kind}", query)
        theirs = api.get(f"{API}{address}", query)
        assert body(mine) == body(theirs), kind
        assert mine["Content-Disposition"] == theirs["Content-Disposition"]
    newer = body(client.get("/budgets/orlo/burn.focus-1.4.csv", query))
    assert newer == body(api.get(f"{API}focus/", query | {"focus_version": "1.4"}))
    assert b"ServiceProviderName" in newer
    assert json.loads(body(client.get("/budgets/orlo/burn.report.json", query))) == (
        api.get(API, query).json()
    )


def test_the_workbook_from_the_page_holds_the_csv_s_numbers(cast, world):
    client = client_of(cast["admin"])
    table = csv.DictReader(io.StringIO(body(client.get("/budgets/orlo/burn.csv")).decode()))
    book = sheets(body(client.get("/budgets/orlo/burn.xlsx")))
    total = list(table)[-1]
    assert book["Budgets"][-1]["D"] == int(total["granted_mgpus"]) == 319 * 3_600_000


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("from=yesterday", "neither a date"), ("zone=Mars", "no time zone"),
        ("by=person", "choose child or leaf"),
        ("from=2026-11-01&to=2026-10-01", "must come before"),
        ("from=2031-01-01&to=2031-02-01", "No started period covers"),
        ("from=0001-01-01", "no year of ours"), ("from=1990-01-01", "3660 days at most"),
    ],
)  # fmt: skip
def test_what_can_t_be_reported_is_said_above_the_report(cast, world, query, words):
    client = client_of(cast["admin"])
    page = client.get(f"/budgets/orlo/report?{query}")
    assert (page.status_code, words in text_of(page)) == (400, True)
    assert "Orlo has settled" in text_of(page)
    file = client.get(f"/budgets/orlo/burn.csv?{query}")
    assert (file.status_code, words in file.content.decode()) == (400, True)


def test_the_api_refuses_in_problem_objects(world, api_of):
    api = api_of("admin")
    for query, words in (
        ({"zone": "Mars"}, "no time zone"),
        ({"by": "person"}, "not a valid choice"),
        ({"from": "2031-01-01T00:00:00Z", "to": "2031-02-01T00:00:00Z"}, "No started period"),
    ):
        answer = api.get(f"{API}csv/", query)
        assert (answer.status_code, words in answer.json()["detail"]) == (400, True), query
    assert api.get(f"{API}focus/", {"focus_version": "1.3"}).status_code == 400
    assert api.get(f"{API}pdf/").status_code == 404


def test_links_keep_what_was_asked_for(cast, world):
    answer = client_of(cast["admin"]).get(
        "/budgets/orlo/report?from=2026-10-01&to=2026-10-02&by=leaf&zone=Europe/Zurich"
    )
    html = answer.content.decode()
    query = "from=2026-10-01&amp;to=2026-10-02&amp;by=leaf&amp;zone=Europe%2FZurich"
    for kind in KINDS:
        assert f'href="/budgets/orlo/burn.{kind}?{query}"' in html
    assert "science/petrel" in html
    assert "on the clocks of Europe/Zurich" in text_of(answer)


def test_a_long_interval_is_shown_by_week_and_adds_up(cast, world):
    url = "/budgets/orlo/report?from=2026-08-31&to=2026-10-05"
    assert "By day" in text_of(client_of(cast["admin"]).get(url))
    answer = client_of(cast["admin"]).get("/budgets/orlo/report?from=2026-08-28&to=2026-10-05")
    assert "By week" in text_of(answer)
    weeks = answer.context["page"].stretches
    assert [one.day.isoformat() for one in weeks] == ["2026-09-28"]  # nothing ran before
    burned = answer.context["page"].total.burn.burned_mgpus
    assert sum(one.burn.settled_mgpus for one in weeks) == burned != 0


def test_before_any_period_there_is_no_report(cast, tree, monkeypatch):
    at(monkeypatch, T0)
    client = client_of(cast["admin"])
    assert client.get("/budgets/orlo/report").status_code == 404
    assert client.get("/budgets/orlo/burn.csv").status_code == 404
