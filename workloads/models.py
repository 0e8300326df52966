"""Jobs, their runs and what each run held when. States change only in workloads.services."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Func, Q

from budgets.models import Budget
from clusters.models import Node, Pool


class Job(models.Model):
    """A request for GPUs by a leaf budget, and what has become of it."""

    class Kind(models.TextChoices):
        TRAINING = "training", "Training"
        BATCH_INFERENCE = "batch_inference", "Batch inference"
        QUANTIZATION = "quantization", "Quantization"
        REALTIME = "realtime", "Real time"

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        STARTING = "starting", "Starting"
        RUNNING = "running", "Running"
        COMPLETED = "completed", "Completed"
        FAILED = "failed", "Failed"
        TIMED_OUT = "timed_out", "Timed out"
        PREEMPTED = "preempted", "Preempted"  # not resumable: preemption ended it
        CANCELLED = "cancelled", "Cancelled"

    class Urgency(models.TextChoices):
        LOW = "low", "Low"
        NORMAL = "normal", "Normal"
        HIGH = "high", "High"

    class WhenUnfunded(models.TextChoices):
        WAIT = "wait", "Wait for funds"
        RUN = "run", "Run unfunded"

    ENDED = (
        State.COMPLETED,
        State.FAILED,
        State.TIMED_OUT,
        State.PREEMPTED,
        State.CANCELLED,
    )

    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="jobs")
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs"
    )
    submitted_at = models.DateTimeField()
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=16, choices=Kind)
    session = models.BooleanField(default=False)  # somebody works in it: its time limit is a box
    gpus = models.PositiveIntegerField()  # real time: the peak of its profile
    pools = models.ManyToManyField(Pool, blank=True, related_name="+")  # none: any
    minimum_runtime_s = models.PositiveIntegerField()
    resumable = models.BooleanField(default=False)
    urgency = models.CharField(max_length=8, choices=Urgency, default=Urgency.NORMAL)
    expected_duration_s = models.PositiveIntegerField(null=True, blank=True)
    time_limit_s = models.PositiveIntegerField(null=True, blank=True)
    when_unfunded = models.CharField(max_length=4, choices=WhenUnfunded, default=WhenUnfunded.WAIT)
    command = models.TextField(blank=True)
    spec = models.JSONField(default=dict, blank=True)
    # What it computes, as it was described: features that its forecast is made of.
    work = models.JSONField(null=True, blank=True)
    dependencies = models.ManyToManyField(
        "self", symmetrical=False, blank=True, related_name="dependents"
    )
    request_digest = models.CharField(max_length=64, blank=True)  # of what was asked for
    idempotency_key = models.CharField(max_length=100, null=True, blank=True)  # noqa: DJ001 null: no key

    state = models.CharField(max_length=12, choices=State, default=State.QUEUED)
    state_since = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    # Which hold is its present one; each requeue needs its own.
    attempt = models.PositiveIntegerField(default=1)
    funded = models.BooleanField(default=False)  # its present attempt has a hold
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    progress_s = models.PositiveIntegerField(default=0)  # kept by earlier runs
    # The forecast of its whole duration that the allocator plans with, in seconds.
    estimate_p10_s = models.PositiveIntegerField()
    estimate_p50_s = models.PositiveIntegerField()
    estimate_p90_s = models.PositiveIntegerField()

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["submitted_by", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="one_job_per_idempotency_key",
            ),
            models.CheckConstraint(condition=Q(gpus__gte=1), name="job_at_least_one_gpu"),
        )
        indexes = (
            models.Index(fields=["state", "id"]),
            models.Index(fields=["budget", "state"]),
        )

    def __str__(self) -> str:
        return f"#{self.pk} {self.name}"

    @property
    def is_realtime(self) -> bool:
        return self.kind == self.Kind.REALTIME

    @property
    def has_ended(self) -> bool:
        return self.state in self.ENDED


class Service(models.Model):
    """What a real-time job has besides: its demand profile, its swap cap, what was forecast.

    ``profile`` holds GPUs per step, local time of ``time_zone``; it spans a day (from midnight)
    or a week (from Monday's midnight).
    """

    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="service")
    profile = models.JSONField()
    step_minutes = models.PositiveSmallIntegerField(default=60)
    time_zone = models.CharField(max_length=64, default="UTC")
    swap_cap = models.PositiveIntegerField()
    # Minutes of a bucket of its traffic, as its first traffic had it.
    traffic_step_minutes = models.PositiveSmallIntegerField(null=True, blank=True)
    # When traffic last came that went further than before, and how often it does, in seconds.
    traffic_came_at = models.DateTimeField(null=True, blank=True)
    traffic_every_s = models.PositiveIntegerField(null=True, blank=True)
    # Whether forecasts of its traffic take the place of the profile; between which GPUs they may
    # move (none: the least and the most of the profile).
    calibrated = models.BooleanField(default=False)
    least_gpus = models.PositiveIntegerField(null=True, blank=True)
    most_gpus = models.PositiveIntegerField(null=True, blank=True)
    # What forecasting has put in force: {version, step_minutes, week: GPUs per step of the local
    # week, ahead: {start: seconds since 1970, step_minutes, gpus: per step}}. Read by
    # workloads.demand alone.
    forecast = models.JSONField(null=True, blank=True)
    # GPUs that a cycle decided on and the connector has not confirmed: [[node, mask, funded], …].
    pending = models.JSONField(null=True, blank=True)

    class Meta:
        ordering = ("job_id",)

    def __str__(self) -> str:
        return f"service of job {self.job_id}"


def external_id(job_id: int, number: int) -> str:
    """Return the name under which connectors know a run, by its job and number; never reused."""
    return f"allotment-{job_id}-{number}"


class Run(models.Model):
    """One attempt of a job on GPUs of one pool."""

    class State(models.TextChoices):
        STARTING = "starting", "Starting"  # decided, not yet confirmed by the connector
        RUNNING = "running", "Running"
        STOPPING = "stopping", "Stopping"  # to be stopped, not yet confirmed
        ENDED = "ended", "Ended"

    class EndReason(models.TextChoices):
        COMPLETED = "completed", "Completed"
        FAILED = "failed", "Failed"
        TIMED_OUT = "timed_out", "Time limit reached"
        PREEMPTED = "preempted", "Preempted"
        CANCELLED = "cancelled", "Cancelled"
        NODE_FAILURE = "node_failure", "Node failure"
        REFUSED = "refused", "Refused by the cluster"

    LIVE = (State.STARTING, State.RUNNING, State.STOPPING)

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="runs")
    number = models.PositiveIntegerField()
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="runs")
    state = models.CharField(max_length=8, choices=State, default=State.STARTING)
    decided_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    protected_until = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.CharField(max_length=12, choices=EndReason, blank=True)
    charged_until = models.DateTimeField(null=True, blank=True)  # end of its last charge
    told_limit_s = models.PositiveIntegerField(null=True, blank=True)  # that its cluster knows of

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=["job", "number"], name="one_run_per_number"),
            models.UniqueConstraint(
                fields=["job"], condition=~Q(state="ended"), name="one_live_run_per_job"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True)
                | Q(started_at__isnull=True)
                | Q(ended_at__gte=F("started_at")),
                name="run_ends_after_start",
            ),
        )
        indexes = (
            models.Index(fields=["state"]),
            models.Index(fields=["started_at", "ended_at"]),
            models.Index(fields=["ended_at"]),
            models.Index(fields=["decided_at"]),
        )

    def __str__(self) -> str:
        return self.external_id

    @property
    def external_id(self) -> str:
        """The name under which the connector knows this run."""
        return external_id(self.job_id, self.number)

    @property
    def box_ends_at(self) -> datetime | None:
        """When a session's time box ends; None before it starts, and for what has no limit."""
        limit = self.job.time_limit_s
        if self.started_at is None or limit is None:
            return None
        return self.started_at + timedelta(seconds=limit)


MOST_GPUS = 63  # of a node: bits of a mask, which is above 0


class BitCount(Func):
    """How many bits of a mask are set: their sum, which any database can work out."""

    template, arg_joiner = "(%(expressions)s)", " + "

    def __init__(self, mask: str, **extra: Any) -> None:
        bits = (F(mask).bitrightshift(n).bitand(1) for n in range(MOST_GPUS))
        super().__init__(*bits, **extra)


class Holding(models.Model):
    """GPUs (a bit mask) that a run holds on one node from an instant to another.

    A batch-like run has one row per node for its life, cut where its funding changes. A real-time
    run's set of GPUs changes by closing rows and opening others.
    """

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="holdings")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="+")
    mask = models.BigIntegerField()
    # The database's own count, so that it can add up what runs, and never differs from the mask.
    gpus = models.GeneratedField(
        expression=BitCount("mask"), output_field=models.BigIntegerField(), db_persist=True
    )
    funded = models.BooleanField()
    started_at = models.DateTimeField(null=True, blank=True)  # none until the start is confirmed
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(mask__gt=0), name="holding_has_gpus"),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True)
                | Q(started_at__isnull=True)
                | Q(ended_at__gte=F("started_at")),
                name="holding_ends_after_start",
            ),
        )
        indexes = (
            models.Index(fields=["run", "ended_at"]),
            # What every cycle asks for: held now, or until lately.
            models.Index(fields=["ended_at"]),
        )

    def __str__(self) -> str:
        return f"{self.run_id} holds {self.mask:b} of {self.node_id}"


class Extension(models.Model):
    """More time that somebody asked for a session, and what came of it. Never changed.

    ``ended_at`` is when its time box ended before, ``asked_until`` what was asked for. ``rule``
    says why it was refused, with the particulars in ``data``; empty: it was granted. A refusal
    counts those like it that came after: ``again`` more, the last ``again_at``. Only these move.
    """

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="extensions")
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    asked_at = models.DateTimeField()
    asked_s = models.PositiveIntegerField()
    ended_at = models.DateTimeField()
    asked_until = models.DateTimeField()
    rule = models.CharField(max_length=16, blank=True)
    data = models.JSONField(default=dict)
    idempotency_key = models.CharField(max_length=100, null=True, blank=True)  # noqa: DJ001 null: no key
    again = models.PositiveIntegerField(default=0)
    again_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["asked_by", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="one_extension_per_idempotency_key",
            ),
        )

    def __str__(self) -> str:
        return f"{self.asked_s} s more for {self.run_id}"

    @property
    def is_granted(self) -> bool:
        return not self.rule

    @property
    def last_at(self) -> datetime:
        return self.again_at or self.asked_at


# Kinds of events that somebody decided; what they mean stands in `allocator.audit`.
DECIDED = ("cancelled", "cancel_requested", "extended", "urgency")


class JobEvent(models.Model):
    """The job's story, one line an event; ``data`` holds the numbers that decided it."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="events")
    run = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.PROTECT, related_name="events"
    )
    at = models.DateTimeField()
    kind = models.CharField(max_length=24)
    data = models.JSONField(default=dict)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )

    class Meta:
        ordering = ("at", "id")
        indexes = (
            models.Index(fields=["job", "at"]),
            # What people decided, among all that happened.
            models.Index(
                fields=["at", "id"], condition=Q(kind__in=DECIDED), name="workloads_event_decided"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} of job {self.job_id} at {self.at}"
