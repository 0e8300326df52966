"""What the views of budgets share: who asks, what they may, and how a refusal is answered."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from django.contrib.auth.models import User
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request

from budgets import services
from budgets.access import Action, standing
from budgets.models import Budget
from clusters.saying import say as _
from config.problems import Conflict
from ledger.services import LedgerError


def person(request: Request) -> User:
    return cast(User, request.user)  # every view but the token's wants someone signed in


def require(request: Request, action: Action, budget: Budget) -> None:
    """Answer 403 where someone may see a budget, but not do this there."""
    if not standing(request.user).can(action, budget.path):
        what = str(action).replace("_", " ")
        raise PermissionDenied(
            _(
                "You may see %(budget)s, but not %(what)s there: ask its manager.",
                budget=budget.path,
                what=what,
            )
        )


@contextmanager
def answered() -> Iterator[None]:
    """Turn what the domain refuses into problem objects."""
    try:
        yield
    except services.StaleBase as stale:
        raise Conflict(str(stale), theirs_version=stale.theirs, mine_version=stale.mine) from stale
    except LedgerError as error:
        raise ValidationError({"shares": [str(error)]}) from error
