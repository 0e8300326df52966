"""Plain functions that make rows with sensible defaults. Nothing here reads a clock.

Instants are fixed around `T0`, the start of the fourth quarter of 2026. Names that must be unique
are counted, so that a test may make as many as it likes.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from django.contrib.auth.models import User

from budgets import notices
from budgets import shares as reads
from budgets.change_sets import approve, write_set
from budgets.models import (
    Budget,
    BudgetPlan,
    ChangeSet,
    Checkpoint,
    Period,
    PlannedCapacity,
    Request,
    Role,
    Share,
)
from budgets.vectors import vector_from
from clusters.models import Cluster, Node, Pool, PoolRate
from workloads.models import Holding, Job, Run, Service

T0 = datetime(2026, 10, 1, tzinfo=UTC)  # start of the default period
T1 = datetime(2027, 1, 1, tzinfo=UTC)  # its end
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
TIMESTEP = timedelta(minutes=30)
HOUR = timedelta(hours=1)

# Thousandths of a percent of the parent, by path; the root's is not read.
TREE: dict[str, int] = {
    "orlo": 100_000,
    "orlo/science": 60_000,
    "orlo/science/petrel": 50_000,
    "orlo/science/auk": 50_000,
    "orlo/vision": 40_000,
    "orlo/vision/tern": 100_000,
}

_numbers = count(1)


def make_user(username: str = "", *, password: str = "secret", **fields: Any) -> User:
    name = username or f"user{next(_numbers)}"
    return User.objects.create_user(name, f"{name}@example.org", password, **fields)


def someone() -> User:
    """The author of whatever a test doesn't care about."""
    user = User.objects.filter(username="someone").first()
    return user or make_user("someone")


# --- Clusters -----------------------------------------------------------------------------------


def make_cluster(slug: str = "", **fields: Any) -> Cluster:
    slug = slug or f"cluster{next(_numbers)}"
    return Cluster.objects.create(**{"slug": slug, "name": slug.title(), **fields})


def make_pool(
    slug: str = "", *, rate: int = 1000, cluster: Cluster | None = None, **fields: Any
) -> Pool:
    """Return a pool with a rate (per mille) that has held since long ago."""
    slug = slug or f"pool{next(_numbers)}"
    defaults = {"name": slug, "gpu_type": slug, "position": next(_numbers)}
    pool = Pool.objects.create(
        cluster=cluster or make_cluster(), slug=slug, **{**defaults, **fields}
    )
    PoolRate.objects.create(pool=pool, effective_at=LONG_AGO, rate_per_mille=rate)
    return pool


def make_nodes(pool: Pool, number: int = 1, *, gpus: int = 8, **fields: Any) -> list[Node]:
    """Return `number` new nodes at the end of the pool, active since long ago."""
    first = pool.nodes.count()
    return [
        Node.objects.create(
            **{
                "pool": pool,
                "name": f"{pool.slug}-n{position}",
                "gpus": gpus,
                "position": position,
                "active_from": LONG_AGO,
                **fields,
            }
        )
        for position in range(first, first + number)
    ]


# --- Budgets ------------------------------------------------------------------------------------


def make_budget(slug: str = "", *, parent: Budget | None = None, **fields: Any) -> Budget:
    """Return a bare row: no share, so not active until a change set names it (a root always is)."""
    slug = slug or f"budget{next(_numbers)}"
    path = f"{parent.path}/{slug}" if parent else slug
    defaults = {"name": slug.title(), "path": path}
    return Budget.objects.create(parent=parent, slug=slug, **{**defaults, **fields})


def make_shares(
    parent: Budget,
    shares: Mapping[Budget, int],
    *,
    overrides: Mapping[tuple[Budget, Pool], int] | None = None,
    at: datetime = T0,
    author: User | None = None,
) -> ChangeSet:
    """Write and approve the next change set of `parent`, whatever children it had before."""
    base = reads.head(parent)
    change_set = write_set(
        parent=parent,
        vector=vector_from(shares, overrides or {}),
        before=reads.vector_of(base),
        reason="as agreed",
        author=author or someone(),
        base=base,
        effective_at=at,
        now=at,
    )
    return approve(change_set=change_set, by=change_set.author, now=at)


def make_tree(shares: Mapping[str, int] = TREE, *, at: datetime = T0) -> dict[str, Budget]:
    """Return the budgets by path, with approved shares; parents stand before children."""
    budgets: dict[str, Budget] = {}
    for path in shares:
        parent, _, slug = path.rpartition("/")
        budgets[path] = make_budget(slug, parent=budgets[parent] if parent else None)
    below: dict[str, dict[Budget, int]] = {}
    for path, thousandths in shares.items():
        if parent := path.rpartition("/")[0]:
            below.setdefault(parent, {})[budgets[path]] = thousandths
    author = someone() if below else None
    for path, children in below.items():
        _first_shares(budgets[path], children, at=at, author=author)
    return budgets


def _first_shares(
    parent: Budget, shares: Mapping[Budget, int], *, at: datetime, author: User | None
) -> None:
    """Write what `make_shares` writes for a parent without change sets, in a third of the time.

    Every test begins with a tree. Its sums are left to the database, which judges them here too.
    """
    made: dict[str, Any] = {"author": author, "created_at": at, "effective_at": at}
    first = ChangeSet.objects.create(parent=parent, version=1, reason="as agreed", **made)
    Share.objects.bulk_create(
        Share(change_set=first, budget=child, thousandths=value) for child, value in shares.items()
    )
    first.status, first.decided_by, first.decided_at = "approved", author, at
    first.save(update_fields=["status", "decided_by", "decided_at"])


def make_role(user: User, budget: Budget, kind: str = "member") -> Role:
    return Role.objects.create(user=user, budget=budget, kind=kind)


def make_cast(tree: Mapping[str, Budget]) -> dict[str, User]:
    """People by what they are: one of each role, all in science, and one of nowhere.

    root is a superuser, admin administrates orlo, manager manages orlo/science, member and
    colleague are members of orlo/science/petrel, viewer sees it, stranger belongs to
    orlo/vision/tern, nobody has no role.
    """
    roles = {
        "admin": ("orlo", "administrator"),
        "manager": ("orlo/science", "manager"),
        "member": ("orlo/science/petrel", "member"),
        "colleague": ("orlo/science/petrel", "member"),
        "viewer": ("orlo/science/petrel", "viewer"),
        "stranger": ("orlo/vision/tern", "member"),
    }
    people = {name: make_user(name) for name in (*roles, "nobody")}
    people["root"] = make_user("root", is_superuser=True, is_staff=True)
    for name, (path, kind) in roles.items():
        make_role(people[name], tree[path], kind)
    return people


def make_request(budget: Budget, **fields: Any) -> Request:
    """Return an open request for 5 % more, made at `T0`."""
    defaults: dict[str, Any] = {
        "unit": Request.Unit.PERCENT,
        "asked": 5000,
        "reason": "a deadline",
        "asked_by": fields.get("asked_by") or someone(),
        "created_at": T0,
    }
    return Request.objects.create(budget=budget, **{**defaults, **fields})


def tell(user: User, budget: Budget, *, key: str = "", now: datetime = T0, **fields: Any) -> None:
    """Tell someone something about a budget."""
    defaults = {"kind": "asked", "text": "More is asked for.", "key": key or f"k{next(_numbers)}"}
    notices.tell(users=[user], budget=budget, now=now, **{**defaults, **fields})


def make_period(
    name: str = "2026 Q4",
    *,
    starts_at: datetime = T0,
    ends_at: datetime = T1,
    status: str = "active",
    capacity: Mapping[Pool, int] | None = None,
    rate: int = 1000,
    **fields: Any,
) -> Period:
    """Return a period; `capacity` gives planned GPU-seconds by pool. No grant is written."""
    period = Period.objects.create(
        name=name, starts_at=starts_at, ends_at=ends_at, status=status, **fields
    )
    for pool, gpu_seconds in (capacity or {}).items():
        PlannedCapacity.objects.create(
            period=period, pool=pool, gpu_seconds=gpu_seconds, rate_per_mille=rate
        )
    return period


def make_plan(budget: Budget, period: Period, parts: Sequence[int], **fields: Any) -> BudgetPlan:
    """Return a budget's plan by month, in percent, made before the period."""
    defaults: dict[str, Any] = {"version": 1, "by": "month", "created_at": LONG_AGO}
    author = fields.pop("author", None) or someone()
    parts = [part * 1000 for part in parts]
    return BudgetPlan.objects.create(
        budget=budget, period=period, parts=parts, author=author, **{**defaults, **fields}
    )


def make_checkpoint(
    period: Period, at: datetime, steps: Sequence[tuple[int, int]], **fields: Any
) -> Checkpoint:
    """Return a checkpoint with steps in percent; cumulative, of what was planned to date."""
    defaults: dict[str, Any] = {
        "measured": "planned",
        "removed_of": "planned",
        "cumulative": True,
        "author": fields.pop("author", None) or someone(),
        "created_at": LONG_AGO,
    }
    thousandths = [[below * 1000, remove * 1000] for below, remove in steps]
    return Checkpoint.objects.create(
        period=period, at=at, steps=thousandths, **{**defaults, **fields}
    )


# --- Workloads ----------------------------------------------------------------------------------


def make_job(
    budget: Budget,
    *,
    user: User | None = None,
    pools: Iterable[Pool] = (),
    at: datetime = T0,
    **fields: Any,
) -> Job:
    """Return a queued training job of 8 GPUs for about two hours, submitted at `at`."""
    defaults: dict[str, Any] = {
        "name": f"job{next(_numbers)}",
        "kind": Job.Kind.TRAINING,
        "gpus": 8,
        "minimum_runtime_s": 3600,
        "submitted_at": at,
        "state_since": at,
        "estimate_p10_s": 3600,
        "estimate_p50_s": 7200,
        "estimate_p90_s": 10800,
    }
    job = Job.objects.create(
        budget=budget, submitted_by=user or someone(), **{**defaults, **fields}
    )
    job.pools.set(pools)
    return job


def make_service(
    budget: Budget, *, profile: Sequence[int] = (4,) * 24, swap_cap: int = 4, **fields: Any
) -> Job:
    """Return a real-time job with its demand profile (hourly, one day, UTC)."""
    job = make_job(budget, **{"kind": Job.Kind.REALTIME, "gpus": max(profile), **fields})
    Service.objects.create(job=job, profile=list(profile), swap_cap=swap_cap)
    return job


def make_run(
    job: Job,
    held: Mapping[Node, int],
    *,
    started_at: datetime | None = T0,
    ended_at: datetime | None = None,
    funded: bool = True,
    **fields: Any,
) -> Run:
    """Return a run that holds a bit mask of GPUs on each node from its start to its end."""
    state = Run.State.ENDED if ended_at else Run.State.RUNNING
    defaults: dict[str, Any] = {
        "number": job.runs.count() + 1,
        "pool": next(iter(held)).pool,
        "state": state if started_at else Run.State.STARTING,
        "decided_at": started_at or T0,
        "end_reason": Run.EndReason.COMPLETED if ended_at else "",
    }
    run = Run.objects.create(
        job=job, started_at=started_at, ended_at=ended_at, **{**defaults, **fields}
    )
    for node, mask in held.items():
        make_holding(run, node, mask, started_at=started_at, ended_at=ended_at, funded=funded)
    return run


def make_holding(
    run: Run,
    node: Node,
    mask: int,
    *,
    started_at: datetime | None = T0,
    ended_at: datetime | None = None,
    funded: bool = True,
) -> Holding:
    return Holding.objects.create(
        run=run, node=node, mask=mask, started_at=started_at, ended_at=ended_at, funded=funded
    )
