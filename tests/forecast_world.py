"""Training jobs that told what they compute and ran to their end, so many and so long."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from budgets.models import Budget
from clusters.models import Pool
from forecasting import services as forecasting
from forecasting.core.correction import Correction
from forecasting.core.kinds import KINDS
from tests import factories as make
from tests.factories import HOUR, T0
from workloads.models import Job, Run

SIZES = ("1B", "3B", "7B", "13B")


def work_of(number: int, **more: Any) -> dict[str, Any]:
    """One of many like works, of four sizes and many lengths."""
    tokens = (1 + number % 7) * 10**8
    return {"parameters": SIZES[number % 4], "tokens": tokens, "sequence_length": 2048, **more}


def physics_s(work: Mapping[str, Any], *, gpus: int = 8, gpu: str = "H100") -> float:
    """What physics alone says, in seconds."""
    row = KINDS["training"]
    spec = row.read(work, gpu=gpu, gpus=gpus)
    return row.estimate(spec, Correction(0, None, {}, ()), gpus).p50


def ran(
    budget: Budget,
    pool: Pool,
    work: dict[str, Any] | None,
    took_s: int,
    *,
    ended_at: datetime,
    **fields: Any,
) -> Job:
    """A job that was estimated, ran on the pool, and ended; its forecasts are scored."""
    started = ended_at - timedelta(seconds=took_s)
    declared = fields.get("expected_duration_s")
    fields = {"state": "completed", "work": work, "ended_at": ended_at} | fields
    job = make.make_job(budget, at=started, **fields)
    asked: dict[str, Any] = {"gpu_types": [pool.gpu_type], "declared_s": declared, "work": work}
    guess = forecasting.estimate(budget=budget, kind=job.kind, gpus=job.gpus, now=started, **asked)
    forecasting.record(job=job, estimate=guess, now=started)
    reason = "completed" if job.state == "completed" else job.state
    Run.objects.create(
        job=job,
        number=1,
        pool=pool,
        state="ended",
        decided_at=started,
        started_at=started,
        ended_at=ended_at,
        end_reason=reason,
    )
    if job.state == Job.State.COMPLETED:
        forecasting.score(job=job, actual_s=took_s, now=ended_at)
    return job


def history(
    budget: Budget, pool: Pool, number: int, *, factor: float = 1.5, since: datetime = T0
) -> list[Job]:
    """`number` jobs, one an hour, that took `factor` times what physics says, give or take 5 %."""
    jobs = []
    for k in range(number):
        work = work_of(k)
        took = round(physics_s(work, gpu=pool.gpu_type) * factor * (0.95 + 0.01 * (k % 11)))
        jobs.append(ran(budget, pool, work, took, ended_at=since + (k + 1) * HOUR))
    return jobs
