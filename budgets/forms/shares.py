"""The form of the share editor: a share in percent for every child, and in single pools."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.pages.editor import Row, Subject
from budgets.change_sets import REASON_MAX
from budgets.forms.fields import INSTANT, Percent
from budgets.models import Budget
from budgets.shares import Vector
from clusters.models import Pool
from config.fields import YEARS, wrong_year

DECISIONS = ("approve", "propose")  # anything else only looks at what it would do


class SharesForm(forms.Form):
    """New shares of all children of one budget.

    Fields of a child are named `share.SLUG` and, in one pool, `share.SLUG.POOL`: slugs have no
    dots, so no two names meet.
    """

    base_version = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
    when = forms.ChoiceField(
        label=gettext_lazy("Takes effect"),
        choices=(("now", gettext_lazy("At once")), ("date", gettext_lazy("On a date"))),
        initial="now",
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    effective_at = forms.DateTimeField(
        required=False,
        input_formats=[INSTANT, f"{INSTANT}:%S"],
        widget=forms.DateTimeInput(
            format=INSTANT,
            attrs={
                "type": "datetime-local",
                "class": "form-control",
                "aria-label": gettext_lazy("Date and time"),
            },
        ),
        error_messages={"invalid": gettext_lazy("Give a date and a time, such as 27 Nov 00:00.")},
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=REASON_MAX,
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 4}),
        error_messages={
            "required": gettext_lazy("Say why: the reason stands beside the change for good.")
        },
        help_text=gettext_lazy("Kept with the change for good, shown with every budget it moves."),
    )

    def __init__(
        self,
        found: Subject,
        data: QueryDict | None = None,
        *,
        now: datetime,
        looked_at: Vector | None = None,
        ahead: datetime | None = None,
    ) -> None:
        """`looked_at` are other shares to begin with, `ahead` an instant at which they are to take
        effect.
        """
        self.ahead = ahead
        self.children, self.pools = found.children, found.single_pools
        self.found, self.now = found, now
        self.opened = found.vector | (looked_at or {})
        super().__init__(data, initial=self._initial())
        decides = data is None or data.get("do") in DECISIONS
        self.fields["reason"].required = decides
        for child in self.children:
            self.fields[share_name(child)] = self._share(child)
            for pool in self.pools:
                self.fields[share_name(child, pool)] = self._override(child, pool)

    def _initial(self) -> dict[str, Any]:
        initial: dict[str, Any] = {"base_version": self.found.base_version}
        if self.ahead is not None:
            initial |= {"when": "date", "effective_at": self.ahead}
        for child in self.children:
            row = self.opened[child.pk]
            initial[share_name(child)] = row[None]
            initial |= {share_name(child, pool): row.get(pool.pk) for pool in self.pools}
        return initial

    def _share(self, child: Budget) -> Percent:
        words = _("New share of %(name)s, percent") % {"name": child.name}
        attrs = {"data-share": child.slug, "aria-label": words, **_INPUT}
        missing = {"required": _("Give %(name)s a share; 0 is one.") % {"name": child.name}}
        return Percent(widget=forms.TextInput(attrs=attrs), error_messages=missing)

    def _override(self, child: Budget, pool: Pool) -> Percent:
        words = _("Share of %(name)s in %(pool)s, percent; empty: as overall")
        attrs = {
            "data-override": child.slug,
            "data-pool": pool.slug,
            "aria-label": words % {"name": child.name, "pool": pool.name},
            **_INPUT,
        }
        return Percent(required=False, widget=forms.TextInput(attrs=attrs))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        at = cleaned.get("effective_at")
        if cleaned.get("when") == "now" or "effective_at" in self.errors:
            cleaned["effective_at"] = None
        elif at is None:
            self.add_error("effective_at", _("Say from when on, or choose “At once”."))
        elif at <= self.now:
            local = timezone.localtime(self.now)
            self.add_error(
                "effective_at",
                _("That has passed: give a time after %(now)s, or choose “At once”.")
                % {"now": f"{local:%H:%M}"},
            )
        elif at.year not in YEARS:
            self.add_error("effective_at", wrong_year())
        return cleaned

    @property
    def shares(self) -> dict[Budget, int]:
        """The shares that were typed and make sense, by child; thousandths of a percent."""
        return {child: n for child in self.children if (n := self._typed(child)) is not None}

    @property
    def overrides(self) -> dict[tuple[Budget, Pool], int]:
        """The shares in single pools that were typed and make sense."""
        places = ((child, pool) for child in self.children for pool in self.pools)
        return {place: n for place in places if (n := self._typed(*place)) is not None}

    def _typed(self, child: Budget, pool: Pool | None = None) -> int | None:
        value: int | None = self.cleaned_data.get(share_name(child, pool))
        return value

    @property
    def vector(self) -> Vector:
        """What is in the form now; where that makes no sense, the share as it is."""
        if not self.is_bound:
            return self.opened
        self.is_valid()
        vector: Vector = {pk: {None: row[None]} for pk, row in self.found.vector.items()}
        for child, value in self.shares.items():
            vector[child.pk][None] = value
        for (child, pool), value in self.overrides.items():
            vector[child.pk][pool.pk] = value
        return vector

    @property
    def from_when(self) -> datetime | None:
        """When the change is to take effect, None for at once; as far as it makes sense."""
        return self.cleaned_data.get("effective_at") if self.is_bound else self.ahead

    @property
    def based_on(self) -> int:
        """The version that what was typed is based on."""
        text = str(self.data.get("base_version", ""))
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1

    @property
    def typed_fields(self) -> list[forms.BoundField]:
        """The fields of shares, overall and in single pools."""
        places = [(child, pool) for child in self.children for pool in (None, *self.pools)]
        return [self[share_name(child, pool)] for child, pool in places]

    def lines(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        """Return the rows of the page with their fields."""
        return [
            {
                "row": row,
                "share": self[share_name(row.child)],
                "pools": [self[share_name(row.child, pool)] for pool in self.pools],
            }
            for row in rows
        ]

    @property
    def decision(self) -> dict[str, Any]:
        """What a valid form says, as `steering.change_shares` takes it."""
        return {
            "shares": self.shares,
            "overrides": self.overrides,
            "reason": self.cleaned_data["reason"],
            "base_version": self.based_on,
            "effective_at": self.cleaned_data["effective_at"],
        }

    @property
    def is_outdated(self) -> bool:
        """Whether another change was approved since the form was opened."""
        return self.based_on != self.found.base_version

    @property
    def gone(self) -> list[str]:
        """Slugs of children that were typed and are not there any more."""
        typed = {name.split(".")[1] for name in self.data if name.startswith("share.")}
        return sorted(typed - {child.slug for child in self.children})

    @property
    def mine(self) -> dict[Budget, dict[int | None, int]]:
        """What was typed, by child, of the children that the form had."""
        self.is_valid()
        rows: dict[Budget, dict[int | None, int]] = {
            child: {None: value} for child, value in self.shares.items()
        }
        for (child, pool), value in self.overrides.items():
            rows.setdefault(child, {})[pool.pk] = value
        return rows


def rebased(found: Subject, data: QueryDict, *, now: datetime) -> SharesForm:
    """Return the form on the present base: row by row what was typed or what is in force."""
    merged = data.copy()
    merged["base_version"] = str(found.base_version)
    for child in found.children:
        for pool in (None, *found.single_pools):
            name = share_name(child, pool)
            if data.get(name.replace("share.", "pick.", 1)) == "theirs":
                value = found.vector[child.pk].get(pool.pk if pool else None)
                merged[name] = "" if value is None else Percent().prepare_value(value)
    return SharesForm(found, merged, now=now)


_INPUT = {"class": "form-control si", "inputmode": "decimal", "autocomplete": "off"}


def share_name(child: Budget, pool: Pool | None = None) -> str:
    """Return the name of a child's field."""
    return f"share.{child.slug}" + (f".{pool.slug}" if pool else "")
