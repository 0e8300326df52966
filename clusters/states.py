"""What the logs say last of each node: for pages and the API."""

from datetime import datetime

from django.db.models import Max, Q

from clusters.models import Drain, GpuState


def last_gpu_states(*, at: datetime) -> dict[int, GpuState]:
    """Return the newest GPU state of each node by `at`, by node id. Two queries."""
    known = GpuState.objects.filter(at__lte=at).order_by()
    newest = known.values("node_id").annotate(newest=Max("at"))
    instants = {row["node_id"]: row["newest"] for row in newest}
    states = GpuState.objects.filter(node_id__in=instants, at__in=set(instants.values()))
    return {s.node_id: s for s in states if s.at == instants[s.node_id]}


def open_drains(*, at: datetime) -> dict[int, list[Drain]]:
    """Return the drains that have not ended by `at`, by node id, the earliest first."""
    found: dict[int, list[Drain]] = {}
    for drain in Drain.objects.filter(Q(ends_at=None) | Q(ends_at__gt=at)):
        found.setdefault(drain.node_id, []).append(drain)
    return found
