"""The door to everything that writes the tree: import from here."""

from budgets.change_sets import (
    checked_vector,
    decline,
    draft_change_set,
    propose,
    set_shares,
)
from budgets.foreseeing import TreeChange, foresee_archive, foresee_move, foresee_reactivation
from budgets.places import RESERVED
from budgets.placing import Does, Placing, approve, leaving, parents_of
from budgets.placing import foresee as foresee_place
from budgets.placing import of as placing_of
from budgets.placing import propose as propose_place
from budgets.refusals import Refused, StaleBase, percent
from budgets.renaming import rename_budget
from budgets.roles import give_role, take_role
from budgets.structure import (
    archive_budget,
    create_budget,
    create_organisation,
    move_budget,
    reactivate_budget,
)
from budgets.vectors import children_by_slug

__all__ = [
    "RESERVED",
    "Does",
    "Placing",
    "Refused",
    "StaleBase",
    "TreeChange",
    "approve",
    "archive_budget",
    "checked_vector",
    "children_by_slug",
    "create_budget",
    "create_organisation",
    "decline",
    "draft_change_set",
    "foresee_archive",
    "foresee_move",
    "foresee_place",
    "foresee_reactivation",
    "give_role",
    "leaving",
    "move_budget",
    "parents_of",
    "percent",
    "placing_of",
    "propose",
    "propose_place",
    "reactivate_budget",
    "rename_budget",
    "set_shares",
    "take_role",
]
