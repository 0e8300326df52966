"""The proof that no GPU-second is lost or counted twice: ledger on one side, GPU logs on the other.

Charged + unfunded + free + down = inventory, per pool and timestep. Charged and unfunded are sums
of charges; free and down are counted in the logs of the connectors' observations, GPU by GPU;
inventory in the dates of the nodes. Nothing is found by subtraction.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import OuterRef, Q, QuerySet, Subquery, Sum

from clusters.models import GpuState, Node, Pool
from ledger.instants import from_seconds, iso, span, to_seconds
from ledger.models import ClosedTimestep, Entry
from workloads.models import Holding

AT_ONCE = 336  # timesteps: a week of half hours
Place = tuple[int, int]  # a pool's id and the start of a timestep in seconds since 1970


@dataclass(frozen=True, slots=True)
class ConservationRow:
    """One pool in one closed timestep, in GPU-seconds. ``unaccounted``: no log tells the state."""

    pool: str
    timestep: datetime
    charged: int
    unfunded: int
    free: int
    down: int
    unaccounted: int
    inventory: int

    @property
    def difference(self) -> int:
        """Inventory less all that is known of it; 0 where the books are right."""
        return self.inventory - self.charged - self.unfunded - self.free - self.down

    @property
    def is_proven(self) -> bool:
        """Whether both sides agree, and the logs tell of every GPU-second."""
        return self.difference == 0 and self.unaccounted == 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A timestep of a pool whose books aren't right, in GPU-seconds, and where to look.

    ``gpu_seconds`` is 0 where all that is missing is a log: the charges alone make up the sum.
    """

    pool: str
    timestep: datetime
    gpu_seconds: int
    unaccounted: int
    nodes: tuple[str, ...]
    runs: tuple[str, ...]

    def __str__(self) -> str:
        where = ", ".join((*self.nodes, *self.runs)) or "no node or run that differs"
        return f"{self.pool} {iso(self.timestep)}: {self._what()}: {where}"

    def _what(self) -> str:
        if self.gpu_seconds == 0:
            return f"no log tells the state of {self.unaccounted} GPU-seconds"
        much = "more than is known" if self.gpu_seconds > 0 else "less than was counted"
        return f"inventory is {abs(self.gpu_seconds)} GPU-seconds {much}"


@dataclass(slots=True)
class _Counts:
    """GPU-seconds of one place by the logs."""

    held: int = 0
    free: int = 0
    down: int = 0
    unaccounted: int = 0
    inventory: int = 0

    def add(self, other: "_Counts") -> None:
        self.held += other.held
        self.free += other.free
        self.down += other.down
        self.unaccounted += other.unaccounted
        self.inventory += other.inventory


@dataclass(slots=True)
class _Books:
    """Both sides of every pool and timestep, and the logs' side per node."""

    timesteps: list[tuple[int, int]]
    nodes: dict[int, Node]
    by_node: dict[tuple[int, int], _Counts] = field(default_factory=dict)
    charged: dict[Place, int] = field(default_factory=dict)
    unfunded: dict[Place, int] = field(default_factory=dict)


def conservation(*, start: datetime, end: datetime) -> list[ConservationRow]:
    """Return a row per pool and closed timestep inside [start, end). A constant number of queries
    for a week of half hours, which is what is kept in memory at a time.

    Per node it steps through the log with bit masks, whole second by whole second in effect: of
    each stretch between two log instants it counts the bits that were free and down.
    """
    rows = [row for window in _windows(start, end) for row in _rows(_load(*window))]
    place = {slug: at for at, slug in enumerate(_pools().values_list("slug", flat=True))}
    return sorted(rows, key=lambda row: place[row.pool])


def differences(*, start: datetime, end: datetime) -> list[Difference]:
    """Return every pool and timestep in [start, end) where the two sides differ.

    Names the nodes whose log differs from what runs held there, and those runs, and the runs
    whose charges differ from what they held.
    """
    return [one for window in _windows(start, end) for one in _differences(_load(*window))]


def _windows(start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Return the closed timesteps inside [start, end), a few hundred to a window."""
    start, end = span(start, end)
    closed = ClosedTimestep.objects.filter(start__gte=start, end__lte=end).order_by("start")
    rows = list(closed.values_list("start", "end"))
    firsts = range(0, len(rows), AT_ONCE)
    return [(rows[one][0], rows[min(one + AT_ONCE, len(rows)) - 1][1]) for one in firsts]


def _differences(books: _Books) -> list[Difference]:
    wrong = [row for row in _rows(books) if not row.is_proven]
    if not wrong:
        return []
    held = _held_by_runs(books)
    slugs = {node.pool.slug: node.pool_id for node in books.nodes.values()}
    return [
        Difference(
            row.pool,
            row.timestep,
            row.difference,
            row.unaccounted,
            *_suspects(books, held, slugs[row.pool], to_seconds(row.timestep)),
        )
        for row in wrong
    ]


def _load(start: datetime, end: datetime) -> _Books:
    closed = ClosedTimestep.objects.filter(start__gte=start, end__lte=end)
    timesteps = [
        (to_seconds(low), to_seconds(high))
        for low, high in closed.order_by("start").values_list("start", "end")
    ]
    nodes = {node.pk: node for node in Node.objects.select_related("pool").order_by("pk")}
    books = _Books(timesteps, nodes)
    if not timesteps:
        return books
    low, high = from_seconds(timesteps[0][0]), from_seconds(timesteps[-1][1])
    _add_charges(books, low, high)
    logs = _logs(low, high)
    for node in nodes.values():
        for timestep, counts in _count(node, logs.get(node.pk, []), timesteps):
            books.by_node[node.pk, timestep] = counts
    return books


def _add_charges(books: _Books, start: datetime, end: datetime) -> None:
    charges = Entry.objects.filter(kind=Entry.Kind.CHARGE, timestep__gte=start, timestep__lt=end)
    charges = charges.exclude(pool=None)  # of no place: `ledger.checks` names it
    rows = (
        charges.order_by()
        .values_list("pool_id", "timestep")
        .annotate(
            charged=Sum("gpu_seconds", filter=Q(funded=True), default=0),
            unfunded=Sum("gpu_seconds", filter=Q(funded=False), default=0),
        )
    )
    for pool_id, timestep, charged, unfunded in rows:
        assert pool_id is not None
        assert timestep is not None
        place = pool_id, to_seconds(timestep)
        books.charged[place], books.unfunded[place] = charged, unfunded


def _logs(start: datetime, end: datetime) -> dict[int, list[tuple[int, int, int, int]]]:
    """Return each node's log as (instant, held, free, down), from the last state before start."""
    before = GpuState.objects.filter(node=OuterRef("pk"), at__lte=start).order_by("-at")
    last = Node.objects.annotate(last=Subquery(before.values("pk")[:1])).values("last")
    states = GpuState.objects.filter(Q(pk__in=last) | Q(at__gt=start, at__lt=end))
    logs: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for node_id, at, held, free, down in states.order_by("node_id", "at").values_list(
        "node_id", "at", "held", "free", "down"
    ):
        logs[node_id].append((to_seconds(at), held, free, down))
    return logs


def _count(
    node: Node, log: Sequence[tuple[int, int, int, int]], timesteps: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, _Counts]]:
    """Yield what each timestep's seconds of one node's GPUs were, while the node is active."""
    born = to_seconds(node.active_from)
    gone = to_seconds(node.active_until) if node.active_until else timesteps[-1][1]
    first = 0
    for low, high in timesteps:
        start, end = max(low, born), min(high, gone)
        if start >= end:
            continue
        while first + 1 < len(log) and log[first + 1][0] <= start:
            first += 1
        yield low, _count_one(node, log, first, start, end)


def _count_one(
    node: Node, log: Sequence[tuple[int, int, int, int]], first: int, start: int, end: int
) -> _Counts:
    counts = _Counts(inventory=node.gpus * (end - start))
    index = first
    known = min(end, max(start, log[first][0])) if log else end
    counts.unaccounted += node.gpus * (known - start)
    while known < end:
        until = min(end, log[index + 1][0]) if index + 1 < len(log) else end
        held, free, down = (mask & node.full_mask for mask in log[index][1:])
        seconds = until - known
        counts.held += held.bit_count() * seconds
        counts.free += free.bit_count() * seconds
        counts.down += down.bit_count() * seconds
        counts.unaccounted += (node.gpus - (held | free | down).bit_count()) * seconds
        known, index = until, index + 1
    return counts


def _rows(books: _Books) -> Iterator[ConservationRow]:
    totals: dict[Place, _Counts] = defaultdict(_Counts)
    for (node_id, timestep), counts in books.by_node.items():
        totals[books.nodes[node_id].pool_id, timestep].add(counts)
    for pool in _pools():
        for timestep, _ in books.timesteps:
            place = pool.pk, timestep
            counts = totals[place]
            charged, unfunded = books.charged.get(place, 0), books.unfunded.get(place, 0)
            if counts.inventory or charged or unfunded:
                yield ConservationRow(
                    pool=pool.slug,
                    timestep=from_seconds(timestep),
                    charged=charged,
                    unfunded=unfunded,
                    free=counts.free,
                    down=counts.down,
                    unaccounted=counts.unaccounted,
                    inventory=counts.inventory,
                )


def _pools() -> QuerySet[Pool]:
    return Pool.objects.order_by("position", "pk")


def _held_by_runs(books: _Books) -> dict[tuple[int, int], dict[int, int]]:
    """Return GPU-seconds that runs held, by (node id, timestep) and run id."""
    low, high = from_seconds(books.timesteps[0][0]), from_seconds(books.timesteps[-1][1])
    rows = Holding.objects.filter(Q(ended_at=None) | Q(ended_at__gt=low), started_at__lt=high)
    held: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for node_id, run_id, mask, since, until in rows.values_list(
        "node_id", "run_id", "mask", "started_at", "ended_at"
    ):
        assert since is not None
        start, end = to_seconds(since), to_seconds(until) if until else to_seconds(high)
        for first, last in books.timesteps:
            seconds = min(end, last) - max(start, first)
            if seconds > 0:
                held[node_id, first][run_id] += mask.bit_count() * seconds
    return held


def _suspects(
    books: _Books, held: dict[tuple[int, int], dict[int, int]], pool_id: int, timestep: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nodes and runs of one pool and timestep on which the two sides differ."""
    nodes, runs = [], set()
    by_run: dict[int, int] = defaultdict(int)
    for node in books.nodes.values():
        if node.pool_id != pool_id:
            continue
        mine = held.get((node.pk, timestep), {})
        for run_id, seconds in mine.items():
            by_run[run_id] += seconds
        counts = books.by_node.get((node.pk, timestep), _Counts())
        if counts.held != sum(mine.values()) or counts.unaccounted:
            nodes.append(node.name)
            runs |= set(mine)
    charged = _charged_by_run(pool_id, timestep)
    runs |= {run for run in by_run.keys() | charged if by_run.get(run, 0) != charged.get(run, 0)}
    return tuple(f"node {name}" for name in nodes), tuple(f"run {run}" for run in sorted(runs))


def _charged_by_run(pool_id: int, timestep: int) -> dict[int, int]:
    charges = Entry.objects.filter(
        kind=Entry.Kind.CHARGE, pool_id=pool_id, timestep=from_seconds(timestep)
    ).order_by()
    rows = charges.values_list("run_id").annotate(total=Sum("gpu_seconds"))
    return {run_id: total for run_id, total in rows if run_id is not None}
