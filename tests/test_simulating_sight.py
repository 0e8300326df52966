"""Simulations by who looks at them: what has moved since, and what a tree file makes of a tree."""

import json
from copy import deepcopy
from datetime import timedelta

import pytest
from django.http import Http404
from rest_framework.test import APIClient

from allocator.api.simulations import NONE_SEEN
from allocator.pages import simulator
from allocator.pages.names import Names
from allocator.pages.simulator_figures import figures
from allocator.pages.simulator_picture import Picture
from allocator.simulating import asking, results, running
from allocator.simulating.asking import Draft
from budgets import period_plans, structure
from budgets.access import standing
from budgets.change_sets import approve
from budgets.period_plans import NewShares, plan_shares
from budgets.refusals import Refused
from config import clock
from tests import factories as make
from tests.factories import T0
from tests.pages_day import NOW
from tests.pages_world import client_of

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)
TRACE = "job_id,submit_time_s,gpus,duration_s,group\n1,0,4,600,nlp\n"


@pytest.fixture
def day(played, db):
    return deepcopy(played)


@pytest.fixture
def root(day):
    return make.make_user("root", is_superuser=True)


@pytest.fixture
def manager(day):
    user = make.make_user("ines")
    make.make_role(user, day.place.tree["orlo/science"], "manager")
    return user


def done(by, **more):
    asking.ask(**({"by": by, "now": NOW, "window": (T0, NOW)} | more))
    row = running.run_next(clock=lambda: NOW)
    assert row.state == "done", row.error
    return row


def paths(row, user):
    seen = results.seen(row, standing(user))
    return {one["path"] for course in seen["courses"] for one in course["budgets"]}


def jobs_shown(row, user):
    bars = Picture(row, Names.load(user), course=0, day=0).bars()
    return {bar.label for bar in bars if bar.job is not None}


def tree_file(*nodes):
    rows = ({"name": n, "parent": up, "shares": 1, "usage": 0} for n, up in nodes)
    return Draft(file=json.dumps({"tree": list(rows)}))


# --- What has moved since --------------------------------------------------------------------


def test_what_is_renamed_is_seen_by_its_people_under_its_name_of_today(day, root):
    lead = make.make_user("lead")
    make.make_role(lead, day.place.petrel, "manager")
    row = done(lead)
    assert paths(row, lead) == {"orlo/science/petrel"}
    structure.rename_budget(
        budget=day.place.petrel, slug="fulmar", name="Fulmar", author=root, now=NOW + SECOND
    )
    assert paths(row, lead) == {"orlo/science/fulmar"}
    assert [one.name for one in figures(row, Names.load(lead)).budgets] == ["Fulmar"]
    assert jobs_shown(row, lead)
    assert all(label.startswith("fulmar/") for label in jobs_shown(row, lead))


def test_who_has_a_path_now_sees_nothing_of_what_had_it_then(day, root, manager):
    """Two budgets swap paths; the figures stay with those they are of."""
    lead = make.make_user("lead")
    make.make_role(lead, day.place.petrel, "manager")
    row = done(root)
    kept = {one["path"]: one for one in row.result["did"]}
    for budget, slug in (
        (day.place.petrel, "x"),
        (day.place.auk, "petrel"),
        (day.place.petrel, "auk"),
    ):
        budget.refresh_from_db()
        structure.rename_budget(budget=budget, slug=slug, author=root, now=NOW + SECOND)
    seen = results.seen(row, standing(lead))
    assert paths(row, lead) == {"orlo/science/auk"}
    (did,) = seen["did"]
    was = kept["orlo/science/petrel"]
    assert did["funded_gpu_seconds"] == was["funded_gpu_seconds"] != 0
    assert {"orlo/science", "orlo/science/petrel", "orlo/science/auk"} == paths(row, manager)


def test_who_lost_their_role_reads_no_later_name_of_what_they_asked_for(day, root):
    lead = make.make_user("lead")
    role = make.make_role(lead, day.place.petrel, "manager")
    row = done(lead)
    assert "Petrel" in client_of(lead).get(f"/simulator/{row.pk}").content.decode()
    role.delete()
    structure.rename_budget(
        budget=day.place.petrel, slug="petrel", name="Secret", author=root, now=NOW + SECOND
    )
    for address in ("/simulator", f"/simulator/{row.pk}"):
        page = client_of(lead).get(address)
        assert page.status_code == 200
        assert "Secret" not in page.content.decode()
    assert paths(row, lead) == set()


# --- Tree files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nodes",
    [
        [("all", None), ("orlo/science/spy", "all"), ("orlo/vision/tern", "orlo/science/spy")],
        [("orlo/vision/tern", None)],
        [("orlo/science", None), ("orlo/vision/tern", "orlo/science")],
    ],
)
def test_no_tree_file_plays_jobs_of_a_budget_that_one_does_not_see(manager, nodes):
    asking.ask(by=manager, now=NOW, window=(T0, NOW), draft=tree_file(*nodes))
    row = running.run_next(clock=lambda: NOW)
    assert (row.state, row.result) == ("failed", None)
    assert row.error == "No job waited or ran in that window: choose another."


def test_a_node_of_a_tree_file_is_seen_by_who_sees_all_below_it(root, manager, day):
    science = day.place.tree["orlo/science"]
    nodes = [("all", None), ("orlo/science", "all"), ("orlo/vision/tern", "orlo/science")]
    more = [("orlo/science/petrel", "all"), ("orlo/science/auk", "all")]
    row = done(root, budget=science, draft=tree_file(*nodes, *more))
    assert paths(row, root) == {name for name, _ in (*nodes, *more)}
    assert paths(row, manager) == {"orlo/science/petrel", "orlo/science/auk"}


def test_a_tree_file_may_name_children_before_their_parents(root):
    nodes = [("orlo/science/petrel", "p"), ("p", "all"), ("q", "all"), ("all", None)]
    row = done(root, draft=tree_file(*nodes))
    assert [one["path"] for one in row.result["did"]] == ["all", "p", "orlo/science/petrel", "q"]
    assert row.result["did"][0]["funded_gpu_seconds"] > 0


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([(str(n), str(n - 1) if n else None) for n in range(21)], "it has over 20 levels"),
        ([("all", None), *((str(n), "all") for n in range(2000))], "it has 2,001 nodes"),
        ([("a\0b", None)], "leave out the NUL"),
        ([("a", "b"), ("b", "a"), ("c", None)], "hangs on no root"),
        ([("a", "a")], "hangs on no root"),
        ([("a", "nowhere"), ("c", None)], "there is no node 'nowhere'"),
    ],
)
def test_tree_files_that_can_t_be_played_are_refused_in_a_sentence(root, nodes, said):
    with pytest.raises(Refused) as refused:
        asking.ask(by=root, now=NOW, trace=TRACE, nodes="2x8", draft=tree_file(*nodes))
    assert said in refused.value.sentence


def test_a_trace_of_too_many_groups_is_refused(root):
    head, _ = TRACE.splitlines()
    rows = [f"{n},0,1,60,g{n}" for n in range(2001)]
    text = "\n".join([head, *rows])
    with pytest.raises(Refused, match="The trace has 2,001 groups, and at most 2,000 go"):
        asking.ask(by=root, now=NOW, trace=text, nodes="2x8", equal=True)


# --- Plans of periods ----------------------------------------------------------------------------


def plan_of(day, *parents):
    """A period to come in which half of what each parent's first child has goes to the last."""
    later = {"starts_at": make.T1, "ends_at": make.T1 + 90 * 24 * make.HOUR}
    period = make.make_period("2027 Q1", status="draft", **later)
    changes = []
    for path in parents:
        parent = day.place.tree[path]
        children = [one for one in day.place.tree.values() if one.parent == parent]
        shares = dict.fromkeys(children, 10_000)
        changes.append(NewShares(parent=parent, shares=shares, base_version=1))
    plan_shares(period=period, changes=changes, reason="why", author=day.place.user, now=NOW)
    return period


def may_simulate(user, period):
    """What the page offers, the API and the service say to it, which is one answer."""
    offered = period in simulator.listing(user, now=NOW).periods
    api = APIClient()
    api.force_authenticate(user)
    body = {"history": {"days": 1}, "period": period.pk}
    answer = api.post("/api/v1/simulations/", body, format="json")
    try:
        asked = asking.ask(by=user, now=NOW, window=(T0, NOW), draft=Draft(period=period))
    except Http404:
        asked = None
    assert (answer.status_code == 201) == offered == (asked is not None)
    if not offered:
        assert [row["field"] for row in answer.json()["errors"]] == ["period"]
        assert str(NONE_SEEN) in answer.json()["detail"]
    return offered


def test_a_plan_that_isn_t_decided_is_simulated_by_who_sees_all_of_it(
    day, root, manager, monkeypatch
):
    monkeypatch.setattr(clock, "now", lambda: NOW)
    assert may_simulate(manager, plan_of(day, "orlo/science"))


def test_whoever_doesn_t_see_a_part_of_it_that_is_open_may_not(day, root, manager, monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: NOW)
    period = plan_of(day, "orlo/science", "orlo/vision")
    vision = make.make_user("lena")
    make.make_role(vision, day.place.tree["orlo/vision"], "manager")
    assert not may_simulate(manager, period)
    assert not may_simulate(vision, period)
    assert may_simulate(root, period)
    for one in period_plans.sets_of(period).filter(parent__path="orlo/vision"):
        approve(change_set=one, by=root, now=NOW)
    assert may_simulate(manager, period), "what is decided is no secret"
