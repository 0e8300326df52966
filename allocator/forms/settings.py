"""Forms of how the installation is set up: pools, what they cost, and their nodes."""

from datetime import datetime
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.installing import GPU_TYPE_MAX, NAME_MAX, REASON_MAX, SLUG_MAX
from allocator.inventory import GPUS_MAX, LABEL_MAX
from clusters.models import Cluster, Node, Pool
from clusters.numerals import Number
from clusters.refusals import Refused
from config.fields import YEARS, wrong_year

CONTROL = {"class": "form-control"}
TYPED = CONTROL | {"autocomplete": "off"}
DO = "do"  # the button that was pressed; "set" does it, anything else only looks
SET = "set"


def _text(label: Any, most: int, **more: Any) -> forms.CharField:
    return forms.CharField(
        label=label, max_length=most, widget=forms.TextInput(attrs=dict(TYPED)), **more
    )


def _from() -> forms.DateTimeField:
    return forms.DateTimeField(
        label=gettext_lazy("From"),
        required=False,
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        widget=forms.DateTimeInput(attrs=CONTROL | {"type": "datetime-local"}),
        help_text=gettext_lazy("Empty: from now on. Never for what is over."),
    )


def _rate() -> Number:
    return Number(
        label=gettext_lazy("Rate, times the reference GPU"),
        max_digits=7,
        decimal_places=3,
        widget=forms.TextInput(attrs=TYPED | {"inputmode": "decimal"}),
    )


class _SettingsForm(forms.Form):
    """What all have: an instant that makes sense, and refusals at their fields."""

    def clean_effective_at(self) -> datetime | None:
        at: datetime | None = self.cleaned_data["effective_at"]
        if at is not None and at.year not in YEARS:
            raise forms.ValidationError(wrong_year())
        return at

    @property
    def confirms(self) -> bool:
        """Whether it is to be done now, not only to be looked at."""
        return self.data.get(DO) == SET

    def looks(self) -> bool:
        """Whether it can be looked at: before it is confirmed the reason may be left out."""
        self.fields["reason"].required = self.confirms
        if not self.is_bound or not self.is_valid():
            return False
        if not self.cleaned_data["reason"]:
            self.cleaned_data["reason"] = _("no reason yet")
        return True

    def refuse(self, refused: Refused) -> None:
        """Show a refusal at the field that it names."""
        self.add_error(refused.field if refused.field in self.fields else None, refused.sentence)


class RateForm(_SettingsForm):
    """What a pool costs from an instant on; rates are times the reference GPU."""

    pool = forms.ChoiceField(
        label=gettext_lazy("Pool"), widget=forms.Select(attrs={"class": "form-select"})
    )
    rate = _rate()
    effective_at = _from()
    reason = _text(gettext_lazy("Reason"), REASON_MAX)

    def __init__(self, *args: Any, pools: list[Pool], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pools = {pool.slug: pool for pool in pools}
        choices = [(pool.slug, pool.name) for pool in pools]
        self.fields["pool"].choices = choices  # type: ignore[attr-defined]

    @property
    def arguments(self) -> dict[str, Any]:
        """What a valid form says, as `installing.set_rate` takes it."""
        given = self.cleaned_data
        return {
            "pool": self.pools[given["pool"]],
            "rate_per_mille": int(given["rate"] * 1000),
            "effective_at": given["effective_at"],
            "reason": given["reason"],
        }


class PoolForm(_SettingsForm):
    """A new pool, as `installing.add_pool` takes it."""

    cluster = forms.ChoiceField(
        label=gettext_lazy("Cluster"), widget=forms.Select(attrs={"class": "form-select"})
    )
    slug = _text(
        gettext_lazy("Short name"),
        SLUG_MAX,
        help_text=gettext_lazy("Jobs, shares and files name it so, for good: h100, say."),
    )
    name = _text(gettext_lazy("Name"), NAME_MAX)
    gpu_type = _text(
        gettext_lazy("Type of its GPUs"),
        GPU_TYPE_MAX,
        help_text=gettext_lazy("As the maker calls it, so that forecasts know it: H100 SXM, say."),
    )
    rate = _rate()
    reason = _text(gettext_lazy("Reason"), REASON_MAX)

    def __init__(self, data: Any, *, clusters: list[Cluster]) -> None:
        super().__init__(data, initial={"rate": "1"})
        self.clusters = {one.slug: one for one in clusters}
        choices = [(one.slug, one.name) for one in clusters]
        self.fields["cluster"].choices = choices  # type: ignore[attr-defined]

    @property
    def arguments(self) -> dict[str, Any]:
        """What a valid form says, as `installing.add_pool` takes it."""
        given = dict(self.cleaned_data)
        given["cluster"] = self.clusters[given["cluster"]]
        return given | {"rate_per_mille": int(given.pop("rate") * 1000)}


class PoolNameForm(_SettingsForm):
    """Another name of a pool, or of its GPUs."""

    name = _text(gettext_lazy("Name"), NAME_MAX)
    gpu_type = _text(gettext_lazy("Type of its GPUs"), GPU_TYPE_MAX)
    reason = _text(gettext_lazy("Reason"), REASON_MAX)

    def __init__(self, data: Any, *, pool: Pool) -> None:
        super().__init__(data, initial={"name": pool.name, "gpu_type": pool.gpu_type})


class NodesForm(_SettingsForm):
    """New nodes of a pool, as `inventory.proposed_nodes` takes them."""

    nodes = forms.CharField(
        label=gettext_lazy("Names"),
        max_length=20_000,
        widget=forms.Textarea(attrs=CONTROL | {"rows": 2, "spellcheck": "false"}),
        help_text=gettext_lazy(
            "One, or a list such as h100-n[01-08]; as their cluster calls them."
        ),
    )
    gpus = forms.IntegerField(
        label=gettext_lazy("GPUs of each"),
        min_value=1,
        max_value=GPUS_MAX,
        widget=forms.NumberInput(attrs=dict(TYPED)),
    )
    label = _text(
        gettext_lazy("Label"),
        LABEL_MAX,
        required=False,
        help_text=gettext_lazy("Your own word for them: the rack, say."),
    )
    effective_at = _from()
    reason = _text(gettext_lazy("Reason"), REASON_MAX)

    def __init__(self, data: Any, *, gpus: int) -> None:
        super().__init__(data, initial={"gpus": gpus})


class LabelForm(_SettingsForm):
    """Another label of a node."""

    label = _text(gettext_lazy("Label"), LABEL_MAX, required=False)
    reason = _text(gettext_lazy("Reason"), REASON_MAX)

    def __init__(self, data: Any, *, node: Node) -> None:
        super().__init__(data, initial={"label": node.label}, auto_id="label_%s")


class RetireForm(_SettingsForm):
    """From when on a node is out of use, as `inventory.proposed_retirement` takes it."""

    effective_at = _from()
    reason = _text(gettext_lazy("Reason"), REASON_MAX)


class ReasonForm(_SettingsForm):
    """Why a node that was to leave, or to come, is left as it is."""

    reason = _text(gettext_lazy("Reason"), REASON_MAX)

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="undo_%s")
