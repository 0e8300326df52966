"""A session's time box: when it ends, whether it may be extended, what it costs, parked or not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from allocator import alarms, sessions
from allocator.pages import session_words
from budgets.access import Person, Standing, redacted
from ledger.instants import iso, to_seconds
from ledger.rates import Rates
from ledger.reports import JobCharges
from workloads.models import Extension, Job, Run

if TYPE_CHECKING:
    from allocator.pages.job import Money

HOUR_S = 3600


class Form(Protocol):
    """A form with `more`, in seconds, and a `key`; `problem` is the sentence that refuses it."""

    cleaned_data: dict[str, Any]

    def is_valid(self) -> bool: ...

    @property
    def problem(self) -> str: ...


@dataclass(frozen=True)
class TimeBox:
    """The box of a session that waits or runs; amounts in milli-GPU-seconds.

    ``parked_…`` is what stood idle of the timesteps that are closed, up to ``measured_until``;
    None where no use was measured yet. ``an_hour_mgpus`` is the same, used or parked.
    """

    limit_s: int
    longest_s: int  # extensions included
    ends_at: datetime | None  # None until it starts
    protected_until: datetime | None
    left_s: int
    so_far_mgpus: int
    parked_mgpus: int | None
    parked_gpu_seconds: int | None
    measured_until: datetime | None
    an_hour_mgpus: int | None  # None until it starts; 0 while unfunded
    held_mgpus: int
    rest_mgpus: int | None  # from now to the end of the box
    may_extend: bool
    cannot: str  # why it can't be extended now, whatever is asked for; empty: it may be asked


@dataclass(frozen=True)
class Told:
    """What came of asking for more time, for a reader; `sentence` is empty where it was granted."""

    extension: Extension
    sentence: str


def time_box(
    job: Job,
    run: Run | None,
    money: Money,
    *,
    user: Person,
    held: Standing,
    now: datetime,
) -> TimeBox | None:
    """Return the box of a session that hasn't ended; None for any other job."""
    if not job.session or job.has_ended or job.time_limit_s is None:
        return None
    if run is not None:
        run.job = job
    ends_at = run.box_ends_at if run else None
    measured_until = _measured_until(run, money.charges)
    price = _price(job, run, now, ends_at)
    rule = sessions.state_rule(job, run, now=now)
    cannot = sessions.answer_of(rule, run)
    return TimeBox(
        limit_s=job.time_limit_s,
        longest_s=int(sessions.longest().total_seconds()),
        ends_at=ends_at,
        protected_until=run.protected_until if run else None,
        left_s=max(0, int((ends_at - now).total_seconds())) if ends_at else job.time_limit_s,
        so_far_mgpus=money.so_far_mgpus,
        parked_mgpus=money.parked_mgpus if measured_until else None,
        parked_gpu_seconds=money.charges.parked_gpu_seconds if measured_until else None,
        measured_until=measured_until,
        an_hour_mgpus=price[0],
        held_mgpus=money.held_mgpus,
        rest_mgpus=price[1],
        may_extend=sessions.may_extend(held, user, job),
        cannot=session_words.refusal(rule, cannot.data, now=now) if rule else "",
    )


@dataclass(frozen=True)
class Said:
    """What the page says when somebody asked for more time."""

    is_granted: bool
    sentence: str


def asked(job: Job, user: User, held: Standing, form: Form, *, now: datetime) -> Said:
    """Extend a session as a form asks for it, and say what came of it."""
    if not form.is_valid():
        return Said(False, form.problem)
    more_s, key = form.cleaned_data["more"], form.cleaned_data["key"] or None
    try:
        answer = sessions.extend(job=job, by=user, more_s=more_s, now=now, key=key)
    except sessions.ExtensionKeyReused:
        return Said(False, _("This form was sent before: open the page again to ask for more."))
    if not answer.is_granted or answer.extension is None:
        return Said(False, sentence(answer.rule, answer.data, held, now=now))
    until = answer.extension.asked_until
    return Said(True, session_words.granted(more_s, until, now=now))


def refused(answer: sessions.Answer, held: Standing, *, now: datetime) -> dict[str, Any]:
    """Return the members of the problem object that says why an extension was refused."""
    return {
        "sentence": sentence(answer.rule, answer.data, held, now=now),
        "rule": answer.rule,
        "until": None if answer.until is None else iso(answer.until),
        "most_s": answer.most_s,
    }


def told(job: Job, held: Standing, *, now: datetime) -> list[Told]:
    """Return what was asked for a session's runs, and what came of it, the oldest first."""
    if not job.session:
        return []
    asked = Extension.objects.filter(run__job=job).select_related("asked_by", "run")
    return [Told(one, sentence(one.rule, one.data, held, now=now)) for one in asked]


def sentence(rule: str, data: dict[str, Any], held: Standing, *, now: datetime) -> str:
    """Say why it was refused, as far as the reader may know; nothing where it was granted."""
    return session_words.refusal(rule, redacted(held, data), now=now) if rule else ""


def _measured_until(run: Run | None, charges: JobCharges) -> datetime | None:
    """Until when its cluster has told how much of the present run stood idle."""
    if run is None or alarms.is_open(kind=f"no-telemetry:{run.pool.cluster.slug}"):
        return None
    return max((one.end for one in charges.lines if one.run_number == run.number), default=None)


def _price(
    job: Job, run: Run | None, now: datetime, ends_at: datetime | None
) -> tuple[int | None, int | None]:
    """What an hour costs now, and what is left of the box."""
    if run is None or ends_at is None:
        return None, None
    if not job.funded:
        return 0, 0
    rates, begin = Rates.load(), to_seconds(now)
    rest = rates.price(run.pool_id, begin, max(begin, to_seconds(ends_at)))
    return job.gpus * rates.at(run.pool_id, begin) * HOUR_S, job.gpus * rest
