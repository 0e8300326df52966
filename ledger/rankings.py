"""Which jobs cost a budget most."""

from collections.abc import Collection

from django.db.models import Case, F, Sum, When

from budgets.models import Period
from ledger.figures import SETTLES
from ledger.models import JobRollup


def dearest_jobs(
    *, budget_ids: Collection[int], period: Period, limit: int
) -> list[tuple[int, int, int]]:
    """Return (job id, milli-GPU-seconds settled, GPU-seconds held), the dearest first. One query.

    Unfunded GPU-time is in the last number, so a job that ran for nothing can be named too.
    """
    sums = JobRollup.objects.filter(
        budget_id__in=budget_ids, period=period, kind__in=SETTLES
    ).order_by()
    signed = Case(
        *(When(kind=kind, then=F("amount_mgpus") * sign) for kind, sign in SETTLES.items())
    )
    rows = sums.values_list("job_id").annotate(settled=Sum(signed), held=Sum("gpu_seconds"))
    ordered = rows.order_by("-settled", "-held", "job_id")[:limit]
    return list(ordered)
