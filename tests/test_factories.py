"""The factories make rows that the database itself accepts."""

import pytest

from budgets.models import ChangeSet
from tests import factories as make

pytestmark = pytest.mark.django_db


def test_a_tree_has_approved_shares_at_every_parent():
    tree = make.make_tree()
    approved = ChangeSet.objects.filter(status="approved")
    assert {s.parent.path: s.shares.count() for s in approved} == {
        "orlo": 2,
        "orlo/science": 2,
        "orlo/vision": 1,
    }
    assert tree["orlo/science/petrel"].parent == tree["orlo/science"]


def test_a_run_holds_the_gpus_it_was_given():
    tree, pool = make.make_tree(), make.make_pool(rate=1500)
    node, other = make.make_nodes(pool, 2)
    job = make.make_job(tree["orlo/science/petrel"], gpus=16, pools=[pool])
    run = make.make_run(job, {node: 0xFF, other: 0xFF}, ended_at=make.T0 + make.HOUR)
    assert sum(h.gpus for h in run.holdings.all()) == 16
    assert (run.state, run.pool.rates.get().rate_per_mille) == ("ended", 1500)
    service = make.make_service(tree["orlo/vision/tern"], profile=[2, 6])
    assert (service.gpus, service.service.swap_cap) == (6, 4)
    period = make.make_period(capacity={pool: 1_000_000})
    assert period.capacities.get().gpu_seconds == 1_000_000
