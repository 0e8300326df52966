"""What the demo prints: the main job's output, section by section."""

from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction

from allocator import cycle, timesteps
from allocator.demo import institute, people
from allocator.demo.institute import ZONE, Institute
from allocator.models import Cycle
from allocator.telling import books, cycles, frame, picture, waiting
from budgets import periods, shares
from budgets.models import WHOLE
from clusters import services as clusters
from workloads.models import Run

HOURS_A_DAY = 24


def report(place: Institute, *, at: datetime) -> Iterator[str]:
    """The whole report at an instant, line by line."""
    yield from _title(place, at)
    yield from _tree(at)
    yield from _day(place, at)
    yield from _plan(at)
    yield from _waiting()
    yield from _books(place, at)
    yield from _accounts()


def _title(place: Institute, at: datetime) -> Iterator[str]:
    period = periods.active(at)
    if period is not None:
        since = period.starts_at.astimezone(ZONE).date()
        gone = (at.astimezone(ZONE).date() - since).days + 1
        whole = (period.ends_at.astimezone(ZONE).date() - since).days
        yield from frame.heading(
            f"Orlo Institute, {period.name}", f"day {gone} of {whole}, times of {ZONE.key}"
        )
    gpus = sum(node.gpus for node in clusters.active_nodes(at=at))
    yield (
        f"  {place.cluster.name} is a simulated cluster of {gpus} GPUs that began "
        f"{_moment(place.start)}. Grants are for"
    )
    yield "  what it can give from then on to the quarter's end."


def _moment(at: datetime) -> str:
    return at.astimezone(ZONE).strftime("%a %-d %b %H:%M")


def _tree(at: datetime) -> Iterator[str]:
    yield from frame.heading("Budgets", "shares by change set, each with author and reason")
    gpus = sum(node.gpus for node in clusters.active_nodes(at=at))
    tree = shares.tree(at=at)
    root = next(iter(tree.values()))
    rows = list(_branch(tree, root, gpus * HOURS_A_DAY * frame.HOUR))
    yield from frame.table(("", "of its parent", "effective", "GPU-h a day"), rows)


def _branch(
    tree: dict[int, shares.TreeNode], node: shares.TreeNode, capacity: int
) -> Iterator[tuple[str, ...]]:
    """The rows of a budget, all below it, and what it keeps in reserve."""
    yield _row(node.budget.name, node.depth, node.thousandths, node.effective, capacity)
    below = [tree[child] for child in node.children]
    for child in sorted(below, key=lambda child: (-child.thousandths, child.budget.path)):
        yield from _branch(tree, child, capacity)
    left = WHOLE - sum(child.thousandths for child in below)
    if below and left:
        reserve = node.effective * Fraction(left, WHOLE)
        yield _row("(reserve)", node.depth + 1, left, reserve, capacity)


def _row(
    name: str, depth: int, thousandths: int, effective: Fraction, capacity: int
) -> tuple[str, ...]:
    share = frame.percent(Fraction(thousandths, WHOLE)) if depth else ""
    entitled = frame.hours(int(effective * capacity))
    return "  " * depth + name, share, frame.percent(effective, 2), entitled


def _day(place: Institute, at: datetime) -> Iterator[str]:
    yield from frame.heading("Cycles", f"{_moment(place.start)} to {_moment(at)}")
    yield from cycles.summary(start=place.start, end=at)
    yield from cycles.preemptions(start=place.start, end=at, zone=ZONE, limit=2)


def _plan(at: datetime) -> Iterator[str]:
    last = Cycle.objects.filter(status=Cycle.Status.COMMITTED).order_by("-pk").first()
    if last is None:
        return
    yield from frame.heading(
        f"Plan of {_moment(last.at)}", "24 hours, a column for each half hour, checked legal"
    )
    canvas = picture.Canvas(
        snapshot=cycle.unpack(bytes(last.snapshot)),
        plan=cycle.unpack(bytes(last.plan)),
        origin=timesteps.floor(last.at),
        zone=ZONE,
        letters=_letters(at),
    )
    yield from picture.draw(canvas)
    yield ""
    yield "  L V S P  the program that holds most of the node: Language, Vision, Science, Platform"
    yield f"  l v s p  the same, unfunded    {picture.FREE}  free    {picture.DRAINED}  drained"
    yield "  held     tenths of all GPUs, ■ all of them"


def _letters(at: datetime) -> dict[str, str]:
    """The initial of each leaf's program."""
    tree = shares.tree(at=at)
    found = {}
    for pk, node in tree.items():
        program = [n for n in shares.path_to_root(tree, pk) if n.depth == 1]
        found[node.budget.path] = program[0].budget.name[0] if program else "?"
    return found


def _waiting() -> Iterator[str]:
    rows = waiting.outlooks()
    running = Run.objects.filter(state=Run.State.RUNNING).count()
    yield from frame.heading(
        "Next starts",
        f"{frame.plural(running, 'run')} under way, "
        f"{frame.plural(len(rows), 'job waits', 'jobs wait')}",
    )
    yield from waiting.next_starts(rows, zone=ZONE, limit=6)
    yield ""
    yield "  Why they wait"
    yield from waiting.reasons(rows, zone=ZONE)


def _books(place: Institute, at: datetime) -> Iterator[str]:
    yield from frame.heading(
        "Conservation of GPU-time", "ledger on one side, GPU logs on the other"
    )
    yield from books.proof_table(books.prove(start=place.start, end=at))
    period = periods.active(at)
    if period is None:
        return
    yield from frame.heading("Burn report", f"{period.name}, at {_moment(at)}")
    tree = shares.tree(at=at)
    programs = [node for node in tree.values() if node.depth <= 1]
    yield from books.burn_table(programs, period=period, at=at, since=place.start)
    yield ""
    yield "  pace       used ÷ planned to date: above 1 a budget burns faster than it was granted"
    yield "  unfunded   GPU-hours, free of charge      of owed   delivered of what was owed"


def _accounts() -> Iterator[str]:
    yield from frame.heading("Sign in", f"password of all: {people.PASSWORD}")
    known = people.accounts()
    yield from frame.table(
        ("User", "Name", "Who", "Role", "In"),
        [(p.username, p.name, p.does, p.kind, institute_path(p.path)) for p in known],
        left=5,
    )


def institute_path(path: str) -> str:
    return "the whole institute" if path == institute.ROOT else path
