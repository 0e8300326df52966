"""What one GPU does of a service's traffic: declared by its owner, else measured from the past.

Measured is an upper envelope: of the busy steps through which the service held the same GPUs, the
95th percentile of rate ÷ GPUs. A service that was never busy looks slower than it is, and would be
given more GPUs the more it has; so what was measured never falls, and a declared rate comes first.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

import numpy as np
from django.contrib.auth.models import User

from clusters.refusals import Refused
from clusters.saying import number
from clusters.saying import say as _
from forecasting import traffic
from forecasting.core.profile import KEPT_DAYS, DemandError
from forecasting.core.ramps import gpus_for
from forecasting.models import RatePerGpu
from workloads.models import Holding, Service

Source = RatePerGpu.Source
ENOUGH_BUSY = 48  # steps
BUSY = 0.5  # of the 95th percentile of rates
ENVELOPE = 95  # percentile
CHANGED = 1.01  # times: less is no news

Span = tuple[datetime, datetime | None, int]  # GPUs held from … until


def in_force(service: Service) -> RatePerGpu | None:
    """Return the rate that counts, if there is one."""
    declared = _newest(service, Source.DECLARED)
    if declared is not None and declared.rate_micro is not None:
        return declared
    return _newest(service, Source.MEASURED)


def declare(
    *, service: Service, rate: Decimal | None, by: User, now: datetime
) -> RatePerGpu | None:
    """Keep what the owner says a GPU does a second; None withdraws it. The same is no change."""
    micro = None
    if rate is not None:
        if not rate.is_finite() or not Decimal("0.000001") <= rate <= traffic.HIGHEST_RATE:
            raise Refused(
                "rate_per_gpu",
                _(
                    "Give what one GPU does as 0.000001 to %(highest_rate)s a second, "
                    "not %(rate)s.",
                    highest_rate=number(traffic.HIGHEST_RATE),
                    rate=str(rate)[:40],
                ),
            )
        micro = int((rate * traffic.MICRO).to_integral_value())
    before = _newest(service, Source.DECLARED)
    if (before and before.rate_micro) == micro:
        return before
    if micro is not None:
        check_against_traffic(service, micro / traffic.MICRO, now)
    return RatePerGpu.objects.create(
        service=service, source=Source.DECLARED, rate_micro=micro, at=now, author=by
    )


def check_against_traffic(service: Service, rate: float, now: datetime) -> None:
    """Refuse a rate by which the traffic that there was would take more GPUs than there are.

    Which of the two is wrong only their owner knows: the sentence names both. One query.
    """
    peak = traffic.peak(service, since=now - timedelta(days=KEPT_DAYS))
    if peak is None:
        return
    at, highest = peak
    try:
        gpus_for(highest, rate)
    except DemandError as error:
        raise Refused(
            "rate_per_gpu",
            _(
                "%(error)s If it is, send the traffic of %(at)s anew: it is the highest.",
                error=error,
                at=traffic.said(at),
            ),
        ) from None


def measure(*, service: Service, now: datetime) -> RatePerGpu | None:
    """Look at the newest traffic anew; keep what it shows if it is more than was known."""
    before = _newest(service, Source.MEASURED)
    found = _measured(service, now)
    if found is None:
        return before
    rate, evidence = found
    micro = int(rate * traffic.MICRO)
    known = before.rate_micro if before is not None else None
    if micro < 1 or (known is not None and micro < known * CHANGED):
        return before
    return RatePerGpu.objects.create(
        service=service, source=Source.MEASURED, rate_micro=micro, at=now, evidence=evidence
    )


def _newest(service: Service, source: str) -> RatePerGpu | None:
    return RatePerGpu.objects.filter(service=service, source=source).order_by("-pk").first()


def _measured(service: Service, now: datetime) -> tuple[float, dict[str, object]] | None:
    if service.traffic_step_minutes is None:
        return None
    step = timedelta(minutes=service.traffic_step_minutes)
    rows = traffic.between(service, start=now - timedelta(days=KEPT_DAYS), end=now)
    pairs = held_through(rows, step, spans(service, since=now - timedelta(days=KEPT_DAYS)), now)
    return envelope(pairs)


def spans(service: Service, *, since: datetime) -> list[Span]:
    """Return what the service held since an instant, piece by piece."""
    rows = Holding.objects.filter(run__job_id=service.job_id, started_at__isnull=False)
    rows = rows.exclude(ended_at__lte=since).order_by("started_at", "id")
    return [
        (start, end, gpus)
        for start, end, gpus in rows.values_list("started_at", "ended_at", "gpus")
        if start is not None
    ]


def held_through(
    rows: Iterable[tuple[datetime, float]], step: timedelta, held: Sequence[Span], now: datetime
) -> list[tuple[float, int]]:
    """Return rate and GPUs of the steps through all of which the same number was held."""
    changes: dict[datetime, int] = {}
    for start, end, gpus in held:
        changes[start] = changes.get(start, 0) + gpus
        if end is not None:
            changes[end] = changes.get(end, 0) - gpus
    instants = sorted(changes)
    counts = np.cumsum([changes[at] for at in instants]).tolist()
    found, place = [], 0
    for at, rate in rows:
        while place < len(instants) and instants[place] <= at:
            place += 1
        # What changes by nothing (one GPU for another) is no change of number.
        later = place
        while later < len(instants) and instants[later] < at + step:
            later += 1
        numbers = set(counts[max(place - 1, 0) : later])
        if place and len(numbers) == 1 and numbers != {0} and at + step <= now:
            found.append((rate, numbers.pop()))
    return found


def envelope(pairs: Sequence[tuple[float, int]]) -> tuple[float, dict[str, object]] | None:
    """Return what a GPU was seen to do, and from what; None where too few steps were busy."""
    if not pairs:
        return None
    rates = np.array([rate for rate, _ in pairs])
    each = rates / np.array([gpus for _, gpus in pairs])
    busy = (rates > 0) & (rates >= BUSY * np.percentile(rates, ENVELOPE))
    if int(busy.sum()) < ENOUGH_BUSY:
        return None
    found = float(np.percentile(each[busy], ENVELOPE))
    return found, {"steps": len(pairs), "busy": int(busy.sum())}
