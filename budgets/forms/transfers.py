"""The form of a transfer: to which budget, how much, why."""

from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.pages.transfers import Subject, Target
from budgets.forms.amounts import CREDITS, AmountForm
from budgets.forms.fields import amount_of, cost_of_gpu_hours
from budgets.models import Budget, Request
from budgets.refusals import credits


class TransferForm(AmountForm):
    """Moving credits out of a budget. Its key makes what is sent twice one transfer."""

    CONFIRMS = "transfer"

    to = forms.ChoiceField(
        label=gettext_lazy("To"),
        widget=forms.Select(attrs={"class": "form-select"}),
        error_messages={
            "required": gettext_lazy("Choose which budget gets it."),
            "invalid_choice": gettext_lazy("You may not give to that budget: choose one of these."),
        },
    )

    def __init__(self, found: Subject, data: QueryDict | None = None) -> None:
        super().__init__(found.pools, data)
        self.found = found
        self.targets = {one.budget.path: one for one in found.targets}
        self.choose("to", [("", _("Choose a budget")), *self._budgets()])

    def _budgets(self) -> list[tuple[str, str]]:
        least = min((one.depth for one in self.found.targets), default=0)
        return [(path, _label(one, least)) for path, one in self.targets.items()]

    def cost(self, text: str, unit: str) -> int:
        if unit == CREDITS:
            return amount_of(text, Request.Unit.CREDITS)
        return cost_of_gpu_hours(text, self.pools[unit].rate_per_mille)

    @property
    def target(self) -> Budget | None:
        """The budget that was chosen, as far as it makes sense."""
        one = self.targets.get(self.cleaned_data.get("to", "")) if self.is_bound else None
        return one.budget if one else None

    @property
    def transfer(self) -> dict[str, Any]:
        """What a valid form says, as `steering.transfer` takes it."""
        names = ("amount_mgpus", "reason")
        given = {name: self.cleaned_data[name] for name in names}
        return given | {"source": self.found.source, "target": self.target}

    @property
    def said(self) -> str:
        """What was done, once it was."""
        words = {
            "amount": credits(self.cleaned_data["amount_mgpus"]),
            "source": self.found.source.name,
            "target": self.target.name if self.target else "",
        }
        return _("%(amount)s credits have moved from %(source)s to %(target)s.") % words

    def send_anew(self) -> None:
        """Say that the form was sent before; sent once more, it is another transfer."""
        self.renew(
            _(
                "This form was sent before, and credits have moved: look at the figures, then "
                "confirm again if more are to move."
            )
        )


def _label(target: Target, least: int) -> str:
    indent = "\u2003" * (target.depth - least)
    name = target.budget.name
    return indent + (_("%(name)s, its reserve") % {"name": name} if target.above else name)
