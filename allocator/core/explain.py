"""Why a job waits, from the pass that decided: which rule binds, who holds its block, and when."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from .bits import Busy, span, union
from .compiled.tables import Words
from .heuristic import Construction
from .items import Item, allowed_starts
from .layout import Layout
from .plan import Assignment, Plan, Reason, Reasons, Rule
from .problem import REST
from .realtime import Sets, words_of


class Explainer:
    """Reasons for one plan; assignments come in the order in which they were decided."""

    def __init__(self, construction: Construction, plan: Plan) -> None:
        self.problem = construction.problem
        self.layout: Layout = construction.layout
        self.assignments = assignments = plan.assignments
        self.place = {a.job: i for i, a in enumerate(assignments)}
        self.runs = {job.name for job in self.problem.batch if job.running is not None}
        self._service_words = self._words_of_services(plan.realtime)
        self.still = self._still(self.layout.drained)
        none = np.zeros_like(self.layout.drained)
        self.undrained = self._still(none) if self.problem.drains else self.still
        self.final = Busy(self.layout, self.still.rows)
        for a in assignments:
            self.final.hold(a.first_gpu, a.gpus, span(a.start, a.end))
        self._table = np.array(
            [(a.first_gpu, a.first_gpu + a.gpus, a.start, a.end) for a in assignments] or [(0,) * 4]
        )

    def _words_of_services(self, realtime: Mapping[str, Sets]) -> dict[str, Words]:
        """Per service: the word of timesteps in which it holds each GPU."""
        services = {}
        for name, sets in realtime.items():
            services[name] = np.zeros_like(self.layout.drained)
            for gpu, word in words_of(sets).items():
                services[name][gpu] = word
        return services

    def _still(self, drained: Words) -> Busy:
        """What no waiting job changes: drains, real time and what already runs."""
        rows = drained.copy()
        for words in self._service_words.values():
            rows |= words
        for a in self.assignments:
            if a.job in self.runs:
                rows[a.first_gpu : a.first_gpu + a.gpus] |= np.uint64(span(a.start, a.end))
        return Busy(self.layout, rows)

    def reason(self, item: Item) -> Reason:
        """The binding rule of one item, and its start."""
        at = self.place.get(item.name)
        own = None if at is None else self.assignments[at]
        start = None if own is None else own.start
        if start == 0:
            return Reason(item.name, Rule.STARTS_NOW, item.gpus, 0)
        if start == item.earliest:
            return Reason(item.name, Rule.ARRIVAL, item.gpus, start)
        if not allowed_starts(self.problem, item):
            return Reason(item.name, Rule.BEYOND_HORIZON, item.gpus, None)
        behind = self._behind(item, own, len(self.assignments) if at is None else at)
        if not self._could_start(self.still, item, item.pools):
            if self.undrained is not self.still and self._could_start(
                self.undrained, item, item.pools
            ):
                node = self._drained_node(item)
                return Reason(item.name, Rule.DRAINING, item.gpus, start, behind, node)
            return Reason(item.name, Rule.NO_BLOCK, item.gpus, start, behind)
        pools = self._open_pools(item)
        if pools:
            return Reason(item.name, Rule.POOL, item.gpus, start, behind, pools=pools)
        rule = Rule.BEHIND
        if not item.funded and any(self._funded(name) for name in behind):
            rule = Rule.UNFUNDED_BEHIND
        return Reason(item.name, rule, item.gpus, start, behind)

    def _funded(self, name: str) -> bool:
        return self.problem.by_name[name.removesuffix(REST)].funded

    def _window(self, item: Item) -> int:
        return span(item.earliest, min(item.earliest + item.length, self.layout.horizon))

    def _could_start(self, busy: Busy, item: Item, pools: tuple[str, ...]) -> bool:
        """Whether some block is free from the item's earliest timestep on."""
        return bool((self._in_the_way(busy, item, pools) == 0).any())

    def _in_the_way(self, busy: Busy, item: Item, pools: tuple[str, ...]) -> Words:
        words = busy.block_words(item.gpus) & np.uint64(self._window(item))
        if pools:
            words = words | self.layout.outside(pools)
        return words

    def _open_pools(self, item: Item) -> tuple[str, ...]:
        """Pools the item did not ask for in which it could start at once."""
        if not item.pools:
            return ()
        free = np.flatnonzero(self._in_the_way(self.final, item, ()) == 0)
        pools = {self.layout.pool_of[first] for first in free.tolist()}
        return tuple(sorted(pools - set(item.pools)))

    def _nearest_block(self, busy: Busy, item: Item) -> int | None:
        """The block with the fewest busy timesteps in the item's window."""
        legal = self.layout.wall(item.gpus) == 0
        if item.pools:
            legal = legal & (self.layout.outside(item.pools) == 0)
        if not legal.any():
            return None
        counts = np.bitwise_count(self._in_the_way(busy, item, ())).astype(np.int64)
        return int(np.argmin(np.where(legal, counts, 65)))

    def _behind(self, item: Item, own: Assignment | None, before: int) -> tuple[str, ...]:
        """Jobs decided before that hold the item's block between its earliest and its start."""
        first = own.first_gpu if own is not None else self._nearest_block(self.final, item)
        if first is None:
            return ()
        last, since = first + item.gpus, item.earliest
        until = own.start if own is not None else since + item.length
        low, high, start, end = self._table[:before].T
        hit = np.flatnonzero((low < last) & (first < high) & (start < until) & (since < end))
        names = {self.assignments[i].job for i in hit.tolist()}
        window = span(since, min(until, self.layout.horizon))
        for name, words in self._service_words.items():
            if union(words[first:last]) & window:
                names.add(name)
        return tuple(sorted(names))

    def _drained_node(self, item: Item) -> str | None:
        """A drained node on a block the item could otherwise start on."""
        free = self._in_the_way(self.undrained, item, item.pools) == 0
        for first in np.flatnonzero(free).tolist():
            for gpu in range(first, first + item.gpus):
                if int(self.layout.drained[gpu]) & self._window(item):
                    return self.problem.nodes[self.problem.node_of[gpu]].name
        return None


def explain(construction: Construction, plan: Plan) -> Reasons:
    """A reason for every job that is not running yet, in the order of their turns.

    A job that was planned behind a filler is told when it was due: from then on it may stop it.
    """

    def told() -> Iterator[Reason]:
        explainer = Explainer(construction, plan)
        for item in construction.items:
            yield _as_promised(explainer.reason(item), construction.promised)

    return Reasons(told)


def _as_promised(reason: Reason, promised: Mapping[str, int]) -> Reason:
    due = promised.get(reason.job)
    if due is None or (reason.start is not None and reason.start <= due):
        return reason
    return replace(reason, start=due)
