"""A few hours of a small institute, played with the real cycle, for tests of pages.

On 16 GPUs, up to 02:12: petrel's "storm" was preempted at 01:00 by tern's "fold" and goes on
since 01:30, when auk's "sky" had completed; each of its runs is parked for 15 minutes at first.
Petrel's "flood" waits for all 16 GPUs, auk's "stars" for "flood".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from allocator import playing
from allocator.models import Cycle
from allocator.playing import Arrival
from tests.factories import HOUR, T0
from tests.helpers import Institute, arrival, make_institute
from workloads.models import Job

NOW = T0 + 2 * HOUR + timedelta(minutes=12, seconds=8)
CLOCKS = (
    *("config.shell", "allocator.views", "workloads.views", "budgets.views"),
    *(
        "allocator.views.simulator",
        "allocator.views.cycles",
        "allocator.views.audit",
        *("allocator.views.settings", "allocator.views.people", "budgets.views.drafts"),
    ),
)


@dataclass
class Day:
    """The institute and its jobs by name."""

    place: Institute
    jobs: dict[str, Job]

    def job(self, name: str) -> Job:
        job = self.jobs[name]
        job.refresh_from_db()
        return job


def stand_at(monkeypatch: pytest.MonkeyPatch, instant: datetime) -> None:
    """Let the pages' clock stand at an instant."""
    for module in CLOCKS:
        monkeypatch.setattr(f"{module}.now", lambda: instant)


def play() -> Day:
    """Play it from T0 to NOW, without the invariants, which other tests look after."""
    place = make_institute()
    day = Day(place, {})

    def submit(name, budget, **asked):
        def go(*, at):
            waits_for = tuple(day.jobs[one].pk for one in asked.pop("after", ()))
            day.jobs[name] = place.submit(budget, at, name=name, dependencies=waits_for, **asked)

        return go

    four_hours = {"duration_s": 4 * 3600, "idle": [[0, 900]]}
    arrivals = [
        arrival(
            T0,
            submit(
                "storm", place.petrel, expected_duration_s=4 * 3600, spec={"simulate": four_hours}
            ),
        ),
        arrival(T0, submit("sky", place.auk, lasts=5400)),
        arrival(T0 + HOUR, submit("fold", place.tern, expected_duration_s=3 * 3600)),
        arrival(T0 + 2 * HOUR, submit("flood", place.petrel, gpus=16)),
        arrival(T0 + 2 * HOUR, submit("stars", place.auk, after=["flood"])),
    ]
    go_on(T0, NOW, arrivals)
    return day


def go_on(start: datetime, end: datetime, arrivals: Sequence[Arrival] = ()) -> None:
    """Play a span of time on the virtual clock."""
    for cycle in playing.play(start=start, end=end, arrivals=arrivals):
        assert cycle.status == Cycle.Status.COMMITTED
