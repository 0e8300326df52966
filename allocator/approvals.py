"""Deciding on shares: the tree, the grants it moves and a replan, in one transaction."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from allocator import requests
from budgets import services as budgets
from budgets.models import ChangeSet
from ledger import services as ledger


def approve(*, change_set: ChangeSet, by: User, now: datetime) -> ChangeSet:
    """Approve a change set, write the grants of the active period that it moves, and replan.

    Raises what `budgets.services.approve` does; then nothing is written, except that a set on
    an outdated base was marked stale when the other one was approved.
    """
    with transaction.atomic():
        approved = budgets.approve(change_set=change_set, by=by, now=now)
        ledger.apply_change_set(change_set=approved, now=now)
        requests.replan("shares")
    return approved
