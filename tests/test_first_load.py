"""The first page that somebody opens: how many bytes come, compressed, and as what."""

import gzip
from typing import Any

import pytest
from django.test import Client

from benchmarks import first_load
from tests import factories as make
from tests.pages_day import NOW, Day, stand_at
from tests.pages_world import client_of

pytestmark = pytest.mark.once


@pytest.fixture
def client(played: Day, db: None, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Client:
    settings.REPLAN_AT_ONCE = False
    stand_at(monkeypatch, NOW)
    return client_of(make.make_user("ines", is_superuser=True))


def test_the_first_load_of_the_overview_is_light(client: Client) -> None:
    weights = first_load.weigh(client, "/")
    assert {name.partition(".")[0] for name in weights} >= {
        *("/", "allotment", "pages", "ui", "theme", "vendor/htmx", "vendor/tabler"),
        *("vendor/inter-latin-wght-normal", "icon"),
    }
    assert first_load.total(weights) <= first_load.MOST


def test_the_charts_library_is_left_out_of_the_sum(client: Client) -> None:
    weights = first_load.weigh(client, "/budgets/orlo")
    library = [size for name, size in weights.items() if "echarts" in name]
    assert sum(weights.values()) == first_load.total(weights) + sum(library)
    assert sum(library) > 300_000


def test_pages_come_compressed_to_who_takes_that(client: Client) -> None:
    plain = client.get("/")
    assert "Content-Encoding" not in plain
    packed = client.get("/", headers={"Accept-Encoding": "gzip, deflate, br, zstd"})
    assert packed["Content-Encoding"] == "gzip"
    assert len(packed.content) < len(plain.content) / 3
    assert b"<h1>" in gzip.decompress(packed.content)
    assert "Accept-Encoding" in packed["Vary"]


def test_what_did_not_change_is_not_sent_again(client: Client) -> None:
    taken = {"Accept-Encoding": "gzip", "HX-Request": "true"}
    first = client.get("/nodes", headers=taken)
    again = client.get("/nodes", headers=taken | {"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
