"""How much more is declared for jobs than they use, and what to declare instead. Integers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .quantiles import PER_MILLE, quantile

ENOUGH = 5  # jobs that a number is suggested from


class Declared(NamedTuple):
    """What was declared for a job that ended, and what it took: GPUs, seconds, seconds."""

    gpus: int
    asked_s: int
    used_s: int


@dataclass(frozen=True, slots=True)
class Inflation:
    """Of some jobs: asked ÷ used per mille (p10, median, p90), and used ÷ asked at the median.

    1000 is right; above it more was asked than used. `nine_of_ten_per_mille` is the part of what
    was asked that nine of ten would have fitted in. `beyond_gpu_seconds` counts what was asked and
    not used, never netted against jobs that took longer than was asked.
    """

    jobs: int
    low_per_mille: int
    median_per_mille: int
    high_per_mille: int
    took_per_mille: int
    nine_of_ten_per_mille: int
    asked_gpu_seconds: int
    used_gpu_seconds: int
    beyond_gpu_seconds: int

    @property
    def suggests(self) -> int | None:
        """What to declare, per mille of what one would; None where too few jobs tell."""
        return self.took_per_mille if self.jobs >= ENOUGH else None


def inflation(rows: Sequence[Declared]) -> Inflation | None:
    """Compare; None without rows. A job that took no whole second counts as one of 1 s."""
    if not rows:
        return None
    if min(row.asked_s for row in rows) < 1 or min(row.gpus for row in rows) < 1:
        raise ValueError("What was declared is 1 s on 1 GPU at least.")
    asked = [max(1, row.asked_s * PER_MILLE // max(1, row.used_s)) for row in rows]
    used = [max(1, max(1, row.used_s) * PER_MILLE // row.asked_s) for row in rows]
    return Inflation(
        jobs=len(rows),
        low_per_mille=quantile(asked, 100),
        median_per_mille=quantile(asked, 500),
        high_per_mille=quantile(asked, 900),
        took_per_mille=quantile(used, 500),
        nine_of_ten_per_mille=quantile(used, 900),
        asked_gpu_seconds=sum(row.gpus * row.asked_s for row in rows),
        used_gpu_seconds=sum(row.gpus * row.used_s for row in rows),
        beyond_gpu_seconds=sum(row.gpus * max(0, row.asked_s - row.used_s) for row in rows),
    )


def instead(declared_s: int, per_mille: int) -> int:
    """The seconds to declare instead, at least one minute, rounded up to whole minutes."""
    minutes = -(-declared_s * per_mille // (PER_MILLE * 60))
    return max(60, minutes * 60)
