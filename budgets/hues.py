"""Which hue a budget is painted in: its program's, and that one's number never changes.

Programs are the children of the organisation. The first four ever created have the hues 1 to 4,
which are checked for colour-blind readers (docs/ui.md); those after them are ink-grey, 0.
"""

from collections.abc import Iterable, Mapping

from budgets.models import Budget

HUES = 4
Hue = int | str
ORGANISATION = "org"


def of_budgets(budgets: Iterable[Budget] | None = None) -> Mapping[str, Hue]:
    """Return the hue of every budget by its path; "org" at the root. One query, or none."""
    every = Budget.objects.order_by().only("parent_id", "path") if budgets is None else budgets
    rows = sorted(every, key=lambda row: row.pk)
    roots = {row.pk for row in rows if row.is_root}
    programs = [row.path for row in rows if row.parent_id in roots]
    numbers = {path: place if place <= HUES else 0 for place, path in enumerate(programs, 1)}
    return {row.path: _hue(row.path, numbers) for row in rows}


def _hue(path: str, numbers: Mapping[str, int]) -> Hue:
    slugs = path.split("/")
    return numbers["/".join(slugs[:2])] if len(slugs) > 1 else ORGANISATION
