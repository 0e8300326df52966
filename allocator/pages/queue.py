"""Jobs as lists show them, and why each waiting one waits: facts, no words.

The words are in templates, one for each rule: `_why_text.html`, `_why_says.html` and
`_why_released.html` in `templates/allocator`. `told` reads them for whoever has no page.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from html import unescape
from typing import Any

from django.db.models import QuerySet
from django.template.loader import render_to_string

from allocator.job_rows import JobRow, RunRow
from allocator.models import Outlook, Wait
from allocator.pages.job_story import Side, side
from allocator.pages.names import Names
from allocator.start_estimates import Record
from budgets.access import Person, redacted, visible_q
from budgets.hues import Hue
from workloads.models import Job, Run

NAMED = 3  # budgets or jobs that a reason names; the rest are counted
NOT_PLANNED = "not_planned"
PARTS = ("text", "says", "released")  # of templates' names


@dataclass(frozen=True)
class JobName:
    """A job as a reason names it; pk is None where the reader may not know it."""

    pk: int | None
    label: str
    budget: str


@dataclass(frozen=True)
class Why:
    """The rule that binds, and its particulars. Amounts in milli-GPU-seconds."""

    rule: str
    gpus: int
    jobs: tuple[JobName, ...] = ()  # ahead of it, or waited for
    names: str = ""  # of the budgets ahead of it, the first three
    ahead: int = 0  # jobs ahead of it, the unknown ones too
    own: bool = False  # all of them are of its own budget
    mine: Side | None = None  # how its budget and that of the first ahead compare, before the
    theirs: Side | None = None  # plan gives anything: at their first common ancestor
    node: str = ""
    pools: str = ""
    budget: str = ""  # that can't afford it
    budget_path: str = ""
    needed_mgpus: int | None = None
    spendable_mgpus: int | None = None
    cluster: str = ""  # that refused it
    reason: str = ""  # what it said
    times: int = 0  # in a row
    until: datetime | None = None  # when it is tried again
    low: datetime | None = None
    likely: datetime | None = None
    high: datetime | None = None

    @property
    def short_mgpus(self) -> int | None:
        """What is missing for its hold."""
        if self.needed_mgpus is None or self.spendable_mgpus is None:
            return None
        return max(0, self.needed_mgpus - self.spendable_mgpus)

    @property
    def more_ahead(self) -> int:
        """Jobs ahead of it beyond those named."""
        return max(0, self.ahead - len(self.jobs))

    @property
    def is_act(self) -> bool:
        """Whether somebody must act before it can start."""
        return self.rule in ("not_funded", "unreachable")


@dataclass(frozen=True)
class Line:
    """One job in a list."""

    job: Job
    label: str
    hue: Hue
    budget: str
    pools: str
    why: Why | None
    waited_s: int

    @property
    def is_waiting(self) -> bool:
        return self.job.state == Job.State.QUEUED


def visible_jobs(user: Person) -> QuerySet[Job]:
    """Jobs that the reader may see, with what a line shows. Two queries when read."""
    jobs = Job.objects.filter(visible_q(user, "budget__"))
    return jobs.select_related("budget", "outlook", "submitted_by").prefetch_related("pools")


def line(job: Job, names: Names, *, now: datetime) -> Line:
    """One job's line; its budget, pools and outlook must be fetched with it."""
    waits = job.state == Job.State.QUEUED
    return Line(
        job=job,
        label=f"{job.budget.slug}/{job.name}",
        hue=names.hue_of(job.budget.path),
        budget=job.budget.name,
        pools=", ".join(pool.name for pool in job.pools.all()),
        why=why(job, names) if waits else None,
        waited_s=max(0, int((now - job.state_since).total_seconds())),
    )


def particulars(told: dict[str, Any], names: Names) -> dict[str, Any]:
    """What an outlook or a wait tells as far as the reader may know it: no figures of an unknown
    budget."""
    data: dict[str, Any] = redacted(names.held, told)
    compared = data.get("compared")
    if compared and not (compared["own"]["path"] and compared["other"]["path"]):
        data["compared"] = None
    return data


def why(job: Job, names: Names) -> Why:
    """Why a waiting job waits, as far as the reader may know; from the pass that decided."""
    outlook: Outlook | None = getattr(job, "outlook", None)
    if outlook is None:
        return Why(NOT_PLANNED, job.gpus)
    foreseen = (outlook.start_low, outlook.start_likely, outlook.start_high)
    return _of_rule(job, outlook.rule, particulars(outlook.data, names), names, foreseen)


def why_waited(job: Job, wait: Wait, names: Names) -> Why:
    """What bound a job's wait when it last did, as far as the reader may know."""
    return _of_rule(job, wait.rule, particulars(wait.data, names), names, (None, None, None))


def _of_rule(
    job: Job,
    rule: str,
    data: dict[str, Any],
    names: Names,
    foreseen: tuple[datetime | None, datetime | None, datetime | None],
) -> Why:
    behind = [_job_name(row, names) for row in data.get("behind", ())]
    if rule == "dependency":
        behind = [_job_name(data, names)]
    binding = data.get("binding") or ""
    compared = data.get("compared")
    low, likely, high = foreseen
    return Why(
        rule=rule,
        gpus=job.gpus,
        jobs=tuple(behind[:NAMED]),
        names=_first_names(behind, job.budget.name),
        ahead=len(behind),
        own=bool(behind) and all(one.budget == job.budget.name for one in behind),
        mine=side(compared["own"], names) if compared else None,
        theirs=side(compared["other"], names) if compared else None,
        node=data.get("node", ""),
        pools=", ".join(data.get("pools", ())),
        budget=names.name(binding) if binding else "",
        budget_path=binding,
        needed_mgpus=data.get("needed_mgpus"),
        spendable_mgpus=data.get("spendable_mgpus"),
        cluster=data.get("cluster", ""),
        reason=data.get("reason", ""),
        times=data.get("times", 0),
        until=_instant(data.get("until")),
        low=low,
        likely=likely,
        high=high,
    )


@dataclass(frozen=True)
class Told:
    """Why a job waits, as its page says it, in plain text."""

    text: str  # in a few words
    sentence: str
    released_by: str  # what would release it; empty where that is plain


def told_record(record: Record) -> str:
    """Say how good estimates of a start have been in the words of a job's page, in plain text."""
    return _plain("record", {"record": record})


def told(job: Job, names: Names, *, now: datetime) -> Told:
    """Say why a waiting job waits in the words of its page."""
    given = {"why": why(job, names), "own": job.budget.name, "now": now}
    return Told(*(_plain(name, given) for name in PARTS))


def told_waited(why: Why) -> str:
    """Say why a job waited in the words of its page, in plain text."""
    return _plain("waited", {"why": why})


def _plain(name: str, given: dict[str, Any]) -> str:
    return " ".join(unescape(render_to_string(f"allocator/_why_{name}.html", given)).split())


def ends(
    job: Job | JobRow, run: Run | RunRow, now: datetime
) -> tuple[datetime, datetime, datetime] | None:
    """When a run ends by its job's estimate: early, likely, late; none of them before now.

    None where it hasn't started, and for a service, which runs until it is stopped.
    """
    if run.started_at is None or job.is_realtime:
        return None
    begun = run.started_at - timedelta(seconds=job.progress_s)
    limit = job.time_limit_s
    if job.session and limit is not None:
        end = max(now, begun + timedelta(seconds=limit))
        return end, end, end
    low, likely, high = (
        max(now, begun + timedelta(seconds=s if limit is None else min(s, limit)))
        for s in (job.estimate_p10_s, job.estimate_p50_s, job.estimate_p90_s)
    )
    return low, likely, high


def _job_name(row: dict[str, Any], names: Names) -> JobName:
    path = row.get("budget") or ""
    slug = path.rpartition("/")[2]
    known = row.get("job") if not path or names.sees(path) else None
    label = row.get("name") or ""
    return JobName(known, f"{slug}/{label}" if slug and label else label, names.name(path))


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _first_names(behind: list[JobName], own: str) -> str:
    """Budgets ahead of it by name, its own last, the first three."""
    found = dict.fromkeys(one.budget for one in behind if one.budget)
    ordered = sorted(found, key=lambda name: name == own)
    return ", ".join(ordered[:NAMED])
