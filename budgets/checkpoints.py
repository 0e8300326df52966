"""Checkpoints of a period: written, removed, and whom they spare. The ledger carries them out."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from budgets import access, shares
from budgets.access import Action
from budgets.core.checkpoints import Rule, Step, fault
from budgets.models import Budget, Checkpoint, Exemption, Notice, Period
from budgets.notices import name_of, tell
from budgets.refusals import Refused, check_instant
from budgets.shares import TreeNode
from clusters.saying import clock, joined, state
from clusters.saying import say as _

NOTICE_DAYS = (30, 14, 7)
REASON_MAX = 2000
MOST_SPARED_DAYS = 366


def add_checkpoint(
    *,
    period: Period,
    at: datetime,
    measured: str,
    removed_of: str,
    cumulative: bool,
    steps: Sequence[tuple[int, int]],
    gives_back: bool = False,
    initial_only: bool = False,
    own_plans: bool = True,
    spared_days: int = 0,
    author: User,
    now: datetime,
) -> Checkpoint:
    """Give a period a checkpoint: at an instant, who used too little loses a part.

    `steps` are pairs (below, remove) in thousandths of a percent, the lowest first; the fields are
    those of `budgets.core.checkpoints.Rule`; `initial_only`: of what a budget was granted first,
    whatever it was granted later. Refused unless the instant lies inside the period, and far enough
    from now and from the period's start for the last notice.
    """
    check_instant(at, "at")
    check_instant(now, "now")
    _check_choices(measured, removed_of)
    table = _checked_steps(steps)
    if gives_back and not cumulative:
        raise Refused("gives_back", _("Only what is counted in all is given back: count it so."))
    _check_spared(spared_days)
    _check_instant_of(period, at, now)
    try:
        with transaction.atomic():
            return Checkpoint.objects.create(
                period=period,
                at=at,
                measured=measured,
                removed_of=removed_of,
                cumulative=cumulative,
                gives_back=gives_back,
                initial_only=initial_only,
                own_plans=own_plans,
                spared_days=spared_days,
                steps=[list(step) for step in table],
                author=author,
                created_at=now,
            )
    except IntegrityError:
        raise Refused(
            "at", _("%(period)s has a checkpoint at that instant already.", period=period.name)
        ) from None


def _check_spared(days: int) -> None:
    if not 0 <= days <= MOST_SPARED_DAYS:
        raise Refused(
            "spared_days", _("Spare budgets for 0 to %(most)s days.", most=MOST_SPARED_DAYS)
        )


def _check_choices(measured: str, removed_of: str) -> None:
    if measured not in Checkpoint.Measured.values:
        raise Refused(
            "measured",
            _("Measure against %(choices)s.", choices=" or ".join(Checkpoint.Measured.values)),
        )
    if removed_of not in Checkpoint.RemovedOf.values:
        raise Refused(
            "removed_of",
            _("Remove of %(choices)s.", choices=" or ".join(Checkpoint.RemovedOf.values)),
        )


def _checked_steps(steps: Sequence[tuple[int, int]]) -> list[Step]:
    table = [Step(*step) for step in steps]
    if (wrong := fault(table)) is not None:
        raise Refused("steps", wrong)
    return table


def remove_checkpoint(*, checkpoint: Checkpoint, now: datetime) -> None:
    """Take a checkpoint out of its period, with what was asked about it, before its instant."""
    check_instant(now, "now")
    with transaction.atomic():
        mine = Checkpoint.objects.select_for_update().filter(pk=checkpoint.pk).first()
        if mine is None:
            return
        if mine.done_at or mine.at <= now:
            raise Refused("at", _("The checkpoint is over: what it took can be transferred back."))
        mine.exemptions.all().delete()
        mine.delete()


def rule(checkpoint: Checkpoint) -> Rule:
    """Return what a checkpoint does, for the arithmetic."""
    return Rule(
        measured=checkpoint.measured,
        removed_of=checkpoint.removed_of,
        cumulative=checkpoint.cumulative,
        gives_back=checkpoint.gives_back,
        steps=tuple(Step(*step) for step in checkpoint.steps),
    )


def upcoming(period: Period, *, now: datetime) -> Checkpoint | None:
    """Return the next checkpoint of a period that hasn't been carried out."""
    return all_ahead(period, now=now).first()


def all_ahead(period: Period, *, now: datetime) -> QuerySet[Checkpoint]:
    """Return a period's checkpoints that are still to come, the next first."""
    ahead = period.checkpoints.filter(done_at=None, at__gt=now)
    return ahead.select_related("period", "author").order_by("at")


def told_from(checkpoint: Checkpoint) -> datetime:
    """Return from when leads are told of a checkpoint, and have to reckon with it as it stands."""
    first = checkpoint.at - timedelta(days=max(NOTICE_DAYS))
    return max(first, checkpoint.period.starts_at, checkpoint.created_at)


def projects(checkpoint: Checkpoint, *, now: datetime) -> dict[int, TreeNode]:
    """Return the budgets that a checkpoint looks at, each by itself, by id, in order of path.

    Those that are leaves below another one now, and those that were when it was announced: who
    divides a project afterwards takes nothing out of its sight. What is below those is theirs.
    """
    tree, then = shares.tree(at=now), shares.tree(at=min(now, told_from(checkpoint)))
    whole = {pk for pk, node in tree.items() if node.parent_id and _is_project(then.get(pk))}
    found = {}
    for pk, node in sorted(tree.items(), key=lambda item: item[1].budget.path):
        above = {one.budget.pk for one in shares.path_to_root(tree, pk)} - {pk}
        if pk in whole or (_is_project(node) and not above & whole):
            found[pk] = node
    return found


def by_id(pk: int) -> Checkpoint:
    """Return a checkpoint; refused where there is none."""
    checkpoint = Checkpoint.objects.select_related("period", "author").filter(pk=pk).first()
    if checkpoint is None:
        raise Refused(
            "checkpoint", _("There is no checkpoint %(pk)s: look at those of the period.", pk=pk)
        )
    return checkpoint


def ask_exemption(
    *, checkpoint: Checkpoint, budget: Budget, reason: str, by: User, now: datetime
) -> Exemption:
    """Ask that a checkpoint spare a budget; one question at a time, before the checkpoint."""
    check_instant(now, "now")
    if budget.pk not in projects(checkpoint, now=now):
        raise Refused(
            "budget",
            _("Checkpoints take from projects, and %(budget)s is none.", budget=budget.path),
        )
    _check_open(checkpoint, now)
    try:
        with transaction.atomic():
            asked = Exemption.objects.create(
                checkpoint=checkpoint,
                budget=budget,
                reason=_reason(reason),
                asked_by=by,
                asked_at=now,
            )
            _tell_asked(asked, now)
            return asked
    except IntegrityError:
        raise Refused(
            "checkpoint",
            _("That %(budget)s be spared is asked already, or approved.", budget=budget.path),
        ) from None


def decide_exemption(
    *, exemption: Exemption, approve: bool, reason: str, by: User, now: datetime
) -> Exemption:
    """Approve or decline, with a reason and once, that a checkpoint spare a budget."""
    check_instant(now, "now")
    status = Exemption.Status.APPROVED if approve else Exemption.Status.DECLINED
    with transaction.atomic():
        # The checkpoint's row is what taking back waits for: it sees this decision, or is first.
        _check_open(Checkpoint.objects.select_for_update().get(pk=exemption.checkpoint_id), now)
        asked = Exemption.objects.filter(pk=exemption.pk, status=Exemption.Status.ASKED)
        changed = asked.update(status=status, answer=_reason(reason), decided_by=by, decided_at=now)
        exemption.refresh_from_db()
        if not changed:
            raise Refused(
                "status",
                _(
                    "The exemption is %(status)s already.",
                    status=state(exemption.get_status_display()),
                ),
            )
        _tell_decided(exemption, now)
    return exemption


def address(period: Period) -> str:
    """Return where the checkpoints of a period are shown."""
    return f"/periods/{period.pk}/checkpoints"


def _is_project(node: TreeNode | None) -> bool:
    return node is not None and node.is_leaf and node.parent_id is not None


def _tell_asked(asked: Exemption, now: datetime) -> None:
    budget, by = asked.budget, asked.asked_by
    assert budget.parent is not None, "only projects are spared"
    tell(
        users=access.holders(Action.DECIDE_REQUESTS, budget.parent).exclude(pk=by.pk),
        budget=budget,
        kind=Notice.Kind.ASKED,
        text=_(
            "%(by)s asks that the checkpoint of %(checkpoint)s spare %(budget)s: %(reason)s",
            by=name_of(by),
            checkpoint=_when(asked),
            budget=budget.path,
            reason=asked.reason,
        ),
        key=f"exemption:{asked.pk}:asked",
        link=address(asked.checkpoint.period),
        now=now,
    )


def _tell_decided(decided: Exemption, now: datetime) -> None:
    budget, by = decided.budget, decided.decided_by
    assert by is not None
    words = (
        gettext_noop(
            "The checkpoint of %(checkpoint)s spares %(budget)s, %(by)s decided: %(answer)s"
        )
        if decided.status == Exemption.Status.APPROVED
        else gettext_noop(
            "The checkpoint of %(checkpoint)s does not spare %(budget)s, %(by)s decided: %(answer)s"
        )
    )
    tell(
        users=[one for one in (decided.asked_by, *access.leads(budget)) if one != by],
        budget=budget,
        kind=Notice.Kind.DECIDED,
        text=_(
            words,
            checkpoint=_when(decided),
            budget=budget.path,
            by=name_of(by),
            answer=decided.answer,
        ),
        key=f"exemption:{decided.pk}:decided",
        link=f"/budgets/{budget.path}/plan",
        now=now,
    )


def _when(exemption: Exemption) -> str:
    period = exemption.checkpoint.period
    at = exemption.checkpoint.at.astimezone(ZoneInfo(period.time_zone))
    return joined((clock(at), f" ({period.time_zone})"))


def _check_instant_of(period: Period, at: datetime, now: datetime) -> None:
    if period.status == Period.Status.CLOSED:
        raise Refused(
            "period", _("%(period)s is closed: choose one that isn't.", period=period.name)
        )
    if not period.starts_at < at < period.ends_at:
        raise Refused("at", _("The checkpoint must lie inside %(period)s.", period=period.name))
    if at < max(now, period.starts_at) + timedelta(days=min(NOTICE_DAYS)):
        raise Refused(
            "at",
            _(
                "Give the checkpoint %(notice_days)s days at least, and as many from the start "
                "of %(period)s, so that leads are warned.",
                notice_days=min(NOTICE_DAYS),
                period=period.name,
            ),
        )


def _check_open(checkpoint: Checkpoint, now: datetime) -> None:
    if checkpoint.done_at or checkpoint.at <= now:
        raise Refused("checkpoint", _("The checkpoint is over: ask for a transfer instead."))


def _reason(text: str) -> str:
    if not text.strip():
        raise Refused("reason", _("Give a reason: it stands beside the decision for good."))
    if len(text.strip()) > REASON_MAX:
        raise Refused(
            "reason",
            _("The reason is longer than %(most)s characters: shorten it.", most=REASON_MAX),
        )
    return text.strip()
