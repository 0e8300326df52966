"""Who is told of a rename: whoever has a role in the budget or below it, once."""

from typing import Any

import pytest
from django.core import mail

from budgets import notices, services
from budgets.models import Budget, Notice
from budgets.services import Refused
from tests.factories import HOUR, T0, make_role, make_user
from tests.pages_world import client_of, text_of

pytestmark = pytest.mark.django_db
SCIENCE, PETREL = "orlo/science", "orlo/science/petrel"
NOW = T0 + HOUR


def rename(path: str, author: Any, **words: Any) -> Budget:
    budget = Budget.objects.get(path=path)
    return services.rename_budget(budget=budget, author=author, now=NOW, **words)


def told() -> dict[str, tuple[str, str, str]]:
    rows = Notice.objects.select_related("user", "budget")
    assert {row.kind for row in rows} <= {Notice.Kind.RENAMED}
    found = {row.user.username: (row.budget.path, row.link, row.text) for row in rows}
    assert len(found) == len(rows)
    return found


def test_those_in_it_and_below_it_are_told_both_names_and_addresses(
    cast: Any, tree: dict[str, Budget]
) -> None:
    make_role(cast["viewer"], tree[SCIENCE], "viewer")  # in petrel, too: told once
    rename(SCIENCE, cast["admin"], slug="nature", name="Nature")
    said = "admin renamed Science (orlo/science) to Nature (orlo/nature)"
    below = f"{said}: Petrel below it was at {PETREL}, and is at orlo/nature/petrel now."
    assert told() == {
        "manager": ("orlo/nature", "/budgets/orlo/nature", f"{said}."),
        "viewer": ("orlo/nature", "/budgets/orlo/nature", f"{said}."),
        "member": ("orlo/nature/petrel", "/budgets/orlo/nature/petrel", below),
        "colleague": ("orlo/nature/petrel", "/budgets/orlo/nature/petrel", below),
    }
    for who in ("manager", "member"):
        client = client_of(cast[who])
        pk = Notice.objects.get(user=cast[who]).pk
        answer = client.post(f"/notices/{pk}/read", follow=True)
        assert answer.status_code == 200
        assert "renamed" in text_of(client.get("/notices"))


def test_where_only_the_name_changes_addresses_stay(cast: Any, tree: dict[str, Budget]) -> None:
    rename(SCIENCE, cast["admin"], name="Nature")
    said = "admin renamed Science (orlo/science) to Nature (orlo/science)"
    assert told()["manager"][2] == f"{said}."
    assert told()["member"][2] == f"{said}: Petrel below it is still at {PETREL}."


def test_nobody_is_told_what_they_did_themselves_nor_of_nothing(
    cast: Any, tree: dict[str, Budget]
) -> None:
    make_role(cast["manager"], tree[PETREL], "member")
    rename(PETREL, cast["manager"], slug="albatross")
    assert set(told()) == {"member", "colleague", "viewer"}
    Notice.objects.all().delete()
    rename("orlo/science/albatross", cast["admin"], slug="albatross", name="Petrel")
    with pytest.raises(Refused):
        rename("orlo/science/albatross", cast["admin"], slug="auk")
    assert told() == {}


def test_renamed_again_it_is_told_again(cast: Any, tree: dict[str, Budget]) -> None:
    for slug in ("kea", "petrel", "kea"):
        rename(Budget.objects.get(pk=tree[PETREL].pk).path, cast["admin"], slug=slug)
    assert Notice.objects.filter(user=cast["member"]).count() == 3


def test_who_may_no_longer_sign_in_is_not_told(cast: Any, tree: dict[str, Budget]) -> None:
    cast["member"].is_active = False
    cast["member"].save()
    rename(PETREL, cast["admin"], slug="kea")
    assert "member" not in told()


def test_it_goes_out_by_e_mail_as_other_notices_do(tree: dict[str, Budget]) -> None:
    ada = make_user("ada")
    make_role(ada, tree[PETREL])
    rename(PETREL, make_user("root", is_superuser=True), slug="kea", name="Kea")
    assert notices.send_due(now=NOW) == 1
    (sent,) = mail.outbox
    assert sent.subject == "[Allotment] orlo/science/kea: renamed"
    assert "root renamed Petrel (orlo/science/petrel) to Kea (orlo/science/kea)." in sent.body
    assert sent.to == ["ada@example.org"]


def test_the_api_says_what_kind_it_is(api_of: Any, cast: Any, tree: dict[str, Budget]) -> None:
    rename(PETREL, cast["admin"], slug="kea")
    (row,) = api_of("member").get("/api/v1/notices/").json()["results"]
    assert (row["kind"], row["budget"]) == ("renamed", "orlo/science/kea")
