"""The search field: a budget's path or name, a job's number or name, a node's name."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from budgets import hues
from budgets.access import Person, visible, visible_q
from budgets.hues import Hue
from budgets.models import Budget
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
    jobs: list[Job]
    nodes: list[Node]

    @property
    def is_empty(self) -> bool:
        return not (self.budgets or self.jobs or self.nodes)

    @property
    def budget(self) -> Budget | None:
        """The budget meant, where the words are its path or fit nothing else."""
        exact = [budget for budget, _ in self.budgets if budget.path == self.words.casefold()]
        if exact:
            return exact[0]
        alone = len(self.budgets) == 1 and not self.jobs and not self.nodes
        return self.budgets[0][0] if alone else None

    @property
    def job(self) -> Job | None:
        """The job meant, where the words are its number or fit nothing else."""
        number = number_in(self.words)
        exact = [job for job in self.jobs if job.pk == number]
        if exact:
            return exact[0]
        alone = len(self.jobs) == 1 and not self.budgets and not self.nodes
        return self.jobs[0] if alone else None


def find(user: Person, *, words: str, at: datetime) -> Found:
    """Return what the reader may see of what fits the words. A constant number of queries."""
    words = words.replace("\0", "").strip()[:LONGEST]
    if not words:
        return Found("", [], [], [])
    painted = hues.of_budgets()
    budgets = visible(user).filter(Q(path__icontains=words) | Q(name__icontains=words))
    jobs = Job.objects.filter(visible_q(user, "budget__")).select_related("budget")
    fitting = Q(name__icontains=words)
    number = number_in(words)
    if number is not None:
        fitting |= Q(pk=number)
    nodes = [n for n in clusters.active_nodes(at=at) if words.casefold() in n.name.casefold()]
    return Found(
        words=words,
        budgets=[(b, painted[b.path]) for b in budgets.order_by("path")[:SHOWN]],
        jobs=list(jobs.filter(fitting).order_by("-pk")[:SHOWN]),
        nodes=nodes[:SHOWN],
    )


def number_in(words: str) -> int | None:
    """Return the job number in "#48 127", "48127" or "48,127"; None in anything else."""
    plain = "".join(c for c in words.removeprefix("#") if not c.isspace() and c not in ",.'")
    if not plain.isascii() or not plain.isdigit() or len(plain) > len(str(LARGEST_NUMBER)):
        return None
    return int(plain) if int(plain) <= LARGEST_NUMBER else None
