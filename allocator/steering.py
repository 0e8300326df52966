"""Steering by shares: a change of the tree, the grants it moves and a replan, in one transaction.

Pages and the API both come here. They ask `budgets.access` first whether someone may.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from allocator import requests
from budgets import checkpoints, decisions, notices, periods
from budgets import services as budgets
from budgets import shares as reads
from budgets.access import Action, holders, leads, named_to
from budgets.models import (
    Budget,
    ChangeSet,
    Checkpoint,
    Decision,
    Notice,
    Period,
    Request,
    Role,
)
from budgets.notices import name_of
from budgets.refusals import credits
from budgets.roles import keeping_an_administrator
from clusters.models import Pool
from clusters.saying import say as _
from ledger import services as ledger
from ledger.models import Entry


def change_shares(
    *,
    parent: Budget,
    shares: Mapping[Budget, int],
    overrides: Mapping[tuple[Budget, Pool], int] | None = None,
    reason: str,
    author: User,
    base_version: int,
    effective_at: datetime | None = None,
    approve_at_once: bool,
    now: datetime,
) -> ChangeSet:
    """Write new shares of all children of a budget: put in force, or only proposed.

    Shares are thousandths of a percent; without `effective_at` they hold from `now` on. Raises
    Refused and StaleBase as `budgets.services.draft_change_set` does; then nothing is written.
    """
    with transaction.atomic():
        change_set = budgets.draft_change_set(
            parent=parent,
            shares=shares,
            overrides=overrides,
            reason=reason,
            author=author,
            base_version=base_version,
            effective_at=effective_at or now,
            now=now,
        )
        if approve_at_once:
            return approve(change_set=change_set, by=author, now=now)
        return budgets.propose(change_set=change_set, now=now)


def approve(
    *, change_set: ChangeSet, by: User, now: datetime, parents: Sequence[Budget] | None = None
) -> ChangeSet:
    """Approve a change set, write the grants of the active period that it moves, and replan.

    `parents` as `budgets.services.approve` has them. Raises what that does; then nothing is
    written, except that a set on an outdated base was marked stale when the other was approved.
    """
    with transaction.atomic():
        placing = budgets.placing_of(change_set)
        if placing is not None:
            with _with_grants(*placing.parents, now=now):
                return budgets.approve(change_set=change_set, by=by, now=now, parents=parents)
        approved = budgets.approve(change_set=change_set, by=by, now=now)
        ledger.apply_change_set(change_set=approved, now=now)
        requests.replan("shares")
    return approved


def change_place(*, author: User, approve_at_once: bool, now: datetime, **asked: Any) -> ChangeSet:
    """Move, archive or re-activate a budget, or only propose it.

    Arguments and refusals as `budgets.services.propose_place` has them; then nothing is written.
    """
    with transaction.atomic():
        change_set = budgets.propose_place(author=author, now=now, **asked)
        if approve_at_once:
            parents = [one for one in (asked["budget"].parent, asked.get("to")) if one is not None]
            return approve(change_set=change_set, by=author, now=now, parents=parents)
    return change_set


def create_budget(*, parent: Budget, now: datetime, **asked: Any) -> Budget:
    """Create a budget, with its grants; arguments and refusals as `budgets.services` has them."""
    with _with_grants(parent, now=now):
        return budgets.create_budget(parent=parent, now=now, **asked)


def archive_budget(*, budget: Budget, now: datetime, **asked: Any) -> Budget:
    """Archive a budget; what its share was still worth goes back."""
    with _with_grants(budget.parent, now=now):
        return budgets.archive_budget(budget=budget, now=now, **asked)


def reactivate_budget(*, budget: Budget, now: datetime, **asked: Any) -> Budget:
    """Put an archived budget back, with grants for the rest of the period."""
    with _with_grants(budget.parent, now=now):
        return budgets.reactivate_budget(budget=budget, now=now, **asked)


def move_budget(*, budget: Budget, to: Budget, now: datetime, **asked: Any) -> Budget:
    """Move a budget with all below it; its grants follow its new share."""
    with _with_grants(budget.parent, to, now=now):
        return budgets.move_budget(budget=budget, to=to, now=now, **asked)


def grant_request(*, request: Request, by: User, now: datetime, **decided: Any) -> Request:
    """Grant a request and replan; arguments and refusals as `ledger.services` has them."""
    with transaction.atomic():
        found = ledger.grant_request(request=request, by=by, now=now, **decided)
        requests.replan("shares")
    return found


def transfer(
    *,
    source: Budget,
    target: Budget,
    amount_mgpus: int,
    reason: str,
    key: str,
    author: User,
    now: datetime,
) -> list[Entry]:
    """Move credits, tell those who lead either budget, and replan; once for a key."""
    with transaction.atomic():
        written = ledger.transfer(
            source=source,
            target=target,
            amount_mgpus=amount_mgpus,
            author=author,
            note=reason,
            key=key,
            now=now,
        )
        who, amount = name_of(author), credits(amount_mgpus)
        for about in (source, target):
            for lead in leads(about).exclude(pk=author.pk):
                # Of two budgets one may know only one's own.
                out_of, into = (named_to(lead, one) for one in (source, target))
                notices.tell(
                    users=[lead],
                    budget=about,
                    kind=Notice.Kind.TRANSFERRED,
                    text=_(
                        "%(who)s moved %(amount)s credits from %(out_of)s to %(into)s: %(reason)s",
                        who=who,
                        amount=amount,
                        out_of=out_of,
                        into=into,
                        reason=reason.strip(),
                    ),
                    key=f"transfer:{key}:{about.pk}",
                    now=now,
                )
        requests.replan("shares")
    return written


def write_by_hand(
    *,
    kind: ledger.Kind,
    budget: Budget,
    amount_mgpus: int,
    reason: str,
    key: str,
    author: User,
    now: datetime,
    of: Period | None = None,
) -> ledger.Written:
    """Grant or adjust by hand, tell who leads the budget and who manages it, replan; once a key."""
    with transaction.atomic():
        written = ledger.write_by_hand(
            kind=kind,
            budget=budget,
            amount_mgpus=amount_mgpus,
            author=author,
            note=reason,
            key=key,
            now=now,
            of=of,
        )
        if not written.anew:
            return written
        notices.tell(
            users=[one for one in _concerned(budget) if one != author],
            budget=budget,
            kind=Notice.Kind.BY_HAND,
            text=_did(
                kind,
                amount_mgpus > 0,
                who=name_of(author),
                amount=credits(abs(amount_mgpus)),
                budget=budget.path,
                note=written.entry.note,
            ),
            key=f"by-hand:{written.entry.pk}",
            now=now,
        )
        requests.replan("shares")
    return written


def _concerned(budget: Budget) -> set[User]:
    """Return who leads a budget, and who decides what it gets from above."""
    above = holders(Action.DECIDE_REQUESTS, budget.parent) if budget.parent else ()
    return {*leads(budget), *above}


def _did(kind: ledger.Kind, up: bool, **values: object) -> str:
    if kind == ledger.Kind.GRANT and up:
        return _("%(who)s granted %(amount)s credits to %(budget)s: %(note)s", **values)
    if kind == ledger.Kind.GRANT:
        return _("%(who)s took back %(amount)s credits from %(budget)s: %(note)s", **values)
    if up:
        return _(
            "%(who)s added %(amount)s credits to what is settled of %(budget)s: %(note)s", **values
        )
    return _(
        "%(who)s gave back %(amount)s credits of what is settled of %(budget)s: %(note)s", **values
    )


PERIODS = {
    "propose": periods.propose_period,
    "approve": periods.approve_period,
    "withdraw": ledger.withdraw_period,
}


def draft_period(*, by: User, now: datetime, **asked: Any) -> Period:
    """Draft a period, and keep who did; arguments and refusals as `budgets.periods` has them."""
    with transaction.atomic():
        made = periods.draft_period(now=now, **asked)
        decisions.on_period(period=made, before="", by=by, now=now)
    return made


def decide_period(*, period: Period, decision: str, by: User, now: datetime) -> Period:
    """Propose, approve or withdraw a period, and keep who did; refusals as these have them."""
    before = period.status
    with transaction.atomic():
        made = PERIODS[decision](period=period)
        decisions.on_period(period=made, before=before, by=by, now=now)
    return made


def remove_checkpoint(*, checkpoint: Checkpoint, by: User, now: datetime) -> None:
    """Take a checkpoint out of its period, and keep who did; refused as `checkpoints` has it."""
    period, at = checkpoint.period, checkpoint.at
    with transaction.atomic():
        checkpoints.remove_checkpoint(checkpoint=checkpoint, now=now)
        decisions.note(
            kind=Decision.Kind.CHECKPOINT,
            subject=period.name,
            before=f"{at:%Y-%m-%d %H:%M} UTC",
            period=period,
            by=by,
            now=now,
        )


def give_role(*, user: User, budget: Budget, kind: str, by: User, now: datetime) -> Role:
    """Give a role in place of the one that a person had there, and keep who did."""
    with keeping_an_administrator():
        before = Role.objects.filter(user=user, budget=budget).first()
        made = budgets.give_role(user=user, budget=budget, kind=kind)
        decisions.on_role(
            user=user, budget=budget, before=before.kind if before else "", by=by, now=now
        )
    return made


def take_role(*, user: User, budget: Budget, by: User, now: datetime) -> bool:
    """Take a person's role in a budget away, and keep who did; False if there was none."""
    with keeping_an_administrator():
        before = Role.objects.filter(user=user, budget=budget).first()
        if before is None:
            return False
        budgets.take_role(user=user, budget=budget)
        decisions.on_role(user=user, budget=budget, before=before.kind, by=by, now=now)
    return True


@contextmanager
def _with_grants(*parents: Budget | None, now: datetime) -> Iterator[None]:
    """Change the tree, then write the grants that the parents' new sets move, and replan."""
    with transaction.atomic():
        yield
        for parent in parents:
            written = reads.in_force(parent, at=now) if parent else None
            if written is not None:
                ledger.apply_change_set(change_set=written, now=now)
        requests.replan("shares")
