"""Asking for a simulation, and taking it back: what is refused, and in which words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from allocator import timesteps
from allocator.core.simulate import POLICIES
from allocator.core.traces import DAY_S
from allocator.models import Simulation
from allocator.simulating import given, history, inputs, trees
from allocator.simulating.running import wake
from allocator.simulating.trees import SharesTree
from budgets import period_plans, services
from budgets import shares as reads
from budgets.access import (
    NOT_HERE,
    Action,
    Person,
    Standing,
    sees_plan,
    simulated_q,
    simulates,
    standing,
)
from budgets.models import Budget, ChangeSet, Period
from budgets.refusals import Refused
from budgets.services import Does
from budgets.shares import Vector

Shares = Simulation.Shares
DAY = timedelta(seconds=DAY_S)
NOT_YOURS = gettext_lazy("Managers of a budget simulate for it: ask one of them, or for that role.")
MOST_DAYS = 62
MOST_JOBS = 20_000
MOST_PLAYED = 6  # policies × trees
MOST_OPEN = 3  # of one person
MOST_TRACE = 900_000  # characters: a body of the API has at most a million bytes


@dataclass(frozen=True)
class Draft:
    """Shares to compare with those of today: one of them; none: today's alone.

    ``vector`` is of the children of ``parent`` from ``at`` on; ``file`` the text of a tree file,
    which is not compared, but stands in for today's.
    """

    change_set: ChangeSet | None = None
    period: Period | None = None
    parent: Budget | None = None
    vector: Vector | None = None
    at: datetime | None = None
    file: str = ""

    @property
    def subject(self) -> Budget | None:
        """Whose children's shares the draft changes."""
        return self.change_set.parent if self.change_set is not None else self.parent


TODAY = Draft()


def last_days(days: int, *, now: datetime) -> tuple[datetime, datetime]:
    """Return the window of so many days up to the timestep that runs."""
    end = timesteps.floor(now)
    return end - days * DAY, end


def ask(
    *,
    by: User,
    now: datetime,
    window: tuple[datetime, datetime] | None = None,
    trace_name: str = "",
    trace: str = "",
    budget: Budget | None = None,
    name: str = "",
    nodes: str = "",
    events: given.Asked = given.NONE,
    draft: Draft = TODAY,
    equal: bool = False,
    policies: Sequence[str] = ("fairshare",),
    seed: int = 0,
) -> Simulation:
    """Keep a simulation of a window of the history, or of a trace, and wake a worker for it.

    `events` befall its nodes; of a history instead of what did. `equal`: a trace's groups have
    equal shares. Raises Refused; PermissionDenied where the person may not simulate for the budget,
    Http404 where they may not see it.
    """
    _check_choice(window, trace, draft, equal)
    _check_length("events", events.text)
    row = Simulation(
        asked_by=by,
        budget=_for_whom(by, budget, draft),
        name=name,
        trace_name=trace_name,
        trace=trace,
        nodes=nodes,
        change_set=draft.change_set,
        period=draft.period,
        policies=_policies(policies),
        seed=seed,
        created_at=now,
    )
    _check_open(by)
    _set_window(row, window, now)
    row.shares, found = _trees(row, draft, equal, now)
    row.trees = {key: tree.to_json() for key, tree in found.items()}
    inputs.check_events(row, events, now=now)
    _check_size(row, now)
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=by.pk)  # who may ask twice at once
        _check_open(by)
        row.save()
        wake()
    return row


def _set_window(row: Simulation, window: tuple[datetime, datetime] | None, now: datetime) -> None:
    if window is not None:
        row.starts_at, row.ends_at = window
        history.check_window(*window, now)


def cancel(*, simulation: Simulation, now: datetime) -> Simulation:
    """End it now: what waits isn't begun, and what runs stops at its worker's next write."""
    still = Simulation.objects.filter(pk=simulation.pk, state__in=Simulation.OPEN)
    if not still.update(state=Simulation.State.CANCELLED, ended_at=now):
        raise Refused("state", _("The simulation is over: there is nothing to cancel."))
    simulation.refresh_from_db()
    return simulation


def find(person: Person, pk: int) -> Simulation:
    """Return a simulation that the person may see; else Http404."""
    seen = Simulation.objects.filter(simulated_q(person))
    related = seen.select_related("asked_by", "budget", "change_set", "period")
    found = (
        related.defer("trace", "events").filter(pk=pk).first()
    )  # asked every other second while it runs
    if found is None:
        raise Http404(_("There is no such simulation, or none that you may see."))
    return found


def may_cancel(person: Person, simulation: Simulation) -> bool:
    """Say whether the person may end it: who asked, or who manages what it is for."""
    own = simulation.asked_by_id == person.pk
    return own or standing(person).can(Action.SIMULATE, simulation.budget.path)


def _for_whom(by: User, budget: Budget | None, draft: Draft) -> Budget:
    """Whoever may propose the draft may simulate it; else who manages the budget."""
    held, subject = standing(by), draft.subject
    chosen = subject or budget or simulates(held)
    if chosen is None:
        raise PermissionDenied(NOT_YOURS)
    if not held.sees(chosen.path):
        raise Http404(NOT_HERE)
    action = Action.SIMULATE if subject is None else Action.PROPOSE_SHARES
    if not held.can(action, chosen.path):
        raise PermissionDenied(NOT_YOURS)
    if draft.period is not None and not may_plan(held, draft.period):
        raise Http404(_("There is no such plan, or none that you may see."))
    return chosen


def may_plan(held: Standing, period: Period) -> bool:
    """Say whether someone may simulate a period's plan: what isn't decided of it, they see."""
    undecided = period_plans.sets_of(period).filter(status__in=period_plans.OPEN)
    return sees_plan(held, undecided)


def _check_choice(
    window: tuple[datetime, datetime] | None, trace: str, draft: Draft, equal: bool
) -> None:
    if (window is None) == (not trace):
        raise Refused("trace", _("Give a window of the history or a trace, one of them."))
    if window is not None and equal:
        raise Refused("shares", _("Equal shares are for a trace's groups: choose others."))
    _check_length("trace", trace)


def _check_length(field: str, text: str) -> None:
    if len(text) > MOST_TRACE:
        raise Refused(
            field,
            _("It has over %(most)s characters: give a shorter part of it.")
            % {"most": f"{MOST_TRACE:,}"},
        )


def _policies(asked: Iterable[str]) -> list[str]:
    found = [policy for policy in POLICIES if policy in asked]
    wrong = sorted(set(asked) - set(POLICIES))
    if wrong or not found:
        words = {"choices": ", ".join(POLICIES)}
        raise Refused("policies", _("Choose one or more of %(choices)s.") % words)
    return found


# --- The shares ----------------------------------------------------------------------------------


def _trees(
    row: Simulation, draft: Draft, equal: bool, now: datetime
) -> tuple[Shares, dict[str, SharesTree]]:
    """The trees to play it under, by name: now, draft, or given."""
    if equal:
        return Shares.EQUAL, {"given": inputs.equal(row)}
    gpus = history.pool_gpus(at=now)
    today = trees.at_instant(now, gpus)
    if draft.file:
        return Shares.FILE, {
            "given": inputs.from_file(draft.file, today, standing(row.asked_by).sees)
        }
    if draft == TODAY:
        return Shares.NOW, {"now": today}
    kind, at, instead = _drafted(draft, now)
    then = trees.at_instant(at, gpus, instead)
    if then.nodes == today.nodes:
        raise Refused(
            "shares", _("The draft is as the shares of today: change a share, then simulate.")
        )
    return kind, {"now": today, "draft": then}


def _drafted(draft: Draft, now: datetime) -> tuple[Shares, datetime, Mapping[int, Vector]]:
    """From when on which parents' children would have which shares."""
    _check_ahead(draft, now)
    if draft.period is not None:
        return Shares.PERIOD, draft.period.starts_at, period_plans.proposed(draft.period)
    if draft.change_set is not None:
        at = max(now, draft.change_set.effective_at)
        return Shares.CHANGE_SET, at, _vectors(draft.change_set, now)
    assert draft.parent is not None, "one of them is given"
    assert draft.vector is not None, "a parent comes with its children's shares"
    return Shares.VECTOR, max(now, draft.at or now), {draft.parent.pk: draft.vector}


def _check_ahead(draft: Draft, now: datetime) -> None:
    """Refuse what is no draft any more: its shares may be of budgets that have gone since."""
    one, period = draft.change_set, draft.period
    if one is not None and not (
        one.status in period_plans.OPEN
        or (one.status == ChangeSet.Status.APPROVED and one.effective_at > now)
    ):
        words = {"number": one.pk, "state": one.get_status_display().lower()}
        raise Refused(
            "change_set",
            _("Change set #%(number)s is %(state)s: draft its shares anew, then simulate.") % words,
        )
    if period is not None and (
        period.status not in period_plans.PLANNABLE or period.starts_at <= now
    ):
        words = {"name": period.name}
        raise Refused("period", _("%(name)s has begun: choose a period to come.") % words)


def _vectors(change_set: ChangeSet, now: datetime) -> Mapping[int, Vector]:
    """What a change set would make of its parent; of a move, also of the parent that is left."""
    placing = services.placing_of(change_set)
    if placing is None:
        return reads.vectors_of([change_set])
    moves = placing.does == Does.MOVE
    return services.foresee_place(
        does=placing.does,
        budget=placing.budget,
        to=placing.parent if moves else None,
        share=placing.share,
        siblings=placing.siblings,
        now=now,
    ).vectors


# --- How large it may be -------------------------------------------------------------------------


def _check_size(row: Simulation, now: datetime) -> None:
    played = len(row.policies) * len(row.trees)
    if played > MOST_PLAYED:
        raise Refused(
            "policies",
            _(
                "That is %(n)s simulations in one, each policy under each shares, and at most "
                "%(most)s go: choose fewer policies."
            )
            % {"n": played, "most": MOST_PLAYED},
        )
    jobs, seconds = _counted(row, now)
    if seconds > MOST_DAYS * DAY_S:
        days = -(-seconds // DAY_S)
        raise Refused(
            "days",
            _("It spans %(days)s days, and at most %(most)s go: choose fewer.")
            % {"days": days, "most": MOST_DAYS},
        )
    check_jobs(jobs)


def check_jobs(jobs: int) -> None:
    """Refuse more jobs than are played, or written, in one."""
    if jobs > MOST_JOBS:
        raise Refused(
            "days",
            _("It has %(n)s jobs, and at most %(most)s go: choose fewer days.")
            % {"n": f"{jobs:,}", "most": f"{MOST_JOBS:,}"},
        )


def _counted(row: Simulation, now: datetime) -> tuple[int, int]:
    """Jobs and seconds, once it is known that they can be played."""
    if row.starts_at is None or row.ends_at is None:
        loaded = inputs.load(row, now=now)
        return len(loaded.trace.rows), loaded.seconds
    inputs.fleet_of(row)
    jobs = history.jobs_of(row.starts_at, row.ends_at).count()
    if not jobs:
        raise Refused("from", _("No job waited or ran in that window: choose another."))
    return jobs, (row.ends_at - row.starts_at) // history.SECOND


def _check_open(by: User) -> None:
    mine = Simulation.objects.filter(asked_by=by, state__in=Simulation.OPEN).count()
    if mine >= MOST_OPEN:
        raise Refused(
            "state",
            _("You have %(n)s simulations that wait or run: cancel one, or wait for it.")
            % {"n": mine},
        )
