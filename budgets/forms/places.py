"""The form that moves, archives or re-activates a budget."""

from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator.pages import placing
from allocator.pages.placing import Place, Subject
from budgets.change_sets import REASON_MAX
from budgets.forms.fields import Percent
from budgets.models import WHOLE, Budget, ChangeSet
from budgets.services import Does, Refused

DECISIONS = ("approve", "propose")  # anything else only looks at what it would do
LABELS = {
    Does.MOVE: gettext_lazy("Move it below another budget"),
    Does.ARCHIVE: gettext_lazy("Archive it, with all below it"),
    Does.REACTIVATE: gettext_lazy("Bring it back, with all below it"),
}
_INPUT = {"class": "form-control si", "inputmode": "decimal", "autocomplete": "off"}


class PlaceForm(forms.Form):
    """What becomes of a budget, its share then, and what those beside it have.

    Fields of those are named `keeps.PARENT.SLUG`, so that what was typed for one parent is not
    taken for another's; `base.PARENT` is the version of its shares that was shown.
    """

    does = forms.ChoiceField(
        label=gettext_lazy("What becomes of it"),
        widget=forms.Select(attrs={"class": "form-select"}),
        error_messages={
            "required": gettext_lazy("Choose what is to become of it."),
            "invalid_choice": gettext_lazy("That can't become of it now: choose one of these."),
        },
    )
    to = forms.ChoiceField(
        label=gettext_lazy("New parent"),
        required=False,
        widget=forms.Select(attrs={"class": "form-select"}),
        error_messages={
            "invalid_choice": gettext_lazy("It can't move there: choose one of these."),
        },
    )
    share = Percent(
        label=gettext_lazy("Its share there, percent"),
        required=False,
        widget=forms.TextInput(attrs=_INPUT | {"class": "form-control"}),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=REASON_MAX,
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 3}),
        error_messages={
            "required": gettext_lazy("Say why: the reason stands beside the change for good.")
        },
        help_text=gettext_lazy("Kept with the change for good, shown with every budget it moves."),
    )

    def __init__(self, found: Subject, data: QueryDict | None = None) -> None:
        self.found = found
        self.places = {one.budget.path: one for one in found.places}
        super().__init__(data, initial=_initial(found))
        self._choose("does", [(str(does), str(LABELS[does])) for does in found.choices])
        self._choose("to", [("", _("Choose a budget")), *_options(found.places)])
        self.fields["reason"].required = data is None or self.decides
        parent = found.parent_then(self.chosen, self.target)
        self.beside = placing.siblings(found, parent) if parent else None
        for child in self.beside.children if self.beside else []:
            self.fields[self._name(child)] = self._keeps(child)
        if data is not None:
            self.data = self._with_shares_of_others(data)

    def _with_shares_of_others(self, data: QueryDict) -> QueryDict:
        """Return what was sent, with what each beside it has where its field wasn't there yet."""
        filled = data.copy()
        for child in self.beside.children if self.beside else []:
            name = self._name(child)
            filled.setdefault(name, self.fields[name].prepare_value(self.fields[name].initial))
        return filled

    def _choose(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField), "a choice"
        field.choices = choices

    def _keeps(self, child: Budget) -> Percent:
        assert self.beside is not None, "it is beside it"
        words = _("New share of %(name)s, percent") % {"name": child.name}
        missing = {"required": _("Give %(name)s a share; 0 is one.") % {"name": child.name}}
        return Percent(
            initial=self._proposed.get(child, self.beside.vector[child.pk][None]),
            widget=forms.TextInput(attrs=_INPUT | {"aria-label": words}),
            error_messages=missing,
        )

    @property
    def _proposed(self) -> dict[Budget, int]:
        """What the proposal that is looked at gives those beside it."""
        seen = self.found.proposal
        return dict(seen.placing.siblings) if seen and not self.is_bound else {}

    def _name(self, child: Budget) -> str:
        return f"keeps.{child.parent_id}.{child.slug}"

    @property
    def decides(self) -> bool:
        """Whether it is to be done or proposed now, not only to be looked at."""
        return self.data.get("do") in DECISIONS

    @property
    def chosen(self) -> Does:
        """What was chosen, as far as it makes sense; else what comes first."""
        choices = self.found.choices
        given = self.data.get("does") if self.is_bound else self.initial["does"]
        return next((one for one in choices if one == given), choices[0])

    @property
    def target(self) -> Budget | None:
        """The new parent that was chosen; None where it doesn't move."""
        given = self.data.get("to", "") if self.is_bound else self.initial["to"]
        place = self.places.get(given) if self.chosen == Does.MOVE else None
        return place.budget if place else None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.chosen == Does.MOVE and not cleaned.get("to") and "to" not in self.errors:
            self.add_error("to", _("Choose the budget below which it goes."))
        wants = self.chosen != Does.ARCHIVE
        if wants and cleaned.get("share") is None and "share" not in self.errors:
            self.add_error("share", _("Give it a share; 0 is one."))
        if self.decides and self.beside and self.data.get(self.base_name) != self.base:
            self.add_error(None, self._outdated())
        return cleaned

    def _outdated(self) -> str:
        assert self.beside is not None, "it has a parent"
        changed, unseen = (
            _("The shares of %(name)s were changed since you looked: see what they are now."),
            _("See first what those below %(name)s keep, then confirm."),
        )
        said = changed if self.base_name in self.data else unseen
        return said % {"name": self.beside.parent.name}

    @property
    def base_name(self) -> str:
        return f"base.{self.beside.parent.pk}" if self.beside else ""

    @property
    def base(self) -> str:
        """The version of the shares of those beside it, as they are now."""
        return str(self.beside.version) if self.beside else ""

    @property
    def new_share(self) -> int:
        """Its share then, as far as it makes sense; thousandths of a percent."""
        if self.chosen == Does.ARCHIVE:
            return 0
        given = self.cleaned_data.get("share") if self.is_bound else self.initial["share"]
        return given or 0

    @property
    def keeps(self) -> dict[Budget, int]:
        """The shares that those beside it are to have, where they are others than now."""
        return {
            child: value
            for child, value in self._typed().items()
            if self.beside and value != self.beside.vector[child.pk][None]
        }

    def _typed(self) -> dict[Budget, int]:
        """What each beside it would have; where what was typed makes no sense, what it has."""
        found = {}
        for child in self.beside.children if self.beside else []:
            name, now = self._name(child), self._keeps(child).initial
            value = self.cleaned_data.get(name) if self.is_bound else now
            found[child] = now if value is None else value
        return found

    @property
    def total(self) -> int:
        """What the children of its parent would have together; thousandths of a percent."""
        return self.new_share + sum(self._typed().values())

    @property
    def rest(self) -> int:
        return WHOLE - self.total

    @property
    def rest_now(self) -> int:
        """What their parent keeps in reserve beside them, without the budget."""
        return self.beside.rest if self.beside else 0

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Those beside it: what each has now, and its field."""
        if self.beside is None:
            return []
        now = self.beside.vector
        return [
            {"child": child, "now": now[child.pk][None], "field": self[self._name(child)]}
            for child in self.beside.children
        ]

    @property
    def may_approve(self) -> bool:
        return self.found.may_approve(self.target)

    @property
    def is_complete(self) -> bool:
        """Whether it says enough to tell what it would do."""
        typed = ["share", *(self._name(line["child"]) for line in self.lines)]
        if self.beside is None or (self.is_bound and any(name in self.errors for name in typed)):
            return False
        given = self.cleaned_data.get("share") if self.is_bound else self.initial["share"]
        return self.chosen == Does.ARCHIVE or given is not None

    @property
    def asked(self) -> dict[str, Any]:
        """What is to become of the budget, as `allocator.pages.placing.preview` takes it."""
        return {
            "does": self.chosen,
            "to": self.target,
            "share": self.new_share,
            "siblings": self.keeps,
        }

    @property
    def decision(self) -> dict[str, Any]:
        """What a valid form says, as `steering.change_place` takes it."""
        return self.asked | {
            "budget": self.found.budget,
            "reason": self.cleaned_data["reason"],
            "base_version": int(self.base),
        }

    def said(self, made: ChangeSet) -> str:
        """What was done or proposed, once it was."""
        words = {
            "number": made.pk,
            "name": self.found.budget.name,
            "left": self.found.parent.name,
            "parent": made.parent.name,
        }
        done = {
            Does.MOVE: _("%(name)s is below %(parent)s now, with the grants it moves."),
            Does.ARCHIVE: _("%(name)s is archived; what is free of its grant has gone back."),
            Does.REACTIVATE: _("%(name)s is back, with grants for the rest of the period."),
        }
        if made.status == ChangeSet.Status.APPROVED:
            return done[self.chosen] % words
        if self.chosen == Does.MOVE:
            both = _("Change set #%(number)s is proposed to who manages %(left)s and %(parent)s.")
            return both % words
        return _("Change set #%(number)s is proposed to the manager of %(parent)s.") % words

    def refuse(self, refused: Refused) -> None:
        """Put what the domain refuses where it belongs."""
        field = next(iter(refused.message_dict))
        self.add_error(field if field in self.fields else None, refused.sentence)


def _initial(found: Subject) -> dict[str, Any]:
    """What the form opens with: nothing, or the proposal that is looked at."""
    seen = found.proposal
    if seen is None:
        return {"does": str(found.choices[0]), "to": "", "share": None}
    moves = seen.placing.does == Does.MOVE
    return {
        "does": str(seen.placing.does),
        "to": seen.placing.parent.path if moves else "",
        "share": seen.placing.share,
        "reason": seen.change_set.reason,
    }


def _options(places: list[Place]) -> list[tuple[str, str]]:
    least = min((one.depth for one in places), default=0)
    return [(one.budget.path, "\u2003" * (one.depth - least) + one.budget.name) for one in places]
