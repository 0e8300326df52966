"""The demo institute: a short day of it, played for real, and told."""

import math
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command

from allocator.demo import computing, day, institute, people, telling, work
from allocator.demo.institute import Institute
from allocator.models import Alarm, Cycle
from allocator.telling import books, cycles, frame, picture
from budgets.models import Budget, ChangeSet, Notice, Period
from clusters.models import Cluster, Window
from forecasting import works
from forecasting.core.kinds import KINDS
from forecasting.models import Forecast
from ledger import reports
from ledger.models import Entry
from tests import factories as make
from workloads.models import Extension, Job, JobEvent, Run
from workloads.specs import validate

NOW = datetime(2026, 11, 26, 17, 12, 8, tzinfo=UTC)
HOURS = 3


def short_day(now: datetime = NOW, hours: int = HOURS) -> Institute:
    return institute.build(now=now, length=timedelta(hours=hours))


def played(place: Institute, now: datetime = NOW) -> list[Cycle]:
    return list(day.play(place, now=now))


@pytest.mark.once
@pytest.mark.django_db
def test_a_day_keeps_the_books_and_every_plan_is_legal() -> None:
    place = short_day()
    cycles = played(place)
    proof = books.prove(start=place.start, end=place.end)
    assert proof.clean, (proof.wrong, proof.problems)
    assert proof.timesteps == 2 * HOURS
    assert proof.total("inventory") == 64 * HOURS * 3600
    assert proof.total("charged") > 0
    assert proof.total("unfunded") > 0
    assert {cycle.status for cycle in cycles} == {Cycle.Status.COMMITTED}
    period = Period.objects.get(name="Q4 2026")
    for budget in Budget.objects.filter(children__isnull=False).distinct():
        assert books.sums_agree(budget, period=period, at=place.end), budget.path
    _the_day_has_what_it_promises(place)


def _the_day_has_what_it_promises(place: Institute) -> None:
    """Part of the test above, since a played day takes seconds."""
    assert set(Job.objects.values_list("kind", flat=True)) == set(Job.Kind.values)
    stories = JobEvent.objects.filter(kind="preempted_decided", data__has_key="preemptor_share")
    assert stories.exists()
    assert Run.objects.filter(end_reason=Run.EndReason.FAILED).exists()
    assert sum(row.parked_mgpus for row in _figures(place).values()) > 0
    made = Forecast.objects.values_list("method", "planned")
    assert {("physics", True), ("declared", True), ("physics", False)} <= set(made)
    session = Job.objects.get(session=True)
    assert session.name == "grasp-notebook"
    extension = Extension.objects.get(run__job=session)
    assert (extension.rule, extension.asked_by.username) == ("", "sofia")
    told = Notice.objects.filter(user=session.submitted_by, kind=Notice.Kind.SESSION)
    warned = told.filter(key__contains=":end:")
    ends = {notice.key.split(":end:")[1].rpartition(":")[0] for notice in warned}
    assert len(ends) == 2, "before it was extended, and after"
    windows = Window.objects.order_by("starts_at")
    states = [one.state(place.start + timedelta(days=1)) for one in windows]
    assert states == [Window.State.OVER, Window.State.PLANNED]
    science = ChangeSet.objects.filter(parent__slug="science").latest("version")
    assert (science.author.username, science.status) == ("ines", ChangeSet.Status.APPROVED)
    lines = list(telling.report(place, at=place.end))
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    for part in ("Petrel", "Plan of", "Next starts", "Burn report", "marta", people.PASSWORD):
        assert part in text
    assert f"Exact to the GPU-second in {2 * HOURS} of {2 * HOURS} timesteps; 0 entries" in text


def _figures(place: Institute) -> dict[int, reports.Figures]:
    period = Period.objects.get(name="Q4 2026")
    return reports.figures(period=period, now=place.end)


@pytest.mark.once
@pytest.mark.django_db
def test_a_second_run_only_catches_up() -> None:
    place = short_day(hours=1)
    played(place)
    before = dict(Entry.objects.values_list("key", "amount_mgpus"))
    jobs = Job.objects.count()
    again = institute.find()
    assert again == place
    played(again, now=place.end)
    assert dict(Entry.objects.values_list("key", "amount_mgpus")) == before

    later = place.end + timedelta(hours=1, seconds=7)
    played(again, now=later)
    new = Entry.objects.exclude(key__in=before)
    assert {entry.timestep for entry in new.filter(kind=Entry.Kind.CHARGE)} == {
        place.end,
        place.end + timedelta(minutes=30),
    }
    assert not new.filter(at__lt=place.end).exclude(kind=Entry.Kind.RELEASE).exists()
    assert Job.objects.count() == jobs
    proof = books.prove(start=place.start, end=later)
    assert proof.clean
    assert proof.timesteps == 4


@pytest.mark.django_db
def test_a_day_that_was_broken_off_goes_on_where_it_stopped() -> None:
    place = short_day(hours=1)
    cycles = day.play(place, now=NOW)
    for _ in range(4):
        next(cycles)
    del cycles  # as a process that is stopped between two cycles
    assert Job.objects.count() > 0
    played(place)
    due = [ask for ask in work.asks(start=place.start) if ask.after_s <= 3600]
    assert sorted(Job.objects.values_list("name", flat=True)) == sorted(a.spec.name for a in due)
    proof = books.prove(start=place.start, end=place.end)
    assert proof.clean
    assert proof.timesteps == 2


@pytest.mark.once
@pytest.mark.django_db
def test_a_day_over_a_quarters_end_is_charged_to_both() -> None:
    place = short_day(now=datetime(2026, 10, 1, 4, 40, tzinfo=UTC), hours=2)
    played(place)
    border = datetime(2026, 10, 1, 3, tzinfo=UTC)  # midnight in São Paulo
    for name, sign, status in (("Q3 2026", -1, "closed"), ("Q4 2026", 1, "active")):
        period = Period.objects.get(name=name)
        charges = Entry.objects.filter(period=period, kind=Entry.Kind.CHARGE)
        assert period.status == status
        assert charges.exists()
        assert all((charge.at >= border) == (sign > 0) for charge in charges)
    assert books.prove(start=place.start, end=place.end).clean


@pytest.mark.django_db
def test_accounts_exist_exactly_where_the_demo_was_loaded(settings: Any) -> None:
    make.make_user("marta")  # of somebody's own installation, not of the demo
    assert people.accounts() == []


@pytest.mark.django_db
def test_everybody_can_sign_in_and_has_the_role_that_is_shown() -> None:
    short_day()
    shown = people.accounts()
    assert [person.username for person in shown] == list(people.SHOWN)
    for person in shown:
        user = authenticate(username=person.username, password=people.PASSWORD)
        assert user is not None
        assert user.roles.get(budget__path=person.path).kind == person.kind


@pytest.mark.django_db
def test_the_demo_never_enters_an_installation_of_ones_own() -> None:
    make.make_tree()
    with pytest.raises(CommandError, match="empty database") as refusal:
        call_command("demo", "--quiet")
    assert refusal.value.returncode == 2
    assert not Job.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["tomorrow", "2026-11-26", "2026-11-26T17:00:00", "1400-01-01Z"])
def test_a_now_that_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="give an instant with its zone") as refusal:
        call_command("demo", "--now", text)
    assert refusal.value.returncode == 2
    assert not Budget.objects.exists()


@pytest.mark.once
@pytest.mark.django_db
def test_the_command_prints_the_report_and_quiet_shows_no_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(institute, "DAY", timedelta(hours=1))
    monkeypatch.setattr(institute.build, "__kwdefaults__", {"length": timedelta(hours=1)})
    out, err = StringIO(), StringIO()
    call_command("demo", "--now", NOW.isoformat(), stdout=out, stderr=err)
    assert "Loading Orlo Institute" in err.getvalue()
    assert "1 cycle, " in err.getvalue()
    again, quiet = StringIO(), StringIO()
    Cluster.objects.update(observed_until=NOW + timedelta(hours=1))  # as if it had been served
    cycles = Cycle.objects.count()
    call_command("demo", "--now", NOW.isoformat(), "--quiet", stdout=again, stderr=quiet)
    assert quiet.getvalue() == ""
    assert again.getvalue().count("\n") > 80
    for other in (NOW - timedelta(days=1), NOW + timedelta(hours=9)):
        with pytest.raises(CommandError, match="day that ended 2026-11-26T17:00:00Z") as refusal:
            call_command("demo", "--now", other.isoformat(), "--quiet")
        assert refusal.value.returncode == 2
    assert (Cycle.objects.count(), Alarm.objects.count()) == (cycles, 0)


@pytest.mark.once
def test_asks_are_the_same_each_time_and_about_what_the_day_wants() -> None:
    start = NOW.replace(second=0, minute=0) - timedelta(days=1)
    asks = work.asks(start=start)
    assert asks == work.asks(start=start)
    assert asks != work.asks(start=start, seed=7)
    names = [ask.spec.name for ask in asks]
    assert len(set(names)) == len(names)
    assert set().union(*(ask.waits_for for ask in asks)) <= set(names)
    assert {ask.spec.name: ask.by for ask in asks if ask.spec.session} == {
        "grasp-notebook": "",
        "sky-notebook": "ines",
    }
    demand = sum(ask.gpu_hours for ask in asks) / work.CAPACITY_GPU_H
    assert 2.0 <= demand <= 2.7
    assert {ask.spec.gpus for ask in asks} >= {1, 2, 4, 8, 16, 32}
    for ask in asks:
        _computes_what_can_be_and_takes_about_that(ask)
        validate(ask.spec, longest_minimum_runtime_s=settings.MINIMUM_RUNTIME_MAX_HOURS * 3600)


def _computes_what_can_be_and_takes_about_that(ask: work.Ask) -> None:
    spec = ask.spec
    if not spec.work:
        assert spec.expected_duration_s or spec.session or spec.is_realtime, spec.name
        return
    assert works.problem_with(kind=spec.kind, work=spec.work, gpus=spec.gpus) is None
    kind, (pool,) = KINDS[spec.kind], spec.pools
    read = kind.read(spec.work, gpu=pool.upper(), gpus=spec.gpus)
    found = kind.estimate(read, computing.PHYSICS, spec.gpus or 1)
    assert found.fits, spec.name
    if "fails_after_s" not in spec.spec["simulate"]:
        row = computing.COMPUTING[computing.NUMBER.sub("", spec.name)]
        off = math.log(spec.spec["simulate"]["duration_s"] / found.p50 / row.site)
        assert abs(off) < 3 * computing.SCATTER, spec.name


@pytest.mark.once
def test_the_day_s_jobs_say_what_they_compute_and_half_of_them_nothing_else() -> None:
    asks = work.asks(start=NOW.replace(second=0, minute=0) - timedelta(days=1))
    said = [ask.spec for ask in asks if ask.spec.work]
    assert len(said) > 0.6 * len(asks)
    assert 0.35 < sum(spec.expected_duration_s is None for spec in said) / len(said) < 0.65
    assert {spec.kind for spec in said} == {*KINDS}
    variants = {KINDS[s.kind].variant(KINDS[s.kind].read(s.work or {}, gpu="H100")) for s in said}
    assert variants >= {
        "full-cpt",
        "lora-rlvr",
        "lora-dpo",
        "full-sft",
        "bf16",
        "fp8",
        "gptq",
        "awq",
    }


@pytest.mark.once
@pytest.mark.parametrize(
    ("at", "name", "starts", "ends"),
    [
        ("2026-10-01T02:59:59", "Q3 2026", "2026-07-01T03:00:00", "2026-10-01T03:00:00"),
        ("2026-10-01T03:00:00", "Q4 2026", "2026-10-01T03:00:00", "2027-01-01T03:00:00"),
        ("2027-01-01T02:30:00", "Q4 2026", "2026-10-01T03:00:00", "2027-01-01T03:00:00"),
        ("2027-02-28T12:00:00", "Q1 2027", "2027-01-01T03:00:00", "2027-04-01T03:00:00"),
    ],
)
def test_quarters_are_those_of_the_institutes_zone(
    at: str, name: str, starts: str, ends: str
) -> None:
    found = institute.quarter(datetime.fromisoformat(f"{at}+00:00"))
    wanted = (datetime.fromisoformat(f"{instant}+00:00") for instant in (starts, ends))
    assert found == (name, *wanted)


@pytest.mark.once
def test_the_plan_is_drawn_by_who_holds_most_of_a_node() -> None:
    jobs = [
        {"name": "a", "budget": "orlo/a", "funded": True},
        {"name": "b", "budget": "orlo/b", "funded": False},
    ]
    rows = [["a", "a", "b", None], ["a", "a", "b", "a+"], ["b", "a", None, None], [None] * 4]
    snapshot = {
        "horizon": 4,
        "timestep_minutes": 30,
        "nodes": [{"name": "n1", "gpus": 4, "pool": "x"}],
        "jobs": jobs,
        "drains": [{"node": "n1", "from": 3, "to": 4}],
    }
    canvas = picture.Canvas(
        snapshot=snapshot,
        plan={"grid": rows},
        origin=datetime(2026, 11, 26, 15, tzinfo=UTC),
        zone=UTC,
        letters={"orlo/a": "A", "orlo/b": "B"},
    )
    _, node, held = picture.draw(canvas)
    assert node.split() == ["n1", f"AAb{picture.DRAINED}", "3", "of", "4"]
    assert held.split() == ["held", "7752"]


@pytest.mark.once
@pytest.mark.parametrize(
    ("mgpus", "text"),
    [(0, "0.0"), (3_600_000, "1.0"), (179_999, "0.0"), (180_000, "0.1"), (-5_400_000, "-1.5"),
     (4_500_000_000, "1,250.0")],
)  # fmt: skip
def test_credits_are_shown_with_one_decimal(mgpus: int, text: str) -> None:
    assert frame.credits(mgpus) == text


def test_parts_of_a_comparison_are_said_to_be_the_siblings():
    share = {"path": "orlo/science", "shares": 25, "siblings_shares": 100, "siblings_usage": 40}
    assert cycles._level({**share, "usage": 10}) == (
        "science (25% of the siblings' shares ÷ 25% of their usage = 1.00)"
    )
    assert cycles._level({**share, "usage": 0}) == (
        "science (25% of the siblings' shares, none of their usage)"
    )
