"""Starting and closing periods, and applying what takes effect in them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from budgets.models import Period
from budgets.one_by_one import Tries
from clusters.saying import say as _
from clusters.saying import state
from ledger.carry_over import carried
from ledger.closing_statements import Delivered, write_statement
from ledger.entries import Attempt, hold_entry, write
from ledger.figures import accounts, all_open_holds, closed_until
from ledger.holds import release_all
from ledger.instants import LedgerError, iso, whole
from ledger.lock import lock_ledger
from ledger.membership import Membership
from ledger.models import Entry
from ledger.period_plans import granted_by_shares
from ledger.share_changes import BEGUN, UNDER, apply_change_set, begun_under, waiting
from workloads.models import Holding, Job

Kind, Status = Entry.Kind, Period.Status
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class PeriodStart:
    """What starting a period wrote, in milli-GPU-seconds by budget id.

    ``moved`` are the attempts whose holds go on into it; ``unfunded`` those that it has no
    credits for: they have no hold any more.
    """

    granted: dict[int, int] = field(default_factory=dict)
    carried: dict[int, int] = field(default_factory=dict)
    moved: list[Attempt] = field(default_factory=list)
    unfunded: list[Attempt] = field(default_factory=list)


class NotChargedYet(LedgerError):
    """What a period cost isn't known yet: its last timesteps are still to be closed."""


@transaction.atomic
def start_period(*, period: Period, at: datetime, author: User | None = None) -> PeriodStart:
    """Start an approved period: write its grants and carry-over, move open holds into it.

    Grant = effective share at its start × planned GPU-seconds × rate, per pool, rounded down.
    What was set aside in the period before is set aside again here, by job id, as far as it is
    spendable. Raises LedgerError (nothing is written) for a period that isn't approved, lasts no
    longer or not yet, has no planned capacity, comes before one that has started, or carries over
    from one that isn't charged to its end (``NotChargedYet``).
    """
    at = whole(at, "at")
    _check_start(period, at)
    lock_ledger()
    _refuse_an_earlier(period)
    if not Period.objects.filter(pk=period.pk, status=Status.APPROVED).update(status=Status.ACTIVE):
        raise LedgerError(
            _("%(period)s isn't approved: approve it before it is started.", period=period.name)
        )
    period.status = Status.ACTIVE
    previous = before(period)
    tree = Membership.load()
    grants = list(_grants(period, author, at))
    carried = list(_carry_over(period, previous, tree, author, at))
    write([*grants, *carried, *_moved_with_it(period, tree, author, at)])
    moved, unfunded = _move_holds(previous, period, at) if previous else ([], [])
    for change_set in waiting(period=period, until=at):
        if change_set.effective_at > period.starts_at:
            apply_change_set(change_set=change_set, now=at)
    return PeriodStart(_by_budget(grants), _by_budget(carried), moved, unfunded)


@transaction.atomic
def withdraw_period(*, period: Period) -> Period:
    """Make a draft again of a period that was proposed or approved and has not begun to count."""
    lock_ledger()
    if Entry.objects.filter(period=period).exists():
        raise LedgerError(
            _("%(period)s has entries: it stays, and is closed at its end.", period=period.name)
        )
    open_ones = (Status.PROPOSED, Status.APPROVED)
    row = Period.objects.filter(pk=period.pk, status__in=open_ones)
    changed = row.update(status=Status.DRAFT)
    period.refresh_from_db()
    if not changed:
        raise LedgerError(
            _(
                "%(period)s is %(status)s: only what has not started goes back.",
                period=period.name,
                status=state(period.get_status_display()),
            )
        )
    return period


@transaction.atomic
def close_period(
    *, period: Period, at: datetime, delivered: Mapping[int, Delivered] | None = None
) -> list[Attempt]:
    """Close an active period that is over and charged to its end; from then on it is as it is.

    Its statement is written with it; ``delivered`` is what each budget was owed and got, by id,
    where somebody measured that. Returns the attempts that no period took over: what was set
    aside for them is given back, so nobody pays for them any more.
    """
    at = whole(at, "at")
    if at < period.ends_at:
        raise LedgerError(
            _(
                "%(period)s ends at %(ends_at)s: close it then.",
                period=period.name,
                ends_at=iso(period.ends_at),
            )
        )
    lock_ledger()
    _refuse_uncharged(period)
    row = Period.objects.filter(pk=period.pk, status=Status.ACTIVE)
    if not row.select_for_update(no_key=True).values_list("pk"):
        raise LedgerError(
            _("%(period)s isn't active: only an active period is closed.", period=period.name)
        )
    left = all_open_holds(period=period)
    jobs = Job.objects.filter(pk__in={mine.job_id for mine in left})
    budgets = dict(jobs.values_list("pk", "budget_id"))
    last = period.ends_at - SECOND
    release_all(left, budgets, f"closed:{period.pk}", at=last, now=at)
    write_statement(period=period, delivered=delivered, now=at)
    # Last, since the database takes no entry of a closed period.
    row.update(status=Status.CLOSED)
    period.status = Status.CLOSED
    return sorted(left)


def apply_due_change_sets(*, now: datetime) -> list[Entry]:
    """Apply every approved change set that has taken effect in an active period.

    One that is over and not closed yet counts too: after an outage its own sets still move it.
    Raises Stuck, once all others are applied, where one can't be.
    """
    now, tries = whole(now, "now"), Tries(LedgerError)
    begun = Period.objects.filter(status=Status.ACTIVE, starts_at__lte=now).order_by("starts_at")
    written: list[Entry] = []
    for period in begun:
        at = min(now, period.ends_at - SECOND)
        for one in waiting(period=period, until=at):
            what = f"Version {one.version} of the shares of {one.parent.path} moves no grants"
            act = partial(apply_change_set, change_set=one, now=at)
            written += tries.go(what, act) or ()
    return tries.end(written)


def _check_start(period: Period, at: datetime) -> None:
    if at < period.starts_at:
        raise LedgerError(
            _(
                "%(period)s starts at %(starts_at)s: start it then.",
                period=period.name,
                starts_at=iso(period.starts_at),
            )
        )
    if at >= period.ends_at:
        raise LedgerError(
            _(
                "%(period)s ended at %(ends_at)s: draft a later one.",
                period=period.name,
                ends_at=iso(period.ends_at),
            )
        )
    if not period.capacities.exists():
        raise LedgerError(
            _(
                "%(period)s has no planned capacity: plan it before it is started.",
                period=period.name,
            )
        )


def _refuse_an_earlier(period: Period) -> None:
    """Its grants would come out of what a later period has taken over already."""
    started = Period.objects.filter(status__in=(Status.ACTIVE, Status.CLOSED))
    later = started.filter(starts_at__gt=period.starts_at).order_by("starts_at").first()
    if later is not None:
        raise LedgerError(
            _(
                "%(period)s can't start any more, since %(later)s has started after it: "
                "withdraw it.",
                period=period.name,
                later=later.name,
            )
        )


def before(period: Period) -> Period | None:
    """Return the period whose unspent credits and open holds this one takes over."""
    started = Period.objects.filter(status__in=(Status.ACTIVE, Status.CLOSED))
    return started.filter(ends_at__lte=period.starts_at).order_by("-ends_at").first()


def _grants(period: Period, author: User | None, now: datetime) -> Iterator[Entry]:
    for (pool_id, budget_id), amount in granted_by_shares(period=period).items():
        key = f"grant:{period.pk}:{budget_id}:{pool_id}"
        entry = _entry(Kind.GRANT, budget_id, period, amount, key, author, now)
        entry.pool_id = pool_id
        yield entry


def _carry_over(
    period: Period,
    previous: Period | None,
    tree: Membership,
    author: User | None,
    now: datetime,
) -> Iterator[Entry]:
    """Yield what each budget takes along from the period before."""
    if previous is None or not period.carry_over_cap:
        return
    _refuse_uncharged(previous)
    for budget_id, amount in carried(period=period, previous=previous, tree=tree).items():
        key = f"carry:{period.pk}:{budget_id}"
        yield _entry(Kind.CARRY, budget_id, period, amount, key, author, now)


def _moved_with_it(
    period: Period, tree: Membership, author: User | None, now: datetime
) -> Iterator[Entry]:
    """Yield a mark for each budget that has moved by the period's first second, not before it."""
    for budget_id, parent_id in begun_under(period, tree).items():
        key = f"{BEGUN}{period.pk}:{budget_id}:{UNDER}:{parent_id}"
        yield _entry(Kind.GRANT, budget_id, period, 0, key, author, now)


def _refuse_uncharged(period: Period) -> None:
    until = closed_until()
    if until is not None and until >= period.ends_at:
        return
    held = Holding.objects.filter(started_at__lt=period.ends_at)
    if until is not None:
        held = held.filter(ended_at=None) | held.filter(ended_at__gt=until)
    if held.exists():
        raise NotChargedYet(
            _(
                "%(period)s isn't charged to its end: close its timesteps up to %(ends_at)s first.",
                period=period.name,
                ends_at=iso(period.ends_at),
            )
        )


def _move_holds(
    previous: Period, period: Period, now: datetime
) -> tuple[list[Attempt], list[Attempt]]:
    """Release what is set aside in the period before; set it aside in this one where it fits."""
    left = all_open_holds(period=previous)
    asked = {mine.job_id for mine in left}
    old = accounts(period=previous, at=period.starts_at, jobs=asked)
    new = accounts(period=period, at=period.starts_at)
    jobs = Job.objects.in_bulk({mine.job_id for mine in left})
    moved, unfunded, entries = [], [], []
    for mine, by_period in sorted(left.items()):
        amount = max(0, by_period[previous.pk] - old.running[mine])
        if not amount:
            continue
        budget_id, tail = jobs[mine.job_id].budget_id, f"{mine.job_id}:{mine.number}"
        place = (mine, budget_id)
        last = period.starts_at - SECOND
        key = f"release:{tail}:into:{period.pk}"
        entries.append(hold_entry(Kind.RELEASE, *place, previous.pk, amount, key, at=last, now=now))
        if amount > new.spendable(budget_id):
            unfunded.append(mine)
            continue
        new.set_aside(budget_id, amount)
        moved.append(mine)
        key, at = f"hold:{tail}:into:{period.pk}", period.starts_at
        entries.append(hold_entry(Kind.HOLD, *place, period.pk, amount, key, at=at, now=now))
    write(entries)
    return moved, unfunded


def _by_budget(entries: list[Entry]) -> dict[int, int]:
    total: dict[int, int] = defaultdict(int)
    for entry in entries:
        total[entry.budget_id] += entry.amount_mgpus
    return dict(total)


def _entry(
    kind: Entry.Kind,
    budget_id: int,
    period: Period,
    amount: int,
    key: str,
    author: User | None,
    now: datetime,
) -> Entry:
    return Entry(
        kind=kind,
        budget_id=budget_id,
        period_id=period.pk,
        at=period.starts_at,
        amount_mgpus=amount,
        author=author,
        key=key,
        created_at=now,
    )
