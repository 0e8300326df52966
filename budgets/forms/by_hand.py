"""The form of a grant or an adjustment by hand: which, how much, why."""

from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.pages.by_hand import Subject
from budgets.forms.amounts import CREDITS, AmountForm
from budgets.forms.fields import cost_of_gpu_hours
from budgets.models import Period
from budgets.refusals import credits
from ledger import services as ledger
from ledger.services import Kind, LedgerError, WrongNote

KINDS = (
    (Kind.GRANT, gettext_lazy("Grant credits")),
    (Kind.ADJUST, gettext_lazy("Adjust what is settled")),
)
MINUS = "\u2212"  # what pages show; it may be copied


class ByHandForm(AmountForm):
    """Granting a budget credits or adjusting what it has settled; below 0, less of either."""

    CONFIRMS = "write"

    kind = forms.ChoiceField(
        label=gettext_lazy("What"),
        choices=[(str(kind), label) for kind, label in KINDS],
        widget=forms.Select(attrs={"class": "form-select"}),
        error_messages={"required": gettext_lazy("Choose whether to grant or to adjust.")},
    )
    of = forms.ChoiceField(
        label=gettext_lazy("About which period"),
        required=False,
        widget=forms.Select(attrs={"class": "form-select"}),
        error_messages={
            "invalid_choice": gettext_lazy("That period is not closed: choose one of these."),
        },
    )

    def __init__(self, found: Subject, data: QueryDict | None = None) -> None:
        super().__init__(found.pools, data, kind=str(Kind.GRANT))
        self.found = found
        self.periods = {str(one.pk): one for one in found.closed}
        names = [(pk, one.name) for pk, one in self.periods.items()]
        self.choose("of", [("", _("the running one")), *names])
        self.fields["reason"].error_messages["required"] = _("Say why: it stands there for good.")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if cleaned.get("reason"):
            try:
                of = self.period if self.chosen == Kind.ADJUST else None
                ledger.note_by_hand(cleaned["reason"], of)
            except WrongNote as error:
                self.add_error("reason", str(error))
        return cleaned

    def cost(self, text: str, unit: str) -> int:
        text = text.replace(MINUS, "-")
        if unit == CREDITS:
            try:
                return ledger.read_credits(text)
            except LedgerError as error:
                raise forms.ValidationError(str(error)) from error
        less = text.startswith("-")
        bare = text.removeprefix("-" if less else "+")
        cost = cost_of_gpu_hours(bare, self.pools[unit].rate_per_mille)
        return -cost if less else cost

    @property
    def chosen(self) -> Kind | None:
        """Whether to grant or to adjust, as far as that makes sense."""
        given = self.cleaned_data.get("kind") if self.is_bound else None
        return Kind(given) if given else None

    @property
    def period(self) -> Period | None:
        """The closed period that is corrected, if one is."""
        return self.periods.get(self.cleaned_data.get("of", "")) if self.is_bound else None

    @property
    def decision(self) -> dict[str, Any]:
        """What a valid form says, as `steering.write_by_hand` takes it."""
        names = ("amount_mgpus", "reason")
        given = {name: self.cleaned_data[name] for name in names}
        return given | {"kind": self.chosen, "budget": self.found.budget, "of": self.period}

    @property
    def said(self) -> str:
        """What was done, once it was."""
        amount: int = self.cleaned_data["amount_mgpus"]
        words = {"amount": credits(abs(amount)), "name": self.found.budget.name}
        if self.chosen == Kind.GRANT:
            up, down = (
                _("%(amount)s credits are granted to %(name)s."),
                _("%(amount)s credits are taken back from %(name)s."),
            )
        else:
            up, down = (
                _("%(amount)s credits more are settled in %(name)s."),
                _("%(amount)s credits less are settled in %(name)s."),
            )
        return (up if amount > 0 else down) % words

    def refuse(self, sentence: str) -> None:
        """Show what the ledger refused, at the field that it is about."""
        about_period = self.chosen == Kind.GRANT and self.period is not None
        self.add_error("of" if about_period else "amount", sentence)

    def send_anew(self) -> None:
        """Say that the form was sent before; sent once more, it is another entry."""
        self.renew(
            _(
                "This form was sent before, and an entry is written: look at the figures, then "
                "confirm again if another is to be."
            )
        )
