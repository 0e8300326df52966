"""Jobs for pages and the API, with what they show fetched in a constant number of queries."""

from django.contrib.auth.models import User
from django.db.models import Prefetch, Q, QuerySet
from django.http import Http404

from budgets.access import Person, visible_q
from clusters.saying import say as _
from workloads.models import Holding, Job, JobEvent, Run


def for_list(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return jobs, the newest first, with what a line of a list shows."""
    related = jobs.select_related("budget", "submitted_by", "outlook")
    return related.prefetch_related("pools").order_by("-pk")


def for_detail(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return jobs with their runs, holdings, story, forecasts and service."""
    held = Holding.objects.select_related("node").order_by("pk")
    runs = Run.objects.select_related("pool").prefetch_related(Prefetch("holdings", held))
    events = JobEvent.objects.select_related("actor", "run")
    return for_list(jobs.select_related("service", "outlook__cycle")).prefetch_related(
        Prefetch("runs", runs.order_by("number")),
        Prefetch("events", events),
        "dependencies__budget",
        "forecasts",
    )


def in_subtree(jobs: QuerySet[Job], path: str) -> QuerySet[Job]:
    """Keep the jobs of a budget and of all below it."""
    return jobs.filter(Q(budget__path=path) | Q(budget__path__startswith=f"{path}/"))


def by_key(user: User, key: str | None) -> Job | None:
    """Return the job that a person submitted with an idempotency key, if there is one."""
    return Job.objects.filter(submitted_by=user, idempotency_key=key).first() if key else None


def visible_job(user: Person, pk: int) -> Job:
    """Return a job that the person may see, with its budget and service; else Http404."""
    jobs = Job.objects.filter(visible_q(user, "budget__"), pk=pk)
    job = jobs.select_related("budget", "service").first()
    if job is None:
        raise Http404(_("There is no such job, or none that you may see."))
    return job
