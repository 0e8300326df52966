"""The submit form: what people type becomes a JobSpec. What a job may be is decided elsewhere."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from typing import Any, cast

from django import forms
from django.conf import settings
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import serializers

from budgets.models import Budget
from clusters.models import Pool
from clusters.numerals import Number
from clusters.words import offered
from config.fields import Json
from forecasting import works
from forecasting.core.hardware import PRECISIONS
from forecasting.core.training import VARIANTS
from workloads import durations
from workloads.models import Job
from workloads.specs import MAX_SECONDS, JobSpec, SpecError, validate

LONGEST_LIST = 2000  # numbers in a profile


class DurationField(forms.CharField):
    """A length of time in words; cleans to seconds, or None if empty."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=40, **kwargs)

    def clean(self, value: Any) -> int | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            seconds = durations.parse(text)
        except (ValueError, OverflowError) as error:
            raise forms.ValidationError(str(error)) from error
        if seconds > MAX_SECONDS:
            raise forms.ValidationError(_("Give at most 366 days."))
        return seconds


class NumbersField(forms.CharField):
    """Whole numbers separated by spaces, commas or lines; cleans to a tuple."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)

    def clean(self, value: Any) -> tuple[int, ...]:
        words = [w for w in re.split(r"[\s,;]+", super().clean(value) or "") if w]
        if len(words) > LONGEST_LIST:
            raise forms.ValidationError(_("Give at most 2,000 numbers."))
        plain = [word.removeprefix("#") for word in words]
        wrong = next((w for w in plain if not w.isascii() or not w.isdigit() or len(w) > 18), None)
        if wrong is not None:
            raise forms.ValidationError(
                _("Give whole numbers with a space between, not “%(word)s”.") % {"word": wrong[:40]}
            )
        return tuple(int(word) for word in plain)


class JsonField(forms.CharField):
    """A JSON object; cleans to a dict. What it may hold is what the API takes."""

    def clean(self, value: Any) -> dict[str, Any]:
        text = super().clean(value)
        if not text:
            return {}
        try:
            found = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(
                _("This is not valid JSON: %(error)s.") % {"error": error}
            ) from error
        if not isinstance(found, dict):
            raise forms.ValidationError(_("Give a JSON object: {…}."))
        try:
            return cast("dict[str, Any]", Json().run_validation(found))
        except serializers.ValidationError as error:
            raise forms.ValidationError(
                [str(one) for one in cast(list[str], error.detail)]
            ) from error


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


class JobForm(forms.Form):
    """All fields of a JobSpec; their names are its names, so that errors find their field."""

    budget = forms.ChoiceField(label=gettext_lazy("Project"))
    name = forms.CharField(label=gettext_lazy("Name"), max_length=100)
    kind = forms.ChoiceField(label=gettext_lazy("Kind"), choices=offered(Job.Kind.choices))
    command = forms.CharField(
        label=gettext_lazy("What to run"),
        required=False,
        max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
    )
    gpus = forms.IntegerField(label=gettext_lazy("GPUs"), required=False)
    pools = forms.MultipleChoiceField(
        label=gettext_lazy("Pools"), required=False, widget=forms.CheckboxSelectMultiple
    )
    expected_duration_s = DurationField(label=gettext_lazy("Expected duration"))
    time_limit_s = DurationField(label=gettext_lazy("Time limit"))
    minimum_runtime_s = DurationField(label=gettext_lazy("Minimum runtime"))
    resumable = forms.BooleanField(
        label=gettext_lazy("Resumable: may be preempted after it, and goes on by itself"),
        required=False,
    )
    session = forms.BooleanField(
        label=gettext_lazy("Session: I work in it until its time limit, and may extend it"),
        required=False,
    )
    when_unfunded = forms.ChoiceField(
        label=gettext_lazy("If the hold is too large"), choices=offered(Job.WhenUnfunded.choices)
    )
    urgency = forms.ChoiceField(
        label=gettext_lazy("Urgency"),
        choices=offered(Job.Urgency.choices),
        initial=Job.Urgency.NORMAL,
    )
    work_parameters = forms.CharField(
        label=gettext_lazy("Parameters of the model"), required=False, max_length=40
    )
    work_tokens = forms.CharField(
        label=gettext_lazy("Tokens to train on"), required=False, max_length=40
    )
    work_sequence_length = forms.CharField(
        label=gettext_lazy("Sequence length, tokens"), required=False, max_length=40
    )
    work_variant = forms.ChoiceField(
        label=gettext_lazy("Technique"),
        required=False,
        choices=[("", "full-sft"), *((v, v) for v in VARIANTS if v != "full-sft")],
    )
    work_precision = forms.ChoiceField(
        label=gettext_lazy("Precision"),
        required=False,
        choices=[("", "bf16"), *((p, p) for p in PRECISIONS if p != "bf16")],
    )
    work = JsonField(
        label=gettext_lazy("More features, as JSON"),
        required=False,
        max_length=10_000,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
    )
    dependencies = NumbersField(label=gettext_lazy("Waits for jobs"))
    profile = NumbersField(
        label=gettext_lazy("Demand profile, GPUs per step"),
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    step_minutes = forms.IntegerField(
        label=gettext_lazy("Step, minutes"), required=False, initial=60
    )
    time_zone = forms.CharField(
        label=gettext_lazy("Time zone"), required=False, max_length=64, initial="UTC"
    )
    swap_cap = forms.IntegerField(label=gettext_lazy("Swap cap, GPUs"), required=False)
    spec = JsonField(
        label=gettext_lazy("More for the cluster, as JSON"),
        required=False,
        max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
    )
    idempotency_key = forms.CharField(
        required=False, max_length=100, widget=forms.HiddenInput, initial=lambda: uuid.uuid4().hex
    )

    def __init__(
        self, *args: Any, leaves: Iterable[Budget], pools: Iterable[Pool], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.leaves = {budget.path: budget for budget in leaves}
        choices = [(path, f"{b.name} ({path})") for path, b in self.leaves.items()]
        self.fields["budget"].choices = choices  # type: ignore[attr-defined]
        self.fields["pools"].choices = [(p.slug, p.name) for p in pools]  # type: ignore[attr-defined]
        for name, field in self.fields.items():
            self._style(name, field)

    def _style(self, name: str, field: forms.Field) -> None:
        widget = field.widget
        if isinstance(widget, forms.CheckboxInput | forms.CheckboxSelectMultiple):
            widget.attrs["class"] = "form-check-input"
        elif isinstance(widget, forms.Select):
            widget.attrs["class"] = "form-select"
        elif not isinstance(widget, forms.HiddenInput):
            widget.attrs["class"] = "form-control"
        widget.attrs["autocomplete"] = "off"
        if name in ("gpus", "swap_cap", "step_minutes"):
            widget.attrs |= {"inputmode": "numeric", "min": 1}

    @property
    def chosen(self) -> Budget | None:
        """The project chosen, as far as the form is right."""
        return self.leaves.get(self.cleaned_data.get("budget", ""))

    def job_spec(self) -> JobSpec:
        """What was typed, as far as it is right; what doesn't belong to the kind is left out."""
        given = dict(self.cleaned_data)
        given.pop("budget", None)
        given["work"] = self._work(given)
        realtime = given.get("kind") == Job.Kind.REALTIME
        apart = BATCH_ONLY if realtime else REALTIME_ONLY
        kept = {name: value for name, value in given.items() if name not in apart}
        if kept.get("session"):
            kept |= {"minimum_runtime_s": None, "expected_duration_s": None, "resumable": False}
        kept["pools"] = tuple(kept.get("pools", ()))
        kept["idempotency_key"] = kept.get("idempotency_key") or None
        for name, default in (("step_minutes", 60), ("time_zone", "UTC")):
            if name in kept and kept[name] in (None, ""):
                kept[name] = default
        return JobSpec(**{"name": "", "kind": "", **kept})

    def _work(self, given: dict[str, Any]) -> dict[str, Any] | None:
        """What it computes: the fields, and the JSON beside them; takes the former out."""
        names = [name for name in self.fields if name.startswith(WORK)]
        typed = {name.removeprefix(WORK): given.pop(name, "") for name in names}
        if given.get("kind") != Job.Kind.TRAINING:
            typed = {}
        more = given.get("work") or {}
        return {name: value for name, value in typed.items() if value} | more or None

    def _check_work(self) -> None:
        """Say what is wrong with it at the field it is about."""
        spec = self.job_spec()
        if not spec.work or self.errors.keys() & {"kind", "work"}:
            return
        twice = [
            name
            for name in self.cleaned_data.get("work") or {}
            if self.cleaned_data.get(WORK + name)
        ]
        if twice:
            sentence = _("%(name)s is given in its own field too: leave one of them out.")
            self.take({"work": sentence % {"name": twice[0]}})
        elif problem := works.problem_with(kind=spec.kind, work=spec.work, gpus=spec.gpus):
            field = WORK + problem.split(maxsplit=1)[0]
            self.take({field if self.cleaned_data.get(field) else "work": problem})

    @property
    def work_problem(self) -> str:
        """The sentence that refuses what it is said to compute, or nothing."""
        about = (name for name in self.errors if name == "work" or name.startswith(WORK))
        return next((str(self.errors[name][0]) for name in about), "")

    def clean(self) -> dict[str, Any]:
        """Refuse at once what no cluster could take, beside what could not be read."""
        try:
            validate(
                self.job_spec(),
                longest_minimum_runtime_s=settings.MINIMUM_RUNTIME_MAX_HOURS * 3600,
                longest_session_s=settings.SESSION_MAX_HOURS * 3600,
            )
        except SpecError as error:
            self.take({k: v for k, v in error.problems.items() if k not in self.errors})
        self._check_work()
        return self.cleaned_data

    def take(self, problems: dict[str, str]) -> None:
        """Show what was refused at the fields it is about."""
        for name, sentence in problems.items():
            self.add_error(name if name in self.fields else None, sentence)

    def renew_key(self) -> None:
        """Give the form another key: its present one stands for another request."""
        data = cast(QueryDict, self.data).copy()
        data["idempotency_key"] = uuid.uuid4().hex
        self.data = data


class ExtendForm(forms.Form):
    """How much longer a session is to last."""

    more = DurationField(label=gettext_lazy("How much longer"))
    key = forms.CharField(required=False, max_length=100)

    def clean_more(self) -> int:
        more = self.cleaned_data["more"]
        if more is None or more < LEAST_MORE_S:
            raise forms.ValidationError(_("Ask for a minute more, or longer: 30 min, say."))
        return int(more)

    @property
    def problem(self) -> str:
        """The sentence that refuses it."""
        return next((str(one) for found in self.errors.values() for one in found), "")


LEAST_MORE_S = 60
WORK = "work_"  # before the name of a feature that has its own field
BATCH_ONLY = {
    *("gpus", "minimum_runtime_s", "expected_duration_s", "time_limit_s", "resumable", "session"),
    "work",
}
REALTIME_ONLY = {"profile", "step_minutes", "time_zone", "swap_cap"}


class CalibrationForm(forms.Form):
    """How a service is to follow its traffic."""

    calibrated = forms.BooleanField(required=False)
    rate_per_gpu = Number(label=gettext_lazy("One GPU does, a second"), required=False)
    least_gpus = forms.IntegerField(label=gettext_lazy("No fewer GPUs than"), min_value=0)
    most_gpus = forms.IntegerField(label=gettext_lazy("No more GPUs than"), min_value=1)


class TrafficForm(forms.Form):
    """A file of past traffic."""

    file = forms.FileField(label=gettext_lazy("Past traffic"))
    step_minutes = forms.IntegerField(label=gettext_lazy("Minutes of a step"), required=False)


def first_error(form: forms.Form) -> str:
    """Return what is wrong first, with the field that it is about."""
    name, errors = next(iter(form.errors.items()))
    field = form.fields.get(name)
    label = field.label if field is not None else ""
    return f"{label}: {errors[0]}" if label else str(errors[0])
