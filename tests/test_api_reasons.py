"""Reasons name only what their reader may see, in the API and on pages."""

import pytest
from django.test import Client

from allocator import cycle
from tests import factories as make

pytestmark = pytest.mark.django_db


def test_names_of_unknown_budgets_are_taken_out_of_reasons(api_of, cast, tree):
    pool = make.make_pool("h100")
    make.make_nodes(pool, 1)
    make.make_period()
    make.make_job(tree["orlo/vision/tern"], minimum_runtime_s=0)
    cycle.run(at=make.T0, trigger="test")
    waits = make.make_job(tree["orlo/science/petrel"], minimum_runtime_s=0, at=make.T0)
    cycle.run(at=make.T0 + make.TIMESTEP, trigger="test")
    address = f"/api/v1/jobs/{waits.pk}/"
    seen, hidden = (api_of(who).get(address).json()["outlook"] for who in ("admin", "member"))
    assert seen["data"]["behind"][0]["budget"] == "orlo/vision/tern"
    assert hidden["data"]["behind"] == [{"job": None, "name": None, "budget": None}]
    assert hidden["rule"] == seen["rule"] == api_of("member").get(address).json()["waits"]


def test_a_job_waited_for_in_an_unknown_budget_has_neither_number_nor_name(api_of, cast, tree):
    make.make_nodes(make.make_pool("h100"), 1)
    make.make_period()
    theirs = make.make_job(tree["orlo/vision/tern"], name="secret", minimum_runtime_s=0)
    waits = make.make_job(tree["orlo/science/petrel"], minimum_runtime_s=0)
    waits.dependencies.add(theirs)
    cycle.run(at=make.T0, trigger="test")
    address = f"/api/v1/jobs/{waits.pk}/"
    seen, hidden = (api_of(who).get(address).json() for who in ("admin", "member"))
    assert seen["outlook"]["rule"] == hidden["outlook"]["rule"] == "dependency"
    assert (seen["outlook"]["data"]["job"], seen["dependencies"]) == (theirs.pk, [theirs.pk])
    told = {"job": None, "name": None, "budget": None, "state": seen["outlook"]["data"]["state"]}
    assert (hidden["outlook"]["data"], hidden["dependencies"]) == (told, [])
    page = Client()
    page.force_login(cast["member"])
    for shown in (f"/jobs/{waits.pk}", "/jobs", "/"):
        body = page.get(shown).content.decode()
        assert waits.name in body
        assert "secret" not in body
        assert f"/jobs/{theirs.pk}" not in body
