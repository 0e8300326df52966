"""Change sets: whole vectors, sums, bases, decisions; held by code and by the database."""

from datetime import datetime, timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from budgets import services, shares
from budgets.models import ChangeSet, Share
from budgets.services import Refused, StaleBase
from tests import factories as make

pytestmark = pytest.mark.django_db
T0, DAY = make.T0, timedelta(days=1)
NOW = T0 + DAY


def set_orlo(tree, science, vision, **changed):
    """Set the shares of orlo's two programs."""
    asked = {
        "parent": tree["orlo"],
        "shares": {tree["orlo/science"]: science, tree["orlo/vision"]: vision},
        "reason": "as the board decided",
        "author": make.someone(),
        "base_version": 1,
        "now": NOW,
    }
    return services.set_shares(**(asked | changed))


def draft_orlo(tree, science, vision, **changed):
    asked = {
        "parent": tree["orlo"],
        "shares": {tree["orlo/science"]: science, tree["orlo/vision"]: vision},
        "reason": "a proposal",
        "author": make.someone(),
        "base_version": 1,
        "effective_at": NOW,
        "now": NOW,
    }
    return services.draft_change_set(**(asked | changed))


def test_shares_are_in_force_from_their_instant(tree):
    change_set = set_orlo(tree, 30_000, 70_000)
    assert (change_set.status, change_set.version) == ("approved", 2)
    assert shares.share_of(tree["orlo/vision"], NOW) == 70_000
    assert shares.share_of(tree["orlo/vision"], NOW - timedelta(seconds=1)) == 40_000


def test_a_set_never_reaches_back_before_its_approval(tree):
    change_set = set_orlo(tree, 30_000, 70_000, effective_at=T0)
    assert change_set.effective_at == NOW
    later = set_orlo(tree, 50_000, 50_000, base_version=2, effective_at=NOW + DAY)
    assert later.effective_at == NOW + DAY


@pytest.mark.parametrize("total", [(33_333, 33_333, 33_334), (0, 0, 0), (100_000, 0, 0)])
def test_sums_up_to_a_whole_are_accepted(total):
    tree = make.make_tree({"o": 0, "o/a": 1, "o/b": 1, "o/c": 1})
    children = [tree[f"o/{slug}"] for slug in "abc"]
    services.set_shares(
        parent=tree["o"],
        shares=dict(zip(children, total, strict=True)),
        reason="thirds",
        author=make.someone(),
        base_version=1,
        now=NOW,
    )
    assert sum(node.thousandths for node in shares.tree(at=NOW).values() if node.depth) == sum(
        total
    )


@pytest.mark.parametrize(
    ("science", "vision", "sentence"),
    [
        (
            60_000,
            50_000,
            "The shares of orlo total 110.000 %, 10.000 % too much. "
            "orlo/vision (50.000 %, was 40.000 %) binds: lower it, or others, by 10.000 %.",
        ),
        (60_001, 40_000, r"0.001 % too much. orlo/science \(60.001 %, was 60.000 %\) binds"),
    ],
)
def test_a_sum_over_100_percent_is_refused_and_names_what_binds(tree, science, vision, sentence):
    with pytest.raises(Refused) as refused:
        set_orlo(tree, science, vision)
    assert sentence.replace("\\", "") in refused.value.sentence
    assert ChangeSet.objects.count() == 3


def test_a_sum_over_100_percent_in_one_pool_names_the_pool(tree):
    h100 = make.make_pool("h100")
    with pytest.raises(Refused, match=r"110.000 % in h100, 10.000 % too much. orlo/vision"):
        set_orlo(tree, 60_000, 40_000, overrides={(tree["orlo/vision"], h100): 50_000})
    set_orlo(
        tree,
        60_000,
        40_000,
        overrides={(tree["orlo/vision"], h100): 50_000, (tree["orlo/science"], h100): 50_000},
    )
    assert shares.share_of(tree["orlo/science"], NOW, h100) == 50_000


def test_the_whole_vector_is_required(tree):
    science, vision, tern = tree["orlo/science"], tree["orlo/vision"], tree["orlo/vision/tern"]
    with pytest.raises(Refused, match="orlo/vision is missing: a change set names every active"):
        set_orlo(tree, 0, 0, shares={science: 100_000})
    with pytest.raises(Refused, match="orlo/vision/tern is not an active child of orlo"):
        set_orlo(tree, 0, 0, shares={science: 1, vision: 1, tern: 1})
    with pytest.raises(Refused, match="orlo/vision/tern has a share in h100 but none to override"):
        set_orlo(tree, 1, 1, overrides={(tern, make.make_pool("h100")): 5})


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"reason": "  "}, "Say why"),
        ({"reason": "x" * 2001}, "at most 2000"),
        ({"reason": "a\0b"}, "plain characters"),
        ({"now": datetime(2026, 10, 2)}, "no time zone"),  # noqa: DTZ001 that is the point
        ({"effective_at": NOW.replace(microsecond=1)}, "whole seconds"),
    ],
)
def test_what_a_set_needs_besides_is_said(tree, changed, sentence):
    with pytest.raises(Refused, match=sentence):
        set_orlo(tree, 50_000, 50_000, **changed)


@pytest.mark.parametrize("value", [-1, 100_001, 1.5, "5", True, None, 10**20])
def test_a_share_is_a_whole_number_from_0_to_100_percent(tree, value):
    with pytest.raises(Refused, match=r"share of orlo/science is .*(not a whole|give 0 to 100)"):
        set_orlo(tree, value, 0)


# --- Bases and decisions ------------------------------------------------------------------------


def test_a_stale_base_is_refused_with_both_versions(tree):
    set_orlo(tree, 30_000, 70_000)
    with pytest.raises(StaleBase) as stale:
        set_orlo(tree, 50_000, 50_000)
    assert (stale.value.theirs, stale.value.mine, stale.value.parent) == (2, 1, tree["orlo"])
    assert "at version 2 now, but yours start from version 1" in str(stale.value)
    assert shares.share_of(tree["orlo/vision"], NOW) == 70_000


def test_a_set_on_another_parent_is_not_stale(tree):
    set_orlo(tree, 30_000, 70_000)
    services.set_shares(
        parent=tree["orlo/vision"],
        shares={tree["orlo/vision/tern"]: 1},
        reason="other parent",
        author=make.someone(),
        base_version=1,
        now=NOW,
    )
    assert shares.share_of(tree["orlo/vision/tern"], NOW) == 1


def test_approving_one_makes_other_open_sets_stale(tree):
    first, second = draft_orlo(tree, 10_000, 20_000), draft_orlo(tree, 30_000, 40_000)
    services.propose(change_set=second, now=NOW)
    services.approve(change_set=first, by=make.someone(), now=NOW)
    second.refresh_from_db()
    assert second.status == "stale"
    with pytest.raises(Refused, match="This change set is stale: write a new one"):
        services.approve(change_set=second, by=make.someone(), now=NOW)


def test_a_set_that_became_stale_unnoticed_is_marked_when_it_is_approved(tree):
    scheduled = draft_orlo(tree, 10_000, 20_000)
    set_orlo(tree, 30_000, 70_000)
    ChangeSet.objects.filter(pk=scheduled.pk).update(status="proposed")
    with pytest.raises(StaleBase):
        services.approve(change_set=scheduled, by=make.someone(), now=NOW)
    scheduled.refresh_from_db()
    assert scheduled.status == "stale"


def test_a_draft_is_proposed_then_decided_once(tree):
    draft = draft_orlo(tree, 10_000, 20_000)
    assert services.propose(change_set=draft, now=NOW).status == "proposed"
    with pytest.raises(Refused, match="is proposed"):
        services.propose(change_set=draft, now=NOW)
    boss = make.make_user("boss")
    assert services.decline(change_set=draft, by=boss, now=NOW).decided_by == boss
    for decide in (services.decline, services.approve):
        with pytest.raises(Refused, match="is declined: write a new one"):
            decide(change_set=draft, by=boss, now=NOW)
    assert shares.share_of(tree["orlo/vision"], NOW) == 40_000


def test_the_sum_is_looked_at_again_when_a_set_is_approved(tree):
    """Rows of a draft can change under it: whoever decides is told in words, not by an error."""
    draft = draft_orlo(tree, 60_000, 40_000)
    Share.objects.filter(change_set=draft, budget=tree["orlo/vision"]).update(thousandths=40_001)
    with pytest.raises(Refused, match="too much"):
        services.approve(change_set=draft, by=make.someone(), now=NOW)
    draft.refresh_from_db()
    assert draft.status == "draft"


# --- The database holds the rules itself --------------------------------------------------------


def sql(statement, *values):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)


APPROVE = "UPDATE budgets_changeset SET status = 'approved' WHERE id = %s"
INSERT_SHARE = (
    "INSERT INTO budgets_share (change_set_id, budget_id, pool_id, thousandths) "
    "VALUES (%s, %s, %s, %s)"
)


def test_raw_sql_cannot_approve_more_than_100_percent(tree):
    draft = draft_orlo(tree, 60_000, 40_000)
    Share.objects.filter(change_set=draft, budget=tree["orlo/vision"]).update(thousandths=40_001)
    with pytest.raises(IntegrityError, match="total more than 100 %"):
        sql(APPROVE, draft.pk)
    Share.objects.filter(change_set=draft, budget=tree["orlo/vision"]).update(thousandths=40_000)
    sql(APPROVE, draft.pk)
    assert shares.head(tree["orlo"]).version == 2


def test_raw_sql_cannot_pass_100_percent_in_one_pool(tree):
    draft, pool = draft_orlo(tree, 60_000, 40_000), make.make_pool()
    sql(INSERT_SHARE, draft.pk, tree["orlo/vision"].pk, pool.pk, 40_001)
    with pytest.raises(IntegrityError, match="total more than 100 % in a pool"):
        sql(APPROVE, draft.pk)


def test_raw_sql_cannot_override_what_has_no_share(tree):
    draft, pool = draft_orlo(tree, 60_000, 40_000), make.make_pool()
    sql(INSERT_SHARE, draft.pk, tree["orlo/vision/tern"].pk, pool.pk, 1)
    with pytest.raises(IntegrityError, match="needs a share to override"):
        sql(APPROVE, draft.pk)


def test_raw_sql_cannot_approve_on_an_outdated_base(tree):
    draft = draft_orlo(tree, 50_000, 50_000)
    set_orlo(tree, 30_000, 70_000)
    with pytest.raises(IntegrityError, match="another change set of this parent was approved"):
        sql(APPROVE, draft.pk)


def test_raw_sql_cannot_leave_a_version_out(tree):
    draft = draft_orlo(tree, 50_000, 50_000)
    ChangeSet.objects.filter(pk=draft.pk).update(version=3)
    with pytest.raises(IntegrityError, match="another change set of this parent was approved"):
        sql(APPROVE, draft.pk)


def test_raw_sql_cannot_insert_an_approved_set(tree):
    with pytest.raises(IntegrityError, match="written first, then approved"):
        sql(
            "INSERT INTO budgets_changeset "
            "(parent_id, version, status, reason, author_id, created_at, effective_at) "
            "SELECT parent_id, 2, 'approved', 'x', author_id, created_at, effective_at "
            "FROM budgets_changeset WHERE parent_id = %s",
            tree["orlo"].pk,
        )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE budgets_share SET thousandths = 1 WHERE change_set_id = %s",
        "DELETE FROM budgets_share WHERE change_set_id = %s",
        "UPDATE budgets_changeset SET reason = 'other' WHERE id = %s",
        "UPDATE budgets_changeset SET status = 'draft' WHERE id = %s",
        "DELETE FROM budgets_changeset WHERE id = %s",
    ],
)
def test_raw_sql_cannot_change_what_was_approved(tree, statement):
    approved = shares.head(tree["orlo"])
    with pytest.raises(IntegrityError, match="never change"):
        sql(statement, approved.pk)
    assert shares.share_of(tree["orlo/vision"], T0) == 40_000


def test_raw_sql_cannot_add_a_row_to_an_approved_set_nor_move_one_there(tree):
    approved, draft = shares.head(tree["orlo"]), draft_orlo(tree, 1, 1)
    with pytest.raises(IntegrityError, match="never change"):
        sql(INSERT_SHARE, approved.pk, tree["orlo/vision/tern"].pk, None, 1)
    with pytest.raises(IntegrityError, match="never change"):
        sql(
            "UPDATE budgets_share SET change_set_id = %s WHERE change_set_id = %s AND budget_id=%s",
            approved.pk,
            draft.pk,
            tree["orlo/vision"].pk,
        )
    sql("DELETE FROM budgets_share WHERE change_set_id = %s", draft.pk)  # a draft may change
    assert draft.shares.count() == 0
