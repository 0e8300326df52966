"""Asking, deciding and notices on the command line, against a real server."""

import pytest

from budgets.models import Request
from client import Client, Problem, token_for
from client.__main__ import main
from config import clock
from ledger import services as ledger
from tests import factories as make
from tests.ledger_world import CREDIT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]
PETREL, SCIENCE = "orlo/science/petrel", "orlo/science"


@pytest.fixture
def run(live_server, cast, tree, capsys):
    """Return a function that runs a command as someone: (exit status, stdout, stderr)."""
    year = clock.now().replace(month=1, day=1, hour=0, minute=0, second=0)
    make.make_period(starts_at=year, ends_at=year.replace(year=year.year + 1))
    ledger.grant(
        budget=tree[SCIENCE], amount_mgpus=100 * CREDIT, author=cast["root"], note="x", key="x",
        now=clock.now(),
    )  # fmt: skip
    tokens = {
        who: token_for(live_server.url, username=who, password="secret")
        for who in ("member", "manager")
    }

    def command(who, name, *rest):
        status = main([name, "--url", live_server.url, "--token", tokens[who], *rest])
        return status, *capsys.readouterr()

    return command


def test_a_request_from_the_terminal_to_its_answer(run):
    status, out, _ = run("member", "ask", PETREL, "40.25", "--why", "one more sweep")
    made = Request.objects.get()
    assert (status, made.asked, made.unit) == (0, 4025 * CREDIT // 100, "credits")
    assert "asks for  40.25 cr, until further notice" in out
    status, out, _ = run("manager", "requests")
    assert [line.split()[:5] for line in out.splitlines()] == [
        ["id", "budget", "asks", "for", "until"],
        [str(made.pk), PETREL, "40.25", "cr", "–"],
    ]
    status, out, _ = run("manager", "decide", str(made.pk))
    assert ["orlo/science", "reserve", "–", "–", "100.00", "59.75"] in [
        line.split() for line in out.splitlines()
    ]
    words = ("--from", SCIENCE, "--given", "30.5", "--why", "agreed")
    status, out, _ = run("manager", "decide", str(made.pk), *words)
    assert status == 0
    assert "given     30.50 cr out of orlo/science" in out
    made.refresh_from_db()
    assert (made.given, made.answer) == (305 * CREDIT // 10, "agreed")
    status, out, _ = run("member", "notices", "--unread")
    assert "manager granted 30.50 credits for orlo/science/petrel" in out
    assert run("manager", "requests")[1].count("\n") == 1
    assert run("manager", "requests", "--all", "--budget", PETREL)[1].count("\n") == 2


def test_percent_declined_and_withdrawn(run):
    until = ("--until", "2099-01-01T00:00:00Z")
    run("member", "ask", PETREL, "2.5", "--percent", *until, "--why", "x")
    made = Request.objects.get()
    assert (made.unit, made.asked) == ("percent", 2500)
    status, out, _ = run("manager", "decide", str(made.pk), "--decline", "--why", "not now")
    assert (status, "declined" in out) == (0, True)
    run("member", "ask", PETREL, "2.5", "--percent", "--why", "again")
    newest = str(Request.objects.latest("pk").pk)
    assert "withdrawn" in run("member", "decide", newest, "--withdraw")[1]
    status, _, error = run("manager", "decide", newest, "--decline", "--why", "late")
    assert (status, "decided first" in error) == (1, True)


@pytest.mark.parametrize("amount", ["0", "-1", "x", "nan", "inf", "1e99"])
def test_what_is_no_amount_is_refused_before_it_is_sent(run, amount, capsys):
    with pytest.raises(SystemExit):
        run("member", "ask", PETREL, amount, "--why", "x")
    assert "no amount above 0" in capsys.readouterr().err


def test_a_transfer_is_sent_once_for_a_key(run, live_server):
    token = token_for(live_server.url, username="manager", password="secret")
    manager = Client(live_server.url, token=token)
    asked = {"to": PETREL, "amount_mgpus": CREDIT, "reason": "swap", "key": "a"}
    assert manager.transfer(SCIENCE, **asked) == manager.transfer(SCIENCE, **asked)
    with pytest.raises(Problem, match="another decision"):
        manager.transfer(SCIENCE, **asked | {"amount_mgpus": 2})
