"""The API of budgets: the tree, changes of it, and people."""

from budgets.api.change_sets import ApproveChangeSet, ChangeSets, DeclineChangeSet
from budgets.api.people import Me, RoleOf, Roles, SignInForToken
from budgets.api.structure import Archive, Budgets, Move, Reactivate
from budgets.api.tree import BudgetDetail

__all__ = [
    "ApproveChangeSet",
    "Archive",
    "BudgetDetail",
    "Budgets",
    "ChangeSets",
    "DeclineChangeSet",
    "Me",
    "Move",
    "Reactivate",
    "RoleOf",
    "Roles",
    "SignInForToken",
]
