"""Alarms: something is wrong and somebody must act. One open alarm per kind."""

from datetime import datetime

from allocator.models import Alarm

UNREACHABLE = "unreachable:"  # and the cluster's slug


def raise_alarm(*, kind: str, text: str, at: datetime, **data: object) -> Alarm:
    """Open an alarm, or keep the open one of its kind with the newest text."""
    alarm = Alarm.objects.filter(kind=kind, cleared_at=None).first()
    if alarm is None:
        return Alarm.objects.create(kind=kind, text=text[:300], raised_at=at, data=data)
    alarm.text, alarm.data = text[:300], data
    alarm.save(update_fields=["text", "data"])
    return alarm


def clear(*, kind: str, at: datetime) -> None:
    Alarm.objects.filter(kind=kind, cleared_at=None).update(cleared_at=at)


def note(*, kind: str, **data: object) -> None:
    """Add to what an open alarm knows."""
    for alarm in Alarm.objects.filter(kind=kind, cleared_at=None):
        alarm.data |= data
        alarm.save(update_fields=["data"])


def is_open(*, kind: str) -> bool:
    return Alarm.objects.filter(kind=kind, cleared_at=None).exists()


def unreachable() -> set[str]:
    """Slugs of the clusters that could not be reached when they were last asked.

    One that answers but for some calls (``answers`` in the alarm's data) is not among them.
    """
    open_now = Alarm.objects.filter(kind__startswith=UNREACHABLE, cleared_at=None)
    return {
        alarm.kind.removeprefix(UNREACHABLE)
        for alarm in open_now
        if not alarm.data.get("answers", False)
    }
