"""The track record of forecasts: how they came true, what was learned, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.drifting import KIND
from allocator.models import Alarm
from allocator.pages.names import Names
from budgets.access import Person
from clusters.words import worded
from forecasting import retraining
from forecasting.core.kinds import KINDS
from forecasting.core.tally import QUANTILES, Against, Tally
from forecasting.demand_scores import RealtimeRecord, realtime_track_record
from forecasting.models import Estimator
from forecasting.track_record import DAYS, Group, Record, track_record
from workloads.models import Job

SHOWN = 7  # newest estimators of each kind
PROJECTS = 40  # rows by project; of more the others are a link away
METHODS = {
    "declared": gettext_lazy("declared"),
    "declared_history": gettext_lazy("declared, and history"),
    "physics": gettext_lazy("physics"),
    "physics+history": gettext_lazy("physics and history"),
    "history": gettext_lazy("like jobs"),
    "default": gettext_lazy("the kind's range"),
}
# By what jobs were held out: at random, or all of a type, a size, a number together.
WAYS = {
    "known": gettext_lazy("chance"),
    "gpu": gettext_lazy("type of GPU"),
    "size": gettext_lazy("size of the model"),
    "count": gettext_lazy("number of GPUs"),
}


@dataclass(frozen=True)
class Line:
    """One group of forecasts, as a row says it. Errors and shares in thousandths of a percent."""

    group: Group
    name: str
    path: str = ""

    @property
    def tally(self) -> Tally:
        return self.group.tally

    @property
    def kind(self) -> str:
        return _label(self.group.kind)

    @property
    def median(self) -> int:
        return self.tally.median_error * 100

    @property
    def mean(self) -> int:
        return self.tally.mean_error * 100

    @property
    def inside(self) -> int:
        return self.tally.inside * 100

    @property
    def below_p90(self) -> int:
        return self.tally.below_p90 * 100

    @property
    def loss_s(self) -> int:
        return (self.tally.loss_ds + 5) // 10

    @property
    def declared(self) -> int | None:
        return _gained(self.tally.declared)

    @property
    def plain(self) -> int | None:
        return _gained(self.tally.mean)


@dataclass(frozen=True)
class Service:
    """A service's forecasts of demand. Parts in thousandths of a percent; None: nothing needed."""

    record: RealtimeRecord
    covered: int | None
    over: int | None
    declared_over: int | None


@dataclass(frozen=True)
class Learned:
    """What was learned of a kind: the one in force, and the newest ones."""

    kind: str
    active: Estimator | None
    newest: list[Estimator]
    held_out: list[tuple[str, dict[str, int]]]


@dataclass(frozen=True)
class ForecastsPage:
    """All that the page says."""

    now: datetime
    days: int
    record: Record
    kinds: list[Line]
    budgets: list[Line]
    folded: int  # rows by project that are not shown
    variants: list[Line]
    methods: list[Line]
    services: list[Service]
    learned: list[Learned]
    alarms: list[str]

    @property
    def choices(self) -> tuple[int, ...]:
        return DAYS

    @property
    def best(self) -> Line | None:
        """The kind with the most forecasts, which the page's first sentence is about."""
        return max(self.kinds, key=lambda line: line.tally.number, default=None)

    @property
    def calibration(self) -> dict[str, Any]:
        """Said percentiles against shares that came true, for the chart."""
        said = [percent for percent, _ in QUANTILES]
        series = [
            {"name": line.name, "number": line.tally.number, "true_per_mille": line.tally.below}
            for line in self.kinds
        ]
        words = {"said": _("forecast"), "true": _("came true by then")}
        return {"said": said, "series": series, "words": words}


def page(user: Person, *, now: datetime, days: int, whole: bool = False) -> ForecastsPage:
    """Read it; of many projects all only if `whole`. A constant number of queries."""
    since = now - timedelta(days=days)
    names = Names.load(user)
    found = track_record(user, since=since, now=now)
    services = realtime_track_record(user, since=since, now=now)
    projects = found.budgets if whole else _most(found.budgets)
    return ForecastsPage(
        now=now,
        days=days,
        record=found,
        kinds=[Line(one, _label(one.kind)) for one in found.kinds],
        budgets=[Line(one, names.name(one.budget), one.budget) for one in projects],
        folded=len(found.budgets) - len(projects),
        variants=[Line(one, one.variant) for one in found.variants],
        methods=[Line(one, str(METHODS.get(one.method, one.method))) for one in found.methods],
        services=[_service(one) for one in services],
        learned=[_learned(kind) for kind in KINDS],
        alarms=_alarms(names),
    )


def _most(groups: list[Group]) -> list[Group]:
    """Those with the most forecasts, in the order in which all stand."""
    most = sorted(range(len(groups)), key=lambda n: (-groups[n].tally.number, n))[:PROJECTS]
    return [groups[n] for n in sorted(most)]


def days_of(text: str) -> int:
    """The days that an address asks for; else the first choice."""
    return int(text) if text in map(str, DAYS) else DAYS[0]


def _label(kind: str) -> str:
    return worded(Job.Kind(kind).label)


def _gained(found: Against | None) -> int | None:
    """How much less is lost than by a plain forecast, in thousandths of a percent of that."""
    if found is None or not found.theirs_ds:
        return None
    return 100_000 * (found.theirs_ds - found.ours_ds) // found.theirs_ds


def _service(record: RealtimeRecord) -> Service:
    parts = (record.demand_covered, record.over, record.declared_over)
    covered, over, declared = (None if one is None else round(one * 100_000) for one in parts)
    return Service(record, covered, over, declared)


def _learned(kind: str) -> Learned:
    newest = list(retraining.last(kind, SHOWN))
    active = retraining.active(kind)
    scores = active.scores if active else {}
    held_out = [
        (
            str(WAYS.get(way, way)),
            {name: round(one[name] * 100_000) for name in ("physics", "corrected")},
        )
        for way, one in scores.items()
    ]
    return Learned(_label(kind), active, newest, held_out)


def _alarms(names: Names) -> list[str]:
    """Open ones; what they say is of all budgets, so only who sees all of them reads it."""
    if not names.whole():
        return []
    rows = Alarm.objects.filter(kind__startswith=KIND, cleared_at=None)
    return [alarm.said for alarm in rows]
