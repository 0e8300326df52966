"""What somebody must act on: open alarms, and what the figures show of the same kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from allocator.models import Alarm, Outlook
from allocator.pages.names import Names
from clusters import services as clusters
from clusters import states

if TYPE_CHECKING:
    from allocator.pages.overview import BurnLine

SHOWN = 6
# Read from the figures by whoever looks; all other kinds are alarms, raised and cleared by cycles.
WARNINGS = frozenset({"runs_out", "not_funded", "node_down", "draining"})


@dataclass(frozen=True)
class Notice:
    """One line: its kind decides words, owner and action. ``is_act``: red."""

    # An alarm's kind without what it is about; failing, runs_out, not_funded, node_down, draining.
    kind: str
    is_act: bool
    about: str = ""
    text: str = ""
    at: datetime | None = None
    until: datetime | None = None
    path: str = ""
    jobs: int = 0
    window: int | None = None  # of a node that drains

    @property
    def is_warning(self) -> bool:
        return self.kind in WARNINGS


def notices(names: Names, projects: Sequence[BurnLine], *, now: datetime) -> list[Notice]:
    """Return them, the most pressing first. A constant number of queries."""
    found = [*_alarms(names), *_short(projects), *_unfunded(names), *_nodes(now)]
    return sorted(found, key=lambda one: not one.is_act)


def _alarms(names: Names) -> Iterator[Notice]:
    """Alarms concern the cluster; what they say may name budgets, so only some see the text."""
    for alarm in Alarm.objects.filter(cleared_at=None):
        kind, _, about = alarm.kind.partition(":")
        text = alarm.said if names.whole() else ""
        if alarm.data.get("answers"):
            kind = "failing"  # not unreachable: it answers but for some calls
        if kind == "no-traffic" and not text:
            about = ""  # the number of a job that the reader may not see
        yield Notice(kind, True, about=about, text=text, at=alarm.raised_at)


def _short(projects: Sequence[BurnLine]) -> Iterator[Notice]:
    """Projects whose credits end a week or more before the period."""
    short = [line for line in projects if line.burn.is_short and line.burn.runs_out]
    for line in sorted(short, key=lambda line: (line.burn.runs_out, line.budget.path))[:SHOWN]:
        budget, burn = line.budget, line.burn
        yield Notice(
            "runs_out", True, budget.name, at=burn.runs_out, until=burn.ends_at, path=budget.path
        )


def _unfunded(names: Names) -> Iterator[Notice]:
    """Budgets whose credits don't reach for jobs that wait for funds, of those one sees."""
    waits: Counter[str] = Counter()
    rows = Outlook.objects.filter(rule="not_funded").order_by("pk")
    for path, data in rows.values_list("job__budget__path", "data"):
        binding = data.get("binding") or path
        if names.sees(path) and names.sees(binding):
            waits[binding] += 1
    for path, jobs in sorted(waits.items()):
        yield Notice("not_funded", True, names.name(path), path=path, jobs=jobs)


def _nodes(now: datetime) -> Iterator[Notice]:
    down = clusters.nodes_down(at=now)
    drains = states.open_drains(at=now)
    for node in clusters.active_nodes(at=now):
        if node.pk in down:
            yield Notice("node_down", False, node.name, down[node.pk])
        for drain in drains.get(node.pk, ())[:1]:
            yield Notice(
                *("draining", False, node.name, drain.reason, drain.starts_at, drain.ends_at),
                window=drain.window_id,
            )
