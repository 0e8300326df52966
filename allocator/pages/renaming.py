"""Renaming a budget: what it is called, what it was called, and how many paths follow."""

from dataclasses import dataclass

from django.http import Http404

from budgets import hues
from budgets.access import NOT_HERE, Action, Person, get_budget_or_404, standing
from budgets.hues import Hue
from budgets.models import Budget, FormerName


@dataclass(frozen=True)
class Page:
    """A budget that the reader may rename; its former names, the newest first."""

    budget: Budget
    hue: Hue
    below: int  # budgets whose paths follow, archived ones too
    former: list[FormerName]

    @property
    def above(self) -> str:
        """The part of its path that stays."""
        return self.budget.path.removesuffix(self.budget.slug)


def page(user: Person, *, path: str) -> Page:
    """Return what may be renamed; Http404 for who may not."""
    budget = get_budget_or_404(user, path)
    if not standing(user).can(Action.RENAME, path):
        raise Http404(NOT_HERE)
    former = budget.former_names.select_related("author")
    return Page(
        budget=budget,
        hue=hues.of_budgets()[path],
        below=Budget.objects.filter(path__startswith=f"{path}/").count(),
        former=list(former.order_by("-until", "-pk")),
    )
