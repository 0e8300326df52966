"""What was declared for jobs against what they used: per project, per person, and in all."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db.models import Q, QuerySet, Sum

from budgets.access import Action, Person, standing
from budgets.models import Budget
from forecasting.core.inflation import Declared, Inflation, inflation, instead
from forecasting.core.quantiles import PER_MILLE
from forecasting.demand_models import DemandScore
from ledger.burn import burned
from ledger.membership import Membership
from workloads.models import Job, Run

DAYS = 28  # that are compared unless others are asked for
RECENT = 200  # jobs of a project that a quote looks at, newest first
QUOTED = timedelta(days=90)  # how far back


@dataclass(frozen=True)
class Line:
    """What one project or person asked and used; those who asked most beyond it come first."""

    key: str  # a path, or a user name
    name: str
    found: Inflation


@dataclass(frozen=True)
class ServiceLine:
    """A service's declared profile against what its traffic needed, in GPU-timesteps."""

    job: int
    name: str
    path: str
    declared: int
    needed: int

    @property
    def per_mille(self) -> int | None:
        """Declared ÷ needed; None where nothing was needed."""
        return self.declared * PER_MILLE // self.needed if self.needed else None


@dataclass(frozen=True)
class AskedAgainstUsed:
    """All of a budget and below that ended in [since, until).

    `duration` and `limit` compare declared durations and time limits; `in_vain` counts jobs that
    ended before their minimum runtime, and what had been set aside for the rest of it. `people` are
    those that the reader may compare, else only themselves.
    """

    budget: Budget
    since: datetime
    until: datetime
    jobs: int
    duration: Inflation | None
    limit: Inflation | None
    in_vain: int
    in_vain_gpu_seconds: int
    held_gpu_seconds: int
    parked_gpu_seconds: int
    projects: tuple[Line, ...]
    people: tuple[Line, ...]
    services: tuple[ServiceLine, ...]  # of which days of traffic were scored
    pairs: tuple[tuple[int, int], ...]  # used and declared seconds, oldest first


@dataclass(frozen=True)
class Said:
    """What a quote says of a project's declared durations; what to declare instead, in seconds."""

    jobs: int
    took_per_mille: int
    instead_s: int | None


class _Ended(NamedTuple):
    path: str
    project: str
    person: str
    full_name: str
    gpus: int
    used_s: int
    expected_s: int | None
    limit_s: int | None
    minimum_s: int


def asked_against_used(
    *, budget: Budget, since: datetime, now: datetime, reader: Person
) -> AskedAgainstUsed:
    """Compare what was asked with what was used, of jobs that ended in [since, now).

    Counts jobs that completed or were stopped at their limit; a failed one says nothing of how long
    its work takes. A constant number of queries.
    """
    rows = _rows(_jobs(budget, since, now))
    spent = burned(budget=budget, start=since, end=now, now=now, tree=Membership.load())
    durations = [(row, _declared(row, row.expected_s)) for row in rows if row.expected_s]
    vain = [row for row in rows if row.used_s < row.minimum_s]
    held = spent.busy_gpu_seconds + spent.parked_gpu_seconds
    return AskedAgainstUsed(
        budget=budget,
        since=since,
        until=now,
        jobs=len(rows),
        duration=inflation([one for _, one in durations]),
        limit=inflation([_declared(row, row.limit_s) for row in rows if row.limit_s]),
        in_vain=len(vain),
        in_vain_gpu_seconds=sum(row.gpus * (row.minimum_s - row.used_s) for row in vain),
        held_gpu_seconds=held,
        parked_gpu_seconds=spent.parked_gpu_seconds,
        projects=_lines((row.path, row.project, one) for row, one in durations),
        people=_people(durations, reader),
        services=_services(budget, since, now),
        pairs=tuple((one.used_s, one.asked_s) for _, one in durations),
    )


def of_project(*, budget: Budget, declared_s: int | None, now: datetime) -> Said | None:
    """What a quote says of a project's declarations; None where too few tell. Three queries."""
    known = _jobs(budget, now - QUOTED, now).filter(expected_duration_s__isnull=False)
    newest = list(known.order_by("-pk").values_list("pk", flat=True)[:RECENT])
    rows = _rows(Job.objects.filter(pk__in=newest))
    found = inflation([_declared(row, row.expected_s) for row in rows])
    if found is None or found.suggests is None:
        return None
    return Said(
        jobs=found.jobs,
        took_per_mille=found.took_per_mille,
        instead_s=None if declared_s is None else instead(declared_s, found.suggests),
    )


def _services(budget: Budget, since: datetime, now: datetime) -> tuple[ServiceLine, ...]:
    """Those that declare most beyond what they need first. One query."""
    days = {"day__gte": since.astimezone(UTC).date(), "day__lte": now.astimezone(UTC).date()}
    scores = DemandScore.objects.filter(_below(budget, "service__job__"), **days)
    of = ("service__job_id", "service__job__name", "service__job__budget__path")
    rows = scores.order_by().values_list(*of).annotate(Sum("declared"), Sum("needed"))
    lines = [ServiceLine(*row) for row in rows]
    return tuple(sorted(lines, key=lambda one: (one.needed - one.declared, one.job)))


def _below(budget: Budget, prefix: str = "") -> Q:
    inside = Q(**{f"{prefix}budget__path__startswith": f"{budget.path}/"})
    return Q(**{f"{prefix}budget_id": budget.pk}) | inside


def _jobs(budget: Budget, since: datetime, now: datetime) -> QuerySet[Job]:
    below = _below(budget)
    ended = (Job.State.COMPLETED, Job.State.TIMED_OUT)
    known = Job.objects.filter(below, state__in=ended, ended_at__gte=since, ended_at__lt=now)
    return known.exclude(kind=Job.Kind.REALTIME).order_by("ended_at", "pk")


FIELDS = (
    *("budget__path", "budget__name", "submitted_by__username"),
    *("submitted_by__first_name", "submitted_by__last_name", "gpus", "progress_s"),
    *("ended_at", "expected_duration_s", "time_limit_s", "minimum_runtime_s"),
)


def _rows(jobs: QuerySet[Job]) -> list[_Ended]:
    """What each took: what earlier runs kept, and the last run. Two queries."""
    ran = Run.objects.filter(job__in=jobs.order_by().values("pk"), started_at__isnull=False)
    # In order, so that the last one of each job stays.
    started = dict(ran.order_by("pk").values_list("job_id", "started_at"))
    found = []
    for pk, *known in jobs.values_list("pk", *FIELDS):
        if pk not in started:
            continue
        path, project, person, first, last, gpus, kept, ended_at, *asked = known
        used_s = kept + max(0, int((ended_at - started[pk]).total_seconds()))
        found.append(_Ended(path, project, person, f"{first} {last}".strip(), gpus, used_s, *asked))
    return found


def _declared(row: _Ended, asked_s: int | None) -> Declared:
    return Declared(row.gpus, asked_s or 1, row.used_s)


def _people(durations: Sequence[tuple[_Ended, Declared]], reader: Person) -> tuple[Line, ...]:
    """Everybody where the reader may compare people, else the reader alone."""
    held, own = standing(reader), getattr(reader, "username", None)
    return _lines(
        (row.person, row.full_name or row.person, one)
        for row, one in durations
        if row.person == own or held.can(Action.COMPARE_PEOPLE, row.path)
    )


def _lines(rows: Iterable[tuple[str, str, Declared]]) -> tuple[Line, ...]:
    names: dict[str, str] = {}
    known: dict[str, list[Declared]] = defaultdict(list)
    for key, name, one in rows:
        names[key] = name
        known[key].append(one)
    lines = [
        Line(key, names[key], found)
        for key in known
        if (found := inflation(known[key])) is not None
    ]
    return tuple(sorted(lines, key=lambda one: (-one.found.beyond_gpu_seconds, one.key)))
