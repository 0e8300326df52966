"""The API of the allocator: the plan, cycles, reviews and simulations."""

from allocator.api.audit import Audit
from allocator.api.cycles import CycleDetail, CyclePlan, Cycles, CycleSnapshot, Plan, ReplayCycle
from allocator.api.reviews import (
    CommentReview,
    EditReviewComment,
    HoldReview,
    ReviewDetail,
    ReviewFile,
    Reviews,
    WithdrawReviewComment,
)
from allocator.api.simulations import CancelSimulation, SimulationDetail, Simulations

__all__ = [
    "Audit",
    "CancelSimulation",
    "CommentReview",
    "CycleDetail",
    "CyclePlan",
    "CycleSnapshot",
    "Cycles",
    "EditReviewComment",
    "HoldReview",
    "Plan",
    "ReplayCycle",
    "ReviewDetail",
    "ReviewFile",
    "Reviews",
    "SimulationDetail",
    "Simulations",
    "WithdrawReviewComment",
]
