"""The forms of pages about budgets."""

from budgets.forms.by_hand import ByHandForm
from budgets.forms.requests import AskForm, DecisionForm
from budgets.forms.shares import DECISIONS, SharesForm, rebased, share_name
from budgets.forms.transfers import TransferForm

__all__ = [
    "DECISIONS",
    "AskForm",
    "ByHandForm",
    "DecisionForm",
    "SharesForm",
    "TransferForm",
    "rebased",
    "share_name",
]
