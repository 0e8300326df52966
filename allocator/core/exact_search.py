"""Full mode's search: starts by count, then GPUs by identity, and back where those don't fit.

A schedule (exact_counts.py) that can be given GPUs (exact_identity.py) at its full value is the
best plan of the frame. One that can't is forbidden by a cut on the jobs that prove it, and the
nearest plan is kept; then the counts are solved again.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property

from ortools.sat.python import cp_model

from .check import check_guard, objective
from .exact_counts import (
    Areas,
    CountsModel,
    Schedule,
    Units,
    alike,
    by_node,
    by_pool,
    count_starts,
    start_words,
)
from .exact_frame import Frame
from .exact_identity import IdentityModel, Places
from .exact_nodes import Nodes, spread
from .exact_solver import SOLVED, Clock
from .plan import Plan

NEAR = 2  # timesteps around a start that a repair may choose from
ROUNDING = 1e-4  # of its value: what a plan that is called best may miss by rounded units


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of the parts of a search: deterministic units, rounds, literals of one model."""

    counts: float = 20.0
    pack: float = 4.0
    repair: float = 4.0
    core: float = 0.5  # 0: a schedule that can't be given GPUs is forbidden as a whole
    rounds: int = 60
    places: int = 60_000


@dataclass
class Search:
    """The best plan so far in a frame, and the least bound proven for the frame."""

    frame: Frame
    construction: Plan  # what the guard measures plans against
    best: Plan
    bound: float
    clock: Clock
    effort: Effort = Effort()
    improving: bool = False  # only what is better is looked for; nothing is proven
    value: float = field(init=False)

    def __post_init__(self) -> None:
        self.found = False  # whether a solver gave an answer
        self.built = self.pace = 0.0  # seconds to build the last model, and per literal of it
        self.value = objective(self.frame.problem, self.best)
        self.units = Units(self.frame)
        cells = sum(sum(service.most) for service in self.frame.services)
        self.slack = self.units.value(len(self.frame.works) + cells)

    @property
    def proven(self) -> bool:
        """Whether nothing can be better, but for the rounding of the objective's units.

        Where services are worth so much more than jobs that the rounding is more than a
        ten-thousandth of those, only what is really equal is proven.
        """
        size = max(abs(self.value), self.units.at_stake)
        return self.bound - self.value <= min(self.slack, ROUNDING * size) + 1e-9 * size

    def by_pools(self, share: float) -> None:
        """Rounds of counts by pool and identities, within a share of the time that is left."""
        until = self.clock.elapsed() + share * self.clock.left
        counts = self._counts(by_pool(self.frame))
        if counts is None:
            return
        work, sure = self.effort.counts / 8, True
        for attempt in range(self.effort.rounds):
            if self.proven or self.clock.over or self.clock.elapsed() >= until:
                return
            counts.hint(self.best)
            solver, status = self.clock.solve(counts.model, work, self._until(until), attempt)
            self._learn(counts, solver, status, sure)
            if status == cp_model.INFEASIBLE:
                return
            if status != cp_model.OPTIMAL:
                work *= 2
            if status not in SOLVED:
                continue
            schedule = counts.schedule(solver)
            answer = self.pack(schedule)
            if answer == cp_model.FEASIBLE or self.several_nodes:
                if status == cp_model.OPTIMAL:
                    return  # the best plan, or one that by_nodes knows more of
                continue
            self.repair(schedule)
            core: Collection[str] = schedule.starts
            if answer == cp_model.INFEASIBLE and self.effort.core:
                core = self.core(schedule)
            sure = sure and answer == cp_model.INFEASIBLE
            counts.forbid(core, schedule)

    def by_nodes(self, share: float, harder: int = 0) -> None:
        """Rounds of counts by node and identities, within a share of the time that is left."""
        if self.proven or self.clock.over:
            return
        until = self.clock.elapsed() + share * self.clock.left
        counts = self._counts(by_node(self.frame))
        if counts is None:
            return
        counts.at_most(self.bound)
        if self.improving:
            counts.better_than(self.best)
        sure = True
        for attempt in range(self.effort.rounds):
            if self.proven or self.clock.over or self.clock.elapsed() >= until:
                return
            counts.hint(self.best)
            way = (1, 0, 2)[attempt % 3]  # a plan soon, then what proves
            work = self.effort.counts * (2.0 ** (attempt + harder) if attempt else 0.25)
            solver, status = self.clock.solve(counts.model, work, self._until(until), way)
            self._learn(counts, solver, status, sure)
            if status == cp_model.INFEASIBLE or (status == cp_model.UNKNOWN and self.improving):
                return
            if status not in SOLVED:
                continue
            nodes = Nodes(self.frame, counts, solver, self.clock)
            if nodes.solve():
                self.keep(nodes.plan(self.best))
                if status == cp_model.OPTIMAL:
                    return
            elif not self.improving:
                self.repair(counts.schedule(solver))
            if status == cp_model.OPTIMAL:  # before, what is forbidden would end the proof
                nodes.forbid()
                sure = False

    def _until(self, until: float) -> float:
        """The share of the time left that ends then."""
        return max(0.0, min(1.0, (until - self.clock.elapsed()) / max(self.clock.left, 1e-3)))

    def _counts(self, areas: Areas) -> CountsModel | None:
        """The model, if it is neither too large nor takes too long to build."""
        began = self.clock.elapsed()
        words = start_words(self.frame, areas)
        count = 1 + count_starts(words)
        if count > self.effort.places or self.clock.left < 2 * self.pace * count:
            return None
        counts = CountsModel(self.frame, areas, words)
        self.built = self.clock.elapsed() - began
        self.pace = self.built / count
        return counts

    @cached_property
    def several_nodes(self) -> bool:
        return len({self.frame.problem.node_of[gpu] for gpu in self.frame.rows}) > 1

    def _learn(
        self,
        counts: CountsModel,
        solver: cp_model.CpSolver,
        status: cp_model.CpSolverStatus,
        sure: bool,
    ) -> None:
        """What the counts prove, if nothing was forbidden that might be possible."""
        self.found = self.found or status != cp_model.UNKNOWN
        if sure and status in SOLVED:
            self.bound = max(self.value, min(self.bound, counts.bound(solver)))

    def pack(self, schedule: Schedule) -> cp_model.CpSolverStatus:
        """Give the schedule GPUs: feasible (a better plan is kept), or proven not to be."""
        if self.several_nodes:
            plan, answer = spread(self.frame, schedule, self.best, self.clock)
            if plan is not None:
                self.keep(plan)
            return answer
        tries = [(self.frame, True)]
        if self._served() >= schedule.served:  # services may stay where they are
            tries.insert(0, (self.frame.settled(self.best), False))
        answer = cp_model.UNKNOWN
        for frame, serve in tries:
            places = self._places(frame, schedule)
            model = IdentityModel(frame, places, must=True, serve=serve)
            if serve:
                model.serve_at_least(schedule.served)
                model.guard()
                model.hint(self.best)
            solver, answer = self.clock.settle(model.model, self.effort.pack, 0.5)
            if answer in SOLVED:
                plan = model.plan(solver, self.best)
                self.keep(plan)
                if self.guarded(plan):
                    return cp_model.FEASIBLE
                answer = cp_model.UNKNOWN
        return answer

    def _served(self) -> int:
        """What services are given in the frame by the best plan, in units."""
        within, total = set(self.frame.rows), 0
        for service in self.frame.services:
            held = sum(
                gpu in within for rows in self.best.realtime[service.job.name] for gpu in rows
            )
            total += self.units.up(self.frame.missed(service)) * held
        return total

    def _places(self, frame: Frame, schedule: Schedule) -> Places:
        """Every block on which each scheduled work may run from its start."""
        places: dict[str, list[tuple[int, int]]] = {}
        for work in frame.works:
            if work.name in schedule.starts:
                pool, start = schedule.starts[work.name]
                places[work.name] = [
                    (first, start)
                    for first, starts in frame.options(work)
                    if starts >> start & 1 and frame.pool_of[first] == pool
                ]
        return places

    def repair(self, schedule: Schedule) -> None:
        """The best plan whose starts lie near the schedule's, or are those of the best so far."""
        now = {a.job: a for a in self.best.assignments}
        places: dict[str, list[tuple[int, int]]] = {}
        for work in self.frame.works:
            near = 0
            if work.name in schedule.starts:
                start = schedule.starts[work.name][1]
                near = ((1 << (2 * NEAR + 1)) - 1) << start >> NEAR
            found = places[work.name] = []
            for first, starts in self.frame.options(work):
                word = starts & near
                found.extend((first, t) for t in range(word.bit_length()) if word >> t & 1)
            a = now.get(work.name)
            if a is not None and (a.first_gpu, a.start) not in found:
                found.append((a.first_gpu, a.start))
        if sum(map(len, places.values())) > self.effort.places:
            return
        model = IdentityModel(self.frame, places, must=False)
        model.guard()
        model.maximise_value()
        model.hint(self.best)
        solver, status = self.clock.solve(model.model, self.effort.repair, 0.5)
        if status in SOLVED:
            self.keep(model.plan(solver, self.best))

    def core(self, schedule: Schedule) -> Collection[str]:
        """Few works whose starts alone can't be given GPUs beside the services."""
        core = sorted(schedule.starts, key=lambda name: schedule.starts[name][1])
        size = len(core) // 2
        while size and not self.clock.over:
            for at in range(0, len(core), size):
                fewer = core[:at] + core[at + size :]
                part = Schedule({name: schedule.starts[name] for name in fewer}, schedule.served)
                places = self._places(self.frame, part)
                model = IdentityModel(self.frame, places, must=True)
                model.serve_at_least(schedule.served)
                _, status = self.clock.settle(model.model, self.effort.core, 0.1)
                if status == cp_model.INFEASIBLE:
                    core = fewer
                    break
            else:
                size //= 2
        return core

    def keep(self, plan: Plan) -> bool:
        """Take a plan if it is worth more and every budget keeps what it is owed."""
        value = objective(self.frame.problem, plan)
        if value <= self.value + 1e-9 * abs(self.value) or not self.guarded(plan):
            return False
        self.best, self.value = oldest_first(self.frame, plan), value
        self.bound = max(self.bound, value)
        return True

    def guarded(self, plan: Plan) -> bool:
        """Whether the plan keeps the guard; models of a part of it can't always tell."""
        return not check_guard(self.frame.problem, plan, self.construction)


def oldest_first(frame: Frame, plan: Plan) -> Plan:
    """The same plan, in which works alike but for their age take each other's places by age."""
    placed = {a.job: a for a in plan.assignments}
    for _ in frame.works:  # pairs of neighbours, until none is out of order
        swapped = False
        for older, younger in alike(frame.works):
            a, b = placed.get(older.name), placed.get(younger.name)
            if b is not None and (a is None or b.start < a.start):
                placed.pop(younger.name)
                placed[older.name] = b._replace(job=older.name)
                if a is not None:
                    placed[younger.name] = a._replace(job=younger.name)
                swapped = True
        if not swapped:
            break
    order = sorted(placed.values(), key=lambda a: (a.start, a.job))
    kept = {a.job for a in frame.kept}
    moved = [a for a in order if a.job not in kept]
    return replace(plan, assignments=(*frame.kept, *moved))
