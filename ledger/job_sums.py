"""What jobs have settled so far, for lists of them."""

from collections.abc import Collection

from ledger.models import JobSettled
from ledger.totals import Total


def settled_by_job(job_ids: Collection[int]) -> dict[int, int]:
    """Return charges less refunds of each job, in milli-GPU-seconds. One query."""
    sums = JobSettled.objects.filter(job_id__in=job_ids).order_by().values_list("job_id")
    return dict(sums.annotate(total=Total("settled_mgpus")))
