"""Declared against used, as numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.core.inflation import ENOUGH, Declared, inflation, instead
from tests.core.test_forecast_docs import table

rows = st.lists(
    st.builds(Declared, st.integers(1, 512), st.integers(1, 10**7), st.integers(0, 10**7)),
    min_size=1,
    max_size=30,
)


def test_the_pages_table():
    for pairs, times, took, nine, beyond, suggested in table("jobs: GPUs × declared h, used h"):
        jobs = []
        for pair in pairs.split(";"):
            gpus, asked, used = (float(one) for one in pair.replace("×", ",").split(","))
            jobs.append(Declared(int(gpus), int(asked * 3600), int(used * 3600)))
        found = inflation(jobs)
        assert found is not None
        assert f"{found.median_per_mille / 1000:g}" == times
        assert f"{found.took_per_mille / 1000:g}" == took
        assert f"{found.nine_of_ten_per_mille / 1000:g}" == nine
        assert f"{found.beyond_gpu_seconds / 3600:g}" == beyond
        assert ("none" if found.suggests is None else f"{found.suggests / 1000:g}") == suggested


@given(rows)
def test_nothing_divides_by_zero_and_quantiles_rise(jobs):
    found = inflation(jobs)
    assert found is not None
    assert 0 < found.low_per_mille <= found.median_per_mille <= found.high_per_mille
    assert 0 < found.took_per_mille <= found.nine_of_ten_per_mille
    assert 0 <= found.beyond_gpu_seconds <= found.asked_gpu_seconds
    assert found.asked_gpu_seconds - found.beyond_gpu_seconds <= found.used_gpu_seconds
    assert (found.suggests is None) == (len(jobs) < ENOUGH)


def test_what_cannot_be_is_refused_and_nothing_is_none():
    assert inflation([]) is None
    with pytest.raises(ValueError, match="1 s on 1 GPU at least"):
        inflation([Declared(8, 0, 100)])


@pytest.mark.parametrize(
    ("declared_s", "per_mille", "told_s"),
    [(36_000, 620, 22_320), (36_000, 1000, 36_000), (60, 100, 60), (61, 1000, 120), (600, 24, 60)],
)
def test_what_to_declare_is_whole_minutes(declared_s, per_mille, told_s):
    assert instead(declared_s, per_mille) == told_s
