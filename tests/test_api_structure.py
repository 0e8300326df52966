"""Creating, archiving, moving budgets and giving roles over the API."""

import pytest

from budgets import periods, shares
from budgets.models import Budget, Role
from config import clock
from ledger import reports
from ledger import services as ledger
from tests import factories as make

pytestmark = pytest.mark.django_db
NOW = make.T0 + make.HOUR
WHY = {"reason": "re-organised"}


@pytest.fixture(autouse=True)
def _at(monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: NOW)


@pytest.fixture
def period(tree):
    """Q4 on 8 GPUs, started: 8 GPUs × 2208 h are granted."""
    make.make_nodes(make.make_pool("h100"), 1)
    period = periods.draft_period(name="Q4", starts_at=make.T0, ends_at=make.T1, now=make.T0)
    periods.approve_period(period=period)
    ledger.start_period(period=period, at=make.T0)
    return period


def granted(period, budget):
    return reports.figures(period=period, now=NOW)[budget.pk].granted_mgpus


def left_mgpus():
    """What 8 GPUs are worth from now to the period's end."""
    return 8 * int((make.T1 - NOW).total_seconds()) * 1000


def test_a_budget_is_created_with_its_share_and_grants(api_of, tree, period):
    auk = tree["orlo/science/auk"]
    before = granted(period, auk)
    answer = api_of("manager").post(
        "/api/v1/budgets/",
        WHY
        | {"parent": "orlo/science", "slug": "kea", "name": "Kea", "share": 20_000}
        | {"siblings": {"auk": 30_000}, "description": "A parrot."},
    )
    shown = answer.json()
    assert answer.status_code == 201
    assert (shown["path"], shown["share_thousandths"], shown["effective_share"]) == (
        *("orlo/science/kea", 20_000, "3/25"),
    )
    assert shown["description"] == "A parrot."
    kea = Budget.objects.get(path="orlo/science/kea")
    assert shown["figures"]["granted_mgpus"] == granted(period, kea) == left_mgpus() * 12 // 100
    assert granted(period, auk) == before - left_mgpus() * 12 // 100


def test_archiving_takes_the_grants_back_and_reactivating_gives_them_again(api_of, tree, period):
    auk, manager = tree["orlo/science/auk"], api_of("manager")
    before = granted(period, auk)
    archived = manager.post("/api/v1/budgets/orlo/science/auk/archive/", WHY).json()
    assert (archived["archived_at"], archived["share_thousandths"]) == (
        *("2026-10-01T01:00:00Z", None),
    )
    assert granted(period, auk) == 0  # all of it was free
    again = manager.post("/api/v1/budgets/orlo/science/auk/reactivate/", WHY | {"share": 50_000})
    assert again.json()["share_thousandths"] == 50_000
    assert shares.share_of(auk, NOW) == 50_000
    assert granted(period, auk) == before  # at one instant both count together


def test_a_budget_moves_with_its_path_and_grants(api_of, tree, period):
    moved = api_of("admin").post(
        "/api/v1/budgets/orlo/science/auk/move/",
        WHY | {"to": "orlo/vision", "share": 25_000, "siblings": {"tern": 75_000}},
    )
    assert (moved.status_code, moved.json()["path"]) == (200, "orlo/vision/auk")
    assert moved.json()["effective_share"] == "1/10"
    auk = tree["orlo/science/auk"]
    whole = 8 * int((make.T1 - make.T0).total_seconds()) * 1000
    assert granted(period, auk) == whole * 30 // 100 - left_mgpus() * 20 // 100


def test_only_a_superuser_creates_the_organisation(api_of, cast):
    asked = {"slug": "lab", "name": "Lab"}
    refused = api_of("admin").post("/api/v1/budgets/", asked)
    assert (refused.status_code, refused.json()["detail"][:14]) == (403, "Name a parent:")
    second = api_of("root").post("/api/v1/budgets/", asked)
    assert "There is an organisation already: put lab below orlo" in second.json()["detail"]


def test_the_organisation_is_created_on_an_empty_installation(client, db):
    client.force_login(make.make_user("root", is_superuser=True))
    answer = client.post(
        "/api/v1/budgets/", {"slug": "lab", "name": "Lab"}, content_type="application/json"
    )
    assert answer.json()["effective_share"] == "1"
    assert Budget.objects.get().path == "lab"


@pytest.mark.parametrize(
    ("address", "asked", "sentence"),
    [
        ("", {"parent": "orlo/x", "slug": "a", "name": "A"}, "parent: There is no such budget"),
        ("", {"parent": "orlo", "slug": "A!", "name": "A"}, "slug must be"),
        ("", {"parent": "orlo", "slug": "a", "name": "A", "share": 1}, "orlo/a (0.001 %) binds"),
        ("", {"parent": "orlo", "slug": "vision", "name": "A"}, "orlo/vision already"),
        ("", {"parent": "orlo", "slug": "a", "name": "A", "siblings": {"x": 1}}, "no child 'x'"),
        ("", {"parent": "orlo", "slug": "burn", "name": "A"}, "word of our addresses"),
        ("orlo/archive/", {}, "root of the tree: it can't be archived"),
        ("orlo/vision/reactivate/", {"share": 1}, "is not archived"),
        ("orlo/vision/move/", {"share": 1, "to": "orlo/vision/tern"}, "can't move below"),
        ("orlo/vision/move/", {"share": 1, "to": "nowhere"}, "to: There is no such budget"),
        ("orlo/vision/move/", {"share": 1}, "to: "),
        ("orlo/vision/archive/", {"reason": ""}, "reason: "),
        ("orlo/vision/roles/", {"username": "x", "kind": "king"}, "kind: "),
        (
            "orlo/vision/roles/",
            {"username": "nil", "kind": "viewer"},
            "nobody called 'nil'",
        ),
    ],
)
def test_wrong_changes_are_refused_in_a_sentence(api_of, tree, address, asked, sentence):
    body = asked if "roles" in address else WHY | asked
    answer = api_of("admin").post(f"/api/v1/budgets/{address}", body)
    assert answer.status_code == 400
    assert sentence in answer.json()["detail"]
    assert set(Budget.objects.values_list("path", flat=True)) == set(make.TREE)


@pytest.mark.parametrize("name", ["burn", "move", "rename", "roles"])
def test_a_role_is_taken_from_who_is_called_as_an_address_ends(api_of, tree, cast, name):
    make.make_role(make.make_user(name), tree["orlo/science"])
    address = f"/api/v1/budgets/orlo/science/roles/{name}/"
    assert api_of("admin").delete(address).status_code == 204
    assert not Role.objects.filter(user__username=name).exists()


def test_roles_are_listed_given_and_taken(api_of, cast):
    manager, address = api_of("manager"), "/api/v1/budgets/orlo/science/petrel/roles/"
    assert manager.get(address).json() == [
        {"username": "colleague", "kind": "member"},
        {"username": "member", "kind": "member"},
        {"username": "viewer", "kind": "viewer"},
    ]
    given = manager.post(address, {"username": "viewer", "kind": "member"})
    assert given.json() == {"username": "viewer", "kind": "member"}
    assert manager.delete(f"{address}viewer/").status_code == 204
    assert manager.delete(f"{address}viewer/").status_code == 404
    assert not Role.objects.filter(user=cast["viewer"]).exists()


def test_a_manager_neither_makes_nor_unmakes_administrators(api_of, cast, tree):
    make.make_role(cast["admin"], tree["orlo/science/petrel"], "administrator")
    manager, address = api_of("manager"), "/api/v1/budgets/orlo/science/petrel/roles/"
    for refused in (
        manager.post(address, {"username": "member", "kind": "administrator"}),
        manager.post(address, {"username": "admin", "kind": "viewer"}),
        manager.delete(f"{address}admin/"),
        manager.post(
            "/api/v1/budgets/orlo/science/roles/", {"username": "member", "kind": "viewer"}
        ),
    ):
        assert refused.status_code == 403
        assert "You may not give or take the role of" in refused.json()["detail"]
    assert Role.objects.filter(user=cast["admin"], kind="administrator").count() == 2
