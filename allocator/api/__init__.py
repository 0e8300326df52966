"""The API of the allocator: the plan, cycles, and simulations."""

from allocator.api.cycles import CycleDetail, CyclePlan, Cycles, CycleSnapshot, Plan
from allocator.api.simulations import CancelSimulation, SimulationDetail, Simulations

__all__ = [
    "CancelSimulation",
    "CycleDetail",
    "CyclePlan",
    "CycleSnapshot",
    "Cycles",
    "Plan",
    "SimulationDetail",
    "Simulations",
]
