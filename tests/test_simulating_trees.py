"""The tree that is simulated: the product's shares, one number for a budget."""

import pytest

from allocator.core.problem import FULL_SHARE
from allocator.simulating import history, trees
from allocator.simulating.trees import SharesTree
from tests import factories as make
from tests.factories import T0

pytestmark = pytest.mark.django_db


def tree_now():
    return trees.at_instant(T0, history.pool_gpus(at=T0))


def test_without_pools_of_their_own_shares_are_as_they_stand():
    make.make_tree()
    make.make_nodes(make.make_pool())
    found = {one.path: (one.parent, one.shares) for one in tree_now().nodes}
    assert found == {
        "orlo": (None, FULL_SHARE),
        "orlo/science": ("orlo", 60_000),
        "orlo/science/auk": ("orlo/science", 50_000),
        "orlo/science/petrel": ("orlo/science", 50_000),
        "orlo/vision": ("orlo", 40_000),
        "orlo/vision/tern": ("orlo/vision", 100_000),
    }


def test_a_budget_that_a_draft_moves_keeps_its_name():
    tree = make.make_tree()
    make.make_nodes(make.make_pool())
    science, vision = tree["orlo/science"], tree["orlo/vision"]
    auk, petrel, tern = (
        tree[f"orlo/{name}"] for name in ("science/auk", "science/petrel", "vision/tern")
    )
    instead = {
        science.pk: {petrel.pk: {None: 50_000}},
        vision.pk: {tern.pk: {None: 60_000}, auk.pk: {None: 40_000}},
    }
    then = trees.at_instant(T0, history.pool_gpus(at=T0), instead)
    found = {one.path: (one.parent, one.shares) for one in then.nodes}
    assert found["orlo/science/auk"] == ("orlo/vision", 40_000)
    assert trees.common_leaves([tree_now(), then]) == tree_now().leaves


def test_a_tree_is_kept_and_read_again():
    make.make_tree()
    make.make_nodes(make.make_pool())
    assert SharesTree.from_json(tree_now().to_json()) == tree_now()


def test_shares_of_single_pools_count_by_their_gpus():
    tree = make.make_tree()
    small, large = make.make_pool("a100"), make.make_pool("h100")
    make.make_nodes(small, 1)
    make.make_nodes(large, 3)
    science, vision = tree["orlo/science"], tree["orlo/vision"]
    alone = {(science, large): 20_000}
    make.make_shares(tree["orlo"], {science: 60_000, vision: 40_000}, overrides=alone)
    found = {one.path: one.shares for one in tree_now().nodes}
    # 8 GPUs × 60 % + 24 × 20 % of 32.
    assert found["orlo/science"] == 30_000
    assert found["orlo/vision"] == 40_000
    assert found["orlo/science/petrel"] == 50_000
