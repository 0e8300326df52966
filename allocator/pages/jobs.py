"""The list of jobs: filtered, sorted and paged as the address says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Count, F, Min, Q, QuerySet, Sum
from django.db.models.functions import Lower

from allocator.pages import queue
from allocator.pages.names import Names
from allocator.pages.queue import Line
from allocator.pages.search import number_in
from budgets.access import Action, Person, visible, visible_q
from budgets.models import Budget
from ledger.job_sums import settled_by_job
from workloads.models import Holding, Job, Run

ROWS = 50
LONGEST = 100
S = Job.State
OPEN = (S.QUEUED, S.STARTING, S.RUNNING)
STATES: dict[str, tuple[str, ...]] = {
    "": OPEN,
    "waiting": (S.QUEUED,),
    "running": (S.STARTING, S.RUNNING),
    "ended": Job.ENDED,
    "all": tuple(S.values),
}
SORTS: dict[str, F | Lower] = {
    "job": Lower("name"),
    "gpus": F("gpus"),
    "since": F("state_since"),
    "submitted": F("submitted_at"),
    "start": F("outlook__start_likely"),
}


@dataclass(frozen=True)
class Filters:
    """What the address asks for; what it can't mean is dropped."""

    state: str = ""
    budget: str = ""
    kind: str = ""
    reason: str = ""
    mine: bool = False
    words: str = ""
    sort: str = ""

    @classmethod
    def read(cls, query: Mapping[str, Any]) -> Filters:
        def text(name: str) -> str:
            return str(query.get(name, "")).replace("\0", "").strip()[:LONGEST]

        return cls(
            state=text("state") if text("state") in STATES else "",
            budget=text("budget"),
            kind=text("kind") if text("kind") in Job.Kind.values else "",
            reason=text("reason"),
            mine=text("mine") == "1",
            words=text("q"),
            sort=text("sort") if text("sort").lstrip("-") in SORTS else "",
        )

    @property
    def narrow(self) -> bool:
        """Whether more than the state is asked for."""
        return bool(self.budget or self.kind or self.reason or self.mine or self.words)


@dataclass(frozen=True)
class Row:
    """A line of the list with what it has cost, and the pool it runs in."""

    line: Line
    spent_mgpus: int
    pool: str  # it runs in; empty while it doesn't
    gpus: int  # held now; else asked for
    run: Run | None
    ends: tuple[datetime, datetime, datetime] | None  # early, likely, late

    @property
    def job(self) -> Job:
        return self.line.job


@dataclass(frozen=True)
class JobsPage:
    """All that the list shows."""

    filters: Filters
    shown: Page[Job]  # which part of the list this is
    rows: list[Row]
    now: datetime
    waiting: int
    waiting_gpus: int
    running: int
    running_gpus: int
    oldest_s: int | None
    any_job: bool
    budgets: list[Budget]
    may_submit: bool


def page(user: Person, *, now: datetime, query: Mapping[str, Any]) -> JobsPage:
    """Read one page of the list. A constant number of queries."""
    filters = Filters.read(query)
    names = Names.load(user)
    mine = queue.visible_jobs(user)
    found = _sorted(_filtered(mine, filters, user), filters.sort)
    shown = Paginator(found, ROWS).get_page(query.get("page"))
    sums = _sums(user)
    oldest = sums["oldest"]
    return JobsPage(
        filters=filters,
        shown=shown,
        rows=_rows(list(shown), names, now),
        now=now,
        waiting=sums["waiting"],
        waiting_gpus=sums["waiting_gpus"] or 0,
        running=sums["running"],
        running_gpus=_held_by(user),
        oldest_s=None if oldest is None else max(0, int((now - oldest).total_seconds())),
        any_job=sums["all_of_them"] > 0,
        budgets=list(visible(user).filter(archived_at=None).order_by("path")),
        may_submit=may_submit(names),
    )


def may_submit(names: Names) -> bool:
    """Say whether the reader may submit to any budget."""
    return any(
        names.held.can(Action.SUBMIT, path)
        for path, budget in names.budgets.items()
        if budget.archived_at is None
    )


def _filtered(jobs: QuerySet[Job], filters: Filters, user: Person) -> QuerySet[Job]:
    jobs = jobs.filter(state__in=STATES[filters.state])
    if filters.budget:
        path = filters.budget
        jobs = jobs.filter(Q(budget__path=path) | Q(budget__path__startswith=f"{path}/"))
    if filters.kind:
        jobs = jobs.filter(kind=filters.kind)
    if filters.reason:
        unplanned = filters.reason == queue.NOT_PLANNED
        rule = Q(outlook=None) if unplanned else Q(outlook__rule=filters.reason)
        jobs = jobs.filter(rule, state=S.QUEUED)
    if filters.mine:
        jobs = jobs.filter(submitted_by_id=user.pk)
    if filters.words:
        fits = Q(name__icontains=filters.words) | Q(budget__name__icontains=filters.words)
        number = number_in(filters.words)
        jobs = jobs.filter(fits if number is None else fits | Q(pk=number))
    return jobs


def _sorted(jobs: QuerySet[Job], sort: str) -> QuerySet[Job]:
    """Sorted as asked, ties and else the newest first; what has no value stands last."""
    if not sort:
        return jobs.order_by("-pk")
    key = SORTS[sort.lstrip("-")]
    falling = sort.startswith("-")
    order = key.desc(nulls_last=True) if falling else key.asc(nulls_last=True)
    return jobs.order_by(order, "-pk")


def _rows(jobs: list[Job], names: Names, now: datetime) -> list[Row]:
    spent = settled_by_job([job.pk for job in jobs])
    live = Run.objects.filter(job__in=[j.pk for j in jobs], state__in=Run.LIVE)
    live = live.select_related("pool").prefetch_related("holdings")
    runs = {run.job_id: run for run in live}
    return [
        Row(
            line=queue.line(job, names, now=now),
            spent_mgpus=spent.get(job.pk, 0),
            pool=runs[job.pk].pool.name if job.pk in runs else "",
            gpus=_gpus(runs[job.pk]) if job.pk in runs else job.gpus,
            run=runs.get(job.pk),
            ends=queue.ends(job, runs[job.pk], now) if job.pk in runs else None,
        )
        for job in jobs
    ]


def _gpus(run: Run) -> int:
    return sum(holding.gpus for holding in run.holdings.all() if holding.ended_at is None)


def _held_by(user: Person) -> int:
    """GPUs that runs hold now whose jobs the reader may see."""
    mine = Holding.objects.filter(visible_q(user, "run__job__budget__"), ended_at=None)
    masks = mine.filter(run__state__in=Run.LIVE).values_list("mask", flat=True)
    return sum(mask.bit_count() for mask in masks)


def _sums(user: Person) -> dict[str, Any]:
    """How much waits and runs of what the reader may see, whatever the filters."""
    waits, runs = Q(state=S.QUEUED), Q(state__in=(S.STARTING, S.RUNNING))
    return Job.objects.filter(visible_q(user, "budget__")).aggregate(
        all_of_them=Count("pk"),
        waiting=Count("pk", filter=waits),
        waiting_gpus=Sum("gpus", filter=waits),
        running=Count("pk", filter=runs),
        oldest=Min("state_since", filter=waits),
    )
