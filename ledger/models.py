"""The ledger: append-only entries in integer milli-GPU-seconds, each with a unique key."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from budgets.models import Budget, Period
from clusters.models import Pool
from workloads.models import Job, Run


class Entry(models.Model):
    """One fact of money or GPU-time. Written only by ledger.services; never changed or deleted.

    ``amount_mgpus`` is counted in its kind's own direction: a charge of 5 adds 5 to what is
    settled, a release of 5 takes 5 from what is held; only transfer and adjust may be negative.
    ``gpu_seconds`` and ``parked_gpu_seconds`` stand on charges alone; a charge of an unfunded run
    has amount 0.
    """

    class Kind(models.TextChoices):
        GRANT = "grant", "Grant"
        CARRY = "carry", "Carry-over"
        TRANSFER = "transfer", "Transfer"
        HOLD = "hold", "Hold"
        RELEASE = "release", "Release"
        CHARGE = "charge", "Charge"
        ADJUST = "adjust", "Adjustment"
        REFUND = "refund", "Refund"

    kind = models.CharField(max_length=8, choices=Kind)
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="entries")
    period = models.ForeignKey(
        Period, on_delete=models.PROTECT, related_name="entries", db_index=False
    )
    at = models.DateTimeField()  # what it is about: start of the segment, instant of the hold
    amount_mgpus = models.BigIntegerField()
    job = models.ForeignKey(
        Job, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    attempt = models.PositiveIntegerField(default=0)  # whose hold it is, 0: none
    run = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.PROTECT, related_name="entries", db_index=False
    )
    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    timestep = models.DateTimeField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)  # end of a charge's segment
    funded = models.BooleanField(default=True)
    gpu_seconds = models.BigIntegerField(default=0)
    parked_gpu_seconds = models.BigIntegerField(default=0)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
    )
    note = models.CharField(max_length=300, blank=True)
    key = models.CharField(max_length=120, unique=True)
    created_at = models.DateTimeField()  # the clock of whoever wrote it

    class Meta:
        ordering = ("id",)
        verbose_name_plural = "entries"
        constraints = (
            models.CheckConstraint(
                condition=Q(kind__in=["transfer", "adjust", "grant"]) | Q(amount_mgpus__gte=0),
                name="entry_amount_direction",
            ),
            models.CheckConstraint(
                condition=Q(kind="charge") | Q(gpu_seconds=0, parked_gpu_seconds=0),
                name="gpu_seconds_on_charges_only",
            ),
            models.CheckConstraint(
                condition=Q(parked_gpu_seconds__gte=0)
                & Q(gpu_seconds__gte=models.F("parked_gpu_seconds")),
                name="parked_within_held",
            ),
            models.CheckConstraint(
                condition=Q(funded=True) | Q(amount_mgpus=0), name="unfunded_is_free"
            ),
        )
        # A tick writes thousands of entries, and each into every index: none that begins another,
        # and where few entries are looked for, of those only.
        indexes = (
            models.Index(
                fields=["author"], condition=Q(author__isnull=False), name="ledger_entry_by_hand"
            ),
            models.Index(
                fields=["key"],
                condition=Q(kind__in=["grant", "carry", "transfer"]),
                opclasses=["varchar_pattern_ops"],
                name="ledger_entry_decisions",
            ),
            # These two hold all that sums of a period and open holds need, so that neither reads
            # the table itself.
            models.Index(
                fields=["period", "budget", "kind", "amount_mgpus"], name="ledger_entry_sums"
            ),
            models.Index(
                fields=["job", "attempt", "period", "kind", "amount_mgpus"],
                name="ledger_entry_open_holds",
            ),
            models.Index(fields=["kind", "timestep"]),
            models.Index(fields=["run", "kind"]),
        )

    def __str__(self) -> str:
        return self.key


class Rollup(models.Model):
    """Sums of entries, written with them: so that figures needn't add up a year of charges.

    Never the source of truth: `rebuild_rollups` makes them anew, `reconcile` compares. ``since``
    are seconds since 1970. The sums of a period hold its entries of every kind; those of a stretch
    of time only what counts towards settled, by ``at``.

    Hours, days and weeks (from a Thursday on, as 1970 began) are UTC's, so that any interval is
    made of them whatever the zone. A local day begins at midnight of its period's time zone, which
    never changes, and may have 23 or 25 hours; it is kept where that is a whole hour of UTC. No
    charge crosses an hour, since timesteps divide it; where an interval cuts one (a zone of half
    hours, a window that ends now), that hour's entries are read instead.
    """

    class Size(models.IntegerChoices):
        """How many seconds a sum is about, where that is always the same."""

        PERIOD = 0, "Period"
        LOCAL_DAY = 1, "Local day"
        HOUR = 3600, "Hour"
        DAY = 86_400, "Day"
        WEEK = 604_800, "Week"

    size = models.PositiveIntegerField(choices=Size)
    since = models.BigIntegerField()  # 0 for a period's
    period = models.ForeignKey(Period, on_delete=models.PROTECT, related_name="+")
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="+", db_index=False)
    kind = models.CharField(max_length=8, choices=Entry.Kind)
    funded = models.BooleanField()
    is_realtime = models.BooleanField()  # whether charges are those of services
    amount_mgpus = models.BigIntegerField()
    gpu_seconds = models.BigIntegerField()
    parked_gpu_seconds = models.BigIntegerField()
    parked_mgpus = models.BigIntegerField()  # what the parked ones cost

    KEY = ("size", "since", "period", "budget", "kind", "funded", "is_realtime")
    OF_KEY = ()

    class Meta:
        ordering = ("size", "since", "id")
        constraints = (
            models.UniqueConstraint(
                fields=["size", "since", "period", "budget", "kind", "funded", "is_realtime"],
                name="one_rollup_each",
            ),
        )
        indexes = (models.Index(fields=["budget", "size", "since"]),)

    def __str__(self) -> str:
        return f"{self.get_size_display()} {self.since}: {self.kind} of budget {self.budget_id}"


class WholeRollup(models.Model):
    """The organisation's sum of a stretch of time, kept like a `Rollup`: all budgets together.

    It has no budget, so wherever one stands in the tree, or moves to, changes nothing. None of a
    period: few rows hold that already.
    """

    size = models.PositiveIntegerField(choices=Rollup.Size)
    since = models.BigIntegerField()
    period = models.ForeignKey(Period, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=8, choices=Entry.Kind)
    funded = models.BooleanField()
    is_realtime = models.BooleanField()
    amount_mgpus = models.BigIntegerField()
    gpu_seconds = models.BigIntegerField()
    parked_gpu_seconds = models.BigIntegerField()
    parked_mgpus = models.BigIntegerField()

    KEY = ("size", "since", "period", "kind", "funded", "is_realtime")
    OF_KEY = ()

    class Meta:
        ordering = ("size", "since", "id")
        constraints = (
            models.UniqueConstraint(
                fields=["size", "since", "period", "kind", "funded", "is_realtime"],
                name="one_whole_rollup_each",
            ),
        )

    def __str__(self) -> str:
        return f"{self.get_size_display()} {self.since}: {self.kind} of all budgets"


class JobRollup(models.Model):
    """What an attempt set aside and released in a period, kept like a `Rollup`: open holds."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="+", db_index=False)
    attempt = models.PositiveIntegerField()
    period = models.ForeignKey(Period, on_delete=models.PROTECT, related_name="+", db_index=False)
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=8, choices=Entry.Kind)
    amount_mgpus = models.BigIntegerField()
    gpu_seconds = models.BigIntegerField()

    KEY = ("job", "attempt", "period", "budget", "kind")
    OF_KEY = ()

    class Meta:
        ordering = ("job", "attempt", "id")
        constraints = (
            models.UniqueConstraint(
                fields=["job", "attempt", "period", "budget", "kind"], name="one_job_rollup_each"
            ),
        )
        indexes = (models.Index(fields=["period", "budget"]),)

    def __str__(self) -> str:
        return f"{self.kind} of job {self.job_id}, attempt {self.attempt}"


class JobSettled(models.Model):
    """What a job settled in a period, kept like a `Rollup`: dearest jobs and people.

    Charges less refunds, with adjustments; unfunded time is in its GPU-seconds. One row of a job
    in a period, so that a year's jobs are ranked as they stand, without adding any up. ``person``
    is who submitted it, which never changes.
    """

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="+", db_index=False)
    period = models.ForeignKey(Period, on_delete=models.PROTECT, related_name="+", db_index=False)
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="+", db_index=False)
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    settled_mgpus = models.BigIntegerField()
    gpu_seconds = models.BigIntegerField()

    KEY = ("job", "period", "budget")
    OF_KEY = ("person",)  # the same wherever the key is

    class Meta:
        ordering = ("job", "period", "id")
        constraints = (
            models.UniqueConstraint(
                fields=["job", "period", "budget"], name="one_sum_settled_by_a_job"
            ),
        )
        indexes = (models.Index(fields=["period", "budget"]),)

    def __str__(self) -> str:
        return f"settled by job {self.job_id}"


class ClosedTimestep(models.Model):
    """A timestep whose charges are all written. One row per timestep, in order, without gaps."""

    start = models.DateTimeField(unique=True)
    end = models.DateTimeField()
    closed_at = models.DateTimeField()

    class Meta:
        ordering = ("start",)

    def __str__(self) -> str:
        return f"{self.start}"


class ClosingStatement(models.Model):
    """What one budget had and spent in a period, as it was when that was closed; never rewritten.

    Milli-GPU-seconds and GPU-seconds. Granted, carried over and transferred are the budget's own;
    the rest is its subtree's, each part where it stood at the time. ``released_mgpus`` was still
    set aside at the period's end. Owed and delivered are unknown (None) where nobody measured them.
    Later corrections are entries of a later period and no part of it.
    """

    period = models.ForeignKey(Period, on_delete=models.PROTECT, related_name="statements")
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="+")
    path = models.CharField(max_length=400)  # as both were called then
    name = models.CharField(max_length=100)
    closed_at = models.DateTimeField()
    granted_mgpus = models.BigIntegerField()
    carried_mgpus = models.BigIntegerField()
    transferred_mgpus = models.BigIntegerField()
    charged_mgpus = models.BigIntegerField()
    refunded_mgpus = models.BigIntegerField()
    adjusted_mgpus = models.BigIntegerField()
    settled_mgpus = models.BigIntegerField()
    released_mgpus = models.BigIntegerField()
    charged_gpu_seconds = models.BigIntegerField()
    parked_gpu_seconds = models.BigIntegerField()
    unfunded_gpu_seconds = models.BigIntegerField()
    owed_gpu_seconds = models.BigIntegerField(null=True)
    delivered_gpu_seconds = models.BigIntegerField(null=True)

    class Meta:
        ordering = ("period_id", "path", "id")
        constraints = (
            models.UniqueConstraint(
                fields=["period", "budget"], name="one_closing_statement_per_budget"
            ),
        )

    def __str__(self) -> str:
        return f"{self.path} in period {self.period_id}"

    @property
    def unspent_mgpus(self) -> int:
        given = self.granted_mgpus + self.carried_mgpus + self.transferred_mgpus
        return given - self.settled_mgpus
