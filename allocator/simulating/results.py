"""What came of a simulation: figures for the API and pages, and every run for the pictures."""

import json
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from allocator import delivery
from allocator.core.simulate import Played
from allocator.core.simulation.measures import Outcome, measure, waits_of
from allocator.core.simulation.services import Served
from allocator.core.simulation.world import Ran
from allocator.models import Simulation
from allocator.simulating import telling
from allocator.simulating.history import Past
from allocator.simulating.inputs import Inputs, trees_of
from allocator.simulating.trees import SharesTree
from budgets.access import Standing
from budgets.models import Budget

HIDDEN = ""  # stands for the name of a budget that the reader may not see


@dataclass(frozen=True)
class Course:
    """One policy under one tree: its figures, all its runs, and what services held."""

    shares: str  # the tree's name: now, draft or given
    outcome: Outcome
    runs: list[Ran]
    served: list[Served]


def course(shares: str, policy: str, played: Played) -> Course:
    """Measure what was played, and keep its runs."""
    outcome = measure(played.world, played.jobs, policy, played.decisions)
    return Course(shares, outcome, played.world.runs(), played.world.services.served())


def result(row: Simulation, loaded: Inputs, played: Iterable[Course]) -> dict[str, Any]:
    """Return all figures as they are kept."""
    past, gpus = loaded.past, sum(node.gpus for node in loaded.nodes)
    noted = telling.notes(loaded.trace, loaded.events, gpus, given=loaded.given, past=past)
    return {
        "jobs": len(loaded.trace.jobs),
        "gpus": gpus,
        "seconds": loaded.seconds,
        "notes": telling.in_english(noted),
        "noted": noted,  # the same, to be told in a reader's language
        "courses": [{"shares": one.shares, **one.outcome.to_dict()} for one in played],
        "did": None if past is None else _did(row, past),
    }


def _did(row: Simulation, past: Past) -> list[dict[str, Any]]:
    """What each budget of today's tree really got in the window, in the order of the tree."""
    tree = next(iter(trees_of(row).values()))
    above = _above(tree)
    held: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    starts: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for did in past.did.values():
        for path in above[did.path]:
            held[path][0] += did.funded_gpu_seconds
            held[path][1] += did.unfunded_gpu_seconds
            if not did.is_service:
                starts[path].append((did.submitted_s, did.first_start_s))
    ids = {path: pk for pk, path in tree.budgets.items()}
    due = delivery.summary(start=past.start, end=past.end)
    nothing = delivery.Delivered()
    return [
        {
            "path": node.path,
            "parent": node.parent,
            "funded_gpu_seconds": held[node.path][0],
            "unfunded_gpu_seconds": held[node.path][1],
            **asdict(due.get(ids.get(node.path, 0), nothing)),
            "waits": asdict(waits_of(starts[node.path], past.seconds)),
        }
        for node in tree.nodes
    ]


def _above(tree: SharesTree) -> dict[str, list[str]]:
    """Each node with all above it; parents stand before children."""
    found: dict[str, list[str]] = {}
    for node in tree.nodes:
        found[node.path] = [node.path, *(found[node.parent] if node.parent else ())]
    return found


def picture(loaded: Inputs, played: Collection[Course]) -> bytes:
    """Return every run of every course, small enough to keep."""
    kept = {
        "nodes": [[node.name, node.gpus, node.pool] for node in loaded.nodes],
        "jobs": [
            [job.job_id, job.group, job.block, job.duration_s, job.parked_s]
            for job in (*loaded.trace.jobs, *loaded.trace.services)
        ],
        "runs": [[list(ran) for ran in one.runs] for one in played],
        "served": [[list(stretch) for stretch in one.served] for one in played],
        "empty": list(_empty(loaded)),
    }
    return zlib.compress(json.dumps(kept, separators=(",", ":")).encode())


def _empty(loaded: Inputs) -> Iterator[list[Any]]:
    """Yield [node, from, to, whether it was down, whether it wasn't there yet] of windows, as they
    were last known, and of failures; seconds of the span."""
    for window in loaded.events.windows:
        if window.replaced_s is None or window.replaced_s >= loaded.seconds:
            yield _span(window.node, window.start_s, window.end_s, loaded.seconds, down=False)
    for one in loaded.events.failures:
        yield [*_span(one.node, one.down_s, one.up_s, loaded.seconds, down=True), one.is_new]


def _span(node: str, start: int, end: int | None, seconds: int, *, down: bool) -> list[Any]:
    return [node, max(0, start), seconds if end is None else min(end, seconds), down]


def runs_of(row: Simulation) -> dict[str, Any] | None:
    """Return what `picture` kept; None before it is done."""
    if row.picture is None:
        return None
    kept: dict[str, Any] = json.loads(zlib.decompress(bytes(row.picture)))
    return kept


def is_of_budgets(row: Simulation) -> bool:
    """Say whether its groups are the product's budgets, which not everybody may see."""
    free = (Simulation.Shares.FILE, Simulation.Shares.EQUAL)
    return row.is_of_history or row.shares not in free


def seen(row: Simulation, held: Standing) -> dict[str, Any] | None:
    """Return the result as far as someone may see the budgets in it; None before it is done."""
    if row.result is None:
        return None
    if not is_of_budgets(row):
        return dict(row.result)
    sight, did = Sight(row, held), row.result["did"]
    return {
        **row.result,
        "courses": [_course_seen(one, sight) for one in row.result["courses"]],
        "did": None if did is None else sight.rows(did),
    }


def _course_seen(one: Mapping[str, Any], sight: "Sight") -> dict[str, Any]:
    # Those that were kept before worst budgets by window had names have none.
    named = {name: one.get(name, "") for name in ("worst_budget", "worst_budget_by_window")}
    seen = {
        name: sight.called(path) if sight.sees(path) else HIDDEN for name, path in named.items()
    }
    return {**one, **seen, "budgets": sight.rows(one["budgets"])}


class Sight:
    """Which of a simulation's budgets somebody sees, and where those stand today. Two queries.

    What is kept names budgets by their paths of back then. Since then one may have moved out of
    sight, and another one may have its path. In a tree file anybody may have put any budget under
    any name: a node of one is seen by who sees all that is below it.
    """

    def __init__(self, row: Simulation, held: Standing) -> None:
        self._held = held
        self._is_file = row.shares == Simulation.Shares.FILE
        trees = list(trees_of(row).values())
        ids = {path: pk for tree in trees for pk, path in tree.budgets.items()}
        paths = dict(Budget.objects.values_list("pk", "path"))
        self._now = {path: paths[pk] for path, pk in ids.items() if pk in paths}
        self._hidden = self._above_hidden(trees[0]) if self._is_file else set()

    def _above_hidden(self, tree: SharesTree) -> set[str]:
        """The nodes of a tree file that are, or have below them, a budget out of sight."""
        above, found = _above(tree), set[str]()
        for path, now in self._now.items():
            if not self._held.sees(now):
                found.update(above[path])
        return found

    def sees(self, path: str) -> bool:
        """Say whether they see the budget, or the node of a tree file, that was called so."""
        if self._is_file:
            return path not in self._hidden
        return path in self._now and self._held.sees(self._now[path])

    def now(self, path: str) -> str:
        """Return the path today of the budget that was called so."""
        return self._now.get(path, path)

    def called(self, path: str) -> str:
        """Return what figures call it: where it stands today; a tree file's nodes as it does."""
        return path if self._is_file else self.now(path)

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the figures of those that they see, under the paths of today."""
        return [
            {**one, "path": self.called(one["path"]), "parent": self._parent(one["parent"])}
            for one in rows
            if self.sees(one["path"])
        ]

    def _parent(self, path: str | None) -> str | None:
        if path is None or self._is_file:
            return path
        now = self.now(path)
        return now if self._held.knows(now) else HIDDEN
