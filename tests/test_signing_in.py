"""Signing in: how often it may be tried, from where, and passwords that serve once."""

from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import Client, RequestFactory
from rest_framework.authtoken.models import Token

from budgets import signing_in
from budgets.models import OneTimePassword, SignInTry
from budgets.signing_in import OF_ACCOUNT, OF_ADDRESS, WINDOW, TooManyTries
from config import sign_in
from tests import factories as make
from tests.factories import T0
from tests.pages_world import text_of

pytestmark = pytest.mark.django_db
GOOD = "a long enough secret"


class Clock:
    """Stands at an instant until it is set."""

    def __init__(self) -> None:
        self.at = T0

    def __call__(self) -> Any:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("config.sign_in.now", clock)
    return clock


@pytest.fixture
def ada() -> User:
    user = make.make_user("ada")
    user.set_password(GOOD)
    user.save()
    return user


def sign_in_with(password: str, name: str = "ada", **meta: str) -> Any:
    return Client(**meta).post("/sign-in", {"username": name, "password": password})  # type: ignore[arg-type]


def ask_token(password: str, **meta: str) -> Any:
    body = {"username": "ada", "password": password}
    return Client(**meta).post("/api/v1/token/", body, content_type="application/json")  # type: ignore[arg-type]


def test_after_ten_failures_one_waits_until_the_first_is_fifteen_minutes_old(
    clock: Clock, ada: User
) -> None:
    for n in range(OF_ACCOUNT):
        clock.at = T0 + timedelta(minutes=n)
        assert sign_in_with("wrong").status_code == 200
    refused = sign_in_with(GOOD)
    assert refused.status_code == 429
    assert refused["Retry-After"] == "360"
    assert "Too many tries to sign in failed: try again in 6 minutes." in text_of(refused)
    clock.at = T0 + WINDOW - timedelta(seconds=1)
    assert "try again in one minute." in text_of(sign_in_with(GOOD))
    clock.at = T0 + WINDOW
    assert sign_in_with(GOOD).status_code == 302
    assert not SignInTry.objects.exists()  # from then on, ten again


def test_the_token_endpoint_counts_with_the_page(clock: Clock, ada: User) -> None:
    for n in range(OF_ACCOUNT):
        answer = ask_token("wrong") if n % 2 else sign_in_with("wrong")
        assert answer.status_code == (400 if n % 2 else 200)
    refused = ask_token(GOOD)
    assert refused.status_code == 429
    assert refused["Retry-After"] == "900"
    said = refused.json()
    assert said["detail"] == "Too many tries to sign in failed: try again in 15 minutes."
    assert said["title"] == "Too Many Requests"
    clock.at = T0 + WINDOW
    assert ask_token(GOOD).json() == {"token": Token.objects.get(user=ada).key}


def test_the_administration_counts_too(clock: Clock, ada: User) -> None:
    ada.is_staff = True
    ada.save()
    for _ in range(OF_ACCOUNT):
        Client().post("/admin/login/", {"username": "ada", "password": "wrong"})
    refused = Client().post("/admin/login/", {"username": "ada", "password": GOOD})
    assert "Too many tries" in text_of(refused)


def test_others_and_other_addresses_go_on(clock: Clock, ada: User) -> None:
    for _ in range(OF_ACCOUNT):
        sign_in_with("wrong")
    assert sign_in_with(GOOD).status_code == 429
    assert sign_in_with("wrong", name="bea").status_code == 200
    assert sign_in_with(GOOD, REMOTE_ADDR="10.0.0.9").status_code == 302


def test_one_address_tries_no_list_of_accounts(clock: Clock, ada: User) -> None:
    for n in range(OF_ADDRESS):
        signing_in.begin(username=f"u{n}", address="127.0.0.1", now=T0)
    assert sign_in_with(GOOD).status_code == 429
    assert sign_in_with(GOOD, REMOTE_ADDR="10.0.0.9").status_code == 302


def test_refused_tries_put_nothing_off(clock: Clock, ada: User) -> None:
    for _ in range(OF_ACCOUNT):
        sign_in_with("wrong")
    clock.at = T0 + timedelta(minutes=10)
    for _ in range(3):
        assert sign_in_with("wrong")["Retry-After"] == "300"
    assert SignInTry.objects.count() == OF_ACCOUNT


def test_what_was_typed_is_not_kept(clock: Clock) -> None:
    sign_in_with("wrong", name="my secret password")
    (kept,) = SignInTry.objects.all()
    assert "secret" not in kept.account
    sign_in_with("wrong", name="MY SECRET password")
    assert SignInTry.objects.filter(account=kept.account).count() == 2


@pytest.mark.parametrize(
    ("proxies", "sender", "forwarded", "found"),
    [
        (0, "10.0.0.1", "", "10.0.0.1"),
        (0, "10.0.0.1", "1.2.3.4", "10.0.0.1"),  # anybody may write that
        (1, "10.0.0.1", "1.2.3.4", "1.2.3.4"),
        (1, "10.0.0.1", "6.6.6.6, 1.2.3.4", "1.2.3.4"),  # the first they wrote themselves
        (2, "10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.7", "1.2.3.4"),
        (2, "10.0.0.1", "1.2.3.4", "1.2.3.4"),
        (1, "10.0.0.1", "", "10.0.0.1"),
        (1, "10.0.0.1", "nonsense", "unknown"),
        (0, "", "", "unknown"),
        (0, "2001:db8:1:2:3:4:5:6", "", "2001:db8:1:2::/64"),
        (0, "::ffff:10.0.0.1", "", "10.0.0.1"),
    ],
)
def test_the_address_that_counts(
    settings: Any, proxies: int, sender: str, forwarded: str, found: str
) -> None:
    settings.PROXIES = proxies
    meta = {"HTTP_X_FORWARDED_FOR": forwarded} if forwarded else {}
    assert sign_in.address_of(RequestFactory(REMOTE_ADDR=sender).get("/", **meta)) == found  # type: ignore[arg-type]


@pytest.mark.django_db(transaction=True)
def test_tries_at_once_get_no_further_than_one_after_another() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("needs a database with several writers")
    begun, start = [], Barrier(20)

    def go() -> None:
        start.wait(60)
        try:
            begun.append(signing_in.begin(username="ada", address="10.0.0.1", now=T0))
        except TooManyTries:
            pass
        finally:
            connections.close_all()

    threads = [Thread(target=go) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(begun) <= OF_ACCOUNT
    assert SignInTry.objects.count() == len(begun)


# --- Passwords that serve once -------------------------------------------------------------------


def test_a_password_that_serves_once_only_chooses_another(clock: Clock, ada: User) -> None:
    once = signing_in.give_one_time_password(user=ada, now=T0)
    token = ask_token(once)
    assert token.status_code == 400
    assert "only serves to choose your own" in token.json()["detail"]
    client = Client()
    sent = client.post("/sign-in", {"username": "ada", "password": once})
    assert (sent.status_code, sent["Location"]) == (302, "/password")
    assert client.get("/jobs")["Location"].startswith("/sign-in")
    assert "for ada" in text_of(client.get("/password"))
    short = client.post("/password", {"new_password1": "x", "new_password2": "x"})
    assert short.status_code == 422
    new = {"new_password1": "of my own choice", "new_password2": "of my own choice"}
    assert client.post("/password", new)["Location"] == "/"
    assert client.get("/jobs").status_code == 200
    assert not OneTimePassword.objects.exists()
    assert sign_in_with(once).status_code == 200
    assert sign_in_with("of my own choice").status_code == 302
    assert client.get("/password")["Location"] == "/sign-in"


def test_it_is_over_after_seven_days(clock: Clock, ada: User) -> None:
    once = signing_in.give_one_time_password(user=ada, now=T0)
    clock.at = T0 + signing_in.ONE_TIME
    assert sign_in_with(once).status_code == 200


def test_who_began_to_choose_is_out_once_there_is_another(clock: Clock, ada: User) -> None:
    once = signing_in.give_one_time_password(user=ada, now=T0)
    client = Client()
    client.post("/sign-in", {"username": "ada", "password": once})
    signing_in.give_one_time_password(user=ada, now=T0)
    new = {"new_password1": "of my own choice", "new_password2": "of my own choice"}
    assert client.post("/password", new)["Location"].startswith("/sign-in")
    assert OneTimePassword.objects.exists()
