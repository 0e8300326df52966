"""How much of what was held stood idle, timestep by timestep: sums of charges."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Sum

from ledger.models import Entry


@dataclass(frozen=True, slots=True)
class Held:
    """GPU-seconds charged in a timestep, unfunded ones too, and what of them was parked."""

    gpu_seconds: int
    parked_gpu_seconds: int


def by_timestep(
    *, start: datetime, end: datetime, pool_ids: Collection[int] | None = None
) -> dict[datetime, Held]:
    """Return what was held in each timestep that starts in [start, end). One query."""
    charges = Entry.objects.filter(
        kind=Entry.Kind.CHARGE, timestep__gte=start, timestep__lt=end
    ).order_by()
    if pool_ids is not None:
        charges = charges.filter(pool_id__in=pool_ids)
    rows = charges.values_list("timestep").annotate(
        held=Sum("gpu_seconds"), parked=Sum("parked_gpu_seconds")
    )
    return {at: Held(held, parked) for at, held, parked in rows if at is not None}


def by_run(*, timestep: datetime) -> dict[int, Held]:
    """Return what each run that was parked for a part of a timestep held in it. One query."""
    charges = Entry.objects.filter(kind=Entry.Kind.CHARGE, timestep=timestep).order_by()
    rows = charges.values_list("run_id").annotate(
        held=Sum("gpu_seconds"), parked=Sum("parked_gpu_seconds")
    )
    return {run: Held(held, parked) for run, held, parked in rows if run is not None and parked}
