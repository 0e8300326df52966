"""Which jobs cost a budget most."""

from collections.abc import Collection

from django.db.models import Case, F, Q, QuerySet, When

from budgets.models import Period
from ledger.figures import SETTLES
from ledger.models import JobSettled
from ledger.totals import Total

# What entries and their sums add to what is settled.
SIGNED = Case(*(When(kind=kind, then=F("amount_mgpus") * sign) for kind, sign in SETTLES.items()))


def dearest_jobs(
    *, budget_ids: Collection[int] | None, periods: Collection[Period], limit: int
) -> list[tuple[int, int, int]]:
    """Return (job id, milli-GPU-seconds settled, GPU-seconds held), the dearest first. One query.

    ``budget_ids`` None: of all budgets. Unfunded GPU-time is in the last number, so a job that ran
    for nothing can be named too.
    """
    sums = settled_by_jobs(budget_ids=budget_ids, periods=periods)
    if len(periods) == 1:  # a row of each job, since it stands on one budget
        rows = sums.values_list("job_id", "settled_mgpus", "gpu_seconds")
        return list(rows.order_by("-settled_mgpus", "-gpu_seconds", "job_id")[:limit])
    added = sums.values_list("job_id").annotate(
        settled=Total("settled_mgpus"), held=Total("gpu_seconds")
    )
    return list(added.order_by("-settled", "-held", "job_id")[:limit])


def settled_by_jobs(
    *, budget_ids: Collection[int] | None, periods: Collection[Period]
) -> QuerySet[JobSettled]:
    """Return the sums of jobs of some budgets in some periods. None: of all budgets."""
    mine = Q() if budget_ids is None else Q(budget_id__in=budget_ids)
    return JobSettled.objects.filter(mine, period__in=periods).order_by()
