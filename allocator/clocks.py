"""Clusters whose clock isn't ours, and runs of the past that had a new one's name.

Names of runs come round again where our ids start anew and a cluster's memory doesn't: after a
restore, say. A run that a cluster says began long before it was decided is such a one, or is ours
and the cluster's clock is behind. What a cluster tells of a name before anybody has ordered it
is another's for certain, and so is nothing of ours on the cluster; what it tells afterwards may
be ours, and as long as it runs it counts as that: a run on a cluster is never left uncharged.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from allocator import alarms
from allocator.models import Alarm
from clusters.connectors.base import RunReport
from clusters.models import Cluster
from clusters.saying import say
from workloads.models import Run

APART = timedelta(minutes=5)  # ours and a cluster's, at most
KIND = "clock:"  # and the cluster's slug


def began_long_before(run: Run, report: RunReport) -> bool:
    """Whether a run that has yet to start began, as its cluster says, before it was decided."""
    return run.started_at is None and report.started_at < run.decided_at - APART


def is_past(run: Run, report: RunReport) -> bool:
    """Whether it is another's, and over: nothing of it is on the cluster."""
    return began_long_before(run, report) and report.ended_at is not None


def on_ours(run: Run, report: RunReport, *, looked: datetime | None, at: datetime) -> RunReport:
    """Return a report by our clock, of a run that began long before it was decided.

    It starts when it was decided, or at the last look at which it wasn't there yet, and lasts as
    long as its cluster says, at most until now.
    """
    if run.started_at is None and not began_long_before(run, report):
        return report
    start = run.started_at or max(run.decided_at, looked or run.decided_at)
    behind = start - report.started_at
    if behind <= APART:
        return report
    ended = report.ended_at and max(start, min(at, report.ended_at + behind))
    return replace(report, started_at=start, ended_at=ended)


def tell(run: Run, report: RunReport, *, cluster: Cluster, at: datetime) -> None:
    """Raise the alarm that lasts as long as any run does that began so."""
    kind = f"{KIND}{cluster.slug}"
    known = Alarm.objects.filter(kind=kind, cleared_at=None).first()
    runs = [*(known.data.get("runs", []) if known else []), run.pk]
    minutes = (run.decided_at - report.started_at) // timedelta(minutes=1)
    text = say(
        "%(cluster)s says that %(run)s began %(minutes)s minutes before it was decided: it is "
        "charged by our clock. Set the cluster's clock right. Where that is right, the run is of "
        "before a restore: cancel job %(job)s, which stops it.",
        cluster=cluster.name,
        run=run.external_id,
        minutes=minutes,
        job=run.job_id,
    )
    alarms.raise_alarm(kind=kind, text=text, at=at, runs=runs)


def clear(*, cluster: Cluster, at: datetime) -> None:
    kind = f"{KIND}{cluster.slug}"
    if not alarms.is_open(kind=kind):
        return
    runs = Alarm.objects.get(kind=kind, cleared_at=None).data.get("runs", [])
    if not Run.objects.filter(pk__in=runs, state__in=Run.LIVE).exists():
        alarms.clear(kind=kind, at=at)
