"""What jobs have settled so far, for lists of them."""

from collections import defaultdict
from collections.abc import Collection

from django.db.models import Sum

from ledger.figures import SETTLES
from ledger.models import Entry, JobRollup


def settled_by_job(job_ids: Collection[int]) -> dict[int, int]:
    """Return charges less refunds of each job, in milli-GPU-seconds. One query."""
    found: dict[int, int] = defaultdict(int)
    sums = JobRollup.objects.filter(job_id__in=job_ids, kind__in=SETTLES).order_by()
    for job_id, kind, total in sums.values_list("job_id", "kind").annotate(
        total=Sum("amount_mgpus")
    ):
        found[job_id] += SETTLES[Entry.Kind(kind)] * total
    return dict(found)
