"""Roles by subtree, over every route: role × action × place for pages and API alike.

What each role may do where stands in tests/test_access.py; here the same table is asked through the
addresses. A route without a row in a table fails the last test.
"""

from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver

from allocator import cycle
from allocator.reviews import commenting
from allocator.simulating import asking
from budgets import services
from budgets.access import NOT_HERE, Action
from budgets.models import Budget, Notice, Period
from clusters import windows
from config import urls
from tests import factories as make
from tests.pages_world import client_of
from tests.test_access import PLACES, TABLE
from tests.undoing import undone
from workloads.models import Job

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
A = Action
NOWHERE = "orlo/science/nothing"
REASON = {"reason": "why"}
OUTDATED: dict[str, Any] = {"shares": {}, "base_version": 9}  # the roles are asked before
JOB = {"kind": "training", "gpus": "1", "urgency": "normal", "when_unfunded": "run"}


@dataclass(frozen=True)
class Deed:
    """A request that does, or shows, what an action allows; `{…}` are of the place."""

    action: Action
    method: str
    address: str
    body: dict[str, Any] | None = None

    @property
    def is_api(self) -> bool:
        return self.address.startswith("/api/")


API = "/api/v1/budgets/{path}/"
NAMED = {"/api/v1/budgets/": "parent"}
NAMED |= dict.fromkeys(("/api/v1/jobs/", "/api/v1/estimates/", "/api/v1/simulations/"), "budget")
TRACE = "job_id,submit_time_s,gpus,duration_s,group\n1,0,1,60,a\n"
DEEDS = (
    *(
        Deed(A.VIEW, "get", API + what)
        for what in ("", "burn/", "change-sets/", "roles/", "asked/")
    ),
    Deed(A.VIEW, "get", "/budgets/{path}"),
    Deed(A.VIEW, "get", "/budgets/{path}/diff"),
    Deed(A.VIEW, "get", "/api/v1/jobs/{theirs}/"),
    Deed(A.VIEW, "get", "/jobs/{theirs}"),
    Deed(A.SUBMIT, "post", "/api/v1/jobs/", {"name": "x", "kind": "training", "gpus": 1}),
    Deed(A.SUBMIT, "post", "/api/v1/estimates/", {"kind": "training", "gpus": 1}),
    Deed(A.CANCEL_OWN, "post", "/api/v1/jobs/{mine}/cancel/"),
    Deed(A.CANCEL_OWN, "post", "/jobs/{mine}/cancel"),
    Deed(A.CANCEL_ANY, "post", "/api/v1/jobs/{theirs}/cancel/"),
    Deed(A.CANCEL_ANY, "post", "/jobs/{theirs}/cancel"),
    # Who may send some is told that it is no service.
    Deed(
        A.SUBMIT,
        "post",
        "/api/v1/jobs/{theirs}/traffic/",
        {"traffic": [{"at": "2026-10-01T00:00:00Z", "rate": 1}]},
    ),
    Deed(A.SUBMIT, "post", "/api/v1/jobs/{theirs}/calibration/", {"calibrated": True}),
    Deed(A.SUBMIT, "post", "/api/v1/jobs/{theirs}/recalibrate/"),
    Deed(A.CANCEL_OWN, "post", "/api/v1/jobs/{mine}/urgency/", {"urgency": "high"}),
    Deed(A.CANCEL_OWN, "post", "/jobs/{mine}/urgency", {"urgency": "high"}),
    Deed(A.CANCEL_ANY, "post", "/api/v1/jobs/{theirs}/urgency/", {"urgency": "high"}),
    Deed(A.CANCEL_ANY, "post", "/jobs/{theirs}/urgency", {"urgency": "high"}),
    # Who may ask is told that it is no session.
    Deed(A.EXTEND_OWN, "post", "/api/v1/jobs/{mine}/extend/", {"more_s": 60}),
    Deed(A.EXTEND_OWN, "post", "/jobs/{mine}/extend", {"more": "1 min"}),
    Deed(A.EXTEND_ANY, "post", "/api/v1/jobs/{theirs}/extend/", {"more_s": 60}),
    Deed(A.EXTEND_ANY, "post", "/jobs/{theirs}/extend", {"more": "1 min"}),
    Deed(
        A.PROPOSE_SHARES, "post", API + "change-sets/", REASON | {"shares": {}, "base_version": 9}
    ),
    Deed(A.PROPOSE_SHARES, "get", "/budgets/{path}/shares"),
    Deed(A.PROPOSE_SHARES, "post", "/budgets/{path}/shares/preview", {}),
    Deed(A.EDIT_SHARES, "post", "/api/v1/change-sets/{change_set}/approve/"),
    Deed(A.EDIT_SHARES, "post", "/api/v1/change-sets/{change_set}/decline/"),
    Deed(A.EDIT_SHARES, "post", "/change-sets/{change_set}/approve"),
    Deed(A.EDIT_SHARES, "post", "/change-sets/{change_set}/decline"),
    Deed(A.EDIT_SHARES, "post", "/api/v1/budgets/", REASON | {"slug": "kea", "name": "Kea"}),
    Deed(A.TRANSFER, "get", "/budgets/{path}/transfers"),
    Deed(A.TRANSFER, "post", "/budgets/{path}/transfers", {}),
    Deed(A.TRANSFER, "post", "/budgets/{path}/transfers/preview", {}),
    Deed(A.ADMINISTER, "get", "/budgets/{path}/by-hand"),
    Deed(A.ADMINISTER, "post", "/budgets/{path}/by-hand", {}),
    Deed(A.ADMINISTER, "post", "/budgets/{path}/by-hand/preview", {}),
    Deed(A.VIEW, "get", API + "by-hand/"),
    Deed(A.ADMINISTER, "post", API + "by-hand/", REASON | {"kind": "grant", "amount_mgpus": 1}),
    Deed(A.ADMINISTER, "post", API + "by-hand/preview/", {"kind": "grant", "amount_mgpus": 1}),
    Deed(A.MANAGE_ROLES, "post", API + "roles/", {"username": "nobody", "kind": "viewer"}),
    Deed(A.MANAGE_ROLES, "delete", API + "roles/colleague/"),
    Deed(A.ADMINISTER, "post", API + "roles/", {"username": "nobody", "kind": "administrator"}),
    Deed(
        A.SIMULATE,
        "post",
        "/api/v1/simulations/",
        {"trace": {"text": TRACE}, "equal_shares": True},
    ),
    Deed(A.VIEW, "get", "/reviews/{period}/{path}"),
    Deed(A.COMMENT, "post", "/reviews/comment/{period}/{path}", {"text": "why"}),
    Deed(
        A.HOLD_REVIEWS,
        "post",
        "/reviews/hold/{period}/{path}",
        {"held_on": "2026-10-01", "decision": "go on", "base_version": 0},
    ),
    Deed(A.RENAME, "post", API + "rename/", {"slug": "kea"}),
    Deed(A.RENAME, "get", "/budgets/{path}/rename"),
    Deed(A.RENAME, "post", "/budgets/{path}/rename", {"name": "Kea", "slug": "kea"}),
)


def of_place(path: str, user: User, tree: dict[str, Budget], colleague: User) -> dict[str, Any]:
    """Return what there is in a place, or numbers of what isn't anywhere."""
    budget = tree.get(path)
    if budget is None:
        return {"path": path, "period": 1} | dict.fromkeys(("mine", "theirs", "change_set"), 10**8)
    proposal = services.draft_change_set(
        parent=budget,
        shares={child: 0 for child in tree.values() if child.parent == budget},
        reason="why",
        author=colleague,
        base_version=1 if any(child.parent == budget for child in tree.values()) else 0,
        effective_at=make.T0,
        now=make.T0,
    )
    make.make_role(make.make_user(), budget, "viewer")
    return {
        "path": path,
        "period": Period.objects.get().pk,
        "mine": make.make_job(budget, user=user).pk,
        "theirs": make.make_job(budget, user=colleague).pk,
        "change_set": services.propose(change_set=proposal, now=make.T0).pk,
    }


def outcome(client: Client, deed: Deed, place: dict[str, Any]) -> str:
    """Return "done" where whoever asks got past the roles, else "refused" or "not there"."""
    body: Any = deed.body
    if deed.is_api:
        named = NAMED.get(deed.address)
        body = {**(body or {}), **({named: place["path"]} if named else {})}
    as_json = {"content_type": "application/json"} if deed.is_api else {}
    given = {"data": body, **as_json} if deed.method == "post" else {}
    with undone():
        answer = getattr(client, deed.method)(deed.address.format(**place), **given)
    if answer.status_code == 404 or str(NOT_HERE) in answer.content.decode(errors="ignore"):
        return "not there"
    if answer.status_code == 403:
        return "refused"
    assert answer.status_code < 500
    return "done"


@pytest.fixture
def world(tree: dict[str, Budget]) -> User:
    """Make GPUs and a period that holds now; return a colleague who sees all."""
    make.make_nodes(make.make_pool("h100"), 2)
    make.make_period(starts_at=make.LONG_AGO, ends_at=make.LONG_AGO.replace(year=2100))
    make.make_user("nobody")
    colleague = make.make_user("colleague")
    for budget in tree.values():
        make.make_role(colleague, budget, "viewer")
    return colleague


@pytest.mark.once
@pytest.mark.parametrize("role", TABLE)
def test_each_role_may_do_through_every_address_what_it_may(
    tree: dict[str, Budget], world: User, role: str
) -> None:
    user = make.make_user()
    if role != "nobody":
        make.make_role(user, tree["orlo/science"], role)
    client = client_of(user)
    own, below = TABLE[role]
    wrong = []
    for name, path in {**PLACES, "nowhere": NOWHERE}.items():
        may = {"own": own, "below": below}.get(name, set())
        place = of_place(path, user, tree, world)
        for deed in DEEDS:
            found = outcome(client, deed, place)
            if deed.action in may:
                expected = {"done"}
            elif A.VIEW not in may:
                expected = {"not there"}
            else:  # a page that one has no use for isn't there either
                expected = {"refused"} if deed.is_api else {"refused", "not there"}
            if found not in expected:
                wrong.append((name, deed.action, deed.method, deed.address, found))
    assert not wrong


@pytest.mark.once
@pytest.mark.parametrize("role", TABLE)
def test_the_form_submits_only_where_one_may(
    tree: dict[str, Budget], world: User, role: str
) -> None:
    user = make.make_user()
    if role != "nobody":
        make.make_role(user, tree["orlo/science"], role)
    client = client_of(user)
    for name, path in PLACES.items():
        may = TABLE[role][1] if name == "below" else set()  # jobs belong to leaves
        with undone():
            client.post("/jobs/new", JOB | {"budget": path, "name": "by form"})
            made = list(Job.objects.filter(name="by form").values_list("budget__path", flat=True))
        assert made == ([path] if A.SUBMIT in may else [])


# --- Every page ----------------------------------------------------------------------------------

PEOPLE = ("root", "admin", "manager", "member", "viewer", "stranger", "nobody")
EVERYONE = dict.fromkeys(PEOPLE, 200)
NOTHING = dict.fromkeys(PEOPLE, 404)
ABOVE_ALL = NOTHING | {"root": 200, "admin": 200}
PETREL = EVERYONE | {"stranger": 404, "nobody": 404}
SCIENCE = PETREL | {"member": 404, "viewer": 404}
SUBMITS = EVERYONE | {"viewer": 403, "nobody": 403}
STAFF = dict.fromkeys(PEOPLE, 302) | {"root": 200}
ADMINISTRATORS = dict.fromkeys(PEOPLE, 403) | {"root": 200, "admin": 200}
MANAGERS = ADMINISTRATORS | {"manager": 200}
MANAGED = ABOVE_ALL | {"manager": 200}  # what the manager of science asked for

PAGES = [
    # method, address, expected answer of each; done and sent on, or asked again, counts as 200
    ("get", "search?q=petrel", EVERYONE),
    ("get", "docs", EVERYONE),
    ("get", "docs/ledger", EVERYONE),
    ("get", "docs/files/images/bench-families.svg", EVERYONE),
    ("post", "language", EVERYONE),
    ("get", "budgets", EVERYONE),
    ("get", "budgets/orlo/science", SCIENCE),
    ("get", "budgets/orlo/science/petrel", PETREL),
    ("get", "budgets/orlo/science/shares", SCIENCE),
    ("post", "budgets/orlo/science/shares", SCIENCE),
    ("post", "budgets/orlo/science/shares/preview", SCIENCE),
    ("get", "budgets/orlo/science/petrel/burn.json", PETREL),
    ("get", "budgets/orlo/science/petrel/levels.json", PETREL),
    ("get", "budgets/orlo/science/petrel/burn.csv", PETREL),
    ("post", "change-sets/{change_set}/approve", SCIENCE),
    ("post", "change-sets/{change_set}/decline", SCIENCE),
    ("get", "budgets/orlo/science/petrel/plan", PETREL),
    ("post", "budgets/orlo/science/petrel/plan", PETREL | {"viewer": 403}),
    ("post", "budgets/orlo/science/petrel/exemptions", PETREL | {"viewer": 403}),
    ("get", "periods/{period}/checkpoints", EVERYONE),
    ("post", "periods/{period}/checkpoints", ADMINISTRATORS),
    ("post", "checkpoints/{checkpoint}/remove", ADMINISTRATORS),
    ("post", "exemptions/{exemption}/approve", PETREL | {"member": 403, "viewer": 403}),
    ("post", "exemptions/{exemption}/decline", PETREL | {"member": 403, "viewer": 403}),
    ("get", "budgets/orlo/science/petrel/report", PETREL),
    ("get", "budgets/orlo/science/petrel/asked", PETREL),
    ("get", "budgets/orlo/science/petrel/requests", PETREL),
    ("get", "budgets/orlo/science/petrel/transfers", SCIENCE),
    ("post", "budgets/orlo/science/petrel/transfers", SCIENCE),
    ("post", "budgets/orlo/science/petrel/transfers/preview", SCIENCE),
    ("get", "budgets/orlo/science/petrel/diff", PETREL),
    ("get", "budgets/orlo/science/diff", SCIENCE),
    ("get", "budgets/orlo/science/rename", SCIENCE | {"manager": 404}),
    ("post", "budgets/orlo/science/petrel/rename", SCIENCE),
    ("get", "budgets/orlo/science/move", SCIENCE | {"manager": 404}),
    ("get", "budgets/orlo/science/petrel/move", SCIENCE),
    ("post", "budgets/orlo/science/petrel/move", SCIENCE),
    ("post", "budgets/orlo/science/petrel/move/preview", SCIENCE),
    ("get", "budgets/orlo/science/petrel/by-hand", ABOVE_ALL),
    ("post", "budgets/orlo/science/petrel/by-hand", ABOVE_ALL),
    ("post", "budgets/orlo/science/petrel/by-hand/preview", ABOVE_ALL),
    ("get", "requests", EVERYONE),
    ("get", "requests/{request}", PETREL),
    ("post", "requests/{request}/withdraw", PETREL),  # who may not is told so on the page
    ("get", "notices", EVERYONE),
    ("post", "notices/read", EVERYONE),
    ("post", "notices/{notice}/read", NOTHING | {"member": 200}),
    ("get", "periods", EVERYONE),
    ("get", "periods/{period}", EVERYONE),
    ("get", "periods/{period}/statement.csv", NOTHING),  # it isn't closed
    ("post", "periods/{period}/approve", ADMINISTRATORS),
    ("get", "", EVERYONE),
    ("get", "jobs", EVERYONE),
    ("get", "jobs/new", SUBMITS),
    ("post", "jobs/quote", SUBMITS),
    ("get", "jobs/{job}", PETREL),
    ("post", "jobs/{job}/cancel", PETREL | {"member": 403, "viewer": 403}),
    ("post", "jobs/{job}/extend", PETREL | {"member": 403, "viewer": 403}),
    ("post", "jobs/{job}/urgency", PETREL | {"member": 403, "viewer": 403}),
    ("get", "jobs/{job}/charges.csv", PETREL),
    ("get", "jobs/{job}/demand.json", NOTHING),  # it is no service
    ("get", "jobs/{job}/traffic.csv", NOTHING),
    ("post", "jobs/{job}/traffic", NOTHING),
    ("post", "jobs/{job}/calibration", NOTHING),
    ("post", "jobs/{job}/recalibrate", NOTHING),
    ("get", "forecasts", EVERYONE),
    ("get", "plan", EVERYONE),
    ("get", "plan.json", EVERYONE),
    ("get", "settings/people", ABOVE_ALL | {"manager": 200}),
    ("post", "settings/people", ABOVE_ALL),
    ("get", "settings/people/give", ABOVE_ALL | {"manager": 200}),
    ("post", "settings/people/give", ABOVE_ALL | {"manager": 200}),
    ("get", "settings/people/{person}", ABOVE_ALL | {"manager": 200}),
    ("get", "settings/pools", EVERYONE),
    ("post", "settings/pools", ADMINISTRATORS),
    ("get", "settings/pools/new", ABOVE_ALL),
    ("post", "settings/pools/new", ABOVE_ALL),
    ("get", "settings/pools/h100", EVERYONE),
    ("post", "settings/pools/h100", ADMINISTRATORS),
    ("get", "settings/pools/h100/nodes", ABOVE_ALL),
    ("post", "settings/pools/h100/nodes", ABOVE_ALL),
    ("post", "settings/pools/h100/nodes/preview", ABOVE_ALL),
    ("get", "settings/nodes/{node}", EVERYONE),
    ("post", "settings/nodes/{node}", ADMINISTRATORS),
    ("post", "settings/nodes/{node}/preview", ABOVE_ALL),
    ("get", "audit", EVERYONE),
    ("get", "audit.csv", EVERYONE),
    ("get", "cycles", EVERYONE),
    ("get", "cycles/{cycle}", EVERYONE),
    ("post", "cycles/{cycle}/replay", EVERYONE),
    ("get", "cycles/{cycle}/snapshot.json", ABOVE_ALL),
    ("get", "nodes", EVERYONE),
    ("get", "windows/new", ABOVE_ALL),
    ("post", "windows/new", ABOVE_ALL),
    ("post", "windows/new/preview", ABOVE_ALL),
    ("get", "windows/{window}", EVERYONE),
    ("post", "windows/{window}/change", ADMINISTRATORS),
    ("post", "windows/{window}/end", ADMINISTRATORS),
    ("get", "reviews", EVERYONE),
    ("get", "reviews/{period}/orlo/science", SCIENCE),
    ("get", "reviews/{period}/orlo/science/petrel", PETREL),
    ("get", "reviews/{period}/orlo/science/petrel.csv", PETREL),
    ("post", "reviews/comment/{period}/orlo/science", SCIENCE),
    ("post", "reviews/hold/{period}/orlo/science", SCIENCE),
    ("post", "reviews/hold/{period}/orlo/science/petrel", PETREL | {"member": 403, "viewer": 403}),
    ("post", "reviews/comments/{comment}/edit", PETREL),  # who may not is told so on the page
    ("post", "reviews/comments/{comment}/withdraw", PETREL),
    ("get", "simulator", EVERYONE),
    ("post", "simulator", MANAGERS),
    ("get", "simulator/history.csv", MANAGERS),
    ("get", "simulator/{simulation}", MANAGED),
    ("get", "simulator/{simulation}/runs", NOTHING),  # it isn't done
    ("get", "simulator/{simulation}/picture.json", NOTHING),
    ("get", "simulator/{simulation}/preview", MANAGED),
    ("post", "simulator/{simulation}/cancel", MANAGED),
    ("post", "budgets/orlo/science/shares/simulate", SCIENCE),
    ("get", "admin/", STAFF),
]
OPEN = {
    "sign-in",
    "password",
    "sign-out",
    "healthz",
    "favicon.ico",
    "language",
}  # for who is signed out too


@pytest.fixture
def ids(cast: dict[str, User], tree: dict[str, Budget]) -> dict[str, int]:
    """Make a job of somebody else in petrel, a cycle, and a proposal for science."""
    nodes = make.make_nodes(make.make_pool("h100"), 2)
    far: dict[str, Any] = {"starts_at": make.LONG_AGO.replace(year=2100), "ends_at": None}
    window = windows.set_window(nodes=nodes, reason="why", by=None, now=make.T0, **far)
    period = make.make_period(starts_at=make.LONG_AGO, ends_at=make.LONG_AGO.replace(year=2100))
    checkpoint = make.make_checkpoint(period, make.LONG_AGO.replace(year=2099), [(20, 80)])
    exemption = checkpoint.exemptions.create(
        budget=tree["orlo/science/petrel"], reason="why", asked_by=make.someone(), asked_at=make.T0
    )
    petrel = tree["orlo/science/petrel"]
    request = make.make_request(petrel, unit="credits", asked=1, asked_by=cast["colleague"])
    said = commenting.add(
        budget=petrel, period=period, author=make.someone(), text="why", now=make.T0
    )
    make.tell(cast["member"], petrel)
    place = of_place("orlo/science", cast["admin"], tree, cast["colleague"])
    job = make.make_job(tree["orlo/science/petrel"], user=cast["colleague"], minimum_runtime_s=0)
    made = cycle.run(at=make.T0, trigger="test")
    assert made is not None
    return {
        "cycle": made.pk,
        "job": job.pk,
        "window": window.pk,
        "node": nodes[0].pk,
        "comment": said.pk,
        "change_set": place["change_set"],
        "period": period.pk,
        "checkpoint": checkpoint.pk,
        "exemption": exemption.pk,
        "request": request.pk,
        "person": cast["member"].pk,
        "notice": Notice.objects.get(user=cast["member"]).pk,
        "simulation": asking.ask(by=cast["manager"], now=make.T0, trace=TRACE, equal=True).pk,
    }


# On the second database one who sees all is enough.
ASKED = [who if who == "admin" else pytest.param(who, marks=pytest.mark.once) for who in PEOPLE]


@pytest.mark.parametrize("who", ASKED)
def test_each_page_answers_each_person_as_the_table_says(
    cast: dict[str, User], ids: dict[str, int], who: str
) -> None:
    client, wrong = client_of(cast[who]), []
    for method, address, expected in PAGES:
        with undone():
            answer = getattr(client, method)(f"/{address.format(**ids)}")
        found = answer.status_code
        if found in (302, 409, 422) and not answer.get("Location", "").startswith("/admin/login"):
            found = 200
        if found != expected[who]:
            wrong.append((method, address, found, expected[who]))
    assert not wrong


def test_who_is_signed_out_is_sent_to_sign_in(ids: dict[str, int]) -> None:
    client = client_of(None)
    for method, address, _ in PAGES:
        if address in OPEN:
            continue
        answer = getattr(client, method)(f"/{address.format(**ids)}")
        assert answer.status_code == 302, address
        assert answer["Location"].startswith(("/sign-in", "/admin/login")), address


def test_the_table_has_every_page() -> None:
    of_budgets = ("change_set", "period", "checkpoint", "exemption", "request", "notice", "comment")
    names = ("job", "person", "cycle", "window", "simulation", "node", *of_budgets)
    numbers = dict.fromkeys(names, 1)
    asked = [address.partition("?")[0].format(**numbers) for _, address, _ in PAGES]
    for route in (*urls.pages, *urls.operations):
        name = str(route.pattern)
        if name not in OPEN:
            assert any(_matches(route, address) for address in asked), f"{name} is not in the table"


def _matches(route: URLPattern | URLResolver, address: str) -> bool:
    """Whether a route is the one that answers an address: the first that matches it."""
    routes = (*urls.pages, *urls.operations)
    return next((one for one in routes if one.pattern.match(address)), None) is route


def test_no_route_stands_outside_the_tables() -> None:
    """tests/test_api_access.py walks the API's, this file pages and operations."""
    api, *rest = urls.urlpatterns
    assert isinstance(api, URLResolver)
    assert list(api.url_patterns) == urls.api
    assert rest == [*urls.pages, *urls.operations]
