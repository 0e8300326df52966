"""The bench's simulated months."""

from dataclasses import replace

import pytest

from allocator.core.problem import FULL_SHARE
from allocator.core.traces import DAY_S
from benchmarks import months


@pytest.fixture(scope="module")
def rows() -> list[months.Played]:
    *_, made = months.cases(days=1)
    return months.measure_all([made], days=1)


def test_each_month_is_played_under_both_policies(rows: list[months.Played]) -> None:
    assert [(one.case, one.outcome.policy) for one in rows] == [
        ("made", "fairshare"),
        ("made", "priority"),
    ]
    assert all(one.outcome.seconds == DAY_S for one in rows)
    (table,) = months.tables(rows)
    assert all(len(row) == len(table.head) for row in table.rows)
    assert months.to_json(rows)[0]["case"] == "made"


def test_debug_jobs_are_mixed_in(rows: list[months.Played]) -> None:
    assert rows[0].outcome.waits["debug_limited"].jobs == months.DEBUG_A_DAY


def test_what_is_asked_for_is_of_the_product_s_policy(rows: list[months.Played]) -> None:
    floors = months.floors(rows)
    assert len(floors) == 9
    assert {floor.where for floor in floors} == {"made"}


def test_a_figure_below_what_is_asked_for_is_missed(rows: list[months.Played]) -> None:
    ours, queue = rows
    bad = replace(ours.outcome, crowded_occupancy=0.98, delivered_by_window=0.99)
    found = {floor.what: floor.met for floor in months.floors([replace(ours, outcome=bad), queue])}
    assert not found["month: occupancy while crowded"]
    assert not found["month: owed delivered, by window"]
    slow = months.floors([replace(ours, seconds=31.0), queue])
    assert [floor.met for floor in slow if floor.what == "month: time"] == [False]


def test_fifteen_projects_ask_unevenly_and_have_uneven_shares() -> None:
    tree = months._programs()
    for parent in {node.parent for node in tree if node.parent is not None}:
        assert sum(node.shares for node in tree if node.parent == parent) == FULL_SHARE
    leaves = {node.path for node in tree} - {node.parent for node in tree}
    assert len(leaves) == 15
    *_, made = months.cases(days=1)
    spread = months._spread(made.trace, 0)
    asked = dict.fromkeys(leaves, 0)
    for job in spread.jobs:
        asked[job.group] += 1
    assert max(asked.values()) > 5 * max(1, min(asked.values()))
    assert spread == months._spread(made.trace, 0), "the same each time"
