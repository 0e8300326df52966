"""Leads' plans, and checkpoints at which what lies unused goes back to the reserve."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q


class BudgetPlan(models.Model):
    """How much of its grant a budget means to use in each month or quarter of a period.

    ``parts`` are thousandths of a percent, one for each, 100,000 in all; none: from then on the
    budget has no plan. Rows never change: a new plan is a new version, and the newest that was
    made by an instant is in force then. Up to ``kept_until`` the version before goes on, exactly
    as it was (evenly, where there was none).
    """

    class By(models.TextChoices):
        MONTH = "month", "Month"
        QUARTER = "quarter", "Quarter"

    budget = models.ForeignKey("budgets.Budget", on_delete=models.PROTECT, related_name="plans")
    period = models.ForeignKey("budgets.Period", on_delete=models.PROTECT, related_name="plans")
    version = models.PositiveIntegerField()
    by = models.CharField(max_length=8, choices=By)
    parts = models.JSONField()
    kept_until = models.DateTimeField(null=True, blank=True)
    note = models.CharField(max_length=300, blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("period_id", "budget_id", "version")
        constraints = (
            models.UniqueConstraint(
                fields=["budget", "period", "version"], name="one_budget_plan_per_version"
            ),
        )

    def __str__(self) -> str:
        return f"plan {self.version} of {self.budget_id} in {self.period_id}"


class Checkpoint(models.Model):
    """An instant of a period at which budgets that have used too little give some back.

    ``steps`` are pairs [below, remove] in thousandths of a percent; see budgets.core.checkpoints
    for what the fields mean. ``done_at``: when it was carried out.
    """

    class Measured(models.TextChoices):
        PLANNED = "planned", "Planned to date"
        GRANTED = "granted", "Granted"

    class RemovedOf(models.TextChoices):
        PLANNED = "planned", "Planned to date"
        REMAINING = "remaining", "What remains"
        UNUSED = "unused", "Planned to date and not used"

    period = models.ForeignKey(
        "budgets.Period", on_delete=models.PROTECT, related_name="checkpoints"
    )
    at = models.DateTimeField()
    measured = models.CharField(max_length=8, choices=Measured)
    removed_of = models.CharField(max_length=10, choices=RemovedOf)
    cumulative = models.BooleanField()
    gives_back = models.BooleanField(default=False)  # what later use makes up for
    initial_only = models.BooleanField(default=False)  # what was granted later is left alone
    own_plans = models.BooleanField(default=True)  # False: planned evenly, whatever leads planned
    spared_days = models.PositiveIntegerField(default=0)  # since a budget's first grant
    steps = models.JSONField()
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("at", "id")
        constraints = (
            models.UniqueConstraint(fields=["period", "at"], name="one_checkpoint_at_an_instant"),
        )

    def __str__(self) -> str:
        return f"checkpoint of {self.period_id} at {self.at:%Y-%m-%dT%H:%MZ}"


class CheckpointResult(models.Model):
    """What a checkpoint found of one budget and took of it, in milli-GPU-seconds. Never changes.

    ``due`` is what the rule takes, ``taken`` what of it was neither spent nor set aside;
    ``returned`` what of earlier ones it gave back. The ledger's transfer of it has the key
    `transfer:takeback:<checkpoint>:<budget>:<budget>`.
    """

    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="results")
    budget = models.ForeignKey("budgets.Budget", on_delete=models.PROTECT, related_name="+")
    granted_mgpus = models.BigIntegerField()
    used_mgpus = models.BigIntegerField()
    planned_mgpus = models.BigIntegerField()
    due_mgpus = models.BigIntegerField()
    taken_mgpus = models.BigIntegerField()
    returned_mgpus = models.BigIntegerField(default=0)
    spared = models.CharField(max_length=100, blank=True)  # why it was

    class Meta:
        ordering = ("checkpoint_id", "budget_id")
        constraints = (
            models.UniqueConstraint(
                fields=["checkpoint", "budget"], name="one_result_per_checkpoint_and_budget"
            ),
            models.CheckConstraint(
                condition=Q(taken_mgpus__gte=0, taken_mgpus__lte=F("due_mgpus")),
                name="taken_at_most_what_is_due",
            ),
            models.CheckConstraint(
                condition=Q(returned_mgpus=0) | Q(returned_mgpus__gt=0, taken_mgpus=0),
                name="taken_or_returned",
            ),
        )

    def __str__(self) -> str:
        return f"{self.budget_id} at {self.checkpoint_id}: {self.taken_mgpus}"


class Exemption(models.Model):
    """A budget that a checkpoint is to spare: asked for by its lead, decided by its manager."""

    class Status(models.TextChoices):
        ASKED = "asked", "Asked"
        APPROVED = "approved", "Approved"
        DECLINED = "declined", "Declined"

    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="exemptions")
    budget = models.ForeignKey("budgets.Budget", on_delete=models.PROTECT, related_name="+")
    status = models.CharField(max_length=8, choices=Status, default=Status.ASKED)
    reason = models.TextField()
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    asked_at = models.DateTimeField()
    answer = models.TextField(blank=True)  # the reason of the decision
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["checkpoint", "budget"],
                condition=~Q(status="declined"),
                name="one_exemption_unless_declined",
            ),
        )

    def __str__(self) -> str:
        return f"exemption {self.pk} of {self.budget_id}: {self.status}"
