"""What waits, by the rule that binds: how many, how large, how long."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from allocator.pages import queue
from allocator.pages.names import Names
from allocator.pages.queue import NOT_PLANNED, Line
from budgets.access import Person, visible_q
from workloads.models import Job

SHOWN = 6


@dataclass
class Group:
    """Waiting jobs for which the same rule binds."""

    rule: str
    jobs: int = 0
    gpus: int = 0
    oldest_s: int = 0


@dataclass(frozen=True)
class Waiting:
    """All waiting jobs that the reader may see, and some of them: the longest of each rule."""

    jobs: int
    gpus: int
    groups: list[Group]
    lines: list[Line]

    @property
    def most(self) -> Group | None:
        """The rule that binds for most of them."""
        return self.groups[0] if self.groups else None


def waiting(user: Person, names: Names, *, now: datetime) -> Waiting:
    """Group what waits. A constant number of queries."""
    rows = list(
        Job.objects.filter(visible_q(user, "budget__"), state=Job.State.QUEUED)
        .order_by("state_since", "pk")
        .values_list("pk", "gpus", "state_since", "outlook__rule")
    )
    groups: dict[str, Group] = {}
    first: dict[str, list[int]] = defaultdict(list)
    for pk, gpus, since, rule in rows:
        rule = rule or NOT_PLANNED
        group = groups.setdefault(rule, Group(rule))
        group.jobs += 1
        group.gpus += gpus
        group.oldest_s = max(group.oldest_s, int((now - since).total_seconds()))
        first[rule].append(pk)
    shown = _shown([pk for pk, *_ in rows], first)
    jobs = queue.visible_jobs(user).filter(pk__in=shown).order_by("state_since", "pk")
    return Waiting(
        jobs=len(rows),
        gpus=sum(gpus for _, gpus, _, _ in rows),
        groups=sorted(groups.values(), key=lambda group: (-group.jobs, group.rule)),
        lines=[queue.line(job, names, now=now) for job in jobs],
    )


def _shown(oldest_first: list[int], by_rule: dict[str, list[int]]) -> list[int]:
    """The longest waiting of each rule, filled up with the longest waiting of all."""
    firsts = [pks[0] for pks in by_rule.values()]
    rest = [pk for pk in oldest_first if pk not in set(firsts)]
    return (firsts + rest)[:SHOWN]
