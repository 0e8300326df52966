"""Which jobs and which people cost a budget most in an interval, and all the others together."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.db.models import Count, Q, QuerySet

from budgets.models import Budget, Period
from ledger.figures import SETTLES
from ledger.instants import from_seconds, span, to_seconds, whole
from ledger.membership import Membership
from ledger.models import ClosedTimestep, Entry, Rollup
from ledger.rankings import SIGNED, dearest_jobs, settled_by_jobs
from ledger.spent import cut, whole_periods
from ledger.stretches import CORRECTIONS, LONGEST_TIMESTEP
from ledger.totals import Total
from workloads.models import Job

Kind = Entry.Kind
Spell = tuple[int, int, set[int]]  # budgets below another from an instant to another
Amounts = tuple[int, int]  # milli-GPU-seconds settled, GPU-seconds held
Counted = tuple[int, Amounts]  # of so many jobs


class Whose(NamedTuple):
    """Ids of a job and of who submitted it; none for corrections of no job."""

    job: int | None
    person: int | None


Found = dict[Whose, Amounts]


class _Ranking(NamedTuple):
    """The dearest jobs and people by id, how many there are in all, and what all come to."""

    total: Amounts
    jobs: list[tuple[int, Amounts]]
    job_count: int
    people: list[tuple[int, Counted]]
    person_count: int


@dataclass(frozen=True, slots=True)
class JobSpent:
    """One job in the interval; unfunded time is in its GPU-seconds."""

    job: int
    name: str
    kind: str
    budget: str
    person: str
    settled_mgpus: int
    gpu_seconds: int


@dataclass(frozen=True, slots=True)
class PersonSpent:
    """All jobs that one person submitted."""

    username: str
    name: str
    jobs: int
    settled_mgpus: int
    gpu_seconds: int


@dataclass(frozen=True, slots=True)
class Spenders:
    """The dearest jobs and people, in order, and what is left of the whole beside each list.

    ``other_jobs`` is what no row of ``jobs`` has: further jobs, and corrections of no job at all.
    """

    jobs: tuple[JobSpent, ...]
    people: tuple[PersonSpent, ...]
    job_count: int
    person_count: int
    settled_mgpus: int
    gpu_seconds: int

    @property
    def other_jobs(self) -> Amounts:
        return self._others(self.jobs)

    @property
    def other_people(self) -> Amounts:
        return self._others(self.people)

    def _others(self, rows: Iterable[JobSpent | PersonSpent]) -> Amounts:
        rows = list(rows)
        return (
            self.settled_mgpus - sum(row.settled_mgpus for row in rows),
            self.gpu_seconds - sum(row.gpu_seconds for row in rows),
        )


def spenders(
    *,
    budget: Budget,
    start: datetime,
    end: datetime,
    now: datetime,
    limit: int = 10,
    tree: Membership | None = None,
) -> Spenders:
    """Rank what stood below a budget in [start, end) by what it settled there.

    Charges over an end of the interval count by whole seconds, corrections when they were written.
    Whole periods are read from sums, other intervals from entries. ``tree``: who stood under whom,
    where it is loaded already.
    """
    start, end = span(start, end)
    tree = tree or Membership.load()
    spells = tree.below(budget.pk, to_seconds(start), to_seconds(end))
    periods = whole_periods(start, end, whole(now, "now"))
    if periods is None or len(spells) > 1:
        found = _ranked(_from_entries(spells, start, end), limit)
    else:
        ids = spells[0][2] if spells else set()
        found = _ranked_sums(periods, None if len(ids) == len(list(tree)) else ids, limit)
    return Spenders(
        jobs=tuple(_jobs(found.jobs)),
        people=tuple(_people(found.people)),
        job_count=found.job_count,
        person_count=found.person_count,
        settled_mgpus=found.total[0],
        gpu_seconds=found.total[1],
    )


def _added(rows: Iterable[Amounts]) -> Amounts:
    settled = held = 0
    for amount, seconds in rows:
        settled, held = settled + amount, held + seconds
    return settled, held


def _ranked_sums(periods: Sequence[Period], ids: set[int] | None, limit: int) -> _Ranking:
    """Let the database rank: a year has more jobs than anybody will read. None: of all budgets."""
    mine = Q() if ids is None else Q(budget_id__in=ids)
    sums = settled_by_jobs(budget_ids=ids, periods=periods)
    dearest = dearest_jobs(budget_ids=ids, periods=periods, limit=limit)
    whose = sums.values_list("person_id")
    jobs = Count("job_id", distinct=len(periods) > 1)  # a row of each job in a period
    by_person = whose.annotate(count=jobs, a=Total("settled_mgpus"), b=Total("gpu_seconds"))
    people = {pk: (count, (settled, held)) for pk, count, settled, held in by_person}
    # The whole has also what was corrected of no job.
    all_of = Rollup.objects.filter(mine, size=Rollup.Size.PERIOD, since=0, period__in=periods)
    total = all_of.filter(kind__in=SETTLES).order_by()
    found = total.aggregate(a=Total(SIGNED), b=Total("gpu_seconds"))
    return _Ranking(
        total=(found["a"], found["b"]),
        jobs=[(pk, (settled, held)) for pk, settled, held in dearest],
        job_count=sum(count for count, _ in people.values()),
        people=_dearest(people, limit),
        person_count=len(people),
    )


def _ranked(found: Found, limit: int) -> _Ranking:
    jobs = {one.job: (1, amounts) for one, amounts in found.items() if one.job is not None}
    people: dict[int, Counted] = defaultdict(lambda: (0, (0, 0)))
    for one, amounts in found.items():
        if one.person is not None:
            count, known = people[one.person]
            people[one.person] = (count + 1, _added((known, amounts)))
    return _Ranking(
        total=_added(found.values()),
        jobs=[(pk, amounts) for pk, (_, amounts) in _dearest(jobs, limit)],
        job_count=len(jobs),
        people=_dearest(people, limit),
        person_count=len(people),
    )


def _grouped(rows: QuerySet[Any]) -> Found:
    whose = rows.order_by().values_list("job_id", "job__submitted_by_id")
    totals = whose.annotate(a=Total(SIGNED), b=Total("gpu_seconds"))
    return {Whose(job, person): (settled, held) for job, person, settled, held in totals}


def _from_entries(spells: list[Spell], start: datetime, end: datetime) -> Found:
    if not spells:
        return {}
    below = reduce(or_, (_in_spell(spell, n == 0) for n, spell in enumerate(spells)))
    charges = Entry.objects.filter(below, kind=Kind.CHARGE, timestep__in=_timesteps(start, end))
    inside = Q(at__gte=start, until__lte=end)
    found: Found = defaultdict(lambda: (0, 0))
    corrections = Entry.objects.filter(below, kind__in=CORRECTIONS, at__gte=start, at__lt=end)
    for rows in (_grouped(charges.filter(inside)), _grouped(corrections)):
        for one, amounts in rows.items():
            found[one] = _added((found[one], amounts))
    borders = [to_seconds(start), to_seconds(end)]
    for charge in charges.filter(~inside, at__lt=end, until__gt=start).select_related("job"):
        for piece in cut(charge, borders):
            spent = piece.spent
            held = spent.busy_gpu_seconds + spent.parked_gpu_seconds + spent.realtime_gpu_seconds
            held += spent.unfunded_gpu_seconds
            one = Whose(charge.job_id, charge.job.submitted_by_id if charge.job else None)
            found[one] = _added((found[one], (spent.settled_mgpus, held)))
    return dict(found)


def _in_spell(spell: Spell, is_first: bool) -> Q:
    """Pick entries by where their budget stood when they began, or when the interval did."""
    low, high, ids = spell
    begun = Q(at__lt=from_seconds(high), budget_id__in=ids)
    return begun if is_first else begun & Q(at__gte=from_seconds(low))


def _timesteps(start: datetime, end: datetime) -> QuerySet[ClosedTimestep, datetime]:
    near = ClosedTimestep.objects.filter(
        start__gt=start - LONGEST_TIMESTEP, start__lt=end, end__gt=start
    )
    return near.order_by().values_list("start", flat=True)


def _dearest(amounts: Mapping[int, Counted], limit: int) -> list[tuple[int, Counted]]:
    ranked = sorted(amounts.items(), key=lambda one: (-one[1][1][0], -one[1][1][1], one[0]))
    return ranked[:limit]


def _jobs(dearest: Sequence[tuple[int, Amounts]]) -> Iterable[JobSpent]:
    rows = Job.objects.select_related("budget", "submitted_by").in_bulk([pk for pk, _ in dearest])
    for pk, amounts in dearest:
        job = rows[pk]
        yield JobSpent(pk, job.name, job.kind, job.budget.path, _name(job.submitted_by), *amounts)


def _people(dearest: Sequence[tuple[int, Counted]]) -> Iterable[PersonSpent]:
    users = User.objects.in_bulk([pk for pk, _ in dearest])
    for pk, (count, amounts) in dearest:
        user = users[pk]
        yield PersonSpent(user.username, _name(user), count, *amounts)


def _name(user: User) -> str:
    return user.get_full_name() or user.username
