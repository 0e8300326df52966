"""Filters and the search find budgets by what they were called, and say so to who may know it."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets import services
from budgets.models import Budget
from budgets.names import Past
from tests import factories as make
from tests.factories import HOUR, T0, make_role, someone
from tests.pages_world import at, client_of, granted, text_of

pytestmark = pytest.mark.django_db
SCIENCE, PETREL, AUK = "orlo/science", "orlo/science/petrel", "orlo/science/auk"
NOW = T0 + timedelta(days=1)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, NOW)


def rename(path: str, slug: str, hours: int, name: str = "") -> Budget:
    words: dict[str, Any] = {"slug": slug, "name": name or slug.title(), "author": someone()}
    budget = Budget.objects.get(path=path)
    return services.rename_budget(budget=budget, now=T0 + hours * HOUR, **words)


def move(path: str, to: str, hours: int, share: int = 0) -> Budget:
    return services.move_budget(
        budget=Budget.objects.get(path=path), to=Budget.objects.get(path=to), share=share,
        author=someone(), reason="x", now=T0 + hours * HOUR,
    )  # fmt: skip


def was(path: str) -> list[tuple[str, str, str]]:
    budget = Budget.objects.get(path=path)
    return [(one.name, one.path, one.said) for one in Past.load().of(budget, known=lambda _: True)]


def found(client: Any, words: str) -> Any:
    return client.get("/search", {"q": words})


# --- What it was ----------------------------------------------------------------------------------


def test_what_never_changed_was_never_called_otherwise(tree: dict[str, Budget]) -> None:
    assert Past.load().changed() == []
    assert was(PETREL) == []


def test_each_name_and_path_once_the_latest_first(tree: dict[str, Budget]) -> None:
    rename(PETREL, "kea", 1)
    rename(SCIENCE, "nature", 2)
    move("orlo/nature/kea", "orlo", 3)
    rename("orlo/kea", "kea", 4, name="Big Kea")
    assert was("orlo/kea") == [
        ("Kea", "orlo/kea", "Kea"),
        ("Kea", "orlo/nature/kea", "Kea, orlo/nature/kea"),
        ("Kea", "orlo/science/kea", "Kea, orlo/science/kea"),
        ("Petrel", PETREL, f"Petrel, {PETREL}"),
    ]
    assert was("orlo/nature/auk") == [("Auk", AUK, AUK)]
    assert was("orlo") == was("orlo/vision") == []


def test_what_it_is_called_again_is_not_former(tree: dict[str, Budget]) -> None:
    rename(PETREL, "kea", 1)
    rename("orlo/science/kea", "petrel", 2)
    assert was(PETREL) == [("Kea", "orlo/science/kea", "Kea, orlo/science/kea")]


def test_what_came_later_had_no_part_in_it(tree: dict[str, Budget]) -> None:
    rename(SCIENCE, "nature", 1)
    services.create_budget(
        parent=Budget.objects.get(path="orlo/nature"), slug="ibis", name="Ibis", share=0,
        author=someone(), reason="x", now=T0 + 2 * HOUR,
    )  # fmt: skip
    assert was("orlo/nature/ibis") == []


def test_there_and_back_below_each_other(tree: dict[str, Budget]) -> None:
    move(AUK, PETREL, 1)
    move(f"{PETREL}/auk", SCIENCE, 2)
    move(PETREL, AUK, 3)
    assert was(f"{AUK}/petrel") == [("Petrel", PETREL, PETREL)]
    assert was(AUK) == [("Auk", f"{PETREL}/auk", f"{PETREL}/auk")]


# --- The search -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["petrel", "Petrel", "science/pet", "ORLO/science/petrel"])
def test_the_search_finds_it_and_says_what_it_was(
    cast: Any, tree: dict[str, Budget], words: str
) -> None:
    rename(PETREL, "kea", 1)
    for who in ("manager", "member"):
        text = text_of(found(client_of(cast[who]), words))
        assert f"Kea orlo/science/kea formerly Petrel, {PETREL}" in text


def test_what_it_is_called_comes_first_and_leads_there(cast: Any, tree: dict[str, Budget]) -> None:
    rename(PETREL, "kea", 1)
    rename(AUK, "petrel", 2)
    client = client_of(cast["manager"])
    page = found(client, "petrel").content.decode()
    assert page.index('href="/budgets/orlo/science/petrel"') < page.index("/science/kea")
    assert found(client, PETREL)["Location"] == f"/budgets/{PETREL}"
    assert found(client, "kea")["Location"] == "/budgets/orlo/science/kea"


def test_nobody_learns_of_a_budget_that_they_may_not_see(
    cast: Any, tree: dict[str, Budget]
) -> None:
    rename(PETREL, "kea", 1)
    for who in ("stranger", "nobody"):
        answer = found(client_of(cast[who]), "petrel")
        assert "kea" not in answer.content.decode()
        assert "Nothing of yours fits" in text_of(answer)


def test_nor_of_one_that_it_stood_below(cast: Any, tree: dict[str, Budget]) -> None:
    """Auk was below a budget of vision's, of which science's people know nothing."""
    services.create_budget(
        parent=tree["orlo/vision"], slug="secret", name="Secret", share=0,
        author=someone(), reason="x", now=T0,
    )  # fmt: skip
    move(AUK, "orlo/vision/secret", 1)
    move("orlo/vision/secret/auk", SCIENCE, 2)
    for who, knows in (("manager", False), ("admin", True)):
        text = text_of(found(client_of(cast[who]), "vision/secret/auk"))
        assert ("formerly orlo/vision/secret/auk" in text) is knows
        page = client_of(cast[who]).get("/budgets").content.decode()
        assert ("orlo/vision/secret/auk" in page) is knows


# --- The tree's filter ----------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["petrel", "Petrel", "science/pet"])
def test_the_filter_of_the_tree_finds_it_and_says_what_it_was(
    cast: Any, tree: dict[str, Budget], words: str
) -> None:
    granted(tree)
    rename(PETREL, "kea", 1)
    page = client_of(cast["manager"]).get("/budgets", {"name": words})
    assert [line.budget.path for line in page.context["page"].lines] == [
        SCIENCE, "orlo/science/kea",
    ]  # fmt: skip
    html = page.content.decode()
    assert f'data-was="petrel {PETREL}">formerly Petrel, {PETREL}<' in html
    by_now = client_of(cast["manager"]).get("/budgets", {"name": "kea"}).content.decode()
    assert f'data-was="petrel {PETREL}" hidden>formerly' in by_now


def test_the_pages_ask_no_more_for_more_former_names(cast: Any, tree: dict[str, Budget]) -> None:
    client = client_of(cast["admin"])

    def asked(address: str) -> int:
        with CaptureQueriesContext(connection) as caught:
            assert client.get(address).status_code == 200
        return len(caught)

    rename(PETREL, "kea", 1)
    move("orlo/science/kea", "orlo", 2)
    pages = ("/budgets?name=petrel", "/search?q=petrel")
    few = [asked(page) for page in pages]
    for number in range(5):
        rename(AUK if not number else f"orlo/science/auk-{number}", f"auk-{number + 1}", 3 + number)
    move("orlo/science/auk-5", "orlo", 9)
    make_role(make.make_user(), tree[SCIENCE])
    # One less where no change that is listed names a budget that has left.
    assert all(now <= before for now, before in zip(map(asked, pages), few, strict=True))
