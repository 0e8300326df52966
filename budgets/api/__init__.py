"""The API of budgets: the tree, changes of it, requests, transfers, notices, and people."""

from budgets.api.asked import Asked
from budgets.api.by_hand import ByHand, PreviewByHand
from budgets.api.change_sets import ApproveChangeSet, ChangeSets, DeclineChangeSet
from budgets.api.checkpoints import (
    ApproveExemption,
    Checkpoints,
    DeclineExemption,
    DryRun,
    Exemptions,
    RemoveCheckpoint,
)
from budgets.api.diffs import Diff
from budgets.api.notices import Notices, ReadAllNotices, ReadNotice
from budgets.api.people import Me, RoleOf, Roles, SignInForToken
from budgets.api.period_plans import PeriodPlan, PeriodStatement, PeriodStatementFile
from budgets.api.periods import (
    ApprovePeriod,
    PeriodDetail,
    Periods,
    ProposePeriod,
    RedraftPeriod,
    WithdrawPeriod,
)
from budgets.api.plans import Plan
from budgets.api.previews import PreviewChangeSet
from budgets.api.requests import (
    BudgetRequests,
    DeclineRequest,
    GrantRequest,
    RequestDetail,
    Requests,
    WithdrawRequest,
)
from budgets.api.structure import Archive, Budgets, Move, Reactivate, Rename
from budgets.api.transfers import Transfers
from budgets.api.tree import BudgetDetail

__all__ = [
    "ApproveChangeSet",
    "ApproveExemption",
    "ApprovePeriod",
    "Archive",
    "Asked",
    "BudgetDetail",
    "BudgetRequests",
    "Budgets",
    "ByHand",
    "ChangeSets",
    "Checkpoints",
    "DeclineChangeSet",
    "DeclineExemption",
    "DeclineRequest",
    "Diff",
    "DryRun",
    "Exemptions",
    "GrantRequest",
    "Me",
    "Move",
    "Notices",
    "PeriodDetail",
    "PeriodPlan",
    "PeriodStatement",
    "PeriodStatementFile",
    "Periods",
    "Plan",
    "PreviewByHand",
    "PreviewChangeSet",
    "ProposePeriod",
    "Reactivate",
    "ReadAllNotices",
    "ReadNotice",
    "RedraftPeriod",
    "RemoveCheckpoint",
    "Rename",
    "RequestDetail",
    "Requests",
    "RoleOf",
    "Roles",
    "SignInForToken",
    "Transfers",
    "WithdrawPeriod",
    "WithdrawRequest",
]
