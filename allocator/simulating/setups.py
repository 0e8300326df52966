"""What a simulation is of, with the installation's settings."""

from django.conf import settings

from allocator.core.events import NOTHING, Events
from allocator.core.problem import BudgetNode, Node
from allocator.core.simulation.setup import Setup
from allocator.core.traces import DAY_S


def setup_of(
    *,
    nodes: tuple[Node, ...],
    tree: tuple[BudgetNode, ...],
    seconds: int,
    seed: int,
    unlimited: bool = False,
    exact: bool = False,
    events: Events = NOTHING,
) -> Setup:
    """Return the set-up: ``unlimited`` and ``exact`` as the command has them."""
    return Setup(
        nodes=nodes,
        tree=tree,
        seconds=seconds,
        unlimited=unlimited,
        spread=0.0 if exact else Setup.spread,
        seed=seed,
        timestep_minutes=settings.TIMESTEP_MINUTES,
        horizon=settings.HORIZON_TIMESTEPS,
        window_s=settings.USAGE_WINDOW_DAYS * DAY_S,
        preempted_percent=settings.PREEMPTION_CAP_PERCENT,
        preempted_again_s=settings.PREEMPTED_AGAIN_MINUTES * 60,
        default_minimum_s=settings.DEFAULT_MINIMUM_RUNTIME_MINUTES * 60,
        longest_minimum_s=settings.MINIMUM_RUNTIME_MAX_HOURS * 3600,
        events=events,
        # A trace has no checkpoints, so since the last one is since the start.
        refunds=settings.NODE_FAILURE_REFUND != "none",
    )
