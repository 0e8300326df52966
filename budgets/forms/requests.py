"""The forms of requests: asking for more, and deciding on it."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from budgets.forms.fields import INSTANT, Amount, amount_of, amount_text
from budgets.models import Budget, Request
from budgets.requests import REASON_MAX
from config.fields import YEARS, wrong_year


class AskForm(forms.Form):
    """Asking for more for a budget."""

    amount = Amount(
        label=gettext_lazy("How much more"),
        widget=forms.TextInput(attrs={"class": "form-control", "inputmode": "decimal"}),
        error_messages={"required": gettext_lazy("Say how much.")},
    )
    unit = forms.ChoiceField(
        label=gettext_lazy("Of what"),
        choices=(
            (Request.Unit.CREDITS, gettext_lazy("credits")),
            (Request.Unit.PERCENT, gettext_lazy("percent of its parent")),
        ),
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    until = forms.DateTimeField(
        required=False,
        label=gettext_lazy("Until"),
        input_formats=[INSTANT, f"{INSTANT}:%S"],
        widget=forms.DateTimeInput(
            format=INSTANT, attrs={"type": "datetime-local", "class": "form-control"}
        ),
        error_messages={"invalid": gettext_lazy("Give a date and a time, such as 27 Nov 00:00.")},
    )
    reason = forms.CharField(
        label=gettext_lazy("Why"),
        max_length=REASON_MAX,
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 3}),
        error_messages={"required": gettext_lazy("Say why: who decides reads it.")},
    )

    # What the domain calls what the form has under another name.
    NAMES: ClassVar = {"asked": "amount", "unit": "unit", "until": "until", "reason": "reason"}

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        until = cleaned.get("until")
        if until is not None and until.year not in YEARS:
            self.add_error("until", wrong_year())
        if cleaned.get("amount") and cleaned.get("unit"):
            try:
                cleaned["asked"] = amount_of(cleaned["amount"], cleaned["unit"])
            except forms.ValidationError as error:
                self.add_error("amount", error)
        return cleaned

    @property
    def asked(self) -> dict[str, Any]:
        """What a valid form says, as `budgets.requests.ask` takes it."""
        return {name: self.cleaned_data[name] for name in ("unit", "asked", "until", "reason")}

    def refuse(self, field: str, sentence: str) -> None:
        """Show what the domain refused, at the field that it is about."""
        self.add_error(self.NAMES.get(field), sentence)


class DecisionForm(forms.Form):
    """Granting a request out of one budget, in whole or in part; or declining it."""

    source = forms.ChoiceField(
        label=gettext_lazy("Out of"),
        widget=forms.RadioSelect,
        error_messages={"required": gettext_lazy("Choose what it comes out of.")},
    )
    amount = Amount(
        label=gettext_lazy("How much"),
        widget=forms.TextInput(attrs={"class": "form-control", "inputmode": "decimal"}),
        error_messages={"required": gettext_lazy("Say how much.")},
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=REASON_MAX,
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 3}),
    )
    base_version = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)

    NAMES: ClassVar = {"source": "source", "given": "amount", "reason": "reason"}

    def __init__(
        self, request: Request, sources: Iterable[Budget], version: int, data: QueryDict | None
    ) -> None:
        initial = {"amount": amount_text(request.asked, request.unit), "base_version": version}
        super().__init__(data, initial=initial)
        self.request = request
        self.sources = {one.path: one for one in sources}
        source = self.fields["source"]
        assert isinstance(source, forms.ChoiceField), "a choice of budgets"
        source.choices = [(path, path) for path in self.sources]
        grants = data is None or data.get("do") == "grant"
        for name in ("source", "amount"):
            self.fields[name].required = grants
        self.fields["reason"].required = not grants
        self.fields["reason"].error_messages["required"] = _("Say why not: who asked reads it.")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("amount"):
            try:
                cleaned["given"] = self._given(cleaned["amount"])
            except forms.ValidationError as error:
                self.add_error("amount", error)
        return cleaned

    def _given(self, text: str) -> int:
        """What was asked for to the last unit, where the field says the same."""
        whole = self.request.asked
        same = text == amount_text(whole, self.request.unit)
        return whole if same else amount_of(text, self.request.unit)

    @property
    def decision(self) -> dict[str, Any]:
        """What a valid form says, as `steering.grant_request` takes it."""
        cleaned = self.cleaned_data
        return {
            "source": self.sources[cleaned["source"]],
            "given": cleaned["given"],
            "answer": cleaned["reason"],
            "base_version": cleaned["base_version"],
        }

    def refuse(self, field: str, sentence: str) -> None:
        """Show what the domain refused, at the field that it is about."""
        self.add_error(self.NAMES.get(field), sentence)
