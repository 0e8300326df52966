"""What is kept of reviews: the pack as it was when one was held, and comments."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q


class ReviewRecord(models.Model):
    """A budget's pack of a period as it was when its review was held; a row never changes.

    A correction is the next version, with the reason of it and what differs from the one before:
    ``differences`` as `allocator.reviews.differing` finds them. ``pack`` is a frozen
    `allocator.reviews.pack.Pack`, ``checksum`` the SHA-256 of its JSON.
    """

    period = models.ForeignKey("budgets.Period", on_delete=models.PROTECT, related_name="+")
    budget = models.ForeignKey("budgets.Budget", on_delete=models.PROTECT, related_name="+")
    version = models.PositiveSmallIntegerField()
    held_on = models.DateField()
    decision = models.TextField()
    reason = models.TextField(blank=True)  # of a correction
    kept_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    kept_at = models.DateTimeField()
    pack = models.JSONField()
    checksum = models.CharField(max_length=64)
    differences = models.JSONField(default=list)

    class Meta:
        ordering = ("period_id", "budget_id", "version")
        constraints = (
            models.UniqueConstraint(
                fields=["period", "budget", "version"], name="one_review_record_per_version"
            ),
            models.CheckConstraint(
                condition=Q(version=1, reason="") | Q(version__gt=1) & ~Q(reason=""),
                name="review_correction_has_a_reason",
            ),
        )

    def __str__(self) -> str:
        return f"review of {self.budget_id} in {self.period_id}, version {self.version}"


class ReviewComment(models.Model):
    """What somebody said about a budget's period: never deleted, but its author may withdraw it."""

    period = models.ForeignKey("budgets.Period", on_delete=models.PROTECT, related_name="+")
    budget = models.ForeignKey("budgets.Budget", on_delete=models.PROTECT, related_name="+")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    text = models.TextField()
    created_at = models.DateTimeField()
    edited_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(
                condition=Q(edited_at__isnull=True) | Q(edited_at__gte=F("created_at")),
                name="review_comment_edited_later",
            ),
        )
        indexes = (models.Index(fields=["period", "budget"]),)

    def __str__(self) -> str:
        return f"comment {self.pk} on {self.budget_id} in {self.period_id}"
