"""Proposing that a budget moves, is archived or comes back; approving that does it."""

from datetime import timedelta
from typing import Any

import pytest

from allocator import steering
from budgets import periods, shares
from budgets import services as budgets
from budgets.models import Budget, ChangeSet
from budgets.services import Does, Refused, StaleBase
from ledger import reports
from ledger.models import Entry
from ledger.share_changes import waiting
from tests import factories as make
from tests.factories import LONG_AGO, T0, make_role, make_shares, make_tree, make_user
from tests.pages_world import client_of, granted, text_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
NOW = T0 + 10 * DAY
LATER = NOW + DAY
SCIENCE, VISION = "orlo/science", "orlo/vision"
PETREL, AUK, TERN = f"{SCIENCE}/petrel", f"{SCIENCE}/auk", f"{VISION}/tern"
Tree = dict[str, Budget]


@pytest.fixture
def tree(settings: Any) -> Tree:
    """Vision has given three quarters away, so that a quarter can come to it."""
    settings.REPLAN_AT_ONCE = False
    found = make_tree(at=LONG_AGO)
    make_shares(found[VISION], {found[TERN]: 75_000}, at=LONG_AGO)
    return found


@pytest.fixture
def quarter(tree: Tree) -> None:
    granted(tree)


def of(path: str) -> Budget:
    return Budget.objects.get(path=path)


def proposed(does: str, path: str, to: str = "", **asked: Any) -> ChangeSet:
    budget = of(path)
    parent = of(to) if to else budget.parent
    assert parent is not None
    given: dict[str, Any] = {
        "does": Does(does), "budget": budget, "to": of(to) if to else None, "reason": "as agreed",
        "author": make.someone(), "base_version": shares.version(parent), "now": NOW,
        "approve_at_once": False,
    }  # fmt: skip
    return steering.change_place(**given | asked)


def approved(change_set: ChangeSet, **given: Any) -> ChangeSet:
    found = ChangeSet.objects.get(pk=change_set.pk)
    by = given.pop("by", None) or make.someone()
    return steering.approve(change_set=found, by=by, now=given.pop("now", LATER))


def vector(path: str, at: Any = LATER) -> dict[str, int]:
    found = shares.vector_of(shares.in_force(of(path), at=at))
    names = dict(Budget.objects.values_list("pk", "slug"))
    return {names[pk]: row[None] for pk, row in found.items()}


def state() -> list[Any]:
    """Return where every budget is, its effective share, grant and spendable."""
    places = list(Budget.objects.order_by("pk").values_list("pk", "path", "archived_at"))
    period = periods.active(LATER)
    assert period is not None
    found = reports.figures(period=period, now=LATER)
    money = {pk: (one.granted_mgpus, one.spendable_mgpus) for pk, one in found.items()}
    moved = Entry.objects.filter(key__startswith="move:")
    along = sorted(moved.values_list("budget_id", "amount_mgpus"))
    return [places, shares.effective_shares(at=LATER), money, along]


STORIES = [
    ("move", PETREL, VISION, 25_000, {}),
    ("move", PETREL, "orlo", 0, {}),
    ("move", PETREL, AUK, 100_000, {}),
    ("move", VISION, SCIENCE, 10_000, {AUK: 40_000}),
    ("archive", AUK, "", None, {}),
    ("archive", AUK, "", None, {PETREL: 100_000}),
    ("archive", SCIENCE, "", None, {}),
]


@pytest.mark.parametrize(("does", "path", "to", "share", "beside"), STORIES)
def test_a_proposal_does_nothing_and_its_approval_what_doing_it_at_once_does(
    tree: Tree, quarter: None, does: str, path: str, to: str, share: Any, beside: dict[str, int]
) -> None:
    siblings = {of(one): value for one, value in beside.items()}
    given: dict[str, Any] = {"siblings": siblings, "reason": "as agreed", "author": make.someone()}
    placed = {"share": share, "to": of(to)} if to else {}
    do = {"move": steering.move_budget, "archive": steering.archive_budget}[does]
    with undone():
        do(budget=of(path), now=LATER, **placed, **given)
        becomes = state()
    before = state()
    one = proposed(does, path, to, share=share, siblings=siblings)
    assert (one.status, state()) == ("proposed", before)
    made = approved(one)
    assert (made.pk, made.status, made.effective_at) == (one.pk, "approved", LATER)
    assert state() == becomes != before
    period = periods.active(LATER)
    assert period is not None
    assert waiting(period=period, until=LATER) == [], "the ledger followed both parents' sets"


def test_what_is_archived_comes_back_the_same_way(tree: Tree, quarter: None) -> None:
    steering.archive_budget(budget=of(AUK), reason="x", author=make.someone(), now=NOW)
    given: dict[str, Any] = {"share": 40_000, "siblings": {of(PETREL): 60_000}}
    with undone():
        steering.reactivate_budget(
            budget=of(AUK), reason="x", author=make.someone(), now=LATER, **given
        )
        becomes = state()
    approved(proposed("reactivate", AUK, **given))
    assert state() == becomes


def test_author_and_decider_stand_on_the_sets_of_both_parents(tree: Tree, quarter: None) -> None:
    author, decider = make_user("author"), make_user("decider")
    one = proposed("move", PETREL, VISION, share=25_000, author=author)
    approved(one, by=decider)
    newest = [shares.head(of(path)) for path in (SCIENCE, VISION)]
    for found in newest:
        assert found is not None
        assert (found.author, found.decided_by, found.reason) == (author, decider, "as agreed")
    assert newest[1] == one


def test_what_it_is_is_read_from_the_vector(tree: Tree) -> None:
    for does, path, to, share, beside in STORIES:
        siblings = {of(one): value for one, value in beside.items()}
        found = budgets.placing_of(proposed(does, path, to, share=share, siblings=siblings))
        assert found is not None
        assert (found.does, found.budget, found.share) == (does, of(path), share or 0)
        assert (found.parent.path, found.siblings) == (to or path.rpartition("/")[0], siblings)
        assert [one.path for one in found.parents] == [
            path.rpartition("/")[0],
            *([to] if to else []),
        ]
    plain = make_shares(tree[SCIENCE], {tree[PETREL]: 10_000, tree[AUK]: 1}, at=NOW)
    assert budgets.placing_of(plain) is None


# --- Refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "path", "to", "asked", "says"),
    [
        ("move", PETREL, VISION, {"share": 25_001}, "0.001 % too much"),
        ("move", SCIENCE, PETREL, {"share": 0}, "can't move below"),
        ("reactivate", PETREL, "", {"share": 0}, "is not archived"),
        ("archive", PETREL, "", {"reason": " "}, "Say why"),
    ],
)
def test_what_could_not_be_done_is_not_proposed(
    tree: Tree, does: str, path: str, to: str, asked: dict[str, Any], says: str
) -> None:
    with pytest.raises(Refused) as refused:
        proposed(does, path, to, **asked)
    assert says in refused.value.sentence
    assert not ChangeSet.objects.filter(status="proposed").exists()


def test_on_an_outdated_base_it_is_not_proposed_and_not_approved(tree: Tree) -> None:
    one = proposed("move", PETREL, VISION, share=25_000)
    make_shares(tree[VISION], {tree[TERN]: 70_000}, at=NOW)
    with pytest.raises(StaleBase):
        proposed("move", PETREL, VISION, share=25_000, base_version=1)
    with pytest.raises(Refused, match="stale: write a new one"):
        approved(ChangeSet.objects.get(pk=one.pk))
    assert of(PETREL).parent == tree[SCIENCE]


@pytest.mark.parametrize("status", ["approved", "declined"])
def test_it_is_decided_once(tree: Tree, status: str) -> None:
    one = proposed("archive", AUK)
    if status == "approved":
        approved(one)
    else:
        budgets.decline(change_set=one, by=make.someone(), now=LATER)
    with pytest.raises(Refused, match=f"is {status}: write a new one"):
        approved(one, now=LATER + DAY)
    assert (of(AUK).archived_at is not None) is (status == "approved")


def test_what_can_not_be_done_any_more_is_refused_and_stays_open(tree: Tree) -> None:
    one = proposed("archive", AUK)
    make.make_job(tree[AUK])
    with pytest.raises(Refused, match="1 jobs of orlo/science/auk wait or run"):
        approved(one)
    assert ChangeSet.objects.get(pk=one.pk).status == "proposed"


def test_shares_that_came_into_force_meanwhile_are_not_taken_back(tree: Tree) -> None:
    """They were scheduled before it was proposed, so its base is the newest still."""
    make_shares(tree[SCIENCE], {tree[PETREL]: 20_000, tree[AUK]: 30_000}, at=NOW + 5 * DAY)
    one = proposed("move", TERN, SCIENCE, share=0)
    with pytest.raises(Refused, match="have come into force since it was proposed"):
        approved(one, now=NOW + 6 * DAY)
    assert of(TERN).parent == tree[VISION]
    approved(one)
    assert [vector(SCIENCE, at) for at in (LATER, NOW + 6 * DAY)] == [
        {"petrel": 50_000, "auk": 50_000, "tern": 0},
        {"petrel": 20_000, "auk": 30_000, "tern": 0},
    ]


def test_no_old_address_leads_to_where_it_was_only_proposed(tree: Tree, client: Any) -> None:
    proposed("move", PETREL, VISION, share=25_000)
    client.force_login(make_user("root", is_superuser=True))
    assert client.get(f"/budgets/{VISION}/petrel").status_code == 404


# --- Who, over the API ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "status"), [("admin", 200), ("both", 200), ("manager", 403), ("stranger", 404)]
)
def test_who_approves_a_move_manages_both_parents(
    api_of: Any, cast: Any, tree: Tree, who: str, status: int
) -> None:
    make_role(cast["nobody"], tree[VISION], "manager")
    one = proposed("move", PETREL, VISION, share=25_000)
    url = f"/api/v1/change-sets/{one.pk}/approve/"
    assert api_of("nobody").post(url).status_code == 403
    assert "ask who manages both" in api_of("nobody").post(url).json()["detail"]
    if who == "both":
        make_role(cast["manager"], tree[VISION], "manager")
    answer = api_of("manager" if who == "both" else who).post(url)
    assert answer.status_code == status
    assert (of(f"{VISION}/petrel") if status == 200 else of(PETREL)).pk == tree[PETREL].pk


def test_the_parent_that_it_would_leave_lists_it_first(api_of: Any, tree: Tree) -> None:
    """Of a parent that the reader doesn't see it tells nothing but that there is one."""
    one = proposed("move", PETREL, VISION, share=25_000)
    make_shares(tree[SCIENCE], {tree[PETREL]: 40_000, tree[AUK]: 1}, at=NOW)
    asked = f"/api/v1/budgets/{SCIENCE}/change-sets/"
    told = {who: api_of(who).get(asked).json()["results"] for who in ("manager", "admin")}
    for results in told.values():
        assert results[0]["id"] == one.pk
        assert [row["version"] for row in results[1:]] == [2, 1]
        moved = {"child": "petrel", "pool": "", "before": None, "after": 25_000}
        assert results[0]["moves"] == [moved]
    unseen, seen = told["manager"][0], told["admin"][0]
    assert (unseen["parent"], unseen["shares"]) == ("elsewhere", {PETREL: 25_000})
    assert (seen["parent"], seen["shares"]) == (VISION, {"tern": 75_000, PETREL: 25_000})
    there = api_of("admin").get(f"/api/v1/budgets/{VISION}/change-sets/").json()["results"]
    assert there[0] == seen
    assert api_of("admin").get("/api/v1/budgets/orlo/change-sets/").json()["count"] == 1


@pytest.mark.parametrize("who", ["manager", "admin"])
def test_who_manages_either_parent_declines_it(api_of: Any, tree: Tree, who: str) -> None:
    one = proposed("move", PETREL, VISION, share=25_000)
    url = f"/api/v1/change-sets/{one.pk}/decline/"
    assert api_of("member").post(url).status_code == 404
    answer = api_of(who).post(url)
    assert (answer.status_code, answer.json()["status"]) == (200, "declined")
    assert "tern" not in str(answer.json()) or who == "admin"
    found = api_of(who).get(f"/api/v1/budgets/{SCIENCE}/change-sets/").json()["results"]
    assert one.pk not in [row["id"] for row in found], "what is decided is its parent's alone"
    assert api_of("manager").post(url).status_code == 404


@pytest.mark.parametrize("where", ["api", "pages"])
def test_who_manages_where_it_was_does_not_take_it_from_where_it_has_come_meanwhile(
    api_of: Any, cast: Any, tree: Tree, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Asked whether he may, and before it is done, an administrator moves it."""
    make_role(cast["manager"], tree[VISION], "manager")
    one, asked = proposed("move", PETREL, VISION, share=25_000), budgets.parents_of

    def moved_meanwhile(change_set: ChangeSet) -> list[Budget]:
        parents, to = asked(change_set), of("orlo")
        budgets.move_budget(
            budget=of(PETREL), to=to, share=0, author=make.someone(), reason="x", now=NOW
        )
        return parents

    monkeypatch.setattr(budgets, "parents_of", moved_meanwhile)
    said = "Petrel has just been moved: look at the proposal again."
    if where == "api":
        answer = api_of("manager").post(f"/api/v1/change-sets/{one.pk}/approve/")
        assert (answer.status_code, said in answer.content.decode()) == (400, True)
    else:
        client = client_of(cast["manager"])
        answer = client.post(f"/change-sets/{one.pk}/approve", follow=True)
        assert said in text_of(answer)
    assert of("orlo/petrel").parent == tree["orlo"]
    assert ChangeSet.objects.get(pk=one.pk).status == "proposed"


def test_nor_who_does_it_at_once(tree: Tree) -> None:
    petrel = of(PETREL)
    assert petrel.parent == tree[SCIENCE], "read before it moves"
    one = proposed("move", PETREL, VISION, share=25_000)
    budgets.move_budget(
        budget=of(PETREL), to=of("orlo"), share=0, author=make.someone(), reason="x", now=NOW
    )
    with pytest.raises(Refused, match="has just been moved"):
        steering.approve(
            change_set=one, by=make.someone(), now=LATER, parents=[tree[SCIENCE], tree[VISION]]
        )
    with pytest.raises(Refused, match="has just been moved"):
        steering.change_place(
            does=Does.MOVE, budget=petrel, to=of(VISION), share=25_000, reason="x", now=LATER,
            author=make.someone(), base_version=shares.version(of(VISION)), approve_at_once=True,
        )  # fmt: skip
