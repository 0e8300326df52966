"""A period's plan: the shares that are drafted ahead for its start, as change sets of that instant.

They are change sets like any other, decided by whoever edits the parent's shares; those that are
approved by the period's start are in its grants.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from budgets import change_sets, shares
from budgets.models import Budget, ChangeSet, Period
from budgets.refusals import Refused
from budgets.shares import Vector
from clusters.models import Pool
from clusters.saying import say as _

Status = ChangeSet.Status
OPEN = (Status.DRAFT, Status.PROPOSED)
SECOND = timedelta(seconds=1)
PLANNABLE = (Period.Status.DRAFT, Period.Status.PROPOSED, Period.Status.APPROVED)


@dataclass(frozen=True, slots=True)
class NewShares:
    """New shares of all active children of one parent; arguments of a change set's draft."""

    parent: Budget
    shares: Mapping[Budget, int]
    base_version: int
    overrides: Mapping[tuple[Budget, Pool], int] = field(default_factory=dict)


def plan_shares(
    *, period: Period, changes: Iterable[NewShares], reason: str, author: User, now: datetime
) -> list[ChangeSet]:
    """Propose shares for a period's start, of as many parents as are given; all or none.

    Raises Refused for a period that has begun, and Refused and StaleBase as a draft does.
    """
    with transaction.atomic():
        period = _as_it_is(period)
        if period.status not in PLANNABLE or period.starts_at <= now:
            raise Refused(
                "period",
                _(
                    "%(period)s has begun: change its shares from now on instead.",
                    period=period.name,
                ),
            )
        drafts = [
            change_sets.draft_change_set(
                parent=one.parent,
                shares=one.shares,
                overrides=one.overrides,
                reason=reason,
                author=author,
                base_version=one.base_version,
                effective_at=period.starts_at,
                now=now,
            )
            for one in changes
        ]
        if not drafts:
            raise Refused(
                "change_sets", _("Give the new shares of at least one budget's children.")
            )
        return [change_sets.propose(change_set=draft, now=now) for draft in drafts]


def sets_of(period: Period) -> QuerySet[ChangeSet]:
    """Return the change sets of a period's plan, but for those that were declined."""
    sets = ChangeSet.objects.filter(effective_at=period.starts_at).exclude(status=Status.DECLINED)
    return sets.select_related("parent", "author", "decided_by").order_by("parent__path", "pk")


def move_start(*, period: Period, to: datetime, now: datetime) -> None:
    """Have the plan of a draft's shares hold from another start on; the caller holds its lock.

    What is approved for the start that it still has can't be moved: Refused, while that lies ahead
    and anything changes there. Where another period starts at that instant, it is that one's plan
    too, and stays.
    """
    others = Period.objects.filter(starts_at=period.starts_at).exclude(pk=period.pk)
    if to == period.starts_at or others.exists():
        return
    sets = ChangeSet.objects.filter(effective_at=period.starts_at)
    parents = Budget.objects.filter(change_sets__in=sets).distinct().order_by("pk")
    for parent in change_sets.locked_all(parents.values_list("pk", flat=True)).values():
        _refuse_approved(period, parent, now)
    sets.filter(status__in=(*OPEN, Status.STALE)).update(effective_at=to)


def proposed(period: Period) -> dict[int, Vector]:
    """Return the vectors that are proposed and not decided, by parent; of several the newest."""
    newest = {one.parent_id: one for one in sets_of(period) if one.status in OPEN}
    return shares.vectors_of(newest.values())


def concerns(period: Period) -> list[str]:
    """Return what keeps the plan from holding at the period's start, a sentence each."""
    if period.status not in PLANNABLE:
        return []
    by_parent: dict[Budget, list[ChangeSet]] = {}
    for one in sets_of(period):
        by_parent.setdefault(one.parent, []).append(one)
    found = (_concern(period, parent, sets) for parent, sets in by_parent.items())
    return [sentence for sentence in found if sentence]


def _as_it_is(period: Period) -> Period:
    """Return a period as it is now; the start of a draft stays until the transaction ends."""
    drafts = Period.objects.select_for_update(no_key=True).filter(status=Period.Status.DRAFT)
    return drafts.filter(pk=period.pk).first() or Period.objects.get(pk=period.pk)


def _refuse_approved(period: Period, parent: Budget, now: datetime) -> None:
    start = period.starts_at
    then, before = (shares.in_force(parent, at=at) for at in (start, start - SECOND))
    if start <= now or then is None or before is None:  # the first it has are no plan of a period
        return
    if shares.vector_of(then) == shares.vector_of(before):
        return
    raise Refused(
        "starts_at",
        _(
            "Change set %(then)s, the shares of %(parent)s, is approved for %(utc)s, the "
            "start of %(period)s, and holds from then on: keep the start, or first approve "
            "for that instant the shares of before.",
            then=then.pk,
            parent=parent.path,
            utc=f"{start.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            period=period.name,
        ),
    )


def _concern(period: Period, parent: Budget, sets: list[ChangeSet]) -> str:
    undecided = [one for one in sets if one.status in OPEN]
    if undecided:
        return _(
            "Change set %(undecided)s, the planned shares of %(parent)s, is not decided.",
            undecided=undecided[-1].pk,
            parent=parent.path,
        )
    approved = [one for one in sets if one.status == Status.APPROVED]
    if not approved:
        return _(
            "The planned shares of %(parent)s are on an outdated base: plan them again.",
            parent=parent.path,
        )
    in_force = shares.in_force(parent, at=period.starts_at)
    if in_force is not None and in_force.pk != approved[-1].pk:
        return _(
            "Change set %(in_force)s was approved after the planned shares of %(parent)s "
            "and stands in for them: plan them again.",
            in_force=in_force.pk,
            parent=parent.path,
        )
    return ""
