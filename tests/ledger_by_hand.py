"""The ledger's figures worked out entry by entry, and a random ledger to try them on.

Nothing here reads a sum: every figure is what its definition in docs/ledger.md says of each entry.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random

from django.db import transaction

from budgets.models import Budget, Period
from clusters.models import Pool
from ledger.entries import write
from ledger.instants import to_seconds
from ledger.membership import Membership
from ledger.models import ClosedTimestep, Entry
from tests import factories as make
from tests.factories import T0, TIMESTEP
from workloads.models import Job, Run

SIGN = {"charge": 1, "refund": -1, "adjust": 1, "hold": 1, "release": -1}
SETTLES, GRANTED = ("charge", "refund", "adjust"), ("grant", "carry", "transfer")
DAYS = 9
MINUTE = timedelta(minutes=1)


@dataclass
class World:
    tree: dict[str, Budget]
    periods: list[Period]
    jobs: list[tuple[Job, Run]]
    pool: Pool


def make_world(random: Random, zone: str = "UTC") -> World:
    """Nine days in two periods, a budget that moves, one that is archived, entries of all kinds."""
    tree = make.make_tree()
    border = T0 + timedelta(days=5, hours=4)
    first = make.make_period("first", ends_at=border, time_zone=zone)
    second = make.make_period("second", starts_at=border, time_zone=zone)
    pool = make.make_pool()
    (node,) = make.make_nodes(pool)
    leaves = [tree[path] for path in tree if path.count("/") == 2]
    jobs = []
    for leaf in leaves:
        for kind in ("training", "realtime"):
            job = make.make_job(leaf, kind=kind)
            jobs.append((job, make.make_run(job, {node: 1}, ended_at=T0 + timedelta(days=DAYS))))
    world = World(tree, [first, second], jobs, pool)
    _move(tree, T0 + timedelta(days=random.randrange(1, 7), minutes=random.randrange(24 * 60)))
    _fill(world, random)
    return world


def _move(tree: dict[str, Budget], at: datetime) -> None:
    """Auk goes from science to vision; petrel, its sibling, is archived the day after."""
    petrel, auk, tern = (
        tree[f"orlo/{p}"] for p in ("science/petrel", "science/auk", "vision/tern")
    )
    make.make_shares(tree["orlo/science"], {petrel: 50_000}, at=at)
    make.make_shares(tree["orlo/vision"], {tern: 50_000, auk: 50_000}, at=at)
    auk.parent, auk.path = tree["orlo/vision"], "orlo/vision/auk"
    auk.save(update_fields=["parent", "path"])
    petrel.archived_at = at + timedelta(days=1)
    petrel.save(update_fields=["archived_at"])


def _fill(world: World, random: Random) -> None:
    steps = [T0 + number * TIMESTEP for number in range(DAYS * 48)]
    ClosedTimestep.objects.bulk_create(
        ClosedTimestep(start=at, end=at + TIMESTEP, closed_at=at + TIMESTEP) for at in steps
    )
    entries = [entry for at in random.sample(steps, 150) for entry in _charges(world, random, at)]
    entries += [_other(world, random, number) for number in range(150)]
    random.shuffle(entries)
    for first in range(0, len(entries), 37):  # several batches add to one sum
        with transaction.atomic():
            write(entries[first : first + 37])


def _charges(world: World, random: Random, timestep: datetime) -> Iterator[Entry]:
    """One run's charges in a timestep, cut at random minutes."""
    job, run = random.choice(world.jobs)
    cuts = sorted({0, 30, *(random.randrange(31) for _ in range(random.randrange(3)))})
    for low, high in pairwise(cuts):
        funded = random.random() < 0.8
        at, until = timestep + low * MINUTE, timestep + high * MINUTE
        held = random.choice((1, 2, 8)) * (high - low) * 60
        yield Entry(
            **_place(world, job, at),
            kind="charge",
            run=run,
            pool=world.pool,
            timestep=timestep,
            until=until,
            funded=funded,
            amount_mgpus=held * random.choice((333, 1000, 1237)) if funded else 0,
            gpu_seconds=held,
            parked_gpu_seconds=random.choice((0, random.randrange(held + 1))),
            key=f"charge:{run.pk}:{at}",
        )


def _other(world: World, random: Random, number: int) -> Entry:
    kind = random.choice(("hold", "release", "refund", "adjust", "grant", "transfer"))
    job, _ = random.choice(world.jobs)
    place = _place(world, job, T0 + timedelta(seconds=random.randrange(DAYS * 86_400)))
    if kind in GRANTED:
        place["budget"], place["job"] = random.choice(list(world.tree.values())), None
    low = -10_000 if kind in ("adjust", "transfer") else 0
    return Entry(
        **place, kind=kind, amount_mgpus=random.randrange(low, 10_000), key=f"{kind}:{number}"
    )


def _place(world: World, job: Job, at: datetime) -> dict[str, object]:
    period = next(one for one in world.periods if one.starts_at <= at < one.ends_at)
    return {"budget": job.budget, "job": job, "attempt": 1, "period": period, "at": at} | {
        "created_at": at
    }


# --- Figures, entry by entry ---------------------------------------------------------------------


def accounts(period: Period, at: datetime) -> dict[str, dict[int, int]]:
    """What each budget was granted, has settled and has open in holds, subtrees included."""
    tree = Membership.load()
    found: dict[str, dict[int, int]] = {
        name: dict.fromkeys(tree, 0) for name in ("granted", "settled", "held")
    }
    for entry in Entry.objects.filter(period=period):
        if entry.kind in GRANTED:
            found["granted"][entry.budget_id] += entry.amount_mgpus
            continue
        settles = entry.kind in SETTLES
        for node in tree.chain(entry.budget_id, to_seconds(entry.at if settles else at)):
            figure = found["settled" if settles else "held"]
            figure[node] += SIGN[entry.kind] * entry.amount_mgpus
    return found


def gpu_time(charges: Sequence[Entry]) -> dict[int, list[int]]:
    """Charged and parked GPU-seconds, what the parked cost, and unfunded ones, by budget."""
    tree = Membership.load()
    found: dict[int, list[int]] = {one: [0, 0, 0, 0] for one in tree}
    for charge in charges:
        held, parked = charge.gpu_seconds, charge.parked_gpu_seconds
        for node in tree.chain(charge.budget_id, to_seconds(charge.at)):
            if charge.funded:
                cost = charge.amount_mgpus // held * parked
                for place, value in enumerate((held, parked, cost)):
                    found[node][place] += value
            else:
                found[node][3] += held
    return found


def usage(start: datetime, end: datetime) -> dict[int, int]:
    used: dict[int, int] = defaultdict(int)
    for charge in Entry.objects.filter(kind="charge", funded=True):
        assert charge.until is not None
        seconds = to_seconds(min(charge.until, end)) - to_seconds(max(charge.at, start))
        whole = to_seconds(charge.until) - to_seconds(charge.at)
        used[charge.budget_id] += charge.amount_mgpus * max(0, seconds) // whole
    return {budget: amount for budget, amount in used.items() if amount}


def burned(budget: Budget, borders: Sequence[int]) -> list[list[int]]:
    """Settled, busy, parked, real-time, unfunded between each two borders, all below included."""
    tree = Membership.load()
    found = [[0] * 5 for _ in borders[1:]]
    for entry in Entry.objects.filter(kind__in=SETTLES).select_related("job"):
        for at, until, amount, held, parked in _pieces(entry, borders):
            index = next((i for i, end in enumerate(borders[1:]) if at < end), None)
            if at < borders[0] or index is None or until < at:
                continue
            if budget.pk not in tree.chain(entry.budget_id, at):
                continue
            for place, value in enumerate(_kinds(entry, amount, held, parked)):
                found[index][place] += value
    return found


def _pieces(entry: Entry, borders: Sequence[int]) -> Iterator[tuple[int, int, int, int, int]]:
    """An entry cut at the borders; parts are the differences of running totals, rounded down."""
    at = to_seconds(entry.at)
    if entry.kind != "charge":
        yield at, at, SIGN[entry.kind] * entry.amount_mgpus, 0, 0
        return
    assert entry.until is not None
    end = to_seconds(entry.until)
    totals = (entry.amount_mgpus, entry.gpu_seconds, entry.parked_gpu_seconds)
    for low, high in pairwise(sorted({at, end, *(one for one in borders if at < one < end)})):
        parts = (
            total * (high - at) // (end - at) - total * (low - at) // (end - at) for total in totals
        )
        yield low, high, *parts  # type: ignore[misc]


def _kinds(entry: Entry, amount: int, held: int, parked: int) -> tuple[int, int, int, int, int]:
    if not entry.funded:
        return 0, 0, 0, 0, held
    if entry.kind == "charge" and entry.job and entry.job.kind == "realtime":
        return amount, 0, parked, held - parked, 0
    return amount, held - parked, parked, 0, 0


def open_holds(period: Period) -> dict[tuple[int, int], int]:
    left: dict[tuple[int, int], int] = defaultdict(int)
    for entry in Entry.objects.filter(period=period, kind__in=("hold", "release")):
        assert entry.job_id is not None
        left[entry.job_id, entry.attempt] += SIGN[entry.kind] * entry.amount_mgpus
    return {attempt: amount for attempt, amount in left.items() if amount}


def dearest(budget_ids: Sequence[int], period: Period) -> list[tuple[int, int, int]]:
    found: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    entries = Entry.objects.filter(period=period, budget_id__in=budget_ids, kind__in=SETTLES)
    for entry in entries.exclude(job=None):
        assert entry.job_id is not None
        found[entry.job_id][0] += SIGN[entry.kind] * entry.amount_mgpus
        found[entry.job_id][1] += entry.gpu_seconds
    rows = [(job, settled, held) for job, (settled, held) in found.items()]
    return sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))
