"""Creating, moving, archiving and renaming budgets, and periods."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from budgets import periods, services, shares
from budgets.models import Budget, ChangeSet, Role
from budgets.redrafting import redraft_period
from budgets.refusals import AMOUNT_MAX
from budgets.services import Refused
from tests import factories as make

pytestmark = pytest.mark.django_db
T0, T1, DAY = make.T0, make.T1, timedelta(days=1)
NOW = T0 + DAY


def why(**more):
    return {"author": make.someone(), "reason": "re-organised", "now": NOW} | more


def paths(at=NOW):
    return [node.budget.path for node in shares.tree(at=at).values()]


def test_there_is_one_organisation():
    root = services.create_organisation(slug="orlo", name="Orlo Institute", now=T0)
    assert (root.path, shares.effective_shares(at=T0)) == ("orlo", {root.pk: 1})
    with pytest.raises(Refused, match="There is an organisation already: put other below orlo"):
        services.create_organisation(slug="other", name="Other", now=T0)


def test_a_budget_is_created_by_a_change_set_with_the_whole_vector(tree):
    science = tree["orlo/science"]
    kea = services.create_budget(
        parent=science,
        slug="kea",
        name=" Kea ",
        share=20_000,
        siblings={tree["orlo/science/auk"]: 30_000},
        **why(),
    )
    assert (kea.path, kea.name) == ("orlo/science/kea", "Kea")
    assert {c.slug: shares.share_of(c, NOW) for c in science.children.all()} == {
        "auk": 30_000,
        "kea": 20_000,
        "petrel": 50_000,
    }
    assert shares.share_of(kea, NOW - timedelta(seconds=1)) is None
    assert shares.head(science).reason == "re-organised"


def test_a_budget_that_does_not_fit_is_refused_and_leaves_nothing(tree):
    with pytest.raises(Refused, match=r"100.001 %, 0.001 % too much. orlo/science/kea"):
        services.create_budget(
            parent=tree["orlo/science"], slug="kea", name="Kea", share=1, **why()
        )
    assert not Budget.objects.filter(slug="kea").exists()
    assert ChangeSet.objects.count() == 3


@pytest.mark.parametrize(
    ("slug", "sentence"),
    [
        ("", "slug must be"),
        ("Kea", "slug must be"),
        ("-kea", "slug must be"),
        ("kea--x", "slug must be"),
        ("k/a", "slug must be"),
        ("kéa", "slug must be"),
        ("kea\n", "slug must be"),
        ("a" * 51, "slug must be"),
        ("burn", "word of our addresses"),
        ("petrel", "orlo/science/petrel already"),
    ],
)
def test_slugs_keep_their_form_and_are_unique_under_the_parent(tree, slug, sentence):
    with pytest.raises(Refused, match=sentence):
        services.create_budget(parent=tree["orlo/science"], slug=slug, name="x", share=0, **why())


@pytest.mark.parametrize("name", ["", "  ", "a\0b", "a\nb", "x" * 101])
def test_names_are_short_and_printable(tree, name):
    with pytest.raises(Refused, match="Give a name"):
        services.create_budget(parent=tree["orlo/science"], slug="kea", name=name, share=0, **why())


def test_the_same_slug_may_stand_under_another_parent(tree):
    found = services.create_budget(
        parent=tree["orlo"], slug="petrel", name="Petrel", share=0, **why()
    )
    assert found.path == "orlo/petrel"


def test_a_leaf_that_has_jobs_is_not_divided_by_what_was_archived_below_it(tree):
    for slug in ("petrel", "auk"):
        services.archive_budget(budget=tree[f"orlo/science/{slug}"], **why())
    make.make_job(tree["orlo/science"])
    with pytest.raises(Refused, match="has jobs, which belong to leaves"):
        services.reactivate_budget(budget=tree["orlo/science/auk"], share=0, **why())
    assert paths() == ["orlo", "orlo/science", "orlo/vision", "orlo/vision/tern"]


def test_a_leaf_that_has_jobs_is_not_divided(tree):
    make.make_job(tree["orlo/science/petrel"])
    with pytest.raises(Refused, match="has jobs, which belong to leaves"):
        services.create_budget(
            parent=tree["orlo/science/petrel"], slug="a", name="A", share=1, **why()
        )


def test_archiving_takes_the_subtree_out_and_keeps_its_history(tree):
    services.archive_budget(budget=tree["orlo/science"], **why())
    assert paths() == ["orlo", "orlo/vision", "orlo/vision/tern"]
    assert len(paths(at=T0)) == 6
    assert Budget.objects.get(path="orlo/science").archived_at == NOW
    with pytest.raises(Refused, match="archived already"):
        services.archive_budget(budget=tree["orlo/science"], **why())
    with pytest.raises(Refused, match="root of the tree: it can't be archived"):
        services.archive_budget(budget=tree["orlo"], **why())


def test_what_waits_or_runs_keeps_a_budget_from_being_archived(tree):
    make.make_job(tree["orlo/science/petrel"])
    make.make_job(tree["orlo/science/auk"], state="completed", ended_at=T0)
    with pytest.raises(Refused, match="1 jobs of orlo/science wait or run"):
        services.archive_budget(budget=tree["orlo/science"], **why())
    assert len(paths()) == 6


def test_reactivating_brings_a_budget_back_with_what_was_below_it(tree):
    science = services.archive_budget(budget=tree["orlo/science"], **why())
    with pytest.raises(Refused, match=r"110.000 %, 10.000 % too much. orlo/science"):
        services.reactivate_budget(budget=science, share=70_000, **why())
    services.reactivate_budget(budget=science, share=60_000, **why(now=NOW + DAY))
    assert len(paths(at=NOW + DAY)) == 6
    assert len(paths(at=NOW)) == 3
    with pytest.raises(Refused, match="not archived"):
        services.reactivate_budget(budget=science, share=0, **why())


def test_nothing_is_put_below_what_is_archived(tree):
    services.archive_budget(budget=tree["orlo/science"], **why())
    petrel = tree["orlo/science/petrel"]
    for refused in (
        lambda: services.create_budget(parent=petrel, slug="x", name="X", share=0, **why()),
        lambda: services.move_budget(
            budget=tree["orlo/vision/tern"], to=tree["orlo/science"], share=0, **why()
        ),
    ):
        with pytest.raises(Refused, match="orlo/science is archived: re-activate it first"):
            refused()
    with pytest.raises(Refused, match="orlo/science already, archived: re-activate it, or"):
        services.create_budget(parent=tree["orlo"], slug="science", name="S", share=0, **why())


def test_moving_takes_the_subtree_along_and_keeps_the_past(tree):
    moved = services.move_budget(
        budget=tree["orlo/science"], to=tree["orlo/vision"], share=0, **why()
    )
    assert moved.path == "orlo/vision/science"
    assert paths() == [
        "orlo",
        "orlo/vision",
        "orlo/vision/science",
        "orlo/vision/science/auk",
        "orlo/vision/science/petrel",
        "orlo/vision/tern",
    ]
    before = shares.tree(at=T0)[moved.pk]
    assert (before.parent_id, before.effective) == (tree["orlo"].pk, Fraction(3, 5))
    assert shares.head(tree["orlo"]).effective_at == shares.head(tree["orlo/vision"]).effective_at


@pytest.mark.parametrize(
    ("what", "to", "sentence"),
    [
        ("orlo/science", "orlo/science/petrel", "can't move below orlo/science/petrel"),
        ("orlo/science", "orlo/science", "can't move below orlo/science"),
        ("orlo/science/petrel", "orlo/science", "can't move below orlo/science"),
        ("orlo", "orlo/vision", "root of the tree: it can't be moved"),
    ],
)
def test_moves_that_make_no_tree_are_refused(tree, what, to, sentence):
    with pytest.raises(Refused, match=sentence):
        services.move_budget(budget=tree[what], to=tree[to], share=0, **why())
    assert len(paths()) == 6


def test_a_move_is_refused_where_it_does_not_fit_and_leaves_nothing(tree):
    with pytest.raises(Refused, match=r"100.001 %, 0.001 % too much"):
        services.move_budget(
            budget=tree["orlo/science/petrel"], to=tree["orlo/vision"], share=1, **why()
        )
    assert Budget.objects.filter(path="orlo/science/petrel").exists()
    make.make_job(tree["orlo/vision/tern"])
    with pytest.raises(Refused, match="has jobs, which belong to leaves"):
        services.move_budget(
            budget=tree["orlo/science/petrel"], to=tree["orlo/vision/tern"], share=1, **why()
        )


def test_renaming_keeps_every_path_below_true(tree):
    services.rename_budget(
        budget=tree["orlo/science"],
        slug="physics",
        name="Physics",
        author=make.someone(),
        now=make.T0,
    )
    assert sorted(Budget.objects.values_list("path", flat=True)) == [
        "orlo",
        "orlo/physics",
        "orlo/physics/auk",
        "orlo/physics/petrel",
        "orlo/vision",
        "orlo/vision/tern",
    ]
    with pytest.raises(Refused, match="orlo/physics already"):
        services.rename_budget(
            budget=tree["orlo/vision"], slug="physics", name="V", author=make.someone(), now=make.T0
        )


def test_roles_are_given_changed_and_taken(tree):
    user, auk = make.make_user(), tree["orlo/science/auk"]
    services.give_role(user=user, budget=auk, kind="viewer")
    services.give_role(user=user, budget=auk, kind="member")
    assert Role.objects.get(user=user).kind == "member"
    with pytest.raises(Refused, match="'king' is no role: use one of administrator"):
        services.give_role(user=user, budget=auk, kind="king")
    assert services.take_role(user=user, budget=auk)
    assert not services.take_role(user=user, budget=auk)


# --- Periods ------------------------------------------------------------------------------------


def draft(name="2026 Q4", starts_at=T0, ends_at=T1, **more):
    return periods.draft_period(name=name, starts_at=starts_at, ends_at=ends_at, now=T0, **more)


def test_a_period_is_drafted_with_the_inventory_as_planned_capacity():
    pool, other = make.make_pool(rate=1500), make.make_pool()
    make.make_nodes(pool, 2, gpus=8)
    make.make_nodes(pool, 1, gpus=4, active_from=T1 - DAY)
    make.make_nodes(pool, 1, gpus=2, active_until=T0 + DAY)
    make.make_nodes(pool, 1, gpus=1, active_until=T0)
    period = draft()
    seconds = int((T1 - T0).total_seconds())
    planned = {row.pool: (row.gpu_seconds, row.rate_per_mille) for row in period.capacities.all()}
    assert planned == {
        pool: (16 * seconds + (4 + 2) * 86400, 1500),
        other: (0, 1000),
    }
    periods.plan_capacity(period=period, capacity={pool: 5})
    assert [row.gpu_seconds for row in period.capacities.all()] == [5]


def test_a_period_goes_from_draft_over_proposed_to_approved():
    period = draft(capacity={make.make_pool(): 1})
    assert periods.propose_period(period=period).status == "proposed"
    assert periods.approve_period(period=period).status == "approved"
    with pytest.raises(Refused, match="is approved: it can't become proposed"):
        periods.propose_period(period=period)


@pytest.mark.parametrize("status", ["approved", "active", "closed"])
def test_what_was_approved_is_not_approved_again(status):
    """One that runs would start, and grant, a second time."""
    period = make.make_period(status=status, capacity={make.make_pool(): 1})
    with pytest.raises(Refused, match=f"is {status}: it can't become approved"):
        periods.approve_period(period=period)
    assert period.status == status


def test_planned_capacity_is_not_negative():
    pool, other = make.make_pool(), make.make_pool()
    period = draft(capacity={pool: 5})
    with pytest.raises(Refused, match="Planned GPU-seconds can't be negative"):
        periods.plan_capacity(period=period, capacity={pool: -1, other: 9})
    assert [row.gpu_seconds for row in period.capacities.all()] == [5]


def test_a_period_without_planned_capacity_goes_no_further():
    """It could never start, and once approved is not redrafted."""
    for number, capacity in enumerate(({}, {make.make_pool(): 0}), 1):
        period = draft(f"draft {number}", capacity=capacity)
        for decide in (periods.propose_period, periods.approve_period):
            with pytest.raises(Refused, match=r"no planned capacity.* plan GPU-seconds of a pool"):
                decide(period=period)
        period.refresh_from_db()
        assert period.status == "draft"


def test_a_period_is_planned_at_most_what_an_entry_may_move():
    cheap, dear = make.make_pool(rate=0), make.make_pool(rate=1000)
    period = draft(capacity={dear: AMOUNT_MAX // 1000 - 1, cheap: 1000})
    assert sum(row.gpu_seconds for row in period.capacities.all()) == AMOUNT_MAX // 1000 + 999
    for more in ({dear: AMOUNT_MAX // 1000 - 1, cheap: 1001}, {dear: 2**63 - 1}):
        with pytest.raises(Refused, match=r"at most 27,777,777,777\.78: plan fewer GPU-seconds"):
            redraft_period(period=period, capacity=more, author=make.someone(), now=T0)
    assert period.capacities.count() == 2


def test_approved_periods_do_not_overlap():
    make.make_nodes(make.make_pool())
    periods.approve_period(period=draft())
    periods.approve_period(period=draft("next", T1, T1 + DAY))
    late = draft("late", T1 - DAY, T1)
    with pytest.raises(Refused, match="late overlaps 2026 Q4: change its dates"):
        periods.approve_period(period=late)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"ends_at": T0}, "end after its start"),
        ({"name": " "}, "printable name"),
        ({"carry_over_cap": 100_001}, "0 to 100,000"),
        ({"time_zone": "Mars/Base"}, "'Mars/Base' is no time zone"),
        ({"time_zone": "../etc/passwd"}, "is no time zone"),
        ({"starts_at": datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)}, "whole seconds"),
    ],
)
def test_what_a_period_needs_is_said(changed, sentence):
    with pytest.raises(Refused, match=sentence):
        draft(**changed)


def test_a_pool_without_a_rate_or_an_active_period_keeps_capacity_from_being_planned():
    pool = make.make_pool()
    pool.rates.all().delete()
    with pytest.raises(Refused, match="has no rate at 2026-10-01: give it one first"):
        draft()
    active = make.make_period()
    with pytest.raises(Refused, match="its capacity is settled"):
        periods.plan_capacity(period=active)


def test_what_is_active_and_how_much_has_passed():
    period = make.make_period()
    assert periods.active(T0) == periods.active(T1 - timedelta(seconds=1)) == period
    assert periods.active(T1) is None
    assert periods.active(T0 - timedelta(seconds=1)) is None
    assert periods.elapsed(period, T0 + (T1 - T0) / 4) == Fraction(1, 4)
    assert periods.elapsed(period, T0 - DAY) == 0
    assert periods.elapsed(period, T1 + DAY) == 1
    closed = make.make_period("2026 Q3", starts_at=T0 - 9 * DAY, ends_at=T0, status="closed")
    assert periods.active(T0 - DAY) is None
    assert periods.covering(T0 - DAY) == closed


def test_paths_have_a_longest(tree):
    parent = tree["orlo/science/auk"]
    for _ in range(7):
        parent = make.make_budget("s" * 50, parent=parent)
    with pytest.raises(Refused, match="over 400 characters: use shorter slugs"):
        services.create_budget(parent=parent, slug="t" * 50, name="T", share=0, **why())
    with pytest.raises(Refused, match="would be over 400 characters"):
        services.rename_budget(
            budget=tree["orlo/science"], slug="p" * 50, name="P", author=make.someone(), now=make.T0
        )
    assert Budget.objects.filter(path=parent.path).exists()


def test_a_period_s_time_counts_from_when_it_has_gpus():
    period = make.make_period()
    late = period.starts_at + (period.ends_at - period.starts_at) / 2
    make.make_nodes(make.make_pool(), 1, active_from=late)
    assert periods.begins(period) == late
    assert periods.elapsed(period, late) == 0
    assert periods.elapsed(period, late + (period.ends_at - late) / 4) == Fraction(1, 4)
