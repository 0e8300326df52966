"""What is told to people is read in their own language, on the page and in e-mails."""

import pytest
from django.core import mail
from django.test import Client
from django.utils import translation

from budgets import languages, notices
from budgets.models import Notice
from budgets.refusals import credits
from clusters.saying import say
from tests import factories as make

pytestmark = pytest.mark.django_db
T0 = make.T0


def ask(tree, users) -> None:
    """Tell it as somebody does who reads Portuguese."""
    with translation.override("pt-br"):
        amount = say("%(amount)s credits", amount=credits(4_445_280_000))
        text = say(
            "%(asked_by)s asks for %(quantity)s for %(budget)s%(until)s: %(reason)s",
            asked_by="Ana",
            quantity=amount,
            budget="orlo",
            until="",
            reason="more",
        )
        notices.tell(
            users=users, budget=tree["orlo"], kind=Notice.Kind.ASKED, text=text, key="k", now=T0
        )


def test_a_notice_is_kept_in_no_language(tree):
    ask(tree, [make.make_user("bob")])
    notice = Notice.objects.get()
    assert notice.text == "Ana asks for 1,234.80 credits for orlo: more"
    assert notice.said == notice.text
    with translation.override("pt-br"):
        assert notice.said == "Ana pede 1.234,80 créditos para orlo: more"


def test_each_is_written_to_in_their_own_language(tree):
    bob, caio = make.make_user("bob"), make.make_user("caio")
    languages.note(user=caio, language="pt-br")
    ask(tree, [bob, caio])
    assert notices.send_due(now=T0) == 2
    sent = {one.to[0].partition("@")[0]: one for one in mail.outbox}
    assert sent["bob"].subject == "[Allotment] orlo: asked"
    assert sent["bob"].body.startswith("Ana asks for 1,234.80 credits")
    assert sent["caio"].subject == "[Allotment] orlo: pedido"
    assert sent["caio"].body.startswith("Ana pede 1.234,80 créditos")


def test_a_notice_of_an_older_version_stays_readable(tree):
    bob = make.make_user("bob")
    notices.tell(users=[bob], budget=tree["orlo"], kind="asked", text="As it was.", key="o", now=T0)
    assert Notice.objects.get().sentence == {}
    with translation.override("pt-br"):
        assert Notice.objects.get().said == "As it was."


def test_the_page_of_notices_says_them_in_the_readers_language(tree, client: Client):
    bob = make.make_user("bob")
    ask(tree, [bob])
    client.force_login(bob)
    assert "Ana asks for 1,234.80 credits" in client.get("/notices").content.decode()
    client.post("/language", {"language": "pt-br"})
    assert "Ana pede 1.234,80 créditos" in client.get("/notices").content.decode()


def test_choosing_a_language_and_signing_in_note_it(client: Client):
    bob = make.make_user("bob")
    bob.set_password("a long password")
    bob.save()
    assert languages.of(bob) == "en"
    client.post("/language", {"language": "pt-br"})
    assert languages.of(bob) == "en"
    client.post("/sign-in", {"username": "bob", "password": "a long password"})
    assert languages.of(bob) == "pt-br"
    client.post("/language", {"language": "en"})
    assert languages.of(bob) == "en"
    client.post("/language", {"language": "nonsense"})
    assert languages.of(bob) == "en"


def test_a_refusal_on_a_page_is_in_the_readers_language(tree, client: Client):
    bob = make.make_user("bob", is_superuser=True)
    client.force_login(bob)
    client.post("/language", {"language": "pt-br"})
    given = {"slug": "plan", "name": "Petrel"}
    page = client.post("/budgets/orlo/science/petrel/rename", given).content.decode()
    assert "plan é uma palavra dos nossos endereços: escolha outro slug." in page
