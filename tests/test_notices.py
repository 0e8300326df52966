"""Notices: each thing is told to each person once, in the application and by e-mail."""

from datetime import timedelta
from smtplib import SMTPServerDisconnected

import pytest
from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.locmem import EmailBackend
from kombu.exceptions import OperationalError

from allocator import requests, tasks
from budgets import notices
from budgets.models import Notice
from config.celery import app
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


# --- E-mail ---------------------------------------------------------------------------------------


class Refusing(EmailBackend):
    """A mail server that refuses while `refusing` says so."""

    refusing = True

    def send_messages(self, messages):
        if Refusing.refusing:
            raise SMTPServerDisconnected("not now")
        return super().send_messages(messages)


@pytest.fixture
def refusing(settings):
    settings.EMAIL_BACKEND = "tests.test_notices.Refusing"
    Refusing.refusing = True
    yield Refusing
    Refusing.refusing = True


def test_an_email_is_sent_once_with_the_text_and_a_link(tree, settings, mailoutbox):
    settings.SITE_URL = "https://allotment.example.org"
    tell(tree["orlo/science"], [make.make_user("ada")], link="/requests/7")
    assert mailoutbox == []  # never in the request itself
    assert notices.send_due(now=T0) == 1
    assert notices.send_due(now=T0 + make.HOUR) == 0
    (mail,) = mailoutbox
    assert mail.to == ["ada@example.org"]
    assert mail.subject == "[Allotment] orlo/science: asked"
    assert mail.body == "More is asked for.\n\nhttps://allotment.example.org/requests/7\n"
    told = Notice.objects.get()
    assert mail.extra_headers["Message-ID"] == f"<notice-{told.pk}@allotment.example.org>"
    assert (told.emailed_at, told.mail_due_at, told.mail_tries) == (T0, None, 1)


def test_a_refused_email_is_tried_again_later_and_then_sent_once(tree, refusing, mailoutbox):
    tell(tree["orlo"], [make.make_user("ada")])
    assert notices.send_due(now=T0) == 0
    told = Notice.objects.get()
    assert (told.mail_due_at, told.emailed_at) == (T0 + timedelta(minutes=1), None)
    refusing.refusing = False
    assert notices.send_due(now=T0 + timedelta(seconds=59)) == 0
    assert notices.send_due(now=T0 + timedelta(minutes=1)) == 1
    assert len(mailoutbox) == 1


def test_a_refused_email_is_given_up_in_the_end(tree, refusing):
    tell(tree["orlo"], [make.make_user("ada")])
    at, tries = T0, 0
    while (due := Notice.objects.get().mail_due_at) is not None:
        at, tries = due, tries + 1
        assert notices.send_due(now=at) == 0
    assert (tries, at - T0) == (6, timedelta(minutes=1 + 5 + 30 + 120 + 720))


def test_a_worker_that_dies_while_sending_has_no_second_send_it(tree, monkeypatch, mailoutbox):
    def die(*args):
        raise SystemExit

    tell(tree["orlo"], [make.make_user("ada")])
    with monkeypatch.context() as patch:
        patch.setattr(EmailMessage, "send", die)
        with pytest.raises(SystemExit):
            notices.send_due(now=T0)
    assert notices.send_due(now=T0 + make.HOUR) == 0
    assert mailoutbox == []


def test_who_left_meanwhile_gets_no_email(tree, mailoutbox):
    ada = make.make_user("ada")
    tell(tree["orlo"], [ada])
    ada.is_active = False
    ada.save()
    assert notices.send_due(now=T0) == 0
    assert mailoutbox == []


def test_a_worker_is_woken_after_the_commit(tree, monkeypatch, django_capture_on_commit_callbacks):
    sent = []
    monkeypatch.setattr("budgets.notices.current_app.send_task", lambda n, **_: sent.append(n))
    with django_capture_on_commit_callbacks(execute=True) as callbacks:
        tell(tree["orlo"], [make.make_user("ada")])
        assert sent == []
    assert len(callbacks) == 1
    assert sent == ["allocator.tasks.send_notices"]


def test_without_a_broker_the_notice_stands_and_beat_finds_it(
    tree, monkeypatch, django_capture_on_commit_callbacks, mailoutbox
):
    def down(*_, **__):
        raise OperationalError("no broker")

    monkeypatch.setattr("budgets.notices.current_app.send_task", down)
    with django_capture_on_commit_callbacks(execute=True):
        tell(tree["orlo"], [make.make_user("ada")])
    assert tasks.send_notices() == 1
    assert len(mailoutbox) == 1


def test_beat_looks_for_emails_and_requests_on_the_long_queue():
    for name in ("keep_requests", "send_notices"):
        task = f"allocator.tasks.{name}"
        assert settings.CELERY_BEAT_SCHEDULE[name]["task"] == task
        assert task in app.tasks
        assert task not in settings.CELERY_TASK_ROUTES


def test_what_beat_runs_expires_requests_and_asks_for_a_replan_where_something_ended(tree):
    until = make.T0 + make.HOUR
    petrel, science = tree["orlo/science/petrel"], tree["orlo/science"]
    late = make.make_request(petrel, until=until)
    tasks.keep_requests()
    late.refresh_from_db()
    assert (late.status, requests.is_open()) == ("expired", False)
    given = {"status": "granted", "given": 1, "source": science, "decision": "reserve"}
    ended = make.make_request(petrel, unit="credits", until=until, decided_at=T0, **given)
    ended.decided_by = make.someone()
    ended.save()
    tasks.keep_requests()
    ended.refresh_from_db()
    assert ended.ended_at is not None
    assert requests.is_open()
