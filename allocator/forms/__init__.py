"""Forms of the simulator, of reviews, and of people."""

from datetime import date, datetime, time
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import QueryDict
from django.utils import timezone
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.core.events import OPTIONAL, REQUIRED
from allocator.core.simulate import POLICIES
from allocator.pages.simulator import Listing
from allocator.pages.simulator_figures import POLICY_RULES, POLICY_WORDS
from allocator.reviews import commenting, keeping
from allocator.simulating import asking
from allocator.simulating.asking import TODAY, Draft
from allocator.simulating.given import Asked
from budgets.refusals import Refused
from config.fields import YEARS, wrong_year

HISTORY, TRACE = "history", "trace"
PRESETS = (1, 3, 7, 14, 28)
NOW, EQUAL, FILE = "now", "equal", "file"
EVENTS_HEAD = ",".join((*REQUIRED, *OPTIONAL)) + "\n"
CONTROL = {"class": "form-control"}
SELECT = {"class": "form-select"}
# The fields that a refusal names, where they are called otherwise on the page.
FIELDS = {"from": "starts_on", "to": "ends_on", "trace": "file", "tree": "tree_file"}


def presets() -> list[tuple[str, str]]:
    """Return the windows that are offered by a word."""
    named = [
        (str(n), _("the last day") if n == 1 else _("the last %(n)s days") % {"n": n})
        for n in PRESETS
    ]
    return [*named, ("", _("from one day to another"))]


class SimulationForm(forms.Form):
    """What is to be simulated. ``arguments`` are what `asking.ask` takes."""

    source = forms.ChoiceField(
        label=gettext_lazy("Jobs"),
        choices=(
            (HISTORY, gettext_lazy("Our own history")),
            (TRACE, gettext_lazy("A trace file")),
        ),
        initial=HISTORY,
        widget=forms.Select(attrs=SELECT),
    )
    days = forms.ChoiceField(
        label=gettext_lazy("Window"), required=False, widget=forms.Select(attrs=SELECT)
    )
    starts_on = forms.DateField(
        label=gettext_lazy("First day"),
        required=False,
        widget=forms.DateInput(attrs={**CONTROL, "type": "date"}),
    )
    ends_on = forms.DateField(
        label=gettext_lazy("Last day"),
        required=False,
        widget=forms.DateInput(attrs={**CONTROL, "type": "date"}),
    )
    file = forms.FileField(
        label=gettext_lazy("Trace file"),
        required=False,
        widget=forms.FileInput(attrs={**CONTROL, "accept": ".csv,.swf"}),
        help_text=gettext_lazy("CSV with job_id, submit_time_s, gpus, duration_s, group; or SWF."),
    )
    nodes = forms.CharField(
        label=gettext_lazy("Fleet"),
        required=False,
        max_length=20,
        widget=forms.TextInput(attrs={**CONTROL, "placeholder": "56x8"}),
        help_text=gettext_lazy("Nodes × GPUs, as in 56x8. Empty: the fleet as it is."),
    )
    planned_windows = forms.BooleanField(
        required=False, widget=forms.CheckboxInput(attrs={"class": "form-check-input"})
    )
    events = forms.CharField(
        label=gettext_lazy("Windows and failures, a line each"),
        required=False,
        initial=EVENTS_HEAD,
        widget=forms.Textarea(attrs={**CONTROL, "rows": 4, "spellcheck": "false"}),
    )
    events_file = forms.FileField(
        label=gettext_lazy("Or an events file"),
        required=False,
        widget=forms.FileInput(attrs={**CONTROL, "accept": ".csv"}),
        help_text=gettext_lazy("The same as CSV, as the simulate command takes it."),
    )
    shares = forms.ChoiceField(label=gettext_lazy("Shares"), widget=forms.Select(attrs=SELECT))
    tree_file = forms.FileField(
        label=gettext_lazy("Tree file"),
        required=False,
        widget=forms.FileInput(attrs={**CONTROL, "accept": ".json"}),
        help_text=gettext_lazy(
            "JSON as the fairshare command takes it; its leaves are the groups."
        ),
    )
    policies = forms.MultipleChoiceField(
        label=gettext_lazy("Policies"),
        choices=[(name, POLICY_WORDS[name]) for name in POLICIES],
        initial=["fairshare", "priority"],
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        error_messages={"required": gettext_lazy("Choose one policy or several.")},
    )
    name = forms.CharField(
        label=gettext_lazy("Name"),
        required=False,
        max_length=100,
        widget=forms.TextInput(attrs=CONTROL),
    )
    seed = forms.IntegerField(
        label=gettext_lazy("Seed"),
        min_value=0,
        max_value=2**31 - 1,
        initial=0,
        widget=forms.NumberInput(attrs=CONTROL),
        help_text=gettext_lazy("Of the errors with which durations are declared."),
    )

    def __init__(
        self,
        page: Listing,
        data: QueryDict | None = None,
        files: "MultiValueDict[str, UploadedFile] | None" = None,
        *,
        now: datetime,
        initial: dict[str, Any] | None = None,
    ) -> None:
        self.page, self.now = page, now
        super().__init__(data, files, initial={"days": "7"} | (initial or {}))
        self._choose("days", presets())
        self._choose("shares", self._shares())
        self.fields["events"].help_text = _(
            "window or failure, a node, from and to in seconds from the start; to empty: to the "
            "end. As in %(line)s"
        ) % {"line": f"window,{next(iter(page.nodes), 'n0001')},3600,7200,"}

    def _choose(self, name: str, choices: list[tuple[str, Any]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField), "only those have choices"
        field.choices = choices

    def _shares(self) -> list[tuple[str, Any]]:
        drafts = [
            (
                f"set:{one.pk}",
                _("Today’s, and change set #%(number)s of %(name)s")  # noqa: RUF001
                % {"number": one.pk, "name": one.parent.name},
            )
            for one in self.page.drafts
        ]
        plans = [
            (f"period:{one.pk}", _("Today’s, and the plan of %(name)s") % {"name": one.name})  # noqa: RUF001
            for one in self.page.periods
        ]
        return [
            (NOW, _("Those of today")),
            *drafts,
            *plans,
            (EQUAL, _("Equal for all groups of the trace")),
            (FILE, _("Those of a tree file")),
        ]

    @property
    def rules(self) -> list[tuple[Any, str]]:
        """Each policy's checkbox with its rule."""
        return [(box, str(POLICY_RULES[box.data["value"]])) for box in self["policies"]]

    @property
    def befalls(self) -> bool:
        """Whether anything was said of what befalls the nodes: else it stays folded."""
        named = ("planned_windows", "events", "events_file")
        return self.is_bound and any(name in self.errors or self._given(name) for name in named)

    def _given(self, name: str) -> object:
        value = self.cleaned_data.get(name)
        return value and value.strip() != EVENTS_HEAD.strip() if name == "events" else value

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("source") == TRACE:
            if not cleaned.get("file") and "file" not in self.errors:
                self.add_error("file", _("Choose a trace file."))
        elif not cleaned.get("days"):
            for name in ("starts_on", "ends_on"):
                if not cleaned.get(name) and name not in self.errors:
                    self.add_error(name, _("Give the day, or choose a window."))
        for name in ("starts_on", "ends_on"):
            if (day := cleaned.get(name)) is not None and day.year not in YEARS:
                self.add_error(name, wrong_year())
        if cleaned.get("events_file") and self._given("events"):
            self.add_error("events", _("Give lines or a file, one of them."))
        if cleaned.get("shares") == FILE and not cleaned.get("tree_file"):
            self.add_error("tree_file", _("Choose a tree file."))
        return cleaned

    @property
    def window(self) -> tuple[datetime, datetime] | None:
        """The history's window; None for a trace."""
        given = self.cleaned_data
        if given["source"] == TRACE:
            return None
        if given["days"]:
            return asking.last_days(int(given["days"]), now=self.now)
        last = _midnight(given["ends_on"]) + asking.DAY
        return _midnight(given["starts_on"]), min(last, self.now.replace(microsecond=0))

    @property
    def arguments(self) -> dict[str, Any]:
        """What was asked as `asking.ask` takes it. Raises Refused for a file that is no text."""
        given = self.cleaned_data
        trace = given["file"] if given["source"] == TRACE else None
        return {
            "now": self.now,
            "window": self.window,
            "trace_name": trace.name[:100] if trace else "",
            "trace": _text(trace, "file") if trace else "",
            "events": self._events(),
            "draft": self._draft(),
            "equal": given["shares"] == EQUAL,
            **{name: given[name] for name in ("name", "nodes", "policies", "seed")},
        }

    def _events(self) -> Asked:
        given = self.cleaned_data
        planned, file = given["planned_windows"], given["events_file"]
        if file:
            return Asked(_text(file, "events_file"), file.name[:100], planned=planned)
        lines = given["events"] if self._given("events") else ""
        return Asked(lines, _("The events"), planned=planned)

    def _draft(self) -> Draft:
        kind, _colon, number = self.cleaned_data["shares"].partition(":")
        if kind == "set":
            return Draft(change_set=next(o for o in self.page.drafts if o.pk == int(number)))
        if kind == "period":
            return Draft(period=next(o for o in self.page.periods if o.pk == int(number)))
        if kind == FILE:
            return Draft(file=_text(self.cleaned_data["tree_file"], "tree_file"))
        return TODAY

    def refuse(self, refused: Refused) -> None:
        """Put what was refused beside the field that it names."""
        named = next(iter(refused.message_dict))
        field = FIELDS.get(named, named)
        if named == "events" and self.cleaned_data.get("events_file"):
            field = "events_file"
        if field == "starts_on" and self.cleaned_data.get("days"):
            field = "days"
        self.add_error(field if field in self.fields else None, refused.sentence)


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time()))


def _text(file: UploadedFile, field: str) -> str:
    if (file.size or 0) > asking.MOST_TRACE:
        words = {"most": f"{asking.MOST_TRACE:,}"}
        raise Refused(field, _("The file has over %(most)s bytes: give a smaller one.") % words)
    try:
        text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(field, _("The file is no text in UTF-8: choose another.")) from None
    if "\0" in text:
        raise Refused(field, _("The file is no text in UTF-8: choose another."))
    return text


class CommentForm(forms.Form):
    """A comment on a review."""

    text = forms.CharField(
        label=gettext_lazy("Add a comment"),
        widget=forms.Textarea(attrs=CONTROL | {"rows": 3, "maxlength": commenting.TEXT_MAX}),
        strip=False,
    )


class HoldForm(forms.Form):
    """That a review was held: when, and what was decided; of a correction, why."""

    held_on = forms.DateField(
        label=gettext_lazy("Held on"),
        widget=forms.DateInput(attrs=CONTROL | {"type": "date"}, format="%Y-%m-%d"),
    )
    decision = forms.CharField(
        label=gettext_lazy("What was decided"),
        widget=forms.Textarea(attrs=CONTROL | {"rows": 4, "maxlength": keeping.TEXT_MAX}),
        strip=False,
    )
    reason = forms.CharField(
        label=gettext_lazy("What is corrected, and why"),
        widget=forms.Textarea(attrs=CONTROL | {"rows": 2, "maxlength": keeping.TEXT_MAX}),
        required=False,
        strip=False,
    )
    base_version = forms.IntegerField(widget=forms.HiddenInput, min_value=0, max_value=30_000)

    def refuse(self, refused: Refused) -> None:
        """Show a refusal at the field that it names."""
        self.add_error(refused.field if refused.field in self.fields else None, refused.sentence)


class InviteForm(forms.Form):
    """An account for somebody new, as `accounts.invite` takes it."""

    username = forms.CharField(
        label=gettext_lazy("Account"),
        max_length=150,
        widget=forms.TextInput(attrs=CONTROL | {"autocomplete": "off", "autocapitalize": "none"}),
    )
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=150,
        required=False,
        widget=forms.TextInput(attrs=CONTROL | {"autocomplete": "off"}),
    )
    email = forms.EmailField(
        label=gettext_lazy("E-mail"),
        required=False,
        widget=forms.EmailInput(attrs=CONTROL | {"autocomplete": "off"}),
        help_text=gettext_lazy("Notices are copied to it."),
    )


class GiveForm(forms.Form):
    """A role for somebody whose account or address one knows, as `accounts.found` takes it."""

    account = forms.CharField(
        label=gettext_lazy("Account or e-mail"),
        max_length=254,
        widget=forms.TextInput(
            attrs=CONTROL | {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
        ),
        help_text=gettext_lazy("Exactly as it is written: nobody is suggested."),
    )
    budget = forms.ChoiceField(label=gettext_lazy("Budget"), widget=forms.Select(attrs=SELECT))
    kind = forms.ChoiceField(label=gettext_lazy("Role"), widget=forms.Select(attrs=SELECT))

    def __init__(
        self, data: QueryDict | None, *, paths: list[str], kinds: list[tuple[str, str]], at: str
    ) -> None:
        super().__init__(data, initial={"budget": at, "kind": "member"})
        self.fields["budget"].choices = [(path, path) for path in paths]  # type: ignore[attr-defined]
        self.fields["kind"].choices = kinds  # type: ignore[attr-defined]

    def refuse(self, refused: Refused) -> None:
        """Show a refusal at the field that it names."""
        self.add_error(refused.field if refused.field in self.fields else None, refused.sentence)
