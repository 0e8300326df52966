"""Maintenance windows with what follows from them: each change asks for a replan at once.

Pages, API and commands come here; they ask `budgets.access.may_administer` first.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from allocator import requests
from clusters import windows
from clusters.models import Node, Window

TRIGGER = "drain"


def set_window(*, nodes: Sequence[Node], by: User | None, now: datetime, **asked: Any) -> Window:
    """Set a window; arguments and refusals as `clusters.windows.set_window` has them."""
    with transaction.atomic():
        made = windows.set_window(nodes=nodes, by=by, now=now, **asked)
        requests.replan(TRIGGER)
    return made


def change(*, window: Window, by: User | None, now: datetime, **to: Any) -> Window:
    """Change a window; arguments and refusals as `clusters.windows.change` has them."""
    with transaction.atomic():
        made = windows.change(window=window, by=by, now=now, **to)
        requests.replan(TRIGGER)
    return made


def end_now(*, window: Window, by: User | None, now: datetime, **seen: Any) -> Window:
    """End a window that has begun."""
    with transaction.atomic():
        made = windows.end_now(window=window, by=by, now=now, **seen)
        requests.replan(TRIGGER)
    return made


def call_off(*, window: Window, by: User | None, now: datetime, **seen: Any) -> Window:
    """Call off a window that hasn't begun."""
    with transaction.atomic():
        made = windows.call_off(window=window, by=by, now=now, **seen)
        requests.replan(TRIGGER)
    return made
