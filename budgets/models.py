"""The tree of budgets, its shares as change sets, roles, periods, requests and notices."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from budgets.account_models import OneTimePassword as OneTimePassword
from budgets.account_models import SignInTry as SignInTry
from budgets.account_models import SpokenLanguage as SpokenLanguage
from budgets.checkpoint_models import BudgetPlan as BudgetPlan
from budgets.checkpoint_models import Checkpoint as Checkpoint
from budgets.checkpoint_models import CheckpointResult as CheckpointResult
from budgets.checkpoint_models import Exemption as Exemption
from clusters.models import Pool
from clusters.saying import told

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


class FormerName(models.Model):
    """The slug and name that a budget had until an instant, at which someone gave it others.

    A budget's own row has today's. Never changes, which the database holds; `budgets.names`
    reads it.
    """

    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="former_names")
    slug = models.SlugField()
    name = models.CharField(max_length=100)
    until = models.DateTimeField()
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ("until", "id")

    def __str__(self) -> str:
        return f"{self.name} until {self.until:%Y-%m-%dT%H:%M:%SZ}"


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
    # Thousandths of a percent of the unspent grant of the period before, and the most of it that
    # the whole organisation takes along.
    carry_over_cap = models.PositiveIntegerField(default=0)
    carry_over_max_mgpus = models.PositiveBigIntegerField(null=True, blank=True)

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


class Request(models.Model):
    """More for a budget, as one of its people asks for it, and what was decided.

    ``asked`` and ``given`` are thousandths of a percent of the parent (unit percent) or
    milli-GPU-seconds (unit credits). What is given for a time ends at ``until``: ``ended_at``
    says when that was done. None: a share stays, and credits end with their period.
    """

    class Unit(models.TextChoices):
        PERCENT = "percent", "Percent"
        CREDITS = "credits", "Credits"

    class Status(models.TextChoices):
        OPEN = "open", "Open"
        GRANTED = "granted", "Granted"
        DECLINED = "declined", "Declined"
        WITHDRAWN = "withdrawn", "Withdrawn"
        EXPIRED = "expired", "Expired"

    class Decision(models.TextChoices):
        """Where it was taken from: an ancestor's reserve, or a sibling."""

        RESERVE = "reserve", "From reserve"
        SIBLING = "sibling", "From a sibling"

    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="requests")
    unit = models.CharField(max_length=8, choices=Unit)
    asked = models.PositiveBigIntegerField()
    reason = models.TextField()
    until = models.DateTimeField(null=True, blank=True)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    created_at = models.DateTimeField()
    status = models.CharField(max_length=10, choices=Status, default=Status.OPEN)
    decision = models.CharField(max_length=8, choices=Decision, blank=True)
    source = models.ForeignKey(
        Budget, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    given = models.PositiveBigIntegerField(null=True, blank=True)
    change_set = models.ForeignKey(
        ChangeSet, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    set_back = models.ForeignKey(  # the scheduled set that ends it
        ChangeSet, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    answer = models.TextField(blank=True)  # the reason of the decision
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["budget", "unit"],
                condition=Q(status="open"),
                name="one_open_request_per_unit",
            ),
            models.CheckConstraint(condition=Q(asked__gt=0), name="request_asks_for_more"),
            models.CheckConstraint(
                condition=Q(until__isnull=True) | Q(until__gt=F("created_at")),
                name="request_ends_after_it_was_made",
            ),
            models.CheckConstraint(
                condition=Q(status="granted", given__gt=0, source__isnull=False) & ~Q(decision="")
                | ~Q(status="granted") & Q(given__isnull=True, source__isnull=True, decision=""),
                name="given_where_granted",
            ),
        )

    def __str__(self) -> str:
        return f"request {self.pk} for {self.budget_id}: {self.asked} {self.unit}"


class Notice(models.Model):
    """One thing told to one person, once: in the application, and by e-mail where that is set up.

    ``mail_due_at`` is when the e-mail may be tried (again); it is None while one is being sent,
    and where none is to be sent. So whoever takes it out, by compare and set, is alone in sending.
    """

    class Kind(models.TextChoices):
        ASKED = "asked", "Asked"
        DECIDED = "decided", "Decided"
        WITHDRAWN = "withdrawn", "Withdrawn"
        EXPIRED = "expired", "Expired"
        TRANSFERRED = "transferred", "Transferred"
        BY_HAND = "by_hand", "Credits by hand"
        ENDED = "ended", "Ended"
        CHECKPOINT = "checkpoint", "Checkpoint ahead"
        TAKEN = "taken", "Taken back"
        RENAMED = "renamed", "Renamed"
        SESSION = "session", "Session ends"
        DRIFT = "drift", "Forecasts drift"
        TRAFFIC = "traffic", "Traffic stopped"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices"
    )
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=16, choices=Kind)
    text = models.TextField()  # in English
    sentence = models.JSONField(default=dict)  # the same in no language; {} where it is older
    link = models.CharField(max_length=500, blank=True)  # a path of ours, such as /requests/3/
    key = models.CharField(max_length=120)
    created_at = models.DateTimeField()
    read_at = models.DateTimeField(null=True, blank=True)
    mail_due_at = models.DateTimeField(null=True, blank=True)
    mail_tries = models.PositiveSmallIntegerField(default=0)
    emailed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=["user", "key"], name="nothing_is_told_twice"),
        )
        indexes = (
            models.Index(
                fields=["user"], condition=Q(read_at__isnull=True), name="budgets_notice_unread"
            ),
            models.Index(
                fields=["mail_due_at"],
                condition=Q(mail_due_at__isnull=False),
                name="budgets_notice_mail_due",
            ),
        )

    def __str__(self) -> str:
        return f"{self.key} to {self.user_id}"

    @property
    def said(self) -> str:
        """The text in the language that is active."""
        return told(self.sentence) if self.sentence else self.text


class Decision(models.Model):
    """What somebody decided that leaves no row of its own; append-only, read by the audit log.

    ``subject`` names what it is about, ``before`` and ``after`` in a few words. ``by`` is None for
    what a command did.
    """

    class Kind(models.TextChoices):
        ROLE = "role", "Role"
        PERIOD = "period", "Period"
        CHECKPOINT = "checkpoint", "Checkpoint"
        POOL = "pool", "Pool"
        RATE = "rate", "Rate"
        NODE = "node", "Node"
        PERSON = "person", "Person"

    # Those that everybody sees who signs in.
    OF_ALL = (Kind.PERIOD, Kind.CHECKPOINT, Kind.POOL, Kind.RATE, Kind.NODE)

    at = models.DateTimeField()
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    kind = models.CharField(max_length=10, choices=Kind)
    subject = models.CharField(max_length=150)
    before = models.CharField(max_length=200, blank=True)
    after = models.CharField(max_length=200, blank=True)
    reason = models.TextField(blank=True)
    budget = models.ForeignKey(
        Budget, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    period = models.ForeignKey(
        Period, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("at", "id")
        indexes = (models.Index(fields=["at", "id"]),)

    def __str__(self) -> str:
        return f"{self.kind} {self.subject} at {self.at}"
