"""The documentation of budgets, API and words says what the code does."""

import re
from fractions import Fraction
from pathlib import Path

import pytest
from django.apps import apps
from django.urls import URLPattern, resolve

from budgets import access, services, shares
from budgets.models import Budget
from budgets.places import SLUG
from config import urls
from ledger import reports
from ledger import services as ledger
from tests import factories as make
from tests.ledger_world import CREDIT, give, give_alone
from workloads.api.inputs import JobIn

DOCS = Path(__file__).parents[1] / "docs"
GLOSSARY = (DOCS / "glossary.md").read_text()
OUR_APPS = ("clusters", "budgets", "workloads", "ledger", "forecasting", "allocator")
MODELS = [
    model
    for app in OUR_APPS
    for model in apps.get_app_config(app).get_models()
    if not model.__name__.startswith("Simulated")  # the simulator's own memory
]


def _said(value: object, label: object) -> str:
    """A choice as people read it: numbers by what they are called."""
    return str(label).lower() if isinstance(value, int) else str(value).replace("_", " ")


CHOICES = sorted(
    {
        (f"{model.__name__}.{field.name}", _said(value, label))
        for model in MODELS
        for field in model._meta.get_fields()
        for value, label in getattr(field, "choices", None) or ()
    }
)


def rows(name: str, cells: int) -> list[list[str]]:
    """Return the rows of a page's tables that have so many cells."""
    found = re.findall(r"^\|(.*)\|$", (DOCS / name).read_text(), re.M)
    parted = [[cell.strip() for cell in row.split("|")] for row in found]
    return [row for row in parted if len(row) == cells]


@pytest.mark.once
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_model_is_a_word_of_the_glossary(model):
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", model.__name__).lower().replace("gpu", "GPU")
    heads = ", ".join(re.findall(r"^\| \*\*(.*?)\*\*", GLOSSARY, re.M))
    bold = ", ".join(re.findall(r"\*\*(.*?)\*\*", GLOSSARY))
    assert re.search(rf"(^|, ){word}(,|$)", f"{heads}, {bold}"), f"{word!r} is missing"


@pytest.mark.once
@pytest.mark.parametrize(("of", "value"), CHOICES)
def test_every_state_is_a_word_of_the_glossary(of, value):
    value = {"realtime": "real time"}.get(value, value)
    assert re.search(rf"\*[^*|]*\b{re.escape(value)}\b[^*|]*\*", GLOSSARY), f"{of}: {value!r}"


@pytest.mark.django_db
def test_the_tree_of_the_page_has_the_shares_it_says():
    make.make_tree()
    nodes = {node.budget.path: node for node in shares.tree(at=make.T0).values()}
    table = [row for row in rows("budgets.md", 4) if row[0].startswith("`")]
    assert [row[0].strip("`") for row in table] == list(nodes)
    for path, share, effective, gpus in table:
        node = nodes[path.strip("`")]
        assert services.percent(node.thousandths) == share
        assert Fraction(effective) == node.effective
        assert Fraction(gpus) == node.effective * 448


@pytest.mark.django_db
def test_the_vectors_of_the_page_are_accepted_and_refused_as_it_says():
    table = [row for row in rows("budgets.md", 3) if row[0][:1].isdigit()]
    assert len(table) == 4
    for number, (vector, total, verdict) in enumerate(table):
        values = [int(value) for value in vector.split()]
        assert services.percent(sum(values)) == total
        root = make.make_budget(f"root{number}")
        children = [make.make_budget(parent=root) for _ in values]
        make.make_shares(root, dict.fromkeys(children, 0))
        assert _accepts(root, dict(zip(children, values, strict=True))) is (verdict == "accepted")


def _accepts(root: Budget, vector: dict[Budget, int]) -> bool:
    try:
        services.set_shares(
            parent=root,
            shares=vector,
            reason="as the page says",
            author=make.someone(),
            base_version=1,
            now=make.T0,
        )
    except services.Refused:
        return False
    return True


@pytest.mark.django_db
def test_what_the_page_says_goes_back_is_what_does():
    table = [row for row in rows("budgets.md", 5) if re.fullmatch(r"\d+, \d+", row[0])]
    assert len(table) == 4
    tree, period, someone = make.make_tree(), make.make_period(), make.someone()
    for number, row in enumerate(table):
        before, *amounts = row
        granted, claimed = (int(cell) for cell in before.split(","))
        given, claimed_then, back, then_granted = (int(cell) for cell in amounts)
        budget = make.make_budget(f"b{number}", parent=tree["orlo/science"])
        beside = make.make_budget(f"c{number}", parent=tree["orlo/science"])
        children = {child: 0 for child in (budget, beside)}
        make.make_shares(tree["orlo/science"], children)
        give(tree["orlo/science"], 100, period)
        give_alone(budget, granted, period)
        give_alone(beside, 10, period)
        ledger.place_hold(job=make.make_job(budget), amount_mgpus=claimed * CREDIT, now=make.T0)
        until = make.T0 + make.HOUR
        asked = make.make_request(budget, unit="credits", asked=given * CREDIT, until=until)
        ledger.grant_request(request=asked, source=beside, by=someone, now=make.T0)
        more = (claimed_then - claimed) * CREDIT
        ledger.place_hold(job=make.make_job(budget), amount_mgpus=more, now=make.T0)
        ledger.end_due(now=until)
        found = reports.figures(period=period, now=until)
        assert found[budget.pk].granted_mgpus == then_granted * CREDIT
        assert found[beside.pk].granted_mgpus == (10 - given + back) * CREDIT


def test_the_roles_of_the_page_may_do_what_it_says():
    text = dict(row for row in rows("budgets.md", 2) if row[0] in access.Kind.values)
    for kind in access.Kind:
        added = {action for action, least in access.NEEDS.items() if least == kind}
        for action in added:
            assert str(action).replace("_", " ") in text[kind], f"{kind}: {action}"
    assert set(text) == set(access.Kind.values)


def test_every_address_of_the_api_is_on_its_page():
    page = {row[0].strip("`") for row in rows("api.md", 3)}
    for route in urls.api:
        unlisted = ("", "schema", "docs", "^.*/$")
        if isinstance(route, URLPattern) and str(route.pattern) not in unlisted:
            address = str(route.pattern).replace("<int:pk>", "{id}")
            assert re.sub(r"<\w+:(\w+)>", r"{\1}", address) in page
    assert "/api/v1/schema" in (DOCS / "api.md").read_text()


def test_every_field_of_a_submission_is_on_the_page():
    listed = ", ".join(row[0] for row in rows("api.md", 3))
    assert [name for name in JobIn().fields if f"`{name}`" not in listed] == []


def test_what_addresses_put_behind_a_path_is_no_slug():
    """Every word of every route, tried as a slug: it is refused, or leads to the budget itself."""
    patterns = " ".join(str(route.pattern) for route in (*urls.api, *urls.pages))
    words = {word for word in re.findall(r"[a-z0-9-]+", patterns) if SLUG.fullmatch(word)}
    assert {"burn", "preview", "by-hand", "periods", "approve"} <= words
    taken = {word for word in words if not _leads_to_the_budget(f"orlo/{word}")}
    assert {"burn", "rename", "diff", "by-hand"} <= taken
    assert taken <= services.RESERVED
    assert services.RESERVED - taken == {"edit", "export", "jobs", "new", "periods"}  # spare


def _leads_to_the_budget(path: str) -> bool:
    page, api = resolve(f"/budgets/{path}"), resolve(f"/api/v1/budgets/{path}/")
    found = (page.url_name, page.kwargs, api.func.cls.__name__, api.kwargs)  # type: ignore[attr-defined]
    return found == ("budget", {"path": path}, "BudgetDetail", {"path": path})
