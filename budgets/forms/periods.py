"""The form of a new period."""

from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from budgets import calendars
from budgets.forms.fields import Percent
from budgets.models import Period
from budgets.refusals import CREDIT, Refused

MOST_CREDITS = 10**10


class PeriodForm(forms.Form):
    """A draft: a month or quarter by its name, or local days, and what it carries over."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        widget=forms.TextInput(attrs={"class": "form-control"}),
        error_messages={"required": gettext_lazy("Give the period a name, such as 2027 Q1.")},
    )
    calendar = forms.CharField(
        label=gettext_lazy("Month or quarter"),
        required=False,
        max_length=20,
        widget=forms.TextInput(attrs={"class": "form-control", "placeholder": "2027-Q1"}),
        help_text=gettext_lazy("As 2027-01 or 2027-Q1; or give its days below."),
    )
    starts_on = forms.DateField(
        label=gettext_lazy("First day"),
        required=False,
        widget=forms.DateInput(attrs={"type": "date", "class": "form-control"}),
        error_messages={"invalid": gettext_lazy("Give a date, such as 2027-01-01.")},
    )
    ends_on = forms.DateField(
        label=gettext_lazy("First day after it"),
        required=False,
        widget=forms.DateInput(attrs={"type": "date", "class": "form-control"}),
        error_messages={"invalid": gettext_lazy("Give a date, such as 2027-04-01.")},
    )
    time_zone = forms.CharField(
        label=gettext_lazy("Accounting time zone"),
        max_length=64,
        widget=forms.TextInput(attrs={"class": "form-control"}),
        error_messages={"required": gettext_lazy("Name a time zone, such as America/New_York.")},
    )
    carry_over = Percent(
        label=gettext_lazy("Carry over, % of what is left unspent"),
        required=False,
        widget=forms.TextInput(attrs={"class": "form-control", "inputmode": "decimal"}),
        help_text=gettext_lazy("Empty: nothing."),
    )
    carry_over_most = forms.IntegerField(
        label=gettext_lazy("At most, credits of the whole organisation"),
        required=False,
        min_value=1,
        max_value=MOST_CREDITS,
        widget=forms.TextInput(attrs={"class": "form-control", "inputmode": "numeric"}),
        error_messages={"invalid": gettext_lazy("Give whole credits, such as 10000.")},
    )

    def __init__(
        self, data: QueryDict | None = None, *, last: Period | None, default_zone: str
    ) -> None:
        """`last` is the period after which a new one is likely to begin."""
        super().__init__(data, initial={"time_zone": last.time_zone if last else default_zone})
        if last is not None:
            until = last.ends_at.astimezone(ZoneInfo(last.time_zone)).date()
            words = {"name": last.name, "day": until.isoformat()}
            self.fields["starts_on"].help_text = _("%(name)s ends as %(day)s begins.") % words

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        try:
            zone = calendars.zone(cleaned["time_zone"])
            cleaned["borders"] = self._borders(zone)
        except Refused as refused:
            self.refuse(refused)
        return cleaned

    def _borders(self, zone: ZoneInfo) -> tuple[Any, Any]:
        found: dict[str, date | None] = {
            name: self.cleaned_data.get(name) for name in ("starts_on", "ends_on")
        }
        named = self.cleaned_data["calendar"].strip()
        return calendars.span(zone=zone, calendar_name=named, **found)  # type: ignore[arg-type]

    def refuse(self, refused: Refused) -> None:
        """Show what the domain refuses beside the field that it is about."""
        names = {"carry_over_cap": "carry_over", "carry_over_max_mgpus": "carry_over_most"}
        for field in refused.message_dict:
            name = names.get(field, field)
            self.add_error(name if name in self.fields else None, refused.sentence)

    @property
    def arguments(self) -> dict[str, Any]:
        """What a valid form says, as `periods.draft_period` takes it."""
        start, end = self.cleaned_data["borders"]
        most = self.cleaned_data["carry_over_most"]
        return {
            "name": self.cleaned_data["name"],
            "starts_at": start,
            "ends_at": end,
            "time_zone": self.cleaned_data["time_zone"],
            "carry_over_cap": self.cleaned_data["carry_over"] or 0,
            "carry_over_max_mgpus": None if most is None else most * CREDIT,
        }
