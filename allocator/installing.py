"""How the installation is set up, changed by people: pools, and what they cost from when on.

Nodes are in `allocator.inventory`.
"""

from datetime import datetime

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import transaction
from django.db.models import Max

from allocator import requests
from budgets import decisions
from budgets.models import Decision
from clusters.models import Cluster, Pool, PoolRate
from clusters.refusals import Refused, check_instant
from clusters.saying import say as _
from ledger.lock import lock_ledger
from ledger.models import ClosedTimestep
from ledger.rates import REFERENCE

RATE_MAX = 1_000_000  # per mille: a thousand times the reference GPU
REASON_MAX = 200
NAME_MAX, GPU_TYPE_MAX, SLUG_MAX = 100, 50, 50
TAKEN_SLUGS = {"new"}  # an address of a page


def set_rate(
    *,
    pool: Pool,
    rate_per_mille: int,
    effective_at: datetime | None,
    reason: str,
    by: User,
    now: datetime,
) -> PoolRate:
    """Price a pool from an instant on (None: from now), keep who did, and replan.

    Raises Refused, by field, for an instant that is over, since what was charged stays charged, for
    one that has a rate already, and for the rate that holds then; nothing is written.
    """
    at = (effective_at or now).replace(microsecond=0)
    check_instant(at, "effective_at")
    why = checked_reason(reason)
    if not 0 <= rate_per_mille <= RATE_MAX:
        raise Refused("rate", _("Give a rate from 0 to 1,000 times the reference GPU."))
    with transaction.atomic():
        lock_ledger()  # no timestep is closed meanwhile
        _refuse_the_past(at, now)
        rates = PoolRate.objects.filter(pool=pool)
        if rates.filter(effective_at=at).exists():
            taken = _("%(pool)s has a rate from then on: take another instant.", pool=pool.name)
            raise Refused("effective_at", taken)
        last = rates.filter(effective_at__lt=at).order_by("effective_at").last()
        before = last.rate_per_mille if last else REFERENCE
        if before == rate_per_mille:
            raise Refused(
                "rate",
                _(
                    "%(pool)s costs that then anyway: %(before)s.",
                    pool=pool.name,
                    before=shown(before),
                ),
            )
        made = PoolRate.objects.create(pool=pool, effective_at=at, rate_per_mille=rate_per_mille)
        decisions.note(
            kind=Decision.Kind.RATE,
            subject=pool.name,
            before=shown(before),
            after=f"{shown(rate_per_mille)}, from {at:%Y-%m-%d %H:%M} UTC",
            reason=why,
            by=by,
            now=now,
        )
        requests.replan("shares")
    return made


def add_pool(
    *,
    cluster: Cluster,
    slug: str,
    name: str,
    gpu_type: str,
    rate_per_mille: int,
    reason: str,
    by: User | None,
    now: datetime,
) -> Pool:
    """Make a pool, still without nodes, with its first rate. Raises Refused by field."""
    why, pool = checked_reason(reason), Pool(cluster=cluster, slug=slug.strip())
    pool.name, pool.gpu_type = _words(name, gpu_type)
    _check_slug(pool.slug)
    if not 0 <= rate_per_mille <= RATE_MAX:
        raise Refused("rate", _("Give a rate from 0 to 1,000 times the reference GPU."))
    with transaction.atomic():
        lock_ledger()  # nobody makes another meanwhile
        _refuse_taken(pool)
        last = Pool.objects.aggregate(last=Max("position"))["last"]
        pool.position = 0 if last is None else last + 1
        pool.save()
        at = now.replace(microsecond=0)
        PoolRate.objects.create(pool=pool, effective_at=at, rate_per_mille=rate_per_mille)
        after = f"{pool.gpu_type}, {shown(rate_per_mille)}"
        _note(pool.slug, "", after, why, by, now)
    return pool


def change_pool(
    *, pool: Pool, name: str, gpu_type: str, reason: str, by: User | None, now: datetime
) -> Pool:
    """Call a pool otherwise, or its GPUs. Its slug stays: jobs, shares and files name it so."""
    why = checked_reason(reason)
    name, gpu_type = _words(name, gpu_type)
    with transaction.atomic():
        lock_ledger()
        pool.refresh_from_db()
        before = f"{pool.name}, {pool.gpu_type}"
        if before == f"{name}, {gpu_type}":
            raise Refused("name", _("That is what it is called already: change a word."))
        pool.name, pool.gpu_type = name, gpu_type
        _refuse_taken(pool)
        pool.save(update_fields=["name", "gpu_type"])
        _note(pool.slug, before, f"{name}, {gpu_type}", why, by, now)
    return pool


def _words(name: str, gpu_type: str) -> tuple[str, str]:
    called = checked_word(name, "name", NAME_MAX)
    return called, checked_word(gpu_type, "gpu_type", GPU_TYPE_MAX)


def _check_slug(slug: str) -> None:
    try:
        validate_slug(slug)
        fits = len(slug) <= SLUG_MAX and slug not in TAKEN_SLUGS
    except ValidationError:
        fits = False
    if not fits:
        words = _("Give letters, digits, - and _ only, 50 at most, such as h100; not “new”.")
        raise Refused("slug", words)


def _refuse_taken(pool: Pool) -> None:
    others = Pool.objects.exclude(pk=pool.pk)
    for field in ("slug", "name"):
        value = getattr(pool, field)
        if others.filter(**{f"{field}__iexact": value}).exists():
            raise Refused(field, _("There is a pool %(name)s: take another one.", name=value))


def _note(
    subject: str, before: str, after: str, reason: str, by: User | None, now: datetime
) -> None:
    words = {"subject": subject, "before": before, "after": after, "reason": reason}
    decisions.note(kind=Decision.Kind.POOL, by=by, now=now, **words)


def checked_word(text: str, field: str, most: int, *, may_be_empty: bool = False) -> str:
    """Return a name or label without what stands around it, or refuse it."""
    word = text.strip()
    if not (word or may_be_empty) or len(word) > most or not word.isprintable():
        raise Refused(field, _("Give a printable text of at most %(most)s characters.", most=most))
    return word


def checked_reason(reason: str) -> str:
    """Return why something is done, or refuse it where nobody says."""
    why = reason.strip()
    if not why:
        raise Refused("reason", _("Say why: everyone reads it in the audit log."))
    if len(why) > REASON_MAX:
        raise Refused("reason", _("Give a reason of at most %(most)s characters.", most=REASON_MAX))
    return why


def shown(rate_per_mille: int) -> str:
    """Return a rate as people read it: 1800 → '1.800'."""
    return f"{rate_per_mille // 1000}.{rate_per_mille % 1000:03}"


def _refuse_the_past(at: datetime, now: datetime) -> None:
    closed = ClosedTimestep.objects.order_by("-end").first()
    first = max(now.replace(microsecond=0), closed.end if closed else now.replace(microsecond=0))
    if at < first:
        raise Refused(
            "effective_at",
            _(
                "What ran before %(first)s UTC is charged at the rate of then, and stays so: "
                "give an instant from then on.",
                first=f"{first:%Y-%m-%d %H:%M}",
            ),
        )
