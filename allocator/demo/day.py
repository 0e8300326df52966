"""Plays the institute's day with the real cycle, or catches up what was missed since."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial

from django.contrib.auth.models import User

from allocator import admission, cycle, playing, session_warnings, sessions, steering
from allocator.demo import institute, people, work
from allocator.demo.institute import Institute
from allocator.models import Cycle
from budgets import services as budgets
from budgets import shares as reads
from budgets.models import Budget, ChangeSet, Notice
from clusters.models import Pool
from forecasting import retraining
from ledger import reports
from ledger import services as ledger
from ledger.models import Entry
from workloads.models import Job, Run

Happening = Callable[[datetime], object]
HOUR_S = 3600
LEFT_TO_ANVIL = 60 * 3600 * 1000  # 60 credits, in milli-GPU-seconds


def play(place: Institute, *, now: datetime) -> Iterator[Cycle]:
    """Run the cycles that are due up to ``now``, and yield each.

    A day that was broken off goes on where it stopped: submissions have keys, so what was
    submitted already is not submitted again. After the day, missed timesteps are caught up.
    """
    place.cluster.refresh_from_db()
    reached = place.cluster.observed_until or place.start
    if reached < place.end:
        with playing.quietly():
            arrivals = [a for a in happenings(place) if a.at >= reached]
            for one in playing.play(start=reached, end=place.end, arrivals=arrivals):
                _at_their_desks(one.at)
                yield one
        retraining.retrain_all(now=place.end)  # as beat does by night
        return
    if now <= reached:  # nothing was missed, and a cycle of the past would find the clock behind
        return
    _start_quarters(place, now)
    made = cycle.run(at=now, trigger="catch-up")
    if made is not None:
        yield made


def happenings(place: Institute) -> list[playing.Arrival]:
    """Submissions, cancellations, a transfer and a proposal, in order of time."""
    found = [
        _at(place, 2 * 3600, _edit_shares),
        _at(place, 14 * 3600, _transfer),
        _at(place, 22 * 3600, _propose),
    ]
    _, _, quarter_ends = institute.quarter(place.start)
    if quarter_ends <= place.end:
        begin = partial(_start_quarters, place)
        found.append(playing.Arrival(quarter_ends, begin))
    for ask in work.asks(start=place.start):
        found.append(_at(place, ask.after_s, _submission(ask)))
        if ask.cancelled_after_s is not None:
            found.append(_at(place, ask.after_s + ask.cancelled_after_s, _cancellation(ask)))
    return sorted(found, key=lambda arrival: arrival.at)


def _at_their_desks(at: datetime) -> None:
    """Warn whose session ends, as beat does; who is warned the first time asks for an hour more."""
    if not session_warnings.warn(now=at):
        return
    running = Run.objects.filter(state=Run.State.RUNNING, job__session=True, extensions=None)
    for run in running.select_related("job__submitted_by", "job__budget"):
        if Notice.objects.filter(key__startswith=f"session:{run.pk}:end:").exists():
            job, key = run.job, f"{run.job.idempotency_key}:longer"
            sessions.extend(job=job, by=job.submitted_by, more_s=HOUR_S, now=at, key=key)


def _start_quarters(place: Institute, at: datetime) -> None:
    bo = User.objects.get(username="bo")
    institute.ensure_periods(until=at, since=place.start, author=bo)


def _at(place: Institute, after_s: int, happen: Happening) -> playing.Arrival:
    return playing.Arrival(place.start + timedelta(seconds=after_s), happen)


def _submission(ask: work.Ask) -> Happening:
    path = f"{institute.ROOT}/{ask.project}"

    def submit(at: datetime) -> Job:
        return admission.submit(
            budget=Budget.objects.get(path=path),
            user=User.objects.get(username=ask.by or people.submitter(path)),
            spec=ask.keyed([_known(name).pk for name in ask.waits_for]),
            now=at,
        )

    return submit


def _cancellation(ask: work.Ask) -> Happening:
    def cancel(at: datetime) -> Job:
        job = _known(ask.spec.name)
        return admission.cancel(job=job, by=job.submitted_by, now=at)

    return cancel


def _known(name: str) -> Job:
    return Job.objects.get(idempotency_key=work.key_of(name))


def _edit_shares(at: datetime) -> None:
    """Ines gives Petrel three points of Tern's, from now on."""
    science, ines = Budget.objects.get(path=people.SCIENCE), User.objects.get(username="ines")
    head = reads.head(science)
    if head is not None and head.author == ines:
        return
    changed = institute.draft(
        parent=science,
        changes={"tern": 45_000, "petrel": 35_000},
        author=ines,
        reason="Storm season needs the ensemble",
        now=at,
    )
    steering.approve(change_set=changed, by=ines, now=at)


def _transfer(at: datetime) -> None:
    """Anvil has done most of its work: nearly all that it has left goes to Beacon."""
    anvil = Budget.objects.get(path="orlo/platform/anvil")
    amount = reports.spendable(budget=anvil, now=at) - LEFT_TO_ANVIL
    moved = Entry.objects.filter(kind=Entry.Kind.TRANSFER, budget=anvil).exists()
    if amount > 0 and not moved:
        ledger.transfer(
            source=anvil,
            target=Budget.objects.get(path="orlo/platform/beacon"),
            amount_mgpus=amount,
            author=User.objects.get(username="bo"),
            note="Quantization is done for this quarter, the assistant is not",
            key="demo:anvil-to-beacon",
            now=at,
        )


def _propose(at: datetime) -> None:
    """Marta proposes other shares for tomorrow; nothing changes before they are approved."""
    root = Budget.objects.get(path=institute.ROOT)
    if ChangeSet.objects.filter(parent=root, status=ChangeSet.Status.PROPOSED).exists():
        return
    head = reads.head(root)
    shares = {"language": 40_000, "vision": 18_000, "science": 27_000, "platform": 12_000}
    children = {slug: Budget.objects.get(path=f"{institute.ROOT}/{slug}") for slug in shares}
    drafted = budgets.draft_change_set(
        parent=root,
        shares={children[slug]: share for slug, share in shares.items()},
        overrides={(children["platform"], Pool.objects.get(slug="b200")): 14_000},
        reason="Petrel runs out in storm season, Vision is below its plan and says it will stay "
        "there. Beacon lacks B200 in the evenings.",
        author=User.objects.get(username="marta"),
        base_version=head.version if head else 0,
        effective_at=at.replace(minute=0, second=0) + institute.DAY,
        now=at,
    )
    budgets.propose(change_set=drafted, now=at)
