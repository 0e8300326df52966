"""How far credits reach for a run that is to be held, and protected, for longer."""

from dataclasses import dataclass
from datetime import datetime

from budgets.models import Budget
from budgets.periods import active
from ledger.entries import Attempt
from ledger.figures import accounts
from ledger.instants import from_seconds, to_seconds, whole
from ledger.rates import Rates
from workloads.models import Run


@dataclass(frozen=True, slots=True)
class Short:
    """What is missing for a longer hold, and until when credits reach. Milli-GPU-seconds.

    ``binding`` is the budget that has too little, the run's own or an ancestor; None when no
    period is active.
    """

    until: datetime
    needed_mgpus: int
    spendable_mgpus: int
    binding: Budget | None


def short_of(*, run: Run, until: datetime, now: datetime) -> Short | None:
    """Return what `cover` would lack to hold a run's funded GPUs until then; None if nothing.

    Nothing is written. Ask under the ledger's lock, or the answer is of a moment ago.
    """
    now, until = whole(now, "now"), whole(until, "until")
    period = active(now)
    if period is None:
        return Short(now, 0, 0, None)
    budget_id = run.job.budget_id
    found = accounts(period=period, at=now, jobs=[run.job_id])
    put_by = found.put_by(Attempt(run.job_id, run.number))
    spendable = found.spendable(budget_id)
    held = run.holdings.filter(ended_at=None, funded=True)
    gpus = sum(holding.gpus for holding in held)
    rates, begin, end = Rates.load(), to_seconds(now), to_seconds(until)
    needed = gpus * rates.price(run.pool_id, begin, end) - put_by
    if needed <= max(0, spendable):
        return None
    low, high = begin, end  # it reaches to the first, not to the second
    while low + 1 < high:
        middle = (low + high) // 2
        missing = gpus * rates.price(run.pool_id, begin, middle) - put_by
        low, high = (middle, high) if missing <= max(0, spendable) else (low, middle)
    binding = Budget.objects.get(pk=found.binding(budget_id))
    return Short(from_seconds(low), needed, spendable, binding)
