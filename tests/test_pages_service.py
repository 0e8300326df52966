"""The part of a job's page that shows a service: its traffic, forecasts and figures."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from forecasting import calibrating, demand_scores, gpu_rates, looking_ahead, traffic
from forecasting import service_profiles as profiles
from forecasting.models import DemandForecast, ServiceProfile, TrafficBucket
from tests import factories as make
from tests.factories import HOUR, T0, TIMESTEP
from tests.pages_world import client_of, text_of
from tests.test_calibrating import DAY, NOW, daily, declare, send, take_none
from workloads.demand import demand_over
from workloads.models import Job

pytestmark = [pytest.mark.django_db, pytest.mark.once]
PETREL = "orlo/science/petrel"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr("workloads.views.now", lambda: NOW)


@pytest.fixture
def job(tree) -> Job:
    job = make.make_service(tree[PETREL], profile=(12,) * 24, swap_cap=2, at=T0)
    calibrating.configure(service=job.service, least_gpus=1)
    return job


@pytest.fixture
def followed(job) -> Job:
    """It follows its traffic, held what it was told, and one day is scored."""
    send(job)
    declare(job)
    calibrating.configure(service=job.service, calibrated=True)
    calibrating.recalibrate(service=profiles.live().get(), now=NOW)
    day = NOW.replace(hour=0, minute=0) - DAY
    for n in range(48):
        DemandForecast.objects.create(
            service=job.service, at=day + TIMESTEP * n, gpus=10, source="recent", version=1
        )
    node = make.make_nodes(make.make_pool("h100"), 1)[0]
    make.make_run(job, {node: 0xFF}, started_at=NOW - DAY, ended_at=NOW - HOUR)
    make.make_run(job, {node: 0x0F}, started_at=NOW - HOUR, state="running")
    demand_scores.score(service=job.service, day=day.date(), now=NOW)
    return job


def test_a_service_without_traffic_says_what_to_do(cast, job):
    text = text_of(client_of(cast["member"]).get(reverse("job", args=[job.pk])))
    assert "No traffic is known yet." in text
    assert "There is no traffic yet: send some" in text
    assert "It is planned by the profile that its owner declared." in text


def test_the_page_tells_version_figures_and_what_counts(cast, followed):
    text = text_of(client_of(cast["viewer"]).get(reverse("job", args=[followed.pk])))
    assert "version 1, in force since" in text
    (record,) = demand_scores.realtime_track_record(cast["viewer"], since=NOW - 7 * DAY, now=NOW)
    assert f"{float(record.time_covered * 100):.1f} %" in text
    assert f"+{float(record.over * 100):.1f} %" in text
    assert f"declared +{float(record.declared_over * 100):.1f} %" in text
    assert f"{record.short} GPU-timesteps" in text
    assert "10 declared" in text
    assert "1 – 12 GPUs" in text
    assert "Recalibrate now" not in text, "a viewer changes nothing"
    mine = text_of(client_of(cast["member"]).get(reverse("job", args=[followed.pk])))
    assert "Recalibrate now" in mine


def test_a_profile_that_is_not_in_force_says_why(cast, followed, monkeypatch):
    take_none(monkeypatch)
    calibrating.recalibrate(service=profiles.live().get(), now=NOW)
    text = text_of(client_of(cast["member"]).get(reverse("job", args=[followed.pk])))
    assert "version 1, in force" in text
    assert "Version 2 is not in force. On the last 3 days it would have done worse" in text
    version = profiles.newest(followed.service)
    assert version.reason in text
    page = client_of(cast["member"]).get(
        reverse("job", args=[followed.pk]), headers={"accept-language": "pt-BR"}
    )
    assert "Nos últimos 3 dias ela teria sido pior que o perfil em vigor" in text_of(page)


def test_traffic_that_stopped_is_told(cast, followed, monkeypatch):
    monkeypatch.setattr("workloads.views.now", lambda: NOW + 2 * DAY)
    text = text_of(client_of(cast["member"]).get(reverse("job", args=[followed.pk])))
    assert "until more comes, its week is followed" in text


def test_the_chart_has_what_came_what_was_told_and_what_was_held(cast, followed):
    data = client_of(cast["viewer"]).get(reverse("job-demand", args=[followed.pk])).json()
    assert len(data["traffic"]) == 7 * 24
    assert data["traffic"][-1][1] == pytest.approx(daily(NOW.replace(minute=0) - HOUR))
    assert data["per_gpu"] == 10
    assert [gpus for _, gpus in data["told"]][:48] == [10] * 48
    origin = NOW.replace(minute=0)
    service = profiles.live().get()
    wanted = demand_over(service, start=origin, step=TIMESTEP, timesteps=48)
    assert [gpus for _, gpus in data["ahead"]] == list(wanted)
    assert [gpus for _, gpus in data["held"]] == [0, 8, 4, 4]


@pytest.mark.parametrize(
    ("who", "status"), [("member", 302), ("viewer", 403), ("stranger", 404), ("nobody", 404)]
)
def test_those_change_a_service_who_may_submit_to_its_budget(cast, job, who, status):
    client = client_of(cast[who])
    asked = {"calibrated": "on", "rate_per_gpu": "12.5", "least_gpus": "2", "most_gpus": "9"}
    assert client.post(reverse("job-calibration", args=[job.pk]), asked).status_code == status
    assert client.post(reverse("job-recalibrate", args=[job.pk])).status_code == status
    file = SimpleUploadedFile("t.csv", b"at,rate\n2026-10-20T00:00:00Z,1\n")
    answer = client.post(reverse("job-traffic", args=[job.pk]), {"file": file})
    assert answer.status_code == status
    seen = 404 if status == 404 else 200
    for name in ("job-demand", "job-traffic-file"):
        assert client.get(reverse(name, args=[job.pk])).status_code == seen
    job.service.refresh_from_db()
    done = status == 302
    assert (job.service.calibrated, job.service.most_gpus) == ((True, 9) if done else (False, None))
    rate = gpu_rates.in_force(job.service)
    assert (rate and rate.rate_micro) == (12_500_000 if done else None)
    assert TrafficBucket.objects.exists() == done


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("job-calibration", {"least_gpus": "2", "most_gpus": "1"}, "Give least_gpus from 0 to 1"),
        ("job-calibration", {"least_gpus": "2", "most_gpus": "many"}, "No more GPUs than: Enter"),
        (
            "job-calibration",
            {"least_gpus": "1", "most_gpus": "9", "rate_per_gpu": "0"},
            "Give what one GPU does",
        ),
        ("job-recalibrate", {}, "There is no traffic yet"),
        ("job-traffic", {}, "Past traffic: This field is required."),
    ],
)
def test_what_can_t_be_is_said_on_the_page(cast, job, name, asked, said):
    client = client_of(cast["member"])
    answer = client.post(reverse(name, args=[job.pk]), asked, follow=True)
    assert said in text_of(answer)
    job.service.refresh_from_db()
    assert job.service.most_gpus is None
    assert not ServiceProfile.objects.exists()


def test_a_file_is_sent_and_read_back(cast, job):
    client = client_of(cast["member"])
    content = b"at,rate\r\n2026-10-20T00:00:00Z,1.5\r\n2026-10-20T00:10:00Z,0\r\n"
    file = SimpleUploadedFile("t.csv", content)
    address = reverse("job-traffic", args=[job.pk])
    answer = client.post(address, {"file": file, "step_minutes": "10"}, follow=True)
    assert "2 rates are new, 0 changed." in text_of(answer)
    assert client.get(reverse("job-traffic-file", args=[job.pk])).content == content
    wrong = SimpleUploadedFile("t.csv", b"at,rate\nnow,1\n")
    assert "Line 2: give an instant" in text_of(client.post(address, {"file": wrong}, follow=True))


def test_a_week_of_10_minute_traffic_takes_as_many_queries_as_a_day(
    cast, job, django_assert_max_num_queries
):
    client = client_of(cast["member"])
    rows = [(NOW.replace(minute=0) - timedelta(minutes=10) * n, Decimal(5)) for n in range(1, 1009)]
    traffic.store(job=job, rows=rows, now=NOW, step_minutes=10)
    looking_ahead.look_all(now=NOW)
    with django_assert_max_num_queries(15):
        client.get(reverse("job-demand", args=[job.pk]))
