"""Cycles with all that decided them, why jobs wait, alarms, and simulations."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from allocator.review_models import ReviewComment as ReviewComment
from allocator.review_models import ReviewRecord as ReviewRecord
from budgets.models import Budget, ChangeSet, Period
from clusters.models import Pool
from clusters.saying import told
from workloads.models import Job


class AllocatorState(models.Model):
    """One row. ``requested`` counts replan requests, ``handled`` those a cycle has answered;
    ``version`` counts commits, so that a plan made on an older snapshot can't be committed."""

    requested = models.PositiveBigIntegerField(default=0)
    handled = models.PositiveBigIntegerField(default=0)
    version = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"version {self.version}"


class Cycle(models.Model):
    """One snapshot → plan → check → commit."""

    class Kind(models.TextChoices):
        TICK = "tick", "Tick"
        REPLAN = "replan", "Replan"

    class Status(models.TextChoices):
        COMMITTED = "committed", "Committed"
        ILLEGAL = "illegal", "Illegal plan, not committed"
        SUPERSEDED = "superseded", "Superseded by another cycle"
        FAILED = "failed", "Failed"

    kind = models.CharField(max_length=8, choices=Kind)
    trigger = models.CharField(max_length=32)
    at = models.DateTimeField()
    timestep = models.DateTimeField()
    status = models.CharField(max_length=12, choices=Status)
    solver_status = models.CharField(max_length=32)
    mode = models.CharField(max_length=8)
    objective = models.FloatField(null=True, blank=True)
    bound = models.FloatField(null=True, blank=True)
    solve_ms = models.FloatField(default=0)
    starts = models.PositiveIntegerField(default=0)
    stops = models.PositiveIntegerField(default=0)
    preemptions = models.PositiveIntegerField(default=0)
    waiting = models.PositiveIntegerField(default=0)
    versions = models.JSONField(default=dict)
    problems = models.JSONField(default=list)  # violations, relaxations, errors, in sentences
    # Where a full plan put jobs (start, first GPU): the problem and this give the same plan again.
    hint = models.JSONField(default=dict, blank=True)
    # zlib-compressed JSON: the problem in the scenario format, and the plan in the plan format.
    snapshot = models.BinaryField()
    plan = models.BinaryField()

    class Meta:
        ordering = ("id",)
        indexes = (
            models.Index(fields=["at"]),
            # What the list is filtered by, the newest first.
            models.Index(fields=["status", "id"]),
            models.Index(fields=["trigger", "id"]),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.pk} at {self.at}"


class FullPlan(models.Model):
    """What full mode made of one snapshot: a hint to later cycles, never committed by itself."""

    at = models.DateTimeField()
    solver_status = models.CharField(max_length=32)
    objective = models.FloatField()
    bound = models.FloatField(null=True, blank=True)
    solve_ms = models.FloatField(default=0)
    starts = models.JSONField(default=list)  # job, instant, node's id, first GPU in the node

    class Meta:
        ordering = ("id",)
        indexes = (models.Index(fields=["at"]),)

    def __str__(self) -> str:
        return f"full plan at {self.at}"


class Outlook(models.Model):
    """Why a waiting job waits, what would release it, and when it may start."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="outlook")
    cycle = models.ForeignKey(Cycle, on_delete=models.CASCADE, related_name="+")
    rule = models.CharField(max_length=24)
    data = models.JSONField(default=dict)
    start_low = models.DateTimeField(null=True, blank=True)
    start_likely = models.DateTimeField(null=True, blank=True)
    start_high = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("job_id",)

    def __str__(self) -> str:
        return f"{self.job_id}: {self.rule}"


class Wait(models.Model):
    """How long a rule has bound an attempt of a job: kept when the outlook of the moment is gone.

    One row for each rule, however often it came and went, so that a long wait takes few rows.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="waits")
    attempt = models.PositiveIntegerField()
    rule = models.CharField(max_length=24)
    first_at = models.DateTimeField()  # of the first cycle that told it
    since = models.DateTimeField(null=True, blank=True)  # while it binds: of the present stretch
    seconds = models.PositiveBigIntegerField(default=0)  # of the stretches that are over
    data = models.JSONField(default=dict)  # the rule's particulars when it last bound

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["job", "attempt", "rule"], name="one_wait_per_attempt_and_rule"
            ),
        )
        indexes = (
            models.Index(
                fields=["job"], condition=Q(since__isnull=False), name="allocator_wait_binding"
            ),
        )

    def __str__(self) -> str:
        return f"{self.job_id}, attempt {self.attempt}: {self.rule}"


class StartEstimate(models.Model):
    """The first estimate of a start that each attempt of a job was given; kept to be judged."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="start_estimates")
    attempt = models.PositiveIntegerField()
    made_at = models.DateTimeField()
    ahead_s = models.PositiveIntegerField()  # from then to the likely start
    low = models.DateTimeField()
    likely = models.DateTimeField()
    high = models.DateTimeField()

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=["job", "attempt"], name="one_estimate_per_attempt"),
        )
        indexes = (models.Index(fields=["made_at"]),)

    def __str__(self) -> str:
        return f"{self.job_id}, attempt {self.attempt}: {self.likely}"


class Alarm(models.Model):
    """Something that someone must act on."""

    kind = models.CharField(max_length=32)
    raised_at = models.DateTimeField()
    cleared_at = models.DateTimeField(null=True, blank=True)
    text = models.CharField(max_length=300)  # in English
    sentence = models.JSONField(default=dict)  # the same in no language; {} where it has no other
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ("-raised_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=["kind"], condition=Q(cleared_at=None), name="one_open_alarm_per_kind"
            ),
        )

    def __str__(self) -> str:
        return self.text

    @property
    def said(self) -> str:
        """The text in the language that is active."""
        return told(self.sentence) if self.sentence else self.text


class Delivery(models.Model):
    """What a budget was entitled to, wanted and got in one timestep of one pool, in GPU-seconds.

    Owed is the lesser of entitled and demand; delivered the lesser of funded and owed.
    """

    timestep = models.DateTimeField()
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    entitled_gpu_seconds = models.BigIntegerField()
    demand_gpu_seconds = models.BigIntegerField()
    funded_gpu_seconds = models.BigIntegerField()

    class Meta:
        ordering = ("timestep", "budget_id", "pool_id")
        verbose_name_plural = "deliveries"
        constraints = (
            models.UniqueConstraint(
                fields=["timestep", "budget", "pool"], name="one_delivery_per_timestep"
            ),
        )

    def __str__(self) -> str:
        return f"{self.budget_id} in {self.timestep}"


class DeliveryDay(models.Model):
    """What a budget was owed and what was delivered up to the end of a UTC day, in GPU-seconds.

    Running totals of Delivery: an interval is the difference of two days, so that a report over a
    year reads no more than one over a week. A day is added when the first timestep of a later one
    is closed; one on which nothing was asked for has no rows, and the totals of the day before
    hold.
    """

    day = models.DateTimeField()  # its midnight
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="+")
    owed_gpu_seconds = models.BigIntegerField()
    delivered_gpu_seconds = models.BigIntegerField()

    class Meta:
        ordering = ("day", "budget_id")
        constraints = (
            models.UniqueConstraint(fields=["day", "budget"], name="one_delivery_per_day"),
        )

    def __str__(self) -> str:
        return f"{self.budget_id} up to {self.day:%Y-%m-%d}"


class Simulation(models.Model):
    """What somebody asked to be simulated, how far it is, and what came of it.

    The jobs are those of the history's window [starts_at, ends_at), or of a trace that is kept as
    text. ``trees`` are the shares to play them under, as they were when it was asked for.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    class Shares(models.TextChoices):
        """Which shares: those of today, or today's and a draft's; a file's; all groups alike."""

        NOW = "now", "Shares of today"
        CHANGE_SET = "change_set", "A change set beside today's"
        VECTOR = "vector", "A draft beside today's"
        PERIOD = "period", "A period's plan beside today's"
        FILE = "file", "A tree file"
        EQUAL = "equal", "Equal shares"

    OPEN = (State.QUEUED, State.RUNNING)

    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="simulations"
    )
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="+")  # for whom
    name = models.CharField(max_length=100, blank=True)
    starts_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True)
    trace_name = models.CharField(max_length=100, blank=True)
    trace = models.TextField(blank=True)
    nodes = models.CharField(max_length=20, blank=True)  # as in 56x8; empty: the fleet as it is
    events_name = models.CharField(max_length=100, blank=True)
    events = models.TextField(blank=True)  # as in an events file; empty: what befell a history
    planned_windows = models.BooleanField(default=False)  # whether they are among the events
    shares = models.CharField(max_length=10, choices=Shares, default=Shares.NOW)
    change_set = models.ForeignKey(
        ChangeSet, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    period = models.ForeignKey(
        Period, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    trees = models.JSONField(default=dict)  # now, draft or given: nodes, and budgets by id
    policies = models.JSONField(default=list)
    seed = models.PositiveIntegerField(default=0)

    state = models.CharField(max_length=9, choices=State, default=State.QUEUED)
    attempts = models.PositiveSmallIntegerField(default=0)
    progress_per_mille = models.PositiveSmallIntegerField(default=0)
    simulated_s = models.PositiveIntegerField(default=0)  # of the one that is being played
    left_s = models.PositiveIntegerField(null=True, blank=True)  # of it all, about, while it runs
    seen_at = models.DateTimeField(null=True, blank=True)  # when its worker last wrote
    error = models.CharField(max_length=300, blank=True)  # a sentence
    result = models.JSONField(null=True, blank=True)
    picture = models.BinaryField(null=True, blank=True)  # zlib-compressed JSON: all runs
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            # A simulation takes a whole core: they follow each other.
            models.UniqueConstraint(
                fields=["state"], condition=Q(state="running"), name="one_simulation_runs"
            ),
        )
        indexes = (models.Index(fields=["asked_by", "state"]),)

    def __str__(self) -> str:
        return f"simulation {self.pk}, {self.state}"

    @property
    def is_open(self) -> bool:
        return self.state in self.OPEN

    @property
    def is_of_history(self) -> bool:
        return self.starts_at is not None
