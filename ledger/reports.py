"""The ledger's sums: nothing else adds up entries. Amounts and times are integers."""

from ledger.burn import DayBurn, burn_by_day, burn_rate, pace, runway_days
from ledger.burn_report import ADDITIVE, BurnReport, BurnRow, burn_report
from ledger.checks import EntryProblem, entry_problems
from ledger.conservation import ConservationRow, Difference, conservation, differences
from ledger.figures import closed_until
from ledger.full_report import Asked, FullReport, full_report
from ledger.grants import credits
from ledger.standing import Figures, GpuTime, figures, spendable
from ledger.statements import ChargeLine, JobCharges, job_charges, parked_by_budget, parked_by_day
from ledger.usage import usage_window

__all__ = [
    "ADDITIVE",
    "Asked",
    "BurnReport",
    "BurnRow",
    "ChargeLine",
    "ConservationRow",
    "DayBurn",
    "Difference",
    "EntryProblem",
    "Figures",
    "FullReport",
    "GpuTime",
    "JobCharges",
    "burn_by_day",
    "burn_rate",
    "burn_report",
    "closed_until",
    "conservation",
    "credits",
    "differences",
    "entry_problems",
    "figures",
    "full_report",
    "job_charges",
    "pace",
    "parked_by_budget",
    "parked_by_day",
    "runway_days",
    "spendable",
    "usage_window",
]
