"""How the installation is set up, changed by people on pages: what a pool costs from when on."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from allocator import requests
from budgets import decisions
from budgets.models import Decision
from clusters.models import Pool, PoolRate
from clusters.refusals import Refused, check_instant
from clusters.saying import say as _
from ledger.lock import lock_ledger
from ledger.models import ClosedTimestep
from ledger.rates import REFERENCE

RATE_MAX = 1_000_000  # per mille: a thousand times the reference GPU
REASON_MAX = 200


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
    why = _checked_reason(reason)
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


def _checked_reason(reason: str) -> str:
    why = reason.strip()
    if not why:
        raise Refused("reason", _("Say why: whoever pays it reads it in the audit log."))
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
