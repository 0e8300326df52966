"""The bench's twins: the same work and shares, one of them plays tricks."""

from dataclasses import replace

import pytest

from allocator.core.simulation.world import SimJob
from allocator.core.traces import TraceJob
from benchmarks import gaming

JOB = TraceJob("one", 100, 4, 3600, "other")


@pytest.mark.parametrize("trick", gaming.TRICKS)
def test_every_trick_does_the_same_useful_work_at_most(trick: str) -> None:
    """However it is asked for, no more comes of it than of the job."""
    pieces = list(gaming.TRICKS[trick](JOB))
    useful = sum(one.gpus * (one.duration_s - one.parked_s) * part for one, part in pieces)
    assert useful == pytest.approx(4 * 3600)
    assert all(one.group == "other" and one.submit_time_s == 100 for one, _ in pieces)
    assert len({one.job_id for one, _ in pieces}) == len(pieces)


def test_twins_have_the_same_work_and_neither_is_always_asked_first() -> None:
    jobs, useful = gaming._jobs(gaming.TRICKS["none"], 0)
    sides = {
        side: [(one.submit_time_s, one.gpus, one.duration_s) for one in jobs if one.group == side]
        for side in (gaming.HONEST, gaming.OTHER)
    }
    assert sides[gaming.HONEST] == sides[gaming.OTHER]
    assert set(useful.values()) == {1.0}
    ends = {one.job_id[-1] for one in jobs if one.group == gaming.HONEST}
    assert ends == {"a", "b"}


def test_parked_time_is_not_useful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaming, "DAYS", 1)
    rows = gaming.measure_all(1, ["parks GPUs for 2 h after each job"])
    assert [row.policy for row in rows] == list(gaming.POLICIES)
    assert rows[0].gain < 0
    (floor,) = gaming.floors(rows)
    assert floor.met
    (table,) = gaming.tables(rows)
    assert len(table.rows[0]) == len(table.head)
    assert gaming.to_json(rows)[0]["gain"] == rows[0].gain


def test_what_was_done_counts_up_to_where_it_parks() -> None:
    done = SimJob(
        number=0, row=JOB, name="job-0", leaf=0, budget="other", gpus=4, work_s=3600,
        minimum_s=0, expected=(3600, 3600), debug=False, progress_s=900, lost_s=0,
    )  # fmt: skip
    assert gaming._done(done, None) == 4 * 900  # type: ignore[arg-type]
    done.row = replace(JOB, parked_s=3000)
    assert gaming._done(done, None) == 4 * 600  # type: ignore[arg-type]
