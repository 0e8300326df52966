"""Why a job waits, from the pass that decided: which rule binds, who holds its block, and when."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from .bits import Busy, span
from .compiled import explaining as compiled
from .compiled.explaining import Told
from .compiled.tables import Rows, Words
from .heuristic import Construction
from .plan import Plan, Reason, Reasons, Rule
from .problem import REST, Job, RealtimeJob
from .realtime import words_of

RULES = {
    compiled.NOW: Rule.STARTS_NOW,
    compiled.ARRIVAL: Rule.ARRIVAL,
    compiled.BEYOND: Rule.BEYOND_HORIZON,
    compiled.NO_BLOCK: Rule.NO_BLOCK,
    compiled.DRAINING: Rule.DRAINING,
    compiled.POOL: Rule.POOL,
    compiled.BEHIND: Rule.BEHIND,
}


def explain(construction: Construction, plan: Plan) -> Reasons:
    """A reason for every job that is not running yet, in the order of their turns.

    A job that was planned behind a filler is told when it was due: from then on it may stop it.
    """

    def told() -> Iterator[Reason]:
        for reason in Explainer(construction, plan).reasons():
            yield _as_promised(reason, construction.promised)

    return Reasons(told)


class Explainer:
    """Reasons for one plan; its assignments come in the order in which they were decided."""

    def __init__(self, construction: Construction, plan: Plan) -> None:
        self.construction, self.problem = construction, construction.problem
        self.layout = construction.layout
        self.assignments = plan.assignments
        self.rows: Rows = construction.turned
        self.names = [construction.name(i) for i in self.rows.tolist()]
        self.services = list(plan.realtime)
        self.serving = self._serving(plan)
        self.plan = self._table()
        self.position = self._positions()

    def reasons(self) -> Iterator[Reason]:
        """One for each item, in the order of their turns."""
        told = self._tell()
        table, rows = self.construction.table, self.rows
        columns = (
            *(told.rule, told.node, told.begins[:-1], told.begins[1:]),
            *(table.gpus[rows], table.funded[rows], self.position),
        )
        listed = zip(*(column.tolist() for column in columns), strict=True)
        holders = [a.job for a in self.assignments] + self.services
        behind = told.behind.tolist()
        for n, (rule, node, begin, end, gpus, funded, at) in enumerate(listed):
            names = self._ahead(rule, sorted(holders[j] for j in behind[begin:end]))
            yield Reason(
                job=self.names[n],
                rule=self._rule(rule, funded, names),
                gpus=gpus,
                start=None if at < 0 else self.assignments[at].start,
                behind=tuple(names),
                node=self.problem.nodes[node].name if rule == compiled.DRAINING else None,
                pools=self._pools(told, n) if rule == compiled.POOL else (),
            )

    def _ahead(self, rule: int, names: list[str]) -> list[str]:
        """Those that a job comes behind; what runs is no matter of order, if that is not all."""
        if rule != compiled.BEHIND:
            return names
        jobs = self.problem.by_name
        waiting = [name for name in names if name not in jobs or not _runs(jobs[name])]
        return waiting or names

    def _rule(self, rule: int, funded: bool, behind: list[str]) -> Rule:
        if rule != compiled.BEHIND or funded:
            return RULES[rule]
        jobs = self.problem.by_name
        unfunded = any(jobs[name.removesuffix(REST)].funded for name in behind)
        return Rule.UNFUNDED_BEHIND if unfunded else Rule.BEHIND

    def _pools(self, told: Told, n: int) -> tuple[str, ...]:
        """Pools the item did not ask for in which it could start at once."""
        return tuple(
            pool for pool, here in zip(self.layout.pool_gpus, told.pools[n], strict=True) if here
        )

    def _tell(self) -> Told:
        """Ask once, and again with more room where the answer is longer than was thought."""
        layout, drains = self.layout, bool(self.problem.drains)
        still = self._still(layout.drained)
        undrained = self._still(np.zeros_like(layout.drained)) if drains else still
        final = still.copy()
        for a in self.assignments:
            final.hold(a.first_gpu, a.gpus, span(a.start, a.end))
        room = 8 * len(self.rows) + 64
        while True:
            told = self._room(room)
            compiled.tell(
                layout.fleet, self.construction.table, self.rows, self.position, self.plan,
                layout.domain, layout.drained, still.grid, undrained.grid, final.grid, drains, told,
            )  # fmt: skip
            needed = int(told.begins[-1])
            if needed <= room:
                return told
            room = needed

    def _room(self, behind: int) -> Told:
        n = len(self.rows)
        return Told(
            rule=np.zeros(n, np.int64),
            node=np.zeros(n, np.int64),
            pools=np.zeros((n, len(self.layout.pool_gpus)), np.bool_),
            behind=np.zeros(behind, np.int64),
            begins=np.zeros(n + 1, np.int64),
            seen=np.full(len(self.assignments) + len(self.services), -1, np.int64),
        )

    def _serving(self, plan: Plan) -> Words:
        """Per service: the word of timesteps in which it holds each GPU."""
        serving = np.zeros((len(self.services), self.layout.gpus), np.uint64)
        for s, name in enumerate(self.services):
            for gpu, word in words_of(plan.realtime[name]).items():
                serving[s, gpu] = word
        return serving

    def _table(self) -> compiled.Plan:
        boxes = [(a.first_gpu, a.gpus, a.start, a.end) for a in self.assignments]
        first, gpus, start, end = np.array(boxes, np.int64).reshape(-1, 4).T.copy()
        table = compiled.Plan(
            *(first, gpus, start, end, self.serving, np.zeros(int(gpus.sum()), np.int64)),
            begins=np.zeros(self.layout.gpus + 1, np.int64),
        )
        compiled.list_by_gpu(table)
        return table

    def _positions(self) -> Rows:
        place = {a.job: at for at, a in enumerate(self.assignments)}
        return np.array([place.get(name, -1) for name in self.names], np.int64)

    def _still(self, drained: Words) -> Busy:
        """What no waiting job changes: drains, real time and what already runs."""
        rows = drained | np.bitwise_or.reduce(self.serving, axis=0, initial=np.uint64(0))
        columns = self.problem.columns
        runs = {columns.names[row] for row in np.flatnonzero(columns.running).tolist()}
        for a in self.assignments:
            if a.job in runs:
                rows[a.first_gpu : a.first_gpu + a.gpus] |= np.uint64(span(a.start, a.end))
        return Busy(self.layout, rows)


def _runs(job: Job) -> bool:
    return job.held is not None if isinstance(job, RealtimeJob) else job.running is not None


def _as_promised(reason: Reason, promised: Mapping[str, int]) -> Reason:
    due = promised.get(reason.job)
    if due is None or (reason.start is not None and reason.start <= due):
        return reason
    return replace(reason, start=due)
