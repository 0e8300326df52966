"""What a kept simulation is played with: its jobs, its fleet and its trees."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from allocator.core.events import NOTHING, Events
from allocator.core.fairshare import ShareNode, read_tree
from allocator.core.problem import Node
from allocator.core.scenario import parse_json
from allocator.core.simulation.fleet import Fleet
from allocator.core.simulation.setup import equal_tree, nodes_of, tree_of
from allocator.core.traces import DAY_S, Trace, read_csv, read_swf
from allocator.core.validate import ProblemError
from allocator.models import Simulation
from allocator.simulating import given, history, trees
from allocator.simulating.history import Past
from allocator.simulating.trees import SharesTree
from budgets.refusals import Refused
from clusters import services as clusters
from clusters.saying import number
from clusters.saying import say as _

ORDER = ("now", "given", "draft")
MOST_GPUS = 4096
MOST_NODES = 2000  # of a tree file, or groups of a trace: each has figures in each course
MOST_LEVELS = 20


@dataclass(frozen=True)
class Inputs:
    """Jobs, fleet and span; ``past`` where they are the own history's."""

    trace: Trace
    nodes: tuple[Node, ...]
    seconds: int
    past: Past | None
    events: Events = NOTHING  # within the span
    given: Events = NOTHING  # all that were asked for, where some were


def load(row: Simulation, *, now: datetime) -> Inputs:
    """Read what is to be played. Refused where it can't be, naming the field."""
    nodes = fleet_of(row)
    if row.starts_at is not None and row.ends_at is not None:
        past = history.read(
            start=row.starts_at,
            end=row.ends_at,
            now=now,
            leaves=trees.common_leaves(trees_of(row).values()),
            nodes=nodes,
        )
        events = _given(row, past.nodes)
        befalls = events.between(0, past.seconds) if events else past.events
        return Inputs(past.trace, past.nodes, past.seconds, past, befalls, events)
    trace = parsed(row)
    nodes = nodes or in_use(now)
    _check_groups(row, trace)
    _check_blocks(trace, nodes)
    seconds, events = trace.days * DAY_S, _given(row, nodes)
    return Inputs(trace, nodes, seconds, None, events.between(0, seconds), events)


def _given(row: Simulation, nodes: tuple[Node, ...]) -> Events:
    names = [node.name for node in nodes]
    return given.read(row.events, "events.csv", names) if row.events else NOTHING


def check_events(row: Simulation, asked: given.Asked, *, now: datetime) -> None:
    """Keep what is to befall the nodes. Refused where it can't be read."""
    if not asked:
        return
    nodes = fleet_of(row)
    if asked.planned and nodes is not None:
        raise Refused(
            "planned_windows",
            _("Windows are planned for our own nodes: leave the fleet empty, or the windows out."),
        )
    if nodes is None:
        nodes = in_use(now) if row.ends_at is None else history.fleet(end=row.ends_at)
    row.events = given.kept(asked, nodes, now=now)
    row.events_name = asked.name if asked.text else ""
    row.planned_windows = asked.planned


def trees_of(row: Simulation) -> dict[str, SharesTree]:
    """Return the trees to play it under, by name, today's first."""
    named = [name for name in ORDER if name in row.trees]
    return {name: SharesTree.from_json(row.trees[name]) for name in named}


def fleet_of(row: Simulation) -> tuple[Node, ...] | None:
    """Return the nodes that were asked for; None: those that there are."""
    if not row.nodes:
        return None
    try:
        nodes = nodes_of(row.nodes)
    except ProblemError as error:
        raise Refused("nodes", str(error).removeprefix("--nodes ")) from None
    if sum(node.gpus for node in nodes) > MOST_GPUS:
        raise Refused(
            "nodes",
            _("A simulation has at most %(most)s GPUs: give fewer nodes.", most=number(MOST_GPUS)),
        )
    return nodes


def parsed(row: Simulation) -> Trace:
    """Return the jobs of the trace that is kept; Refused for the first row that can't be read."""
    name = row.trace_name or "trace.csv"
    read = read_swf if name.lower().endswith(".swf") else read_csv
    try:
        trace = read(row.trace.splitlines(keepends=True), name)
    except ProblemError as error:
        raise Refused("trace", str(error)) from None
    if trace.problems:
        raise Refused("trace", given.unreadable(trace.problems))
    if not trace.rows:
        raise Refused("trace", _("The trace has no jobs: give a line for each."))
    return trace


def equal(row: Simulation) -> SharesTree:
    """Return one organisation whose projects are the trace's groups, with equal shares."""
    groups = parsed(row).groups
    if len(groups) > MOST_NODES:
        raise Refused(
            "trace",
            _(
                "The trace has %(count)s groups, and at most %(most)s go: put some together.",
                count=number(len(groups)),
                most=number(MOST_NODES),
            ),
        )
    return SharesTree(equal_tree(groups), {})


def from_file(text: str, today: SharesTree, sees: Callable[[str], bool]) -> SharesTree:
    """Return a tree file's tree, parents before children.

    Its nodes are budgets where they are called as those of today that the person sees: of the
    others no job is played, whatever stands in the file, and nobody learns that there is one.
    """
    try:
        nodes = tree_of(_parents_first(read_tree(parse_json(text.encode()))), ())
    except ProblemError as error:
        raise Refused("tree", _("The tree file: %(error)s", error=error)) from None
    names = {node.path for node in nodes}
    own = {pk: path for pk, path in today.budgets.items() if path in names and sees(path)}
    return SharesTree(nodes, own)


def _parents_first(nodes: Sequence[ShareNode]) -> Sequence[ShareNode]:
    """Put each node before those below it. Raises ProblemError where they are too many, too deep
    or unkeepable; those that hang on no root are left where they are, for `tree_of` to name."""
    if len(nodes) > MOST_NODES:
        raise ProblemError(f"it has {len(nodes):,} nodes, and at most {MOST_NODES:,} go.")
    below: dict[str | None, list[ShareNode]] = defaultdict(list)
    for node in nodes:
        if "\0" in node.name:
            raise ProblemError(f"node {node.name!r}: leave out the NUL, which no database keeps.")
        below[node.parent].append(node)
    found: list[ShareNode] = []
    line = [(node, 1) for node in reversed(below[None])]
    while line:
        node, level = line.pop()
        if level > MOST_LEVELS:
            raise ProblemError(f"it has over {MOST_LEVELS} levels: put some together.")
        found.append(node)
        line += ((child, level + 1) for child in reversed(below[node.name]))
    return found if len(found) == len(nodes) else nodes


def _check_groups(row: Simulation, trace: Trace) -> None:
    for tree in trees_of(row).values():
        inner = {node.parent for node in tree.nodes}
        leaves = {node.path for node in tree.nodes} - inner
        lost = sorted(set(trace.groups) - leaves)
        if lost:
            raise Refused(
                "trace",
                _(
                    "The trace's group %(lost)s is no leaf of the tree: choose equal shares, or "
                    "give a tree file with it.",
                    lost=repr(lost[0]),
                ),
            )


def _check_blocks(trace: Trace, nodes: tuple[Node, ...]) -> None:
    blocks = Fleet(nodes)
    for job in trace.jobs:
        if not blocks.fits(job.block):
            raise Refused(
                "nodes",
                _(
                    "Job %(job_id)s needs %(block)s GPUs in one block, and the fleet has no such "
                    "block: give more or larger nodes.",
                    job_id=repr(job.job_id),
                    block=job.block,
                ),
            )


def in_use(now: datetime) -> tuple[Node, ...]:
    """Return the nodes that there are. Refused where there are none."""
    nodes = (node for node in clusters.all_nodes() if node.is_active(now))
    found = tuple(Node(node.name, node.gpus, node.pool.slug) for node in nodes)
    if not found:
        raise Refused("nodes", _("There are no GPUs in use: give nodes, as in 56x8."))
    return found
