"""The state of a simulated cluster: jobs, runs on GPUs, funds and meters. It decides nothing."""

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple

from ..contract import EXCHANGE_S, default_minimum_runtime, is_debug
from ..traces import TraceJob
from .fleet import Fleet, block
from .meters import Funds, Meters
from .nodes import Nodes
from .services import Services, SimService
from .setup import Budgets, Setup


class State(StrEnum):
    """Where a job is. `LOST`: it was preempted and can't resume."""

    TO_COME = "to come"
    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    TIMED_OUT = "timed out"
    LOST = "lost"


class Why(Enum):
    """Why a run ended."""

    OVER = 0  # by itself, or it goes on when the span is over
    PREEMPTED = 1
    FAILED = 2  # with a node of its


@dataclass(slots=True, eq=False)
class SimRun:
    """One attempt, on GPUs [first, first + gpus) since an instant."""

    first: int
    since: int
    ends: int
    protected_until: int
    funded: bool
    paid_until: int
    unfunded_from: int | None = None  # since when it is free; None: never


class Ran(NamedTuple):
    """A run that is over: of which job, on GPUs from which on, from when to when.

    It was protected up to an instant, and unfunded from one on (None: never). It ended by itself,
    was preempted, or failed with a node.
    """

    job: int
    first: int
    since: int
    until: int
    preempted: bool
    protected_until: int
    unfunded_from: int | None
    failed: bool = False


@dataclass(slots=True, eq=False)
class SimJob:
    """A job and what has become of it. Seconds; `number` is its place in the trace."""

    number: int
    row: TraceJob
    name: str
    leaf: int
    budget: str
    gpus: int
    work_s: int  # after which it ends
    minimum_s: int
    expected: tuple[int, int]  # p50, p90
    debug: bool
    state: State = State.TO_COME
    funded: bool = False
    held: int = 0  # GPU-seconds set aside for its minimum runtime
    progress_s: int = 0
    first_start: int | None = None
    ended: int | None = None
    preempted: int = 0
    lost_s: int = 0  # seconds of runs that came to nothing
    failed: int = 0  # runs that ended with their node
    attempts: int = 0
    stopped_by: list[tuple[int, str]] = field(default_factory=list)
    stopped_for: dict[int, int] = field(default_factory=dict)  # job's number: when last
    run: SimRun | None = None
    ahead: bool = False  # its run took the place of its own budget's

    @property
    def submitted(self) -> int:
        return self.row.submit_time_s

    @property
    def left_s(self) -> int:
        """Seconds of work left when it waits."""
        return self.work_s - self.progress_s


def make_job(
    number: int, row: TraceJob, setup: Setup, leaf: int, budget: str, error: float
) -> SimJob:
    """What a trace's row asks for here; `error` multiplies the duration that is declared."""
    limit = row.time_limit_s
    p50 = max(1, round(row.duration_s * error))
    p90 = p50 if error == 1.0 else round(1.9 * p50)  # of a log-normal with σ 0.5
    minimum = row.min_runtime_s
    if minimum is None:
        minimum = default_minimum_runtime(p50, setup.default_minimum_s, limit)
    minimum = min(minimum, setup.longest_minimum_s, limit or setup.longest_minimum_s)
    return SimJob(
        number=number,
        row=row,
        name=f"job-{number}",
        leaf=leaf,
        budget=budget,
        gpus=row.block,
        work_s=min(row.duration_s, limit or row.duration_s),
        minimum_s=minimum,
        expected=(p50, p90),
        debug=is_debug(row.block, row.duration_s if limit is None else limit),
    )


class World:
    """Jobs wait, start, stop and end here; every change is counted and keeps its books."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.budgets = Budgets(setup.tree)
        self.meters = Meters(setup, self.budgets)
        self.funds = Funds.of(setup, self.budgets)
        self.fleet = Fleet(setup.nodes)
        self.nodes = Nodes(setup.nodes, setup.events, self.fleet)
        self.services = Services(setup, self.meters, self.funds, self.fleet)
        self.waiting: dict[int, SimJob] = {}
        self.running: dict[int, SimJob] = {}
        self.unfunded_waiting: dict[int, SimJob] = {}  # could be funded if there were credits
        self.preemptions = 0
        self.exchanged: set[int] = set()  # jobs that have changed places with another
        self.ran: list[Ran] = []  # runs that are over, by their ends

    @property
    def now(self) -> int:
        return self.meters.now

    def arrive(self, job: SimJob) -> None:
        """It is submitted, or comes back with its progress: it waits."""
        job.state = State.WAITING
        self.waiting[job.number] = job
        self.meters.waiting_gpus += job.gpus
        self._fund(job)

    def fund_waiting(self) -> list[SimJob]:
        """Try again to fund what waits without credits, oldest first."""
        found: list[SimJob] = []
        if not self.funds.freed:
            return found
        for number in sorted(self.unfunded_waiting):
            job = self.unfunded_waiting[number]
            if job.leaf in self.funds.freed and self._fund(job):
                del self.unfunded_waiting[number]
                found.append(job)
        self.funds.freed.clear()
        return found

    def start(self, job: SimJob, first: int) -> SimRun:
        """It starts now on a block from a GPU on; its minimum runtime is paid for already."""
        now, meters = self.now, self.meters
        del self.waiting[job.number]
        self.unfunded_waiting.pop(job.number, None)
        meters.waiting_gpus -= job.gpus
        self.fleet.take(first, job.gpus)
        protected = now + job.minimum_s if job.funded else now
        free_from = None if job.funded else now
        job.run = SimRun(first, now, now + job.left_s, protected, job.funded, protected, free_from)
        job.state = State.RUNNING
        job.attempts += 1
        if job.first_start is None:
            job.first_start = now
        self.running[job.number] = job
        level = meters.levels[job.leaf]
        if job.funded:
            level.asking -= job.gpus
            level.funded += job.gpus
        else:
            level.unfunded += job.gpus
        job.held = 0
        meters.held_gpus += job.gpus
        return job.run

    def cover(self, job: SimJob, until: int) -> int | None:
        """Set aside what a funded run costs up to an instant; else when it turns unfunded."""
        run = job.run
        assert run is not None
        if run.paid_until >= until:
            return None
        if self.funds.set_aside(job.leaf, job.gpus * (until - run.paid_until)):
            run.paid_until = until
            return None
        return max(self.now, run.paid_until)

    def unfund(self, job: SimJob) -> None:
        """From now on the run is free and not protected."""
        run = job.run
        assert run is not None
        self._settle(job, run)
        level = self.meters.levels[job.leaf]
        level.funded -= job.gpus
        level.unfunded += job.gpus
        run.funded = job.funded = False
        run.unfunded_from = self.now
        run.protected_until = min(run.protected_until, self.now)

    def preempt(self, job: SimJob, by: SimJob | SimService | None) -> None:
        """Stop the run now for a job; what can resume waits with its progress."""
        self.preemptions += 1
        job.preempted += 1
        if by is not None:
            job.stopped_by.append((self.now, by.budget))
            job.stopped_for[by.number] = self.now
            if job.number in by.stopped_for:
                self.exchanged |= {job.number, by.number}
        ran = self._leave(job, Why.PREEMPTED)
        if job.row.resumable:
            job.progress_s += ran
            self.arrive(job)
        else:
            job.lost_s += ran
            job.state, job.ended = State.LOST, self.now

    def end(self, job: SimJob) -> None:
        """Its work is done, or its time limit is reached."""
        job.progress_s += self._leave(job, Why.OVER)
        job.state = State.COMPLETED if job.row.duration_s <= job.work_s else State.TIMED_OUT
        job.ended = self.now

    def fail(self, job: SimJob) -> None:
        """Its node failed: what this run did is lost, and given back; it waits again."""
        run = job.run
        assert run is not None
        paid_until = self.now if run.unfunded_from is None else run.unfunded_from
        if self.setup.refunds:
            self.funds.give_back(job.leaf, job.gpus * (paid_until - run.since))
        job.failed += 1
        job.lost_s += self._leave(job, Why.FAILED)
        self.arrive(job)

    def hit(self, node: int) -> list[SimJob]:
        """The jobs that run on a node, by their numbers."""
        bits = self.fleet.node_bits[node]
        on = (
            job
            for job in self.running.values()
            if job.run is not None and block(job.run.first, job.gpus) & bits
        )
        return sorted(on, key=lambda job: job.number)

    def interruptible(self) -> int:
        """The mask of the GPUs of runs over their protection."""
        found, now = 0, self.now
        for job in self.running.values():
            run = job.run
            assert run is not None
            if run.protected_until <= now:
                found |= block(run.first, job.gpus)
        return found

    def shielded(self, job: SimJob) -> tuple[str, ...]:
        """Budgets whose jobs stopped it lately, and so may not again yet."""
        since = self.now - self.setup.preempted_again_s
        return tuple(sorted({budget for at, budget in job.stopped_by if at > since}))

    def barred(self, job: SimJob) -> tuple[str, ...]:
        """Jobs with which it has changed places lately, and that so may not stop it yet."""
        since = self.now - EXCHANGE_S
        return tuple(
            self.waiting[number].name
            for number, at in sorted(job.stopped_for.items())
            if number in self.waiting
            and min(at, self.waiting[number].stopped_for.get(job.number, since)) > since
        )

    def unchanged_until(self, job: SimJob) -> int:
        """The last second of its run in which who may not stop it is as it is now."""
        if job.number in self.exchanged:
            return self.now  # whom it changed places with may come to wait at any time
        ends = [at + self.setup.preempted_again_s for at, _ in job.stopped_by]
        return min((end - 1 for end in ends if end > self.now), default=self.setup.seconds)

    def runs(self) -> list[Ran]:
        """All runs so far, by their starts; those that go on end now, without being stopped."""
        live = (
            _over(job, job.run, self.now, Why.OVER)
            for job in self.running.values()
            if job.run is not None
        )
        return sorted((*self.ran, *live), key=lambda ran: (ran.since, ran.first, ran.job))

    def _fund(self, job: SimJob) -> bool:
        """Set its minimum runtime aside. One of 0 is unfunded by choice."""
        job.funded = bool(job.minimum_s) and self.funds.set_aside(
            job.leaf, job.minimum_s * job.gpus
        )
        if job.funded:
            job.held = job.minimum_s * job.gpus
            self.meters.levels[job.leaf].asking += job.gpus
        elif job.minimum_s:
            self.unfunded_waiting[job.number] = job
        return job.funded

    def _settle(self, job: SimJob, run: SimRun) -> None:
        """Give back what is set aside beyond now."""
        if run.funded:
            self.funds.give_back(job.leaf, job.gpus * (run.paid_until - self.now))
            run.paid_until = self.now

    def _leave(self, job: SimJob, why: Why) -> int:
        """Its GPUs are free again; how many seconds it ran."""
        run = job.run
        assert run is not None
        self._settle(job, run)
        level = self.meters.levels[job.leaf]
        if run.funded:
            level.funded -= job.gpus
        else:
            level.unfunded -= job.gpus
        self.meters.held_gpus -= job.gpus
        self.fleet.give_back(run.first, job.gpus)
        self.ran.append(_over(job, run, self.now, why))
        del self.running[job.number]
        job.run, job.funded = None, False
        return self.now - run.since


def _over(job: SimJob, run: SimRun, until: int, why: Why) -> Ran:
    return Ran(
        *(job.number, run.first, run.since, until, why == Why.PREEMPTED),
        *(min(run.protected_until, until), run.unfunded_from, why == Why.FAILED),
    )
