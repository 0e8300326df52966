"""The form of a transfer: to which budget, how much, why."""

import re
from typing import Any, cast
from uuid import uuid4

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.pages.transfers import Subject, Target
from budgets.forms.fields import Amount, amount_of, cost_of_gpu_hours
from budgets.models import Budget, Request
from budgets.refusals import credits
from ledger.grants import NOTE_MAX

CREDITS = "credits"
TRANSFER = "transfer"  # what the confirming button says; anything else only looks
KEY = re.compile(r"[0-9a-f]{32}")


class TransferForm(forms.Form):
    """Moving credits out of a budget. Its key makes what is sent twice one transfer."""

    key = forms.CharField(required=False, widget=forms.HiddenInput)
    to = forms.ChoiceField(
        label=gettext_lazy("To"),
        widget=forms.Select(attrs={"class": "form-select"}),
        error_messages={
            "required": gettext_lazy("Choose which budget gets it."),
            "invalid_choice": gettext_lazy("You may not give to that budget: choose one of these."),
        },
    )
    amount = Amount(
        label=gettext_lazy("How much"),
        widget=forms.TextInput(
            attrs={"class": "form-control", "inputmode": "decimal", "autocomplete": "off"}
        ),
        error_messages={"required": gettext_lazy("Say how much.")},
    )
    unit = forms.ChoiceField(
        label=gettext_lazy("Of what"), widget=forms.Select(attrs={"class": "form-select"})
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=NOTE_MAX,
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 3}),
        error_messages={"required": gettext_lazy("Say why: both sides read it.")},
    )

    def __init__(self, found: Subject, data: QueryDict | None = None) -> None:
        super().__init__(data, initial={"key": uuid4().hex, "unit": CREDITS})
        self.found = found
        self.targets = {one.budget.path: one for one in found.targets}
        self.pools = {f"hours.{one.pool.slug}": one for one in found.pools}
        self._choose("to", [("", _("Choose a budget")), *self._budgets()])
        hours = _("GPU-hours of %(pool)s")
        units = [(name, hours % {"pool": one.pool.name}) for name, one in self.pools.items()]
        self._choose("unit", [(CREDITS, _("credits")), *units])
        self.fields["reason"].required = data is None or self.confirms

    def _choose(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField), "a choice"
        field.choices = choices

    def _budgets(self) -> list[tuple[str, str]]:
        least = min((one.depth for one in self.found.targets), default=0)
        return [(path, _label(one, least)) for path, one in self.targets.items()]

    @property
    def confirms(self) -> bool:
        """Whether the credits are to move now, not only to be looked at."""
        return self.data.get("do") == TRANSFER

    def clean_key(self) -> str:
        given: str = self.cleaned_data["key"]
        return given if KEY.fullmatch(given) else uuid4().hex

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("amount") and cleaned.get("unit"):
            try:
                cleaned["amount_mgpus"] = self._cost(cleaned["amount"], cleaned["unit"])
            except forms.ValidationError as error:
                self.add_error("amount", error)
        return cleaned

    def _cost(self, text: str, unit: str) -> int:
        if unit == CREDITS:
            return amount_of(text, Request.Unit.CREDITS)
        return cost_of_gpu_hours(text, self.pools[unit].rate_per_mille)

    @property
    def target(self) -> Budget | None:
        """The budget that was chosen, as far as it makes sense."""
        one = self.targets.get(self.cleaned_data.get("to", "")) if self.is_bound else None
        return one.budget if one else None

    @property
    def amount_mgpus(self) -> int | None:
        """What was typed, as far as it makes sense."""
        return self.cleaned_data.get("amount_mgpus") if self.is_bound else None

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
        self.add_error(
            None,
            _(
                "This form was sent before, and credits have moved: look at the figures, then "
                "confirm again if more are to move."
            ),
        )
        data = cast(QueryDict, self.data).copy()
        data["key"] = uuid4().hex
        self.data = data


def _label(target: Target, least: int) -> str:
    indent = "\u2003" * (target.depth - least)
    name = target.budget.name
    return indent + (_("%(name)s, its reserve") % {"name": name} if target.above else name)
