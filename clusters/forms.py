"""The forms of windows of maintenance: which nodes, from when, until when, and why."""

from datetime import datetime
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from clusters import windows
from clusters.models import Window
from clusters.refusals import Refused
from config.fields import YEARS, wrong_year

INSTANT = "%Y-%m-%dT%H:%M"  # what browsers send of a datetime-local field
SET = "set"  # what the confirming button says; anything else only looks


def _instant(label: Any) -> forms.DateTimeField:
    return forms.DateTimeField(
        label=label,
        required=False,
        input_formats=[INSTANT, f"{INSTANT}:%S"],
        widget=forms.DateTimeInput(
            format=INSTANT, attrs={"type": "datetime-local", "class": "form-control"}
        ),
        error_messages={"invalid": gettext_lazy("Give a date and a time, such as 27 Nov 00:00.")},
    )


class _SpanForm(forms.Form):
    """When and why. An empty begin is now; an empty end is none."""

    starts_at = _instant(gettext_lazy("From"))
    ends_at = _instant(gettext_lazy("Until"))
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=windows.REASON_MAX,
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
        error_messages={"required": gettext_lazy("Say why: whoever waits for the nodes reads it.")},
    )

    @property
    def confirms(self) -> bool:
        """Whether it is to be done now, not only to be looked at."""
        return self.data.get("do") == SET

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        for name in ("starts_at", "ends_at"):
            at = cleaned.get(name)
            if at is not None and at.year not in YEARS:
                self.add_error(name, wrong_year())
        return cleaned

    def refuse(self, error: Refused) -> None:
        """Let a refusal stand at its field."""
        self.add_error(error.field if error.field in self.fields else None, error.sentence)


class WindowForm(_SpanForm):
    """A new window. Nodes are ticked, or written as a list; both count."""

    ticked = forms.MultipleChoiceField(required=False, choices=())
    nodes = forms.CharField(
        label=gettext_lazy("More nodes, as a list"),
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 2, "spellcheck": "false"}),
    )

    def __init__(self, names: list[str], now: datetime, data: QueryDict | None = None) -> None:
        super().__init__(data)
        self.now = now
        ticked = self.fields["ticked"]
        assert isinstance(ticked, forms.MultipleChoiceField), "a choice"
        ticked.choices = [(name, name) for name in names]
        self.fields["reason"].required = data is None or self.confirms

    @property
    def chosen(self) -> set[str]:
        """Names of the nodes that are ticked."""
        return set(self.data.getlist("ticked")) if isinstance(self.data, QueryDict) else set()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        text = " ".join([*cleaned.get("ticked", []), cleaned.get("nodes", "")])
        if "nodes" in cleaned:
            try:
                cleaned["found"] = windows.find(text, at=self.now) if text.strip() else ()
            except Refused as error:
                self.add_error("nodes", error.sentence)
        if self.confirms and cleaned.get("found") == ():
            self.add_error("nodes", _("Tick a node, or write a list of them."))
        return cleaned

    @property
    def decision(self) -> dict[str, Any] | None:
        """What it says, as `clusters.windows.set_window` takes it; None before it makes sense."""
        if not self.is_bound or self.errors or not self.cleaned_data.get("found"):
            return None
        given = self.cleaned_data
        # It can be looked at before the reason is written.
        reason = given["reason"] or _("no reason yet")
        span = {name: given[name] for name in ("starts_at", "ends_at")}
        return {"nodes": given["found"], "reason": reason, **span}


class ChangeForm(_SpanForm):
    """Other instants or another reason of a window; its begin while it hasn't begun."""

    version = forms.IntegerField(min_value=1, widget=forms.HiddenInput)

    def __init__(self, window: Window, now: datetime, data: QueryDict | None = None) -> None:
        names = ("starts_at", "ends_at", "reason", "version")
        super().__init__(data, initial={name: getattr(window, name) for name in names})
        self.window = window
        if window.starts_at < now:
            del self.fields["starts_at"]
        else:
            self.fields["starts_at"].required = True
            self.fields["starts_at"].error_messages["required"] = _("Say when it begins.")

    @property
    def changes(self) -> dict[str, Any]:
        """What a valid form would change. Seconds, which the fields don't show, stay."""
        to: dict[str, Any] = {}
        for name in ("starts_at", "ends_at", "reason"):
            if name not in self.fields:
                continue
            given, before = self.cleaned_data[name], getattr(self.window, name)
            if _shown(given) != _shown(before):
                to[name] = given
        return to


def _shown(value: Any) -> Any:
    return value.replace(second=0) if isinstance(value, datetime) else value
