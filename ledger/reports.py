"""The ledger's sums: nothing else adds up entries. Frozen dataclasses of integers."""

from ledger.standing import Figures, figures, spendable
from ledger.usage import usage_window

__all__ = ["Figures", "figures", "spendable", "usage_window"]
