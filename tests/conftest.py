"""Fixtures that belong to no part: where Chromium and the shared data are."""

import gc
from collections.abc import Iterator
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from hypothesis import settings as property_settings
from rest_framework.test import APIClient
from whitenoise.middleware import WhiteNoiseMiddleware

from budgets.models import Budget
from config.celery import app
from config.launcher.testing import find_chromium
from tests import factories as make
from tests.factories import HOUR, T0
from tests.kept_rows import Rows, put, take
from tests.pages_day import Day, play

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

# No test may fail because the machine was busy: nothing is timed, so no example has a deadline.
property_settings.register_profile("untimed", deadline=None)
property_settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs Chromium where there is none; count no lines where it would double hours.

    What a slow test covers, quick ones cover too.
    """
    skip = pytest.mark.skip(reason="no Chromium was found")
    without = find_chromium() is None
    for item in items:
        if without and item.get_closest_marker("browser"):
            item.add_marker(skip)
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.no_cover)


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and never among what was imported: it costs much time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium's program."""
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium was found")
    return path


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of data shared by the project's repositories, beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("../shared is absent")
    return SHARED


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Number jobs from 4,001 on: pages part thousands, which smaller numbers would hide."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT setval(pg_get_serial_sequence('workloads_job', 'id'), 4000)")
        else:
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'workloads_job'")
            cursor.execute("INSERT INTO sqlite_sequence VALUES ('workloads_job', 4000)")


@pytest.fixture(scope="session", autouse=True)
def _broker_in_memory() -> Iterator[None]:
    """Keep tasks that tests send away from the broker of a running installation."""
    app.conf.update(broker_url="memory://", broker_transport_options={})
    yield
    app.close()


@pytest.fixture(scope="session", autouse=True)
def _quick_passwords() -> None:
    """Spare every made user the third of a second that a real hash takes."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(scope="session", autouse=True)
def _static_files_once() -> Iterator[None]:
    """Look through the static files once, which else every client does at its first request."""
    find = WhiteNoiseMiddleware.add_files_from_finders
    found: dict[str, dict[str, Any]] = {}

    def find_once(self: Any) -> None:
        if self.static_prefix not in found:
            find(self)
            found[self.static_prefix] = self.files
        self.files = dict(found[self.static_prefix])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", find_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _flush_past_triggers() -> Iterator[None]:
    """Let tests with real transactions empty tables, which our triggers forbid."""
    operations, on_postgresql = type(connection.ops), connection.vendor == "postgresql"
    flush = operations.execute_sql_flush
    around = _postgresql_triggers if on_postgresql else _sqlite_triggers

    def without_triggers(self: Any, sql_list: list[str]) -> None:
        with transaction.atomic(using=self.connection.alias), self.connection.cursor() as cursor:
            off, on = around(cursor)
            for statement in off:
                cursor.execute(statement)
            flush(self, sql_list)
            for statement in on:
                cursor.execute(statement)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operations, "execute_sql_flush", without_triggers)
        yield


def _sqlite_triggers(cursor: Any) -> tuple[list[str], list[str]]:
    """Return what drops all triggers, and what makes them again."""
    cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    found: list[tuple[str, str]] = cursor.fetchall()
    return [f'DROP TRIGGER "{name}"' for name, _ in found], [sql for _, sql in found]


def _postgresql_triggers(cursor: Any) -> tuple[list[str], list[str]]:
    """Return what turns those off that see a table emptied, no row's, and what turns them on."""
    cursor.execute(
        "SELECT tgrelid::regclass::text, tgname FROM pg_trigger "
        "WHERE NOT tgisinternal AND tgtype & 32 <> 0"
    )
    found: list[tuple[str, str]] = cursor.fetchall()
    off, on = (
        "; ".join(f"ALTER TABLE {table} {turn} TRIGGER {name}" for table, name in found)
        for turn in ("DISABLE", "ENABLE")
    )
    return [off], [on]


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """Return Chromium as Playwright drives it, started once for a file.

    Playwright runs a loop of its own meanwhile, in which Django would forbid every query.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    with pytest.MonkeyPatch.context() as patch, sync_api.sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        started = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield started
        started.close()


@pytest.fixture
def browser_page(browser: Any, live_server: Any, transactional_db: None) -> Iterator[Any]:
    """Return a function that opens an address as someone, in Chromium; faults fail the test.

    `browser_page(user, "/budgets", width=390)` is Playwright's page once it is quiet.
    """
    faults: list[str] = []
    contexts: list[Any] = []

    def open_as(user: User, url: str, width: int = 1440) -> Any:
        client = Client()
        client.force_login(user)
        cookie = client.cookies["sessionid"]
        context = browser.new_context(viewport={"width": width, "height": 900})
        contexts.append(context)
        context.add_cookies([{"name": "sessionid", "value": cookie.value, "url": live_server.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda m: faults.append(m.text) if _is_fault(m) else None)
        page.goto(live_server.url + url)
        page.wait_for_load_state("networkidle")
        return page

    open_as.faults = faults  # type: ignore[attr-defined]  # for who expects some
    yield open_as
    for context in contexts:
        context.close()
    assert not faults


def _is_fault(message: Any) -> bool:
    """Whether the console tells of a fault; htmx tells there of what leaving a page broke off."""
    left = ("htmx:afterRequest", "htmx:sendAbort")
    return message.type == "error" and not message.text.startswith(left)


# --- Rows that all tests of a file share ---------------------------------------------------------


@pytest.fixture(scope="module")
def module_rows(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Keep what fixtures of module scope write: each test of the file rolls back to it.

    Not for tests with real transactions, nor for those of an empty database.
    """
    with django_db_blocker.unblock():
        block: Any = transaction.atomic()
        block._from_testcase = True  # durable blocks inside are as good as outermost
        with block:
            yield
            transaction.set_rollback(True)


@pytest.fixture(scope="session")
def kept_days() -> list[tuple[Day, Rows]]:
    """Return the list that keeps the day of tests.pages_day with its rows, once it was played."""
    return []


@pytest.fixture(scope="module")
def played(module_rows: None, kept_days: list[tuple[Day, Rows]]) -> Day:
    """Return the day of tests.pages_day, played once; a test takes its own copy of it."""
    if kept_days:
        day, rows = kept_days[0]
        put(rows)
    else:
        day = play()
        kept_days.append((day, take()))
    return deepcopy(day)


# --- The cast: who does what in the tree of tests.factories.TREE ---------------------------------


@pytest.fixture
def tree(db: Any) -> dict[str, Budget]:
    """Return the budgets by path: orlo, its programs science and vision, three projects."""
    return make.make_tree()


@pytest.fixture
def cast(tree: dict[str, Budget]) -> dict[str, User]:
    """Return the people of tests.factories.make_cast by what they are."""
    return make.make_cast(tree)


@pytest.fixture
def api_of(cast: dict[str, User]) -> Any:
    """Return a function from a name of the cast to an API client that is signed in as them."""

    def sign_in(name: str) -> APIClient:
        client = APIClient()
        client.force_authenticate(cast[name])
        return client

    return sign_in


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """Let the product's clock stand twelve hours into the period."""
    at = T0 + 12 * HOUR
    for module in ("config.clock", "config.shell", "config.views", "budgets.views"):
        monkeypatch.setattr(f"{module}.now", lambda: at)
    monkeypatch.setattr("allocator.views.now", lambda: at)
    return at
