"""Telling leads and managers what a checkpoint would take, and what one has taken."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from django.db import transaction
from django.utils.translation import gettext_noop

from budgets import access, checkpoints, periods
from budgets.access import Action
from budgets.checkpoints import NOTICE_DAYS
from budgets.models import Budget, Checkpoint, Notice
from budgets.notices import tell
from budgets.one_by_one import Tries
from budgets.refusals import credits, percent
from clusters.saying import clock, in_english, joined, state
from clusters.saying import say as _
from ledger.instants import LedgerError, to_seconds, whole
from ledger.losses import DAY, Loss, losses

OF = {
    Checkpoint.RemovedOf.PLANNED: gettext_noop("what was planned to date"),
    Checkpoint.RemovedOf.REMAINING: gettext_noop("what remains"),
    Checkpoint.RemovedOf.UNUSED: gettext_noop("what was planned to date and not used"),
}


def announce(*, now: datetime) -> int:
    """Tell who would lose what at the checkpoints ahead; return how many times a budget's leads.

    From 30, 14 and 7 days before each, each once: to a budget's leads what it would lose and what
    use avoids it; to its parent's managers one notice of all budgets below. Worked out anew each
    time; nothing is told of who would lose nothing. After an outage only the newest is told.
    Raises Stuck, once all others are told of, where a checkpoint can't be.
    """
    now, tries = whole(now, "now"), Tries(LedgerError)
    period = periods.active(now)
    ahead = checkpoints.all_ahead(period, now=now) if period else ()
    due = [(one, stage) for one in ahead if (stage := _stage(one, now)) is not None]
    told = 0
    for checkpoint, stage in due:
        what = f"The checkpoint of {when(checkpoint)} can't be told ahead"
        told += tries.go(what, partial(_announce, checkpoint, stage, now)) or 0
    return tries.end(told)


def _announce(checkpoint: Checkpoint, stage: int, now: datetime) -> int:
    found = [loss for loss in losses(checkpoint=checkpoint, now=now) if loss.amount_mgpus]
    start = f"checkpoint:{checkpoint.pk}:{stage}:"
    told = set(Notice.objects.filter(key__startswith=start).values_list("key", flat=True))
    before = _not_counted(checkpoint)
    with transaction.atomic():
        fresh = [loss for loss in found if f"{start}{loss.budget.pk}" not in told]
        for loss in fresh:
            tell(
                users=access.leads(loss.budget),
                budget=loss.budget,
                kind=Notice.Kind.CHECKPOINT,
                text=joined((warning(checkpoint, loss), before)),
                key=f"{start}{loss.budget.pk}",
                link=f"/budgets/{loss.budget.path}/plan",
                now=now,
            )
        for parent, below in _by_parent(found).items():
            key = f"{start}below:{parent.pk}"
            if key not in told:
                text = joined((_would_lose(checkpoint, parent, below), before))
                _tell_managers(parent, Notice.Kind.CHECKPOINT, text, key, checkpoint, now)
    return len(fresh)


def tell_taken(*, checkpoint: Checkpoint, taken: Sequence[Loss], now: datetime) -> None:
    """Tell both sides what a checkpoint moved: the budget's leads, the managers of the reserve."""
    _tell_returned(checkpoint, [loss for loss in taken if loss.back_mgpus], now)
    lost = [loss for loss in taken if loss.amount_mgpus]
    for loss in lost:
        tell(
            users=access.leads(loss.budget),
            budget=loss.budget,
            kind=Notice.Kind.TAKEN,
            text=_lost(checkpoint, loss),
            key=f"taken:{checkpoint.pk}:{loss.budget.pk}",
            now=now,
        )
    for parent, below in _by_parent(lost).items():
        total = sum(loss.amount_mgpus for loss in below)
        text = _(
            "%(total)s credits went back to the reserve of %(parent)s at the checkpoint of "
            "%(checkpoint)s: %(below)s.",
            total=credits(total),
            parent=parent.path,
            checkpoint=when(checkpoint),
            below=_listed(below),
        )
        key = f"taken:{checkpoint.pk}:below:{parent.pk}"
        _tell_managers(parent, Notice.Kind.TAKEN, text, key, checkpoint, now)


def tell_rest(
    *,
    checkpoint: Checkpoint,
    budget: Budget,
    parent: Budget,
    amount_mgpus: int,
    key: str,
    now: datetime,
) -> None:
    """Tell both sides what was taken of what was set aside when a checkpoint was carried out."""
    text = _(
        "%(budget)s lost %(amount_mgpus)s more credits to the reserve of %(parent)s by "
        "the checkpoint of %(checkpoint)s: they were set aside then, and are free now.",
        budget=budget.path,
        amount_mgpus=credits(amount_mgpus),
        parent=parent.path,
        checkpoint=when(checkpoint),
    )
    leads = access.leads(budget)
    tell(users=leads, budget=budget, kind=Notice.Kind.TAKEN, text=text, key=key, now=now)
    _tell_managers(parent, Notice.Kind.TAKEN, text, key, checkpoint, now)


def rest_note(checkpoint: Checkpoint) -> str:
    """Return what the ledger says of a take-back of what was set aside at the checkpoint."""
    at = f"{checkpoint.at:%Y-%m-%dT%H:%MZ}"
    return f"Checkpoint of {at}: due then, but set aside; it is free now."


def note(checkpoint: Checkpoint, loss: Loss) -> str:
    """Return what the ledger says of what a checkpoint moves, for good."""
    if loss.back_mgpus:
        said = in_english(_made_up(loss))
        return f"Checkpoint of {checkpoint.at:%Y-%m-%dT%H:%MZ}: given back, {said}."
    return (
        f"Checkpoint of {checkpoint.at:%Y-%m-%dT%H:%MZ}: "
        f"{in_english(reason(checkpoint, loss))}.{in_english(_kept(loss))}"
    )


def reason(checkpoint: Checkpoint, loss: Loss) -> str:
    """Say which step of the table applies to a budget, with the numbers; it must be one."""
    assert loss.step is not None
    measured = state(checkpoint.get_measured_display())
    removed_of = _(OF[Checkpoint.RemovedOf(checkpoint.removed_of)])
    in_all = _(", in all") if checkpoint.cumulative else ""
    return _(
        "used %(used_mgpus)s of %(measured_mgpus)s %(measured)s, less than %(below)s: "
        "%(remove)s of %(removed_of)s%(in_all)s",
        used_mgpus=credits(loss.used_mgpus),
        measured_mgpus=credits(loss.measured_mgpus),
        measured=measured,
        below=percent(loss.step.below),
        remove=percent(loss.step.remove),
        removed_of=removed_of,
        in_all=in_all,
    )


def warning(checkpoint: Checkpoint, loss: Loss) -> str:
    """Say what a budget would lose as things stand, and what use by when avoids it."""
    text = _(
        "As things stand %(budget)s loses %(amount_mgpus)s credits to the reserve of "
        "%(parent)s at the checkpoint of %(checkpoint)s: %(reason)s. It loses "
        "nothing if %(missing_mgpus)s more are used by then",
        budget=loss.budget.path,
        amount_mgpus=credits(loss.amount_mgpus),
        parent=loss.parent.path,
        checkpoint=when(checkpoint),
        reason=reason(checkpoint, loss),
        missing_mgpus=credits(loss.missing_mgpus),
    )
    parts: list[str] = [text]
    if loss.missing_a_day_mgpus is not None:
        parts.append(_(", %(amount)s a day", amount=credits(loss.missing_a_day_mgpus)))
    parts.append(_("; in the last days it was %(amount)s a day", amount=credits(loss.rate_mgpus)))
    if loss.due_at_rate_mgpus:
        parts.append(_(", at which %(amount)s are lost.", amount=credits(loss.due_at_rate_mgpus)))
    else:
        parts.append(_(", at which nothing is lost."))
    parts += [" ", _("An exemption can be asked for until then."), _kept(loss)]
    return joined(parts)


def _tell_returned(checkpoint: Checkpoint, back: Sequence[Loss], now: datetime) -> None:
    for loss in back:
        tell(
            users=access.leads(loss.budget),
            budget=loss.budget,
            kind=Notice.Kind.TAKEN,
            text=_(
                "%(budget)s got back %(back_mgpus)s credits from the reserve of %(parent)s at "
                "the checkpoint of %(checkpoint)s: %(more)s.",
                budget=loss.budget.path,
                back_mgpus=credits(loss.back_mgpus),
                parent=loss.parent.path,
                checkpoint=when(checkpoint),
                more=_made_up(loss),
            ),
            key=f"returned:{checkpoint.pk}:{loss.budget.pk}",
            now=now,
        )
    for parent, below in _by_parent(back).items():
        total = credits(sum(loss.back_mgpus for loss in below))
        each = _each((loss.budget.slug, loss.back_mgpus) for loss in below)
        text = _(
            "%(total)s credits of the reserve of %(parent)s were given back at the "
            "checkpoint of %(checkpoint)s: %(each)s.",
            total=total,
            parent=parent.path,
            checkpoint=when(checkpoint),
            each=each,
        )
        # Others below it may be given back theirs later, and are told of then.
        key = f"returned:{checkpoint.pk}:below:{parent.pk}:{below[0].budget.pk}"
        _tell_managers(parent, Notice.Kind.TAKEN, text, key, checkpoint, now)


def _made_up(loss: Loss) -> str:
    rest = loss.found.back - loss.back_mgpus
    short = _("; %(rest)s more are not in the reserve", rest=credits(rest)) if rest else ""
    return _(
        "use made up for it: %(used_mgpus)s of %(measured_mgpus)s are used%(short)s",
        used_mgpus=credits(loss.used_mgpus),
        measured_mgpus=credits(loss.measured_mgpus),
        short=short,
    )


def _not_counted(checkpoint: Checkpoint) -> str:
    """Say of a checkpoint after another that what that one will take is not in the amounts."""
    open_ones = checkpoint.period.checkpoints.filter(done_at=None, at__lt=checkpoint.at)
    first = open_ones.select_related("period").order_by("at").first()
    return (
        _(" What the checkpoint of %(first)s takes is not counted yet.", first=when(first))
        if first
        else ""
    )


def _would_lose(checkpoint: Checkpoint, parent: Budget, below: Sequence[Loss]) -> str:
    total = sum(loss.amount_mgpus for loss in below)
    return _(
        "As things stand %(count)s of the budgets of %(parent)s lose %(total)s credits "
        "to its reserve at the checkpoint of %(checkpoint)s: %(below)s.",
        count=len(below),
        parent=parent.path,
        total=credits(total),
        checkpoint=when(checkpoint),
        below=_listed(below),
    )


def _lost(checkpoint: Checkpoint, loss: Loss) -> str:
    return _(
        "%(budget)s lost %(amount_mgpus)s credits to the reserve of %(parent)s at the "
        "checkpoint of %(checkpoint)s: %(reason)s.%(more)s",
        budget=loss.budget.path,
        amount_mgpus=credits(loss.amount_mgpus),
        parent=loss.parent.path,
        checkpoint=when(checkpoint),
        reason=reason(checkpoint, loss),
        more=_kept(loss),
    )


def _kept(loss: Loss) -> str:
    rest = loss.due_mgpus - loss.amount_mgpus
    return _(" %(rest)s more are due, but spent or set aside.", rest=credits(rest)) if rest else ""


def _each(amounts: Iterable[tuple[str, int]]) -> str:
    return joined((joined((slug, " ", credits(amount))) for slug, amount in amounts), ", ")


def _listed(below: Sequence[Loss]) -> str:
    return _each((loss.budget.slug, loss.amount_mgpus) for loss in below)


def _tell_managers(
    parent: Budget, kind: str, text: str, key: str, checkpoint: Checkpoint, now: datetime
) -> None:
    tell(
        users=access.holders(Action.DECIDE_REQUESTS, parent),
        budget=parent,
        kind=kind,
        text=text,
        key=key,
        link=checkpoints.address(checkpoint.period),
        now=now,
    )


def _by_parent(found: Iterable[Loss]) -> dict[Budget, list[Loss]]:
    below: dict[Budget, list[Loss]] = defaultdict(list)
    for loss in found:
        below[loss.parent].append(loss)
    return below


def _stage(checkpoint: Checkpoint, now: datetime) -> int | None:
    """Return which notice is due: the least number of days that is still ahead."""
    left = to_seconds(checkpoint.at) - to_seconds(now)
    return min((days for days in NOTICE_DAYS if left <= days * DAY), default=None)


def when(checkpoint: Checkpoint) -> str:
    """Return a checkpoint's instant on its period's clocks, as people read it."""
    zone = ZoneInfo(checkpoint.period.time_zone)
    return joined((clock(checkpoint.at.astimezone(zone)), f" ({zone.key})"))
