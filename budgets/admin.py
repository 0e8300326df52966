"""Roles are given here; the tree, its shares and periods are shown and never edited.

Edits of the tree are change sets with a base and a reason, which the share editor and the API
make; a form over single rows could only break the sum rule.
"""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from budgets.models import (
    Budget,
    BudgetPlan,
    ChangeSet,
    Checkpoint,
    CheckpointResult,
    Exemption,
    FormerName,
    Notice,
    Period,
    PlannedCapacity,
    Request,
    Role,
    Share,
)


class ReadOnly(admin.ModelAdmin):
    """Shown, never edited."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ShareInline(admin.TabularInline):
    model = Share
    extra = 0


class CapacityInline(admin.TabularInline):
    model = PlannedCapacity
    extra = 0


@admin.register(Budget)
class BudgetAdmin(ReadOnly):
    list_display = ("path", "name", "archived_at")
    search_fields = ("path", "name")


@admin.register(FormerName)
class FormerNameAdmin(ReadOnly):
    list_display = ("name", "slug", "budget", "until", "author")
    list_select_related = ("budget", "author")


@admin.register(ChangeSet)
class ChangeSetAdmin(ReadOnly):
    list_display = ("parent", "version", "status", "author", "effective_at", "reason")
    list_filter = ("status",)
    list_select_related = ("parent", "author")
    search_fields = ("parent__path", "reason")
    inlines = (ShareInline,)


@admin.register(Period)
class PeriodAdmin(ReadOnly):
    list_display = ("name", "starts_at", "ends_at", "time_zone", "status", "carry_over_cap")
    inlines = (CapacityInline,)


@admin.register(BudgetPlan)
class BudgetPlanAdmin(ReadOnly):
    list_display = ("budget", "period", "version", "by", "parts", "author", "created_at")
    list_filter = ("period",)
    list_select_related = ("budget", "period", "author")
    search_fields = ("budget__path",)


@admin.register(Checkpoint)
class CheckpointAdmin(ReadOnly):
    list_display = ("period", "at", "measured", "removed_of", "cumulative", "steps", "done_at")
    list_select_related = ("period",)


@admin.register(CheckpointResult)
class CheckpointResultAdmin(ReadOnly):
    list_display = (
        "checkpoint",
        "budget",
        "used_mgpus",
        "planned_mgpus",
        "due_mgpus",
        "taken_mgpus",
        "returned_mgpus",
    )
    list_filter = ("checkpoint",)
    list_select_related = ("checkpoint", "budget")


@admin.register(Exemption)
class ExemptionAdmin(ReadOnly):
    list_display = ("checkpoint", "budget", "status", "asked_by", "asked_at", "decided_by")
    list_filter = ("status",)
    list_select_related = ("checkpoint", "budget", "asked_by", "decided_by")


@admin.register(Request)
class RequestAdmin(ReadOnly):
    list_display = ("budget", "unit", "asked", "status", "asked_by", "created_at", "decided_by")
    list_filter = ("status", "unit")
    list_select_related = ("budget", "asked_by", "decided_by")
    search_fields = ("budget__path", "reason")


@admin.register(Notice)
class NoticeAdmin(ReadOnly):
    list_display = ("user", "kind", "budget", "created_at", "read_at", "emailed_at")
    list_filter = ("kind",)
    list_select_related = ("user", "budget")
    search_fields = ("user__username", "budget__path")


@admin.register(Role)
class RoleAdmin(admin.ModelAdmin):
    list_display = ("user", "kind", "budget")
    list_filter = ("kind",)
    list_select_related = ("user", "budget")
    search_fields = ("user__username", "budget__path")
    autocomplete_fields = ("user", "budget")
