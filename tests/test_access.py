"""Who may do what, where: a table of role × action × place."""

import pytest
from django.contrib.auth.models import AnonymousUser
from django.http import Http404

from budgets.access import (
    Action,
    can,
    get_budget_or_404,
    get_notice_or_404,
    get_request_or_404,
    holders,
    leads,
    may_withdraw,
    own_notices,
    standing,
    visible,
    visible_q,
)
from budgets.models import Budget, Notice, Role
from tests import factories as make
from workloads.models import Job

pytestmark = pytest.mark.django_db

# Each role is held in orlo/science. Where from there: its own node, below, above, beside it,
# and below what is beside it.
PLACES = {
    "own": "orlo/science",
    "below": "orlo/science/petrel",
    "above": "orlo",
    "beside": "orlo/vision",
    "elsewhere": "orlo/vision/tern",
}
A = Action
VIEWS = {A.VIEW, A.COMMENT}
WORKS = VIEWS | {A.SUBMIT, A.CANCEL_OWN, A.EXTEND_OWN, A.PROPOSE_SHARES, A.ASK, A.PLAN}
MANAGES = WORKS | {
    *(A.CANCEL_ANY, A.EXTEND_ANY, A.EDIT_SHARES, A.WITHDRAW_ANY, A.DECIDE_REQUESTS),
    *(A.TRANSFER, A.SIMULATE, A.COMPARE_PEOPLE, A.HOLD_REVIEWS),
}
ALL = set(Action)
TABLE = {
    # role: (in its own node, below it); nothing anywhere else
    "viewer": (VIEWS, VIEWS),
    "member": (WORKS, WORKS),
    "manager": (MANAGES, MANAGES | {A.MANAGE_ROLES, A.RENAME}),
    "administrator": (ALL, ALL),
    "nobody": (set(), set()),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("role", TABLE)
def test_what_each_role_may_do_in_each_place(tree, role, place):
    user = make.make_user()
    if role != "nobody":
        make.make_role(user, tree["orlo/science"], role)
    own, below = TABLE[role]
    expected = {"own": own, "below": below}.get(place, set())
    assert {action for action in Action if can(user, action, tree[PLACES[place]])} == expected


@pytest.mark.parametrize("place", PLACES)
def test_a_superuser_may_do_everything_everywhere(cast, tree, place):
    assert all(can(cast["root"], action, tree[PLACES[place]]) for action in Action)


@pytest.mark.parametrize("action", Action)
def test_someone_signed_out_or_inactive_may_do_nothing(cast, tree, action):
    cast["admin"].is_active = False
    cast["root"].is_active = False
    for person in (AnonymousUser(), cast["admin"], cast["root"]):
        assert not can(person, action, tree["orlo"])
        assert not visible(person).exists()


def test_a_path_that_only_begins_alike_is_not_below(tree):
    make.make_budget("science-2", parent=tree["orlo"])
    user = make.make_user()
    make.make_role(user, tree["orlo/science"], "administrator")
    assert not can(user, A.VIEW, Budget.objects.get(path="orlo/science-2"))
    assert "orlo/science-2" not in {budget.path for budget in visible(user)}


def test_roles_in_several_places_add_up(tree):
    user = make.make_user()
    make.make_role(user, tree["orlo/science"], "viewer")
    make.make_role(user, tree["orlo/science/petrel"], "manager")
    make.make_role(user, tree["orlo/vision"], "member")
    assert can(user, A.EDIT_SHARES, tree["orlo/science/petrel"])
    assert not can(user, A.SUBMIT, tree["orlo/science/auk"])
    assert can(user, A.SUBMIT, tree["orlo/vision/tern"])
    assert {budget.path for budget in visible(user)} == set(make.TREE) - {"orlo"}


def test_only_an_administrator_hands_out_administrators(cast):
    manager, admin = standing(cast["manager"]), standing(cast["admin"])
    below = "orlo/science/petrel"
    assert {kind for kind in Role.Kind if manager.may_give(kind, below)} == {
        "manager",
        "member",
        "viewer",
    }
    assert not any(manager.may_give(kind, "orlo/science") for kind in Role.Kind)
    assert all(admin.may_give(kind, "orlo") for kind in Role.Kind)


@pytest.mark.parametrize("path", ["orlo/vision", "orlo", "orlo/nothing", "", "orlo/\0", "orlo/"])
def test_what_is_not_visible_is_not_there(cast, path):
    with pytest.raises(Http404, match="no such budget, or none that you may see"):
        get_budget_or_404(cast["manager"], path)


def test_what_is_visible_is_found(cast, tree):
    assert get_budget_or_404(cast["viewer"], "orlo/science/petrel") == tree["orlo/science/petrel"]
    assert {budget.path for budget in visible(cast["viewer"])} == {"orlo/science/petrel"}


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("place", PLACES)
def test_holders_are_those_who_can(cast, tree, action, place):
    budget = tree[PLACES[place]]
    people = {user for user in cast.values() if not user.is_superuser}
    assert set(holders(action, budget)) == {user for user in people if can(user, action, budget)}


def test_a_budget_is_led_by_its_own_managers_or_else_its_members(cast, tree):
    assert set(leads(tree["orlo/science"])) == {cast["manager"]}
    assert set(leads(tree["orlo/science/petrel"])) == {cast["member"], cast["colleague"]}
    assert not leads(tree["orlo/science/auk"]).exists()


@pytest.mark.parametrize(
    ("who", "own", "theirs"),
    [
        ("member", True, False),
        ("viewer", False, False),
        ("manager", True, True),
        ("admin", True, True),
        ("root", True, True),
        ("stranger", False, False),
        ("nobody", False, False),
    ],
)
def test_one_withdraws_ones_own_requests_and_managers_any(cast, tree, who, own, theirs):
    petrel, user = tree["orlo/science/petrel"], cast[who]
    mine = make.make_request(petrel, asked_by=user)
    others = make.make_request(petrel, asked_by=cast["colleague"], unit="credits")
    assert may_withdraw(standing(user), user, mine) is own
    assert may_withdraw(standing(user), user, others) is theirs


PETREL_PEOPLE = {"root", "admin", "manager", "member", "colleague", "viewer"}


def test_a_request_is_there_for_whoever_sees_its_budget(cast, tree):
    made = make.make_request(tree["orlo/science/petrel"])
    for who, user in cast.items():
        if who in PETREL_PEOPLE:
            assert get_request_or_404(user, made.pk) == made
        else:
            with pytest.raises(Http404, match="no such request"):
                get_request_or_404(user, made.pk)


def test_a_notice_is_there_for_the_one_who_was_told(cast, tree):
    make.tell(cast["member"], tree["orlo/science/petrel"])
    told = Notice.objects.get()
    for who, user in cast.items():
        if who == "member":
            assert get_notice_or_404(user, told.pk) == told
        else:
            assert not own_notices(user).exists()
            with pytest.raises(Http404, match="somebody else's"):
                get_notice_or_404(user, told.pk)
    assert not own_notices(AnonymousUser()).exists()


def test_rows_are_filtered_by_their_budget(cast, tree):
    mine, theirs = (make.make_job(tree[p]) for p in ("orlo/science/auk", "orlo/vision/tern"))
    assert set(Job.objects.filter(visible_q(cast["manager"], "budget__"))) == {mine}
    assert set(Job.objects.filter(visible_q(cast["admin"], "budget__"))) == {mine, theirs}
    assert not Job.objects.filter(visible_q(cast["nobody"], "budget__")).exists()
    assert Job.objects.filter(visible_q(cast["root"], "budget__")).count() == 2


def test_asking_for_many_budgets_costs_one_query(cast, tree, django_assert_num_queries):
    with django_assert_num_queries(1):
        held = standing(cast["manager"])
        assert [path for path in tree if held.can(A.EDIT_SHARES, path)] == [
            "orlo/science",
            "orlo/science/petrel",
            "orlo/science/auk",
        ]
