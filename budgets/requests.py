"""Requests for more: asked, withdrawn, expired. Deciding on them is `ledger.requests`.

Callers ask `budgets.access` first whether someone may; here is what may be asked for at all.
"""

from datetime import datetime
from functools import partial

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from budgets import notices, shares
from budgets.access import Action, holders
from budgets.models import WHOLE, Budget, Notice, Request
from budgets.notices import name_of
from budgets.one_by_one import Tries
from budgets.refusals import AMOUNT_MAX, Refused, check_instant, credits, percent
from clusters.saying import day, instant, state
from clusters.saying import say as _

Status, Unit = Request.Status, Request.Unit
REASON_MAX = 2000


class AskedAlready(Refused):
    """There is an open request for the same: `open` is that one."""

    def __init__(self, found: Request) -> None:
        self.open = found
        super().__init__(
            "asked",
            _(
                "Request %(request)s of %(asked_by)s asks for %(quantity)s for %(budget)s "
                "already: wait for its answer, or withdraw it and ask again.",
                request=found.pk,
                asked_by=name_of(found.asked_by),
                quantity=quantity(found),
                budget=found.budget.path,
            ),
        )


class DecidedAlready(Refused):
    """The request is not open any more: `request` is as it is now."""

    def __init__(self, found: Request) -> None:
        self.request = found
        super().__init__("status", _not_open(found))


def ask(
    *,
    budget: Budget,
    unit: str,
    asked: int,
    reason: str,
    until: datetime | None = None,
    by: User,
    now: datetime,
) -> Request:
    """Ask for more for a budget, and tell those who may decide.

    `asked` is in thousandths of a percent of the parent, or in milli-GPU-seconds, as `unit` says;
    `until` is when it is no longer needed, None: never. Raises Refused for the root, a budget that
    is not active, a share that would pass 100 %, an `until` that has passed; AskedAlready.
    """
    check_instant(now, "now")
    _check_date(until, now)
    reason = checked_reason(reason, _("why more is needed"))
    _check_amount(budget, unit, asked, now)
    with transaction.atomic():
        try:
            with transaction.atomic():
                made = Request.objects.create(
                    budget=budget,
                    unit=unit,
                    asked=asked,
                    reason=reason,
                    until=until,
                    asked_by=by,
                    created_at=now,
                )
        except IntegrityError:
            raise AskedAlready(_open(budget, unit)) from None
        _tell_deciders(made, now)
    return made


def withdraw(*, request: Request, by: User, now: datetime) -> Request:
    """Take an open request back; refused, with the decision, once there is one."""
    check_instant(now, "now")
    with transaction.atomic():
        found = lock_open(request)
        _close(found, Status.WITHDRAWN, by=by, now=now)
        text = _(
            "%(by)s withdrew the request for %(quantity)s for %(budget)s.",
            by=name_of(by),
            quantity=quantity(found),
            budget=found.budget.path,
        )
        _tell(found, [*_deciders(found.budget), found.asked_by], Notice.Kind.WITHDRAWN, text, now)
    return found


def expire_due(*, now: datetime) -> list[Request]:
    """Expire the open requests whose date has passed or whose budget is archived.

    Raises Stuck, once all others are, where one can't be.
    """
    check_instant(now, "now")
    active = shares.tree(at=now)
    rows = Request.objects.filter(status=Status.OPEN).order_by("pk")
    due = [
        pk
        for pk, budget_id, until in rows.values_list("pk", "budget_id", "until")
        if budget_id not in active or (until is not None and until <= now)
    ]
    tries = Tries()
    found = [tries.go(f"Request {pk} can't expire", partial(_expire, pk, now)) for pk in due]
    return tries.end([one for one in found if one is not None])


@transaction.atomic
def _expire(pk: int, now: datetime) -> Request | None:
    """Expire one, unless it was decided meanwhile; for ever the same answer."""
    found = Request.objects.select_for_update(of=("self",)).filter(pk=pk).first()
    if found is None or found.status != Status.OPEN:
        return None
    _close(found, Status.EXPIRED, by=None, now=now)
    passed = found.until is not None and found.until <= now
    why = _("its date has passed") if passed else _("the budget is archived")
    text = _(
        "The request for %(quantity)s for %(budget)s expired: %(why)s.",
        quantity=quantity(found),
        budget=found.budget.path,
        why=why,
    )
    _tell(found, [found.asked_by], Notice.Kind.EXPIRED, text, now)
    return found


# --- Shared with ledger.requests -----------------------------------------------------------------


def lock_open(request: Request) -> Request:
    """Lock an open request until the transaction ends; refuse one that was decided meanwhile."""
    found = Request.objects.select_for_update(of=("self",)).get(pk=request.pk)
    if found.status != Status.OPEN:
        raise DecidedAlready(found)
    return found


def quantity(request: Request, amount: int | None = None) -> str:
    """Return what is asked for (or another amount of the same) in words: '5.000 % of orlo'."""
    amount = request.asked if amount is None else amount
    if request.unit == Unit.CREDITS:
        return _("%(amount)s credits", amount=credits(amount))
    parent = request.budget.path.rpartition("/")[0]
    return _("%(share)s of %(parent)s", share=percent(amount), parent=parent)


def checked_reason(reason: str, what: str) -> str:
    """Return a reason without blanks around it; refuse none, and one that is too long."""
    if not reason.strip():
        raise Refused("reason", _("Say %(what)s.", what=what))
    if len(reason) > REASON_MAX or "\0" in reason:
        raise Refused(
            "reason", _("Give a reason of at most %(most)s plain characters.", most=REASON_MAX)
        )
    return reason.strip()


def link(request: Request) -> str:
    """Return the address of its page."""
    return f"/requests/{request.pk}"


def _check_date(until: datetime | None, now: datetime) -> None:
    if until is None:
        return
    check_instant(until, "until")
    if until <= now:
        raise Refused("until", _("That date has passed: give a later one, or none for good."))


def _check_amount(budget: Budget, unit: str, asked: int, now: datetime) -> None:
    if unit not in Unit.values:
        raise Refused(
            "unit",
            _(
                "%(unit)s is no unit: ask for %(units)s.",
                unit=repr(unit),
                units=" or ".join(Unit.values),
            ),
        )
    if budget.parent is None:
        raise Refused(
            "budget",
            _("%(budget)s is the root of the tree: nobody has more to give.", budget=budget.path),
        )
    share = shares.share_of(budget, now)
    if share is None:
        raise Refused(
            "budget", _("%(budget)s is archived: re-activate it first.", budget=budget.path)
        )
    if asked <= 0:
        raise Refused("asked", _("Ask for more than nothing."))
    if unit == Unit.PERCENT and share + asked > WHOLE:
        raise Refused(
            "asked",
            _(
                "%(budget)s has %(share)s of %(parent)s: ask for at most %(most)s more.",
                budget=budget.path,
                share=percent(share),
                parent=budget.parent.path,
                most=percent(WHOLE - share),
            ),
        )
    if unit == Unit.CREDITS and asked > AMOUNT_MAX:
        raise Refused("asked", _("Ask for at most %(most)s credits.", most=credits(AMOUNT_MAX)))


def _open(budget: Budget, unit: str) -> Request:
    rows = Request.objects.select_related("asked_by", "budget")
    return rows.get(budget=budget, unit=unit, status=Status.OPEN)


def _close(found: Request, status: str, *, by: User | None, now: datetime) -> None:
    found.status, found.decided_by, found.decided_at = status, by, now
    found.save(update_fields=["status", "decided_by", "decided_at"])


def _not_open(found: Request) -> str:
    word = state(found.get_status_display())
    if found.decided_by is None or found.decided_at is None:
        return _("Request %(request)s is %(word)s: ask again.", request=found.pk, word=word)
    return _(
        "%(decided_by)s decided first: request %(request)s was %(word)s on %(day)s at "
        "%(time)s UTC.",
        decided_by=name_of(found.decided_by),
        request=found.pk,
        word=word,
        day=day(found.decided_at),
        time=f"{found.decided_at:%H:%M}",
    )


def _deciders(budget: Budget) -> list[User]:
    """Who may decide; where no role says so, the superusers, who may do everything."""
    assert budget.parent is not None, "nobody asks for more for the root"
    found = list(holders(Action.DECIDE_REQUESTS, budget.parent))
    return found or list(User.objects.filter(is_active=True, is_superuser=True))


def _tell_deciders(made: Request, now: datetime) -> None:
    until = _(" until %(until)s", until=instant(made.until)) if made.until else ""
    text = _(
        "%(asked_by)s asks for %(quantity)s for %(budget)s%(until)s: %(reason)s",
        asked_by=name_of(made.asked_by),
        quantity=quantity(made),
        budget=made.budget.path,
        until=until,
        reason=made.reason,
    )
    _tell(made, _deciders(made.budget), Notice.Kind.ASKED, text, now)


def _tell(request: Request, users: list[User], kind: str, text: str, now: datetime) -> None:
    """Tell it to all but whoever did it."""
    doer = request.asked_by_id if kind == Notice.Kind.ASKED else request.decided_by_id
    notices.tell(
        users=[user for user in users if user.pk != doer],
        budget=request.budget,
        kind=kind,
        text=text,
        link=link(request),
        key=f"request:{request.pk}:{kind}",
        now=now,
    )
