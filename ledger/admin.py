"""The ledger in the admin pages: to read, never to write."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from ledger.models import ClosedTimestep, ClosingStatement, Entry


class ReadOnly(admin.ModelAdmin):
    """Entries are written by the ledger alone; the database refuses changes anyway."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Entry)
class EntryAdmin(ReadOnly):
    list_display = ("at", "kind", "budget", "amount_mgpus", "job", "run", "gpu_seconds", "author")
    list_filter = ("kind", "period", "funded")
    search_fields = ("key", "budget__path", "note")
    list_select_related = ("budget", "job", "run", "author")
    date_hierarchy = "at"
    show_full_result_count = False  # counting a million rows takes longer than listing a page


@admin.register(ClosedTimestep)
class ClosedTimestepAdmin(ReadOnly):
    list_display = ("start", "end", "closed_at")
    date_hierarchy = "start"


@admin.register(ClosingStatement)
class ClosingStatementAdmin(ReadOnly):
    list_display = ("period", "path", "granted_mgpus", "settled_mgpus", "closed_at")
    list_filter = ("period",)
    list_select_related = ("period",)
