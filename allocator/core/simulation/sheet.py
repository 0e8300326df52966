"""A simulated cluster's jobs as the columns of a problem, kept from plan to plan.

A job is written anew only where something of it changed, or where time itself changes what the
cycle's snapshot would write: every timestep, and when a protection or an expected duration ends.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from .. import contract
from ..columns import KINDS, Columns
from ..compiled.tables import Rows
from ..problem import Kind
from ..weights import RAW_URGENCY
from .world import SimJob, SimRun, World

Named = dict[int, tuple[str, ...]]
URGENCIES = tuple(RAW_URGENCY)
ROOM = 1024
WHOLE, TRUE = 10, 4  # columns of either kind
KIND, GPUS, DURATION, MINIMUM, LEAF, FIRST, REMAINING, PROTECTED, UNTIL, CLASS = range(WHOLE)
FUNDED, DEBUG, RUNNING, AHEAD = range(TRUE)
ANEW = -1  # it must be written whenever it is


class Sheet:
    """Columns by number of the job."""

    def __init__(self, world: World) -> None:
        self.world, self.setup = world, world.setup
        self.names: list[str] = []
        leaves = world.budgets.leaves
        self._budgets = tuple(world.budgets.nodes[leaf].path for leaf in leaves)
        self._place = {leaf: at for at, leaf in enumerate(leaves)}
        self._whole = np.zeros((WHOLE, ROOM), np.int64)
        self._true = np.zeros((TRUE, ROOM), np.bool_)
        self._shielded: Named = {}
        self._barred: Named = {}
        self._drains = False

    def wait_for_drains(self, known: bool) -> None:
        """Whether a window to come holds up what may have to stay for its minimum runtime."""
        if known != self._drains:
            self._drains = known
            self._whole[UNTIL] = ANEW

    def changed(self, job: SimJob) -> None:
        """It came, started or stopped, or is funded in another way."""
        number = job.number
        if number >= len(self.names):
            self._grow(number)
        if not self.names[number]:
            self._enter(job)
        self._whole[UNTIL, number] = ANEW

    def in_order(self, numbers: Sequence[int]) -> Rows:
        """Waiting jobs in the order that counts where their weight and leaf are the same."""
        waiting, now = self.world.waiting, self.world.now

        def place(number: int) -> tuple[int, int]:
            job = waiting[number]
            return -contract.aged(job.gpus, now - job.submitted), number

        return np.array(sorted(numbers, key=place), np.int64)

    def classes(self, numbers: Rows) -> tuple[Rows, Mapping[int, SimJob]]:
        """Which jobs weigh the same, after all are written as they are now; one of each class."""
        world = self.world
        jobs = [world.running.get(n) or world.waiting[n] for n in numbers.tolist()]
        funded = np.array([job.funded for job in jobs], np.bool_)
        stale = self._whole[UNTIL, numbers] < world.now
        stale |= funded != self._true[FUNDED, numbers]
        for at in np.flatnonzero(stale).tolist():
            self._write(jobs[at])
        classes = self._whole[CLASS, numbers]
        return classes, dict(zip(classes.tolist(), jobs, strict=True))

    def columns(self, numbers: Rows, weights: Sequence[float]) -> Columns:
        """The columns of jobs that are written, in an order."""
        whole, true, many = self._whole[:, numbers], self._true[:, numbers], len(numbers)
        listed = numbers.tolist()
        return Columns(
            names=[self.names[n] for n in listed],
            order=np.arange(many),
            kind=whole[KIND],
            gpus=whole[GPUS],
            duration=whole[DURATION],
            arrival=np.zeros(many, np.int64),
            minimum=whole[MINIMUM],
            pools=np.zeros(many, np.int64),
            budget=whole[LEAF],
            funded=true[FUNDED],
            debug=true[DEBUG],
            running=true[RUNNING],
            first=whole[FIRST],
            remaining=whole[REMAINING],
            protected=whole[PROTECTED],
            ahead=true[AHEAD],
            value=np.array(weights, np.float64),
            sets=((),),
            budgets=self._budgets,
            shielded=_by_row(self._shielded, listed),
            barred=_by_row(self._barred, listed),
        )

    def _grow(self, number: int) -> None:
        self.names += [""] * (number + 1 - len(self.names))
        room = self._whole.shape[1]
        if number >= room:
            more = max(room, number + 1 - room)
            self._whole = np.pad(self._whole, ((0, 0), (0, more)))
            self._true = np.pad(self._true, ((0, 0), (0, more)))

    def _enter(self, job: SimJob) -> None:
        """What of it never changes."""
        number, whole = job.number, self._whole
        self.names[number] = job.name
        whole[KIND, number] = KINDS.index(Kind(job.row.kind))
        whole[GPUS, number] = job.gpus
        whole[LEAF, number] = self._place[job.leaf]
        self._true[DEBUG, number] = job.debug

    def _write(self, job: SimJob) -> None:
        """As the cycle's snapshot would write it now, and how long that holds."""
        setup, now, run, number = self.setup, self.world.now, job.run, job.number
        step, into = setup.step_s, now % setup.step_s
        done = job.progress_s + (0 if run is None else now - run.since)
        left = contract.remaining_s(done, job.expected, job.row.time_limit_s, step)
        if self._drains and run is None and job.funded:
            # It may stay that long, however soon it is expected to end: no drain may come first.
            left = max(left, job.minimum_s)
        duration = contract.planned_duration(into_s=into, left_s=left, step_s=step)
        kept = job.minimum_s if job.funded else 0
        minimum = contract.planned_minimum(
            into_s=into, protected_s=kept, duration=duration, step_s=step
        )
        until = min(now - into + step - 1, now + -(into + kept) % step)  # then it touches one more
        remaining = protected = 0
        if run is None:
            until = min(until, now + -(into + left) % step)
        else:
            protected = self._protected(run)
            remaining = max(duration, protected)
            until = min(until, now if done >= job.expected[1] else now + left - 1)
            if run.protected_until > now:
                until = min(until, run.protected_until - 1)
            if job.stopped_by:
                until = min(until, self.world.unchanged_until(job))
        urgency = URGENCIES.index(job.row.urgency)
        whole, true = self._whole, self._true
        whole[DURATION, number] = duration
        whole[MINIMUM, number] = minimum if job.row.resumable else 0
        whole[FIRST, number] = 0 if run is None else run.first
        whole[REMAINING, number], whole[PROTECTED, number] = remaining, protected
        whole[CLASS, number] = (job.leaf * len(URGENCIES) + urgency) * 2 + job.funded
        whole[UNTIL, number] = until
        true[FUNDED, number], true[RUNNING, number] = job.funded, run is not None
        true[AHEAD, number] = run is not None and job.ahead
        self._name(job)

    def _protected(self, run: SimRun) -> int:
        now, step = self.world.now, self.setup.step_s
        if run.protected_until <= now:
            return 0
        return contract.touched(run.protected_until - now + now % step, step)

    def _name(self, job: SimJob) -> None:
        """Who may not stop it."""
        named = job.run is not None and bool(job.stopped_by)
        for kept, names in (
            (self._shielded, self.world.shielded(job) if named else ()),
            (self._barred, self.world.barred(job) if named else ()),
        ):
            if names:
                kept[job.number] = names
            else:
                kept.pop(job.number, None)


def _by_row(named: Named, numbers: Sequence[int]) -> Named:
    if not named:
        return named
    return {row: named[n] for row, n in enumerate(numbers) if n in named}
