"""What is kept of real-time services: their traffic, and what was forecast from it."""

from django.db import models
from django.db.models import Q

from workloads.models import Service


class TrafficBucket(models.Model):
    """What came to a service in one step of its traffic: the mean rate, in millionths a second.

    A step without a row is a gap: nothing is known of it. A rate of 0 says that nobody came.
    """

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="traffic")
    at = models.DateTimeField()  # where the step begins
    rate_micro = models.BigIntegerField()

    class Meta:
        ordering = ("service_id", "at")
        constraints = (
            models.UniqueConstraint(fields=["service", "at"], name="one_rate_per_bucket"),
            models.CheckConstraint(condition=Q(rate_micro__gte=0), name="no_rate_below_0"),
        )
        indexes = (models.Index(fields=["at"]),)  # for what is let go of by age

    def __str__(self) -> str:
        return f"{self.rate_micro} millionths a second from {self.at} on"
