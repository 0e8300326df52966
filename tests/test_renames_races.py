"""Renames at the same moment as other renames, moves and new budgets: one address, one budget."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from django.db import Error, connection

from budgets import places, services, shares, structure
from budgets.models import Budget, FormerName
from budgets.services import Refused
from tests import factories as make

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        "connection.vendor != 'postgresql'", reason="SQLite has one writer at a time"
    ),
]
NOW = make.T0
TREE = {
    "orlo": 0, "orlo/p": 1, "orlo/q": 1, "orlo/p/x": 1, "orlo/p/y": 1, "orlo/q/kea": 1,
    "orlo/p/x/under": 1,
}  # fmt: skip


@pytest.fixture
def tree(transactional_db: Any) -> dict[str, Budget]:
    return make.make_tree(TREE, at=make.LONG_AGO)


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[Budget], list[str]]]:
    """Return a function that does two things at once: what was done, and what was refused why.

    Each waits before it looks whether its slug is free for the other to come as far; where the
    other waits for its locks instead, it goes on alone after half a second.
    """
    check = places.check_free

    def both(*work: Callable[[], Budget]) -> tuple[list[Budget], list[str]]:
        barrier = Barrier(2)

        def meeting(path: str) -> None:
            with suppress(BrokenBarrierError):
                barrier.wait(timeout=0.5)
            check(path)

        for module in (places, structure):
            monkeypatch.setattr(module, "check_free", meeting)
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(_closing, work))
        for module in (places, structure):
            monkeypatch.setattr(module, "check_free", check)
        errors = [one for one in results if isinstance(one, Error)]
        assert errors == []
        refused = [one.sentence for one in results if isinstance(one, Refused)]
        return [one for one in results if isinstance(one, Budget)], refused

    return both


def _closing(work: Callable[[], Budget]) -> object:
    try:
        return work()
    except (Refused, Error) as error:
        return error
    finally:
        connection.close()


def renamer(budget: Budget, slug: str) -> Callable[[], Budget]:
    author = make.someone()
    return lambda: services.rename_budget(budget=budget, slug=slug, author=author, now=NOW)


def mover(budget: Budget, to: Budget) -> Callable[[], Budget]:
    why: dict[str, Any] = {"author": make.someone(), "reason": "race", "now": NOW}
    return lambda: services.move_budget(budget=budget, to=to, share=0, **why)


def creator(parent: Budget, slug: str) -> Callable[[], Budget]:
    why: dict[str, Any] = {"author": make.someone(), "reason": "race", "now": NOW}
    return lambda: services.create_budget(parent=parent, slug=slug, name="New", share=0, **why)


def every_path_is_true() -> None:
    for budget in Budget.objects.select_related("parent"):
        above = f"{budget.parent.path}/" if budget.parent else ""
        assert budget.path == above + budget.slug
    active = shares.tree(at=NOW)
    assert {pk: node.parent_id for pk, node in active.items()} == dict(
        Budget.objects.values_list("pk", "parent_id")
    )


RIVALS = {
    "rename": lambda tree: renamer(tree["orlo/p/y"], "kea"),
    "move": lambda tree: mover(tree["orlo/q/kea"], tree["orlo/p"]),
    "create": lambda tree: creator(tree["orlo/p"], "kea"),
}


@pytest.mark.parametrize("rival", RIVALS)
def test_of_two_that_want_one_address_one_has_it_and_the_other_is_told(
    tree: dict[str, Budget], meet: Any, rival: str
) -> None:
    done, refused = meet(renamer(tree["orlo/p/x"], "kea"), RIVALS[rival](tree))
    assert [one.path for one in done] == ["orlo/p/kea"]
    assert refused == ["There is a budget orlo/p/kea already: choose another slug."]
    every_path_is_true()
    assert FormerName.objects.count() == sum(one.pk in (tree["orlo/p/x"].pk, tree["orlo/p/y"].pk)
                                             for one in done)  # fmt: skip


def test_of_two_renames_of_one_budget_one_is_done(tree: dict[str, Budget], meet: Any) -> None:
    x = tree["orlo/p/x"]
    done, refused = meet(renamer(x, "kea"), renamer(Budget.objects.get(pk=x.pk), "auk"))
    assert refused == [f"It has just been renamed to X ({done[0].path}): look at it there."]
    assert [one.slug for one in FormerName.objects.all()] == ["x"]
    every_path_is_true()


def test_a_rename_and_a_move_of_one_budget_leave_it_at_one_place(
    tree: dict[str, Budget], meet: Any
) -> None:
    x = tree["orlo/p/x"]
    _, refused = meet(renamer(x, "storm"), mover(Budget.objects.get(pk=x.pk), tree["orlo/q"]))
    now = Budget.objects.get(pk=x.pk)
    if refused:  # the move came first
        assert refused == ["It has just been moved to orlo/q/x: look at it there."]
        assert now.path == "orlo/q/x"
    else:
        assert now.path == "orlo/q/storm"
    every_path_is_true()


@pytest.mark.parametrize(
    "rival",
    [
        lambda tree: creator(tree["orlo/p/x"], "nest"),
        lambda tree: creator(tree["orlo/p/x/under"], "nest"),
        lambda tree: mover(tree["orlo/q/kea"], tree["orlo/p/x/under"]),
        lambda tree: mover(tree["orlo/p/x/under"], tree["orlo/q"]),
        lambda tree: renamer(tree["orlo/p/x/under"], "over"),
    ],
)
def test_what_comes_or_goes_below_a_budget_that_is_renamed_has_a_true_path(
    tree: dict[str, Budget], meet: Any, rival: Any
) -> None:
    done, refused = meet(renamer(tree["orlo/p"], "physics"), rival(tree))
    assert (len(done), refused) == (2, [])
    assert Budget.objects.get(pk=tree["orlo/p/x"].pk).path == "orlo/physics/x"
    every_path_is_true()
