"""One cycle: observe → close → snapshot → plan → check → commit → carry out.

The clock is an argument, so that beat, a missed tick and a virtual clock run the same code.
"""

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from allocator import (
    ahead,
    alarms,
    closing,
    committing,
    driving,
    refusals,
    repeating,
    requests,
    snapshot,
    timesteps,
    turning,
)
from allocator.calls import Calls
from allocator.core.check import Violation, check, check_guard
from allocator.core.plan import Result
from allocator.core.problem import ProblemError
from allocator.core.settings import Settings
from allocator.core.solve import solve
from allocator.models import AllocatorState, Cycle
from allocator.packing import pack as pack
from allocator.packing import unpack as unpack
from budgets.one_by_one import Stuck
from clusters import services as clusters
from clusters.models import Cluster
from clusters.saying import instant, say
from ledger import services as ledger
from workloads import services as workloads
from workloads.models import Holding, Run

logger = logging.getLogger(__name__)

CLOCKS_APART = timedelta(minutes=1)  # what machines that keep the time may differ by
ATTEMPTS = 3  # a commit is tried again when another one came between


@dataclass
class _Course:
    """What a cycle has learned before it plans."""

    at: datetime
    trigger: str
    version: int  # the allocator's, before anything was read
    calls: Calls = field(default_factory=Calls)
    closed: list[datetime] = field(default_factory=list)
    refused: dict[int, ledger.HoldResult] = field(default_factory=dict)


def run(*, at: datetime, trigger: str) -> Cycle | None:
    """Run one cycle at an instant; None if another process is running one, or without any GPU.

    A clock that went backwards is held at the last instant that was observed: what is written
    down has happened.
    """
    with requests.single_flight() as alone, alarms.read_once():
        if not alone:
            return None
        begun = requests.state()
        course = _Course(_not_before_observed(at), trigger, begun.version)
        _compare_clocks(at, course.at)
        driving.observe(at=course.at, calls=course.calls)
        _carry_out(course)
        _stop_what_must_end(course)
        _grant_what_takes_effect(course.at)
        course.closed = closing.close_due(at=course.at, calls=course.calls)
        turning.start_due(at=course.at)  # also where no timestep was to be closed
        turning.close_over(at=course.at)
        closing.settle_what_waited(at=course.at)
        course.refused = closing.fund_waiting(at=course.at)
        try:
            cycle = _plan_and_commit(course)
        except snapshot.NothingToPlan:
            cycle = None
        _carry_out(course)
        closing.cover_services(at=course.at)
        AllocatorState.objects.filter(pk=1, handled__lt=begun.requested).update(
            handled=begun.requested
        )
    return cycle


def reason_to_run(*, at: datetime) -> str | None:
    """Why a cycle is due now, or None: a request, the end of a timestep, a period's border, a
    decision left over, a refused job that may be tried again."""
    if requests.is_open():
        return "request"
    if closing.due(at=at):
        return "timestep"
    if turning.is_due(at=at):
        return "period"
    undone = Q(state__in=(Run.State.STARTING, Run.State.STOPPING))
    if Run.objects.filter(undone | driving.UNTOLD, state__in=Run.LIVE).exists():
        return "unfinished"
    again = refusals.next_try()
    if again is not None and again <= at:
        return "retry"
    with requests.single_flight() as alone:
        if alone and driving.observe(at=_not_before_observed(at)):
            return "completion"
    return None


def _not_before_observed(at: datetime) -> datetime:
    observed = [c.observed_until for c in Cluster.objects.all() if c.observed_until is not None]
    return max([at.replace(microsecond=0), *observed])


def _compare_clocks(at: datetime, held: datetime) -> None:
    """A clock that was ahead once stops time until it is reached again: somebody must know."""
    if held - at < CLOCKS_APART:
        alarms.clear(kind="clock", at=held)
        return
    text = say(
        "The clock says %(at)s, but clusters were observed at %(held)s: until then no timestep "
        "ends. Set the clock right.",
        at=instant(at),
        held=instant(held),
    )
    alarms.raise_alarm(kind="clock", text=text, at=held)


def _carry_out(course: _Course) -> None:
    """Carry out what is decided."""
    driving.carry_out(at=course.at, calls=course.calls)


def _stop_what_must_end(course: _Course) -> None:
    """Stop what was cancelled, or lost its node, since the last cycle."""
    at = course.at
    running = Run.objects.filter(state=Run.State.RUNNING).select_related("job")
    cancelled = running.filter(job__cancel_requested_at__isnull=False)
    stopped = [
        workloads.decide_stop(run=run, reason=Run.EndReason.CANCELLED, at=at) for run in cancelled
    ]
    # A cluster may be slow to say that a run has ended with its node.
    there = Holding.objects.filter(node__in=clusters.nodes_down(at=at), ended_at=None)
    lost = running.filter(pk__in=there.values("run"))
    stopped += [
        workloads.decide_stop(run=run, reason=Run.EndReason.NODE_FAILURE, at=at) for run in lost
    ]
    if any(stopped):
        driving.carry_out(at=at, calls=course.calls)


def _grant_what_takes_effect(at: datetime) -> None:
    """Scheduled shares move grants when they take effect; what can't be granted is an alarm."""
    try:
        ledger.apply_due_change_sets(now=at)
    except Stuck as error:
        alarms.raise_for_each(kind="grants", problems=error.problems, at=at)
    else:
        alarms.clear(kind="grants", at=at)


def _plan_and_commit(course: _Course) -> Cycle:
    for _ in range(ATTEMPTS):
        try:
            taken = snapshot.take(at=course.at, version=course.version)
            hint = ahead.hint(taken)
            result = _solve(taken, hint)
        except (ProblemError, SolverFailed) as error:
            return _give_up(course, error)
        violations = check(taken.problem, result.plan)
        violations += check_guard(taken.problem, result.plan, result.construction)
        cycle = _record(course, taken, result, violations)
        cycle.hint = hint
        if violations:
            return _refuse(cycle, violations)
        for kind in ("illegal_plan", "no_plan"):
            alarms.clear(kind=kind, at=course.at)
        if committing.commit(cycle=cycle, taken=taken, result=result, refused=course.refused):
            return cycle
        logger.info("Another cycle was committed after the snapshot of %s: again.", course.at)
        course.version = requests.state().version
    cycle.pk = None  # its number went back with the commit, and may be another's by now
    cycle.status = Cycle.Status.SUPERSEDED
    cycle.save()
    return cycle


class SolverFailed(Exception):
    """The solver stopped with an error of its own."""


def _solve(taken: snapshot.Snapshot, hint: ahead.Hint) -> Result:
    try:
        return solve(
            taken.problem,
            mode="fast",
            seed=repeating.SEED,
            hint=hint,
            settings=Settings(preempted_percent=settings.PREEMPTION_CAP_PERCENT),
        )
    except Exception as error:
        # Whatever it is, what runs must go on, and the ledger be closed at the next tick.
        logger.exception("No plan for %s", taken.problem.name)
        raise SolverFailed(f"{type(error).__name__}: {error}") from error


def _give_up(course: _Course, error: Exception) -> Cycle:
    """No plan: the running grid goes on as it is, and somebody is told."""
    cycle = Cycle.objects.create(
        kind=Cycle.Kind.TICK if course.closed else Cycle.Kind.REPLAN,
        trigger=course.trigger,
        at=course.at,
        timestep=timesteps.floor(course.at),
        status=Cycle.Status.FAILED,
        solver_status=type(error).__name__,
        mode="fast",
        problems=[str(error)],
        snapshot=pack({}),
        plan=pack({}),
    )
    text = say("Cycle %(cycle)s has no plan: %(error)s", cycle=cycle.pk, error=error)
    alarms.raise_alarm(kind="no_plan", text=text, at=course.at, cycle=cycle.pk)
    return cycle


def _record(
    course: _Course, taken: snapshot.Snapshot, result: Result, violations: tuple[Violation, ...]
) -> Cycle:
    """The cycle's row, not saved yet: all that is needed to replay and explain it."""
    return Cycle(
        kind=Cycle.Kind.TICK if course.closed else Cycle.Kind.REPLAN,
        trigger=course.trigger,
        at=course.at,
        timestep=timesteps.floor(course.at),
        status=Cycle.Status.COMMITTED,
        solver_status=str(result.status),
        mode=result.mode,
        objective=result.objective,
        bound=result.bound,
        solve_ms=round(result.seconds * 1000, 3),
        versions=repeating.versions(),
        problems=[*taken.relaxed, *(violation.text for violation in violations)],
        snapshot=pack(taken.problem.to_dict()),
        plan=pack(result.to_dict(taken.problem)),
    )


def _refuse(cycle: Cycle, violations: tuple[Violation, ...]) -> Cycle:
    """An illegal plan is never committed: what runs goes on, and somebody is told."""
    cycle.status = Cycle.Status.ILLEGAL
    cycle.save()
    text = say(
        "Cycle %(cycle)s made an illegal plan: %(error)s",
        cycle=cycle.pk,
        error=violations[0].text,
    )
    alarms.raise_alarm(kind="illegal_plan", text=text, at=cycle.at, cycle=cycle.pk)
    return cycle
