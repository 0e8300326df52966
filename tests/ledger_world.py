"""What the ledger's tests share: credits given by hand, closed timesteps, logs of GPUs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from budgets.models import Budget, Period
from clusters.models import GpuState, Node
from ledger import services
from ledger.entries import write
from ledger.models import Entry
from tests.factories import T0, TIMESTEP, someone

CREDIT = 3_600_000  # milli-GPU-seconds


def give(budget: Budget, credits: int, period: Period) -> None:
    """Give a budget and all above it credits in a period, as its shares would."""
    give_all({budget: credits}, period, period.starts_at)


def give_all(given: Mapping[Budget, int], period: Period, at: datetime) -> None:
    """Give several budgets, each with all above it, credits at an instant."""
    made, before = {"author": someone(), "period": period, "created_at": at}, Entry.objects.count()
    entries: list[Entry] = []
    for budget, credits in given.items():
        node: Budget | None = budget
        while node is not None:
            key, amount = f"test:{node.pk}:{before + len(entries)}", credits * CREDIT
            what = {"kind": "grant", "budget": node, "at": at, "amount_mgpus": amount}
            entries.append(Entry(key=key, **what, **made))
            node = node.parent
    with transaction.atomic():
        write(entries)


def give_alone(budget: Budget, credits: int, period: Period) -> None:
    write_entry(
        kind="grant",
        budget=budget,
        period=period,
        at=period.starts_at,
        amount_mgpus=credits * CREDIT,
        author=someone(),
        key=f"test:{budget.pk}:{Entry.objects.count()}",
        created_at=period.starts_at,
    )


def write_entry(**fields: Any) -> None:
    """Write any entry, the way all are written."""
    with transaction.atomic():
        write([Entry(**fields)])


def close(timesteps: int = 1, *, since: datetime = T0, parked: Mapping | None = None) -> datetime:
    """Close consecutive timesteps, each at its end; return the end of the last."""
    for _ in range(timesteps):
        end = since + TIMESTEP
        assert services.close_timestep(start=since, end=end, parked=parked or {}, now=end)
        since = end
    return since


def log_gpus(node: Node, at: datetime, *, held: int = 0, down: int = 0) -> GpuState:
    """Log a node's GPUs; what is neither held nor down is free."""
    free = node.full_mask & ~held & ~down
    return GpuState.objects.create(node=node, at=at, held=held, free=free, down=down)


def ledger() -> list[tuple[str, str, int, int, int]]:
    """Return the whole ledger, whoever wrote it when, to be compared."""
    rows = Entry.objects.order_by("key")
    return list(
        rows.values_list("key", "kind", "amount_mgpus", "gpu_seconds", "parked_gpu_seconds")
    )
