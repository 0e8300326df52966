"""Who is stopped for whom, over random days of small clusters: what no plan and no day may do.

Every plan of a simulated day is judged from its problem and its final plan alone. What a plan had
given when it decided is not known then, so a run is taken for inside its entitlement only if all
that its budgets hold in the first timestep fits, and a job for outside only if it alone does not.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from random import Random

import pytest

from allocator.core.plan import Preemption, Result
from allocator.core.problem import BatchJob, BudgetNode, Problem
from allocator.core.simulate import play
from allocator.core.simulation.setup import Setup, nodes_of
from allocator.core.traces import DAY_S, Trace, TraceJob

HOUR = 3600
PERCENT = 5
LEAVES = ("org/x/m/a", "org/y/d", "org/x/m/b", "org/x/c")


@dataclass
class Judge:
    """Watches every plan of a day; `stops` are (second, victim, who it was stopped for)."""

    stops: list[tuple[int, str, str]] = field(default_factory=list)
    seen: Counter[object] = field(default_factory=Counter)

    def __call__(self, problem: Problem, result: Result) -> None:
        now = [one for one in result.preemptions if one.timestep == 0]
        if not now:
            return
        self.problem, self.budgets = problem, {one.path: one for one in problem.budgets}
        starts = {one.job: one.start for one in result.plan.assignments}
        self.given = self._given(result)
        for one in now:
            assert one.preemptor is not None
            assert starts[one.preemptor] == 0, "whoever it was stopped for starts now"
            assert starts.get(f"{one.victim}+", 1) > 0, "the victim's rest comes behind it"
            self._judge(one)
        self._few(now)
        self._the_unfunded_first(now, starts)
        second = int(problem.name.removeprefix("second "))
        self.stops += [(second, one.victim, str(one.preemptor)) for one in now]

    def _job(self, name: str | None) -> BatchJob:
        found = self.problem.by_name[str(name)]
        assert isinstance(found, BatchJob)
        return found

    def _given(self, result: Result) -> dict[str, int]:
        """Funded GPU-seconds that each budget is given in the first timestep, on all levels."""
        given: dict[str, int] = defaultdict(int)
        for one in result.plan.assignments:
            job = self._job(one.job.removesuffix("+"))
            if one.start == 0 and job.funded:
                for path in self._line(job.budget):
                    given[path] += one.gpus * self.problem.timestep_seconds
        return given

    def _line(self, path: str | None) -> list[str]:
        line = []
        while path is not None:
            line.append(path)
            path = self.budgets[path].parent
        return line

    def _used(self, path: str) -> int:
        """In the window, with all below it."""
        return sum(one.usage for one in self.budgets.values() if path in self._line(one.path))

    def _judge(self, stop: Preemption) -> None:
        victim, winner = self._job(stop.victim), self._job(stop.preemptor)
        assert winner.funded
        assert victim.running is not None
        assert victim.running.protected == 0
        assert winner.budget not in victim.running.shielded
        if not victim.funded:
            return
        assert victim.budget != winner.budget
        theirs, ours = self._line(victim.budget), self._line(winner.budget)
        seconds = self.problem.timestep_seconds
        inside = all(
            self._used(path) + self.given[path] + victim.gpus * seconds
            <= self.budgets[path].entitled
            for path in theirs
            if path not in ours
        )
        outside = any(
            self._used(path) + winner.gpus * seconds > self.budgets[path].entitled
            for path in ours
            if path not in theirs
        )
        self.seen["inside" if inside else "not surely inside", "outside" if outside else "not"] += 1
        assert not (inside and outside), f"{victim} was inside, {winner} was not"

    def _few(self, now: list[Preemption]) -> None:
        """At most the percent of the GPUs, but one block always."""
        lost = sum(self._job(one.victim).gpus for one in now)
        self.seen["beyond the percent" if lost * 100 > PERCENT * self.problem.gpus else "few"] += 1
        if lost * 100 > PERCENT * self.problem.gpus:
            assert len({one.preemptor for one in now}) == 1

    def _the_unfunded_first(self, now: list[Preemption], starts: dict[str, int]) -> None:
        """Where every block is a node, nobody paid gives way while one that is free goes on."""
        if {job.gpus for job in self.problem.batch} != {8}:
            return
        stopped = {one.victim for one in now}
        for one in now:
            if self._job(one.victim).funded:
                self.seen["a funded run"] += 1
                winner = self._job(one.preemptor)
                for run in self.problem.batch:
                    if run.running is None or run.funded or run.name in stopped:
                        continue
                    assert winner.budget in run.running.shielded


def tree_of(draw: Random) -> tuple[BudgetNode, ...]:
    """An organisation of two programs, one of them with a group of two projects; shares drawn."""
    top, group, project = (draw.choice((20, 35, 50, 65)) for _ in range(3))
    shares = {
        "org/x": top, "org/x/c": 100 - group, "org/x/m": group,
        "org/x/m/a": project, "org/x/m/b": 100 - project,
        "org/y": 100 - top, "org/y/d": 100,
    }  # fmt: skip
    below = [BudgetNode(path, path.rpartition("/")[0], n * 1000, 0) for path, n in shares.items()]
    return (BudgetNode("org", None, 100_000, 0), *below)


def day(seed: int, sizes: tuple[int, ...], *, nodes: int = 2, days: int = 1) -> Judge:
    """A busy day: more is asked for than there is, in bursts, by budgets of every share."""
    draw = Random(seed)
    rows = [
        TraceJob(
            job_id=f"{n}",
            submit_time_s=draw.randrange(days * DAY_S * 3 // 4),
            gpus=draw.choice(sizes),
            duration_s=draw.randrange(HOUR, 12 * HOUR),
            group=draw.choice(LEAVES[: draw.randint(2, 4)]),
            min_runtime_s=draw.choice((0, 600, 1800, HOUR)),
            urgency=draw.choice(("low", "normal", "high")),
        )
        for n in range(14 * nodes * days)
    ]
    rows.sort(key=lambda row: row.submit_time_s)
    judge = Judge()
    setup = Setup(
        nodes_of(f"{nodes}x8"), tree_of(draw), days * DAY_S, spread=0.3, seed=seed,
        unlimited=draw.random() < 0.5, preempted_percent=PERCENT,
    )  # fmt: skip
    play(Trace(tuple(rows)), setup, watch=judge)
    return judge


def assert_no_loops(stops: list[tuple[int, str, str]]) -> None:
    """In no 24 hours do two jobs stop each other twice."""
    by_pair: dict[frozenset[str], list[tuple[int, str]]] = defaultdict(list)
    for second, victim, winner in stops:
        by_pair[frozenset((victim, winner))].append((second, winner))
    for pair, found in by_pair.items():
        for some in combinations(sorted(found), 4):
            if some[-1][0] - some[0][0] < DAY_S:
                assert Counter(winner for _, winner in some) != dict.fromkeys(pair, 2)


SEEDS = range(12)
SIZES = ((8,), (1, 2, 4, 8), (8, 16), (1, 1, 2, 8))


@cache
def a_day(seed: int) -> Judge:
    return day(seed, SIZES[seed % 4], nodes=2 + seed % 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_day_keeps_every_limit(seed: int) -> None:
    assert_no_loops(a_day(seed).stops)


def test_the_days_are_such_that_every_limit_matters() -> None:
    seen = sum((a_day(seed).seen for seed in SEEDS), Counter[object]())
    for what in ("few", "beyond the percent", "a funded run", ("inside", "not")):
        assert seen[what] >= 10, what
    assert seen["not surely inside", "outside"] >= 10


@pytest.mark.parametrize("seed", range(3))
def test_long_jobs_on_few_gpus_do_not_go_round_in_circles(seed: int) -> None:
    """One node for as many long jobs as there are budgets: each would like every second hour."""
    draw = Random(seed)
    rows = tuple(
        TraceJob(f"{n}", 600 * n, 8, 40 * HOUR, leaf, min_runtime_s=draw.choice((1800, HOUR)))
        for n, leaf in enumerate(LEAVES[: 2 + seed])
    )
    judge = Judge()
    setup = Setup(nodes_of("1x8"), tree_of(draw), 4 * DAY_S, unlimited=True, spread=0.0)
    play(Trace(rows), setup, watch=judge)
    assert_no_loops(judge.stops)
    assert len(judge.stops) > 2
