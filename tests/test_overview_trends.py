"""The measures of GPUs over a span: what was logged before it counts, and isn't read twice."""

from datetime import timedelta

import pytest

from allocator.pages import overview, overview_trends
from allocator.pages.overview_trends import Span
from clusters import services as clusters
from tests import factories as make
from tests.factories import HOUR, T0
from tests.ledger_world import log_gpus

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
NOW = T0 + 30 * DAY


@pytest.fixture
def nodes():
    return make.make_nodes(make.make_pool(), 2)


def measured(hours: int = 4):
    span = Span.until(NOW, hours=hours, since=None)
    return overview_trends.of_gpus(span, now=NOW, pool_ids=None)


def test_what_a_node_held_since_before_the_span_counts(nodes):
    log_gpus(nodes[0], T0, held=0xFF)
    log_gpus(nodes[0], T0 + DAY, held=0x0F)
    log_gpus(nodes[1], T0, held=0x00, down=0x03)
    availability, occupancy = measured()
    assert set(availability.line[:-1]) == {87_500}
    assert set(occupancy.line[:-1]) == {28_571}


def test_a_change_inside_the_span_counts_from_its_instant(nodes):
    log_gpus(nodes[0], T0, held=0xFF)
    log_gpus(nodes[1], T0, held=0x00)
    log_gpus(nodes[1], NOW - HOUR, held=0xFF)
    _, occupancy = measured()
    assert occupancy.line[:-1] == [50_000] * 5 + [100_000] * 2
    assert occupancy.mean == 64_286


def test_a_node_that_left_before_the_span_is_missed_no_more(nodes):
    log_gpus(nodes[0], T0, held=0xFF)
    log_gpus(nodes[1], T0, held=0x00)
    type(nodes[1]).objects.filter(pk=nodes[1].pk).update(active_until=NOW - DAY)
    _, occupancy = measured()
    assert set(occupancy.line[:-1]) == {100_000}


def test_the_log_before_the_span_is_not_read(nodes, django_assert_num_queries, monkeypatch):
    for number in range(50):
        log_gpus(nodes[0], T0 + number * HOUR, held=number % 2)
    read = []
    states = overview_trends._states
    monkeypatch.setattr(
        overview_trends, "_states", lambda *given: read.extend(states(*given)) or iter(read)
    )
    with django_assert_num_queries(3):
        measured()
    assert len(read) == 1


def test_nodes_in_use_are_counted_as_they_are_listed(nodes):
    for number, (since, until) in enumerate(
        [(NOW, None), (NOW + HOUR, None), (T0, NOW), (T0, NOW + HOUR)], 10
    ):
        make.make_nodes(nodes[0].pool, name=f"n{number}", active_from=since, active_until=until)
    for at in (T0, NOW - HOUR, NOW, NOW + HOUR):
        assert clusters.number_of_nodes(at=at) == len(clusters.active_nodes(at=at))
    assert clusters.number_of_nodes(at=NOW) == 4


def test_the_overview_names_the_projects_most_above_plan_and_leads_to_the_rest():
    lines = list(range(overview.MOST_PROJECTS + 1))
    few, many = (object.__new__(overview.Overview) for _ in range(2))
    object.__setattr__(few, "projects", lines[:-1])
    object.__setattr__(many, "projects", lines)
    assert (few.first_projects, few.has_more_projects) == (lines[:-1], False)
    assert (many.first_projects, many.has_more_projects) == (lines[:-1], True)
