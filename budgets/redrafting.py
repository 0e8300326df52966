"""Drafts of periods, written anew: with the shares and the plans that were made for them."""

from collections.abc import Mapping
from copy import copy
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from budgets import period_plans, periods, plans
from budgets.models import Period
from budgets.refusals import Refused, check_instant
from clusters.models import Pool
from clusters.saying import say as _
from clusters.saying import state


def redraft_period(
    *,
    period: Period,
    capacity: Mapping[Pool, int] | None = None,
    author: User,
    now: datetime,
    **changed: Any,
) -> Period:
    """Change a draft: any of `periods.draft_period`'s arguments. Its capacity is planned again.

    Shares that are planned for its start move along, and leads' plans of months or quarters that
    it has no more end, of which they are told. Refused where shares are approved for its start
    already, and for new borders or another zone while checkpoints are made for them.
    """
    check_instant(now, "now")
    with transaction.atomic():
        draft = Period.objects.select_for_update(no_key=True).get(pk=period.pk)
        if draft.status != Period.Status.DRAFT:
            raise Refused(
                "status",
                _(
                    "%(draft)s is %(status)s: only a draft is changed.",
                    draft=draft.name,
                    status=state(draft.get_status_display()),
                ),
            )
        before = copy(draft)
        for field, value in changed.items():
            setattr(draft, field, value.strip() if field == "name" else value)
        periods.check(draft)
        if _borders(draft) != _borders(before):
            _refuse_checkpoints(draft)
            period_plans.move_start(period=before, to=draft.starts_at, now=now)
            plans.end_unfit(before=before, period=draft, author=author, now=now)
        draft.save(update_fields=list(changed))
        periods.plan_capacity(period=draft, capacity=capacity)
    return draft


def _borders(period: Period) -> tuple[datetime, datetime, str]:
    return period.starts_at, period.ends_at, period.time_zone


def _refuse_checkpoints(period: Period) -> None:
    if period.checkpoints.exists():
        raise Refused(
            "starts_at",
            _(
                "%(period)s has checkpoints for its dates and its zone: remove those first.",
                period=period.name,
            ),
        )
