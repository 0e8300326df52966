"""What forms that write entries share: how much of what, why, and a key that stands for it."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar, cast
from uuid import uuid4

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.pages.transfers import Priced
from budgets.forms.fields import Amount
from ledger.grants import NOTE_MAX

CREDITS = "credits"
KEY = re.compile(r"[0-9a-f]{32}")


class AmountForm(forms.Form):
    """An amount in credits or GPU-hours. Its key makes what is sent twice one decision."""

    CONFIRMS: ClassVar[str]  # what the confirming button says; anything else only looks

    key = forms.CharField(required=False, widget=forms.HiddenInput)
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

    def __init__(
        self, pools: Sequence[Priced], data: QueryDict | None = None, **initial: str
    ) -> None:
        super().__init__(data, initial={"key": uuid4().hex, "unit": CREDITS} | initial)
        self.pools = {f"hours.{one.pool.slug}": one for one in pools}
        hours = _("GPU-hours of %(pool)s")
        units = [(name, hours % {"pool": one.pool.name}) for name, one in self.pools.items()]
        self.choose("unit", [(CREDITS, _("credits")), *units])
        self.fields["reason"].required = data is None or self.confirms

    def choose(self, name: str, choices: list[tuple[str, str]]) -> None:
        """Offer these for a field."""
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField), "a choice"
        field.choices = choices

    @property
    def confirms(self) -> bool:
        """Whether it is to be written now, not only to be looked at."""
        return self.data.get("do") == self.CONFIRMS

    def clean_key(self) -> str:
        given: str = self.cleaned_data["key"]
        return given if KEY.fullmatch(given) else uuid4().hex

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("amount") and cleaned.get("unit"):
            try:
                cleaned["amount_mgpus"] = self.cost(cleaned["amount"], cleaned["unit"])
            except forms.ValidationError as error:
                self.add_error("amount", error)
        return cleaned

    def cost(self, text: str, unit: str) -> int:
        """Return what was typed in milli-GPU-seconds; ValidationError for what is no amount."""
        raise NotImplementedError

    @property
    def amount_mgpus(self) -> int | None:
        """What was typed, as far as it makes sense."""
        return self.cleaned_data.get("amount_mgpus") if self.is_bound else None

    def renew(self, sentence: str) -> None:
        """Say that the form was sent before; sent once more, it is another decision."""
        self.add_error(None, sentence)
        data = cast(QueryDict, self.data).copy()
        data["key"] = uuid4().hex
        self.data = data
