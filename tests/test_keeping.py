"""What beat looks after: one row that can't be done is an alarm and keeps no other waiting."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from allocator import alarms, keeping, requests, tasks
from allocator.cycle import _grant_what_takes_effect
from allocator.models import Alarm
from budgets import notices
from budgets.models import Budget, Notice, Request
from budgets.one_by_one import Stuck
from ledger import periods, reports, services
from ledger import requests as deciding
from ledger.grants import transfer
from ledger.instants import LedgerError
from ledger.models import Entry
from ledger.share_changes import apply_change_set, waiting
from tests import factories as make
from tests.factories import HOUR, T0
from tests.ledger_world import CREDIT, give
from tests.reconcile_world import END, make_books, past_triggers
from tests.test_requests import AUK, PETREL, SCIENCE, ask, grant
from workloads.models import Job

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def alarm(kind: str) -> str | None:
    found = Alarm.objects.filter(kind=kind, cleared_at=None).first()
    return None if found is None else found.text


def failing(real: Callable, error: Exception, when: Callable[..., bool]) -> Callable:
    """Return what fails where a call is meant, and else does its work."""

    def act(*args: Any, **named: Any) -> Any:
        if when(*args, **named):
            raise error
        return real(*args, **named)

    return act


@pytest.fixture
def given(tree: dict[str, Budget], cast) -> list[Request]:
    """Two requests of one day, each out of the other's pocket."""
    period = make.make_period()
    for path in (PETREL, AUK):
        give(tree[path], 10, period)
    give(tree[SCIENCE], 5, period)
    made = [ask(tree[path], cast["manager"], until=T0 + DAY) for path in (PETREL, AUK)]
    return [grant(one, tree[SCIENCE], cast["manager"], given=2 * CREDIT) for one in made]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (LedgerError("no such thing."), "Request {} can't end: no such thing."),
        (ZeroDivisionError(), "Request {} can't end (ZeroDivisionError): the log says why."),
    ],
)
def test_a_request_that_cannot_end_is_an_alarm_and_the_others_end(
    given, monkeypatch, error, sentence
) -> None:
    first, second = given
    real = transfer
    with monkeypatch.context() as patch:
        bad = failing(real, error, lambda **named: named["key"] == f"request:{first.pk}:back")
        patch.setattr(deciding, "transfer", bad)
        keeping.keep_requests(at=T0 + DAY)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.ended_at, second.ended_at) == (None, T0 + DAY)
    assert requests.is_open()
    assert alarm(keeping.REQUESTS) == sentence.format(first.pk)
    keeping.keep_requests(at=T0 + DAY + HOUR)
    first.refresh_from_db()
    assert (first.ended_at, alarm(keeping.REQUESTS)) == (T0 + DAY + HOUR, None)


def test_of_many_that_are_stuck_each_is_in_the_log_and_the_alarm_says_how_many(
    monkeypatch, caplog
) -> None:
    problems = [f"Request {number} can't end: {'no' * 40}." for number in range(1, 8)]

    def fail(now: datetime) -> None:
        raise Stuck([], problems)

    monkeypatch.setattr(keeping, "end_due", fail)
    keeping.keep_requests(at=T0)
    assert alarm(keeping.REQUESTS) == f"{problems[0]} {problems[1]} And 5 more: the log names each."
    assert [record.getMessage() for record in caplog.records] == [
        f"requests: {problem}" for problem in problems
    ]


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ([300], "0" * 300),
        ([301], "0" * 299 + "…"),
        ([150, 149], "0" * 150 + " " + "1" * 149),
        ([150, 150], "0" * 150 + " And 1 more: the log names each."),
        ([400, 9, 9], "0" * 267 + "… And 2 more: the log names each."),
    ],
)
def test_what_an_alarm_has_room_for(lengths: list[int], said: str) -> None:
    assert alarms.summary([str(n) * length for n, length in enumerate(lengths)]) == said
    assert len(said) <= alarms.TEXT_MAX


def test_what_is_stuck_says_what_was_done(given, monkeypatch) -> None:
    def fail(pk: int, now: datetime) -> Request:
        if pk == given[0].pk:
            raise LedgerError("no.")
        return given[1]

    monkeypatch.setattr(deciding, "_end", fail)
    with pytest.raises(Stuck) as caught:
        services.end_due(now=T0 + DAY)
    assert caught.value.done == [given[1]]
    assert caught.value.problems == [f"Request {given[0].pk} can't end: no."]


def test_requests_end_though_one_cannot_expire(tree, given, monkeypatch) -> None:
    late = make.make_request(tree[PETREL], until=T0 + HOUR)

    def fail(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("budgets.requests._expire", fail)
    keeping.keep_requests(at=T0 + DAY)
    assert alarm(keeping.REQUESTS) == (
        f"Request {late.pk} can't expire (ZeroDivisionError): the log says why."
    )
    assert Request.objects.filter(ended_at=T0 + DAY).count() == 2


def test_shares_that_move_no_grants_keep_no_others_from_it(tree, monkeypatch) -> None:
    period = make.make_period(status="approved", capacity={make.make_pool(): 3600 * 1000})
    services.start_period(period=period, at=T0)
    services.apply_due_change_sets(now=T0)
    for parent, parts in (("orlo", ("orlo/science", "orlo/vision")), (SCIENCE, (PETREL, AUK))):
        wanted = {tree[path]: 50_000 - n * 10_000 for n, path in enumerate(parts)}
        make.make_shares(tree[parent], wanted, at=T0 + HOUR)
    real = apply_change_set
    with monkeypatch.context() as patch:
        bad = failing(
            real, ZeroDivisionError(), lambda change_set, now: change_set.parent == tree["orlo"]
        )
        patch.setattr(periods, "apply_change_set", bad)
        _grant_what_takes_effect(T0 + 2 * HOUR)
    assert alarm("grants") == (
        "Version 2 of the shares of orlo moves no grants (ZeroDivisionError): the log says why."
    )
    (left,) = waiting(period=period, until=T0 + 2 * HOUR)
    assert left.parent == tree["orlo"]
    _grant_what_takes_effect(T0 + 3 * HOUR)
    assert alarm("grants") is None
    assert waiting(period=period, until=T0 + 3 * HOUR) == []


def test_an_address_that_cannot_be_written_to_keeps_no_other_waiting(
    tree, mailoutbox, monkeypatch
) -> None:
    for name in ("ada", "grace"):
        user = make.make_user(name)
        notices.tell(
            users=[user], budget=tree["orlo"], kind=Notice.Kind.TAKEN, text="t", key=name, now=T0
        )
    bad = failing(
        EmailMessage.message, ValueError("no header"), lambda mail, **_: "ada" in mail.to[0]
    )
    monkeypatch.setattr(EmailMessage, "message", bad)
    assert notices.send_due(now=T0) == 1
    assert [mail.to for mail in mailoutbox] == [[Notice.objects.get(key="grace").user.email]]
    assert Notice.objects.get(key="ada").mail_due_at == T0 + timedelta(minutes=1)


# --- The books, by night --------------------------------------------------------------------------


def test_beat_proves_the_books_each_night_and_an_alarm_names_what_differs() -> None:
    books = make_books()
    assert keeping.keep_books(at=END) == 0
    assert alarm("books") is None
    with past_triggers():
        Entry.objects.filter(run=books.long, kind="charge").update(gpu_seconds=1)
    assert keeping.keep_books(at=END) > 0
    text = alarm("books")
    assert text is not None
    assert books.pool.slug in text
    assert keeping.keep_books(at=END + 8 * DAY) > 0, "sums are looked at altogether"


def test_books_that_cannot_even_be_read_are_an_alarm_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(**_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("allocator.keeping.reports.differences", unreadable)
    for days in (0, 1):
        assert keeping.keep_books(at=END + days * DAY) == 1
    assert alarm("books") == "The books can't be proven (AssertionError): the log says why."
    assert Alarm.objects.count() == 1


def test_what_was_only_being_written_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    make_books()
    looks = iter([["a charge is half written"], [], ["a"], ["a"]])
    monkeypatch.setattr(keeping, "_differences", lambda at: next(looks))
    assert keeping.keep_books(at=END) == 0
    assert alarm("books") is None
    assert keeping.keep_books(at=END) == 1
    assert alarm("books") == "a"


def test_it_is_night_once_a_day_on_the_long_queue() -> None:
    scheduled = settings.CELERY_BEAT_SCHEDULE["keep_books"]
    assert (scheduled["task"], scheduled["schedule"].hour) == (tasks.keep_books.name, {3})
    assert len(scheduled["schedule"].minute) == 1
    assert tasks.keep_books.name not in settings.CELERY_TASK_ROUTES
    assert tasks.keep_books() == 0


# --- Statistics, by night -------------------------------------------------------------------------

on_sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite's own")


@pytest.fixture
def forgotten(transactional_db: None) -> Iterator[None]:
    """Leave no statistics to other tests, which share the database."""
    yield
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM sqlite_stat1")
            cursor.execute("ANALYZE sqlite_schema")  # reads them anew: no plan follows the old ones


@pytest.mark.usefixtures("forgotten")
@pytest.mark.django_db(transaction=True)
@on_sqlite
def test_sqlite_knows_how_rows_are_spread_once_beat_has_looked() -> None:
    make_books()
    scheduled = settings.CELERY_BEAT_SCHEDULE["keep_statistics"]
    assert scheduled["task"] == tasks.keep_statistics.name
    assert {len(scheduled["schedule"].hour), len(scheduled["schedule"].minute)} == {1}
    assert tasks.keep_statistics.name not in settings.CELERY_TASK_ROUTES
    assert tasks.keep_statistics() is True
    with connection.cursor() as cursor:
        cursor.execute("SELECT tbl, stat FROM sqlite_stat1 WHERE tbl LIKE 'ledger_%'")
        found = [(table, int(stat.split()[0])) for table, stat in cursor.fetchall()]
    assert "ledger_rollup" in dict(found)
    assert ("ledger_entry", Entry.objects.count()) in found


@pytest.mark.usefixtures("forgotten")
@pytest.mark.django_db(transaction=True)
def test_nothing_is_looked_at_inside_a_transaction_or_on_postgresql() -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as asked:
        assert keeping.keep_statistics() is False
    assert not [one for one in asked.captured_queries if "ANALYZE" in one["sql"]]
    with CaptureQueriesContext(connection) as asked:
        assert keeping.keep_statistics() is (connection.vendor == "sqlite")
    told = [one["sql"] for one in asked.captured_queries]
    assert ("ANALYZE" in told) is (connection.vendor == "sqlite")
    assert any("analysis_limit" in one for one in told) is (connection.vendor == "sqlite")


def test_beat_gives_back_what_is_set_aside_for_what_will_never_run(
    tree: dict[str, Budget], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    period = make.make_period()
    give(tree[PETREL], 10, period)
    job, waits = (make.make_job(tree[PETREL]) for _ in range(2))
    for one in (job, waits):
        services.place_hold(job=one, amount_mgpus=4 * CREDIT, now=T0)
    Job.objects.filter(pk=job.pk).update(state=Job.State.FAILED)  # as no service would
    scheduled = settings.CELERY_BEAT_SCHEDULE["keep_holds"]
    assert (scheduled["task"], scheduled["schedule"]) == (tasks.keep_holds.name, 3600)
    monkeypatch.setattr(tasks, "now", lambda: T0 + HOUR)

    assert tasks.keep_holds() == 1
    assert reports.spendable(budget=tree[PETREL], now=T0 + HOUR) == 6 * CREDIT
    assert requests.is_open()
    assert [record.getMessage() for record in caplog.records] == [
        f"Job {job.pk}, attempt 1, of {PETREL}: {4 * CREDIT} mGPU-s were set aside for what will "
        "never run."
    ]
    assert tasks.keep_holds() == 0
