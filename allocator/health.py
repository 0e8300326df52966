"""Is the allocator keeping up? For monitoring, not for taking a web server out of service."""

from datetime import datetime

from allocator import closing
from allocator.models import Alarm, Cycle


def ticks(*, at: datetime) -> dict[str, object]:
    """Timesteps that are over and not closed, the last cycle's instant and the open alarms.

    ``ok`` is always true: pages and API answer whether or not the workers keep up. Two or more
    late timesteps mean that no worker runs ticks.
    """
    last = Cycle.objects.order_by("-id").values_list("at", flat=True).first()
    return {
        "ok": True,
        "late_timesteps": len(closing.due(at=at)),
        "last_cycle": None if last is None else last.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "open_alarms": Alarm.objects.filter(cleared_at=None).count(),
    }
