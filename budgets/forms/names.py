"""The form that renames a budget."""

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext_lazy

from budgets.models import Budget
from budgets.refusals import Refused


def _text(**attrs: str) -> forms.TextInput:
    return forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"} | attrs)


class NameForm(forms.Form):
    """Another name and slug. Either says beside it what was shown, so that only what the reader
    changed is written, whatever others did meanwhile. What is a name is for the domain to say.
    """

    name = forms.CharField(
        label=gettext_lazy("Name"), required=False, show_hidden_initial=True, widget=_text()
    )
    slug = forms.CharField(
        label=gettext_lazy("Slug, the last part of its address"),
        required=False,
        show_hidden_initial=True,
        widget=_text(autocapitalize="none", spellcheck="false"),
    )

    def __init__(self, budget: Budget, data: QueryDict | None = None) -> None:
        super().__init__(data, initial={"name": budget.name, "slug": budget.slug})

    @property
    def changes(self) -> dict[str, str]:
        """What a valid form changes, as `services.rename_budget` takes it."""
        shown = {field: self.data.get(self.add_initial_prefix(field)) for field in self.fields}
        return {field: text for field, text in self.cleaned_data.items() if text != shown[field]}

    def refuse(self, refused: Refused) -> None:
        """Put what the domain refuses where it belongs."""
        field = next(iter(refused.message_dict))
        self.add_error(field if field in self.fields else None, refused.sentence)
