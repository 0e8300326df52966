"""The tree of budgets, its shares as change sets, roles in a subtree, and periods."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from clusters.models import Pool

WHOLE = 100_000  # 100 % in thousandths of a percent


class Budget(models.Model):
    """A node of the tree. Shares are not here: they are rows of dated change sets."""

    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="children"
    )
    slug = models.SlugField()
    name = models.CharField(max_length=100)
    # Slugs from the root joined by "/", kept by budgets.services; how budgets are addressed.
    path = models.CharField(max_length=400, unique=True)
    description = models.TextField(blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("path",)
        constraints = (
            models.UniqueConstraint(fields=["parent", "slug"], name="slug_unique_under_parent"),
        )

    def __str__(self) -> str:
        return self.path

    @property
    def is_root(self) -> bool:
        return self.parent_id is None


class ChangeSet(models.Model):
    """The whole vector of shares of one parent's active children, from an instant on.

    ``version`` counts the approved sets of a parent from 1; a set is written against its base
    (version − 1), so two sets on the same base can't both be approved.
    """

    class Status(models.TextChoices):
        DRAFT = "draft", "Draft"
        PROPOSED = "proposed", "Proposed"
        APPROVED = "approved", "Approved"
        DECLINED = "declined", "Declined"
        STALE = "stale", "Stale"

    parent = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="change_sets")
    version = models.PositiveIntegerField()
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT)
    reason = models.TextField()
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    effective_at = models.DateTimeField()
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("parent_id", "version", "id")
        constraints = (
            models.UniqueConstraint(
                fields=["parent", "version"],
                condition=Q(status="approved"),
                name="one_approved_set_per_version",
            ),
        )

    def __str__(self) -> str:
        return f"change set {self.pk} of {self.parent_id}, version {self.version}"


class Share(models.Model):
    """One child's share in a change set, in thousandths of a percent; per pool if overridden."""

    change_set = models.ForeignKey(ChangeSet, on_delete=models.CASCADE, related_name="shares")
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="shares")
    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    thousandths = models.PositiveIntegerField()

    class Meta:
        ordering = ("change_set_id", "id")
        constraints = (
            models.CheckConstraint(condition=Q(thousandths__lte=WHOLE), name="share_at_most_whole"),
            models.UniqueConstraint(
                fields=["change_set", "budget"],
                condition=Q(pool__isnull=True),
                name="one_share_per_child",
            ),
            models.UniqueConstraint(
                fields=["change_set", "budget", "pool"],
                condition=Q(pool__isnull=False),
                name="one_override_per_child_and_pool",
            ),
        )

    def __str__(self) -> str:
        return f"{self.budget_id}: {self.thousandths}"


class Role(models.Model):
    """What a person may do in a budget and everything below it."""

    class Kind(models.TextChoices):
        ADMINISTRATOR = "administrator", "Administrator"
        MANAGER = "manager", "Manager"
        MEMBER = "member", "Member"
        VIEWER = "viewer", "Viewer"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="roles"
    )
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="roles")
    kind = models.CharField(max_length=16, choices=Kind)

    class Meta:
        ordering = ("budget_id", "id")
        constraints = (
            models.UniqueConstraint(fields=["user", "budget"], name="one_role_per_budget"),
        )

    def __str__(self) -> str:
        return f"{self.user_id} {self.kind} of {self.budget_id}"


class Period(models.Model):
    """A dated span that grants are made for: half-open [starts_at, ends_at)."""

    class Status(models.TextChoices):
        DRAFT = "draft", "Draft"
        PROPOSED = "proposed", "Proposed"
        APPROVED = "approved", "Approved"
        ACTIVE = "active", "Active"
        CLOSED = "closed", "Closed"

    name = models.CharField(max_length=100, unique=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    time_zone = models.CharField(max_length=64, default="UTC")
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT)
    carry_over_cap = models.PositiveIntegerField(default=0)  # thousandths of a percent of unspent

    class Meta:
        ordering = ("starts_at",)
        constraints = (
            models.CheckConstraint(
                condition=Q(ends_at__gt=F("starts_at")), name="period_ends_after_start"
            ),
        )

    def __str__(self) -> str:
        return self.name


class PlannedCapacity(models.Model):
    """GPU-seconds of a pool that a period's grants are computed from."""

    period = models.ForeignKey(Period, on_delete=models.PROTECT, related_name="capacities")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    gpu_seconds = models.BigIntegerField()
    rate_per_mille = models.PositiveIntegerField()

    class Meta:
        ordering = ("period_id", "pool_id")
        constraints = (
            models.UniqueConstraint(fields=["period", "pool"], name="one_capacity_per_pool"),
        )

    def __str__(self) -> str:
        return f"{self.period_id}, {self.pool_id}: {self.gpu_seconds}"
