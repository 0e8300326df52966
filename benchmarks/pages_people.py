"""People, what they ask for, decide and are told, for the bench of pages."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from django.contrib.auth.models import User

from allocator import maintenance
from allocator.models import Alarm, Cycle, Simulation
from allocator.packing import pack
from allocator.reviews import commenting, keeping
from allocator.simulating import asking, running
from budgets import checkpoints, period_plans, periods, services
from budgets.models import (
    Budget,
    ChangeSet,
    Checkpoint,
    CheckpointResult,
    Decision,
    Exemption,
    Notice,
    Period,
    Request,
    Role,
)
from budgets.plans import write_plan

from .ledger_year import START, STEP, World

PEOPLE = 300
REQUESTS = 600
NOTICES = 5000  # to one person
DECISIONS = 5000
WINDOWS = 100
SIMULATIONS = 200
CYCLES = 20_000
COMMENTS = 100
MONTHS = [8_333] * 11 + [8_337]
MGPUS = 3_600_000
DAY = timedelta(days=1)
Row = dict[str, Any]


def add_people(world: World) -> list[User]:
    """Give every budget somebody; return whoever submits, the member first.

    `bench` administers all, `manager` manages a program, `member` submits to one leaf.
    """
    names = ("manager", "member", *(f"person{n}" for n in range(PEOPLE - 2)))
    made = User.objects.bulk_create(User(username=one, email=f"{one}@example.org") for one in names)
    leaf = world.leaves[0]
    roles = [Role(user=made[0], budget=leaf.parent, kind="manager")]
    roles += [Role(user=made[1], budget=leaf, kind="member")]
    roles += [
        Role(user=made[2 + n % (PEOPLE - 2)], budget=one, kind="member")
        for n, one in enumerate(world.leaves[1:])
    ]
    Role.objects.bulk_create(roles, ignore_conflicts=True)
    return made[1:]


def decide(world: World, people: Sequence[User], random: Random) -> dict[str, Any]:
    """Fill a year of decisions; return what addresses of pages are about, by name."""
    parent = world.leaves[0].parent
    assert parent is not None
    numbers: Row = {"path": world.leaves[0].path, "parent": parent.path, "root": world.root.path}
    _requests(world, people, random)
    _told(world, people, random)
    _cycles(world, random)
    numbers |= _periods(world) | _checkpoints(world, people)
    numbers |= _reviews(world, people) | _windows(world) | _simulations(world)
    numbers["change_set"] = _proposal(world, parent)
    numbers["request"] = Request.objects.filter(budget=world.leaves[0]).latest("pk").pk
    numbers["notice"] = Notice.objects.filter(user=world.user).latest("pk").pk
    numbers["person"] = people[0].pk
    numbers |= {"pool": world.pool.slug, "node": world.nodes[0].pk}
    Alarm.objects.create(kind="unreachable:x", raised_at=world.now, text="timed out")
    return numbers


def _at(world: World, random: Random) -> datetime:
    return START + timedelta(seconds=random.randrange(int((world.now - START).total_seconds())))


def _requests(world: World, people: Sequence[User], random: Random) -> None:
    def asked(budget: Budget, status: str, at: datetime) -> Request:
        decided: Row = {}
        if status == "declined":
            decided = {"answer": "not now", "decided_by": world.user, "decided_at": at + DAY}
        return Request(
            budget=budget,
            unit="credits",
            asked=random.randrange(1, 1000) * MGPUS,
            reason="a deadline",
            asked_by=random.choice(people),
            created_at=at,
            status=status,
            **decided,
        )

    leaves = world.leaves
    Request.objects.bulk_create(
        asked(random.choice(leaves), "declined", _at(world, random) - 2 * DAY)
        for _ in range(REQUESTS)
    )
    Request.objects.bulk_create(
        asked(one, "open", world.now - DAY) for one in leaves[: len(leaves) // 10]
    )


def _told(world: World, people: Sequence[User], random: Random) -> None:
    for user in (world.user, User.objects.get(username="manager"), people[0]):
        Notice.objects.bulk_create(
            Notice(
                user=user,
                budget=random.choice(world.leaves),
                kind="asked",
                text="Somebody asks for 100 more credits.",
                link="/requests",
                key=f"bench:{n}",
                created_at=world.now - timedelta(minutes=n),
                read_at=None if n < NOTICES // 2 else world.now,
            )
            for n in range(NOTICES)
        )
    Decision.objects.bulk_create(
        Decision(
            at=_at(world, random),
            by=world.user,
            kind="role",
            subject=f"person{n % PEOPLE}",
            before="viewer",
            after="member",
            budget=random.choice(world.leaves),
        )
        for n in range(DECISIONS)
    )


def _cycles(world: World, random: Random) -> None:
    """Cycles of the last weeks, with what they saw and planned, and a year without."""
    told = {"jobs": [], "timestep_minutes": 30, "grid": []}  # what a page reads of one before it
    blob = pack(told | {"rest": [random.random() for _ in range(2000)]})
    kept = CYCLES // 10
    Cycle.objects.bulk_create(
        (
            Cycle(
                kind="tick" if n % 3 == 0 else "replan",
                trigger="timestep" if n % 3 == 0 else "request",
                at=(at := world.now - n * STEP / 3),
                timestep=at,
                status="committed",
                solver_status="heuristic",
                mode="fast",
                solve_ms=80,
                starts=n % 7,
                waiting=3000,
                snapshot=blob if n < kept else b"",
                plan=blob if n < kept else b"",
            )
            for n in range(CYCLES, 0, -1)
        ),
        batch_size=500,
    )


def _periods(world: World) -> Row:
    """A period that is planned, with the shares of every program."""
    drafted = periods.draft_period(
        name="2027",
        starts_at=world.period.ends_at,
        ends_at=world.period.ends_at + 365 * DAY,
        time_zone=world.period.time_zone,
        now=world.now,
    )
    changes = []
    for parent in Budget.objects.filter(children__isnull=False).distinct():
        children = list(parent.children.all())
        share = 100_000 // (len(children) + 1)
        changes.append(
            period_plans.NewShares(parent, dict.fromkeys(children, share), base_version=1)
        )
    period_plans.plan_shares(
        period=drafted, changes=changes, reason="next year", author=world.user, now=world.now
    )
    return {"period": world.period.pk, "drafted": drafted.pk}


def _checkpoints(world: World, people: Sequence[User]) -> Row:
    """One that was carried out and took from everybody, one ahead; plans by month."""
    rule: Row = {
        "measured": "planned",
        "removed_of": "planned",
        "cumulative": True,
        "steps": [[20_000, 80_000]],
        "author": world.user,
    }
    over = Checkpoint.objects.create(
        period=world.period, at=START + 180 * DAY, created_at=START, done_at=world.now, **rule
    )
    sums = dict.fromkeys(("granted_mgpus", "used_mgpus", "planned_mgpus", "due_mgpus"), 10**9)
    CheckpointResult.objects.bulk_create(
        CheckpointResult(checkpoint=over, budget=one, taken_mgpus=10**8, **sums)
        for one in world.leaves
    )
    leaf = world.leaves[0]
    asked = Exemption.objects.create(
        checkpoint=over, budget=leaf, reason="late", asked_by=people[0], asked_at=world.now
    )
    for one in world.leaves[:100]:
        write_plan(
            budget=one,
            period=Period.objects.get(name="2027"),
            by="month",
            parts=MONTHS,
            author=world.user,
            base_version=0,
            now=world.now,
        )
    ahead = checkpoints.add_checkpoint(
        period=Period.objects.get(name="2027"),
        at=world.period.ends_at + 100 * DAY,
        **{**rule, "steps": [(20_000, 80_000)]},
        now=world.now,
    )
    return {"checkpoint": ahead.pk, "exemption": asked.pk}


def _reviews(world: World, people: Sequence[User]) -> Row:
    """What was said of reviews, and one that was held."""
    period, now = world.period, world.now
    said = [
        commenting.add(budget=one, period=period, author=world.user, text="why", now=now)
        for one in (world.root, world.leaves[0])
        for _ in range(COMMENTS // 2)
    ]
    held: Row = {"held_on": now.date(), "decision": "go on", "base_version": 0}
    for one in (world.root, world.leaves[0]):
        keeping.hold(budget=one, period=period, by=world.user, now=now, **held)
    return {"comment": said[-1].pk}


def _windows(world: World) -> Row:
    spans = (world.now + timedelta(hours=n + 1) for n in range(WINDOWS))
    made = [
        maintenance.set_window(
            nodes=world.nodes[2 * n : 2 * n + 2],
            by=world.user,
            now=world.now,
            starts_at=at + 2 * DAY,
            ends_at=at + 3 * DAY,
            reason="firmware",
        )
        for n, at in enumerate(spans)
    ]
    return {"window": made[0].pk}


def _simulations(world: World) -> Row:
    """One of the last two days that was played, and as many as people ask for in a year."""
    window = (world.now.replace(minute=0) - 2 * DAY, world.now.replace(minute=0))
    both = ["fairshare", "fifo"]
    asking.ask(by=world.user, now=world.now, window=window, policies=both)
    played = running.run_next(clock=lambda: world.now)
    assert played is not None
    assert played.state == "done", played.error
    Simulation.objects.bulk_create(_like(played) for _ in range(SIMULATIONS))
    return {"simulation": played.pk}


def _like(played: Simulation) -> Simulation:
    fields = {
        field.attname: getattr(played, field.attname)
        for field in Simulation._meta.concrete_fields
        if not field.primary_key
    }
    return Simulation(**fields)


def _proposal(world: World, parent: Budget) -> int:
    """Return a proposal for the children of a program; each was changed often before."""
    children = list(parent.children.all())
    made = 0
    for version in range(1, 13):
        share = 100_000 // len(children) - version
        draft = services.draft_change_set(
            parent=parent,
            shares=dict.fromkeys(children, share),
            reason="as agreed",
            author=world.user,
            base_version=version,
            effective_at=world.now,
            now=world.now,
        )
        made = services.propose(change_set=draft, now=world.now).pk
        if version < 12:
            change_set = ChangeSet.objects.get(pk=made)
            services.approve(change_set=change_set, by=world.user, now=world.now)
    return made
