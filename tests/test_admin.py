"""The admin's pages open, and offer no way round the rules."""

import pytest
from django.apps import apps
from django.contrib import admin
from django.urls import reverse

from allocator import cycle
from tests import factories as make

pytestmark = pytest.mark.django_db
OURS = {"clusters", "budgets", "workloads"}
EDITABLE = {"Cluster", "Role"}
MODELS = [model for model in admin.site._registry if model._meta.app_label in OURS]


@pytest.fixture
def rows(client, cast, tree):
    """Rows of every kind, and a client for a superuser."""
    pool = make.make_pool()
    make.make_nodes(pool, 1)
    period = make.make_period(capacity={pool: 5})
    job = make.make_job(tree["orlo/science/petrel"])
    run = make.make_run(job, {pool.nodes.get(): 1}, ended_at=make.T0 + make.HOUR)
    asked = {"asked_by": make.someone(), "asked_at": make.T0, "asked_s": 60}
    run.extensions.create(**asked, ended_at=make.T0, asked_until=make.T0, rule="bound")
    petrel = tree["orlo/science/petrel"]
    make.make_request(petrel)
    make.tell(make.someone(), petrel)
    make.make_plan(petrel, period, [20, 30, 50])
    checkpoint = make.make_checkpoint(period, make.T0 + 9 * make.HOUR, [(50, 20)])
    checkpoint.results.create(
        budget=petrel, granted_mgpus=9, used_mgpus=1, planned_mgpus=5, due_mgpus=1, taken_mgpus=1
    )
    checkpoint.exemptions.create(
        budget=petrel, reason="new", asked_by=make.someone(), asked_at=make.T0
    )
    petrel.former_names.create(slug="auklet", name="Auklet", until=make.T0, author=make.someone())
    pool.nodes.get().states.create(at=make.T0, state="up")
    cycle.run(at=make.T0 + make.HOUR, trigger="test")
    client.force_login(cast["root"])
    return client


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_lists_and_rows_open(rows, model):
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    assert rows.get(reverse(f"{name}_changelist")).status_code == 200
    row = model._default_manager.first()
    assert row is not None
    answer = rows.get(reverse(f"{name}_change", args=[row.pk]))
    assert answer.status_code == 200
    editable = model.__name__ in EDITABLE
    assert (b'name="_save"' in answer.content) is editable
    assert (rows.get(reverse(f"{name}_add")).status_code == 200) is editable


def test_every_model_that_people_look_up_is_there():
    left_out = {"Decision"}  # the audit log shows them
    left_out |= {"SignInTry", "OneTimePassword", "SpokenLanguage"}  # nobody's to look up
    left_out |= {
        "Share",
        "PlannedCapacity",
        "PoolRate",
        "Service",
        "Holding",
        "JobEvent",
    }
    left_out |= {"Drain", "Window", "WindowEvent"}  # they have pages of their own
    simulated = {m.__name__ for m in apps.get_models() if m.__name__.startswith("Simulated")}
    ours = {m.__name__ for m in apps.get_models() if m._meta.app_label in OURS}
    through = {name for name in ours if "_" in name}
    assert ours - left_out - simulated - through == {model.__name__ for model in MODELS}
