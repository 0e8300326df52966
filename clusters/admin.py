"""Clusters are named here; pools, nodes and the logs of states are read only.

Pools, nodes and maintenance windows have pages of their own, which look first what a change does,
and refuse what would move the past.
"""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from clusters.models import Cluster, GpuState, Node, NodeState, Pool, PoolRate


@admin.register(Cluster)
class ClusterAdmin(admin.ModelAdmin):
    list_display = ("slug", "name", "connector", "observed_until")
    readonly_fields = ("observed_until",)


class ReadOnly(admin.ModelAdmin):
    """Shown, never edited."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class PoolRateInline(admin.TabularInline):
    """A rate holds from its instant on: a new price is a new row."""

    model = PoolRate
    extra = 0


@admin.register(Pool)
class PoolAdmin(ReadOnly):
    list_display = ("slug", "name", "cluster", "gpu_type", "position")
    list_filter = ("cluster",)
    inlines = (PoolRateInline,)


@admin.register(Node)
class NodeAdmin(ReadOnly):
    list_display = ("name", "label", "pool", "gpus", "position", "active_from", "active_until")
    list_filter = ("pool",)
    search_fields = ("name", "label")


class LogAdmin(ReadOnly):
    """What connectors observed."""

    list_filter = ("node__pool",)
    search_fields = ("node__name",)
    date_hierarchy = "at"


@admin.register(NodeState)
class NodeStateAdmin(LogAdmin):
    list_display = ("at", "node", "state", "reason")
    list_select_related = ("node",)


@admin.register(GpuState)
class GpuStateAdmin(LogAdmin):
    list_display = ("at", "node", "held", "free", "down")
    list_select_related = ("node",)
