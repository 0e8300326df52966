"""What was predicted, when and by what, so that it can be scored once the truth is known."""

from itertools import zip_longest

from django.db import models
from django.db.models import Q

from clusters.saying import told
from forecasting.demand_models import (
    DemandForecast,
    DemandScore,
    RatePerGpu,
    ServiceProfile,
    TrafficBucket,
)
from workloads.models import Job

__all__ = [
    "DemandForecast",
    "DemandScore",
    "Estimator",
    "Forecast",
    "RatePerGpu",
    "ServiceProfile",
    "TrafficBucket",
]


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
    reasons = models.JSONField(default=list)  # in English
    sentences = models.JSONField(default=list)  # each in no language; None: it has no other
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
    def said(self) -> list[str]:
        """The reasons in the language that is active, as far as they have words in it."""
        pairs = zip_longest(self.reasons, self.sentences)
        return [told(sentence) if sentence else text for text, sentence in pairs]


class Estimator(models.Model):
    """What was learned from jobs that ended, as one night's training left it.

    Exactly one of a kind is active; a candidate was not switched to, a retired one was. ``why``
    says why (not). ``parameters`` are what `core.storing` packs; older ones are let go of, the
    figures stay.
    """

    class State(models.TextChoices):
        CANDIDATE = "candidate", "Not switched to"
        ACTIVE = "active", "In force"
        RETIRED = "retired", "Replaced"

    kind = models.CharField(max_length=16, choices=Job.Kind)
    number = models.PositiveIntegerField()  # counts those of its kind
    method = models.CharField(max_length=32)  # version of the code that reads the parameters
    state = models.CharField(max_length=9, choices=State)
    trained_at = models.DateTimeField()
    newest_at = models.DateTimeField()  # end of the newest job that it was learned from
    rows = models.PositiveIntegerField()
    left_out = models.PositiveIntegerField(default=0)  # jobs whose work can't be read any more
    seconds = models.FloatField()  # that training took
    scores = models.JSONField(default=dict)  # by way of holding out: rows, errors
    why = models.CharField(max_length=300)
    parameters = models.BinaryField()
    digest = models.CharField(max_length=64)  # SHA-256 of the parameters

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=["kind", "number"], name="one_estimator_per_number"),
            models.UniqueConstraint(
                fields=["kind"], condition=Q(state="active"), name="one_active_estimator_per_kind"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} estimator {self.number}, {self.state}"

    @property
    def version(self) -> str:
        """What forecasts by it are kept under."""
        return f"{self.method}/{self.number}"
