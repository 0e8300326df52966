"""What a job would take, cost and wait: the same over the API, by the command and on the form."""

import json
import random
import tempfile
from datetime import timedelta
from io import StringIO

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command

from allocator import cycle, gaps
from allocator.core.crosscheck import legal_block
from allocator.core.problem import Node, Problem
from allocator.pages import submit
from config import clock
from tests import factories as make
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import make_institute
from tests.layers import LINE
from tests.pages_world import client_of, text_of
from workloads import durations
from workloads.models import Job
from workloads.specs import JobSpec

pytestmark = pytest.mark.django_db
WORK = {"parameters": "7B", "tokens": "1B", "sequence_length": 4096, "global_batch": 64}
ADDRESS = "/api/v1/estimates/"


@pytest.fixture
def place(monkeypatch):
    made = make_institute(nodes=4)
    made.pool.gpu_type = "H100"
    made.pool.save()
    make.make_role(made.user, made.petrel)
    monkeypatch.setattr(clock, "now", lambda: T0)
    monkeypatch.setattr("workloads.management.commands.estimate.now", lambda: T0)
    return made


def body(place, **more):
    return {"budget": place.petrel.path, "kind": "training", "gpus": 8, "work": WORK} | more


def asked(place, **more):
    client = client_of(place.user)
    return client.post(ADDRESS, body(place, **more), content_type="application/json")


def rows():
    """How many rows there are of whatever is ours."""
    ours = [model for model in apps.get_models() if model.__module__.split(".")[0] in LINE]
    return {model._meta.label: model.objects.count() for model in ours}


def test_it_answers_what_the_quote_of_the_form_says_and_writes_nothing(place):
    before = rows()
    answer = asked(place)
    assert answer.status_code == 200
    found = answer.json()
    spec = JobSpec(name="estimate", kind="training", gpus=8, work=WORK)
    quote = submit.quote(budget=place.petrel, spec=spec, now=T0)
    assert (found["p10_s"], found["p50_s"], found["p90_s"]) == (
        quote.low_s,
        quote.likely_s,
        quote.high_s,
    )
    assert found["p50_gpu_seconds"] == 8 * quote.likely_s
    assert found["likely_mgpus"] == 8000 * quote.likely_s == quote.likely_mgpus
    assert (found["method"], found["variant"], found["fits"]) == ("physics", "full-sft", True)
    assert (found["verdict"], found["bound_by"]) == ("funded", place.petrel.path)
    assert found["hold_mgpus"] == 8000 * found["minimum_runtime_s"] == 8000 * 7200
    assert found["by_work"] is None
    assert rows() == before


def test_other_numbers_of_gpus_are_told_with_the_cheapest_and_the_least_in_time(place):
    options = asked(place).json()["options"]
    assert [one["gpus"] for one in options] == [2, 4, 8, 16, 32]  # of the 32 that there are
    costs = [one["likely_mgpus"] for one in options]
    assert [one["cheapest"] for one in options] == [cost == min(costs) for cost in costs]
    assert all(one["in_time"] is None for one in options)
    wanted = options[3]["p90_s"]
    assert options[4]["p90_s"] < wanted < options[2]["p90_s"]
    by = (T0 + timedelta(seconds=wanted)).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = asked(place, deadline=by).json()
    assert [one["in_time"] for one in found["options"]] == [False] * 3 + [True] * 2
    assert found["least_gpus_in_time"] == 16
    soon = (T0 + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert asked(place, deadline=soon).json()["least_gpus_in_time"] is None


def test_without_gpus_the_least_that_fit_are_taken(place):
    found = asked(place, gpus=None).json()
    assert found["gpus"] == found["options"][0]["gpus"] == 2
    assert found["p50_s"] == asked(place, gpus=2).json()["p50_s"]


def test_a_declared_duration_is_told_with_that_of_its_work_beside_it(place):
    found = asked(place, expected_duration_s=7200).json()
    assert (found["p50_s"], found["method"]) == (7200, "declared")
    assert found["by_work"]["p50_s"] == asked(place).json()["p50_s"]
    assert found["by_work"]["method"] == "physics"


@pytest.mark.parametrize(
    ("more", "field", "sentence"),
    [
        ({"work": WORK | {"tokens": 0}}, "work", "tokens must be between 1 and 1e+17, not 0."),
        ({"work": WORK | {"parameters": 10**30}}, "work", "not 1e+30."),
        ({"work": WORK | {"gpu": "H900"}}, "work", "There is no GPU type 'H900'"),
        ({"work": None, "gpus": None}, "gpus", "Say how many GPUs"),
        ({"work": WORK | {"parameters": "60T"}, "gpus": None}, "gpus", "doesn't fit on up to"),
        ({"gpus": 64}, "gpus", "The largest acceptable pool has 32 GPUs"),
        ({"deadline": "2026-09-30T23:59:59Z"}, "deadline", "still to come"),
        ({"pools": ["nowhere"]}, "pools", "There is no pool 'nowhere'"),
        ({"kind": "train"}, "kind", "Choose one of training"),
    ],
)
def test_what_can_not_be_gets_a_sentence_and_no_number(place, more, field, sentence):
    answer = asked(place, **more)
    assert answer.status_code == 400
    errors = answer.json()["errors"]
    assert [one["field"] for one in errors] == [field]
    assert sentence in errors[0]["message"]
    with pytest.raises(CommandError) as refused:
        command(place, **more)
    assert sentence in str(refused.value)
    assert refused.value.returncode == 2


def test_only_who_may_submit_there_may_ask(place):
    viewer = make.make_user()
    send = {"content_type": "application/json"}
    assert client_of(viewer).post(ADDRESS, body(place), **send).status_code == 400
    make.make_role(viewer, place.petrel, "viewer")
    assert client_of(viewer).post(ADDRESS, body(place), **send).status_code == 403


def test_numbers_of_jobs_that_one_may_not_see_are_not_confirmed(place):
    other = make.make_job(place.tree["orlo/vision/tern"])
    for number in (other.pk, other.pk + 1):
        answer = asked(place, dependencies=[number])
        assert answer.status_code == 400
        assert f"There is no job {number}, or none that you may see." in answer.content.decode()
    own = make.make_job(place.petrel)
    assert asked(place, dependencies=[own.pk]).status_code == 200


def test_a_service_is_quoted_by_its_profile(place):
    found = asked(place, kind="realtime", gpus=None, work=None, profile=[4] * 24, swap_cap=2).json()
    assert (found["verdict"], found["day_mgpus"]) == ("service", 4 * 86_400 * 1000)
    assert (found["start"], found["start_text"], found["options"]) == (None, "", [])


# --- When it would start --------------------------------------------------------------------------


def test_nothing_planned_tells_no_start(place):
    found = asked(place).json()
    assert found["start"] is None
    assert "Nothing is planned yet" in found["start_text"]


def test_a_start_is_the_first_gap_of_the_plan_long_enough(place):
    place.submit(place.petrel, gpus=32, expected_duration_s=3600, minimum_runtime_s=3600)
    cycle.run(at=T0, trigger="test")
    found = asked(place, gpus=8, work=None, expected_duration_s=1800).json()
    # All 32 GPUs are taken until the likely end of what runs.
    assert found["start"]["low"] == "2026-10-01T01:00:00Z"
    assert found["start"]["high"] == "2026-10-01T01:00:00Z"
    assert "free from Thu 1 Oct 01:00 UTC" in found["start_text"]


def test_who_waits_for_funds_is_told_so(place):
    budget = place.tree["orlo/vision/tern"]
    make.make_role(place.user, budget)
    cycle.run(at=T0, trigger="test")
    spec = {"name": "x", "kind": "training", "gpus": 8, "expected_duration_s": 7200}
    rich = submit.quote(budget=budget, spec=JobSpec(**spec), now=T0)
    assert (rich.verdict, rich.gap.low) == ("funded", T0)
    place.period.status = "closed"
    place.period.save()
    poor = submit.quote(budget=budget, spec=JobSpec(**spec), now=T0)
    assert (poor.verdict, poor.gap, poor.waits_for_funds) == ("no_period", None, True)
    runs = submit.quote(budget=budget, spec=JobSpec(**spec, when_unfunded="run"), now=T0)
    assert runs.gap is not None


NODES = [{"name": "a", "gpus": 4, "pool": "p"}, {"name": "b", "gpus": 4, "pool": "p"}]
NODES += [{"name": "c", "gpus": 8, "pool": "q"}]


def test_blocks_lie_in_a_node_or_on_whole_nodes_of_one_pool():
    def starts(gpus, pools):
        return gaps._starts(NODES, gpus, pools).tolist()

    assert starts(4, ["p"]) == [0, 4]
    assert starts(8, []) == [0, 8]
    assert starts(8, ["q"]) == [8]
    assert starts(2, ["p"]) == [0, 1, 2, 4, 5, 6]
    assert starts(16, []) == starts(64, []) == starts(4, ["none"]) == []


def test_gaps_are_looked_for_among_the_blocks_that_a_check_allows():
    dice = random.Random(7)
    for _ in range(60):
        sizes = [dice.choice((1, 2, 4, 8)) for _ in range(dice.randint(1, 7))]
        pools = sorted(dice.choice("pq") for _ in sizes)
        rows = list(zip(sizes, pools, strict=True))
        fleet = [{"name": f"n{k}", "gpus": g, "pool": p} for k, (g, p) in enumerate(rows)]
        problem = Problem("f", 1, 30, tuple(Node(**one) for one in fleet), ())
        of = [node["pool"] for node in fleet for _ in range(node["gpus"])]
        for gpus in (1, 2, 4, 8, 16, 32):
            for asked_for in ([], ["p"], ["q"]):
                inside = [k for k, pool in enumerate(of) if not asked_for or pool in asked_for]
                legal = [first for first in inside if legal_block(problem, first, gpus)]
                assert gaps._starts(fleet, gpus, asked_for).tolist() == legal


def test_what_is_drained_or_planned_is_no_gap_and_all_is_free_beyond_the_end():
    grid = [[None] * 4 for _ in range(16)]
    grid[0][1] = "job-1"
    problem = {"nodes": NODES, "horizon": 4, "drains": [{"node": "b", "from": 0, "to": 2}]}
    busy = gaps._busy(problem, grid)
    assert (int(busy.sum()), bool(busy[0, 1]), bool(busy[4:8, :2].all())) == (9, True, True)
    free = gaps._free_steps(busy, gaps._starts(NODES, 4, ["p"]), 4)
    assert free[0].tolist()[:2] == [1, 0]
    assert free[1].tolist()[:2] == [0, 0]
    assert (free[:, 2] > 10**8).all()
    assert gaps._free_steps(busy, gaps._starts(NODES, 64, []), 64).shape == (0, 4)


def test_a_plan_that_is_over_tells_no_gap(place):
    cycle.run(at=T0, trigger="test")
    ask = {"gpus": 8, "durations_s": (60, 60, 60), "pools": []}
    assert gaps.first_gap(now=T0 + 10 * HOUR, **ask).low == T0 + 10 * HOUR
    end = gaps.first_gap(now=T0, **ask).until
    assert gaps.first_gap(now=end - TIMESTEP, **ask).low == end - TIMESTEP
    assert gaps.first_gap(now=end, **ask) is None, "not: free before a past instant"
    assert gaps.first_gap(now=T0, **ask | {"gpus": 64}).low is None


# --- The command and the form ---------------------------------------------------------------------


def command(place, *options, **more):
    said = StringIO()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(body(place, **more), file)
        file.flush()
        call_command("estimate", file.name, *options, stdout=said)
    return said.getvalue()


def test_the_command_tells_the_same_as_the_api(place):
    api = asked(place).json()
    assert json.loads(command(place, "--json")) == api
    text = command(place, deadline="2026-10-01T00:00:01Z")
    lines = text.splitlines()
    assert lines[0].split() == ["GPUs", "8"]
    assert f"likely {durations.words(api['p50_s'])}" in lines[1]
    assert any(line.split()[:1] == ["32"] for line in lines)
    assert text.rstrip().endswith("No number of GPUs is in time.")
    assert not Job.objects.exists()


def test_the_command_says_no_number_is_too_late_where_it_knows_of_none(place):
    text = command(place, deadline="2026-10-09T00:00:00Z", work=None, expected_duration_s=60)
    assert text.rstrip().endswith(
        "Say what it computes (work) to learn which numbers of GPUs are in time."
    )


def test_the_command_refuses_files_that_hold_no_job(place, tmp_path):
    for name, text in (("a.json", "{"), ("b.json", "[]"), ("c.json", '{"kind": "training"}')):
        (tmp_path / name).write_text(text)
        with pytest.raises(CommandError) as refused:
            call_command("estimate", str(tmp_path / name))
        assert refused.value.returncode == 2
    with pytest.raises(CommandError, match="can't be read"):
        call_command("estimate", str(tmp_path / "none.json"))
    with pytest.raises(CommandError, match="There is no budget 'orlo/none'"):
        command(place, budget="orlo/none")


def test_a_pool_that_there_is_not_gets_a_sentence_though_no_gpus_are_given(place):
    sentence = "There is no pool 'h10': choose from"
    answer = asked(place, gpus=None, pools=["h10"])
    assert answer.status_code == 400
    assert sentence in str(answer.json())
    with pytest.raises(CommandError, match=sentence) as refused:
        command(place, gpus=None, pools=["h10"])
    assert refused.value.returncode == 2


def test_a_range_that_is_cut_says_so(place):
    said = "Nothing longer than 68 years is told: the range ends there."
    found = asked(place, gpus=1, work=WORK | {"tokens": 1e17}).json()
    assert found["p90_s"] == 2**31 - 1
    assert said in found["reasons"]
    assert said not in asked(place).json()["reasons"]


def test_the_form_s_quote_shows_options_reasons_and_the_start(place):
    form = {"budget": place.petrel.path, "name": "x", "kind": "training", "gpus": "8"}
    form |= {"urgency": "normal", "when_unfunded": "wait", "work_parameters": "7B"}
    form |= {"work_tokens": "1B", "work_sequence_length": "4096", "work": '{"global_batch": 64}'}
    text = text_of(client_of(place.user).post("/jobs/quote", form))
    assert "By what it computes." in text
    assert "On other numbers of GPUs" in text
    assert "4 cheapest" in text
    assert "Nothing is planned yet" in text
    large = text_of(client_of(place.user).post("/jobs/quote", form | {"work_parameters": "400B"}))
    assert "fit in the memory of 8 GPUs" in large


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(45, "45 s"), (750, "12 min"), (14_280, "3 h 58"), (187_200, "2 d 4 h"), (3600, "1 h 00")],
)
def test_lengths_of_time_in_plain_words(seconds, words):
    assert durations.words(seconds) == words
