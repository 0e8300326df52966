"""Deciding on requests, and ending what was given for a time.

A decision and what it writes (transfer entries, or change sets with the grants they move) are one
transaction, under a lock on the request: of two managers at once one decides, and the other is
told who did. Callers ask `budgets.access` first whether someone may, at `place_of_decision`.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from budgets import notices, shares
from budgets.access import Action, holders, leads, named_to
from budgets.models import Budget, Notice, Request
from budgets.notices import name_of
from budgets.one_by_one import Tries
from budgets.periods import active
from budgets.raising import raise_share
from budgets.refusals import Refused, credits
from budgets.requests import checked_reason, link, lock_open, quantity
from clusters.saying import instant
from clusters.saying import say as _
from ledger.figures import Accounts, accounts
from ledger.grants import NOTE_MAX, transfer
from ledger.instants import LedgerError, whole
from ledger.lock import lock_ledger
from ledger.share_changes import apply_change_set

Status, Unit, Decision = Request.Status, Request.Unit, Request.Decision


def place_of_decision(request: Request, source: Budget) -> Budget:
    """Return the budget whose managers may give this: the ancestor, or the siblings' parent.

    Raises Refused where the source is neither; a share comes from the parent or a sibling alone.
    """
    parent = _parent(request)
    if source.parent_id == parent.pk and source.pk != request.budget_id:
        return parent
    above = f"{request.budget.path}/".startswith(f"{source.path}/")
    if above and source.pk != request.budget_id:
        if request.unit == Unit.PERCENT and source.pk != parent.pk:
            raise Refused(
                "source", _("A share of %(parent)s comes from it or a sibling.", parent=parent.path)
            )
        return source
    raise Refused(
        "source",
        _(
            "%(source)s is neither above %(budget)s nor beside it: choose an ancestor's "
            "reserve, or a sibling.",
            source=source.path,
            budget=request.budget.path,
        ),
    )


def place_of_transfer(source: Budget, target: Budget) -> Budget:
    """Return the budget whose managers may move credits: where the two meet in the tree."""
    meet = [one for one in _above(source) if f"{target.path}/".startswith(f"{one.path}/")]
    if not meet:
        raise Refused(
            "to",
            _(
                "%(source)s and %(target)s are in different organisations.",
                source=source.path,
                target=target.path,
            ),
        )
    return meet[0]


@transaction.atomic
def grant_request(
    *,
    request: Request,
    source: Budget,
    given: int | None = None,
    answer: str = "",
    by: User,
    now: datetime,
    base_version: int | None = None,
) -> Request:
    """Grant an open request out of an ancestor's reserve, or out of a sibling.

    `given` is in the request's unit and at most what was asked for, which it is if left out;
    `answer` stands beside what is written, after the request's number; why it was asked for does
    not, since a source's people read that and may not see the request. Credits move by a
    transfer, a share by a change set on the newest version (`base_version`, if given, must be
    it). Raises Refused, StaleBase or LedgerError; then nothing is written.
    """
    now = whole(now, "now")
    found = lock_open(request)
    place_of_decision(found, source)
    given = found.asked if given is None else given
    _check_given(found, source, given, now)
    why = checked_reason(answer, _("why")) if answer.strip() else ""
    note = f"request {found.pk}: {why}" if why else f"request {found.pk}"
    if found.unit == Unit.CREDITS:
        _move(found, source, found.budget, given, by, note, "", now)
    else:
        _raise_share(found, source, given, by, note, base_version, now)
    sibling = source.parent_id == found.budget.parent_id
    found.decision = Decision.SIBLING if sibling else Decision.RESERVE
    found.source, found.given = source, given
    _decide(found, Status.GRANTED, why, by, now)
    _tell_granted(found, now)
    return found


@transaction.atomic
def decline_request(*, request: Request, answer: str, by: User, now: datetime) -> Request:
    """Decline an open request, with a reason."""
    now = whole(now, "now")
    why = checked_reason(answer, _("why not: who asked will read it"))
    found = lock_open(request)
    _decide(found, Status.DECLINED, why, by, now)
    told = _(
        "%(who)s declined %(quantity)s for %(budget)s: %(why)s",
        who=name_of(by),
        quantity=quantity(found),
        budget=found.budget.path,
        why=why,
    )
    _tell_asker(found, told, now)
    return found


def end_due(*, now: datetime) -> list[Request]:
    """End what was given until an instant that has come.

    Of credits what is left goes back to where it came from: at most what was given, and no more
    than is neither spent nor set aside, nor, of a budget with others below it, than is in its
    reserve. A share is set back by the change set that was scheduled with the grant; where a
    later one stood in for it, its managers are told. Raises Stuck, once all others have ended,
    where one can't.
    """
    now = whole(now, "now")
    rows = Request.objects.filter(status=Status.GRANTED, until__lte=now, ended_at=None)
    # Of one instant the lower first: what a program passed on for as long comes back to it first.
    due = sorted(
        (until, -path.count("/"), pk)
        for pk, until, path in rows.values_list("pk", "until", "budget__path")
    )
    tries = Tries(LedgerError)
    found = [
        tries.go(f"Request {pk} can't end", partial(_end, pk, now)) for _until, _depth, pk in due
    ]
    return tries.end([one for one in found if one is not None])


@transaction.atomic
def _end(pk: int, now: datetime) -> Request | None:
    found = Request.objects.select_for_update(of=("self",)).get(pk=pk)
    if found.ended_at is not None:
        return None
    found.ended_at = now
    found.save(update_fields=["ended_at"])
    if found.unit == Unit.CREDITS:
        told = _lapse(found, now)
    elif _was_set_back(found):
        told = _(
            "%(quantity)s for %(budget)s has been set back.",
            quantity=quantity(found, found.given),
            budget=found.budget.path,
        )
    else:
        told = _(
            "%(quantity)s for %(budget)s was to be set back, but a later change set stood in "
            "for that: look at its shares.",
            quantity=quantity(found, found.given),
            budget=found.budget.path,
        )
    people = [*holders(Action.DECIDE_REQUESTS, _parent(found)), found.asked_by]
    _tell(found, people, Notice.Kind.ENDED, told, now)
    return found


def _lapse(found: Request, now: datetime) -> str:
    """Give back what is left of credits; what goes back is said."""
    assert found.source is not None, "what was granted came from somewhere"
    assert found.given is not None, "what was granted is an amount"
    assert found.decided_by is not None, "somebody granted it"
    period = active(now)
    if period is None or found.decided_at is None or found.decided_at < period.starts_at:
        return _(
            "%(quantity)s for %(budget)s ended with their period.",
            quantity=quantity(found, found.given),
            budget=found.budget.path,
        )
    lock_ledger()
    to = _still_there(found.source, now)
    books = accounts(period=period, at=now)
    left = max(0, min(found.given, _free_between(books, found.budget, to)))
    if left > 0:
        note = f"request {found.pk}: given until {found.until:%Y-%m-%d %H:%M} UTC"
        _move(found, found.budget, to, left, found.decided_by, note, ":back", now)
    is_divided = bool(books.tree.children(found.budget.pk, books.at))
    below = (
        _(" What budgets below it have stays there.") if is_divided and left < found.given else ""
    )
    return _(
        "Of %(quantity)s for %(budget)s, %(left)s were left and went back.%(below)s",
        quantity=quantity(found, found.given),
        budget=found.budget.path,
        left=credits(left),
        below=below,
    )


def _free_between(found: Accounts, budget: Budget, to: Budget) -> int:
    """Return what may leave a budget towards another: the least on the way up to where they meet.

    An ancestor takes back even what its own claims leave too little for. What budgets below have
    of it stays there.
    """
    meet = set(found.tree.chain(to.pk, found.at))
    way = [node for node in found.tree.chain(budget.pk, found.at) if node not in meet]
    return min((found.own(budget.pk), *(found.free(node) for node in way)))


def _still_there(source: Budget, now: datetime) -> Budget:
    """Return the source, or the nearest budget above it that is active."""
    nodes = shares.tree(at=now)
    while source.pk not in nodes and source.parent is not None:
        source = source.parent
    return source


def _was_set_back(found: Request) -> bool:
    """Whether shares of the parent changed at the instant at which this was to end."""
    assert found.until is not None, "what ends has an end"
    held = shares.in_force(_parent(found), at=found.until)
    return held is not None and held.effective_at == found.until


def _check_given(found: Request, source: Budget, given: int, now: datetime) -> None:
    if found.until is not None and found.until <= now:
        raise Refused(
            "status",
            _("Request %(request)s was for a time that has passed: decline it.", request=found.pk),
        )
    nodes = shares.tree(at=now)
    for one in (found.budget, source):
        if one.pk not in nodes:
            raise Refused("source", _("%(one)s is archived: re-activate it first.", one=one.path))
    if not 0 < given <= found.asked:
        raise Refused(
            "given", _("Give more than nothing and at most %(quantity)s.", quantity=quantity(found))
        )


def _move(
    found: Request,
    source: Budget,
    target: Budget,
    amount: int,
    by: User,
    note: str,
    which: str,
    now: datetime,
) -> None:
    transfer(
        source=source,
        target=target,
        amount_mgpus=amount,
        author=by,
        note=note[:NOTE_MAX],
        key=f"request:{found.pk}{which}",
        now=now,
    )


def _raise_share(
    found: Request,
    source: Budget,
    given: int,
    by: User,
    note: str,
    base_version: int | None,
    now: datetime,
) -> None:
    made = raise_share(
        budget=found.budget,
        by=given,
        source=source,
        until=found.until,
        reason=note,
        author=by,
        now=now,
        base_version=base_version,
    )
    apply_change_set(change_set=made.now, now=now)
    found.change_set, found.set_back = made.now, made.back


def _decide(found: Request, status: str, answer: str, by: User, now: datetime) -> None:
    found.status, found.answer = status, answer
    found.decided_by, found.decided_at = by, now
    found.save()


def _tell_granted(found: Request, now: datetime) -> None:
    assert found.decided_by is not None, "a decision has an author"
    assert found.source is not None, "what was granted came from somewhere"
    who, what = name_of(found.decided_by), quantity(found, found.given)
    until = _(" until %(until)s", until=instant(found.until)) if found.until else ""
    said = f": {found.answer}" if found.answer else "."
    out_of = named_to(found.asked_by, found.source)
    given = _(
        "%(who)s granted %(what)s for %(budget)s out of %(out_of)s%(until)s%(said)s",
        who=who,
        what=what,
        budget=found.budget.path,
        out_of=out_of,
        until=until,
        said=said,
    )
    _tell_asker(found, given, now)
    if found.decision == Decision.SIBLING:
        for lead in leads(found.source):
            to = named_to(lead, found.budget)
            text = _(
                "%(who)s moved %(what)s from %(source)s to %(to)s%(until)s%(said)s",
                who=who,
                what=what,
                source=found.source.path,
                to=to,
                until=until,
                said=said,
            )
            _tell(found, [lead], Notice.Kind.TRANSFERRED, text, now, found.source)


def _tell_asker(found: Request, text: str, now: datetime) -> None:
    _tell(found, [found.asked_by], Notice.Kind.DECIDED, text, now)


def _tell(
    found: Request,
    people: list[User],
    kind: str,
    text: str,
    now: datetime,
    about: Budget | None = None,
) -> None:
    notices.tell(
        users=people,
        budget=about or found.budget,
        kind=kind,
        text=text,
        key=f"request:{found.pk}:{kind}",
        link=link(found) if about is None else "",
        now=now,
    )


def _above(budget: Budget) -> Iterator[Budget]:
    """Yield a budget and what stands above it."""
    node: Budget | None = budget
    while node is not None:
        yield node
        node = node.parent


def _parent(found: Request) -> Budget:
    assert found.budget.parent is not None, "nobody asks for more for the root"
    return found.budget.parent
