"""Recalibrated services: from traffic to the profile that plans read."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from zoneinfo import ZoneInfo

import pytest
from django.core.management import CommandError, call_command

from allocator.pages import service as service_pages
from clusters.refusals import Refused
from forecasting import calibrating, gpu_rates, looking_ahead, traffic
from forecasting import service_profiles as profiles
from forecasting.core import calibrating as core
from forecasting.core.demand import ahead, learn
from forecasting.core.profile import DemandError, Traffic
from forecasting.core.ramps import violations
from forecasting.models import DemandForecast, RatePerGpu, ServiceProfile
from tests import factories as make
from tests.factories import HOUR, T0, TIMESTEP
from workloads.demand import demand_at, demand_over
from workloads.models import Job

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
PETREL = "orlo/science/petrel"
NOW = T0 + 20 * DAY + 10 * HOUR + timedelta(minutes=5)


def daily(at: datetime, zone: str = "UTC") -> float:
    """Traffic that peaks in the afternoon: 10 to 90 a second, and a little unrest."""
    local = at.astimezone(ZoneInfo(zone))
    hour = local.hour + local.minute / 60
    restless = 1 + 0.03 * math.sin(at.timestamp() / 5000)
    return (50 - 40 * math.cos((hour - 3) / 24 * 2 * math.pi)) * restless


def send(job: Job, days: int = 20, until: datetime = NOW, of=daily, gaps=(), step=HOUR) -> None:
    until = until.replace(minute=0)
    rows = [(until - step * (n + 1), n) for n in range(int(days * DAY / step))]
    listed = [(at, Decimal(f"{of(at):.6f}")) for at, _ in rows if at not in gaps]
    traffic.store(job=job, rows=listed, now=until, step_minutes=int(step.total_seconds() // 60))


@pytest.fixture
def job(tree) -> Job:
    """A service that reserves its peak of 12 GPUs; one GPU does 10 a second."""
    job = make.make_service(tree[PETREL], profile=(12,) * 24, swap_cap=2)
    job.service.least_gpus = 1
    job.service.save()
    return job


def declare(job: Job, rate: object = 10) -> RatePerGpu:
    given = Decimal(str(rate))
    found = gpu_rates.declare(service=job.service, rate=given, by=make.someone(), now=T0)
    assert found is not None
    return found


@pytest.fixture
def calibrated(job) -> Job:
    send(job)
    declare(job)
    calibrating.configure(service=job.service, calibrated=True)
    job.service.refresh_from_db()
    calibrating.recalibrate(service=job.service, now=NOW)
    job.service.refresh_from_db()
    return job


def test_a_recalibrated_service_is_asked_by_its_traffic_and_not_by_its_profile(calibrated):
    version = ServiceProfile.objects.get()
    assert (version.version, version.in_force_at, version.reason) == (1, NOW, "")
    assert version.tried["broken"] == 0
    assert version.tried["loss"] < version.present["loss"]
    assert version.tried["demand_covered"] > 0.99
    assert version.tried["over"] < 0.25 < version.tried["peak_over"]
    for at in (NOW + 5 * HOUR, NOW + 17 * HOUR):
        need = math.ceil(daily(at) / 10)
        assert need <= demand_at(calibrated.service, at) <= need + 3 < 12 + need


def test_the_declared_profile_counts_until_there_is_enough(job):
    calibrating.configure(service=job.service, calibrated=True)
    declare(job)
    with pytest.raises(Refused, match="no traffic yet"):
        calibrating.recalibrate(service=job.service, now=NOW)
    send(job, days=13)
    with pytest.raises(Refused, match="takes 14 days at least"):
        calibrating.recalibrate(service=job.service, now=NOW)
    job.service.refresh_from_db()
    assert demand_at(job.service, NOW) == 12
    assert not ServiceProfile.objects.exists()


def test_half_of_the_steps_must_be_known(job):
    declare(job)
    last = NOW.replace(minute=0)
    send(job, gaps={last - HOUR * (n + 2) for n in range(480) if n % 8 < 5})
    assert "are gaps" in calibrating.problem(job.service, now=NOW)


def test_a_service_that_did_not_opt_in_keeps_its_profile_whatever_is_known(job):
    send(job)
    declare(job)
    calibrating.recalibrate(service=job.service, now=NOW)
    job.service.refresh_from_db()
    assert job.service.forecast is not None
    assert demand_at(job.service, NOW) == 12
    assert calibrating.recalibrate_all(now=NOW + DAY) == 0


def test_opting_out_and_in_again(calibrated):
    service = calibrating.configure(service=calibrated.service, calibrated=False)
    assert demand_at(service, NOW) == 12
    service = calibrating.configure(service=service, calibrated=True)
    assert demand_at(service, NOW + 20 * HOUR) < 12


def test_what_is_asked_keeps_the_swap_cap_from_timestep_to_timestep(job):
    """Traffic that jumps by 8 GPUs at 09:00 is met by a ramp that begins two hours before."""

    def jump(at: datetime) -> float:
        return 95.0 if 9 <= at.hour < 18 else 14.0

    send(job, of=jump)
    declare(job)
    calibrating.configure(service=job.service, calibrated=True)
    job.service.swap_cap = 1
    job.service.save(update_fields=["swap_cap"])
    calibrating.recalibrate(service=job.service, now=NOW)
    job.service.refresh_from_db()
    asked = demand_over(job.service, start=NOW.replace(minute=0), step=TIMESTEP, timesteps=48 * 9)
    assert violations(asked, 1) == 0
    nine = NOW.replace(minute=0) + 23 * HOUR
    assert demand_at(job.service, nine) >= 10
    assert 9 >= demand_at(job.service, nine - TIMESTEP) >= 9
    week = ServiceProfile.objects.get().week
    assert len(week) == 7 * 48
    assert violations([*week, week[0]], 1) == 0


def test_the_recent_level_is_followed_for_a_day_and_the_week_after_that(calibrated):
    """Twice the traffic since yesterday: the next day is twice, the day after it as ever."""
    later = NOW + DAY
    send(calibrated, days=1, until=later, of=lambda at: 2 * daily(at))
    calibrating.configure(service=calibrated.service, most_gpus=40)
    before = demand_at(calibrated.service, later + 5 * HOUR)
    told = looking_ahead.look(service=profiles.live().get(), now=later)
    assert told is not None
    assert told.source == "recent"
    calibrated.service.refresh_from_db()
    assert demand_at(calibrated.service, later + 5 * HOUR) > 1.5 * before
    assert demand_at(calibrated.service, later + 53 * HOUR) == before
    assert calibrated.service.forecast["version"] == 1


def test_traffic_older_than_a_day_leaves_the_week(calibrated):
    later = NOW + 2 * DAY
    told = looking_ahead.look(service=calibrated.service, now=later)
    assert told is not None
    assert told.source == "week"
    assert len(told.gpus) == 3 * 48


def test_the_present_timestep_keeps_what_it_was_told_and_the_next_is_reached_from_it(calibrated):
    this = demand_over(calibrated.service, start=NOW.replace(minute=0), step=TIMESTEP, timesteps=2)
    send(calibrated, days=1, until=NOW + TIMESTEP / 2, of=lambda at: 30 * daily(at))
    told = looking_ahead.look(service=calibrated.service, now=NOW + TIMESTEP / 2)
    assert told is not None
    assert told.gpus[0] == this[0]
    assert told.gpus[1] == this[0] + 2


def test_a_running_service_is_led_from_what_it_holds(job, tree):
    nodes = make.make_nodes(make.make_pool("h100"), 2)
    make.make_run(job, {nodes[0]: 0xFF, nodes[1]: 0x0F})
    send(job)
    declare(job)
    calibrating.configure(service=job.service, calibrated=True)
    calibrating.recalibrate(service=profiles.live().get(), now=NOW)
    job.service.refresh_from_db()
    asked = demand_over(job.service, start=NOW.replace(minute=0), step=TIMESTEP, timesteps=3)
    assert asked == (12, 10, 8)


def take_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no profile be as good as the one in force."""
    monkeypatch.setattr(core, "NO_WORSE", 0)
    monkeypatch.setattr(core, "SLACK", -1)


def wild(at: datetime) -> float:
    """Calm until the last three days, then between one GPU and eleven from hour to hour."""
    calm = at < NOW.replace(minute=0) - 3 * DAY
    return 10 if calm or at.hour % 3 else 110


def test_a_profile_that_would_have_done_worse_is_kept_with_its_reason_but_not_in_force(job):
    send(job, of=wild)
    declare(job)
    calibrating.configure(service=job.service, calibrated=True)
    made = calibrating.recalibrate(service=profiles.live().get(), now=NOW)
    assert made.in_force_at is None
    assert made.reason.startswith("On the last 3 days it would have done worse")
    assert made.tried["loss"] > made.present["loss"]
    job.service.refresh_from_db()
    assert demand_at(job.service, NOW) == 12, "the declared profile counts"


def test_a_profile_may_be_a_little_worse_since_the_one_in_force_has_seen_the_days():
    def of(loss: float, broken: int = 0) -> core.Tried:
        return core.Tried(48, 1.0, 1.0, 0.1, broken, loss, 1.0)

    assert core.is_sound(of(2.15), of(2.0))
    assert not core.is_sound(of(2.16), of(2.0))
    assert core.is_sound(of(9.0), None)
    assert not core.is_sound(of(0.0, 2), of(2.0))
    assert not core.is_sound(of(0.0, 2), None)
    words = profiles.why_not(of(0.0, 2).to_dict(), of(2.0).to_dict())
    assert words == "It would have changed by more than the swap cap 2 times."


def test_the_version_in_force_stays_until_a_sound_one_replaces_it(calibrated, monkeypatch):
    take_none(monkeypatch)
    worse = calibrating.recalibrate(service=profiles.live().get(), now=NOW + HOUR)
    assert (worse.version, worse.in_force_at) == (2, None)
    assert profiles.in_force(calibrated.service).version == 1
    monkeypatch.undo()
    sound = calibrating.recalibrate(service=profiles.live().get(), now=NOW + 2 * HOUR)
    assert (sound.version, sound.in_force_at) == (3, NOW + 2 * HOUR)
    first = ServiceProfile.objects.get(version=1)
    assert (first.in_force_at, first.replaced_at) == (NOW, NOW + 2 * HOUR)
    calibrated.service.refresh_from_db()
    assert calibrated.service.forecast["version"] == 3


def test_by_night_nothing_is_made_where_nothing_has_come(calibrated):
    assert calibrating.recalibrate_all(now=NOW + DAY) == 0
    send(calibrated, days=1, until=NOW + DAY)
    assert calibrating.recalibrate_all(now=NOW + DAY) == 1
    assert calibrating.recalibrate_all(now=NOW + DAY + HOUR / 2) == 0
    assert ServiceProfile.objects.count() == 2


def test_one_service_that_can_t_be_keeps_no_other_waiting(calibrated, caplog):
    other = make.make_service(calibrated.budget)
    traffic.store(job=other, rows=[(T0, Decimal(1))], now=NOW)
    calibrating.configure(service=other.service, calibrated=True)
    broken = make.make_service(calibrated.budget)
    send(broken)
    declare(broken)
    calibrating.configure(service=broken.service, calibrated=True)
    type(broken.service).objects.filter(job=broken).update(profile=[])
    send(calibrated, days=1, until=NOW + DAY)
    assert calibrating.recalibrate_all(now=NOW + DAY) == 1
    assert f"The service of job {broken.pk} can't be recalibrated." in caplog.text


def test_another_timestep_leaves_what_was_told_readable(calibrated, settings):
    before = demand_at(calibrated.service, NOW + 5 * HOUR)
    settings.TIMESTEP_MINUTES = 60
    assert demand_at(calibrated.service, NOW + 5 * HOUR) == before
    told = looking_ahead.look(service=calibrated.service, now=NOW)
    assert told is not None
    assert len(told.gpus) == 72
    calibrated.service.refresh_from_db()
    assert calibrated.service.forecast["ahead"]["step_minutes"] == 60
    assert abs(demand_at(calibrated.service, NOW + 5 * HOUR) - before) <= 2


def test_of_old_versions_the_figures_stay(calibrated, settings):
    settings.TRAFFIC_KEPT_DAYS = 28
    send(calibrated, days=1, until=NOW + DAY)
    calibrating.recalibrate(service=profiles.live().get(), now=NOW + DAY)
    traffic.keep(now=NOW + 40 * DAY)
    first, second = ServiceProfile.objects.all()
    assert (first.fitted, first.week) == ({}, [])
    assert first.tried["timesteps"] > 0
    assert len(second.week) == 336, "it is in force"


def test_with_other_terms_the_figures_before_say_nothing_and_the_new_profile_counts(
    calibrated, monkeypatch
):
    take_none(monkeypatch)
    declare(calibrated, 5)
    made = calibrating.recalibrate(service=profiles.live().get(), now=NOW + HOUR)
    assert made.in_force_at == NOW + HOUR
    assert made.rate.rate_micro == 5_000_000


def test_forecasts_move_between_the_least_and_the_most_that_are_allowed(calibrated):
    calibrating.change(
        service=calibrated.service, by=make.someone(), now=NOW, least_gpus=4, most_gpus=6
    )
    calibrated.service.refresh_from_db()
    asked = demand_over(calibrated.service, start=NOW + 3 * HOUR, step=TIMESTEP, timesteps=400)
    assert (min(asked), max(asked)) == (4, 6)
    with pytest.raises(Refused, match="least_gpus from 0 to 3"):
        calibrating.configure(service=calibrated.service, most_gpus=3)


def test_what_was_told_last_before_a_timestep_is_what_is_kept_of_it(calibrated):
    next_one = NOW.replace(minute=30)
    told = DemandForecast.objects.get(at=next_one)
    assert (told.source, told.version) == ("recent", 1)
    assert told.gpus == demand_at(calibrated.service, next_one)
    DemandForecast.objects.update(gpus=99)
    looking_ahead.look(service=calibrated.service, now=NOW + timedelta(minutes=10))
    assert DemandForecast.objects.get(at=next_one).gpus != 99, "told anew"
    DemandForecast.objects.update(gpus=99)
    looking_ahead.look(service=calibrated.service, now=NOW + TIMESTEP)
    assert DemandForecast.objects.get(at=next_one).gpus == 99, "it had begun"


def test_what_a_declared_profile_says_is_kept_too(job):
    send(job, days=1)
    assert looking_ahead.look_all(now=NOW) == 1
    told = DemandForecast.objects.get(at=NOW.replace(minute=30))
    assert (told.gpus, told.source, told.version) == (12, "declared", None)


def test_traffic_whose_steps_fill_no_timestep_makes_no_profile(job):
    declare(job)
    send(job, days=15, step=HOUR / 3)
    assert "steps of 20 min can't be read by timesteps of 30 min" in calibrating.problem(
        job.service, now=NOW
    )
    calibrating.change(service=job.service, by=make.someone(), now=NOW, calibrated=True)
    job.service.refresh_from_db()
    assert (job.service.calibrated, job.service.forecast) == (True, None)


def test_where_the_level_is_not_known_the_week_is_followed(calibrated, monkeypatch):
    traffic.TrafficBucket.objects.filter(at__lt=NOW - HOUR * 5).delete()
    told = looking_ahead.look(service=calibrated.service, now=NOW + TIMESTEP)
    assert told is not None
    assert told.source == "week", "a forecast takes the last day"


def test_one_service_that_can_t_be_told_keeps_no_other_waiting(calibrated, caplog):
    other = make.make_service(calibrated.budget)
    traffic.store(job=other, rows=[(T0, Decimal(1))], now=NOW)
    type(other.service).objects.filter(job=other).update(profile=[])
    assert looking_ahead.look_all(now=NOW + TIMESTEP) == 1
    assert f"What service {other.pk} will need can't be told." in caplog.text


def test_of_two_versions_at_once_the_later_is_not_written(calibrated, monkeypatch):
    """The other one was written between the look at the newest and the write."""
    send(calibrated, days=1, until=NOW + DAY)
    made = calibrating.make

    def slowly(service, now):
        monkeypatch.setattr(calibrating, "make", made)
        calibrating.recalibrate(service=service, now=now)
        return made(service, now)

    monkeypatch.setattr(calibrating, "make", slowly)
    found = calibrating.recalibrate(service=profiles.live().get(), now=NOW + DAY)
    assert found.version == ServiceProfile.objects.count() == 2


def test_what_was_made_meanwhile_with_other_terms_does_not_count(calibrated, monkeypatch):
    """By night a version is made, as its owner changes how many GPUs it may have."""
    send(calibrated, days=1, until=NOW + DAY)
    made, before = calibrating.make, profiles.live().get()

    def slowly(service, now):
        monkeypatch.setattr(calibrating, "make", made)
        calibrating.recalibrate(service=before, now=now)  # read before the change
        return made(service, now)

    monkeypatch.setattr(calibrating, "make", slowly)
    asked = {"service": calibrated.service, "by": make.someone(), "now": NOW + DAY}
    calibrating.change(**asked, least_gpus=4, most_gpus=6)
    found = profiles.in_force(calibrated.service)
    assert found is not None
    # Whoever read the terms before the change takes the new ones, so that both say the same.
    assert (found.version, min(found.week), max(found.week)) == (2, 4, 6)


# --- Clock changes, gaps, launches ---------------------------------------------------------------

CHANGE = datetime(2026, 10, 25, tzinfo=UTC)  # Berlin's clocks go back from 03:00 to 02:00


def test_after_a_clock_change_the_local_hour_decides(job):
    """The morning's rise comes at 09:00 of Berlin, before the change and after it."""

    def rise(at: datetime) -> float:
        return 90 if 9 <= at.astimezone(ZoneInfo("Europe/Berlin")).hour < 18 else 20

    job.service.time_zone = "Europe/Berlin"
    job.service.save()
    now = CHANGE - DAY + timedelta(minutes=5)
    send(job, of=rise, until=now)
    declare(job)
    calibrating.configure(service=job.service, calibrated=True)
    calibrating.recalibrate(service=profiles.live().get(), now=now)
    job.service.refresh_from_db()
    before, after = CHANGE - DAY + 7 * HOUR, CHANGE + DAY + 8 * HOUR
    for nine in (before, after):
        asked = demand_over(job.service, start=nine - 3 * HOUR, step=TIMESTEP, timesteps=24)
        assert asked[8] >= 9, "an hour later it is up"
        assert asked[0] <= 3, "three hours before it is down"
        assert violations(asked, 2) == 0
    whole = demand_over(job.service, start=CHANGE - DAY, step=TIMESTEP, timesteps=48 * 3)
    assert violations(whole, 2) == 0


def test_a_skipped_hour_of_the_local_week_is_no_hole(job):
    """29 March 2026: 02:00 to 03:00 doesn't come in Berlin; the week that is told keeps the cap."""
    spring = datetime(2026, 3, 29, tzinfo=UTC)
    job.service.time_zone = "Europe/Berlin"
    job.service.save()
    send(job, of=lambda at: 95, until=spring - DAY)
    declare(job)
    calibrating.configure(service=job.service, calibrated=True)
    made = calibrating.recalibrate(service=profiles.live().get(), now=spring - DAY)
    assert violations([*made.week, made.week[0]], 2) == 0
    assert min(made.week) >= 8


def test_gaps_are_no_zeros_and_a_launch_is_no_habit(job):
    """Two days without figures, eight hours of five times the traffic: the week is as it was."""
    last = NOW.replace(minute=0)
    gaps = {last - 6 * DAY - HOUR * n for n in range(48)}
    launch = (last - 10 * DAY, last - 10 * DAY + 8 * HOUR)

    def launched(at: datetime) -> float:
        return daily(at) * (5 if launch[0] <= at < launch[1] else 1)

    declare(job)
    send(job)
    calibrating.configure(service=job.service, calibrated=True, most_gpus=60)
    calm = calibrating.make(profiles.live().get(), NOW)
    send(job, of=launched)
    traffic.TrafficBucket.objects.filter(at__in=gaps).delete()
    odd = calibrating.make(profiles.live().get(), NOW)
    assert max(abs(a - b) for a, b in zip(calm.week, odd.week, strict=True)) <= 4
    assert sum(odd.week) < 1.25 * sum(calm.week)


# --- What one GPU does ---------------------------------------------------------------------------


def test_a_declared_rate_comes_first_and_every_change_is_kept_with_its_author(job):
    ada = make.make_user("ada")
    assert gpu_rates.in_force(job.service) is None
    with pytest.raises(Refused, match="Nobody knows what one GPU does"):
        profiles.rate_of(job.service)
    gpu_rates.declare(service=job.service, rate=Decimal("12.5"), by=ada, now=T0)
    gpu_rates.declare(service=job.service, rate=Decimal("12.50"), by=ada, now=T0 + HOUR)
    assert [(one.rate_micro, one.author, one.at) for one in RatePerGpu.objects.all()] == [
        (12_500_000, ada, T0)
    ]
    RatePerGpu.objects.create(service=job.service, source="measured", rate_micro=9, at=T0)
    assert profiles.rate_of(job.service).rate_micro == 12_500_000
    gpu_rates.declare(service=job.service, rate=None, by=ada, now=T0 + HOUR)
    assert profiles.rate_of(job.service).rate_micro == 9


@pytest.mark.parametrize("rate", ["0", "-1", "NaN", "Infinity", "1e13"])
def test_a_rate_that_can_t_be_is_refused(job, rate):
    with pytest.raises(Refused, match="Give what one GPU does as"):
        declare(job, rate)


def test_a_rate_by_which_the_traffic_would_take_a_million_gpus_changes_nothing(calibrated):
    before = calibrated.service.most_gpus
    with pytest.raises(Refused, match="is a GPU's 1e-06 right") as refused:
        calibrating.change(
            service=calibrated.service,
            by=make.someone(),
            now=NOW,
            rate_per_gpu=Decimal("0.000001"),
            most_gpus=9,
        )
    assert refused.value.field == "rate_per_gpu"
    calibrated.service.refresh_from_db()
    assert (RatePerGpu.objects.count(), calibrated.service.most_gpus) == (1, before)


def test_a_wild_rate_that_keeps_a_profile_from_being_made_is_named_by_its_instant(calibrated):
    wild = (NOW - 3 * DAY).replace(minute=0)
    traffic.store(job=calibrated, rows=[(wild, Decimal(10**9))], now=NOW)
    named = "send the traffic of 2026-10-18T10:00:00Z anew"
    assert named in calibrating.problem(calibrated.service, now=NOW)
    with pytest.raises(Refused, match=named):
        calibrating.recalibrate(service=calibrated.service, now=NOW)
    with pytest.raises(Refused, match=named):
        declare(calibrated, 11)
    traffic.store(job=calibrated, rows=[(wild, Decimal(50))], now=NOW)
    assert calibrating.recalibrate(service=calibrated.service, now=NOW).version == 2


def test_what_is_saved_as_it_was_makes_no_version(calibrated):
    asked = {"service": calibrated.service, "by": make.someone(), "now": NOW + HOUR}
    calibrating.change(**asked, calibrated=True, rate_per_gpu=Decimal(10), least_gpus=1)
    assert ServiceProfile.objects.count() == 1
    calibrating.change(**asked, calibrated=True, rate_per_gpu=Decimal(10), least_gpus=2)
    assert ServiceProfile.objects.count() == 2, "what changes counts at once"
    calibrated.service.refresh_from_db()
    calibrating.change(**asked, calibrated=True, rate_per_gpu=Decimal(12), least_gpus=2)
    assert ServiceProfile.objects.latest("pk").rate.rate_micro == 12_000_000


def test_what_is_asked_is_saved_though_no_profile_can_be_made_of_a_standstill(job):
    declare(job)
    send(job, of=lambda at: 0 if at > NOW - 4 * DAY else 50)
    with pytest.raises(Refused, match="some demand"):
        calibrating.recalibrate(service=job.service, now=NOW)
    calibrating.change(service=job.service, by=make.someone(), now=NOW, calibrated=True)
    job.service.refresh_from_db()
    assert job.service.calibrated
    assert demand_at(job.service, NOW) == 12


def test_only_what_follows_its_traffic_is_said_to_miss_it(cast, calibrated):
    late = NOW + 2 * DAY
    assert service_pages.page(cast["member"], calibrated, now=late).is_stale
    calibrating.configure(service=calibrated.service, calibrated=False)
    calibrated.service.refresh_from_db()
    assert not service_pages.page(cast["member"], calibrated, now=late).is_stale


def test_what_was_never_declared_is_not_withdrawn(job):
    asked = {"service": job.service, "by": make.someone(), "now": NOW}
    calibrating.change(**asked, rate_per_gpu=None, least_gpus=2, most_gpus=9)
    assert not RatePerGpu.objects.exists()


def test_a_rate_is_shown_as_it_was_declared_so_that_saving_it_again_changes_nothing(cast, job):
    for rate in ("1234567.89", "0.000001", "12", "100"):
        declare(job, rate)
        found = service_pages.page(cast["member"], job, now=NOW)
        assert Decimal(found.declared_rate) == Decimal(rate)
        assert "e" not in found.declared_rate.lower()
        assert declare(job, found.declared_rate).pk == RatePerGpu.objects.latest("pk").pk
    assert RatePerGpu.objects.count() == 4


def test_a_rate_beyond_all_bounds_asks_for_the_most_that_is_allowed():
    terms = core.Terms(per_gpu=1e-6, cap=2, quantile=0.95, least=1, most=9, timestep_s=1800)
    assert [terms.gpus(rate) for rate in (0, 2e-6, 9e-6, 1e12, math.inf)] == [1, 2, 9, 9, 9]
    with pytest.raises(DemandError):
        terms.gpus(math.nan)


def test_a_service_that_has_ended_is_calibrated_no_more(calibrated):
    calibrated.state, calibrated.ended_at = "cancelled", NOW
    calibrated.save()
    service = calibrated.service
    for deed in (
        lambda: calibrating.recalibrate(service=service, now=NOW),
        lambda: calibrating.configure(service=service, calibrated=False),
        lambda: calibrating.change(service=service, by=make.someone(), now=NOW, most_gpus=9),
    ):
        with pytest.raises(Refused, match="has ended: its profile counts no more"):
            deed()
    assert ServiceProfile.objects.count() == 1


def test_the_rate_is_measured_where_the_service_was_busy(job):
    """It held 4 GPUs by day, 1 by night: by day each did 20 a second, but for one odd hour."""
    node = make.make_nodes(make.make_pool("h100"), 1)[0]
    start = NOW.replace(hour=0, minute=0) - 10 * DAY
    for day in range(10):
        morning = start + day * DAY
        for mask, begins, ends in ((1, 0, 8), (15, 8, 20), (1, 20, 24)):
            make.make_run(
                job,
                {node: mask},
                started_at=morning + begins * HOUR,
                ended_at=morning + ends * HOUR,
            )
    odd = start + 3 * DAY + 12 * HOUR

    def busy(at: datetime) -> float:
        return 300 if at == odd else 80 if 8 <= at.hour < 20 else 5

    send(job, days=10, of=busy)
    found = gpu_rates.measure(service=job.service, now=NOW)
    assert found is not None
    assert found.rate_micro == 20_000_000, "one odd hour is no envelope, a quiet night no rate"
    assert gpu_rates.measure(service=job.service, now=NOW) == found
    send(job, days=10, of=lambda at: busy(at) / 2)
    assert gpu_rates.measure(service=job.service, now=NOW) == found, "it never falls by idling"


def test_steps_in_which_the_number_of_gpus_changed_tell_nothing():
    held = [(T0, T0 + HOUR / 2, 2), (T0 + HOUR / 2, T0 + 3 * HOUR, 2), (T0 + HOUR * 1.5, None, 2)]
    rows = [(T0 + HOUR * n, 10.0 * n) for n in range(-1, 5)]
    found = gpu_rates.held_through(rows, HOUR, held, T0 + 5 * HOUR)
    # Through the first hour 2 were held, of others; the second gained, the third had 4.
    assert found == [(0.0, 2), (20.0, 4), (30.0, 2), (40.0, 2)]
    assert gpu_rates.held_through(rows, HOUR, held, T0 + 4 * HOUR) == found[:-1]
    assert gpu_rates.held_through(rows, HOUR, [], T0 + 5 * HOUR) == []


def test_a_few_busy_steps_are_too_few():
    pairs = [(10.0, 1)] * (gpu_rates.ENOUGH_BUSY - 1)
    assert gpu_rates.envelope(pairs) is None
    assert gpu_rates.envelope([*pairs, (10.0, 1)]) == (10.0, {"steps": 48, "busy": 48})
    assert gpu_rates.envelope([]) is None


# --- The model as it is kept ---------------------------------------------------------------------


def test_a_kept_model_forecasts_as_it_did():
    rates = tuple(daily(T0 + HOUR * n) for n in range(24 * 20))
    known = Traffic(T0, 3600, rates)
    model = learn(known)
    again = core.unpacked(core.packed(model, 0.95))
    assert ahead(again, known, 48, 0.95) == ahead(model, known, 48, 0.95)


@pytest.mark.parametrize(("step", "timestep", "steps"), [(600, 1800, 2), (3600, 1800, 6)])
def test_traffic_is_read_by_timesteps(step, timestep, steps):
    known = Traffic(T0, step, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    found = core.by_timestep(known, timestep)
    assert len(found.rates) == steps
    assert max(rate for rate in found.rates if rate is not None) == 6


def test_traffic_that_fills_no_timestep_is_refused():
    with pytest.raises(DemandError, match="can't be read by timesteps of 15 min"):
        core.by_timestep(Traffic(T0, 1200, (1.0,)), 900)


# --- Over the API, by command --------------------------------------------------------------------


def test_a_service_is_calibrated_over_the_api(cast, api_of, job, settings, monkeypatch):
    monkeypatch.setattr("config.clock.now", lambda: NOW)
    send(job)
    address = f"/api/v1/jobs/{job.pk}/calibration/"
    shown = api_of("viewer").get(address).json()
    assert (shown["calibrated"], shown["version"], shown["rate_per_gpu"]) == (False, None, None)
    assert "Nobody knows what one GPU does" in shown["problem"]
    assert shown["demand"] == [12] * 48
    assert api_of("viewer").post(address, {"calibrated": True}).status_code == 403
    shown = api_of("member").post(address, {"calibrated": True, "rate_per_gpu": 10}).json()
    assert (shown["calibrated"], shown["version"], shown["problem"]) == (True, 1, "")
    assert shown["rate_per_gpu"]["author"] == "member"
    assert max(shown["demand"]) < 12
    assert shown["versions"][0]["tried"]["broken"] == 0
    made = api_of("member").post(f"/api/v1/jobs/{job.pk}/recalibrate/").json()
    assert made["version"] == 2
    refused = api_of("member").post(address, {"rate_per_gpu": 0})
    assert refused.status_code == 400
    assert "Give what one GPU does" in refused.json()["detail"]
    assert api_of("member").post(address, {"rate_per_gpu": None}).json()["rates"][0]["rate"] is None


def test_the_command_recalibrates_or_only_shows(job, monkeypatch):
    monkeypatch.setattr("forecasting.management.commands.recalibrate.now", lambda: NOW)
    send(job)
    with pytest.raises(CommandError, match="Nobody knows what one GPU does"):
        call_command("recalibrate", str(job.pk))
    with pytest.raises(CommandError, match="No service of job 1 runs"):
        call_command("recalibrate", "1")
    declare(job)
    out = StringIO()
    call_command("recalibrate", str(job.pk), "--dry-run", stdout=out)
    assert "would be put in force; covers" in out.getvalue()
    assert not ServiceProfile.objects.exists()
    call_command("recalibrate", str(job.pk), stdout=out)
    assert "version 1 in force; covers" in out.getvalue()
