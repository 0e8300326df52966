"""What a replay prints: burn by group, occupancy, waits by size, conservation, cycles."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Min

from allocator.replay.playback import Played
from allocator.replay.world import PERIOD, START, World
from allocator.telling import books, cycles, frame
from budgets import shares
from workloads.models import Job

# Upper ends of the size classes, in GPUs.
CLASSES = (1, 4, 8, 16, 64, 4096)


@dataclass(frozen=True)
class Verdict:
    """Whether the books are right and every plan was legal."""

    books: bool
    sums_agree: bool
    illegal: int

    @property
    def clean(self) -> bool:
        return self.books and self.sums_agree and not self.illegal


def report(world: World, played: Played) -> Iterator[str]:
    """The whole report, line by line."""
    yield from _title(world, played)
    yield from _cycles(played)
    yield from _waits(played.reached)
    yield from _proof(played.reached)
    yield from _burn(world, played.reached)


def verdict(world: World, played: Played) -> Verdict:
    proof = books.prove(start=START, end=played.reached)
    agree = books.sums_agree(world.root, period=world.period, at=played.reached)
    return Verdict(proof.clean, agree, played.illegal)


def _title(world: World, played: Played) -> Iterator[str]:
    hours = (played.reached - START).total_seconds() / 3600
    gpus = frame.plural(world.gpus, "GPU")
    yield from frame.heading(f"Replay on {gpus}", f"{hours:.1f} hours played")
    yield (
        f"  {frame.plural(Job.objects.count(), 'job')} of "
        f"{frame.plural(len(world.budgets), 'group')}; the cluster starts empty."
    )
    if played.rounded:
        yield (
            f"  {frame.plural(played.rounded, 'size')} rounded up to a power of two: a block is "
            "2, 4, 8 ... GPUs."
        )
    if played.too_large:
        yield (
            f"  {frame.plural(len(played.too_large), 'job')} left out, larger than every pool, "
            f"such as {played.too_large[0]}."
        )
    if not played.in_time:
        yield "  Stopped at the time limit: the report is of what was played until then."


def _cycles(played: Played) -> Iterator[str]:
    each = 1000 * played.seconds / max(1, played.cycles)
    aside = f"{played.cycles:,} in {played.seconds:.1f} s, {each:.0f} ms each"
    yield from frame.heading("Cycles", aside)
    yield from cycles.summary(start=START, end=played.reached)


def _waits(at: datetime) -> Iterator[str]:
    yield from frame.heading("Waits", "from submission to the first start; who waits still counts")
    by_class: dict[int, list[tuple[timedelta, bool]]] = defaultdict(list)
    jobs = Job.objects.annotate(began=Min("runs__started_at"))
    for gpus, asked, began in jobs.values_list("gpus", "submitted_at", "began"):
        waited = max(timedelta(), (began or at) - asked)
        by_class[next(top for top in CLASSES if gpus <= top)].append((waited, began is not None))
    rows = [_wait_row(top, by_class[top]) for top in CLASSES if by_class[top]]
    yield from frame.table(("GPUs", "jobs", "started", "p50", "p90", "longest"), rows)


def _wait_row(top: int, waits: list[tuple[timedelta, bool]]) -> tuple[str, ...]:
    low = max((other for other in CLASSES if other < top), default=0) + 1
    name = str(top) if low == top else f"{low} – {top}"
    ordered = sorted(wait for wait, _ in waits)
    started = sum(began for _, began in waits)
    marks = (_quantile(ordered, 50), _quantile(ordered, 90), ordered[-1])
    return name, str(len(waits)), str(started), *(_span(mark) for mark in marks)


def _quantile(ordered: list[timedelta], percent: int) -> timedelta:
    """Nearest rank."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _span(wait: timedelta) -> str:
    minutes, seconds = divmod(int(wait.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _proof(at: datetime) -> Iterator[str]:
    aside = "ledger on one side, GPU logs on the other"
    yield from frame.heading("Conservation of GPU-time", aside)
    yield from books.proof_table(books.prove(start=START, end=at))


def _burn(world: World, at: datetime) -> Iterator[str]:
    yield from frame.heading("Burn report", f"grants are for {PERIOD.days} days")
    nodes = shares.tree(at=at).values()
    yield from books.burn_table(nodes, period=world.period, at=at, since=START)
    agree = books.sums_agree(world.root, period=world.period, at=at)
    yield f"  The groups' settled credits {'add' if agree else 'do NOT add'} up to the total."
