"""What the logs say last of each node: for pages and the API."""

from datetime import datetime

from django.db.models import Q

from clusters.models import Drain, GpuState
from clusters.services import newest


def last_gpu_states(*, at: datetime) -> dict[int, GpuState]:
    """Return the newest GPU state of each node by `at`, by node id. One query."""
    states = GpuState.objects.filter(pk__in=newest(GpuState, at=at)).order_by()
    return {state.node_id: state for state in states}


def open_drains(*, at: datetime) -> dict[int, list[Drain]]:
    """Return the drains that have not ended by `at`, by node id, the earliest first."""
    found: dict[int, list[Drain]] = {}
    for drain in Drain.objects.filter(Q(ends_at=None) | Q(ends_at__gt=at)).select_related("window"):
        found.setdefault(drain.node_id, []).append(drain)
    return found
