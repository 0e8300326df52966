"""People: who sees whom, roles given and taken, accounts made, kept out and let in again."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.authtoken.models import Token

from allocator import accounts, steering
from allocator.audit import listing
from allocator.audit.rows import Filters
from budgets.models import Budget, Decision, Role
from budgets.refusals import Refused
from tests import factories as make
from tests.factories import T0
from tests.pages_world import client_of, queries, text_of
from workloads.models import Job

pytestmark = pytest.mark.django_db
PETREL = "orlo/science/petrel"


@pytest.fixture
def ada(tree: dict[str, Budget]) -> User:
    user = make.make_user("ada")
    make.make_role(user, tree["orlo"], "administrator")
    return user


@pytest.fixture
def bea(tree: dict[str, Budget]) -> User:
    user = make.make_user("bea")
    make.make_role(user, tree[PETREL], "member")
    return user


def do(by: User, person: User, what: str, **given: str) -> Any:
    return client_of(by).post(f"/settings/people/{person.pk}", {"do": what, **given})


def test_the_list_is_of_those_whom_the_reader_may_give_roles(
    tree: dict[str, Budget], ada: User, bea: User
) -> None:
    make.make_user("zoe")
    boss = make.make_user("boss")
    make.make_role(boss, tree["orlo/science"], "manager")
    told = text_of(client_of(ada).get("/settings/people"))
    assert all(name in told for name in ("ada", "bea", "boss", "zoe"))
    told = text_of(client_of(boss).get("/settings/people"))
    assert "bea" in told
    assert "zoe" not in told
    assert "A new account" not in told
    for nobody in (bea, make.make_user()):
        assert client_of(nobody).get("/settings/people").status_code == 404
        assert client_of(nobody).get(f"/settings/people/{bea.pk}").status_code == 404
    assert client_of(boss).get(f"/settings/people/{ada.pk}").status_code == 404
    told = text_of(client_of(ada).get("/settings/people?q=zo&state=active"))
    assert "zoe" in told
    assert "boss" not in told
    assert "Nobody matches" in text_of(client_of(ada).get("/settings/people?state=deactivated"))


def test_roles_are_given_and_taken_and_the_audit_log_tells(
    tree: dict[str, Budget], ada: User, bea: User
) -> None:
    assert do(ada, bea, "give", budget="orlo/science", kind="manager").status_code == 302
    assert do(ada, bea, "take", budget=PETREL).status_code == 302
    assert [(r.budget.path, r.kind) for r in bea.roles.all()] == [("orlo/science", "manager")]
    rows = listing.part(ada, filters=Filters(kind="roles"), key="", size=9).rows
    assert [(row.by, row.changes) for row in rows] == [(ada, "member → –"), (ada, "– → manager")]


def test_a_manager_gives_roles_below_what_they_manage_only(
    tree: dict[str, Budget], ada: User, bea: User
) -> None:
    boss = make.make_user("boss")
    make.make_role(boss, tree["orlo/science"], "manager")
    assert do(boss, bea, "give", budget=PETREL, kind="manager").status_code == 302
    for budget, kind in (("orlo/science", "member"), ("orlo", "viewer"), (PETREL, "administrator")):
        assert do(boss, bea, "give", budget=budget, kind=kind).status_code == 404
    for what in ("deactivate", "reactivate", "token", "password", "nonsense"):
        assert do(boss, bea, what).status_code == 404
    assert [r.kind for r in bea.roles.all()] == ["manager"]
    bea.refresh_from_db()
    assert bea.is_active


def give(by: User, do: str = "find", **given: str) -> Any:
    form = {"budget": PETREL, "kind": "member", "do": do}
    return client_of(by).post("/settings/people/give", form | given)


@pytest.fixture
def boss(tree: dict[str, Budget]) -> User:
    user = make.make_user("boss")
    make.make_role(user, tree["orlo/science"], "manager")
    return user


@pytest.fixture
def zoe(tree: dict[str, Budget]) -> User:
    return make.make_user("zoe", first_name="Zoe", last_name="Lima")


@pytest.mark.parametrize("called", ["zoe", "Zoe", " zoe ", "zoe@example.org", "ZOE@example.org"])
def test_a_manager_finds_who_has_no_role_by_what_they_are_called_exactly(
    boss: User, zoe: User, called: str
) -> None:
    said = give(boss, account=called)
    assert "Zoe Lima" in text_of(said)
    assert not zoe.roles.exists()  # it was only looked at
    assert client_of(boss).get(f"/settings/people/{zoe.pk}").status_code == 404
    done = give(boss, "give", account=called)
    assert done["Location"] == f"/settings/people/{zoe.pk}"
    assert [(one.budget.path, one.kind) for one in zoe.roles.all()] == [(PETREL, "member")]
    assert client_of(boss).get(f"/settings/people/{zoe.pk}").status_code == 200
    (row, *_) = listing.part(boss, filters=Filters(kind="roles"), key="", size=9).rows
    assert (row.by, row.changes) == (boss, "– → member")


@pytest.mark.parametrize("called", ["zo", "Zoe Lima", "zoe@", "", "gone", "twin@example.org", "\0"])
def test_nobody_is_suggested(boss: User, zoe: User, called: str) -> None:
    make.make_user("gone", is_active=False)
    for name in ("ann", "amy"):
        make.make_user(name)
    User.objects.filter(username__in=("ann", "amy")).update(email="twin@example.org")
    for do in ("find", "give"):
        said = give(boss, do, account=called)
        assert said.status_code == 422
        assert not any(word in text_of(said) for word in ("Lima", "ann", "amy"))
    sentence = "No active account has exactly this name or address"
    assert (sentence in text_of(said)) is bool(called.strip("\0"))
    assert not zoe.roles.exists()


def test_a_role_is_found_only_where_the_reader_gives_it(
    tree: dict[str, Budget], boss: User, zoe: User, ada: User
) -> None:
    for budget in ("orlo", "orlo/science", "orlo/vision/tern", "nothing"):
        said = give(boss, "give", account="zoe", budget=budget)
        assert said.status_code == 422
        assert "Zoe" not in text_of(said)
    assert give(boss, "give", account="zoe", kind="administrator").status_code == 422
    make.make_role(zoe, tree[PETREL], "administrator")
    for do in ("find", "give"):  # not theirs to replace
        assert give(boss, do, account="zoe").status_code == 404
    assert [one.kind for one in zoe.roles.all()] == ["administrator"]
    assert "administrator" in text_of(give(ada, account="zoe", kind="viewer"))


def test_a_path_that_is_no_business_of_theirs_is_answered_as_none(boss: User, bea: User) -> None:
    for path in ("orlo/vision", "orlo/vision/nothing"):
        for what in ("give", "take"):
            assert do(boss, bea, what, budget=path, kind="").status_code == 404


def test_people_stand_in_the_side_bar_of_who_may_see_them(
    tree: dict[str, Budget], ada: User, bea: User, boss: User
) -> None:
    for user, sees in ((ada, True), (boss, True), (bea, False), (make.make_user(), False)):
        page = client_of(user).get("/audit").content.decode()
        assert ('href="/settings/people"' in page) is sees
        assert 'href="/settings/pools"' in page
    budget = client_of(boss).get(f"/budgets/{PETREL}").content.decode()
    assert f"/settings/people/give?budget={PETREL}" in budget.replace("%2F", "/")
    assert "/settings/people/give" not in client_of(bea).get(f"/budgets/{PETREL}").content.decode()


def test_who_is_deactivated_is_out_and_their_jobs_go_on(
    tree: dict[str, Budget], ada: User, bea: User
) -> None:
    job = make.make_job(tree[PETREL], user=bea)
    session = client_of(bea)
    token = {"Authorization": f"Token {Token.objects.create(user=bea).key}"}
    assert Client().get("/api/v1/me/", headers=token).status_code == 200
    assert do(ada, bea, "deactivate").status_code == 302
    assert session.get("/jobs").status_code == 302
    assert Client().get("/api/v1/me/", headers=token).status_code == 401
    assert Job.objects.get(pk=job.pk).state == job.state
    assert do(ada, bea, "reactivate").status_code == 302
    assert Client().get("/api/v1/me/", headers=token).status_code == 200
    rows = listing.part(ada, filters=Filters(kind="people"), key="", size=9).rows
    told = [row.changes for row in rows if row.reader == "decisions"]
    assert told == ["deactivated → active", "active → deactivated"]
    assert not [
        row
        for row in listing.part(bea, filters=Filters(kind="people"), key="", size=9).rows
        if row.reader == "decisions"
    ]


def test_nobody_locks_themselves_or_everybody_out(
    tree: dict[str, Budget], ada: User, bea: User
) -> None:
    said = do(ada, ada, "deactivate")
    assert said.status_code == 422
    assert "You can't deactivate yourself" in text_of(said)
    said = do(ada, ada, "take", budget="orlo")
    assert said.status_code == 422
    assert "Nobody would be left" in text_of(said)
    with pytest.raises(Refused):
        steering.give_role(user=ada, budget=tree["orlo"], kind="viewer", by=ada, now=T0)
    assert Role.objects.get(user=ada).kind == "administrator"
    assert not Decision.objects.exists()
    make.make_role(bea, tree["orlo"], "administrator")
    assert do(ada, ada, "take", budget="orlo").status_code == 302
    with pytest.raises(Refused, match="no more"):
        accounts.deactivate(user=bea, by=ada, now=T0)


def test_superusers_are_changed_by_superusers(tree: dict[str, Budget], ada: User) -> None:
    root = make.make_user("root", is_superuser=True)
    for what in ("deactivate", "token", "password"):
        assert do(ada, root, what).status_code == 422
    assert not Token.objects.exists()
    other = make.make_user("other", is_superuser=True)
    assert do(other, root, "deactivate").status_code == 302


def test_a_token_is_shown_once_and_the_one_before_ends(
    tree: dict[str, Budget], ada: User, bea: User
) -> None:
    old = Token.objects.create(user=bea).key
    said = do(ada, bea, "token")
    new = Token.objects.get(user=bea).key
    assert new != old
    assert new in text_of(said)
    assert "no-store" in said["Cache-Control"]
    assert new not in text_of(client_of(ada).get(f"/settings/people/{bea.pk}"))
    assert not Decision.objects.filter(after__contains=new).exists()


def test_an_account_is_made_with_a_password_that_serves_once(
    tree: dict[str, Budget], ada: User, bea: User
) -> None:
    client = client_of(ada)
    form = {"username": "cleo", "name": "Cleo da Silva", "email": "cleo@example.org"}
    said = client.post("/settings/people", form)
    cleo = User.objects.get(username="cleo")
    assert (cleo.first_name, cleo.last_name) == ("Cleo", "da Silva")
    password = said.context["made"][1]
    assert password in text_of(said)
    assert cleo.check_password(password)
    entered = Client().post("/sign-in", {"username": "cleo", "password": password})
    assert entered["Location"] == "/password"
    for wrong in ("CLEO", "a b", ""):
        assert client.post("/settings/people", form | {"username": wrong}).status_code == 422
    assert client_of(bea).post("/settings/people", form).status_code == 404
    said = do(ada, bea, "password")
    bea.refresh_from_db()
    assert bea.check_password(said.context["secret"])


def test_queries_stay_as_people_come(tree: dict[str, Budget], ada: User, bea: User) -> None:
    few = queries(client_of(ada), "/settings/people")
    one = queries(client_of(ada), f"/settings/people/{bea.pk}")
    for n in range(6):
        user = make.make_user(f"u{n}")
        make.make_role(user, tree[PETREL], "viewer")
        make.make_role(user, tree["orlo/science"], "viewer")
    make.make_role(bea, tree["orlo/science"], "viewer")
    assert queries(client_of(ada), "/settings/people") == few
    assert queries(client_of(ada), f"/settings/people/{bea.pk}") == one
