"""The tree at an instant: membership, shares and entitlements are what the vectors say."""

from datetime import timedelta
from fractions import Fraction

import pytest

from budgets import shares
from budgets.models import Budget
from tests import factories as make

pytestmark = pytest.mark.django_db
T0, DAY = make.T0, timedelta(days=1)


def by_path(values):
    paths = dict(Budget.objects.values_list("pk", "path"))
    return {paths[pk]: value for pk, value in values.items()}


def test_effective_shares_are_products_from_the_root():
    make.make_tree()
    assert by_path(shares.effective_shares(at=T0)) == {
        "orlo": Fraction(1),
        "orlo/science": Fraction(3, 5),
        "orlo/science/auk": Fraction(3, 10),
        "orlo/science/petrel": Fraction(3, 10),
        "orlo/vision": Fraction(2, 5),
        "orlo/vision/tern": Fraction(2, 5),
    }


def test_the_tree_is_listed_depth_first_by_slug():
    tree = make.make_tree()
    nodes = shares.tree(at=T0)
    assert [(node.budget.path, node.depth, node.is_leaf) for node in nodes.values()] == [
        ("orlo", 0, False),
        ("orlo/science", 1, False),
        ("orlo/science/auk", 2, True),
        ("orlo/science/petrel", 2, True),
        ("orlo/vision", 1, False),
        ("orlo/vision/tern", 2, True),
    ]
    assert [b.slug for b in shares.leaves(at=T0)] == ["auk", "petrel", "tern"]
    above = shares.path_to_root(nodes, tree["orlo/science/auk"].pk)
    assert [node.budget.slug for node in above] == ["auk", "science", "orlo"]


def test_before_the_first_vector_only_the_root_is_active():
    make.make_tree()
    assert list(by_path(shares.effective_shares(at=T0 - timedelta(seconds=1)))) == ["orlo"]


def test_a_budget_without_a_row_is_not_active_nor_is_what_is_below_it():
    tree = make.make_tree()
    make.make_shares(tree["orlo"], {tree["orlo/vision"]: 100_000}, at=T0 + DAY)
    assert list(by_path(shares.parent_map(at=T0 + DAY))) == [
        "orlo",
        "orlo/vision",
        "orlo/vision/tern",
    ]
    assert shares.share_of(tree["orlo/science"], T0 + DAY) is None


def test_a_past_tree_does_not_move_when_shares_change():
    tree = make.make_tree()
    before = shares.effective_shares(at=T0 + DAY)
    vision, science = tree["orlo/vision"], tree["orlo/science"]
    make.make_shares(tree["orlo"], {vision: 90_000, science: 10_000}, at=T0 + 2 * DAY)
    assert shares.effective_shares(at=T0 + DAY) == before
    assert shares.share_of(vision, T0 + 2 * DAY) == 90_000
    assert shares.share_of(vision, T0 + 2 * DAY - timedelta(seconds=1)) == 40_000


def test_a_later_version_stands_in_for_one_that_was_scheduled():
    tree = make.make_tree()
    vision, science = tree["orlo/vision"], tree["orlo/science"]
    make.make_shares(tree["orlo"], {vision: 90_000, science: 10_000}, at=T0 + 9 * DAY)
    make.make_shares(tree["orlo"], {vision: 50_000, science: 50_000}, at=T0 + DAY)
    assert shares.share_of(vision, T0 + 10 * DAY) == 50_000
    assert shares.head(tree["orlo"]).version == 3
    assert shares.in_force(tree["orlo"], at=T0).version == 1


def test_an_override_counts_in_its_pool_alone():
    tree = make.make_tree()
    h100, a100 = make.make_pool("h100"), make.make_pool("a100")
    vision, science = tree["orlo/vision"], tree["orlo/science"]
    make.make_shares(
        tree["orlo"],
        {vision: 40_000, science: 60_000},
        overrides={(vision, h100): 70_000, (science, h100): 30_000},
        at=T0 + DAY,
    )
    tern = tree["orlo/vision/tern"]
    at = T0 + DAY
    assert shares.effective_shares(at=at, pool=h100)[tern.pk] == Fraction(7, 10)
    assert shares.effective_shares(at=at, pool=a100)[tern.pk] == Fraction(2, 5)
    assert shares.share_of(vision, at, h100) == 70_000


def test_siblings_that_all_have_0_are_active_and_unfunded():
    tree = make.make_tree({"orlo": 100_000, "orlo/a": 0, "orlo/b": 0})
    assert shares.effective_shares(at=T0)[tree["orlo/a"].pk] == 0
    assert [b.slug for b in shares.leaves(at=T0)] == ["a", "b"]


def test_entitlement_is_share_times_capacity_cut_where_shares_change():
    tree = make.make_tree()
    pool = make.make_pool()
    vision, science = tree["orlo/vision"], tree["orlo/science"]
    make.make_shares(tree["orlo"], {vision: 100_000, science: 0}, at=T0 + timedelta(minutes=20))
    slices = [
        shares.CapacitySlice(pool.pk, T0, T0 + make.TIMESTEP, 1800 * 8),
        shares.CapacitySlice(pool.pk, T0 + make.TIMESTEP, T0 + 2 * make.TIMESTEP, 1800 * 7),
    ]
    entitled = shares.entitled_gpu_seconds(slices=slices)
    # 20 min at 40 % of 8 GPUs, 10 min at 100 % of 8, 30 min at 100 % of 7.
    assert entitled[vision.pk, pool.pk] == 1200 * 8 * 2 // 5 + 600 * 8 + 1800 * 7
    assert entitled[science.pk, pool.pk] == 1200 * 8 * 3 // 5
    assert shares.entitled_gpu_seconds(slices=[]) == {}


def test_entitlements_are_rounded_once_not_per_slice():
    tree = make.make_tree({"orlo": 100_000, "orlo/a": 33_333, "orlo/b": 66_667})
    pool = make.make_pool()
    slices = [
        shares.CapacitySlice(pool.pk, T0 + n * make.TIMESTEP, T0 + (n + 1) * make.TIMESTEP, 1)
        for n in range(3)
    ]
    entitled = shares.entitled_gpu_seconds(slices=slices)
    assert (entitled[tree["orlo/a"].pk, pool.pk], entitled[tree["orlo/b"].pk, pool.pk]) == (0, 2)


def test_the_number_of_queries_does_not_grow_with_the_tree(django_assert_num_queries):
    make.make_tree()
    pool = make.make_pool()
    slices = [shares.CapacitySlice(pool.pk, T0, T0 + make.TIMESTEP, 1)]
    with django_assert_num_queries(3):
        shares.tree(at=T0)
    make.make_tree({"big": 0, "big/x": 50_000, "big/y": 7, "big/x/z": 100_000})
    with django_assert_num_queries(3):
        shares.tree(at=T0, pool=pool)
    with django_assert_num_queries(3):
        shares.entitled_gpu_seconds(slices=slices)


def test_of_a_long_history_only_what_is_in_force_is_read():
    tree, pool = make.make_tree(), make.make_pool()
    vision, science = tree["orlo/vision"], tree["orlo/science"]
    hour = timedelta(hours=1)
    for n in range(1, 9):
        make.make_shares(tree["orlo"], {science: 10_000 * n, vision: 20_000}, at=T0 + n * hour)
    at = T0 + 6.5 * hour
    piece = shares.CapacitySlice(pool.pk, at, at + hour, 1000)
    history = shares.History.load(since=piece.start, until=piece.end)
    assert len([1 for _, parent, _ in history._sets if parent == tree["orlo"].pk]) == 2
    entitled = shares.entitled_gpu_seconds(slices=[piece])
    assert entitled[science.pk, pool.pk] == (600 + 700) // 2
