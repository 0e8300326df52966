"""Whoever saw a budget before it moved out of their sight does not read where it stands now."""

import csv
import io
import json
from typing import Any

import pytest

from budgets import services
from budgets.access import Standing
from budgets.models import Budget, Role
from config import clock
from ledger import views
from ledger.reports import burn_report
from tests.burn_world import END, MINUTE, odd_ledger
from tests.factories import T0, make_role, make_user, someone

pytestmark = pytest.mark.django_db
SECRET = "takeover-of-acme"
NOW = END + 10 * MINUTE
BURN = "/api/v1/budgets/orlo/science/burn/"
BETWEEN = "from=2026-10-01T00:00:00Z&to=2026-10-01T03:00:00Z"


@pytest.fixture
def moved(tree: dict[str, Budget], monkeypatch: pytest.MonkeyPatch) -> str:
    """Auk moves from science to where science's people see nothing; return its new path."""
    odd_ledger(tree)
    monkeypatch.setattr(clock, "now", lambda: NOW)
    monkeypatch.setattr(views, "now", lambda: NOW)
    why: dict[str, Any] = {"author": someone(), "reason": "a reason", "now": END}
    place = services.create_budget(
        parent=tree["orlo/vision"], slug=SECRET, name="Takeover of Acme", share=0, **why
    )
    auk = services.move_budget(budget=tree["orlo/science/auk"], to=place, share=100_000, **why)
    return auk.path


@pytest.fixture(params=["orlo/science", "orlo"])
def reader(request: Any, moved: str, tree: dict[str, Budget], client: Any) -> tuple[Any, str]:
    """A viewer who sees only where it stood, and one who sees all; what each may read of it."""
    user = make_user("reader")
    make_role(user, tree[request.param], Role.Kind.VIEWER)
    client.force_login(user)
    return client, moved if request.param == "orlo" else "elsewhere/auk"


def body_of(client: Any, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return (b"".join(answer) if answer.streaming else answer.content).decode()


def agrees(body: str, path: str) -> bool:
    return (SECRET in body) == (SECRET in path) and path in body


def test_a_path_unknown_to_someone_is_named_by_its_slug_alone() -> None:
    held = Standing(everything=False, roles=(("orlo/science", Role.Kind.VIEWER),))
    assert held.named("orlo/science/petrel") == "orlo/science/petrel"
    assert held.named("orlo") == "orlo"
    assert held.named(f"orlo/vision/{SECRET}/auk") == "elsewhere/auk"


def test_change_sets(reader) -> None:
    client, path = reader
    body = body_of(client, "/api/v1/budgets/orlo/science/change-sets/")
    assert agrees(body, path)
    first = json.loads(body)["results"][-1]
    assert first["shares"] == {"petrel": first["shares"]["petrel"], path: first["shares"][path]}


@pytest.mark.parametrize("by", ["child", "leaf"])
def test_a_burn_report_and_its_dearest_jobs(reader, by) -> None:
    client, path = reader
    body = body_of(client, f"{BURN}?{BETWEEN}&by={by}")
    assert agrees(body, path)
    found = json.loads(body)
    assert [row["path"] for row in found["rows"] if row["name"] == "Auk"] == [path]
    assert {job["budget"] for job in found["jobs"]} == {"orlo/science/petrel", path}


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_its_files_over_the_api(reader, kind) -> None:
    client, path = reader
    assert agrees(body_of(client, f"{BURN}{kind}/?{BETWEEN}"), path)


@pytest.mark.parametrize("ending", ["csv", "report.json"])
def test_its_files_from_the_page(reader, ending) -> None:
    client, path = reader
    pages = body_of(client, f"/budgets/orlo/science/report?{BETWEEN}&by=leaf")
    assert (SECRET in pages) == (SECRET in path)
    address = next(
        word for word in pages.replace("&amp;", "&").split('"') if f"burn.{ending}" in word
    )
    assert agrees(body_of(client, address), path)


def test_focus_tells_where_it_stood(reader) -> None:
    """Its rows are of when it stood in sight, and say no more to those who see where it went."""
    client, _ = reader
    body = body_of(client, f"{BURN}focus/?{BETWEEN}")
    assert SECRET not in body
    table = csv.DictReader(io.StringIO(body))
    assert {(row["x_BudgetPath"], row["SubAccountType"]) for row in table} == {
        ("orlo/science/auk", "Project"),
        ("orlo/science/petrel", "Project"),
    }


@pytest.mark.parametrize("slug", ["a-place", "z-place"])
@pytest.mark.parametrize("by", ["child", "leaf"])
def test_the_order_of_rows_does_not_tell_where_it_stands(tree, slug: str, by: str) -> None:
    odd_ledger(tree)
    why: dict[str, Any] = {"author": someone(), "reason": "a reason", "now": END}
    place = services.create_budget(parent=tree["orlo"], slug=slug, name="P", share=0, **why)
    services.move_budget(budget=tree["orlo/science/auk"], to=place, share=0, **why)
    found = burn_report(budget=tree["orlo/science"], start=T0, end=END, now=NOW, by=by)
    assert [row.path.split("/")[-1] for row in found.rows] == ["petrel", "auk", "science"]


LATER = "merger"
SEEN_THERE = (
    "/api/v1/budgets/orlo/science/change-sets/",
    "/budgets/orlo/science",
    "/budgets/orlo/science/shares",
    "/budgets/orlo/science/diff",
    "/budgets",
    "/notices",
    "/api/v1/budgets/",
    *(f"{BURN}?{BETWEEN}&by={by}" for by in ("child", "leaf")),
    *(f"{BURN}{kind}/?{BETWEEN}" for kind in ("csv", "json", "focus")),
    *(f"/budgets/orlo/science/report?{BETWEEN}&by={by}" for by in ("child", "leaf")),
)


@pytest.mark.parametrize("address", SEEN_THERE)
def test_what_it_is_called_after_it_has_left_is_nobody_s_business(
    moved, tree, client, address
) -> None:
    services.rename_budget(
        budget=Budget.objects.get(pk=tree["orlo/science/auk"].pk),
        slug=LATER,
        name=LATER.title(),
        author=someone(),
        now=END + MINUTE,
    )
    user = make_user("reader")
    make_role(user, tree["orlo/science"], Role.Kind.MANAGER)
    client.force_login(user)
    body = body_of(client, address)
    assert LATER not in body.casefold()
