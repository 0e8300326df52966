"""A simulation's runs as the plan's canvas and a table read them, a few days at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import Http404
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from allocator.models import Simulation
from allocator.pages.names import SHADES, Names, Program
from allocator.pages.plan_feed import words
from allocator.simulating import inputs, results
from budgets.hues import Hue
from clusters.palette import HUES
from workloads.models import Job

DAY_S = 24 * 3600
SHOWN_DAYS = 2
# A trace has no date: its second 0 stands at the midnight of a Monday.
SOMEDAY = datetime(2001, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Bar:
    """A run in the days that are shown; seconds of the span, instants where they are told."""

    job: int | None  # its number, where the reader may see it
    label: str
    group: str  # empty where the reader may not see it
    first_gpu: int
    gpus: int
    start: datetime
    end: datetime
    protected_until: datetime
    unfunded_from: datetime | None
    preempted: bool
    parked_from: datetime | None
    goes_on: bool
    nodes: str
    failed: bool = False  # it ended with its node
    realtime: bool = False


@dataclass(frozen=True)
class Groups:
    """How groups are called and painted."""

    programs: list[Program]
    of: Mapping[str, str]  # group → path of its program
    shade: Mapping[str, int]


class Picture:
    """One course of one simulation, from a day on for a few days."""

    def __init__(self, row: Simulation, names: Names, *, course: int, day: int) -> None:
        kept = results.runs_of(row)
        if kept is None and row.result is not None:
            raise Http404(gone())
        if kept is None or row.result is None or not 0 <= course < len(kept["runs"]):
            raise Http404(_("There is no such picture yet."))
        self.row, self.names, self.kept = row, names, kept
        self.runs = kept["runs"][course]
        # Those that were kept before there were services have none.
        self.served = kept["served"][course] if "served" in kept else []
        self.seconds: int = row.result["seconds"]
        begins = begins_of(row)
        self.day = max(0, min(day, max(0, len(begins) - SHOWN_DAYS)))
        self.from_s = begins[self.day]
        self.to_s = _until(begins, self.day, self.seconds)
        self.own = results.is_of_budgets(row)
        self.sight = results.Sight(row, names.held)
        self.origin = row.starts_at or SOMEDAY
        self.groups = _groups(row, names)

    def at(self, second: int) -> datetime:
        return self.origin + timedelta(seconds=second)

    def bars(self) -> list[Bar]:
        """The runs that are in view, by their starts. One query."""
        inside = [run for run in self.runs if run[2] < self.to_s and run[3] > self.from_s]
        served = [one for one in self.served if one[3] < self.to_s and one[4] > self.from_s]
        titles = self._titles([*inside, *served])
        bars = [self._bar(run, titles) for run in inside]
        bars += [self._service(one, titles) for one in served]
        return sorted(bars, key=lambda bar: bar.start)

    def _titles(self, runs: list[Any]) -> dict[str, str]:
        """What the history's jobs are called, of those that the reader sees."""
        if not self.row.is_of_history:
            return {}
        jobs = (self.kept["jobs"][run[0]] for run in runs)
        seen = {int(job[0]) for job in jobs if self.sight.sees(job[1])}
        return {
            str(pk): name for pk, name in Job.objects.filter(pk__in=seen).values_list("pk", "name")
        }

    def _bar(self, run: list[Any], titles: Mapping[str, str]) -> Bar:
        number, first, since, until, preempted, protected, unfunded, *more = run
        _id, _group, gpus, _lasts, parked = self.kept["jobs"][number]
        failed = bool(more and more[0])
        over = until < self.seconds and not preempted and not failed
        idle = max(since, until - parked) if over and parked else None
        return Bar(
            **self._whose(number, titles),
            first_gpu=first,
            gpus=gpus,
            start=self.at(max(since, self.from_s)),
            end=self.at(min(until, self.to_s)),
            protected_until=self.at(protected),
            unfunded_from=None if unfunded is None else self.at(unfunded),
            preempted=bool(preempted) and until <= self.to_s,
            parked_from=None if idle is None else self.at(idle),
            goes_on=until >= self.seconds and not preempted,
            nodes=self._nodes(first, gpus),
            failed=failed and until <= self.to_s,
        )

    def _service(self, stretch: list[Any], titles: Mapping[str, str]) -> Bar:
        """GPUs that a service held for a while."""
        number, first, gpus, since, until, funded = stretch
        return Bar(
            **self._whose(number, titles),
            first_gpu=first,
            gpus=gpus,
            start=self.at(max(since, self.from_s)),
            end=self.at(min(until, self.to_s)),
            protected_until=self.at(until if funded else since),
            unfunded_from=None if funded else self.at(since),
            preempted=False,
            parked_from=None,
            goes_on=until >= self.seconds,
            nodes=self._nodes(first, gpus),
            realtime=True,
        )

    def _whose(self, number: int, titles: Mapping[str, str]) -> dict[str, Any]:
        """What a job or service of the trace is called, as far as the reader may know."""
        job_id, group, *_rest = self.kept["jobs"][number]
        known = not self.own or self.sight.sees(group)
        group = self.sight.now(group)
        slug = group.rpartition("/")[2]
        return {
            "job": int(job_id) if known and self.row.is_of_history else None,
            "label": f"{slug}/{titles.get(job_id, job_id)}"
            if known
            else _("another budget’s work"),  # noqa: RUF001
            "group": group if known else "",
        }

    def _empty(self) -> list[dict[str, Any]]:
        """Nodes that were down or drained in the days that are shown."""
        first, found = 0, []
        rows = {}
        for name, gpus, _pool in self.kept["nodes"]:
            rows[name], first = (first, gpus), first + gpus
        for name, since, until, down, *more in self.kept.get("empty", ()):
            if name in rows and since < self.to_s and until > self.from_s:
                found.append(
                    {
                        "first_gpu": rows[name][0],
                        "gpus": rows[name][1],
                        "start": _iso(self.at(max(since, self.from_s))),
                        "end": _iso(self.at(min(until, self.to_s))),
                        "label": _why_empty(down, is_new=bool(more and more[0])),
                        "why": name,
                    }
                )
        return found

    def _nodes(self, first: int, gpus: int) -> str:
        names, at = [], 0
        for name, size, _pool in self.kept["nodes"]:
            if at < first + gpus and at + size > first:
                names.append(name)
            at += size
        return names[0] if len(names) == 1 else f"{names[0]} – {names[-1]}"

    def feed(self) -> dict[str, Any]:
        """Return it as JSON data in the format told at the head of static/plan.js."""
        nodes, pools = _rows(self.kept["nodes"])
        end = self.at(self.to_s)
        zone = timezone.get_current_timezone_name() if self.row.is_of_history else "UTC"
        return {
            "now": _iso(end + timedelta(days=400)),  # all of it is past: no line, nothing planned
            "from": _iso(self.at(self.from_s)),
            "to": _iso(end),
            "timestep_minutes": settings.TIMESTEP_MINUTES,
            "zone": zone,
            "pools": pools,
            "nodes": nodes,
            "programs": [
                {"slug": one.path, "name": one.name, "hue": one.hue} for one in self.groups.programs
            ],
            "bars": [self._as_json(bar) for bar in self.bars()],
            "down": self._empty(),
            "short": [],
            "words": words() | {"past": "", "over": _("ended, or goes on after these days")},
        }

    def _as_json(self, bar: Bar) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if bar.job is not None:
            more["url"] = reverse("job", args=[bar.job])
        if bar.unfunded_from is not None:
            more["unfunded_from"] = _iso(bar.unfunded_from)
        if bar.preempted or bar.failed:
            more["preempted"] = True
        if bar.failed:
            more["why"] = _("ended with its node")
        if bar.realtime:
            more["realtime"] = True
        if bar.parked_from is not None and bar.parked_from < bar.end:
            more["parked"] = [[_iso(max(bar.parked_from, bar.start)), _iso(bar.end)]]
        known = bar.group != ""
        return {
            "job": bar.job,
            "label": bar.label,
            "budget": (self.names.name(bar.group) if self.own else bar.group) if known else "",
            "program": self.groups.of.get(bar.group, "") if known else "",
            "shade": self.groups.shade.get(bar.group, 0) if known else 0,
            "first_gpu": bar.first_gpu,
            "gpus": bar.gpus,
            "start": _iso(bar.start),
            "end": _iso(bar.end),
            "protected_until": _iso(bar.protected_until),
            **more,
        }


def _why_empty(down: bool, *, is_new: bool) -> str:
    if is_new:
        return _("not in use yet")
    return _("down") if down else _("maintenance")


def gone() -> str:
    """Say that pictures were let go."""
    return _("Pictures were kept for %(days)s days (SIMULATIONS_KEPT_DAYS), and are gone.") % {
        "days": settings.SIMULATIONS_KEPT_DAYS
    }


def begins_of(row: Simulation) -> list[int]:
    """Return the seconds of the span at which its days begin, the last one begun; none while open.

    Those of a history begin at the reader's time of day that it does, so one in which clocks
    change is an hour shorter or longer than a day; a trace's all last as long.
    """
    if row.result is None:
        return []
    seconds = int(row.result["seconds"])
    if row.starts_at is None:
        return list(range(0, seconds, DAY_S))
    zone = timezone.get_current_timezone()
    first = row.starts_at.astimezone(zone)
    found = [0]
    while found[-1] < seconds:
        day = datetime.combine(first.date() + timedelta(days=len(found)), first.time(), zone)
        found.append(int((day - row.starts_at).total_seconds()))
    return found[:-1]


def _until(begins: list[int], day: int, seconds: int) -> int:
    """The second at which the days that are shown from one on are over."""
    after = day + SHOWN_DAYS
    return begins[after] if after < len(begins) else seconds


@dataclass(frozen=True)
class Days:
    """Which days can be shown, and which are: the first of them, and those beside it."""

    all: list[tuple[int, datetime, bool]]  # number, when it begins, whether it is shown
    first: int
    start: datetime
    end: datetime
    before: int | None
    after: int | None
    is_dated: bool


def days(row: Simulation, day: int | None) -> Days | None:
    """Return the days of a simulation that is done, with some of them shown; None without pictures.

    Without a day the last ones: by then the queue is as long as the policy lets it be.
    """
    begins = begins_of(row)
    count = len(begins)
    if row.result is None or row.picture is None or not count:
        return None
    last = max(0, count - SHOWN_DAYS)
    first = last if day is None else max(0, min(day, last))
    origin = row.starts_at or SOMEDAY
    at = [origin + timedelta(seconds=second) for second in begins]
    return Days(
        all=[(n, begin, first <= n < first + SHOWN_DAYS) for n, begin in enumerate(at)],
        first=first,
        start=at[first],
        end=origin + timedelta(seconds=_until(begins, first, row.result["seconds"])),
        before=max(0, first - SHOWN_DAYS) if first else None,
        after=min(last, first + SHOWN_DAYS) if first < last else None,
        is_dated=row.is_of_history,
    )


def programs(row: Simulation, names: Names) -> list[Program]:
    """Return what the hues of a simulation's pictures stand for."""
    return _groups(row, names).programs


def _groups(row: Simulation, names: Names) -> Groups:
    nodes = next(iter(inputs.trees_of(row).values())).nodes
    parent = {node.path: node.parent for node in nodes}
    if results.is_of_budgets(row):
        of = {path: names.program(path) for path in names.budgets}
        return Groups(list(names.programs()), of, names.shades())
    roots = [path for path, above in parent.items() if above is None]
    below = [path for path, above in parent.items() if above in roots]
    tops = below if len(roots) == 1 and below else roots
    of = {path: _top(path, parent, tops) for path in parent}
    programs = [Program(path, path, _hue(n)) for n, path in enumerate(tops, 1)]
    leaves: dict[str, list[str]] = {}
    for path, top in of.items():
        if path != top:
            leaves.setdefault(top, []).append(path)
    shade = {path: n % SHADES for paths in leaves.values() for n, path in enumerate(paths)}
    return Groups(programs, of, shade)


def _hue(place: int) -> Hue:
    return place if place <= HUES else 0


def _top(path: str, parent: Mapping[str, str | None], tops: list[str]) -> str:
    at: str | None = path
    while at is not None and at not in tops:
        at = parent[at]
    return at or path


def _rows(nodes: list[Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes and pools in the order of rows."""
    rows: list[dict[str, Any]] = []
    pools: list[dict[str, Any]] = []
    first = 0
    for name, gpus, pool in nodes:
        rows.append({"name": name, "first_gpu": first, "gpus": gpus})
        if not pools or pools[-1]["slug"] != pool:
            pools.append({"slug": pool, "name": pool, "first_gpu": first, "gpus": 0})
        pools[-1]["gpus"] += gpus
        first += gpus
    return rows, pools


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
