"""What tests of checkpoints share: credits used by an instant, and timesteps that are closed."""

from datetime import datetime, timedelta
from itertools import count

from budgets.models import Budget, Checkpoint, Period
from ledger import reports
from ledger.models import ClosedTimestep, Entry
from ledger.takeback import take_due
from tests.factories import HOUR, T0, T1, TIMESTEP, someone
from tests.ledger_world import CREDIT, write_entry

QUARTER = (T1 - T0) / 4  # of the default period: 23 days
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
NREL = ((20, 80), (40, 55), (55, 35), (70, 20))

_numbers = count(1)


def use(budget: Budget, credits: int, at: datetime) -> None:
    """Settle credits at an instant."""
    period = Period.objects.get(starts_at__lte=at, ends_at__gt=at)
    write_entry(
        kind="adjust",
        budget=budget,
        period=period,
        at=at,
        amount_mgpus=credits * CREDIT,
        author=someone(),
        key=f"used:{next(_numbers)}",
        created_at=at,
    )


def charged_until(at: datetime) -> None:
    """Have all timesteps up to an instant closed."""
    end = at if at.minute % 30 == 0 and at.second == 0 else at + TIMESTEP
    ClosedTimestep.objects.create(start=end - TIMESTEP, end=end, closed_at=end)


def carry_out(checkpoint: Checkpoint) -> dict[str, int]:
    """Carry out what is due an hour after a checkpoint; return what it took."""
    charged_until(checkpoint.at)
    assert checkpoint in take_due(now=checkpoint.at + HOUR)
    return taken(checkpoint)


def granted(budget: Budget, period: Period, at: datetime) -> int:
    """Return granted in whole credits."""
    return reports.figures(period=period, now=at)[budget.pk].granted_mgpus // CREDIT


def reserve(budget: Budget, period: Period, at: datetime) -> int:
    return reports.figures(period=period, now=at)[budget.pk].reserve_mgpus // CREDIT


def taken(checkpoint: Checkpoint) -> dict[str, int]:
    """Return what a checkpoint took by slug, in whole credits, of whom it took anything."""
    rows = checkpoint.results.filter(taken_mgpus__gt=0).select_related("budget")
    return {row.budget.slug: row.taken_mgpus // CREDIT for row in rows}


def transfers() -> list[tuple[str, int]]:
    """Return all transfers of checkpoints, by key, in milli-GPU-seconds."""
    rows = Entry.objects.filter(key__startswith="transfer:takeback:").order_by("key")
    return list(rows.values_list("key", "amount_mgpus"))
