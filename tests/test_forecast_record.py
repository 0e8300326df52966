"""The track record over page and API: what one may see of it; and the alarm when it gets worse."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.template.loader import render_to_string

from allocator import drifting, tasks
from allocator.models import Alarm
from allocator.pages import forecasts, overview_alarms
from allocator.pages.names import Names
from budgets.models import Notice
from config import clock
from forecasting import retraining
from forecasting.core import comparing
from forecasting.core.correction import WAYS
from forecasting.core.kinds import KINDS
from forecasting.models import Forecast
from forecasting.track_record import track_record
from tests import factories as make
from tests.factories import HOUR, T0
from tests.forecast_world import history, ran, work_of
from tests.pages_world import client_of, queries, text_of

pytestmark = pytest.mark.django_db
NOW = T0 + timedelta(days=20)
DAY = timedelta(days=1)
ALARMS = "allocator/_overview_alarms.html"
PETREL, TERN = "orlo/science/petrel", "orlo/vision/tern"


@pytest.fixture
def pool():
    return make.make_pool("h100", gpu_type="H100")


@pytest.fixture(autouse=True)
def at(monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: NOW)
    monkeypatch.setattr("forecasting.views.now", lambda: NOW)


def record(user, days=30, now=NOW):
    return track_record(user, since=now - timedelta(days=days), now=now)


def scored(budget, number, took=3600, *, at=T0 + HOUR, p=(1800, 3600, 5400), kind="training"):
    """Forecasts that came true, without the jobs' runs; each a second after the other."""
    for n in range(number):
        ended = at + timedelta(seconds=n)
        job = make.make_job(budget, kind=kind, state="completed", ended_at=ended)
        low, likely, high = p
        made = ended - timedelta(seconds=took)
        row = {"method": "history", "version": "v", "p10_s": low, "p50_s": likely, "p90_s": high}
        Forecast.objects.create(job=job, made_at=made, actual_s=took, scored_at=ended, **row)


# --- The record -----------------------------------------------------------------------------------


def test_it_is_parted_by_kind_budget_variant_and_method(cast, tree, pool):
    history(tree[PETREL], pool, 6)
    ran(tree[TERN], pool, None, 3600, ended_at=T0 + HOUR)
    ran(tree[PETREL], pool, work_of(1), 3600, ended_at=T0 + HOUR, expected_duration_s=7200)
    found = record(cast["admin"])
    (kind,) = found.kinds
    assert (kind.kind, kind.tally.number, found.number) == ("training", 8, 8)
    assert {(one.budget, one.tally.number) for one in found.budgets} == {(PETREL, 7), (TERN, 1)}
    assert [(one.variant, one.tally.number) for one in found.variants] == [("full-sft", 7)]
    methods = {(one.method, one.planned): one.tally.number for one in found.methods}
    assert methods == {
        ("physics", True): 6,
        ("physics", False): 1,
        ("declared", True): 1,
        ("default", True): 1,
    }


def test_one_sees_the_record_of_the_jobs_that_one_sees(cast, tree, pool):
    scored(tree[PETREL], 2)
    scored(tree[TERN], 3)
    numbers = {name: record(user).number for name, user in cast.items()}
    assert numbers["root"] == numbers["admin"] == 5
    assert numbers["member"] == numbers["viewer"] == numbers["manager"] == 2
    assert (numbers["stranger"], numbers["nobody"]) == (3, 0)


def test_only_what_completed_in_the_days_counts(cast, tree, pool):
    petrel = tree[PETREL]
    ended = T0 + HOUR
    ran(petrel, pool, None, 3600, ended_at=ended)
    for state in ("failed", "cancelled", "timed_out"):
        ran(petrel, pool, None, 3600, ended_at=ended, state=state)
    ran(petrel, pool, None, 3600, ended_at=ended, session=True)
    make.make_service(petrel)
    assert record(cast["admin"]).number == 1
    assert record(cast["admin"], now=ended).number == 0  # half-open
    assert record(cast["admin"], days=90, now=ended + 90 * DAY).number == 1
    assert record(cast["admin"], days=30, now=ended + 31 * DAY).number == 0


def test_a_record_of_exactly_as_many_as_are_looked_at_is_whole(cast, tree, pool, monkeypatch):
    scored(tree[PETREL], 3)
    for most, found in ((3, (False, 3)), (2, (True, 2))):
        monkeypatch.setattr("forecasting.track_record.MOST", most)
        seen = record(cast["root"])
        assert (seen.is_cut, seen.number) == found


def test_plain_forecasts_are_those_that_were_known_then(cast, tree):
    petrel = tree[PETREL]
    scored(petrel, 1, took=1000, at=T0 + HOUR)
    scored(petrel, 1, took=3000, at=T0 + 2 * HOUR)  # made when the first had ended
    (kind,) = record(cast["admin"]).kinds
    assert kind.tally.mean.number == 1
    assert kind.tally.mean.theirs_ds == 2000 * (1 + 5 + 9)
    assert kind.tally.declared is None


def test_the_api_answers_the_same_and_refuses_other_days(cast, tree, pool):
    history(tree[PETREL], pool, 10)
    retraining.retrain(kind="training", now=NOW)
    client = client_of(cast["member"])
    found = client.get("/api/v1/forecasts/track-record/?days=90").json()
    assert (found["number"], found["since"]) == (10, "2026-07-23T00:00:00Z")
    (kind,) = found["kinds"]
    expected = record(cast["member"], days=90).kinds[0].tally
    assert kind["median_error_per_mille"] == expected.median_error
    assert kind["below_per_mille"] == list(expected.below)
    (learned,) = [one for one in found["estimators"] if one["kind"] == "training"]
    assert (learned["state"], learned["rows"]) == ("active", 10)
    assert learned["why"].startswith("The first")
    assert client.get("/api/v1/forecasts/track-record/?days=7").status_code == 400


def test_the_page_opens_with_its_answer(cast, tree, pool):
    history(tree[PETREL], pool, 10)
    retraining.retrain(kind="training", now=NOW)
    text = text_of(client_of(cast["member"]).get("/forecasts"))
    assert "Of 10 forecasts of training jobs that came true in the last 30 days" in text
    assert "In force: physics-1+correction-1/1" in text
    assert "Petrel" in text
    page = forecasts.page(cast["member"], now=NOW, days=30)
    assert page.calibration["said"] == [10, 50, 90]
    assert page.calibration["series"][0]["true_per_mille"] == page.kinds[0].tally.below


def test_what_was_learned_and_not_switched_to_is_not_nothing(cast, tree, pool, monkeypatch):
    history(tree[PETREL], pool, 20)
    no = comparing.Verdict(False, "Not better than physics.")
    monkeypatch.setattr(comparing, "judge", lambda *_: no)
    retraining.retrain(kind="training", now=NOW)
    text = text_of(client_of(cast["root"]).get("/forecasts"))
    assert "Not better than physics." in text
    assert text.count("Nothing is learned yet") == len(KINDS) - 1


def test_ways_of_holding_out_are_told_in_words(cast, tree, pool):
    history(tree[PETREL], pool, 40)
    retraining.retrain(kind="training", now=NOW)
    text = text_of(client_of(cast["root"]).get("/forecasts"))
    assert "Held out by chance:" in text
    assert "by known" not in text
    assert set(forecasts.WAYS) == set(WAYS)


def test_of_many_projects_those_with_few_forecasts_are_a_link_away(cast, tree, monkeypatch):
    monkeypatch.setattr(forecasts, "PROJECTS", 1)
    scored(tree[PETREL], 2)
    scored(tree[TERN], 3)
    few = client_of(cast["root"]).get("/forecasts")
    assert "One more row has fewer forecasts." in text_of(few)
    assert "whole=1" in few.content.decode()
    assert [line.path for line in forecasts.page(cast["root"], now=NOW, days=30).budgets] == [TERN]
    every = client_of(cast["root"]).get("/forecasts?whole=1")
    assert "Petrel" in text_of(every)
    assert "more row" not in text_of(every)


def test_without_any_it_says_what_to_do(cast):
    text = text_of(client_of(cast["nobody"]).get("/forecasts?days=90"))
    assert "No job that you may see has shown in the last 90 days" in text
    assert "No forecast has come true yet" in text


def test_it_takes_no_more_queries_with_more_jobs(cast, tree, pool):
    client = client_of(cast["admin"])
    scored(tree[PETREL], 2)
    few = queries(client, "/forecasts")
    scored(tree[TERN], 30)
    scored(tree[PETREL], 30, kind="quantization")
    assert queries(client, "/forecasts") <= few


# --- Drift ----------------------------------------------------------------------------------------


def look(now=NOW):
    return drifting.look(now=now)


def good(budget, number, at):
    """Of ten such forecasts nine cover the truth, and half are a fifth off."""
    scored(budget, number - number // 10, took=3000, at=at)
    scored(budget, number // 10, took=9000, at=at + timedelta(minutes=10), p=(3600, 7200, 7300))


def test_the_alarm_begins_is_told_once_does_not_flutter_and_ends_by_itself(cast, tree):
    petrel = tree[PETREL]
    good(petrel, 60, T0 + HOUR)
    assert look() == 0
    scored(petrel, 15, took=9000, at=T0 + 2 * HOUR)  # 15 or more of the newest 50 beyond p90
    assert look() == 1
    alarm = Alarm.objects.get()
    assert (alarm.kind, alarm.cleared_at) == ("drift:training", None)
    assert "ended by their 90th percentile; it should be 90 %." in alarm.text
    told = set(Notice.objects.values_list("user__username", flat=True))
    assert {"admin"} <= told <= {"admin", "root"}  # who sees everything
    assert look(NOW + HOUR) == 1
    assert Notice.objects.count() == len(told)
    Forecast.objects.all().delete()
    scored(petrel, 41, took=3000, at=T0 + 3 * HOUR)
    scored(petrel, 9, took=9000, at=T0 + 4 * HOUR)  # 82 %: no new alarm, and no end of the old
    assert look(NOW + 2 * HOUR) == 1
    good(petrel, 50, T0 + 5 * HOUR)
    assert look(NOW + 3 * HOUR) == 0
    assert Alarm.objects.get().cleared_at == NOW + 3 * HOUR
    Forecast.objects.all().delete()
    scored(petrel, 41, took=3000, at=T0 + 3 * HOUR)
    scored(petrel, 9, took=9000, at=T0 + 4 * HOUR)
    assert look(NOW + 4 * HOUR) == 0  # 82 % again


def test_kinds_drift_apart_and_too_few_say_nothing(cast, tree):
    scored(tree[PETREL], 49, took=9000)
    scored(tree[PETREL], 50, took=9000, kind="quantization")
    assert look() == 1
    assert Alarm.objects.get().kind == "drift:quantization"


def test_what_is_made_beside_is_not_what_drifts(cast, tree):
    scored(tree[PETREL], 50, took=9000)
    Forecast.objects.update(planned=False)
    assert look() == 0


def test_overview_and_page_show_it_to_who_sees_everything(cast, tree):
    scored(tree[PETREL], 50, took=9000)
    look()
    said = "0.0 % of the last 50 jobs ended by their 90th percentile"
    assert said in text_of(client_of(cast["admin"]).get("/forecasts"))
    assert said not in text_of(client_of(cast["member"]).get("/forecasts"))
    for name, text in (("admin", said), ("member", "")):
        (notice,) = overview_alarms.notices(Names.load(cast[name]), [], now=NOW)
        assert (notice.kind, notice.is_act) == ("drift", True)
        assert text in notice.text
        assert bool(notice.text) == bool(text)
    context = {"page": {"notices": [notice], "now": NOW}, "now": NOW}
    assert "Forecasts have lost their way" in render_to_string(ALARMS, context)


def test_it_is_read_in_the_readers_language(cast, tree):
    scored(tree[PETREL], 60, took=3600, at=T0 + HOUR)
    scored(tree[PETREL], 50, took=9000, at=T0 + 3 * HOUR)
    look()
    assert Alarm.objects.get().text == (
        "Forecasts of training jobs: 0.0 % of the last 50 jobs ended by their 90th percentile; it "
        "should be 90 %. Half of the last 50 forecasts were more than 60.0 % off; of the 60 before "
        "0.0 %."
    )
    client = client_of(cast["admin"])
    page = text_of(client.get("/forecasts", headers={"accept-language": "pt-BR"}))
    assert "Previsões de jobs de treinamento: 0,0 % dos últimos 50 jobs terminaram até" in page
    assert "errou por mais de 60,0 %; das 60 anteriores, por mais de 0,0 %." in page


def test_beat_looks_for_it(tree, monkeypatch):
    scheduled = settings.CELERY_BEAT_SCHEDULE["keep_forecasts"]
    assert scheduled["task"] == tasks.keep_forecasts.name
    monkeypatch.setattr(tasks, "now", lambda: NOW)
    scored(tree[PETREL], 50, took=9000)
    assert tasks.keep_forecasts() == 1
