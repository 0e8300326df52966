"""The rolling case: what happened is counted, not what was planned."""

import pytest

from allocator.core.plan import Assignment, Plan
from allocator.core.problem import Kind, Node, Problem
from benchmarks.baselines import priority_first
from benchmarks.rolling import (
    DECAY,
    PENALTY,
    Case,
    Hint,
    cases,
    floors,
    measure_all,
    roll,
    tables,
)
from benchmarks.weeks import DAY, HORIZON, Arrival, Curve, Week, make_week


def arrival(name: str, gpus: int, truth: int, estimate: int, at: int = 0) -> Arrival:
    return Arrival(name, Kind.TRAINING, 2, gpus, at, truth, estimate)


def week(*arrivals: Arrival, services: tuple[Curve, ...] = (), steps: int = 6) -> Week:
    return Week((Node("n0", 8),), steps, arrivals, services)


def plain(problem: Problem, k: int, hint: Hint) -> Plan:
    return priority_first(problem)


def test_a_run_lasts_its_true_time_whatever_was_thought() -> None:
    """The long one was thought to last 1; the next starts when it ends, at 3."""
    outcome = roll(week(arrival("long", 8, 3, 1), arrival("next", 8, 9, 1)), Case("", plain))
    assert outcome.delivered == 2 * 8 * 6
    assert outcome.utilization == 1
    assert outcome.timely == pytest.approx(16 * sum(DECAY**age for age in range(6)))
    assert (outcome.started, outcome.wait_p90) == (2, 1.5)
    assert outcome.illegal == 0


def test_a_start_that_an_overrun_puts_off_is_thrash() -> None:
    """At 0 the next is planned for 1; at 1 and 2 "long" still runs, each time it is put off."""
    made = week(arrival("long", 8, 3, 1), arrival("next", 8, 1, 1))
    outcome = roll(made, Case("", plain))
    assert (outcome.thrash, outcome.retimed, outcome.later) == (2 / 3,) * 3
    known = roll(made, Case("", plain, foresight=True))
    assert (known.thrash, known.later) == (0, 0)


def test_another_block_at_the_same_time_is_thrash_but_not_in_time() -> None:
    """A plan that moves the waiting job from GPU 0 to GPU 1 and back while it waits for 3."""

    def restless(problem: Problem, k: int, hint: Hint) -> Plan:
        start = 3 - k
        moved = tuple(Assignment(job.name, k % 2, 1, start, start + 1) for job in problem.batch
                      if job.running is None)  # fmt: skip
        return Plan(problem.gpus, problem.horizon, moved)

    outcome = roll(week(arrival("a", 1, 1, 1), steps=4), Case("", restless))
    assert (outcome.thrash, outcome.retimed, outcome.later) == (1, 0, 0)
    assert (outcome.started, outcome.illegal) == (1, 0)


def test_a_hint_tells_where_the_last_plan_put_what_still_waits() -> None:
    hints = []

    def spy(problem: Problem, k: int, hint: Hint) -> Plan:
        hints.append(dict(hint))
        return priority_first(problem)

    roll(week(arrival("a", 8, 2, 2), arrival("b", 4, 1, 1), steps=3), Case("", spy))
    assert hints == [{}, {"b": (1, 0)}, {"b": (0, 0)}]


def test_foresight_sees_arrivals_and_true_durations() -> None:
    seen: list[Problem] = []

    def spy(problem: Problem, k: int, hint: Hint) -> Plan:
        seen.append(problem)
        return priority_first(problem)

    made = week(arrival("now", 1, 4, 2), arrival("later", 1, 2, 2, at=3))
    roll(made, Case("", spy))
    assert [job.name for job in seen[0].batch] == ["now"]
    assert seen[0].batch[0].duration == 2
    seen.clear()
    roll(made, Case("", spy, foresight=True))
    assert [(job.name, job.duration, job.arrival) for job in seen[0].batch] == [
        ("now", 4, 0), ("later", 2, 3),
    ]  # fmt: skip


def test_services_go_on_from_what_they_hold_and_shortfall_costs() -> None:
    """A jump from 1 to 5 with a swap cap of 2: the fleet climbs before it, 8 GPUs are short."""
    curve = Curve("s", 3, 2, (5, 1, 1, 5, 5, 5, *[5] * HORIZON))

    def served(problem: Problem, k: int, hint: Hint) -> Plan:
        held = problem.realtime[0].held
        assert (held is None) == (k == 0)
        return priority_first(problem)

    outcome = roll(week(services=(curve,)), Case("", served))
    # Held: 3 at 0 (it must be down to 1 by 1), then 1, 1, 3, 5, 5.
    assert outcome.shortfall_hours == (2 + 2) / 2
    assert outcome.delivered == -PENALTY * 3 * 4
    assert outcome.illegal == 0


def test_an_illegal_plan_is_counted() -> None:
    def twice(problem: Problem, k: int, hint: Hint) -> Plan:
        both = tuple(Assignment(job.name, 0, job.gpus, 0, 1) for job in problem.batch)
        return Plan(problem.gpus, problem.horizon, both)

    outcome = roll(week(arrival("a", 8, 1, 1), arrival("b", 8, 1, 1), steps=1), Case("", twice))
    assert outcome.illegal == 1
    assert not floors({"": [outcome]})[0].met


def test_a_week_is_drawn_from_its_seed() -> None:
    made = make_week(1, nodes=4, days=2)
    assert made == make_week(1, nodes=4, days=2)
    assert made != make_week(2, nodes=4, days=2)
    assert made.steps == 2 * DAY
    assert all(len(s.demand) == made.steps + HORIZON for s in made.services)
    assert all(0 < a.arrival < made.steps and a.truth <= HORIZON for a in made.arrivals)


def test_load_is_work_over_what_services_leave() -> None:
    loads, wrong = [], []
    for seed in range(6):
        made = make_week(seed, load=1.1)
        free = made.gpus * made.steps - sum(sum(s.demand[: made.steps]) for s in made.services)
        loads.append(sum(a.gpus * a.truth for a in made.arrivals) / free)
        wrong += [a.estimate != a.truth for a in made.arrivals]
    assert sum(loads) / 6 == pytest.approx(1.1, abs=0.1)
    assert sum(wrong) > len(wrong) / 2


def test_every_case_plays_a_short_week_legally() -> None:
    found = measure_all(cases(), nodes=2, days=1)
    assert floors(found)[0].met
    text = tables(found)[0].text().splitlines()
    assert text[3].split()[:3] == ["perfect", "foresight,", "fast"]
    assert "100.0 %" in text[3]
    assert len(text) == 3 + len(cases())
