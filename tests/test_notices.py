"""Notices: each thing is told to each person once, in the application and by e-mail."""

import pytest
from django.conf import settings

from budgets import notices
from budgets.models import Notice
from tests import factories as make

pytestmark = pytest.mark.django_db
T0 = make.T0


def told() -> list[tuple[str, str]]:
    rows = Notice.objects.order_by("user__username", "pk")
    return list(rows.values_list("user__username", "key"))


def tell(budget, users, key="k", **given) -> None:
    given = {"kind": "asked", "text": "More is asked for.", "now": T0, **given}
    notices.tell(users=users, budget=budget, key=key, **given)


def test_a_key_is_told_once_to_each_person(tree):
    petrel = tree["orlo/science/petrel"]
    ada, bob = make.make_user("ada"), make.make_user("bob")
    tell(petrel, [ada, ada])
    tell(petrel, [ada, bob], now=T0 + make.HOUR)
    tell(petrel, [ada], key="other")
    assert told() == [("ada", "k"), ("ada", "other"), ("bob", "k")]
    first = Notice.objects.get(user=ada, key="k")
    assert (first.created_at, first.read_at) == (T0, None)
    assert first.link == "/budgets/orlo/science/petrel"


def test_who_may_no_longer_sign_in_is_told_nothing(tree):
    tell(tree["orlo"], [make.make_user("ada", is_active=False)])
    assert told() == []


def test_mail_is_due_only_where_it_is_set_up_and_there_is_an_address(tree, settings):
    with_mail, without = make.make_user("ada"), make.make_user("bob")
    without.email = ""
    without.save()
    tell(tree["orlo"], [with_mail, without], key="a")
    settings.EMAIL_BACKEND = settings.NO_EMAIL
    tell(tree["orlo"], [with_mail], key="b")
    due = [(n.user.username, n.key, n.mail_due_at) for n in Notice.objects.order_by("pk")]
    assert due == [("ada", "a", T0), ("bob", "a", None), ("ada", "b", None)]


def test_without_settings_no_mail_leaves():
    assert settings.EMAIL_DELIVERY == "none"
