"""Renaming budgets: over the API and on the page, what is refused, and where old addresses lead."""

import re
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocator.pages import changes
from budgets import services
from budgets.access import EVERYTHING
from budgets.models import Budget, FormerName
from budgets.services import Refused
from ledger import reports
from ledger.models import Entry, Rollup
from tests import factories as make
from tests.burn_world import END, odd_ledger
from tests.factories import HOUR, T0
from tests.pages_world import at, client_of, text_of

pytestmark = pytest.mark.django_db
SCIENCE, PETREL, AUK = "orlo/science", "orlo/science/petrel", "orlo/science/auk"
NEW = "orlo/science/albatross"
API = "/api/v1/budgets/{}/"
PEOPLE = ("root", "admin", "manager", "member", "viewer", "stranger", "nobody")
FORM = {"name": "Albatross", "slug": "albatross"}


def rename(budget: Budget, *, now: Any = T0 + HOUR, **words: Any) -> Budget:
    fresh = Budget.objects.get(pk=budget.pk)
    return services.rename_budget(budget=fresh, author=make.someone(), now=now, **words)


def paths() -> list[str]:
    return sorted(Budget.objects.values_list("path", flat=True))


@pytest.mark.parametrize("word", sorted(services.RESERVED))
def test_what_bears_a_word_of_our_addresses_from_before_is_renamed_at_its_own(
    monkeypatch: pytest.MonkeyPatch, api_of: Any, cast: Any, tree: dict[str, Budget], word: str
) -> None:
    """Its page and what is below it may be out of reach: its name is not."""
    at(monkeypatch, T0 + HOUR)
    old = f"orlo/science/{word}"
    Budget.objects.filter(pk=tree[PETREL].pk).update(slug=word, path=old)
    client = client_of(cast["admin"])
    assert 'value="Petrel"' in client.get(f"/budgets/{old}/rename").content.decode()
    answer = client.post(f"/budgets/{old}/rename", FORM, follow=True)
    assert answer.redirect_chain == [(f"/budgets/{NEW}", 302)]
    assert api_of("admin").get(API.format(NEW)).status_code == 200


# --- The rule -------------------------------------------------------------------------------------


def test_what_is_left_out_stays(tree: dict[str, Budget]) -> None:
    now = rename(tree[PETREL], slug="albatross")
    assert (now.slug, now.name, now.path) == ("albatross", "Petrel", NEW)
    now = rename(tree[PETREL], name=" Albatross ", now=T0 + 2 * HOUR)
    assert (now.slug, now.name, now.path) == ("albatross", "Albatross", NEW)
    kept = FormerName.objects.values_list("slug", "name")
    assert list(kept) == [("petrel", "Petrel"), ("albatross", "Petrel")]


REFUSED = [
    ({"slug": "auk"}, "There is a budget orlo/science/auk already: choose another slug."),
    (
        {"slug": "old"},
        "There is a budget orlo/science/old already, archived: "
        "re-activate it, or choose another slug.",
    ),
    ({"slug": ""}, "The slug must be 1 to 50 of a-z, 0-9 and single hyphens inside"),
    ({"slug": "Big Bird"}, "The slug must be 1 to 50 of a-z, 0-9 and single hyphens inside"),
    ({"slug": "a" * 51}, "The slug must be 1 to 50 of a-z, 0-9 and single hyphens inside"),
    ({"slug": "rename"}, "rename is a word of our addresses: choose another slug."),
    ({"name": "  "}, "Give a name of 1 to 100 printable characters."),
    ({"name": "x" * 101}, "Give a name of 1 to 100 printable characters."),
    ({"slug": "kea", "name": ""}, "Give a name of 1 to 100 printable characters."),
]


@pytest.mark.parametrize(("words", "says"), REFUSED)
def test_what_can_t_be_is_refused_in_a_sentence_and_nothing_is_written(
    tree: dict[str, Budget], words: dict[str, str], says: str
) -> None:
    make.make_budget("old", parent=tree[SCIENCE], archived_at=T0)
    before = paths()
    with pytest.raises(Refused) as refused:
        rename(tree[PETREL], **words)
    assert refused.value.sentence.startswith(says)
    assert paths() == before
    assert not FormerName.objects.exists()


def test_a_cousin_s_slug_is_free(tree: dict[str, Budget]) -> None:
    assert rename(tree[PETREL], slug="tern").path == "orlo/science/tern"


def test_the_organisation_is_renamed_with_all_below(tree: dict[str, Budget]) -> None:
    rename(tree["orlo"], slug="institute")
    assert paths() == sorted(path.replace("orlo", "institute", 1) for path in tree)


def test_who_read_it_before_another_rename_or_a_move_is_refused(tree: dict[str, Budget]) -> None:
    stale = Budget.objects.get(path=PETREL)
    rename(tree[PETREL], name="Albatross")
    with pytest.raises(Refused, match=r"just been renamed to Albatross \(orlo/science/petrel\)"):
        services.rename_budget(budget=stale, slug="kea", author=make.someone(), now=T0 + HOUR)
    stale = Budget.objects.get(path=PETREL)
    services.move_budget(
        budget=Budget.objects.get(path=PETREL), to=tree["orlo"], share=0,
        author=make.someone(), reason="up", now=T0 + HOUR,
    )  # fmt: skip
    with pytest.raises(Refused, match="just been moved to orlo/petrel: look at it there"):
        services.rename_budget(budget=stale, slug="kea", author=make.someone(), now=T0 + HOUR)
    assert FormerName.objects.count() == 1


def test_no_rename_moves_a_figure(tree: dict[str, Budget]) -> None:
    period = odd_ledger(tree)

    def figures() -> list[Any]:
        now, top = END + 2 * HOUR, Budget.objects.get(pk=tree["orlo"].pk)
        burn = reports.burn_report(budget=top, start=T0, end=END, now=now, by="leaf")
        rows = [replace(row, path="") for row in sorted(burn.rows, key=lambda row: row.name)]
        wrong = reports.differences(start=T0, end=END), reports.entry_problems(start=T0, end=END)
        sums = list(Rollup.objects.order_by("pk").values_list())
        entries = list(Entry.objects.order_by("pk").values_list())
        figures = reports.figures(period=period, now=now)
        total = replace(burn.total, path="")
        return [figures, total, rows, *wrong, sums, entries]

    before = figures()
    assert any(one.settled_mgpus for one in before[0].values())
    for path in (PETREL, SCIENCE, "orlo"):
        rename(tree[path], slug=f"{tree[path].slug}-2", name="Other", now=END + HOUR)
    assert figures() == before


# --- The API --------------------------------------------------------------------------------------


def test_the_api_renames_and_answers_with_the_new_path(api_of: Any) -> None:
    answer = api_of("manager").post(API.format(PETREL) + "rename/", FORM)
    assert answer.status_code == 200
    assert (answer.json()["path"], answer.json()["name"]) == (NEW, "Albatross")
    assert "rename" in answer.json()["actions"]
    assert FormerName.objects.get().author.username == "manager"
    answer = api_of("manager").get(API.format(SCIENCE))
    assert "rename" not in answer.json()["actions"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "Give a slug, a name or both."),
        ({"slug": "auk"}, "slug: There is a budget orlo/science/auk already"),
        ({"slug": ""}, "slug: "),
        ({"name": None}, "name: "),
        ({"slug": 5}, "slug: Give a string."),
        ({"titel": "Albatross"}, "titel: "),
    ],
)
def test_the_api_says_what_is_wrong(
    api_of: Any, tree: dict[str, Budget], body: dict[str, Any], says: str
) -> None:
    answer = api_of("manager").post(API.format(PETREL) + "rename/", body)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(says)
    assert paths() == sorted(tree)


# --- Old addresses --------------------------------------------------------------------------------


@pytest.fixture
def renamed(cast: Any, tree: dict[str, Budget]) -> dict[str, Budget]:
    rename(tree[PETREL], slug="albatross")
    return tree


READ = ("", "burn/?by=leaf&to=2026-10-02T00:00:00Z", "roles/", "change-sets/", "requests/")


@pytest.mark.parametrize("who", PEOPLE)
def test_what_is_read_at_an_old_address_is_sent_on_for_who_may_see_it(
    api_of: Any, cast: Any, renamed: Any, who: str
) -> None:
    sees = who not in ("stranger", "nobody")
    for behind in READ:
        answer = api_of(who).get(API.format(PETREL) + behind)
        assert answer.status_code == (302 if sees else 404)
        assert answer.get("Location") == (API.format(NEW) + behind if sees else None)
    for behind in ("", "/report?from=2026-10-01", "/requests", "/plan"):
        answer = client_of(cast[who]).get(f"/budgets/{PETREL}{behind}")
        assert answer.status_code == (302 if sees else 404)
        assert answer.get("Location") == (f"/budgets/{NEW}{behind}" if sees else None)


def test_what_is_written_to_an_old_address_is_not(api_of: Any, cast: Any, renamed: Any) -> None:
    answer = api_of("manager").post(API.format(PETREL) + "rename/", {"name": "Kea"})
    assert answer.status_code == 404
    assert answer.json()["detail"] == f"There is no budget {PETREL} any more: it is {NEW} now."
    assert api_of("stranger").post(API.format(PETREL) + "rename/", {"name": "Kea"}).json()[
        "detail"
    ] == ("There is no such budget, or none that you may see.")
    page = client_of(cast["manager"]).post(f"/budgets/{PETREL}/rename", FORM)
    assert page.status_code == 404
    assert FormerName.objects.count() == 1


def where(client: Any, path: str) -> str | None:
    answer = client.get(f"/budgets/{path}")
    assert answer.status_code in (200, 302, 404)
    return answer.get("Location", "").removeprefix("/budgets/") or None


def test_an_old_address_is_followed_through_all_that_changed(
    cast: Any, tree: dict[str, Budget]
) -> None:
    admin = client_of(cast["admin"])
    rename(tree[PETREL], slug="a")
    rename(tree[SCIENCE], slug="physics", now=T0 + 2 * HOUR)
    rename(tree[PETREL], slug="b", now=T0 + 3 * HOUR)
    for path in (PETREL, "orlo/science/a", "orlo/physics/petrel", "orlo/physics/a"):
        assert where(admin, path) == "orlo/physics/b"
    assert where(admin, "orlo/science/auk") == "orlo/physics/auk"
    assert where(admin, "orlo/science/nothing") is None
    assert where(admin, "science") is None
    services.move_budget(
        budget=Budget.objects.get(pk=tree[PETREL].pk), to=tree["orlo/vision"], share=0,
        author=make.someone(), reason="sees", now=T0 + 4 * HOUR,
    )  # fmt: skip
    for path in (PETREL, "orlo/physics/b"):
        assert where(admin, path) == "orlo/vision/b"


def test_a_budget_that_has_the_address_now_is_shown_and_sends_nobody_on(
    cast: Any, renamed: dict[str, Budget]
) -> None:
    other = make.make_budget("petrel", parent=Budget.objects.get(path=SCIENCE))
    assert where(client_of(cast["manager"]), PETREL) is None
    answer = client_of(cast["manager"]).get(f"/budgets/{PETREL}")
    assert (answer.status_code, answer.context["page"].budget) == (200, other)
    # For who may not see that one it isn't there, so their own still answers.
    assert where(client_of(cast["member"]), PETREL) == NEW


def test_of_two_that_had_an_address_the_later_answers(
    cast: Any, renamed: dict[str, Budget]
) -> None:
    rename(renamed[AUK], slug="petrel", now=T0 + 2 * HOUR)
    rename(renamed[AUK], slug="kea", now=T0 + 3 * HOUR)
    assert where(client_of(cast["manager"]), PETREL) == "orlo/science/kea"
    assert where(client_of(cast["member"]), PETREL) == NEW  # auk isn't theirs


def test_one_that_is_called_so_now_answers_before_one_that_was(
    cast: Any, renamed: dict[str, Budget]
) -> None:
    """Auk is petrel now, and the program's old address leads to what is there."""
    rename(renamed[AUK], slug="petrel", now=T0 + 2 * HOUR)
    rename(renamed[SCIENCE], slug="physics", now=T0 + 3 * HOUR)
    answer = client_of(cast["manager"]).get(f"/budgets/{PETREL}", follow=True)
    assert answer.redirect_chain == [("/budgets/orlo/physics/petrel", 302)]
    assert answer.context["page"].budget == renamed[AUK]


def test_one_that_is_still_there_answers_before_one_that_moved_away(
    cast: Any, renamed: dict[str, Budget]
) -> None:
    rename(renamed[AUK], slug="petrel", now=T0 + 2 * HOUR)
    services.move_budget(
        budget=Budget.objects.get(pk=renamed[AUK].pk), to=renamed["orlo/vision"], share=0,
        author=make.someone(), reason="sees", now=T0 + 3 * HOUR,
    )  # fmt: skip
    assert where(client_of(cast["admin"]), PETREL) == NEW
    rename(renamed[PETREL], slug="kea", now=T0 + 4 * HOUR)
    assert where(client_of(cast["admin"]), PETREL) == "orlo/science/kea"
    assert where(client_of(cast["admin"]), AUK) == "orlo/vision/petrel"


def test_a_place_that_one_may_not_know_is_not_told_by_an_old_address(
    cast: Any, tree: dict[str, Budget]
) -> None:
    services.move_budget(
        budget=tree[PETREL], to=tree["orlo/vision"], share=0,
        author=make.someone(), reason="sees", now=T0,
    )  # fmt: skip
    assert where(client_of(cast["admin"]), PETREL) == "orlo/vision/petrel"
    assert where(client_of(cast["manager"]), PETREL) is None  # it is nobody's of science now
    assert where(client_of(cast["member"]), PETREL) is None  # who may not know science any more
    assert client_of(cast["member"]).get("/budgets/orlo/vision/petrel").status_code == 200


def test_an_address_that_nothing_had_costs_a_few_queries(cast: Any, renamed: Any) -> None:
    client = client_of(cast["member"])
    counts = []
    for path in ("orlo/science/x", f"orlo/science/x{'/y' * 50}"):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(f"{API.format(path)}").status_code == 404
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 12


# --- The page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", PEOPLE)
def test_the_page_is_offered_to_who_may_rename(
    cast: Any, tree: Any, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    at(monkeypatch, T0 + HOUR)
    client, may = client_of(cast[who]), who in ("root", "admin", "manager")
    assert client.get(f"/budgets/{PETREL}/rename").status_code == (200 if may else 404)
    shown = client.get(f"/budgets/{PETREL}").content.decode()
    assert (f'href="/budgets/{PETREL}/rename"' in shown) is may


def test_the_form_renames_and_goes_to_the_new_address(
    cast: Any, tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(monkeypatch, T0 + HOUR)
    client = client_of(cast["manager"])
    answer = client.post(f"/budgets/{PETREL}/rename", FORM, follow=True)
    assert answer.redirect_chain == [(f"/budgets/{NEW}", 302)]
    assert "Petrel is Albatross now, at orlo/science/albatross." in text_of(answer)
    text = text_of(client.get(f"/budgets/{NEW}/rename"))
    assert "Albatross" in text
    assert re.search(r"Petrel petrel until 1 Oct.*, by manager", text)
    assert "of the 2 budgets below it" in text_of(
        client_of(cast["admin"]).get(f"/budgets/{SCIENCE}/rename")
    )


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (FORM | {"slug": "auk"}, "There is a budget orlo/science/auk already"),
        (FORM | {"slug": ""}, "The slug must be 1 to 50"),
        (FORM | {"name": ""}, "Give a name of 1 to 100 printable characters."),
        ({}, "Give a name of 1 to 100 printable characters."),
    ],
)
def test_what_is_refused_stands_in_the_form_with_what_was_typed(
    cast: Any, tree: Any, form: dict[str, str], says: str
) -> None:
    answer = client_of(cast["manager"]).post(f"/budgets/{PETREL}/rename", form)
    assert answer.status_code == 422
    assert says in text_of(answer)
    assert all(f'value="{value}"' in answer.content.decode() for value in form.values() if value)
    assert not FormerName.objects.exists()


def test_a_form_writes_only_what_was_changed_in_it(cast: Any, tree: dict[str, Budget]) -> None:
    """Another manager gave a new name while this form, with the old one in it, was open."""
    shown = {"initial-name": "Petrel", "initial-slug": "petrel", "name": "Petrel"}
    rename(tree[PETREL], name="Storm petrel")
    client = client_of(cast["manager"])
    assert client.post(f"/budgets/{PETREL}/rename", shown | {"slug": "storm"}).status_code == 302
    now = Budget.objects.get(pk=tree[PETREL].pk)
    assert (now.slug, now.name) == ("storm", "Storm petrel")
    same = {"initial-name": "Petrel", "initial-slug": "storm", "name": "Petrel", "slug": "storm"}
    answer = client.post("/budgets/orlo/science/storm/rename", same, follow=True)
    assert "Nothing was changed: it is still Storm petrel." in text_of(answer)
    assert FormerName.objects.count() == 2


def test_who_moved_away_and_has_a_sibling_s_slug_now_is_told_apart_in_what_was_changed(
    tree: dict[str, Budget],
) -> None:
    services.move_budget(
        budget=tree[PETREL], to=tree["orlo"], share=0, author=make.someone(), reason="x", now=T0
    )
    rename(tree[PETREL], slug="auk")
    left, _ = changes.history([tree[SCIENCE].pk], held=EVERYTHING, limit=2)
    assert [(one.budget_id, one.before, one.after) for one in left.moves] == [
        (tree[PETREL].pk, 50_000, None)
    ]
    assert (left.rest_before, left.rest_after) == (0, 50_000)
