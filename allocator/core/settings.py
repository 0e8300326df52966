"""What a plan may do beyond the problem's rules."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """What the construction may do; the defaults are the product's."""

    preempted_percent: int = 5  # of a pool's GPUs, per timestep; always at least one block
