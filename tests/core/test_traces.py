"""Traces from files and from seeds."""

from collections import Counter

import pytest

from allocator.core.made_traces import Lab, made_trace, with_debug_jobs
from allocator.core.traces import DAY_S, Trace, TraceJob, read_csv, read_swf
from allocator.core.validate import ProblemError

HEAD = "job_id,submit_time_s,gpus,duration_s,group"
SWF = """; Version: 2.2
; MaxProcs: 128
    1     0    5   3600   8  -1  -1   8   7200  -1  1  3  2  -1 1 -1 -1 -1
    2    60   -1     90  -1  -1  -1  12     -1  -1  1  4  2  -1 1 -1 -1 -1

    3   120   -1     -1   4  -1  -1   4     -1  -1  5  4  2  -1 1 -1 -1 -1 ; cancelled
    4   180   -1     30   4  -1  -1   4     -1  -1  1  4 -1  -1 1 -1 -1 -1
"""


def test_rows_are_read_in_order_of_submission_and_sizes_rounded_up() -> None:
    found = read_csv([HEAD, "b,20,3,60,g", "a,10,8,0,h"], "t.csv")
    assert found.jobs == (TraceJob("a", 10, 8, 1, "h"), TraceJob("b", 20, 3, 60, "g"))
    assert (found.rounded, found.groups, found.problems) == (1, ("g", "h"), ())
    assert [job.block for job in found.jobs] == [8, 4]


def test_optional_columns_count() -> None:
    head = f"{HEAD},kind,min_runtime_s,resumable,urgency,parked,time_limit_s"
    (job,) = read_csv([head, "a,0,1,60,g,quantization,30,false,high,10,900"], "t.csv").jobs
    assert (job.kind, job.min_runtime_s, job.resumable) == ("quantization", 30, False)
    assert (job.urgency, job.parked_s, job.time_limit_s) == ("high", 10, 900)


def test_each_bad_row_has_its_sentence_and_the_others_are_read() -> None:
    lines = [HEAD, "a,x,8,60,g", "b,0,8,60,g", "b,0,8,60,g", "c,0,0.5,60,g"]
    found = read_csv(lines, "t.csv")
    assert [job.job_id for job in found.jobs] == ["b"]
    assert found.problems == (
        "t.csv, line 2: submit_time_s is 'x', but must be a whole number from 0 to 316224000.",
        "t.csv, line 4: job_id 'b' is there twice.",
        "t.csv, line 5: gpus is '0.5', but must be a whole number from 1 to 4096.",
    )


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ProblemError, match=r"^t.csv has no column group: it needs job_id, "):
        read_csv(["job_id,submit_time_s,gpus,duration_s"], "t.csv")


def test_swf_is_read_by_its_fields() -> None:
    found = read_swf(SWF.splitlines(), "t.swf")
    assert found.jobs == (
        TraceJob("1", 0, 8, 3600, "group-2", "3", time_limit_s=7200),
        TraceJob("2", 60, 12, 90, "group-2", "4"),
    )
    assert found.problems == (
        "t.swf, line 6: duration_s is '-1', but must be a whole number from 0 to 31622400.",
        "t.swf, line 7: group is empty.",
    )


def test_a_window_counts_from_its_own_start() -> None:
    found = read_csv([HEAD, "a,0,1,60,g", f"b,{DAY_S + 5},1,60,g"], "t.csv")
    assert found.between(DAY_S, 2 * DAY_S).jobs == (TraceJob("b", 5, 1, 60, "g"),)


def test_a_made_trace_is_that_of_its_seed_and_asks_what_it_should() -> None:
    lab = Lab(gpus=64, days=7, demand=2.5, seed=1)
    made = made_trace(lab)
    assert made == made_trace(lab) != made_trace(Lab(gpus=64, days=7, demand=2.5, seed=2))
    asked = sum(job.gpus * job.duration_s for job in made.jobs)
    capacity = 64 * 7 * DAY_S
    assert 2.5 * capacity <= asked < 2.5 * capacity + 64 * 7 * DAY_S
    by_day = Counter(job.submit_time_s // DAY_S for job in made.jobs)
    assert set(by_day) == set(range(7))
    assert by_day[5] + by_day[6] < by_day[1] + by_day[2]
    night = sum(job.submit_time_s % DAY_S < 6 * 3600 for job in made.jobs)
    assert night < len(made.jobs) / 8
    groups = Counter(job.group for job in made.jobs)
    assert sorted(groups, key=lambda group: -groups[group]) == sorted(groups)


def test_debug_jobs_are_mixed_in() -> None:
    made = made_trace(Lab(gpus=64, days=2, seed=1))
    mixed = with_debug_jobs(made, per_day=60, seed=3)
    added = [job for job in mixed.jobs if job.job_id.startswith("debug-")]
    assert len(added) == 120
    assert len(mixed.jobs) == len(made.jobs) + 120
    assert all(job.gpus <= 8 and job.duration_s <= 900 == job.time_limit_s for job in added)
    assert {job.group for job in added} == set(made.groups)
    assert mixed == with_debug_jobs(made, per_day=60, seed=3)
    assert with_debug_jobs(Trace(()), per_day=60) == Trace(())
