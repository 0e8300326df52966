"""How good forecasts of jobs have been, of those that a person may see."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet

from budgets.access import Person, visible_q
from forecasting.core.drifting import BEFORE, Drift, look
from forecasting.core.tally import Scored, Tally, earlier_means, tally
from forecasting.models import Forecast
from workloads.models import Job

MOST = 20_000  # forecasts that are looked at, the newest
DAYS = (30, 90)  # that a record may be over
EVER = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Group:
    """The forecasts that have these in common; empty: whatever it is."""

    kind: str
    tally: Tally
    budget: str = ""
    variant: str = ""
    method: str = ""
    planned: bool = True


@dataclass(frozen=True)
class Record:
    """Of the forecasts that came true in [since, until): by kind, and of each by what parts it.

    ``methods`` has those that were made beside a declared duration, too.
    """

    since: datetime
    until: datetime
    kinds: list[Group]
    budgets: list[Group]
    variants: list[Group]
    methods: list[Group]
    is_cut: bool  # there are more than `MOST`, and only the newest count

    @property
    def number(self) -> int:
        return sum(group.tally.number for group in self.kinds)


@dataclass(frozen=True)
class _Row:
    kind: str
    budget: str
    variant: str
    method: str
    planned: bool
    scored: Scored


def track_record(user: Person, *, since: datetime, now: datetime) -> Record:
    """Return the record of what a person may see. Two queries, of at most `MOST` forecasts.

    Sessions and services have no duration to be wrong about; failed and cancelled jobs no truth.
    """
    found = truths(since=since, now=now).filter(visible_q(user, "job__budget__"))
    rows = _rows(found)
    is_cut, rows = len(rows) > MOST, rows[:MOST]
    planned = [row for row in rows if row.planned]
    return Record(
        since=since,
        until=now,
        kinds=_groups(planned, ("kind",)),
        budgets=_groups(planned, ("kind", "budget")),
        variants=_groups([row for row in planned if row.variant], ("kind", "variant")),
        methods=_groups(rows, ("kind", "method", "planned")),
        is_cut=is_cut,
    )


def drift_of(kind: str, *, window: int, now: datetime) -> Drift | None:
    """Judge the newest forecasts of a kind that jobs were planned with. One query."""
    found = truths(since=EVER, now=now).filter(job__kind=kind, planned=True)
    newest = found.order_by("-scored_at", "-pk").values_list("p10_s", "p50_s", "p90_s", "actual_s")
    rows = [Scored(low, mid, high, took or 1) for low, mid, high, took in newest[: window + BEFORE]]
    return look(rows[:window], rows[window:], window=window)


def truths(*, since: datetime, now: datetime) -> QuerySet[Forecast]:
    """Forecasts that came true in [since, now), whoever sees them."""
    scored = Q(scored_at__gte=since, scored_at__lt=now, actual_s__gt=0)
    jobs = Q(job__session=False, job__state=Job.State.COMPLETED)
    return Forecast.objects.filter(scored, jobs).exclude(job__kind=Job.Kind.REALTIME)


def _rows(found: QuerySet[Forecast]) -> list[_Row]:
    rows = list(
        found.order_by("-scored_at", "-pk").values_list(
            *("job__kind", "job__budget__path", "variant", "method", "planned"),
            *("p10_s", "p50_s", "p90_s", "actual_s", "job__expected_duration_s"),
            *("made_at", "scored_at", "job__gpus"),
        )[: MOST + 1]
    )
    found_rows = []
    for row, mean in zip(rows, _means(rows), strict=True):
        kind, path, variant, method, planned, low, likely, high, actual, declared, *_, gpus = row
        scored = Scored(low, likely, high, actual or 1, declared, mean, gpus)
        found_rows.append(_Row(kind, path, variant, method, planned, scored))
    return found_rows


def _means(rows: Sequence[tuple[Any, ...]]) -> list[int | None]:
    """For each the mean duration of its kind, of those that had ended when it was made."""
    ended, made = defaultdict(list), defaultdict(list)
    for n, row in enumerate(rows):
        if row[4]:  # a job counts once, however many forecasts it has
            ended[row[0]].append((row[11].timestamp(), row[8]))
        made[row[0]].append((n, row[10].timestamp()))
    found: list[int | None] = [None] * len(rows)
    for kind, asked in made.items():
        means = earlier_means(ended[kind], [at for _, at in asked])
        for (n, _), mean in zip(asked, means, strict=True):
            found[n] = mean
    return found


def _groups(rows: Iterable[_Row], names: tuple[str, ...]) -> list[Group]:
    """Groups by name; of a kind the largest first."""
    members: Mapping[tuple[Any, ...], list[Scored]] = defaultdict(list)
    for row in rows:
        members[tuple(getattr(row, name) for name in names)].append(row.scored)
    found = []
    for key, scored in members.items():
        one = tally(scored)
        assert one is not None, "a group has members"
        found.append(Group(tally=one, **dict(zip(names, key, strict=True))))
    order = {kind: n for n, kind in enumerate(Job.Kind.values)}
    found.sort(
        key=lambda one: (order[one.kind], -one.tally.number, one.budget, one.variant, one.method)
    )
    return found
