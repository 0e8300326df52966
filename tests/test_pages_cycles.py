"""Pages of cycles: what started each, what it saw and decided, and the same plan once more."""

import json
import re
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from allocator import repeating
from allocator.models import Alarm, Cycle
from allocator.packing import pack, unpack
from allocator.pages import cycle as pages
from allocator.pages import cycle_reader
from allocator.pages import cycles as lists
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_day import NOW, Day, stand_at
from tests.pages_world import client_of, queries, text_of
from tests.replaying import ALL, MINE, replaying
from workloads.models import JobEvent, Run

# Who sees the pages on the second database too: test_access_everywhere.
pytestmark = pytest.mark.once
MINUTE = timedelta(minutes=1)


@pytest.fixture
def day(played: Day, db: None, monkeypatch: pytest.MonkeyPatch) -> Day:
    stand_at(monkeypatch, NOW)
    return deepcopy(played)


@pytest.fixture
def tree(day: Day) -> Any:
    return day.place.tree


def at(instant: Any) -> Cycle:
    """The cycle that decided at an instant."""
    return Cycle.objects.filter(at=instant, starts__gt=0).latest("pk")


def newest() -> Cycle:
    return Cycle.objects.latest("pk")


def page_of(user: User, cycle: Cycle) -> Any:
    answer = client_of(user).get(f"/cycles/{cycle.pk}")
    assert answer.status_code == 200
    return answer


# --- The list ------------------------------------------------------------------------------------


def test_the_list_is_filtered_by_the_address(cast: dict[str, User]) -> None:
    def shown(query: str) -> list[int]:
        answer = client_of(cast["admin"]).get(f"/cycles{query}")
        assert answer.status_code == 200
        return [row.cycle.pk for row in answer.context["page"].rows]

    every = list(Cycle.objects.order_by("-pk"))
    Cycle.objects.filter(pk=every[-1].pk).update(trigger="submission")
    every[-1].trigger = "submission"
    assert shown("") == [one.pk for one in every]
    ticks = [one.pk for one in every if one.trigger == "timestep"]
    assert shown("?trigger=timestep") == ticks
    assert 0 < len(ticks) < len(every)
    changed = [one.pk for one in every if one.starts or one.stops]
    assert shown("?outcome=changed") == changed
    assert shown("?outcome=nonsense") == shown("")
    assert shown("?outcome=illegal") == []
    other = every[2]
    Cycle.objects.filter(pk=other.pk).update(status="superseded", starts=0)
    assert shown("?outcome=superseded") == [other.pk]


def test_the_list_says_what_the_day_came_to(cast: dict[str, User]) -> None:
    text = text_of(client_of(cast["admin"]).get("/cycles"))
    number = Cycle.objects.count()
    assert f"{number} cycles in the last 24 hours" in text
    starts = sum(Cycle.objects.values_list("starts", flat=True))
    assert f"started {starts} jobs and preempted one ." in text
    assert "All were committed." in text
    Cycle.objects.filter(pk=newest().pk).update(status="illegal")
    Alarm.objects.create(kind="illegal_plan", raised_at=NOW, text="x", data={"cycle": newest().pk})
    text = text_of(client_of(cast["admin"]).get("/cycles"))
    assert "One was not committed." in text
    assert "illegal, not committed alarm" in text


def test_parts_of_the_list_go_on_from_a_key(
    cast: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "ROWS", 2)
    client, seen, url = client_of(cast["admin"]), [], "/cycles"
    parts = []
    while url:
        page = client.get(url).context["page"]
        parts.append([row.cycle.pk for row in page.rows])
        seen += parts[-1]
        url = f"/cycles{page.part.older}" if page.part.older else ""
    assert seen == list(Cycle.objects.order_by("-pk").values_list("pk", flat=True))
    assert [len(part) for part in parts] == [2, 2, 1]
    back = client.get(f"/cycles?after={parts[2][0]}").context["page"]
    assert [row.cycle.pk for row in back.rows] == parts[1]
    first = client.get(f"/cycles{back.part.newer}").context["page"]
    assert ([row.cycle.pk for row in first.rows], first.part.newer) == (parts[0], "")


# --- One cycle -----------------------------------------------------------------------------------


def test_a_preemption_is_told_with_the_numbers_that_decided_it(
    cast: dict[str, User], day: Day
) -> None:
    text = text_of(page_of(cast["admin"], at(T0 + HOUR)))
    assert "petrel/storm 8 GPUs preempted for tern/fold" in text
    event = JobEvent.objects.get(job=day.jobs["storm"], kind="preempted_decided")
    side = event.data["preemptor_share"]
    share = 100 * side["shares"] / side["siblings_shares"]
    assert re.search(rf"Part of \w+.s shares {share:.1f} %", text)
    assert "Level fair share, higher goes first" in text
    assert "tern/fold 8" in text


def test_a_start_spells_its_weight_out(cast: dict[str, User], day: Day) -> None:
    cycle = at(T0 + HOUR)
    (start,) = pages.page(cast["admin"], cycle.pk).starts
    stored = {job["name"]: job for job in unpack(bytes(cycle.snapshot))["jobs"]}
    assert start.weight == stored[f"job-{day.jobs['fold'].pk}"]["priority"]
    assert start.factor is not None
    assert start.urgency is not None
    assert start.weight == pytest.approx((1 + 9 * start.factor) * start.urgency)
    assert start.is_given
    assert Run.objects.get(job=day.jobs["fold"]).decided_at == cycle.at
    text = text_of(page_of(cast["admin"], cycle))
    assert f"(1 + 9 × {start.factor:.3f}) × {start.urgency:.3f}" in text
    Run.objects.filter(job=day.jobs["fold"]).update(decided_at=cycle.at + MINUTE)
    assert "its hold could not be kept" in text_of(page_of(cast["admin"], cycle))


def test_what_waits_is_told_with_the_rule_that_binds(cast: dict[str, User]) -> None:
    text = text_of(page_of(cast["admin"], newest()))
    assert "petrel/flood 16 GPUs No block of 16 before" in text
    assert "auk/stars 8 GPUs Waits for" in text
    assert "Released when they end" in text


def test_of_many_that_wait_some_are_named_and_all_are_counted(
    cast: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = pages.page(cast["admin"], newest().pk)
    assert (len(every.waits), every.waits_total) == (2, 2)
    monkeypatch.setattr(cycle_reader, "WAITS", 1)
    with CaptureQueriesContext(connection) as caught:
        found = pages.page(cast["admin"], newest().pk)
    assert (found.waits, found.waits_total) == (every.waits[:1], 2)
    told = [one["sql"] for one in caught if "allocator_outlook" in one["sql"]]
    assert told
    assert not any("snapshot" in one for one in told)


def test_it_is_compared_with_the_plan_before(cast: dict[str, User], day: Day) -> None:
    before, cycle = newest(), day.place.cycle(NOW)
    found = pages.page(cast["admin"], cycle.pk).before
    assert found.cycle == before
    assert (found.same, found.came, found.moved) == (1, 0, [])
    name = f"job-{day.jobs['flood'].pk}"
    plan = unpack(bytes(before.plan))
    moved = [[None if cell == name else cell for cell in row] for row in plan["grid"]]
    Cycle.objects.filter(pk=before.pk).update(plan=pack(plan | {"grid": moved}))
    (one,) = pages.page(cast["admin"], cycle.pk).before.moved
    assert (one.name.pk, one.before) == (day.jobs["flood"].pk, None)
    assert one.after is not None
    assert "not in 24 h" in text_of(page_of(cast["admin"], cycle))


def test_others_jobs_have_no_name(cast: dict[str, User], day: Day) -> None:
    """The member of petrel sees its own jobs, and that others are there."""
    text = text_of(page_of(cast["member"], at(T0 + HOUR)))
    assert "petrel/storm 8 GPUs preempted for another budget\u2019s work" in text
    assert "fold" not in text
    assert "another budget\u2019s work 8" in text
    waits = text_of(page_of(cast["member"], newest()))
    assert "petrel/flood" in waits
    assert "stars" not in waits
    assert "And one of another budget." in waits
    stranger = text_of(page_of(cast["nobody"], newest()))
    assert not [name for name in day.jobs if name in stranger]
    assert "You may see none of the budgets in it." in stranger


def test_what_was_let_go_says_so(cast: dict[str, User]) -> None:
    cycle = at(T0 + HOUR)
    Cycle.objects.filter(pk=cycle.pk).update(snapshot=b"", plan=b"", hint={})
    text = text_of(page_of(cast["admin"], cycle))
    assert "Only its numbers are left" in text
    assert "(CYCLES_KEPT_DAYS), and is gone" in text
    assert "cycle-replay" not in text
    later = Cycle.objects.filter(pk__gt=cycle.pk).first()
    assert later is not None
    assert "What the one before planned is gone." in text_of(page_of(cast["admin"], later))


def test_a_cycle_without_a_plan_has_a_page(cast: dict[str, User]) -> None:
    cycle = newest()
    empty = {"snapshot": pack({}), "plan": pack({}), "problems": ["no use"]}
    Cycle.objects.filter(pk=cycle.pk).update(status="failed", **empty)
    text = text_of(page_of(cast["admin"], cycle))
    assert "There was no plan" in text
    assert "no use" in text
    assert "no use" not in text_of(page_of(cast["member"], cycle))


def test_one_that_is_not_there_is_404(cast: dict[str, User]) -> None:
    for url in ("/cycles/99999", "/cycles/99999/plan.json"):
        assert client_of(cast["admin"]).get(url).status_code == 404
    assert client_of(cast["admin"]).post("/cycles/99999/replay").status_code == 404


# --- Once more -----------------------------------------------------------------------------------


def test_every_stored_cycle_gives_the_same_plan_once_more(cast: dict[str, User]) -> None:
    cycles = list(Cycle.objects.all())
    assert len(cycles) == 5
    for cycle in cycles:
        made = repeating.repeat(cycle)
        assert made.is_same, cycle
        assert made.result.objective == cycle.objective
        assert made.versions == ()
    client = client_of(cast["admin"])
    before = Cycle.objects.count(), Run.objects.count()
    part = client.post(f"/cycles/{cycles[-1].pk}/replay", headers={"HX-Request": "true"})
    assert "The same plan." in text_of(part)
    assert "<html" not in part.content.decode()
    whole = client.post(f"/cycles/{cycles[-1].pk}/replay")
    assert "The same plan." in text_of(whole)
    assert "What it decided" in text_of(whole)
    assert (Cycle.objects.count(), Run.objects.count()) == before


def test_a_replay_tells_the_reasons_of_that_cycle(cast: dict[str, User], day: Day) -> None:
    """As the newest cycle's own outlooks say them."""
    found = text_of(client_of(cast["admin"]).post(f"/cycles/{newest().pk}/replay"))
    assert found.count("petrel/flood 16 GPUs No block of 16 before") == 2
    cycle, _ = newest(), day.place.cycle(NOW)
    assert "Reasons are kept for the newest cycle" in text_of(page_of(cast["admin"], cycle))
    text = text_of(client_of(cast["admin"]).post(f"/cycles/{cycle.pk}/replay"))
    said = text.partition("Why each job waited")[2]
    assert "petrel/flood 16 GPUs No block of 16 before" in said
    assert "Released when they end" in said


def test_another_plan_is_told_job_by_job_with_what_changed(cast: dict[str, User], day: Day) -> None:
    cycle = newest()
    name, plan = f"job-{day.jobs['flood'].pk}", unpack(bytes(cycle.plan))
    grid = [[None if cell == name else cell for cell in row] for row in plan["grid"]]
    versions = cycle.versions | {"numpy": "1.0"}
    Cycle.objects.filter(pk=cycle.pk).update(plan=pack(plan | {"grid": grid}), versions=versions)
    text = text_of(client_of(cast["admin"]).post(f"/cycles/{cycle.pk}/replay"))
    assert "Another plan. One job is placed otherwise" in text
    assert "petrel/flood –" in text
    assert "numpy was 1.0 then" in text
    assert "please report" not in text
    hidden = text_of(client_of(cast["stranger"]).post(f"/cycles/{cycle.pk}/replay"))
    assert "One of them is another budget\u2019s." in hidden
    assert "flood" not in hidden


def test_the_cap_of_then_counts_and_what_took_too_long_is_refused(
    cast: dict[str, User], settings: Any
) -> None:
    cycle = at(T0 + HOUR)
    settings.PREEMPTION_CAP_PERCENT = 0
    again = repeating.repeat(cycle)
    assert again.is_same
    assert [name for name, _, _ in again.versions] == [repeating.CAP]
    Cycle.objects.filter(pk=cycle.pk).update(solve_ms=60_000)
    text = text_of(client_of(cast["admin"]).post(f"/cycles/{cycle.pk}/replay"))
    assert "Its plan took 60 s, longer than the 10 s" in text


def test_what_another_release_stored_says_so(cast: dict[str, User]) -> None:
    cycle = newest()
    stored = unpack(bytes(cycle.snapshot)) | {"of_another_release": 1}
    versions = cycle.versions | {"allotment": "0.0.9"}
    Cycle.objects.filter(pk=cycle.pk).update(snapshot=pack(stored), versions=versions)
    said = "Release 0.0.9 stored what"
    assert said in text_of(page_of(cast["admin"], cycle))
    assert said in text_of(client_of(cast["admin"]).post(f"/cycles/{cycle.pk}/replay"))
    client = APIClient()
    client.force_authenticate(cast["admin"])
    answer = client.post(f"/api/v1/cycles/{cycle.pk}/replay/")
    assert (answer.status_code, said in answer.json()["detail"]) == (409, True)


def test_too_many_replays_are_told_so_on_the_page_and_over_the_api(cast: dict[str, User]) -> None:
    page, api, path = client_of(cast["member"]), APIClient(), f"cycles/{newest().pk}/replay"
    api.force_authenticate(cast["member"])
    for people, said in (((cast["member"].pk,), MINE), ((-1, -2), ALL)):
        with replaying(*people):
            whole = page.post(f"/{path}")
            part = page.post(f"/{path}", headers={"HX-Request": "true"})
            told = api.post(f"/api/v1/{path}/")
        assert (whole.status_code, part.status_code, told.status_code) == (429, 429, 429)
        assert said in text_of(whole)
        assert "What it decided" in text_of(whole)
        assert text_of(part).strip().startswith(said)
        assert told.json()["detail"].startswith(said)
    assert "The same plan." in text_of(page.post(f"/{path}"))
    assert api.post(f"/api/v1/{path}/").json()["same_plan"] is True


# --- API and files -------------------------------------------------------------------------------


def test_the_api_replays_and_filters_too(cast: dict[str, User]) -> None:
    client = APIClient()
    client.force_authenticate(cast["member"])
    told = client.post(f"/api/v1/cycles/{newest().pk}/replay/").json()
    assert (told["same_plan"], told["differs"], told["differs_unseen"]) == (True, [], 0)
    changed = client.get("/api/v1/cycles/", {"outcome": "changed"}).json()
    assert changed["count"] == sum(bool(c.starts or c.stops) for c in Cycle.objects.all())
    assert client.get("/api/v1/cycles/", {"outcome": "x"}).status_code == 400
    Cycle.objects.filter(pk=newest().pk).update(snapshot=b"")
    gone = client.post(f"/api/v1/cycles/{newest().pk}/replay/")
    assert gone.status_code == 409
    assert "is gone" in gone.json()["detail"]


def test_files_are_for_who_may_see_all_that_is_in_them(cast: dict[str, User]) -> None:
    for kind in ("snapshot", "plan"):
        url = f"/cycles/{newest().pk}/{kind}.json"
        answer = client_of(cast["admin"]).get(url)
        assert json.loads(answer.content) == unpack(bytes(getattr(newest(), kind)))
        assert f'filename="cycle-{newest().pk}-{kind}.json"' in answer["Content-Disposition"]
        assert client_of(cast["member"]).get(url).status_code == 404


def test_pages_take_as_many_queries_with_more_rows(cast: dict[str, User], day: Day) -> None:
    client, cycle = client_of(cast["admin"]), newest()
    few = queries(client, "/cycles"), queries(client, f"/cycles/{cycle.pk}")
    for place in (day.place.petrel, day.place.auk, day.place.tern):
        for _ in range(3):
            day.place.submit(place, NOW)
    more = day.place.cycle(NOW + MINUTE)
    make.make_user("another")
    assert queries(client, "/cycles") == few[0]
    assert queries(client, f"/cycles/{more.pk}") <= few[1] + 1  # of what it starts
    assert queries(client, f"/cycles/{cycle.pk}") <= few[1]


def test_the_job_and_the_plan_lead_to_the_cycle(cast: dict[str, User], day: Day) -> None:
    client = client_of(cast["admin"])
    cycle = at(T0 + HOUR)
    assert (
        f'href="/cycles/{cycle.pk}"' in client.get(f"/jobs/{day.jobs['storm'].pk}").content.decode()
    )
    assert f'href="/cycles/{newest().pk}"' in client.get("/plan").content.decode()
