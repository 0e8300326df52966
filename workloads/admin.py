"""Jobs and runs are shown, never edited: their states change by a machine of their own."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from workloads.models import Extension, Holding, Job, JobEvent, Run


class ReadOnly(admin.ModelAdmin):
    """Shown, never edited."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class EventInline(admin.TabularInline):
    model = JobEvent
    extra = 0


class HoldingInline(admin.TabularInline):
    model = Holding
    extra = 0


@admin.register(Job)
class JobAdmin(ReadOnly):
    list_display = ("id", "name", "budget", "kind", "gpus", "state", "funded", "submitted_at")
    list_filter = ("state", "kind", "funded")
    list_select_related = ("budget",)
    search_fields = ("name", "budget__path")
    inlines = (EventInline,)


@admin.register(Run)
class RunAdmin(ReadOnly):
    list_display = ("external_id", "pool", "state", "started_at", "ended_at", "end_reason")
    list_filter = ("state", "end_reason", "pool")
    list_select_related = ("pool",)
    inlines = (HoldingInline,)


@admin.register(Extension)
class ExtensionAdmin(ReadOnly):
    list_display = ("run", "asked_by", "asked_at", "asked_s", "asked_until", "rule")
    list_filter = ("rule",)
    list_select_related = ("run", "asked_by")
