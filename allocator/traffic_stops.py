"""The alarm of a service whose traffic stops coming: raised, told, and ended by itself."""

from datetime import datetime

from django.db import transaction

from allocator import alarms
from allocator.models import Alarm
from budgets import notices
from budgets.access import leads
from budgets.models import Notice
from clusters.saying import Said, instant
from clusters.saying import say as _
from forecasting import traffic
from ledger.instants import iso
from workloads import durations
from workloads.models import Job, Service

KIND = "no-traffic:"  # and the number of the service's job


def look(*, now: datetime) -> int:
    """Raise and clear the alarms of services that follow their traffic; return how many are open.

    Of one that doesn't run nothing is missed: nobody can reach it.
    """
    follow = Service.objects.filter(calibrated=True, job__state=Job.State.RUNNING)
    follow = follow.exclude(traffic_step_minutes=None).select_related("job__budget")
    silent = {}
    for service in follow.order_by("job_id"):
        since = traffic.silent_since(service, now=now)
        if since is not None:
            silent[f"{KIND}{service.job_id}"] = (service, since)
    for alarm in Alarm.objects.filter(kind__startswith=KIND, cleared_at=None):
        if alarm.kind not in silent:
            alarms.clear(kind=alarm.kind, at=now)
    for kind, (service, since) in silent.items():
        _raise(kind, service, since, now)
    return len(silent)


@transaction.atomic
def _raise(kind: str, service: Service, since: datetime, now: datetime) -> None:
    job = service.job
    text = _text(service, since)
    alarm = alarms.raise_alarm(kind=kind, text=text, at=now, job=job.pk, since=iso(since))
    # By the alarm: while it is open nobody is told twice.
    notices.tell(
        users=[job.submitted_by, *leads(job.budget)],
        budget=job.budget,
        kind=Notice.Kind.TRAFFIC,
        text=text,
        link=f"/jobs/{job.pk}",
        key=f"traffic:{alarm.pk}",
        now=now,
    )


def _text(service: Service, since: datetime) -> Said:
    every = service.traffic_every_s
    usual = _(", though it came every %(time)s", time=durations.words(every)) if every else ""
    return _(
        "Service %(job)s: no traffic has come since %(since)s%(usual)s. See whether what sends it "
        "still runs, or let the service follow its declared profile: a day after its last step the "
        "week that it learned is followed.",
        job=service.job_id,
        since=instant(since),
        usual=usual,
    )
