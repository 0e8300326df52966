"""Which jobs cost a budget most."""

from collections.abc import Collection

from django.db.models import Case, F, Q, Sum, When

from budgets.models import Period
from ledger.figures import SETTLES
from ledger.models import JobRollup

# What entries and their sums add to what is settled.
SIGNED = Case(*(When(kind=kind, then=F("amount_mgpus") * sign) for kind, sign in SETTLES.items()))


def dearest_jobs(
    *, budget_ids: Collection[int] | None, periods: Collection[Period], limit: int
) -> list[tuple[int, int, int]]:
    """Return (job id, milli-GPU-seconds settled, GPU-seconds held), the dearest first. One query.

    ``budget_ids`` None: of all budgets. Unfunded GPU-time is in the last number, so a job that ran
    for nothing can be named too.
    """
    mine = Q() if budget_ids is None else Q(budget_id__in=budget_ids)
    sums = JobRollup.objects.filter(mine, period__in=periods, kind__in=SETTLES).order_by()
    rows = sums.values_list("job_id").annotate(settled=Sum(SIGNED), held=Sum("gpu_seconds"))
    ordered = rows.order_by("-settled", "-held", "job_id")[:limit]
    return list(ordered)
