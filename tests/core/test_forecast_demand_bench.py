"""The bench of demand: held against real curves where they are at hand, quiet where not."""

from pathlib import Path

import pytest

from benchmarks import demand
from benchmarks.tables import show
from forecasting.core.profile import Traffic


def test_without_the_curves_there_is_nothing_to_tell(tmp_path: Path) -> None:
    result = demand.measure_all(tmp_path)
    assert demand.floors(result) == []
    assert "Demand of services" in show(demand.tables(result), markdown=True)


@pytest.fixture
def curves() -> Path:
    if not demand.CURVES.exists():
        pytest.skip("the public curves are not at hand")
    return demand.CURVES


def test_windows_without_data_are_gaps(curves: Path) -> None:
    gaps = {name: found.rates.count(None) for name, found in demand.services(curves).items()}
    assert gaps == {"m-large": 0, "m-mid": 84, "m-small": 37}


def test_the_next_day_of_a_cluster_beats_yesterday_and_last_week(curves: Path) -> None:
    traffic: Traffic = demand.cluster(curves)["all groups"]
    found = demand._ahead("all groups", traffic)
    for by in (found.error, found.loss):
        assert by["forecast"] < min(by["same hour yesterday"], by["same hour last week"])


def test_a_service_is_covered_and_its_cap_is_kept(curves: Path) -> None:
    traffic = demand.services(curves)["m-mid"].coarser(1800)
    for row in demand._played("m-mid", traffic, demand.DAY):
        assert row.score.broken == 0
        assert row.score.demand_covered > 0.99
