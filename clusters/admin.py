"""Clusters, pools and nodes are set up here; the logs of states are read only.

Maintenance windows have pages of their own, which look first what a window does.
"""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from clusters.models import Cluster, GpuState, Node, NodeState, Pool, PoolRate


@admin.register(Cluster)
class ClusterAdmin(admin.ModelAdmin):
    list_display = ("slug", "name", "connector", "observed_until")
    readonly_fields = ("observed_until",)


class PoolRateInline(admin.TabularInline):
    """A rate holds from its instant on: a new price is a new row, set on /settings/pools.

    There it is refused for what was charged already, and kept who set it.
    """

    model = PoolRate
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Pool)
class PoolAdmin(admin.ModelAdmin):
    list_display = ("slug", "name", "cluster", "gpu_type", "position")
    list_filter = ("cluster",)
    inlines = (PoolRateInline,)


@admin.register(Node)
class NodeAdmin(admin.ModelAdmin):
    list_display = ("name", "pool", "gpus", "position", "active_from", "active_until")
    list_filter = ("pool",)
    search_fields = ("name",)


class LogAdmin(admin.ModelAdmin):
    """What connectors observed: shown, never edited."""

    list_filter = ("node__pool",)
    search_fields = ("node__name",)
    date_hierarchy = "at"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(NodeState)
class NodeStateAdmin(LogAdmin):
    list_display = ("at", "node", "state", "reason")
    list_select_related = ("node",)


@admin.register(GpuState)
class GpuStateAdmin(LogAdmin):
    list_display = ("at", "node", "held", "free", "down")
    list_select_related = ("node",)
