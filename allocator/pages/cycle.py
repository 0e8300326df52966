"""One cycle: what it saw, what it decided and by which numbers, and what it changed of the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.http import Http404
from django.utils.translation import gettext_lazy

from allocator import repeating
from allocator.models import Alarm, Cycle
from allocator.pages import cycles
from allocator.pages.cycle_levels import Level
from allocator.pages.cycle_parts import Before, Change, Saw, Start, Stop, Waits
from allocator.pages.cycle_reader import Reader
from allocator.pages.names import Names
from budgets.access import Person

NOT_HERE = gettext_lazy("There is no such cycle, or you may not see all that is in it.")


@dataclass(frozen=True)
class CyclePage:
    """All that the page shows."""

    cycle: Cycle
    names: Names
    is_whole: bool  # the reader may see all that is in it
    gone: str  # why there is no more than numbers; empty: there is
    alarms: list[Alarm]
    earlier: int | None
    later: int | None
    no_replay: str  # why it can't be planned once more
    saw: Saw | None = None
    starts: list[Start] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    waits: list[Waits] = field(default_factory=list)
    waits_total: int = 0
    waits_unseen: int = 0
    has_reasons: bool = False  # those of this very cycle are known
    levels: list[Level] = field(default_factory=list)
    before: Before = field(default_factory=Before)

    @property
    def gap(self) -> int | None:
        return cycles.gap(self.cycle)

    @property
    def is_committed(self) -> bool:
        return self.cycle.status == Cycle.Status.COMMITTED

    @property
    def problems(self) -> list[str]:
        """Sentences that name jobs: for those who may see the whole tree."""
        return list(self.cycle.problems) if self.is_whole else []

    @property
    def kept_days(self) -> int:
        return settings.CYCLES_KEPT_DAYS


def find(pk: int) -> Cycle:
    """Return a cycle with all that is stored of it; Http404 where there is none."""
    cycle = Cycle.objects.filter(pk=pk).first()
    if cycle is None:
        raise Http404(NOT_HERE)
    return cycle


def whole(user: Person, pk: int) -> Cycle:
    """Return a cycle to somebody who may see all that is in it; else, or once it is gone, 404."""
    cycle = find(pk)
    if not Names.load(user).whole():
        raise Http404(NOT_HERE)
    if not cycle.snapshot:
        raise Http404(repeating.gone(cycle))
    return cycle


def page(user: Person, pk: int) -> CyclePage:
    """Return one cycle as its page shows it. A constant number of queries."""
    cycle = find(pk)
    names = Names.load(user)
    others = Cycle.objects.only("pk")
    before = others.filter(pk__lt=pk).order_by("-pk").first()
    after = others.filter(pk__gt=pk).order_by("pk").first()
    told: dict[str, Any] = {
        "cycle": cycle,
        "names": names,
        "is_whole": names.whole(),
        "alarms": list(Alarm.objects.filter(data__cycle=pk)),
        "earlier": before.pk if before else None,
        "later": after.pk if after else None,
        "no_replay": repeating.refusal(cycle),
    }
    if not cycle.snapshot:
        failed = cycle.status == Cycle.Status.FAILED
        return CyclePage(**told, gone="" if failed else repeating.gone(cycle))
    try:
        problem = repeating.problem_of(cycle)
    except repeating.NotRepeatable as error:
        return CyclePage(**(told | {"no_replay": str(error)}), gone=str(error))
    return CyclePage(**told, gone="", **Reader(cycle, names, problem).told())
