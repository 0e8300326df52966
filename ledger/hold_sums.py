"""What is left of holds, from the sums of jobs: Σ hold − Σ release."""

from collections.abc import Iterable, Iterator

from django.db.models import Case, F, QuerySet, When

from budgets.models import Period
from ledger.bulk import among
from ledger.entries import Attempt
from ledger.kinds import HOLDS
from ledger.models import Entry, JobRollup
from ledger.totals import Total

Kind = Entry.Kind
SIGNED_HOLD = Case(When(kind=Kind.HOLD, then=F("amount_mgpus")), default=-F("amount_mgpus"))

# What is left of each attempt's hold, by period.
OpenHolds = dict[Attempt, dict[int, int]]


def holds_in(period: Period, job_ids: Iterable[int]) -> Iterator[tuple[Attempt, int]]:
    """Yield what is left of each attempt's hold in a period, also where that is 0."""
    sums = JobRollup.objects.filter(among("job_id", sorted(job_ids)), period=period, kind__in=HOLDS)
    rows = sums.order_by().values_list("job_id", "attempt").annotate(left=Total(SIGNED_HOLD))
    return ((Attempt(job_id, number), left) for job_id, number, left in rows)


def open_holds(job_ids: Iterable[int]) -> OpenHolds:
    """Return Σ hold − Σ release of the jobs' attempts, where it isn't 0."""
    return _open(JobRollup.objects.filter(among("job_id", sorted(job_ids))))


def all_open_holds(*, period: Period | None = None) -> OpenHolds:
    """Return every open hold, of one period or of all."""
    return _open(JobRollup.objects.filter(period=period) if period else JobRollup.objects.all())


def _open(sums: QuerySet[JobRollup]) -> OpenHolds:
    rows = sums.filter(kind__in=HOLDS).order_by().values_list("job_id", "attempt", "period_id")
    found: OpenHolds = {}
    # What is over by now, which is almost all there ever was, stays in the database.
    for job_id, number, period_id, left in sorted(
        rows.annotate(left=Total(SIGNED_HOLD)).exclude(left=0)
    ):
        found.setdefault(Attempt(job_id, number), {})[period_id] = left
    return found
