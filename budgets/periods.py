"""Periods: drafted, proposed and approved here. The ledger starts and closes them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction

from django.db import transaction
from django.db.models import F, Min, Q, QuerySet
from django.utils.translation import gettext_noop

from budgets import calendars, period_plans
from budgets.models import WHOLE, Period, PlannedCapacity
from budgets.refusals import AMOUNT_MAX, Refused, check_instant, credits
from clusters.models import Node, Pool, PoolRate
from clusters.reading import once
from clusters.saying import number, state
from clusters.saying import say as _

Status = Period.Status
NAME_MAX = 100


def draft_period(
    *,
    name: str,
    starts_at: datetime,
    ends_at: datetime,
    time_zone: str = "UTC",
    carry_over_cap: int = 0,
    carry_over_max_mgpus: int | None = None,
    capacity: Mapping[Pool, int] | None = None,
    now: datetime,
) -> Period:
    """Draft a period [starts_at, ends_at) with the GPU-seconds each pool is planned to have.

    Without `capacity` it is the inventory's: GPUs × seconds in which their nodes are active.
    `carry_over_cap` is how much of what the period before left unspent goes on into this one, in
    thousandths of a percent; `carry_over_max_mgpus` the most of it for the whole organisation.
    `budgets.calendars` makes instants of local dates.
    """
    check_instant(now, "now")
    period = Period(
        name=name.strip(),
        starts_at=starts_at,
        ends_at=ends_at,
        time_zone=time_zone,
        carry_over_cap=carry_over_cap,
        carry_over_max_mgpus=carry_over_max_mgpus,
    )
    check(period)
    with transaction.atomic():
        period.save(force_insert=True)
        plan_capacity(period=period, capacity=capacity)
    return period


def plan_capacity(*, period: Period, capacity: Mapping[Pool, int] | None = None) -> None:
    """Write (again) what grants of a period are computed from; refused once it is active.

    In all it is worth no more than one entry may move, so that no grant is too large to write.
    """
    if period.status in (Status.ACTIVE, Status.CLOSED):
        raise Refused(
            "status",
            _(
                "%(period)s is %(status)s: its capacity is settled.",
                period=period.name,
                status=state(period.get_status_display()),
            ),
        )
    planned = inventory(period) if capacity is None else capacity
    if any(seconds < 0 for seconds in planned.values()):
        raise Refused("capacity", _("Planned GPU-seconds can't be negative."))
    rates = {pool: rate_at(pool, period.starts_at) for pool in planned}
    _refuse_too_much(planned, rates)
    with transaction.atomic():
        period.capacities.all().delete()
        PlannedCapacity.objects.bulk_create(
            PlannedCapacity(
                period=period, pool=pool, gpu_seconds=seconds, rate_per_mille=rates[pool]
            )
            for pool, seconds in planned.items()
        )


def _refuse_too_much(planned: Mapping[Pool, int], rates: Mapping[Pool, int]) -> None:
    """What costs nothing is bounded as if it cost something: its GPU-time is summed too."""
    worth = sum(seconds * max(1, rates[pool]) for pool, seconds in planned.items())
    if worth > AMOUNT_MAX:
        raise Refused(
            "capacity",
            _(
                "The planned capacity is worth %(worth)s credits, and a period may have at "
                "most %(most)s: plan fewer GPU-seconds.",
                worth=credits(worth),
                most=credits(AMOUNT_MAX),
            ),
        )


def propose_period(*, period: Period) -> Period:
    """Put a drafted period before whoever approves it; refused without planned capacity."""
    _refuse_empty(period)
    return _move(period, to=Status.PROPOSED, allowed=(Status.DRAFT,))


def approve_period(*, period: Period) -> Period:
    """Approve a period, which then starts by itself; two may not overlap, none may be empty."""
    with transaction.atomic():
        # One at a time, or two that overlap could both pass. Only what is undecided: a tick that
        # writes entries locks their period, and may turn one while this would wait for another.
        undecided = Period.objects.filter(status__in=(Status.DRAFT, Status.PROPOSED))
        list(undecided.select_for_update(no_key=True).order_by("pk").values_list("pk"))
        if overlap := _overlaps(period):
            raise Refused("starts_at", overlap[0])
        _refuse_empty(period)
        return _move(period, to=Status.APPROVED, allowed=(Status.DRAFT, Status.PROPOSED))


def concerns(period: Period) -> list[str]:
    """Return what whoever decides on a period should know, a sentence each.

    It overlaps another, or nothing is planned (then it can't be approved); time next to it belongs
    to no period; a border is no midnight of its zone; its plan of shares doesn't hold. Nothing of
    one that has started.
    """
    if period.status in (Status.ACTIVE, Status.CLOSED):
        return []
    found = [*_overlaps(period), *_gaps(period), *_odd_borders(period), *_empty(period)]
    return [*found, *period_plans.concerns(period)]


def _decided(period: Period) -> QuerySet[Period]:
    return Period.objects.exclude(status__in=(Status.DRAFT, Status.PROPOSED)).exclude(pk=period.pk)


def _overlaps(period: Period) -> list[str]:
    others = _decided(period).filter(starts_at__lt=period.ends_at, ends_at__gt=period.starts_at)
    return [
        _("%(period)s overlaps %(other)s: change its dates.", period=period.name, other=other.name)
        for other in others.order_by("starts_at")
    ]


def _gaps(period: Period) -> list[str]:
    before = _decided(period).filter(ends_at__lte=period.starts_at).order_by("-ends_at").first()
    after = _decided(period).filter(starts_at__gte=period.ends_at).order_by("starts_at").first()
    pairs = [(before, period)] if before else []
    pairs += [(period, after)] if after else []
    return [
        _(
            "No period covers %(ends_at)s to %(starts_at)s, between %(one)s and %(two)s: "
            "what runs then can't be charged, nor anything granted.",
            ends_at=_utc(one.ends_at),
            starts_at=_utc(two.starts_at),
            one=one.name,
            two=two.name,
        )
        for one, two in pairs
        if one.ends_at < two.starts_at
    ]


def _odd_borders(period: Period) -> list[str]:
    zone = calendars.zone(period.time_zone)
    return [
        _(
            words,
            period=period.name,
            at=f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S}",
            time_zone=period.time_zone,
        )
        for words, at in (
            (
                gettext_noop("%(period)s starts at %(at)s in %(time_zone)s, not at midnight."),
                period.starts_at,
            ),
            (
                gettext_noop("%(period)s ends at %(at)s in %(time_zone)s, not at midnight."),
                period.ends_at,
            ),
        )
        if calendars.midnight(at.astimezone(zone).date(), zone) != at
    ]


def _empty(period: Period) -> list[str]:
    if period.capacities.filter(gpu_seconds__gt=0).exists():
        return []
    return [
        _(
            "%(period)s has no planned capacity, so nothing to grant: plan GPU-seconds of "
            "a pool in its draft.",
            period=period.name,
        )
    ]


def _refuse_empty(period: Period) -> None:
    """It could never start, and what is written ahead for it would keep it from being withdrawn."""
    if empty := _empty(period):
        raise Refused("capacity", empty[0])


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def active(at: datetime) -> Period | None:
    """Return the active period that an instant lies in, if there is one."""
    return _covering(at).filter(status=Status.ACTIVE).first()


def covering(at: datetime) -> Period | None:
    """Return the active or closed period that an instant lies in, if there is one."""
    return _covering(at).filter(status__in=(Status.ACTIVE, Status.CLOSED)).first()


@once
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
        raise Refused(
            "rate",
            _(
                "%(pool)s has no rate at %(at)s: give it one first.",
                pool=pool.slug,
                at=f"{at:%Y-%m-%d}",
            ),
        )
    return rate.rate_per_mille


def _covering(at: datetime) -> QuerySet[Period]:
    return Period.objects.filter(starts_at__lte=at, ends_at__gt=at).order_by(F("starts_at").desc())


def _move(period: Period, *, to: str, allowed: tuple[Period.Status, ...]) -> Period:
    changed = Period.objects.filter(pk=period.pk, status__in=allowed).update(status=to)
    period.refresh_from_db()
    if not changed:
        raise Refused(
            "status",
            _(
                "%(period)s is %(status)s: it can't become %(to)s.",
                period=period.name,
                status=state(period.get_status_display()),
                to=to,
            ),
        )
    return period


def check(period: Period) -> None:
    """Refuse a draft that makes no sense: borders, zone, name, carry-over."""
    for at, field in ((period.starts_at, "starts_at"), (period.ends_at, "ends_at")):
        check_instant(at, field)
    name = period.name
    taken = Period.objects.filter(name=name).exclude(pk=period.pk).exists()
    if not name or name != name.strip() or len(name) > NAME_MAX or not name.isprintable() or taken:
        raise Refused(
            "name",
            _(
                "Give a printable name of at most %(most)s characters that no other has.",
                most=NAME_MAX,
            ),
        )
    if period.ends_at <= period.starts_at:
        raise Refused("ends_at", _("The period must end after its start."))
    if not 0 <= period.carry_over_cap <= WHOLE:
        raise Refused("carry_over_cap", _("Carry over 0 to 100,000 thousandths of a percent."))
    _check_most(period.carry_over_max_mgpus, period.carry_over_cap)
    calendars.zone(period.time_zone)


def _check_most(most: int | None, cap: int) -> None:
    if most is None:
        return
    if not 0 < most <= AMOUNT_MAX:
        raise Refused(
            "carry_over_max_mgpus",
            _("Carry over at most 1 to %(most)s mGPU-s.", most=number(AMOUNT_MAX)),
        )
    if not cap:
        raise Refused(
            "carry_over_max_mgpus", _("Give a percent too: of 0 % nothing is carried over.")
        )
