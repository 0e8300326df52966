"""Sums of the entries that were written before there were any sums."""

from collections import defaultdict
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from django.db import migrations

PERIOD, LOCAL_DAY, HOUR, DAY, WEEK = 0, 1, 3600, 86_400, 604_800
BY_TIME = ("charge", "refund", "adjust")
FIELDS = (
    *("budget_id", "kind", "funded", "job__kind", "job_id", "attempt", "at"),
    *("amount_mgpus", "gpu_seconds", "parked_gpu_seconds"),
)
KEY = ("size", "since", "budget_id", "kind", "funded", "is_realtime")
SUMS = ("amount_mgpus", "gpu_seconds", "parked_gpu_seconds", "parked_mgpus")
JOB_KEY = ("job_id", "attempt", "budget_id", "kind")


def fill(apps: Any, schema_editor: Any) -> None:
    """Write all sums, a period at a time. Without entries there is nothing to do."""
    entry = apps.get_model("ledger", "Entry")
    periods = entry.objects.order_by().values_list("period_id", "period__time_zone").distinct()
    for period_id, zone in list(periods):
        sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        job_sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
        rows = entry.objects.filter(period_id=period_id).order_by().values_list(*FIELDS)
        for budget, kind, funded, job_kind, job, attempt, at, *amounts in rows.iterator(5000):
            realtime = kind == "charge" and job_kind == "realtime"
            for size, since in cells(kind, int(at.timestamp()), zone):
                add(sums[size, since, budget, kind, funded, realtime], funded, *amounts)
            if job is not None:
                mine = job_sums[job, attempt, budget, kind]
                mine[:] = mine[0] + amounts[0], mine[1] + amounts[1]
        save(apps.get_model("ledger", "Rollup"), period_id, KEY, SUMS, sums)
        save(apps.get_model("ledger", "JobRollup"), period_id, JOB_KEY, SUMS[:2], job_sums)


def save(model: Any, period_id: int, key: Any, names: Any, sums: Any) -> None:
    rows = (
        model(period_id=period_id, **dict(zip((*key, *names), (*cell, *amounts), strict=True)))
        for cell, amounts in sums.items()
    )
    model.objects.bulk_create(rows, batch_size=1000)


def cells(kind: str, seconds: int, zone: str) -> list[tuple[int, int]]:
    if kind not in BY_TIME:
        return [(PERIOD, 0)]
    hour = seconds - seconds % HOUR
    found = [(PERIOD, 0), (HOUR, hour), *((size, hour - hour % size) for size in (DAY, WEEK))]
    day = local_day(hour, zone)
    return found if day % HOUR else [*found, (LOCAL_DAY, day)]


@lru_cache(maxsize=100_000)
def local_day(seconds: int, name: str) -> int:
    zone = ZoneInfo(name)
    day = datetime.fromtimestamp(seconds, zone).date()
    for one in (day + timedelta(days=1), day):
        at = datetime.combine(one, time(), tzinfo=zone).astimezone(UTC).timestamp()
        if at <= seconds:
            return int(at)
    before = datetime.combine(day - timedelta(days=1), time(), tzinfo=zone)
    return int(before.astimezone(UTC).timestamp())


def add(sums: list[int], funded: bool, amount: int, held: int, parked: int) -> None:
    cost = amount // held * parked if funded and held else 0
    for place, value in enumerate((amount, held, parked, cost)):
        sums[place] += value


def empty(apps: Any, schema_editor: Any) -> None:
    for name in ("Rollup", "JobRollup"):
        apps.get_model("ledger", name).objects.all().delete()


class Migration(migrations.Migration):
    dependencies = (("ledger", "0004_rollups"),)
    operations = (migrations.RunPython(fill, empty),)
