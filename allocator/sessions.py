"""Extending a session: more time, protection and credits together, or a reason why not."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError, transaction
from django.db.models import F

from allocator import driving, requests
from allocator.promises import Promise, promises
from budgets.access import Action, Person, Standing
from clusters.saying import say as _
from ledger import further
from ledger import services as ledger
from ledger.entries import Attempt
from ledger.figures import open_holds
from ledger.instants import iso
from ledger.lock import lock_ledger
from workloads import services as workloads
from workloads.models import Extension, Job, Run

MINUTE = timedelta(minutes=1)
TRIES, PAUSE_S = 40, 0.05  # while a cycle writes about the same run
LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL's code
REFUSED_BY = ("job", "node", "binding", "period")  # what stands in the way, by name


@dataclass(frozen=True)
class Answer:
    """What came of asking: granted, or the rule that refuses it with its particulars.

    ``until`` is when the time box may end at most, ``most_s`` how many whole minutes, in seconds,
    may still be asked for. Both are None where no extension is possible at all.
    """

    rule: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    until: datetime | None = None
    most_s: int | None = None
    extension: Extension | None = None

    @property
    def is_granted(self) -> bool:
        return not self.rule


class ExtensionKeyReused(Exception):
    """The idempotency key belongs to another extension, of ``job``."""

    def __init__(self, job_id: int, key: str) -> None:
        self.job_id = job_id
        super().__init__(
            _(
                "Idempotency key %(key)s belongs to another extension, of job %(job_id)s: send "
                "a new key.",
                key=repr(key),
                job_id=job_id,
            )
        )


def may_extend(held: Standing, user: Person, job: Job) -> bool:
    """Say whether somebody may ask: for their own sessions, or for anyone's in what they manage."""
    path = job.budget.path
    own = job.submitted_by_id == user.pk and held.can(Action.EXTEND_OWN, path)
    return own or held.can(Action.EXTEND_ANY, path)


def extend(*, job: Job, by: User, more_s: int, now: datetime, key: str | None = None) -> Answer:
    """Extend a session by some seconds, at once or not at all.

    The same key again answers as the first time, once it was granted. A refusal of one that runs
    is kept in its story. Raises ExtensionKeyReused.
    """
    for _try in range(TRIES):
        run = _live(job)
        ahead = promises(run=run, now=now) if run is not None else []
        try:
            with transaction.atomic():
                answer = _decide(job, by, more_s, key, ahead, now)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
            time.sleep(PAUSE_S)
            continue
        if answer.is_granted and answer.extension is not None:
            _tell_cluster(answer.extension, now)
        return answer
    return Answer("busy")


def state_rule(job: Job, run: Run | None, *, now: datetime) -> str:
    """Return why a job can't be extended whatever is asked for; empty if it may be asked."""
    if not job.session:
        return "no_session"
    if job.has_ended:
        return "ended"
    if job.cancel_requested_at is not None:
        return "cancelled"
    if run is None or run.started_at is None or run.box_ends_at is None:
        return "waits"
    if run.state != Run.State.RUNNING:
        return "stopping"
    if now >= run.box_ends_at:
        return "over"
    if not job.funded or run.holdings.filter(ended_at=None, funded=False).exists():
        return "unfunded"
    if run.protected_until is None or now >= run.protected_until:
        return "unprotected"
    return ""


def longest() -> timedelta:
    """How long a session may last, extensions included."""
    return timedelta(hours=settings.SESSION_MAX_HOURS)


def _live(job: Job, **lock: Any) -> Run | None:
    runs = Run.objects.filter(job=job, state__in=Run.LIVE)
    if lock:
        runs = runs.select_for_update(of=("self",), no_key=True, **lock)
    return runs.select_related("job__budget", "pool__cluster").first()


def _decide(
    job: Job, by: User, more_s: int, key: str | None, ahead: Iterable[Promise], now: datetime
) -> Answer:
    """Under the ledger's lock. Rows of the run and its job are never waited for under it.

    Whoever has them may wait for that lock: a cycle takes both, in either order.
    """
    lock_ledger()
    if key is not None and (known := _known(by, key)) is not None:
        if (known.run.job_id, known.asked_s) != (job.pk, more_s):
            raise ExtensionKeyReused(known.run.job_id, key)
        return Answer(extension=known)
    run = _live(job, nowait=True)
    jobs = Job.objects.select_for_update(of=("self",), no_key=True, nowait=True)
    job = jobs.select_related("budget").get(pk=job.pk)
    rule = state_rule(job, run, now=now)
    if rule:
        return answer_of(rule, run)
    assert run is not None
    assert run.box_ends_at is not None
    assert run.protected_until is not None
    run.job = job
    limits = _limits(run, run.box_ends_at + timedelta(seconds=more_s), ahead, now)
    if limits:
        least = min(limits, key=lambda one: one.start)
        return _refuse(run, by, more_s, least, now)
    return _grant(run, by, more_s, key, now)


def _known(by: User, key: str) -> Extension | None:
    found = Extension.objects.filter(asked_by=by, idempotency_key=key)
    return found.select_related("run").first()


def answer_of(rule: str, run: Run | None) -> Answer:
    """Return the answer of a state in which nothing can be extended."""
    at = None
    if run is not None and rule in ("over", "unprotected"):
        at = run.box_ends_at if rule == "over" else run.protected_until
    return Answer(rule, {} if at is None else {"at": iso(at)})


def _protected(until: datetime, now: datetime) -> datetime:
    """How far protection reaches: a minimum runtime's length from now on, at most."""
    return min(until, now + timedelta(hours=settings.MINIMUM_RUNTIME_MAX_HOURS))


def _limits(run: Run, until: datetime, ahead: Iterable[Promise], now: datetime) -> list[Promise]:
    """All that keeps a session from lasting until then, each with the instant it begins at."""
    assert run.started_at is not None
    assert run.protected_until is not None
    found, bound = [], run.started_at + longest()
    if until > bound:
        found.append(Promise(bound, None, "bound", {"hours": settings.SESSION_MAX_HOURS}))
    protected = _protected(until, now)
    found += [one for one in ahead if one.is_in(run.protected_until, protected)][:1]
    short = further.short_of(run=run, until=protected, now=now)
    if short is not None:
        found.append(Promise(short.until, None, "credits", _lacks(short)))
    short = further.short_beyond(run=run, until=protected, now=now)
    if short is not None:
        name = None if short.period is None else short.period.name
        found.append(Promise(short.until, None, "period", _lacks(short) | {"period": name}))
    return found


def _lacks(short: further.Short) -> dict[str, Any]:
    return {
        "binding": None if short.binding is None else short.binding.path,
        "needed_mgpus": short.needed_mgpus,
        "spendable_mgpus": short.spendable_mgpus,
    }


def _refuse(run: Run, by: User, more_s: int, least: Promise, now: datetime) -> Answer:
    assert run.box_ends_at is not None
    end = run.box_ends_at
    minutes = max(0, (least.start - end) // MINUTE)
    until = end + minutes * MINUTE
    most_s = minutes * 60
    data = least.data | {"until": iso(until), "most_s": most_s}
    made = _kept(run, by, least)
    if made is None:
        made = _write(run, by, more_s, now, rule=least.rule, data=data)
        told = {"rule": least.rule, "extension": made.pk} | data
        workloads.log(run.job, "extension_refused", at=now, run=run, actor=by, **told)
    else:
        Extension.objects.filter(pk=made.pk).update(again=F("again") + 1, again_at=now)
    return Answer(least.rule, data, until, most_s, made)


def _kept(run: Run, by: User, least: Promise) -> Extension | None:
    """Return the refusal that says the same already: to the same person, for the same reason.

    Whoever asks again and again adds to its count, and fills neither the table nor the story. Once
    an extension is granted, or something else stands in the way, a refusal is a new one.
    """
    asked = Extension.objects.filter(run=run)
    granted = asked.filter(rule="").order_by("-pk").values_list("pk", flat=True).first()
    like = asked.filter(asked_by=by, rule=least.rule, pk__gt=granted or 0)
    same = [least.data.get(name) for name in REFUSED_BY]
    return next((one for one in like if [one.data.get(name) for name in REFUSED_BY] == same), None)


def _grant(run: Run, by: User, more_s: int, key: str | None, now: datetime) -> Answer:
    """Time limit, protection and hold move together; the plan is made anew."""
    assert run.box_ends_at is not None
    assert run.protected_until is not None
    mine = Attempt(run.job_id, run.number)
    before = _held(mine)
    end = run.box_ends_at + timedelta(seconds=more_s)
    protected = max(run.protected_until, _protected(end, now))
    uncovered = ledger.cover(runs=[run], start=now, end=protected, now=now)
    assert not uncovered, "looked at under the same lock"
    made = _write(run, by, more_s, now, key=key)
    limit_s = (run.job.time_limit_s or 0) + more_s
    workloads.extend(
        run=run,
        limit_s=limit_s,
        least_s=min(limit_s, settings.MINIMUM_RUNTIME_MAX_HOURS * 3600),
        protected_until=protected,
    )
    workloads.log(
        run.job,
        "extended",
        at=now,
        run=run,
        actor=by,
        more_s=more_s,
        until=iso(end),
        held_mgpus=_held(mine) - before,
    )
    requests.replan("extension")
    return Answer(extension=made)


def _held(mine: Attempt) -> int:
    return sum(open_holds([mine.job_id]).get(mine, {}).values())


def _write(
    run: Run,
    by: User,
    more_s: int,
    now: datetime,
    *,
    key: str | None = None,
    rule: str = "",
    data: dict[str, Any] | None = None,
) -> Extension:
    assert run.box_ends_at is not None
    return Extension.objects.create(
        run=run,
        asked_by=by,
        asked_at=now,
        asked_s=more_s,
        ended_at=run.box_ends_at,
        asked_until=run.box_ends_at + timedelta(seconds=more_s),
        rule=rule,
        data=data or {},
        idempotency_key=key,
    )


def _tell_cluster(made: Extension, now: datetime) -> None:
    """At once, and after the transaction: a cycle may come too late for the cluster's own end."""
    untold = Run.objects.filter(driving.UNTOLD, pk=made.run_id)
    run = untold.select_related("job", "pool__cluster").first()
    if run is not None:
        driving.tell_time_limit(run=run, at=now)
