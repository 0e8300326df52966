"""The API of the allocator: the plan, cycles, and simulations."""

from allocator.api.cycles import CycleDetail, CyclePlan, Cycles, CycleSnapshot, Plan, ReplayCycle
from allocator.api.simulations import CancelSimulation, SimulationDetail, Simulations

__all__ = [
    "CancelSimulation",
    "CycleDetail",
    "CyclePlan",
    "CycleSnapshot",
    "Cycles",
    "Plan",
    "ReplayCycle",
    "SimulationDetail",
    "Simulations",
]
