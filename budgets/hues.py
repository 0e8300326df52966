"""Which hue a budget is painted in: its program's, and that one's number never changes.

Programs are the children of the organisation. The first twelve ever created have the hues 1 to
12, which are checked for colour-blind readers (docs/ui.md); those after them are ink-grey, 0.
"""

from collections.abc import Iterable, Mapping

from budgets.models import Budget
from budgets.shares import Place, every_place
from clusters.palette import HUES

Hue = int | str
ORGANISATION = "org"


def of_budgets(budgets: Iterable[Budget] | None = None) -> Mapping[str, Hue]:
    """Return the hue of every budget by its path; "org" at the root. One query, or none."""
    if budgets is None:
        rows = sorted(every_place())
    else:
        rows = sorted(Place(one.pk, one.parent_id, one.path) for one in budgets)
    roots = {pk for pk, parent_id, _ in rows if parent_id is None}
    programs = [path for _, parent_id, path in rows if parent_id in roots]
    numbers = {path: place if place <= HUES else 0 for place, path in enumerate(programs, 1)}
    return {path: _hue(path, numbers) for _, _, path in rows}


def _hue(path: str, numbers: Mapping[str, int]) -> Hue:
    slugs = path.split("/")
    return numbers["/".join(slugs[:2])] if len(slugs) > 1 else ORGANISATION
