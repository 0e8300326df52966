"""What was predicted, when and by what, so that it can be scored once the truth is known."""

from django.db import models

from forecasting.demand_models import TrafficBucket
from workloads.models import Job

__all__ = ["Forecast", "TrafficBucket"]


class Forecast(models.Model):
    """Duration of a job as a range, in seconds."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="forecasts")
    made_at = models.DateTimeField()
    method = models.CharField(max_length=32)
    version = models.CharField(max_length=32)
    reasons = models.JSONField(default=list)
    p10_s = models.PositiveIntegerField()
    p50_s = models.PositiveIntegerField()
    p90_s = models.PositiveIntegerField()
    actual_s = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering = ("made_at", "id")

    def __str__(self) -> str:
        return f"forecast of job {self.job_id}: {self.p50_s} s"
