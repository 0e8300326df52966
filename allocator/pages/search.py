"""The search field: a budget's path or name, former ones too, a job, a node."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from budgets import hues
from budgets.access import Person, standing, visible, visible_q
from budgets.hues import Hue
from budgets.models import Budget
from budgets.names import Former, Past
from clusters import services as clusters
from clusters.models import Node
from workloads.models import Job

SHOWN = 20
LONGEST = 100
LARGEST_NUMBER = 2**31 - 1


@dataclass(frozen=True)
class Found:
    """What fits the words, the best first; each list ends at 20."""

    words: str
    budgets: list[tuple[Budget, Hue]]
    former: list[tuple[Budget, Hue, Former]]  # budgets that fit only by what they were called
    jobs: list[Job]
    nodes: list[Node]

    @property
    def is_empty(self) -> bool:
        return not (self.budgets or self.former or self.jobs or self.nodes)

    @property
    def budget(self) -> Budget | None:
        """The budget meant, where the words are its path or fit nothing else."""
        exact = [budget for budget, _ in self.budgets if budget.path == self.words.casefold()]
        if exact:
            return exact[0]
        alone = len(self.budgets) == 1 and not (self.former or self.jobs or self.nodes)
        return self.budgets[0][0] if alone else None

    @property
    def job(self) -> Job | None:
        """The job meant, where the words are its number or fit nothing else."""
        number = number_in(self.words)
        exact = [job for job in self.jobs if job.pk == number]
        if exact:
            return exact[0]
        alone = len(self.jobs) == 1 and not (self.budgets or self.former or self.nodes)
        return self.jobs[0] if alone else None


def find(user: Person, *, words: str, at: datetime) -> Found:
    """Return what the reader may see of what fits the words. A constant number of queries."""
    words = words.replace("\0", "").strip()[:LONGEST]
    if not words:
        return Found("", [], [], [], [])
    painted = hues.of_budgets()
    now_called = Q(path__icontains=words) | Q(name__icontains=words)
    budgets = visible(user).filter(now_called)
    jobs = Job.objects.filter(visible_q(user, "budget__")).select_related("budget")
    fitting = Q(name__icontains=words)
    number = number_in(words)
    if number is not None:
        fitting |= Q(pk=number)
    nodes = [n for n in clusters.active_nodes(at=at) if words.casefold() in n.name.casefold()]
    return Found(
        words=words,
        budgets=[(b, painted[b.path]) for b in budgets.order_by("path")[:SHOWN]],
        former=_former(user, words, visible(user).exclude(now_called), painted),
        jobs=list(jobs.filter(fitting).order_by("-pk")[:SHOWN]),
        nodes=nodes[:SHOWN],
    )


def _former(
    user: Person, words: str, budgets: QuerySet[Budget], painted: Mapping[str, Hue]
) -> list[tuple[Budget, Hue, Former]]:
    """Return the budgets among these that were called so, each with when it last was."""
    past, held = Past.load(), standing(user)
    found = []
    for budget in budgets.filter(pk__in=past.changed()).order_by("path"):
        was = past.of(budget, known=lambda one: held.knows(one.path))
        fits = next((one for one in was if words.casefold() in one.text), None)
        if fits is not None:
            found.append((budget, painted[budget.path], fits))
    return found[:SHOWN]


def number_in(words: str) -> int | None:
    """Return the job number in "#48 127", "48127" or "48,127"; None in anything else."""
    plain = "".join(c for c in words.removeprefix("#") if not c.isspace() and c not in ",.'")
    if not plain.isascii() or not plain.isdigit() or len(plain) > len(str(LARGEST_NUMBER)):
        return None
    return int(plain) if int(plain) <= LARGEST_NUMBER else None
