"""What a GPU-timestep of a job is worth to the allocator: weight = (1 + 9·F)·u.

F is the Fair Tree factor of the job's leaf in (0, 1]; u its raw urgency (1, 2, 4) over the
GPU-second-weighted mean of its leaf's jobs, so that marking everything high changes nothing and
splitting a job gains nothing. An unfunded job weighs 0.1·u.
"""

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction

from workloads.models import Job

RAW_URGENCY = {Job.Urgency.LOW.value: 1, Job.Urgency.NORMAL.value: 2, Job.Urgency.HIGH.value: 4}
UNFUNDED = Fraction(1, 10)


def urgency_factors(jobs: Iterable[Job]) -> dict[int, Fraction]:
    """u of each job by id, exact; the GPU-second-weighted mean of a leaf's is 1."""
    jobs = list(jobs)
    total: dict[int, int] = defaultdict(int)
    size: dict[int, int] = defaultdict(int)
    for job in jobs:
        total[job.budget_id] += RAW_URGENCY[job.urgency] * _gpu_seconds(job)
        size[job.budget_id] += _gpu_seconds(job)
    return {
        job.pk: Fraction(RAW_URGENCY[job.urgency] * size[job.budget_id], total[job.budget_id])
        for job in jobs
    }


def weight(*, factor: Fraction | None, urgency: Fraction, funded: bool) -> float:
    """The job's weight, to 6 decimals. ``factor`` None: its leaf has no place in the tree."""
    if not funded or factor is None:
        return round(float(UNFUNDED * urgency), 6)
    return round(float((1 + 9 * factor) * urgency), 6)


def _gpu_seconds(job: Job) -> int:
    return job.gpus * max(1, job.estimate_p50_s)
