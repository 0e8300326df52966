"""A virtual clock for simulated clusters: the real cycle, from one event to the next.

The demo, the replay of a trace and tests play days in seconds with it: arrivals, runs' ends and
timesteps happen at their instants, each followed by one cycle, in a database like any other.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from allocator import cycle, refusals, requests, timesteps, turning
from allocator.core.contract import ANSWERED_S
from allocator.models import Cycle
from clusters.connectors.simulated import next_change

ANSWERED_AFTER = timedelta(seconds=ANSWERED_S)  # a request that comes up in a cycle


@dataclass(frozen=True)
class Arrival:
    """Something that happens at an instant: a submission, a share change, a drain."""

    at: datetime
    happen: Callable[[datetime], object]


@contextmanager
def quietly() -> Iterator[None]:
    """Wake no worker meanwhile: its clock is another one, and ``play`` runs the cycles itself."""
    before = settings.REPLAN_AT_ONCE
    settings.REPLAN_AT_ONCE = False
    try:
        yield
    finally:
        settings.REPLAN_AT_ONCE = before


def play(*, start: datetime, end: datetime, arrivals: Sequence[Arrival]) -> Iterator[Cycle]:
    """Run cycles over [start, end]: yields each one. What arrives at one instant is one event."""
    waiting = sorted(arrivals, key=lambda arrival: arrival.at)
    at = start
    position = 0
    while at <= end:
        trigger = "timestep" if at == timesteps.floor(at) else "completion"
        while position < len(waiting) and waiting[position].at <= at:
            waiting[position].happen(at)
            position += 1
            trigger = "submission" if trigger == "completion" else trigger
        made = cycle.run(at=at, trigger=trigger)
        if made is not None:
            yield made
        arrives = waiting[position].at if position < len(waiting) else None
        at = _next_instant(at, arrives)


def _next_instant(at: datetime, arrives: datetime | None) -> datetime:
    """The next timestep, period, arrival, end of a run, fault, new try of what was refused, or
    answer to what the cycle itself asked for, whatever is first."""
    instants = [timesteps.floor(at) + timesteps.step()]
    border = turning.next_start(after=at)
    if border is not None:
        instants.append(border)
    changes = next_change(after=at)
    if changes is not None:
        instants.append(changes)
    if arrives is not None:
        instants.append(max(arrives, at))
    again = refusals.next_try()
    if again is not None and again > at:
        instants.append(again)
    if requests.is_open():
        instants.append(at + ANSWERED_AFTER)
    return min(instants)
