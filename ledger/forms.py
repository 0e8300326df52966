"""The forms of plans and checkpoints."""

from decimal import Decimal
from typing import Any, ClassVar

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from budgets.checkpoints import MOST_SPARED_DAYS, REASON_MAX
from budgets.models import BudgetPlan, Checkpoint
from budgets.plans import NOTE_MAX
from clusters.numerals import plain
from clusters.words import offered
from clusters.writing import plain_percent, typed
from config.fields import YEARS, wrong_year
from ledger.planning import Planned

INSTANT = "%Y-%m-%dT%H:%M"  # what browsers send of a datetime-local field
TYPED = {"class": "form-control si", "inputmode": "decimal", "autocomplete": "off"}


class Percent(forms.DecimalField):
    """A percent of a plan or a step; its value is in thousandths."""

    def __init__(self, **options: Any) -> None:
        bounds = {"min_value": 0, "max_value": 100, "decimal_places": 3}
        super().__init__(**bounds | options)
        wrong = _("Give a percent from 0 to 100 with at most three decimals, such as 33.333.")
        for validator in self.validators:
            validator.message = wrong  # type: ignore[attr-defined]
        self.error_messages["invalid"] = wrong

    def to_python(self, value: Any) -> Any:
        return super().to_python(plain(value) if isinstance(value, str) else value)

    def clean(self, value: Any) -> Any:
        if isinstance(value, int):  # of a field that may not be changed
            return value
        percent: Decimal | None = super().clean(value)
        return None if percent is None else int(percent * 1000)

    def prepare_value(self, value: Any) -> Any:
        return typed(plain_percent(value)) if isinstance(value, int) else value


class PlanForm(forms.Form):
    """A percent of the grant for each month or quarter that lies ahead; those begun stay."""

    by = forms.ChoiceField(choices=BudgetPlan.By.choices, widget=forms.HiddenInput)
    base_version = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
    note = forms.CharField(
        label=gettext_lazy("Note"),
        required=False,
        max_length=NOTE_MAX,
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 2}),
        help_text=gettext_lazy("Why it is planned so; kept with the version."),
    )

    def __init__(self, planned: Planned, data: QueryDict | None = None) -> None:
        initial = {"by": planned.by, "base_version": planned.version}
        initial |= {_name(number): part.thousandths for number, part in enumerate(planned.parts)}
        super().__init__(data, initial=initial)
        self.planned = planned
        for number, part in enumerate(planned.parts):
            attrs = {"aria-label": _("%(part)s, percent") % {"part": part.label}, **TYPED}
            self.fields[_name(number)] = Percent(
                disabled=part.begun,
                widget=forms.TextInput(attrs=attrs),
                error_messages={"required": _("Give it a percent; 0 is one.")},
            )

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The parts of the plan with their fields."""
        parts = enumerate(self.planned.parts)
        return [{"part": part, "field": self[_name(number)]} for number, part in parts]

    @property
    def plan(self) -> dict[str, Any]:
        """What a valid form says, as `budgets.plans.write_plan` takes it."""
        cleaned = self.cleaned_data
        names = (_name(number) for number in range(len(self.planned.parts)))
        parts = [cleaned[name] for name in names]
        return {name: cleaned[name] for name in ("by", "base_version", "note")} | {"parts": parts}


class ReasonForm(forms.Form):
    """Asking for an exemption, or deciding on one: a reason."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=REASON_MAX,
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 2}),
        error_messages={"required": gettext_lazy("Say why: it stands beside the decision.")},
    )


class CheckpointForm(forms.Form):
    """A new checkpoint of a period; its steps a line each."""

    at = forms.DateTimeField(
        label=gettext_lazy("At"),
        input_formats=[INSTANT, f"{INSTANT}:%S"],
        widget=forms.DateTimeInput(
            format=INSTANT, attrs={"type": "datetime-local", "class": "form-control"}
        ),
        error_messages={
            "required": gettext_lazy("Say when."),
            "invalid": gettext_lazy("Give a date and a time, such as 27 Nov 00:00."),
        },
    )
    measured = forms.ChoiceField(
        label=gettext_lazy("Used is compared with"),
        choices=offered(Checkpoint.Measured.choices),
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    removed_of = forms.ChoiceField(
        label=gettext_lazy("Removed is a part of"),
        choices=offered(Checkpoint.RemovedOf.choices),
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    steps = forms.CharField(
        label=gettext_lazy("Steps"),
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 4}),
        help_text=gettext_lazy(
            "A line each, the lowest first: “20 80” means used less than 20 %, remove 80 %."
        ),
        error_messages={"required": gettext_lazy("Give one step at least.")},
    )
    cumulative = forms.BooleanField(
        label=gettext_lazy("What is removed counts in all, with what earlier ones took"),
        required=False,
        initial=True,
    )
    gives_back = forms.BooleanField(
        label=gettext_lazy("What later use makes up for is given back"), required=False
    )
    initial_only = forms.BooleanField(
        label=gettext_lazy("Of the first grant alone, not of what was granted later"),
        required=False,
    )
    own_plans = forms.BooleanField(
        label=gettext_lazy("Measure against the budgets' own plans"), required=False, initial=True
    )
    spared_days = forms.IntegerField(
        label=gettext_lazy("Spare budgets for so many days after their first grant"),
        min_value=0,
        max_value=MOST_SPARED_DAYS,
        initial=0,
        widget=forms.NumberInput(attrs={"class": "form-control"}),
    )

    NAMES: ClassVar = {"at", "measured", "removed_of", "steps", "gives_back", "spared_days"}

    def clean_at(self) -> Any:
        at = self.cleaned_data["at"]
        if at.year not in YEARS:
            raise forms.ValidationError(wrong_year())
        return at

    def clean_steps(self) -> list[tuple[int, int]]:
        lines = [line.replace("%", " ").split() for line in self.cleaned_data["steps"].splitlines()]
        return [_step(line) for line in lines if line]

    def refuse(self, field: str, sentence: str) -> None:
        """Show what the domain refused, at the field that it is about."""
        self.add_error(field if field in self.NAMES else None, sentence)


def _step(words: list[str]) -> tuple[int, int]:
    if len(words) != 2:
        raise forms.ValidationError(_("A step is two percents, such as “20 80”."))
    below, remove = (Percent().clean(word) for word in words)
    return below, remove


def _name(number: int) -> str:
    return f"part.{number}"
