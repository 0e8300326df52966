"""Segments: any set of holdings, cut anyhow, adds up to a count second by second."""

from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import services
from ledger.instants import to_seconds
from ledger.rates import Rates
from ledger.segments import Stay, cut_run
from tests.factories import (
    HOUR,
    T0,
    T1,
    TIMESTEP,
    make_holding,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_tree,
)

SPAN = 40  # seconds of the brute-force world


@st.composite
def stays(draw: st.DrawFn) -> list[Stay]:
    rows = draw(
        st.lists(
            st.tuples(st.integers(1, 8), st.booleans(), st.integers(0, SPAN), st.integers(0, SPAN)),
            min_size=1,
            max_size=8,
        )
    )
    return [Stay(1, 2, 1, 3, 4, gpus, funded, min(a, b), max(a, b)) for gpus, funded, a, b in rows]


@given(
    held=stays(),
    borders=st.lists(st.integers(0, SPAN), max_size=6),
    rates=st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, 3000)), max_size=4),
)
def test_segments_equal_a_count_second_by_second(held, borders, rates) -> None:
    prices = Rates((4, at, rate) for at, rate in {at: rate for at, rate in rates}.items())
    found = cut_run(held, borders=sorted(borders), rates=prices)

    seconds: Counter[bool] = Counter()
    cost = 0
    for second in range(SPAN):
        for stay in held:
            if stay.start <= second < stay.end:
                seconds[stay.funded] += stay.gpus
                cost += stay.gpus * prices.at(4, second) * stay.funded
    for funded in (True, False):
        mine = [segment for segment in found if segment.funded == funded]
        assert sum(segment.gpu_seconds for segment in mine) == seconds[funded]
        for one, following in pairwise(mine):
            assert one.end <= following.start
    assert sum(segment.amount_mgpus for segment in found) == cost
    assert len({segment.key for segment in found}) == len(found)
    for segment in found:
        inside = range(to_seconds(segment.start) + 1, to_seconds(segment.end))
        assert not set(borders) & set(inside)


@pytest.mark.django_db
def test_segments_are_cut_where_anything_changes() -> None:
    pool = make_pool(rate=1000)
    pool.rates.create(effective_at=T0 + timedelta(minutes=40), rate_per_mille=1500)
    (node,) = make_nodes(pool)
    job = make_job(make_tree()["orlo/science/petrel"])
    run = make_run(job, {node: 0b1111}, ended_at=T0 + timedelta(minutes=50))
    make_holding(run, node, 0b110000, started_at=T0 + timedelta(minutes=10), funded=False)

    found = services.segments(start=T0, end=T0 + HOUR)
    as_minutes = [
        (
            int((s.start - T0).total_seconds()) // 60,
            int((s.end - T0).total_seconds()) // 60,
            s.funded,
            s.gpu_seconds,
            s.rate,
        )
        for s in found
    ]
    assert as_minutes == [
        (0, 10, True, 2400, 1000),
        (10, 30, True, 4800, 1000),
        (10, 30, False, 2400, 1000),
        (30, 40, True, 2400, 1000),
        (30, 40, False, 1200, 1000),
        (40, 50, True, 2400, 1500),
        (40, 50, False, 1200, 1500),
        (50, 60, False, 1200, 1500),
    ]
    assert found[0].key == f"charge:{run.pk}:2026-10-01T00:00:00Z"
    assert found[2].key == f"charge:{run.pk}:2026-10-01T00:10:00Z:unfunded"
    assert found[0].attempt == run.number
    assert found[0].budget_id == job.budget_id


@pytest.mark.django_db
def test_segments_are_half_open_and_wait_for_a_confirmed_start() -> None:
    make_period(ends_at=T0 + HOUR)
    nodes = make_nodes(make_pool(), 4)
    leaf = make_tree()["orlo/science/petrel"]
    make_run(make_job(leaf), {nodes[0]: 1}, started_at=T0 - HOUR, ended_at=T0)
    make_run(make_job(leaf), {nodes[1]: 1}, started_at=T0 + HOUR)
    make_run(make_job(leaf), {nodes[2]: 1}, started_at=None)
    inside = make_run(make_job(leaf), {nodes[3]: 1}, started_at=T0 - HOUR)
    found = services.segments(start=T0, end=T0 + HOUR)
    assert [(s.run_id, s.start) for s in found] == [
        (inside.pk, T0),
        (inside.pk, T0 + TIMESTEP),
    ]


@pytest.mark.django_db
def test_a_period_border_inside_a_timestep_cuts() -> None:
    border = T0 + timedelta(minutes=10)
    make_period(ends_at=border)
    make_period("next", starts_at=border, ends_at=T1, status="approved")
    make_period("an idea", starts_at=T0, ends_at=T0 + timedelta(minutes=20), status="draft")
    (node,) = make_nodes(make_pool())
    make_run(make_job(make_tree()["orlo/science/petrel"]), {node: 1})
    found = services.segments(start=T0, end=T0 + TIMESTEP)
    assert [s.start for s in found] == [T0, border]
