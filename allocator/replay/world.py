"""Builds what a trace needs in an empty database: tree, users, cluster and a period."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction

from allocator.replay.setup import PoolSpec
from allocator.replay.trace import BadInput, TraceJob
from budgets import periods
from budgets import services as budgets
from budgets.models import Budget, Period
from budgets.places import RESERVED
from clusters.models import Cluster, Node, Pool, PoolRate
from ledger import services as ledger

# A Monday. The trace's own dates are relative, so any would do.
START = datetime(2026, 1, 5, tzinfo=UTC)
PERIOD = timedelta(days=92)
ROOT = "trace"


@dataclass(frozen=True)
class World:
    """Who a trace's groups and users are in the database."""

    root: Budget
    budgets: dict[str, Budget]  # by group
    users: dict[str, User]  # by the trace's name of them
    period: Period
    gpus: int


def build(*, pools: list[PoolSpec], shares: dict[str, int], jobs: Iterable[TraceJob]) -> World:
    """Write it all in one transaction. Raises BadInput if the database isn't empty."""
    if Budget.objects.exists() or Cluster.objects.exists():
        raise BadInput("The database has an organisation already: replay into an empty one.")
    with transaction.atomic():
        author = User.objects.create(username="replay")
        root, projects = _tree(shares, author)
        _cluster(pools)
        return World(root, projects, _users(jobs), _period(author), sum(p.total for p in pools))


def _tree(shares: dict[str, int], author: User) -> tuple[Budget, dict[str, Budget]]:
    root = budgets.create_organisation(slug=ROOT, name="Trace", now=START)
    made: dict[str, Budget] = {}
    slugs: set[str] = set()
    for group, share in shares.items():
        slug = _slug(group, slugs)
        made[group] = budgets.create_budget(
            parent=root,
            slug=slug,
            name=group[:100],
            share=share,
            author=author,
            reason="As the replay was asked for",
            now=START,
        )
    return root, made


def _slug(group: str, taken: set[str]) -> str:
    """A slug for a group's name, with a number where another has it already."""
    plain = re.sub(r"[^a-z0-9]+", "-", group.lower()).strip("-")[:40] or "group"
    slug, number = plain, 1
    while slug in taken or slug in RESERVED:
        number += 1
        slug = f"{plain}-{number}"
    taken.add(slug)
    return slug


def _users(jobs: Iterable[TraceJob]) -> dict[str, User]:
    names = sorted({job.user for job in jobs})
    made = User.objects.bulk_create(
        User(username=f"u{n}", last_name=name[:150]) for n, name in enumerate(names)
    )
    return dict(zip(names, made, strict=True))


def _cluster(pools: list[PoolSpec]) -> None:
    cluster = Cluster.objects.create(slug="replay", name="Replay")
    for position, spec in enumerate(pools):
        pool = Pool.objects.create(
            cluster=cluster,
            slug=spec.slug,
            name=spec.slug,
            gpu_type=spec.slug,
            position=position,
        )
        PoolRate.objects.create(pool=pool, effective_at=START, rate_per_mille=spec.rate)
        Node.objects.bulk_create(
            Node(
                pool=pool,
                name=f"{spec.slug}-n{n + 1:04}",
                gpus=spec.gpus,
                position=n,
                active_from=START,
            )
            for n in range(spec.nodes)
        )


def _period(author: User) -> Period:
    """A quarter, of which the replay plays the first days: grants don't run out in them."""
    period = periods.draft_period(name="Replay", starts_at=START, ends_at=START + PERIOD, now=START)
    periods.propose_period(period=period)
    periods.approve_period(period=period)
    ledger.start_period(period=period, at=START, author=author)
    return period
