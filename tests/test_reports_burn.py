"""Burn by day, rate, runway, pace, and a report whose rows add up to the last unit."""

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets.models import Budget, Period
from ledger import reports, services
from tests.factories import (
    HOUR,
    T0,
    T1,
    make_budget,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_service,
    make_shares,
    make_user,
)
from tests.ledger_world import CREDIT, close, give, give_alone, write_entry

pytestmark = pytest.mark.django_db
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture
def period() -> Period:
    return make_period(starts_at=datetime(2026, 1, 1, tzinfo=UTC), ends_at=T1)


def run_on(budget: Budget, gpus: int, job=None, **fields):
    (node,) = make_nodes(make_pool(), gpus=gpus)
    job = job or make_job(budget, gpus=gpus)
    return make_run(job, {node: (1 << gpus) - 1}, **fields)


# --- By day ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("day", "hours"),
    [(date(2026, 3, 8), 23), (date(2026, 7, 4), 24), (date(2026, 11, 1), 25)],
)
def test_a_local_day_has_as_many_hours_as_its_clocks(
    tree: dict[str, Budget], period: Period, day: date, hours: int
) -> None:
    midnight = datetime(day.year, day.month, day.day, tzinfo=NEW_YORK).astimezone(UTC)
    start = midnight - 6 * HOUR
    run_on(tree["orlo/vision/tern"], 1, started_at=start)
    close(80, since=start)
    found = reports.burn_by_day(
        budget=tree["orlo"], start=start, end=start + 40 * HOUR, zone=NEW_YORK
    )
    assert [one.day for one in found] == [day - DAY, day, day + DAY]
    assert [one.settled_mgpus // CREDIT for one in found] == [6, hours, 34 - hours]
    assert [one.busy_gpu_seconds for one in found] == [6 * 3600, hours * 3600, (34 - hours) * 3600]


def test_a_charge_over_midnight_is_split_by_seconds(
    tree: dict[str, Budget], period: Period
) -> None:
    kathmandu = ZoneInfo("Asia/Kathmandu")  # midnight at 18:15 UTC, inside a timestep
    run = run_on(tree["orlo/vision/tern"], 3, started_at=T0 + 18 * HOUR)
    close(2, since=T0 + 18 * HOUR, parked={(run.pk, T0 + 18 * HOUR): 1001})
    found = reports.burn_by_day(budget=tree["orlo"], start=T0, end=T0 + DAY, zone=kathmandu)
    assert [one.day.day for one in found] == [1, 2]
    assert [one.settled_mgpus for one in found] == [3 * 900 * 1000, 3 * 2700 * 1000]
    assert [one.parked_gpu_seconds for one in found] == [500, 501]
    assert sum(one.busy_gpu_seconds + one.parked_gpu_seconds for one in found) == 3 * 3600


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "Pacific/Chatham"])
def test_days_add_up_where_only_some_charges_of_a_timestep_lie_over_midnight(
    tree: dict[str, Budget], period: Period, zone: str
) -> None:
    leaf, day = tree["orlo/vision/tern"], T0.replace(hour=0)
    quarter = 15 * MINUTE
    for number in range(4 * 24):  # a quarter of an hour each, funded and not by turns
        at = day + number * quarter
        run_on(leaf, 1, started_at=at, ended_at=at + quarter, funded=bool(number % 2))
    run_on(leaf, 2, started_at=day)
    close(48, since=day)
    found = reports.burn_by_day(budget=tree["orlo"], start=day, end=day + DAY, zone=ZoneInfo(zone))
    assert sum(one.unfunded_gpu_seconds for one in found) == 12 * 3600
    assert sum(one.busy_gpu_seconds for one in found) == (12 + 48) * 3600
    assert sum(one.settled_mgpus for one in found) == 60 * CREDIT


def test_a_charge_at_the_edge_of_the_interval_counts_by_seconds(
    tree: dict[str, Budget], period: Period
) -> None:
    run_on(tree["orlo/vision/tern"], 1)
    close(4)
    start, end = T0 + 10 * MINUTE, T0 + 95 * MINUTE
    (one,) = reports.burn_by_day(budget=tree["orlo"], start=start, end=end)
    assert one.settled_mgpus == 85 * 60 * 1000


def test_time_is_split_in_busy_parked_real_time_and_unfunded(
    tree: dict[str, Budget], period: Period
) -> None:
    tern = tree["orlo/vision/tern"]
    batch, real = run_on(tern, 1), run_on(tern, 2, job=make_service(tern))
    run_on(tern, 4, funded=False)
    run_on(tree["orlo/science/petrel"], 8)
    close(1, parked={(batch.pk, T0): 100, (real.pk, T0): 10})
    (one,) = reports.burn_by_day(budget=tree["orlo/vision"], start=T0, end=T0 + HOUR)
    assert one == reports.DayBurn(
        day=date(2026, 10, 1),
        settled_mgpus=3 * 1800 * 1000,
        busy_mgpus=1700 * 1000,
        parked_mgpus=110 * 1000,
        realtime_mgpus=3590 * 1000,
        corrected_mgpus=0,
        busy_gpu_seconds=1700,
        parked_gpu_seconds=110,
        realtime_gpu_seconds=3590,
        unfunded_gpu_seconds=4 * 1800,
    )


def test_corrections_count_on_the_day_they_were_written(
    tree: dict[str, Budget], period: Period
) -> None:
    run_on(tree["orlo/vision/tern"], 1, ended_at=T0 + HOUR)
    close(2)
    services.adjust(
        budget=tree["orlo/vision/tern"], amount_mgpus=-CREDIT // 4, author=make_user(),
        note="miscounted", key="a", now=T0 + DAY,
    )  # fmt: skip
    found = reports.burn_by_day(budget=tree["orlo"], start=T0, end=T0 + 2 * DAY)
    assert [one.settled_mgpus for one in found] == [CREDIT, -CREDIT // 4]


def test_days_without_charges_stand_there_with_zero(
    tree: dict[str, Budget], period: Period
) -> None:
    found = reports.burn_by_day(budget=tree["orlo"], start=T0, end=T0 + 3 * DAY)
    assert [(one.day.day, one.settled_mgpus) for one in found] == [(1, 0), (2, 0), (3, 0)]
    assert reports.burn_by_day(budget=tree["orlo"], start=T0, end=T0) == []


# --- Rate, runway, pace ---------------------------------------------------------------------------


def test_the_burn_rate_is_the_mean_of_the_last_seven_days_or_of_what_there_is(
    tree: dict[str, Budget],
) -> None:
    tern = tree["orlo/vision/tern"]
    make_period(ends_at=T1)
    assert reports.burn_rate(budget=tern, now=T0) == 0
    start = T0 + 5 * DAY  # nothing was closed before
    run_on(tern, 2, started_at=start, ended_at=start + DAY)
    end = close(24, since=start)
    assert reports.burn_rate(budget=tern, now=end) == 48 * CREDIT
    end = close(24, since=end)
    assert reports.burn_rate(budget=tern, now=end) == 48 * CREDIT
    end = close(48 * 6, since=end)
    assert reports.burn_rate(budget=tree["orlo"], now=end) == 48 * CREDIT // 7
    end = close(24, since=end)  # half of the first day leaves the window
    assert reports.burn_rate(budget=tern, now=end) == 24 * CREDIT // 7
    assert reports.burn_rate(budget=tree["orlo/science"], now=end) == 0


def test_runway_is_spendable_over_burn_rate_and_none_where_nothing_is_spent() -> None:
    assert reports.runway_days(spendable_mgpus=100, burn_rate_mgpus=40) == Fraction(5, 2)
    assert reports.runway_days(spendable_mgpus=-5, burn_rate_mgpus=40) == 0
    assert reports.runway_days(spendable_mgpus=100, burn_rate_mgpus=0) is None


def test_pace_is_used_over_the_elapsed_part_of_granted() -> None:
    quarter = Fraction(1, 4)
    assert reports.pace(used_mgpus=90, granted_mgpus=1000, planned=quarter) == Fraction(36, 100)
    assert reports.pace(used_mgpus=250, granted_mgpus=1000, planned=quarter) == 1
    assert reports.pace(used_mgpus=5, granted_mgpus=0, planned=quarter) is None
    assert reports.pace(used_mgpus=5, granted_mgpus=10, planned=Fraction(0)) is None


def test_pace_at_the_end_of_a_first_quarter_planned_with_10_percent_is_0_90_and_not_0_36() -> None:
    """Grant 1000, plan 10/20/30/40 %, used 90 at the end of Q1; plan absent → 0.36."""
    used = {"used_mgpus": 90, "granted_mgpus": 1000}
    assert reports.pace(**used, planned=Fraction(10, 100)) == Fraction(90, 100)
    assert reports.pace(**used, planned=Fraction(1, 4)) == Fraction(36, 100)


# --- The report -----------------------------------------------------------------------------------


def assert_adds_up(report: reports.BurnReport) -> None:
    for column in reports.ADDITIVE:
        rows = sum(getattr(row, column) for row in report.rows)
        assert rows == getattr(report.total, column), column


@pytest.fixture
def spent(tree: dict[str, Budget]) -> Period:
    """Odd amounts everywhere: parked, unfunded, in flight, held, a reserve, a correction."""
    period = make_period(ends_at=T0 + 4 * DAY)
    for number, path in enumerate(("orlo/science/petrel", "orlo/science/auk", "orlo/vision/tern")):
        give(tree[path], 101 + number, period)
    give_alone(tree["orlo"], 13, period)
    pool = make_pool(rate=1237)
    nodes = make_nodes(pool, 4)
    petrel = make_run(make_job(tree["orlo/science/petrel"]), {nodes[0]: 0b111})
    make_run(make_job(tree["orlo/science/auk"]), {nodes[1]: 0b1}, started_at=T0 + 7 * MINUTE)
    make_run(make_job(tree["orlo/vision/tern"]), {nodes[2]: 0xFF}, funded=False)
    make_run(make_job(tree["orlo/vision/tern"]), {nodes[3]: 0b11}, ended_at=T0 + 71 * MINUTE)
    waiting = make_job(tree["orlo/vision/tern"])
    services.place_hold(job=waiting, amount_mgpus=CREDIT + 1, now=T0)
    close(2, parked={(petrel.pk, T0): 777})
    write_entry(
        kind="adjust", budget=tree["orlo"], period=period, at=T0 + 11 * MINUTE,
        created_at=T0, amount_mgpus=-17, key="odd",
    )  # fmt: skip
    return period


@pytest.mark.parametrize("by", ["child", "leaf"])
@pytest.mark.parametrize("minutes", [(0, 60), (13, 47), (0, 90)])
def test_rows_add_up_to_the_total_to_the_last_unit(
    tree: dict[str, Budget], spent: Period, by: str, minutes: tuple[int, int]
) -> None:
    start, end = (T0 + minute * MINUTE for minute in minutes)
    report = reports.burn_report(
        budget=tree["orlo"], start=start, end=end, now=T0 + 80 * MINUTE, by=by
    )
    assert_adds_up(report)
    paths = [row.path for row in report.rows]
    if by == "child":
        assert paths == ["orlo/science", "orlo/vision", "orlo"]
    else:
        assert paths == ["orlo/science/auk", "orlo/science/petrel", "orlo/vision/tern", "orlo"]
    assert report.rows[-1].is_reserve
    assert report.rows[-1].granted_mgpus == 13 * CREDIT
    assert report.rows[-1].settled_mgpus == -17
    figures = reports.figures(period=spent, now=T0 + 80 * MINUTE)[tree["orlo"].pk]
    assert report.total.settled_mgpus == figures.settled_mgpus
    assert report.total.held_mgpus == CREDIT + 1
    assert report.total.in_flight_mgpus == figures.in_flight_mgpus > 0


def test_a_row_says_what_its_budget_has_and_did(tree: dict[str, Budget], spent: Period) -> None:
    report = reports.burn_report(
        budget=tree["orlo/science"], start=T0, end=T0 + HOUR, now=T0 + HOUR
    )
    auk, petrel, reserve = report.rows
    settled = 3 * 3600 * 1237
    assert (petrel.path, petrel.granted_mgpus) == ("orlo/science/petrel", 101 * CREDIT)
    assert (petrel.settled_mgpus, petrel.burned_mgpus) == (settled, settled)
    assert (petrel.busy_gpu_seconds, petrel.parked_gpu_seconds) == (3 * 3600 - 777, 777)
    assert petrel.spendable_mgpus == 101 * CREDIT - settled
    # An hour of 96 is gone.
    assert petrel.pace_per_mille == settled * 96 * 1000 // (101 * CREDIT)
    assert petrel.burn_rate_mgpus == settled * 24
    assert petrel.runway_hours == petrel.spendable_mgpus // settled
    assert auk.busy_gpu_seconds == 53 * 60
    assert reserve.burned_mgpus == 0
    assert reserve.pace_per_mille is None


def test_a_leaf_s_report_is_one_row(tree: dict[str, Budget], spent: Period) -> None:
    report = reports.burn_report(
        budget=tree["orlo/vision/tern"], start=T0, end=T0 + HOUR, now=T0 + HOUR
    )
    (row,) = report.rows
    assert not row.is_reserve
    assert_adds_up(report)
    assert row.unfunded_gpu_seconds == 8 * 3600


def test_a_moved_child_s_past_stays_in_the_row_where_it_was_spent(
    tree: dict[str, Budget], spent: Period
) -> None:
    end = T0 + HOUR
    auk, science, vision = (tree[p] for p in ("orlo/science/auk", "orlo/science", "orlo/vision"))
    make_shares(science, {tree["orlo/science/petrel"]: 50_000}, at=end)
    make_shares(vision, {tree["orlo/vision/tern"]: 50_000, auk: 50_000}, at=end)
    close(2, since=end)
    for budget in (tree["orlo"], science, vision):
        for by in ("child", "leaf"):
            report = reports.burn_report(
                budget=budget, start=T0, end=T0 + 2 * HOUR, now=T0 + 2 * HOUR, by=by
            )
            assert_adds_up(report)
            spent_by_auk = {
                row.path: row.busy_gpu_seconds for row in report.rows if row.path == auk.path
            }
            if budget == science:
                assert spent_by_auk == {auk.path: 53 * 60}
            elif budget == vision:
                assert spent_by_auk == {auk.path: 3600}


def test_an_interval_outside_all_periods_and_an_unknown_split_are_refused(
    tree: dict[str, Budget],
) -> None:
    make_period()
    with pytest.raises(services.LedgerError, match="No started period covers"):
        reports.burn_report(budget=tree["orlo"], start=T1, end=T1 + DAY, now=T1)
    with pytest.raises(services.LedgerError, match="choose child or leaf"):
        reports.burn_report(budget=tree["orlo"], start=T0, end=T1, now=T1, by="person")


def test_a_report_takes_the_same_number_of_queries_for_any_number_of_children(
    tree: dict[str, Budget], spent: Period
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            reports.burn_report(
                budget=tree["orlo"], start=T0, end=T0 + 2 * HOUR, now=T0 + 2 * HOUR, by="leaf"
            )
        return len(asked)

    few = queries()
    shares = {tree["orlo/vision/tern"]: 10_000}
    shares |= {make_budget(parent=tree["orlo/vision"]): 1000 for _ in range(20)}
    make_shares(tree["orlo/vision"], shares, at=T0)
    for budget in shares:
        run_on(budget, 1, started_at=T0 + HOUR)
    close(2, since=T0 + HOUR)
    assert queries() <= few <= 30
