"""What one person may see of the differences between two instants: for the API and the page."""

from collections.abc import Iterable
from dataclasses import dataclass

from budgets.access import Standing
from budgets.diffs import Difference, Place
from budgets.models import ChangeSet


@dataclass(frozen=True)
class ShownPlace:
    """A place as one person sees it; None of what they may not see.

    Path and name where they may know the place, the whole with its shares where they see it.
    """

    path: str | None
    name: str | None
    whole: Place | None


@dataclass(frozen=True)
class Shown:
    """A difference, under its last name in a place that the person knows; None: not active."""

    difference: Difference
    name: str
    before: ShownPlace | None
    after: ShownPlace | None
    by: tuple[ChangeSet, ...]


def shown(found: Iterable[Difference], held: Standing) -> list[Shown]:
    """Return differences as someone may see them: of a place not theirs only that there is one."""
    return [
        Shown(
            difference=one,
            name=_name(one, held),
            before=_place(one.before, held),
            after=_place(one.after, held),
            by=tuple(made for made in one.by if held.sees(made.parent.path)),
        )
        for one in found
    ]


def _name(one: Difference, held: Standing) -> str:
    places = [place for place in (one.after, one.before) if place and held.knows(place.address)]
    return places[0].name if places else one.budget.slug


def _place(place: Place | None, held: Standing) -> ShownPlace | None:
    if place is None:
        return None
    known = held.knows(place.address)
    return ShownPlace(
        path=place.path if known else None,
        name=place.name if known else None,
        whole=place if held.sees(place.address) else None,
    )
