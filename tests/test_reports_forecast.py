"""What will be settled at the period's end: nothing too early, exact where days are equal."""

from datetime import timedelta

import pytest

from budgets.models import Budget
from ledger import period_end, reports, services
from ledger.burn import DAY
from ledger.models import ClosedTimestep
from ledger.period_end import Known, Range
from tests.factories import HOUR, T0, T1, make_job, make_nodes, make_period, make_pool, make_run
from tests.ledger_world import CREDIT, close, give, write_entry

pytestmark = pytest.mark.django_db
DAYS = timedelta(days=1)


def forecast(*daily: int, settled: int = 1000, rest: int = 10 * DAY) -> Range | None:
    return period_end.forecast(settled_mgpus=settled, daily=daily, rest=rest)


def test_equal_days_give_a_range_of_zero_width_at_the_exact_rate() -> None:
    assert forecast(*[7] * 30, settled=210, rest=62 * DAY) == Range(644, 644, 644)
    assert forecast(*[86_400] * 3, settled=0, rest=100) == Range(100, 100, 100)


def test_there_is_no_forecast_with_less_than_three_days() -> None:
    assert forecast() is None
    assert forecast(5, 5) is None
    assert forecast(5, 5, 5) is not None


def test_what_is_known_is_a_floor() -> None:
    quiet = (10, 10, 10)
    assert forecast(*quiet, settled=30) == Range(130, 130, 130)

    def knowing(in_flight: int, held: int, *, rest: int = 10 * DAY) -> Range | None:
        known = Known(in_flight, held)
        return period_end.forecast(settled_mgpus=30, daily=quiet, rest=rest, known=known)

    assert knowing(5, 50) == Range(130, 130, 130)  # less than was likely anyhow
    assert knowing(5, 400) == Range(130, 435, 435)
    assert knowing(300, 400) == Range(330, 730, 730)
    assert knowing(300, 400, rest=0) == Range(30, 30, 30)
    assert period_end.forecast(settled_mgpus=30, daily=(1, 2), rest=DAY, known=Known(9, 9)) is None


def test_a_path_ends_at_the_forecast_and_never_falls() -> None:
    days = [100, 300, 200, 400, 350, 50, 20] * 3
    rests = [n * DAY for n in range(1, 31)]
    path = period_end.path(settled_mgpus=5, daily=days, rests=rests, known=Known(7, 900))
    end = period_end.forecast(settled_mgpus=5, daily=days, rest=rests[-1], known=Known(7, 900))
    assert path[-1] == end
    likely = [one.likely_mgpus for one in path]
    assert likely == sorted(likely)
    assert likely[0] == 5 + 7 + 900
    assert period_end.path(settled_mgpus=5, daily=[1], rests=rests) == []


def test_nothing_is_unspent_again() -> None:
    found = forecast(0, 0, 90, settled=30)
    assert found is not None
    assert found.low_mgpus == 30 < found.likely_mgpus < found.high_mgpus
    refunds = forecast(-50, -60, -70, settled=30)
    assert refunds is not None
    assert (refunds.low_mgpus, refunds.likely_mgpus) == (30, 30)


def test_what_is_over_is_no_range() -> None:
    assert forecast(rest=0) == Range(1000, 1000, 1000)
    assert forecast(1, 1000, 5, rest=0) == Range(1000, 1000, 1000)


# --- In the report --------------------------------------------------------------------------------


def burning(budget: Budget, *, gpus: int = 2, since=T0) -> None:
    (node,) = make_nodes(make_pool(), gpus=gpus)
    make_run(make_job(budget, gpus=gpus), {node: (1 << gpus) - 1}, started_at=since)


def rows(tree, now):
    found = reports.burn_report(budget=tree["orlo"], start=T0, end=now, now=now, by="leaf")
    return {row.path: row for row in found.rows}, found.total


def charged(budget: Budget, period, amount: int, day: int) -> None:
    """One charge of an amount, as if it were all of a day."""
    at = T0 + day * DAYS
    write_entry(
        kind="charge", budget=budget, period=period, at=at, until=at + HOUR / 2, timestep=at,
        amount_mgpus=amount, gpu_seconds=amount // 1000, created_at=at,
        key=f"day:{budget.pk}:{day}",
    )  # fmt: skip


def test_two_days_of_history_are_too_early_and_zero_burn_has_no_runway(tree) -> None:
    make_period(ends_at=T0 + 20 * DAYS)
    burning(tree["orlo/vision/tern"])
    end = close(96)
    by_path, total = rows(tree, end)
    tern, petrel = by_path["orlo/vision/tern"], by_path["orlo/science/petrel"]
    assert (tern.forecast_low_mgpus, tern.forecast_mgpus, tern.forecast_high_mgpus) == (None,) * 3
    assert total.forecast_mgpus is None
    assert tern.runway_hours is not None
    assert (petrel.runway_hours, petrel.forecast_mgpus) == (None, None)


def test_thirty_constant_days_give_the_exact_rate_without_width(tree) -> None:
    period = make_period(ends_at=T0 + 90 * DAYS)
    tern = tree["orlo/vision/tern"]
    give(tern, 10_000, period)
    for day in range(30):
        charged(tern, period, 48 * CREDIT, day)
    services.close_timestep(
        start=T0 + 30 * DAYS - HOUR / 2, end=T0 + 30 * DAYS, parked={}, now=T0 + 30 * DAYS
    )
    by_path, total = rows(tree, T0 + 30 * DAYS)
    exact = 90 * 48 * CREDIT
    for row in (by_path[tern.path], total):
        found = (row.forecast_low_mgpus, row.forecast_mgpus, row.forecast_high_mgpus)
        assert found == (exact, exact, exact)


def test_a_row_s_days_begin_after_its_first_and_the_whole_is_a_row_of_its_own(tree) -> None:
    period = make_period(ends_at=T0 + 40 * DAYS)
    tern, petrel = tree["orlo/vision/tern"], tree["orlo/science/petrel"]
    for day in range(10):
        charged(tern, period, (100 + 60 * (day % 2)) * CREDIT, day)
    charged(petrel, period, CREDIT, 6)  # from the evening on
    for day in (7, 8, 9):
        charged(petrel, period, 24 * CREDIT, day)
    end = T0 + 10 * DAYS
    services.close_timestep(start=end - HOUR / 2, end=end, parked={}, now=end)
    by_path, total = rows(tree, end)
    assert by_path[petrel.path].forecast_mgpus == (73 + 30 * 24) * CREDIT
    assert by_path[petrel.path].forecast_low_mgpus == by_path[petrel.path].forecast_mgpus
    assert by_path["orlo/science/auk"].forecast_mgpus is None
    low, high = total.forecast_low_mgpus, total.forecast_high_mgpus
    assert low < total.forecast_mgpus < high
    days = [160, 100, 160, 100, 160, 101, 160 + 24, 100 + 24, 160 + 24]  # of all together
    expected = forecast(*(day * CREDIT for day in days), settled=total.settled_mgpus, rest=30 * DAY)
    assert expected == Range(low, total.forecast_mgpus, high)


def test_there_is_none_before_a_twentieth_of_the_period(tree) -> None:
    period = make_period(ends_at=T1)  # 92 days: 4.6 are a twentieth
    tern = tree["orlo/vision/tern"]
    for day in range(5):
        charged(tern, period, CREDIT, day)
    for days, shown in ((4, False), (5, True)):
        end = T0 + days * DAYS
        ClosedTimestep.objects.create(start=end - HOUR / 2, end=end, closed_at=end)
        assert (rows(tree, end)[1].forecast_mgpus is not None) is shown


def test_at_the_period_s_end_the_forecast_is_what_was_settled(tree) -> None:
    make_period(ends_at=T0 + HOUR)
    burning(tree["orlo/vision/tern"])
    end = close(2)
    _, total = rows(tree, end)
    assert total.forecast_mgpus == total.forecast_high_mgpus == total.settled_mgpus == 2 * CREDIT
