"""What a simulated run says: until when protected, since when free, whether it goes on."""

from allocator.core.simulate import play
from allocator.core.simulation.setup import Setup, equal_tree, nodes_of
from allocator.core.simulation.world import Ran
from allocator.core.traces import Trace, TraceJob

HOUR = 3600


def ran(*jobs: TraceJob, hours: int = 2) -> list[Ran]:
    """All runs of two groups with half of 8 GPUs each, at most that paid for."""
    setup = Setup(nodes_of("1x8"), equal_tree(("a", "b")), hours * HOUR, spread=0.0)
    return play(Trace(jobs), setup).world.runs()


def job(name: str, group: str, lasts: int, **more: int) -> TraceJob:
    at = more.pop("at", 0)
    return TraceJob(name, at, 8, lasts, group, min_runtime_s=more.pop("minimum", 1800))


def test_a_run_that_ends_was_protected_for_its_minimum_runtime() -> None:
    assert ran(job("1", "a", HOUR)) == [Ran(0, 0, 0, HOUR, False, 1800, None)]


def test_a_run_that_ends_before_was_protected_to_its_end() -> None:
    assert ran(job("1", "a", 600)) == [Ran(0, 0, 0, 600, False, 600, None)]


def test_a_run_whose_budget_has_no_credits_left_is_free_from_then_on() -> None:
    # Half of 8 GPUs × 2 h pays for one hour of it.
    assert ran(job("1", "a", 2 * HOUR)) == [Ran(0, 0, 0, 2 * HOUR, False, 1800, HOUR)]


def test_a_run_unfunded_by_choice_is_free_from_its_start() -> None:
    assert ran(job("1", "a", HOUR, minimum=0)) == [Ran(0, 0, 0, HOUR, False, 0, 0)]


def test_a_run_that_goes_on_ends_with_the_span_and_one_that_is_stopped_before() -> None:
    free, paid = job("1", "a", 9 * HOUR, minimum=0), job("2", "b", HOUR, at=HOUR)
    assert ran(free, paid, hours=3) == [
        Ran(0, 0, 0, HOUR, True, 0, 0),
        Ran(1, 0, HOUR, 2 * HOUR, False, HOUR + 1800, None),
        Ran(0, 0, 2 * HOUR, 3 * HOUR, False, 2 * HOUR, 2 * HOUR),
    ]
