"""What was predicted, when and by what, so that it can be scored once the truth is known."""

from django.db import models
from django.db.models import Q

from forecasting.demand_models import TrafficBucket
from workloads.models import Job

__all__ = ["Forecast", "TrafficBucket"]


class Forecast(models.Model):
    """Duration of a job as a range, in seconds, and how good it was.

    ``planned``: the one that the allocator plans with; others were made beside it, to be compared.
    What a job took is the truth for all of them; one that failed or was cancelled has none, so
    that its forecasts are never scored. Losses are in tenths of a second (see `core.scoring`).
    """

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="forecasts")
    made_at = models.DateTimeField()
    planned = models.BooleanField(default=True)
    method = models.CharField(max_length=32)
    version = models.CharField(max_length=32)
    variant = models.CharField(max_length=32, blank=True)  # of what it computes, if that was given
    reasons = models.JSONField(default=list)
    p10_s = models.PositiveIntegerField()
    p50_s = models.PositiveIntegerField()
    p90_s = models.PositiveIntegerField()
    actual_s = models.PositiveIntegerField(null=True, blank=True)
    scored_at = models.DateTimeField(null=True, blank=True)
    loss_p10_ds = models.BigIntegerField(null=True, blank=True)
    loss_p50_ds = models.BigIntegerField(null=True, blank=True)
    loss_p90_ds = models.BigIntegerField(null=True, blank=True)
    error_per_mille = models.BigIntegerField(null=True, blank=True)
    inside = models.BooleanField(null=True, blank=True)

    class Meta:
        ordering = ("made_at", "id")
        indexes = (
            models.Index(
                fields=["scored_at"],
                condition=Q(scored_at__isnull=False),
                name="forecasting_scored",
            ),
        )

    def __str__(self) -> str:
        return f"forecast of job {self.job_id}: {self.p50_s} s"

    @property
    def gpu_seconds(self) -> tuple[int, int, int]:
        """GPU-seconds at p10, p50 and p90."""
        gpus = self.job.gpus
        return gpus * self.p10_s, gpus * self.p50_s, gpus * self.p90_s
