"""What the ledger's bench measures asks as often of twice the tree, runs and charges."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocator.pages import budget, budget_chart, report, tree
from budgets.models import Budget
from ledger import reports
from tests import factories as make
from tests.factories import HOUR, T0
from tests.ledger_world import close
from tests.pages_world import World, granted

pytestmark = pytest.mark.django_db
NOW = T0 + 6 * HOUR + timedelta(minutes=10)
LEAF = "orlo/science/petrel"
# How many each may take at most: more than it does by a few, less than when it read things twice.
MOST = {
    "burn report, root": 20,
    "burn report, leaf": 20,
    "report page, root": 41,
    "report page, leaf": 41,
    "burn-down, root": 29,
    "burn page, root": 50,
    "burn page, leaf": 56,
    "tree page": 34,
}


def reading(world: World, user: Any) -> dict[str, Callable[[], Any]]:
    def burn(path: str) -> Any:
        of = Budget.objects.get(path=path)
        return reports.burn_report(budget=of, start=T0, end=NOW, now=NOW)

    def full(path: str) -> Any:
        return report.page(user, budget=Budget.objects.get(path=path), given={}, now=NOW)

    return {
        "burn report, root": lambda: burn("orlo"),
        "burn report, leaf": lambda: burn(LEAF),
        "report page, root": lambda: full("orlo"),
        "report page, leaf": lambda: full(LEAF),
        "burn-down, root": lambda: budget_chart.burndown(user, path="orlo", now=NOW),
        "burn page, root": lambda: budget.page(user, path="orlo", now=NOW),
        "burn page, leaf": lambda: budget.page(user, path=LEAF, now=NOW),
        "tree page": lambda: tree.page(user, now=NOW),
    }


def asked(calls: dict[str, Callable[[], Any]]) -> dict[str, int]:
    counts = {}
    for name, call in calls.items():
        with CaptureQueriesContext(connection) as caught:
            assert call() is not None
        counts[name] = len(caught)
    return counts


def run(world: World, of: Budget, number: int) -> None:
    """One run that has ended, and one that goes on."""
    for mask, ended_at in ((1 << number, T0 + 2 * HOUR), (2 << number, None)):
        state = "completed" if ended_at else "running"
        make.make_run(make.make_job(of, state=state), {world.nodes[0]: mask}, ended_at=ended_at)


def test_twice_the_budgets_runs_and_charges_take_as_many_queries() -> None:
    world = granted(make.make_tree())
    user = make.make_user("root", is_superuser=True)
    leaves = [world.tree[path] for path in world.tree if path.count("/") == 2]
    science = world.tree["orlo/science"]
    shares = {one: 10_000 for one in leaves if one.parent_id == science.pk}
    make.make_shares(science, shares, at=T0)  # the second version: one is read with its base
    for leaf in leaves:
        run(world, leaf, 0)
    close(6)
    few = asked(reading(world, user))
    assert {name: count for name, count in few.items() if count > MOST[name]} == {}

    shares |= {make.make_budget(parent=science): 5000 for _ in range(len(world.tree))}
    make.make_shares(science, shares, at=T0)
    for number, leaf in enumerate(shares):
        run(world, leaf, number % 4)
    close(6, since=T0 + 3 * HOUR)
    assert asked(reading(world, user)) == few
