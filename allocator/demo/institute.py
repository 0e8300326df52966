"""The demo institute itself: tree, shares, cluster and periods, all through the real services."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db import transaction

from allocator import timesteps
from allocator.demo import people
from budgets import periods
from budgets import services as budgets
from budgets import shares as reads
from budgets.models import Budget, ChangeSet, Period
from clusters import windows
from clusters.models import Cluster, Node, Pool, PoolRate, SimulatedFault
from ledger import services as ledger

CLUSTER = "orlo-a"
ROOT = "orlo"
ZONE = ZoneInfo("America/Sao_Paulo")
DAY = timedelta(days=1)
H = timedelta(hours=1)
MINUTE = timedelta(minutes=1)

# Thousandths of a percent of the parent, as the quarter was planned.
TREE: dict[str, tuple[str, int, str]] = {
    "orlo/language": ("Language", 40_000, "Models of text"),
    "orlo/language/heron": ("Heron", 55_000, "Foundation models"),
    "orlo/language/wren": ("Wren", 30_000, "Post-training"),
    "orlo/language/magpie": ("Magpie", 10_000, "Data"),
    "orlo/vision": ("Vision", 22_000, "Models of images and video"),
    "orlo/vision/lynx": ("Lynx", 60_000, "Video"),
    "orlo/vision/ibex": ("Ibex", 40_000, "Scenes"),
    "orlo/science": ("Science", 25_000, "Models of the world"),
    "orlo/science/tern": ("Tern", 48_000, "Proteins"),
    "orlo/science/petrel": ("Petrel", 32_000, "Weather and climate"),
    "orlo/science/auk": ("Auk", 20_000, "Sky surveys"),
    "orlo/platform": ("Platform", 12_000, "What everybody uses"),
    "orlo/platform/beacon": ("Beacon", 50_000, "The assistant that all work with"),
    "orlo/platform/anvil": ("Anvil", 20_000, "Quantization"),
    "orlo/platform/compass": ("Compass", 30_000, "Evaluation"),
}
NODES = {"h100": 6, "b200": 2}
NODE_GPUS = 8
RATES = {"h100": 1000, "b200": 1500}


class OtherData(Exception):
    """The database holds an organisation that isn't the demo's."""


@dataclass(frozen=True)
class Institute:
    """What the demo needs to know again: where it is, and which day it plays."""

    cluster: Cluster
    start: datetime
    end: datetime


def find() -> Institute | None:
    """The demo institute, if it was loaded. Raises OtherData if something else was."""
    cluster = Cluster.objects.filter(slug=CLUSTER).first()
    if cluster is not None and "demo" in cluster.options:
        start, end = map(datetime.fromisoformat, cluster.options["demo"])
        return Institute(cluster, start, end)
    other = Budget.objects.filter(parent=None).first()
    if other is not None:
        raise OtherData(
            f"There is an organisation already ({other.name}): the demo needs an empty database. "
            "Give it one with DATABASE_URL or DATA_DIR."
        )
    return None


def build(*, now: datetime, length: timedelta = DAY) -> Institute:
    """Load everything that stands before the day begins, or nothing.

    The day ends with the last full timestep before ``now``; tests play a shorter one.
    """
    end = timesteps.floor(now)
    start = end - length
    planned = quarter(start)[1] - 13 * DAY
    with transaction.atomic():
        users = people.create()
        tree = _tree(users["marta"], planned)
        people.give_roles(users, tree)
        _revise(tree[ROOT], users["marta"], planned + 5 * DAY)
        cluster = _cluster(start, end, planned)
        _mishaps(start)
        ensure_periods(until=start, since=start, author=users["bo"])
    return Institute(cluster, start, end)


def ensure_periods(*, until: datetime, since: datetime, author: User) -> None:
    """Have every quarter from ``since`` on to the next one after ``until``; start those due."""
    for name, starts, ends in _quarters(since, until):
        period = Period.objects.filter(name=name).first()
        if period is None:
            period = periods.draft_period(
                name=name, starts_at=starts, ends_at=ends, time_zone=ZONE.key, now=since
            )
            periods.propose_period(period=period)
            periods.approve_period(period=period)
        if period.status == Period.Status.APPROVED and starts <= until:
            ledger.start_period(period=period, at=max(starts, since), author=author)


def quarter(at: datetime) -> tuple[str, datetime, datetime]:
    """Name, start and end of the calendar quarter around an instant, in the institute's zone."""
    local = at.astimezone(ZONE)
    number = (local.month - 1) // 3
    first = datetime(local.year, number * 3 + 1, 1, tzinfo=ZONE)
    after = datetime(local.year + (number == 3), (number + 1) % 4 * 3 + 1, 1, tzinfo=ZONE)
    return f"Q{number + 1} {local.year}", first.astimezone(UTC), after.astimezone(UTC)


def _quarters(since: datetime, until: datetime) -> list[tuple[str, datetime, datetime]]:
    found = [quarter(since)]
    while found[-1][1] <= until:
        found.append(quarter(found[-1][2]))
    return found


def _tree(author: User, planned: datetime) -> dict[str, Budget]:
    root = budgets.create_organisation(slug=ROOT, name="Orlo Institute", now=planned)
    tree = {ROOT: root}
    for path, (name, share, about) in TREE.items():
        parent, _, slug = path.rpartition("/")
        tree[path] = budgets.create_budget(
            parent=tree[parent],
            slug=slug,
            name=name,
            share=share,
            author=author,
            reason=f"Plan of {quarter(planned + 20 * DAY)[0]}",
            description=about,
            now=planned,
        )
    return tree


def _revise(root: Budget, author: User, at: datetime) -> None:
    """A change of the quarter's plan before the quarter began."""
    changed = draft(
        parent=root,
        changes={"vision": 20_000},
        author=author,
        reason="Ibex pauses until its data arrive",
        now=at,
    )
    budgets.approve(change_set=changed, by=author, now=at)


def draft(
    *, parent: Budget, changes: dict[str, int], author: User, reason: str, now: datetime
) -> ChangeSet:
    """Draft new shares of some children, by slug; the others keep theirs."""
    head = reads.head(parent)
    vector = {pk: row[None] for pk, row in reads.vector_of(head).items()}
    children = Budget.objects.in_bulk(vector)
    return budgets.draft_change_set(
        parent=parent,
        shares={child: changes.get(child.slug, vector[pk]) for pk, child in children.items()},
        author=author,
        reason=reason,
        base_version=head.version if head else 0,
        effective_at=now,
        now=now,
    )


def _cluster(start: datetime, end: datetime, planned: datetime) -> Cluster:
    cluster = Cluster.objects.create(
        slug=CLUSTER, name="Orlo A", options={"demo": [start.isoformat(), end.isoformat()]}
    )
    for position, (slug, number) in enumerate(NODES.items()):
        pool = Pool.objects.create(
            cluster=cluster, slug=slug, name=slug.upper(), gpu_type=slug.upper(), position=position
        )
        PoolRate.objects.create(pool=pool, effective_at=planned, rate_per_mille=RATES[slug])
        Node.objects.bulk_create(
            Node(
                pool=pool,
                name=f"{slug}-n{n + 1:02}",
                gpus=NODE_GPUS,
                position=n,
                active_from=start,
            )
            for n in range(number)
        )
    return cluster


def _mishaps(start: datetime) -> None:
    """A node that fails during the day; a window of maintenance in it, and one after it."""
    nodes = {node.name: node for node in Node.objects.all()}
    SimulatedFault.objects.create(
        node=nodes["h100-n05"],
        starts_at=start + 9 * H + 17 * MINUTE,
        ends_at=start + 11 * H + 5 * MINUTE,
        reason="3 XID errors",
    )
    for name, begins, hours, reason in (
        ("h100-n06", 13 * H, 3 * H, "firmware"),
        ("b200-n02", 26 * H, 4 * H, "power supply"),
    ):
        windows.set_window(
            nodes=[nodes[name]],
            starts_at=start + begins,
            ends_at=start + begins + hours,
            reason=reason,
            by=None,
            now=start,
        )
