"""Sums kept with the entries: every figure read from them is what the entries say, to the unit."""

import io
from copy import deepcopy
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import F

from budgets.models import Period
from ledger import figures, reports, rollups, services
from ledger.entries import write
from ledger.instants import to_seconds
from ledger.job_sums import settled_by_job
from ledger.membership import Membership
from ledger.models import (
    ClosedTimestep,
    Entry,
    JobRollup,
    JobSettled,
    Rollup,
    WholeRollup,
)
from ledger.rankings import dearest_jobs
from ledger.rollup_checks import wrong_sums
from ledger.rollups import BY_TIME_SIZES, Cell, JobCell, SettledCell, WholeCell, upsert
from ledger.spent import settled_between
from ledger.stretches import cover
from tests import ledger_by_hand as by_hand
from tests.factories import T0, TIMESTEP, make_job, make_period, someone
from tests.kept_rows import Rows, put, take
from tests.ledger_by_hand import DAYS, World, make_world
from tests.ledger_world import CREDIT, give, write_entry
from workloads.models import Job

pytestmark = pytest.mark.django_db
ZONES = ("UTC", "America/New_York", "Asia/Kolkata")
SEEDS = range(3)
HOUR, DAY, WEEK = 3600, 86_400, 604_800


# On the second database each seed and each zone once.
DRAWN = [
    pytest.param((seed, zone), marks=[] if seed == place else pytest.mark.once)
    for seed in SEEDS
    for place, zone in enumerate(ZONES)
]


@pytest.fixture(params=DRAWN, ids=str)
def random(request: pytest.FixtureRequest) -> Random:
    return Random(request.param[0])


@pytest.fixture(scope="module")
def made() -> dict[Any, tuple[World, Any, Rows]]:
    """What was made of a seed and a zone: the world, where its dice stood then, and the rows."""
    return {}


@pytest.fixture
def world(
    request: pytest.FixtureRequest, random: Random, made: dict[Any, tuple[World, Any, Rows]]
) -> World:
    drawn = request.node.callspec.params["random"]
    if drawn in made:
        put(made[drawn][2])
    else:
        made[drawn] = make_world(random, drawn[1]), random.getstate(), take()
    world, dice, _ = made[drawn]
    random.setstate(dice)
    return deepcopy(world)


def windows(random: Random, count: int) -> list[tuple[datetime, datetime]]:
    """Random intervals to the second; some on whole timesteps, one empty, one of everything."""
    found = [(T0, T0), (T0 - timedelta(days=30), T0 + timedelta(days=60))]
    for number in range(count):
        unit = 1800 if number % 3 == 0 else 1
        ends = sorted(random.randrange(DAYS * DAY) // unit * unit for _ in range(2))
        found.append((T0 + timedelta(seconds=ends[0]), T0 + timedelta(seconds=ends[1])))
    return found


# --- Every figure, both ways ---------------------------------------------------------------------


def test_accounts_and_figures_are_those_of_the_entries(world: World) -> None:
    for period in world.periods:
        at = T0 + timedelta(days=DAYS)
        found, right = figures.accounts(period=period, at=at), by_hand.accounts(period, at)
        for name, amounts in right.items():
            assert {one: getattr(found, name)[one] for one in amounts} == amounts
        charges = Entry.objects.filter(kind="charge", period=period)
        time = by_hand.gpu_time(list(charges))
        for budget, one in reports.figures(period=period, now=at).items():
            assert [
                one.charged_gpu_seconds,
                one.parked_gpu_seconds,
                one.parked_mgpus,
                one.unfunded_gpu_seconds,
            ] == time[budget]


def test_usage_in_any_window_is_that_of_the_charges(world: World, random: Random) -> None:
    for start, end in windows(random, 15):
        found = reports.usage_window(start=start, end=end, now=end)
        assert found == by_hand.usage(start, end)


def test_what_was_settled_between_any_instants(world: World, random: Random) -> None:
    tree = Membership.load()
    for start, end in windows(random, 5):
        borders = [to_seconds(start), to_seconds(end)]
        for path in ("orlo", "orlo/science", "orlo/vision", "orlo/science/petrel"):
            budget = world.tree[path]
            total = [0] * 5
            for piece in settled_between(start, end, tree=tree, below=budget):
                for place, name in enumerate(SPENT):
                    total[place] += getattr(piece.spent, name)
            assert total == by_hand.burned(budget, borders)[0], (path, start, end)


SPENT = (
    "settled_mgpus",
    "busy_gpu_seconds",
    "parked_gpu_seconds",
    "realtime_gpu_seconds",
    "unfunded_gpu_seconds",
)


@pytest.mark.parametrize("zone", [*ZONES, "Africa/Cairo"])
def test_burn_by_day_of_any_zone(world: World, random: Random, zone: str) -> None:
    for start, end in windows(random, 2)[2:]:
        for path in ("orlo", "orlo/vision"):
            budget, clock = world.tree[path], ZoneInfo(zone)
            days = reports.burn_by_day(budget=budget, start=start, end=end, zone=clock)
            midnights = [
                to_seconds(datetime(d.day.year, d.day.month, d.day.day, tzinfo=clock)) for d in days
            ]
            borders = [to_seconds(start), *midnights[1:], to_seconds(end)]
            right = by_hand.burned(world.tree[path], borders)
            assert [[getattr(day, name) for name in SPENT] for day in days] == right


def test_parked_time_of_any_timesteps(world: World, random: Random) -> None:
    for start, end in windows(random, 12):
        charges = Entry.objects.filter(kind="charge", timestep__gte=start, timestep__lt=end)
        right = by_hand.gpu_time(list(charges))
        found = reports.parked_by_budget(start=start, end=end)
        for budget, values in right.items():
            one = found.get(budget, reports.GpuTime())
            assert [one.charged, one.parked, one.parked_mgpus, one.unfunded] == values


@pytest.mark.parametrize("zone", ["UTC", "America/Sao_Paulo", "Asia/Kathmandu"])
def test_parked_time_of_any_days(world: World, random: Random, zone: str) -> None:
    clock = ZoneInfo(zone)
    for start, end in windows(random, 4):
        days = reports.parked_by_day(start=start, end=end, zone=clock)
        charges = Entry.objects.filter(kind="charge", timestep__gte=start, timestep__lt=end)
        by_day: dict[date, list[Entry]] = {day: [] for day, _ in days}
        for charge in charges:
            by_day[charge.at.astimezone(clock).date()].append(charge)
        for day, found in days:
            for budget, values in by_hand.gpu_time(by_day[day]).items():
                one = found.get(budget, reports.GpuTime())
                assert [one.charged, one.parked, one.parked_mgpus, one.unfunded] == values


def test_holds_and_jobs_are_those_of_the_entries(world: World) -> None:
    for period in world.periods:
        left = figures.all_open_holds(period=period)
        assert {mine: by[period.pk] for mine, by in left.items()} == by_hand.open_holds(period)
        everyone = [budget.pk for budget in world.tree.values()]
        right = by_hand.dearest(everyone, period)
        assert dearest_jobs(budget_ids=everyone, periods=[period], limit=99) == right
        assert dearest_jobs(budget_ids=None, periods=[period], limit=2) == right[:2]
    totals: dict[int, int] = {}
    for period in world.periods:
        for job, settled, _ in by_hand.dearest(everyone, period):
            totals[job] = totals.get(job, 0) + settled
    assert settled_by_job([job.pk for job, _ in world.jobs]) == totals


def test_sums_are_those_of_the_entries_and_rebuilding_changes_none(world: World) -> None:
    assert list(wrong_sums()) == []
    before = kept()
    services.rebuild_rollups()
    assert kept() == before


def kept() -> list[tuple[Any, ...]]:
    """Every sum, whatever its id."""
    found = []
    for model in (Rollup, WholeRollup, JobRollup, JobSettled):
        names = [field.attname for field in model._meta.concrete_fields[1:]]
        found += sorted(model._default_manager.values_list(*names))
    return found


# --- Stretches of time ---------------------------------------------------------------------------


def test_an_interval_is_covered_once_by_the_largest_stretches() -> None:
    for seed in range(200):
        random = Random(seed)
        marks = sorted({random.randrange(40 * DAY) for _ in range(random.randrange(2, 6))})
        found = cover(marks)
        spans = [(low, high) for size in found.whole for low, high in found.whole[size]]
        spans = sorted(spans + found.edges)
        assert spans[0][0] == marks[0]
        assert spans[-1][1] == marks[-1]
        assert all(one[1] == other[0] for one, other in pairwise(spans))
        for size, wholes in found.whole.items():
            assert all(low % size == high % size == 0 for low, high in wholes)
        assert sum(high - low for low, high in found.edges) <= len(marks) * HOUR


def test_a_window_of_a_week_is_a_handful_of_ranges() -> None:
    found = cover([17 * HOUR + 600, 17 * HOUR + 600 + WEEK])
    assert {size: spans for size, spans in found.whole.items() if spans} == {
        DAY: [(DAY, 7 * DAY)],
        HOUR: [(18 * HOUR, DAY), (7 * DAY, 7 * DAY + 17 * HOUR)],
    }
    assert [high - low for low, high in found.edges] == [3000, 600]


@pytest.mark.parametrize("closed", [0, 1, 3])
def test_what_is_corrected_within_the_hour_that_a_page_ends_in(
    tree: dict[str, Any], period: Period, closed: int
) -> None:
    """Whether timesteps are closed up to it, before it or beyond it."""
    for number in range(closed):
        start = T0 + number * TIMESTEP
        end = start + TIMESTEP
        ClosedTimestep.objects.create(start=start, end=end, closed_at=end)
    now = T0 + timedelta(minutes=70)
    for at, key in ((now - timedelta(minutes=2), "before"), (now, "after")):
        services.adjust(
            budget=tree["orlo/vision"], amount_mgpus=50, author=someone(), note="n", key=key, now=at
        )
    for path in ("orlo", "orlo/vision"):
        days = reports.burn_by_day(budget=tree[path], start=T0, end=now)
        assert [day.settled_mgpus for day in days] == [50]
        of_all = settled_between(T0, now, tree=Membership.load(), below=tree[path])
        assert sum(piece.spent.settled_mgpus for piece in of_all) == 50


def test_what_is_charged_within_the_hour_that_a_page_ends_in(
    tree: dict[str, Any], period: Period
) -> None:
    """The last close lies between its edges."""
    tern = tree["orlo/vision/tern"]
    write_entry(
        kind="charge", budget=tern, period=period, at=T0, until=T0 + TIMESTEP, timestep=T0,
        amount_mgpus=1800 * 1000, gpu_seconds=1800, job=make_job(tern), created_at=T0, key="c",
    )  # fmt: skip
    ClosedTimestep.objects.create(start=T0, end=T0 + TIMESTEP, closed_at=T0 + TIMESTEP)
    start, now = T0 + timedelta(minutes=10), T0 + timedelta(minutes=50)
    (day,) = reports.burn_by_day(budget=tree["orlo"], start=start, end=now)
    assert day.settled_mgpus == 1200 * 1000
    assert reports.usage_window(start=start, end=now, now=now) == {tern.pk: 1200 * 1000}


# --- Written with the entries, or not at all -----------------------------------------------------


@pytest.fixture
def period(tree: dict[str, Any]) -> Period:
    return make_period()


def grants(tree: dict[str, Any], period: Period, *keys: str) -> list[Entry]:
    place = {"budget": tree["orlo"], "period": period, "at": T0, "created_at": T0}
    return [Entry(kind="grant", amount_mgpus=CREDIT, key=key, **place) for key in keys]


def granted(period: Period, tree: dict[str, Any]) -> int:
    return figures.accounts(period=period, at=T0).granted[tree["orlo"].pk]


def test_an_entry_that_is_there_already_is_not_counted_twice(
    tree: dict[str, Any], period: Period
) -> None:
    with transaction.atomic():
        write(grants(tree, period, "a", "b"))
    with pytest.raises(IntegrityError), transaction.atomic():
        write(grants(tree, period, "c", "b"))
    assert granted(period, tree) == 2 * CREDIT
    assert list(wrong_sums()) == []


def test_what_is_taken_back_takes_its_sums_back(tree: dict[str, Any], period: Period) -> None:
    with transaction.atomic():
        write(grants(tree, period, "a"))
        transaction.set_rollback(True)
    assert not Rollup.objects.exists()
    assert granted(period, tree) == 0


def test_a_decision_repeated_is_counted_once(tree: dict[str, Any], period: Period) -> None:
    for _ in range(2):
        services.adjust(
            budget=tree["orlo"], amount_mgpus=7, author=someone(), note="why", key="k", now=T0
        )
    assert figures.accounts(period=period, at=T0).settled[tree["orlo"].pk] == 7
    assert list(wrong_sums()) == []


def test_many_sums_take_a_statement_for_a_thousand(
    tree: dict[str, Any], period: Period, django_assert_num_queries: Any
) -> None:
    jobs = [make_job(tree["orlo/vision/tern"]) for _ in range(30)]
    place = {"budget_id": jobs[0].budget_id, "period": period, "at": T0, "created_at": T0}
    entries = [
        Entry(kind="hold", amount_mgpus=1, job=job, attempt=n, key=f"{job.pk}:{n}", **place)
        for job in jobs
        for n in range(1, 41)
    ]
    # Entries, one sum, 1,200 of jobs: PostgreSQL takes all of one kind at once.
    most = 3 if connection.vendor == "postgresql" else 5
    with transaction.atomic(), django_assert_num_queries(most):
        write(entries)
    assert list(wrong_sums()) == []


def cell_of(model: rollups.Summed, job: Job, period: Period) -> tuple[Any, int]:
    """Return whose sum one of a model's rows is, and how many sums it has."""
    place = (int(Rollup.Size.HOUR), 0, period.pk)
    return {
        Rollup: (Cell(*place, job.budget_id, "charge", True, False), 4),
        WholeRollup: (WholeCell(*place, "charge", True, False), 4),
        JobRollup: (JobCell(job.pk, 1, period.pk, job.budget_id, "hold"), 2),
        JobSettled: (SettledCell(job.pk, period.pk, job.budget_id, job.submitted_by_id), 2),
    }[model]


@pytest.mark.parametrize("model", [Rollup, WholeRollup, JobRollup, JobSettled])
def test_a_sum_that_no_integer_holds_is_refused(
    tree: dict[str, Any], period: Period, model: rollups.Summed
) -> None:
    cell, sums = cell_of(model, make_job(tree["orlo/vision/tern"]), period)
    most, more = (dict[Any, Any]({cell: (amount, *(0,) * (sums - 1))}) for amount in (2**63 - 1, 1))
    with transaction.atomic():
        upsert(model, most)
    kept = model._default_manager.values_list()
    before = list(kept)
    with pytest.raises(DatabaseError), transaction.atomic():
        upsert(model, more)
    assert list(kept.all()) == before


@pytest.mark.django_db(transaction=True)
def test_an_entry_whose_sum_is_refused_is_not_written_either(
    tree: dict[str, Any], period: Period
) -> None:
    job = make_job(tree["orlo/vision/tern"])
    cell = SettledCell(job.pk, period.pk, job.budget_id, job.submitted_by_id)
    with transaction.atomic():
        upsert(JobSettled, {cell: (2**63 - 1, 0)})
    place = {"budget_id": job.budget_id, "period": period, "at": T0, "created_at": T0}
    with pytest.raises(DatabaseError):  # nobody's transaction but its own
        write([Entry(kind="adjust", amount_mgpus=1, job=job, attempt=1, key="one more", **place)])
    assert not Entry.objects.exists()
    assert not Rollup.objects.exists()


# --- Wrong ones are named, and made right --------------------------------------------------------


def test_reconcile_names_every_wrong_sum(tree: dict[str, Any], period: Period) -> None:
    ClosedTimestep.objects.create(start=T0, end=T0 + TIMESTEP, closed_at=T0 + TIMESTEP)
    give(tree["orlo"], 1, period)
    services.adjust(
        budget=tree["orlo"], amount_mgpus=50, author=someone(), note="why", key="k", now=T0
    )
    Rollup.objects.filter(size=Rollup.Size.DAY).update(amount_mgpus=F("amount_mgpus") + 7)
    Rollup.objects.filter(size=Rollup.Size.HOUR).delete()
    out = io.StringIO()
    with pytest.raises(SystemExit, match="1"):
        call_command("reconcile", stdout=out)
    assert out.getvalue().splitlines()[-3:] == [
        "sum: orlo, hour of 2026-10-01T00:00:00Z, adjust: the sum says 0 mGPU-s, entries 50",
        "sum: orlo, 2026-10-01, adjust: the sum says 57 mGPU-s, entries 50",
        "2 differences",
    ]


def test_reconcile_names_a_wrong_sum_of_all_budgets_alone(
    tree: dict[str, Any], period: Period
) -> None:
    for path, amount in (("orlo/science", 30), ("orlo/vision", 20)):
        services.adjust(
            budget=tree[path], amount_mgpus=amount, author=someone(), note="why", key=path, now=T0
        )
    WholeRollup.objects.filter(size=Rollup.Size.LOCAL_DAY).update(amount_mgpus=57)
    WholeRollup.objects.filter(size=Rollup.Size.HOUR).delete()
    strange = WholeRollup.objects.get(size=Rollup.Size.WEEK)
    strange.pk, strange.since = None, strange.since + WEEK
    strange.save()
    assert [str(one) for one in wrong_sums()] == [
        "all budgets, hour of 2026-10-01T00:00:00Z, adjust: the sum says 0 mGPU-s, entries 50",
        "all budgets, week of 2026-10-08, adjust: the sum says 50 mGPU-s, entries 0",
        "all budgets, 2026-10-01 UTC, adjust: the sum says 57 mGPU-s, entries 50",
    ]
    services.rebuild_rollups()
    assert list(wrong_sums()) == []
    assert set(WholeRollup.objects.values_list("size", "amount_mgpus")) == {
        (size, 50) for size in BY_TIME_SIZES
    }


def test_where_both_are_wrong_the_sum_of_all_budgets_is_compared_with_entries(
    tree: dict[str, Any], period: Period
) -> None:
    services.adjust(
        budget=tree["orlo"], amount_mgpus=50, author=someone(), note="why", key="k", now=T0
    )
    for model in (Rollup, WholeRollup):
        model._default_manager.filter(size=Rollup.Size.DAY).delete()
    assert [str(one) for one in wrong_sums()] == [
        f"{whose}, 2026-10-01, adjust: the sum says 0 mGPU-s, entries 50"
        for whose in ("orlo", "all budgets")
    ]


def test_rebuilding_makes_every_sum_right_and_says_how_many(
    tree: dict[str, Any], period: Period
) -> None:
    job = make_job(tree["orlo/vision/tern"])
    write_entry(
        kind="hold", budget_id=job.budget_id, period=period, at=T0, created_at=T0,
        amount_mgpus=5, job=job, attempt=1, key="hold",
    )  # fmt: skip
    right = kept()
    Rollup.objects.update(amount_mgpus=9)
    JobRollup.objects.all().delete()
    strange = Rollup.objects.get()
    strange.pk, strange.budget = None, tree["orlo"]  # which has no entry at all
    strange.save()
    assert [one.budget for one in wrong_sums()] == ["orlo", "orlo/vision/tern", "orlo/vision/tern"]
    out, progress = io.StringIO(), io.StringIO()
    call_command("rebuild_rollups", stdout=out, stderr=progress)
    assert out.getvalue() == "Wrote 2 sums of 1 entry.\n"
    assert progress.getvalue().splitlines()[-1] == "2 of 2 budgets and periods"
    assert kept() == right


@pytest.mark.parametrize("seed", SEEDS)
def test_a_figure_follows_its_sum_so_a_wrong_one_would_show(seed: int) -> None:
    """The tests above can fail: each sum that is off by one moves the figure that it is read by."""
    world = make_world(Random(seed))
    start, end = T0 + timedelta(hours=5, seconds=7), T0 + timedelta(days=8, seconds=7)
    used = reports.usage_window(start=start, end=end, now=end)
    for size in (Rollup.Size.HOUR, Rollup.Size.DAY):
        first, last = to_seconds(start) + DAY, to_seconds(end) - DAY
        if size == Rollup.Size.HOUR:
            first, last = to_seconds(start), to_seconds(start) + 18 * HOUR
        sums = Rollup.objects.filter(size=size, since__gte=first, since__lt=last, kind="charge")
        one = sums.filter(funded=True).first()
        if one is None:
            continue
        Rollup.objects.filter(pk=one.pk).update(amount_mgpus=F("amount_mgpus") + 1)
        assert reports.usage_window(start=start, end=end, now=end) != used
        Rollup.objects.filter(pk=one.pk).update(amount_mgpus=F("amount_mgpus") - 1)
    orlo, zone = world.tree["orlo"], ZoneInfo(world.periods[0].time_zone)
    days = reports.burn_by_day(budget=orlo, start=start, end=end, zone=zone)
    WholeRollup.objects.update(parked_gpu_seconds=F("parked_gpu_seconds") + 1)
    assert reports.burn_by_day(budget=orlo, start=start, end=end, zone=zone) != days
    Rollup.objects.filter(size=Rollup.Size.PERIOD, kind="refund").delete()
    at = T0 + timedelta(days=DAYS)
    found = [figures.accounts(period=one, at=at).settled for one in world.periods]
    right = [by_hand.accounts(one, at)["settled"] for one in world.periods]
    root = world.tree["orlo"].pk
    assert [one[root] for one in found] != [one[root] for one in right]


def test_nothing_else_writes_an_entry() -> None:
    """Whatever wrote entries past `ledger.entries.write` would leave them out of the sums."""
    root = Path(rollups.__file__).parents[1]
    banned = ("Entry.objects.create", "Entry.objects.bulk_create", "Entry.objects.get_or_create")
    for app in ("allocator", "budgets", "clusters", "config", "forecasting", "ledger", "workloads"):
        for path in (root / app).rglob("*.py"):
            text = path.read_text()
            assert not any(words in text for words in banned), path
