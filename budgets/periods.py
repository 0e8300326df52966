"""Periods: drafted, proposed and approved here. The ledger starts and closes them."""

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import F, Min, Q, QuerySet

from budgets.models import WHOLE, Period, PlannedCapacity
from budgets.refusals import Refused, check_instant
from clusters.models import Node, Pool, PoolRate

Status = Period.Status


def draft_period(
    *,
    name: str,
    starts_at: datetime,
    ends_at: datetime,
    time_zone: str = "UTC",
    carry_over_cap: int = 0,
    capacity: Mapping[Pool, int] | None = None,
    now: datetime,
) -> Period:
    """Draft a period [starts_at, ends_at) with the GPU-seconds each pool is planned to have.

    Without `capacity` it is the inventory's: GPUs × seconds in which their nodes are active.
    `carry_over_cap` is how much of the unspent grant goes on into the next period, in thousandths
    of a percent.
    """
    for at, field in ((starts_at, "starts_at"), (ends_at, "ends_at"), (now, "now")):
        check_instant(at, field)
    _check(name=name, starts_at=starts_at, ends_at=ends_at, cap=carry_over_cap, zone=time_zone)
    with transaction.atomic():
        period = Period.objects.create(
            name=name.strip(),
            starts_at=starts_at,
            ends_at=ends_at,
            time_zone=time_zone,
            carry_over_cap=carry_over_cap,
        )
        plan_capacity(period=period, capacity=capacity)
    return period


def plan_capacity(*, period: Period, capacity: Mapping[Pool, int] | None = None) -> None:
    """Write (again) what grants of a period are computed from; refused once it is active."""
    if period.status in (Status.ACTIVE, Status.CLOSED):
        raise Refused("status", f"{period.name} is {period.status}: its capacity is settled.")
    planned = inventory(period) if capacity is None else capacity
    if any(seconds < 0 for seconds in planned.values()):
        raise Refused("capacity", "Planned GPU-seconds can't be negative.")
    with transaction.atomic():
        period.capacities.all().delete()
        PlannedCapacity.objects.bulk_create(
            PlannedCapacity(
                period=period,
                pool=pool,
                gpu_seconds=seconds,
                rate_per_mille=rate_at(pool, period.starts_at),
            )
            for pool, seconds in planned.items()
        )


def propose_period(*, period: Period) -> Period:
    """Put a drafted period before whoever approves it."""
    return _move(period, to=Status.PROPOSED, allowed=(Status.DRAFT,))


def approve_period(*, period: Period) -> Period:
    """Approve a period, which then starts by itself; two may not overlap."""
    with transaction.atomic():
        # One at a time, or two that overlap could both pass.
        list(Period.objects.select_for_update().order_by("pk").values_list("pk"))
        decided = Period.objects.exclude(status__in=(Status.DRAFT, Status.PROPOSED))
        overlap = decided.filter(starts_at__lt=period.ends_at, ends_at__gt=period.starts_at)
        other = overlap.exclude(pk=period.pk).first()
        if other is not None:
            raise Refused("starts_at", f"{period.name} overlaps {other.name}: change its dates.")
        return _move(period, to=Status.APPROVED, allowed=(Status.DRAFT, Status.PROPOSED))


def active(at: datetime) -> Period | None:
    """Return the active period that an instant lies in, if there is one."""
    return _covering(at).filter(status=Status.ACTIVE).first()


def covering(at: datetime) -> Period | None:
    """Return the active or closed period that an instant lies in, if there is one."""
    return _covering(at).filter(status__in=(Status.ACTIVE, Status.CLOSED)).first()


def begins(period: Period) -> datetime:
    """Return from when a period has GPU-time to plan: its start, or the first node's, if later.

    A cluster that joins within a quarter is granted, and burned, over the rest of it.
    """
    first = Node.objects.aggregate(first=Min("active_from"))["first"]
    if first is None or not period.starts_at < first < period.ends_at:
        return period.starts_at
    return first


def elapsed(period: Period, at: datetime) -> Fraction:
    """Return how much of a period's time with GPUs has passed at an instant, 0 to 1, exact."""
    start = begins(period)
    whole = int((period.ends_at - start).total_seconds())
    gone = int((at - start).total_seconds())
    return Fraction(min(max(gone, 0), whole), whole)


def inventory(period: Period) -> dict[Pool, int]:
    """Return the GPU-seconds of each pool in a period: GPUs × seconds their node is active."""
    totals = dict.fromkeys(Pool.objects.all(), 0)
    ends_inside = Q(active_until__isnull=True) | Q(active_until__gt=period.starts_at)
    nodes = Node.objects.filter(ends_inside, active_from__lt=period.ends_at)
    for node in nodes.select_related("pool"):
        start = max(node.active_from, period.starts_at)
        end = min(node.active_until or period.ends_at, period.ends_at)
        totals[node.pool] += node.gpus * int((end - start).total_seconds())
    return totals


def rate_at(pool: Pool, at: datetime) -> int:
    """Return the rate of a pool at an instant, per mille."""
    rate = PoolRate.objects.filter(pool=pool, effective_at__lte=at).order_by("effective_at").last()
    if rate is None:
        raise Refused("rate", f"{pool.slug} has no rate at {at:%Y-%m-%d}: give it one first.")
    return rate.rate_per_mille


def _covering(at: datetime) -> QuerySet[Period]:
    return Period.objects.filter(starts_at__lte=at, ends_at__gt=at).order_by(F("starts_at").desc())


def _move(period: Period, *, to: str, allowed: tuple[Period.Status, ...]) -> Period:
    changed = Period.objects.filter(pk=period.pk, status__in=allowed).update(status=to)
    period.refresh_from_db()
    if not changed:
        raise Refused("status", f"{period.name} is {period.status}: it can't become {to}.")
    return period


def _check(*, name: str, starts_at: datetime, ends_at: datetime, cap: int, zone: str) -> None:
    if not name.strip() or not name.isprintable() or Period.objects.filter(name=name).exists():
        raise Refused("name", "Give the period a printable name that no other has.")
    if ends_at <= starts_at:
        raise Refused("ends_at", "The period must end after its start.")
    if not 0 <= cap <= WHOLE:
        raise Refused("carry_over_cap", "Carry over 0 to 100,000 thousandths of a percent.")
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise Refused("time_zone", f"{zone!r} is no time zone: use one such as UTC.") from None
