"""What is kept of real-time services: their traffic, and what was forecast from it."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

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


class RatePerGpu(models.Model):
    """What one GPU does of a service's traffic, in millionths a second. Never changed.

    The newest that was *declared* counts, unless it was withdrawn (no rate); else the newest that
    was *measured*, with what it was measured from in ``evidence``.
    """

    class Source(models.TextChoices):
        DECLARED = "declared", "Declared"
        MEASURED = "measured", "Measured"

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="gpu_rates")
    source = models.CharField(max_length=8, choices=Source)
    rate_micro = models.BigIntegerField(null=True, blank=True)
    at = models.DateTimeField()
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    evidence = models.JSONField(default=dict)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(
                condition=Q(rate_micro__isnull=True) | Q(rate_micro__gt=0), name="a_gpu_does_some"
            ),
        )

    def __str__(self) -> str:
        return f"{self.source}: {self.rate_micro} millionths a second"


class ServiceProfile(models.Model):
    """A version of what a service's traffic says of its week, and whether it was put in force.

    ``week`` holds GPUs per step of the local week from Monday on; ``fitted`` is the model that
    forecasts the next days; ``terms`` are what turned rates into GPUs; ``tried`` is how it did on
    the last days, ``present`` how the one in force did on the same. ``reason`` says why it isn't
    in force; empty: it was.
    """

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="profiles")
    version = models.PositiveIntegerField()
    made_at = models.DateTimeField()
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    in_force_at = models.DateTimeField(null=True, blank=True)
    replaced_at = models.DateTimeField(null=True, blank=True)
    reason = models.TextField(blank=True)
    method = models.CharField(max_length=32)
    step_minutes = models.PositiveSmallIntegerField()
    week = models.JSONField()
    fitted = models.JSONField()
    terms = models.JSONField()
    tried = models.JSONField()
    present = models.JSONField(null=True, blank=True)
    rate = models.ForeignKey(RatePerGpu, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ("service_id", "version")
        constraints = (
            models.UniqueConstraint(fields=["service", "version"], name="one_profile_per_version"),
            models.UniqueConstraint(
                fields=["service"],
                condition=Q(in_force_at__isnull=False, replaced_at__isnull=True),
                name="one_profile_in_force",
            ),
            models.CheckConstraint(
                condition=Q(replaced_at__isnull=True) | Q(replaced_at__gte=F("in_force_at")),
                name="profile_replaced_after_it_was_in_force",
            ),
        )

    def __str__(self) -> str:
        return f"version {self.version} of service {self.service_id}"

    @property
    def is_in_force(self) -> bool:
        return self.in_force_at is not None and self.replaced_at is None


class DemandForecast(models.Model):
    """What a service was forecast to want in a timestep, as it was last told before that began.

    By its owner's profile (*declared*), by the week of its traffic (*week*) or by its recent level
    (*recent*).
    """

    class Source(models.TextChoices):
        DECLARED = "declared", "Declared"
        WEEK = "week", "Week"
        RECENT = "recent", "Recent"

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="demand_forecasts")
    at = models.DateTimeField()  # the timestep's start
    gpus = models.PositiveIntegerField()
    source = models.CharField(max_length=8, choices=Source)
    version = models.PositiveIntegerField(null=True, blank=True)  # of the service's profile

    class Meta:
        ordering = ("service_id", "at")
        constraints = (
            models.UniqueConstraint(fields=["service", "at"], name="one_demand_per_timestep"),
        )
        indexes = (models.Index(fields=["at"]),)

    def __str__(self) -> str:
        return f"{self.gpus} GPUs from {self.at} on"


class DemandScore(models.Model):
    """How a day's demand forecasts of a service did, over the timesteps whose need is known.

    All sums are GPU-timesteps: needed; forecast; the lesser of both, timestep by timestep; held;
    needed but not held; asked by the declared profile. Losses are sums of pinball losses in
    thousandths of a GPU. ``covered`` counts timesteps with enough forecast.
    """

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="demand_scores")
    day = models.DateField()  # of UTC
    calibrated = models.BooleanField()  # its last timestep wasn't told by the declared profile
    timesteps = models.PositiveIntegerField()
    covered = models.PositiveIntegerField()
    needed = models.PositiveIntegerField()
    forecast = models.PositiveIntegerField()
    met = models.PositiveIntegerField()
    held = models.PositiveIntegerField()
    short = models.PositiveIntegerField()
    declared = models.PositiveIntegerField()
    loss_milli = models.PositiveBigIntegerField()
    declared_loss_milli = models.PositiveBigIntegerField()

    class Meta:
        ordering = ("service_id", "day")
        constraints = (
            models.UniqueConstraint(fields=["service", "day"], name="one_demand_score_a_day"),
        )

    def __str__(self) -> str:
        return f"{self.covered} of {self.timesteps} timesteps of {self.day} covered"
