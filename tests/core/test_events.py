"""Events files, and what befalls a simulated fleet."""

from itertools import pairwise

import pytest

from allocator.core import events as module
from allocator.core.events import (
    NOTHING,
    Events,
    Failure,
    Window,
    check_nodes,
    read_events,
    write_events,
)  # fmt: skip
from allocator.core.simulate import play
from allocator.core.simulation.measures import measure
from allocator.core.simulation.setup import Setup, equal_tree, nodes_of
from allocator.core.traces import DAY_S, Trace, TraceJob, read_csv
from allocator.core.validate import ProblemError

HOUR = 3600
NAMES = ("n0001", "n0002")
HEAD = "event,node,from_s,to_s,known_s"


def read(*lines: str) -> Events:
    return read_events([f"{one}\n" for one in (HEAD, *lines)], "e.csv", NAMES)


def test_windows_and_failures_are_read() -> None:
    found = read("window,n0001,3600,7200,60", "failure,n0002,10,", "failure,n0002,99,100")
    assert found.windows == (Window("n0001", 3600, 7200, 60),)
    assert found.failures == (Failure("n0002", 10, None), Failure("n0002", 99, 100))
    assert (found.problems, found.nodes) == ((), {"n0001", "n0002"})
    assert not Events()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("flood,n0001,1,2,", "event is 'flood', but must be one of window, failure"),
        ("window,,1,2,", "node is empty"),
        ("window,n0001,-1,2,", "from_s is '-1', but must be a whole number from 0"),
        ("window,n0001,5,5,", "to_s is 5, but must be after from_s (5), or empty"),
        ("failure,n0001,1e3,,", "from_s is '1e3'"),
        ("failure,n0009,1,2,", "there is no node 'n0009': the fleet has n0001, n0002."),
        ("failure,N0001,1,2,", "there is no node 'N0001'"),
        ("window,n0001,1,2,x", "known_s is 'x'"),
        ("failure,n0001,1,2,x", "known_s is 'x'"),
        ("window,n0001,1,5,5", "known_s is 5, but must be before to_s (5)"),
        ("window,n0001,1,000,2,000,", "one value more than there are columns"),
        ("window,n0001,1,5,0,6,7", "2 values more than there are columns"),
    ],
)
def test_a_row_that_is_no_event_gets_a_sentence(line: str, said: str) -> None:
    (problem,) = read(line).problems
    assert problem.startswith("e.csv, line 2: ")
    assert said in problem


def test_a_file_without_a_column_and_a_node_that_isn_t_there_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"e\.csv has no column node"):
        read_events(["event,from_s\n"], "e.csv", NAMES)
    with pytest.raises(ProblemError, match=r"e\.csv has column node twice: leave one out"):
        read_events([f"{HEAD},node\n"], "e.csv", NAMES)
    with pytest.raises(ProblemError, match=r"t\.csv has column group twice"):
        read_csv(["job_id,submit_time_s,gpus,duration_s,group,group\n"], "t.csv")
    with pytest.raises(ProblemError, match="there is no node 'n0002'"):
        check_nodes(read("failure,n0002,1,2"), ["n0001"])


def test_every_row_that_is_no_event_is_told_whatever_is_wrong_with_it() -> None:
    told = read("flood,n0001,1,2,", "window,n0009,1,2,", "window,n0001,5,5,", "window,n0001,1,2,")
    assert [one.split(":")[0][-1] for one in told.problems] == ["2", "3", "4"]
    assert len(told) == 1


def test_a_large_fleet_is_told_by_its_first_and_last_node() -> None:
    names = [f"n{n:04}" for n in range(1, 57)]
    (problem,) = read_events([f"{HEAD}\n", "failure,x,1,2,\n"], "e.csv", names).problems
    assert problem.endswith("the fleet has n0001 to n0056.")


def test_events_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EVENTS", 2)
    assert len(read(*["failure,n0001,1,2,"] * 2)) == 2
    with pytest.raises(ProblemError, match="over 2 events: leave out those of other days"):
        read(*["failure,n0001,1,2,"] * 3)


def test_what_is_written_is_read_as_it_was() -> None:
    some = read("window,n0001,3600,7200,60", "window,n0002,5,,", "failure,n0002,10,")
    assert read_events(write_events(some), "e.csv", NAMES) == some
    odd = Events(failures=(Failure('a "b", c', 1, 2),))
    assert read_events(write_events(odd), "e.csv", ['a "b", c']) == odd


def test_a_part_counts_from_its_own_start() -> None:
    all_of_it = Events(
        (Window("a", 100, 300, 50), Window("a", 100, 150), Window("a", 900, None, 800)),
        (Failure("a", 10, 20), Failure("b", 150, 400), Failure("b", 350, None, is_new=True)),
    )
    part = all_of_it.between(200, 400)
    assert part.windows == (Window("a", -100, 100, 0),)
    assert part.failures == (Failure("b", 0, 200), Failure("b", 150, None, is_new=True))


# --- Played -------------------------------------------------------------------------------------


def outcome(jobs, services=(), events=NOTHING, nodes=2, policy="fairshare"):
    trace = Trace(tuple(jobs), services=tuple(services))
    given = Setup(
        nodes_of(f"{nodes}x8"), equal_tree(trace.groups), DAY_S, unlimited=True, spread=0.0,
        iterations=None, events=events,
    )  # fmt: skip
    played = play(trace, given, policy=policy)
    return played, measure(played.world, played.jobs, policy, played.decisions)


def job(name: str, at: int = 0, gpus: int = 8, lasts: int = 4 * HOUR) -> TraceJob:
    return TraceJob(name, at, gpus, lasts, "a", min_runtime_s=HOUR)


def test_a_failed_node_ends_its_runs_which_begin_anew_and_is_not_healthy() -> None:
    events = Events(failures=(Failure("n0001", HOUR, 2 * HOUR),))
    played, found = outcome([job("x"), job("y")], events=events)
    ran = sorted((one.job, one.first, one.since, one.until, one.failed) for one in played.world.ran)
    assert (0, 0, 0, HOUR, True) in ran
    assert (0, 0, 2 * HOUR, 6 * HOUR, False) in ran
    assert found.failed_runs == 1
    assert found.down_gpu_seconds == 8 * HOUR
    assert found.useful_gpu_seconds == 2 * 8 * 4 * HOUR


def test_nothing_is_placed_that_would_overlap_a_window() -> None:
    events = Events(windows=(Window("n0001", 3 * HOUR, 5 * HOUR),))
    played, _ = outcome([job("x"), job("y"), job("z", at=10)], events=events)
    for ran in played.world.ran:
        if ran.first < 8:
            assert not ran.since < 5 * HOUR or not ran.until > 3 * HOUR


@pytest.mark.parametrize("cap", [1, 2, 8])
def test_a_service_gains_and_loses_no_more_than_its_swap_cap(cap: int) -> None:
    chat = TraceJob(
        "chat", 0, 8, DAY_S, "a", kind="realtime", demand=(1, 1, 8, 8, 2, 2), swap_cap=cap
    )
    played, found = outcome([job("x", gpus=4)], [chat])
    held: dict[int, int] = {}
    for one in played.world.services.served():
        for step in range(one.since // 1800, -(-one.until // 1800)):
            held[step] = held.get(step, 0) + one.gpus
    counts = [held.get(step, 0) for step in range(DAY_S // 1800)]
    assert all(abs(after - before) <= cap for before, after in pairwise(counts))
    assert max(counts) == {1: 4, 2: 6, 8: 8}[cap]
    assert found.services == 1
    assert found.realtime_gpu_seconds == 1800 * sum(counts)
    assert (found.shortfall_gpu_seconds > 0) == (cap < 8)


def test_other_policies_hold_a_service_s_peak_and_start_nothing_into_a_window() -> None:
    chat = TraceJob("chat", 0, 4, DAY_S, "a", kind="realtime", demand=(1, 4), swap_cap=4)
    events = Events(windows=(Window("n0002", 3 * HOUR, 5 * HOUR),))
    played, found = outcome([job("x")], [chat], events, policy="fifo")
    assert found.realtime_gpu_seconds == 4 * DAY_S
    (ran,) = played.world.runs()
    assert (ran.first, ran.since) == (8, 5 * HOUR)


def test_services_of_a_file_are_read_and_bad_ones_told() -> None:
    head = "job_id,submit_time_s,gpus,duration_s,group,kind,demand,demand_step_s,swap_cap\n"
    found = read_csv([head, "s,0,4,86400,a,realtime,1 2 4,3600,2\n", "j,5,4,60,a,,,,\n"], "t.csv")
    (service,) = found.services
    assert (service.demand, service.demand_step_s, service.swap_cap) == ((1, 2, 4), 3600, 2)
    assert [one.job_id for one in found.jobs] == ["j"]
    bad = read_csv([head, "s,0,4,86400,a,realtime,1 x 4,3600,2\n"], "t.csv")
    assert "demand has 'x', but must be whole numbers" in bad.problems[0]
