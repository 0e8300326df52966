"""Services' traffic: what is taken, what is refused, what is read back."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from clusters.refusals import Refused
from forecasting import traffic
from forecasting.models import TrafficBucket
from tests import factories as make
from tests.factories import HOUR, T0

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
PETREL = "orlo/science/petrel"


@pytest.fixture
def job(tree):
    return make.make_service(tree[PETREL])


def rates(*values, start=T0 - DAY, step=HOUR):
    return [(start + step * n, Decimal(str(value))) for n, value in enumerate(values)]


def store(job, rows, now=T0, step=None):
    found = traffic.store(job=job, rows=rows, now=now, step_minutes=step)
    return found.new, found.changed, found.same, found.too_old


def test_a_list_is_kept_once_and_a_rate_that_is_sent_anew_replaces_the_one_before(job):
    assert store(job, rates(1, 2.5, 0)) == (3, 0, 0, 0)
    assert store(job, rates(1, 2.5, 0)) == (0, 0, 3, 0)
    assert store(job, rates(1, 2.25, 0, 4)) == (1, 1, 2, 0)
    assert [rate for _, rate in traffic.between(job.service, start=T0 - DAY, end=T0)] == [
        *(1, 2.25, 0, 4)
    ]
    assert TrafficBucket.objects.count() == 4


def test_what_is_missing_is_a_gap_and_no_zero(job):
    store(job, [*rates(1), *rates(3, 0, start=T0 - DAY + 2 * HOUR)])
    found = traffic.series(job.service, until=T0)
    assert found is not None
    assert found.rates == (1, None, 3, 0)
    assert (found.start, found.step_s, found.zone) == (T0 - DAY, 3600, "UTC")


def test_a_series_begins_on_a_whole_hour_so_that_timesteps_can_be_made_of_its_steps(job):
    store(job, rates(5, 6, start=T0 - HOUR + timedelta(minutes=40), step=HOUR / 6), step=10)
    found = traffic.series(job.service, until=T0)
    assert found is not None
    assert (found.start, found.rates) == (T0 - HOUR, (None, None, None, None, 5, 6))


def test_a_series_knows_only_what_had_ended(job):
    store(job, rates(1, 2, 3))
    found = traffic.series(job.service, until=T0 - DAY + 2 * HOUR)
    assert found is not None
    assert found.rates == (1, 2)
    assert traffic.series(job.service, until=T0 - DAY) is None


def test_the_first_traffic_says_what_a_step_is(job):
    store(job, rates(1, step=HOUR / 6), step=10)
    assert store(job, rates(1, 2, step=HOUR / 6)) == (1, 0, 1, 0)
    with pytest.raises(Refused, match="comes in steps of 10 min"):
        store(job, rates(1), step=60)
    other = make.make_service(job.budget)
    store(other, rates(1))
    other.service.refresh_from_db()
    assert other.service.traffic_step_minutes == 60


@pytest.mark.parametrize(
    ("rows", "step", "said"),
    [
        ([], None, "one rate at least"),
        (rates(-1), None, "0 to 1,000,000,000,000 a second"),
        (rates("NaN"), None, "not NaN"),
        (rates("Infinity"), None, "not Infinity"),
        (rates("sNaN"), None, "not sNaN"),
        ([(datetime(9999, 12, 31, 23, tzinfo=UTC), Decimal(1))], None, "has not ended yet"),
        (rates(2 * 10**12), None, "0 to 1,000,000,000,000 a second"),
        (rates(1, start=T0 - timedelta(minutes=90)), None, "begins no step of 60 min"),
        (rates(1, start=T0), None, "has not ended yet"),
        ([*rates(1), *rates(2)], None, "twice, with two rates"),
        (rates(1, start=datetime(2026, 9, 30)), None, "no time zone"),  # noqa: DTZ001
        (rates(1), 7, "5, 10, 15, 20, 30 or 60"),
    ],
)
def test_what_can_t_be_is_refused_in_a_sentence_and_nothing_is_written(job, rows, step, said):
    good = rates(1, start=T0 - 2 * DAY)
    with pytest.raises(Refused, match=said):
        store(job, [*good, *rows] if rows else rows, step=step)
    assert not TrafficBucket.objects.exists()
    job.service.refresh_from_db()
    assert job.service.traffic_step_minutes is None


def test_only_services_that_have_not_ended_have_traffic(job, tree):
    with pytest.raises(Refused, match="no real-time service"):
        store(make.make_job(tree[PETREL]), rates(1))
    job.state = "cancelled"
    with pytest.raises(Refused, match="has ended"):
        store(job, rates(1))


def test_what_is_too_old_is_left_out_and_later_let_go_of(job, settings):
    old = T0 - timedelta(days=settings.TRAFFIC_KEPT_DAYS)
    assert store(job, [*rates(1, start=old - HOUR), *rates(2, start=old), *rates(3)]) == (
        *(2, 0, 0, 1),
    )
    assert traffic.keep(now=T0) == 0
    assert traffic.keep(now=T0 + HOUR) == 1
    assert TrafficBucket.objects.count() == 1


def test_a_list_of_which_nothing_is_kept_does_not_say_what_a_step_is(job, settings):
    settings.TRAFFIC_KEPT_DAYS = 56
    assert store(job, rates(1, start=T0 - 90 * DAY)) == (0, 0, 0, 1)
    assert store(job, rates(1, 2, step=HOUR / 6), step=10) == (2, 0, 0, 0)


def test_a_refusal_quotes_no_more_than_the_first_digits(job):
    with pytest.raises(Refused) as refused:
        store(job, [(T0 - DAY, Decimal("9" * 100_000))])
    assert len(refused.value.sentence) < 200


def test_both_hours_that_a_clock_change_repeats_are_kept(job):
    """25 October 2026: 02:00 to 03:00 comes twice in Berlin, as two instants."""
    content = b"at,rate\n2026-10-25T02:00:00+02:00,7\n2026-10-25T02:00:00+01:00,9\n"
    assert store(job, traffic.read_csv(content), now=T0 + 30 * DAY) == (2, 0, 0, 0)
    first = datetime(2026, 10, 25, tzinfo=UTC)
    found = traffic.between(job.service, start=first, end=first + DAY)
    assert found == [(first, 7.0), (first + HOUR, 9.0)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "names the columns at and rate"),
        (b"when,rate\n", "names the columns at and rate"),
        (b"at,rate\n", "no rates"),
        (b"at,rate\n2026-09-30T00:00:00Z\n", "Line 2 lacks a cell"),
        (b"at,rate\n\n2026-09-30T00:00:00,1\n", "Line 3: give an instant with a zone"),
        (b"at,rate\n2026-09-30T00:00:00Z,much\n", "Line 2: give a rate a second, not 'much'"),
        (b"at,rate\n\xff", "no text in UTF-8"),
        (b"at,rate\n" + b"x" * traffic.MOST_FILE_BYTES, "at most 8,000,000 bytes"),
    ],
)
def test_a_file_is_refused_by_what_is_wrong_first(content, said):
    with pytest.raises(Refused, match=said):
        traffic.read_csv(content)


def test_a_file_may_have_a_mark_columns_in_any_order_and_others():
    content = "\ufeffRate, at ,host\r\n1.5,2026-09-30T00:00:00Z,a\r\n".encode()
    assert traffic.read_csv(content) == [(T0 - DAY, Decimal("1.5"))]


@pytest.fixture
def kept_for_ever(settings):
    """What asks the wall clock may be run in any year."""
    settings.TRAFFIC_KEPT_DAYS = 100_000


def test_the_command_keeps_a_file_or_says_in_a_line_why_not(job, tmp_path, kept_for_ever):
    file, out = tmp_path / "traffic.csv", StringIO()
    file.write_text("at,rate\n2020-09-30T00:00:00Z,1\n2020-09-30T01:00:00Z,2\n")
    call_command("import_traffic", str(job.pk), str(file), stdout=out)
    assert out.getvalue() == "2 new, 0 changed, 0 known before, 0 too old to be kept.\n"
    for words, said in (
        ((str(job.pk), str(tmp_path / "none.csv")), "No such file"),
        (("999999", str(file)), "There is no job 999999"),
        ((str(job.pk), str(file), "--step-minutes=7"), "Give step_minutes as"),
    ):
        with pytest.raises(CommandError, match=said):
            call_command("import_traffic", *words)


# --- Over the API --------------------------------------------------------------------------------


@pytest.fixture
def address(job, kept_for_ever):
    return f"/api/v1/jobs/{job.pk}/traffic/"


def send(api, address, rows, **more):
    listed = [{"at": at, "rate": rate} for at, rate in rows]
    return api.post(address, {"traffic": listed, **more})


LIST = [("2020-09-30T00:00:00Z", 1.25), ("2020-09-30T02:00:00Z", 0)]


def test_traffic_is_sent_and_read_over_the_api(cast, api_of, address):
    answer = send(api_of("member"), address, LIST)
    assert (answer.status_code, answer.json()) == (
        200,
        {"new": 2, "changed": 0, "same": 0, "too_old": 0},
    )
    span = "?from=2020-09-30T00:00:00Z&to=2020-09-30T02:00:00Z"
    found = api_of("viewer").get(address + span).json()
    assert found == {
        "step_minutes": 60,
        "traffic": [{"at": "2020-09-30T00:00:00Z", "rate": 1.25}],
    }
    file = api_of("viewer").get(address.rstrip("/") + ".csv/" + span)
    assert file.content == b"at,rate\r\n2020-09-30T00:00:00Z,1.25\r\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "traffic"),
        ({"traffic": [{"at": "2020-09-30T00:00:00Z", "rate": "1"}]}, "without quotes"),
        ({"traffic": [{"at": "2020-09-30T00:00:00Z", "rate": True}]}, "without quotes"),
        ({"traffic": [{"at": "yesterday", "rate": 1}]}, "an instant with a zone"),
        ({"traffic": [{"at": "2020-09-30T00:00:00Z", "rate": 1}], "step": 5}, "step_minutes"),
        ({"traffic": [{"at": "2020-09-30T00:30:00Z", "rate": 1}]}, "begins no step"),
        ({"traffic": [{"at": "2020-09-30T00:00:00Z", "rate": -1}]}, "Give a rate of 0"),
    ],
)
def test_the_api_says_what_is_wrong_with_a_list(cast, api_of, address, body, said):
    answer = api_of("member").post(address, body)
    assert answer.status_code == 400
    assert said in answer.json()["detail"]
    assert not TrafficBucket.objects.exists()


def test_a_list_is_bounded(cast, api_of, address, monkeypatch):
    monkeypatch.setattr(traffic, "MOST_ROWS", 1)
    answer = send(api_of("member"), address, LIST)
    assert answer.status_code == 400
    assert "Send at most 1 rates at a time, not 2." in answer.json()["detail"]


def test_an_interval_that_ends_before_it_begins_is_refused(cast, api_of, address):
    found = api_of("member").get(f"{address}?from=2020-09-30T00:00:00Z&to=2020-09-29T00:00:00Z")
    assert found.status_code == 400
