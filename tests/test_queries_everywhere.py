"""Twice of everything: every page and list of the API asks the database as often as before."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from allocator.models import Simulation
from tests import factories as make
from tests.pages_day import NOW, stand_at
from tests.pages_everything import Everything, everything, grow
from tests.pages_world import client_of
from tests.test_access_everywhere import PAGES
from tests.test_api_access import TABLE
from tests.test_pages_everywhere import MORE
from tests.undoing import undone

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
# Of everything, beside what the day has: at once so many that a review's lists are full, since
# what such a list leaves out is counted by a query of its own.
FIRST, THEN = 6, 8
# What the access tables ask of a job that is no service, and of a simulation that was not played.
ALSO = (
    *("jobs/{service}/demand.json", "jobs/{service}/traffic.csv"),
    *("simulator/{played}/runs", "simulator/{played}/picture.json"),
)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Everything:
    settings.REPLAN_AT_ONCE = False
    stand_at(monkeypatch, NOW)
    made = everything()
    year: dict[str, Any] = {"starts_at": make.T1, "ends_at": make.T1 + timedelta(days=90)}
    draft = make.make_period("next", status="draft", **year)
    made.numbers |= dict.fromkeys(("draft", "approved"), draft.pk)
    made.numbers |= {"q4": made.numbers["period"], "begun": made.numbers["window"], "closed": 0}
    return made


def addresses(numbers: dict[str, Any]) -> Iterator[str]:
    pages = (address for method, address, _ in PAGES if method == "get")
    for address in dict.fromkeys((*pages, *MORE, *ALSO)):
        yield "/" + address.format(**numbers)
    lists = (address for method, address, *_ in TABLE if method == "get")
    for address in dict.fromkeys(lists):
        yield "/api/v1/" + address.format(**numbers)


def asked(client: Client, numbers: dict[str, Any]) -> dict[str, list[str]]:
    """Return what each address asks the database for, of those that are answered."""
    found = {}
    for address in addresses(numbers):
        with undone(), CaptureQueriesContext(connection) as caught:
            answer = client.get(address)
            read = b"".join(answer) if answer.streaming else answer.content
        if answer.status_code == 200:
            assert read is not None
            found[address] = [one["sql"] for one in caught]
    return found


def test_twice_of_everything_takes_as_many_queries(world: Everything) -> None:
    client: Client = client_of(world.user)
    client.raise_request_exception = True

    def more(number: int) -> None:
        grow(world, number)
        done = Simulation.objects.get(pk=world.numbers["played"])
        for _ in range(number):
            Simulation.objects.create(asked_by=make.make_user(), **_copied(done))

    more(FIRST)
    asked(client, world.numbers)  # what is kept between requests
    few = asked(client, world.numbers)
    assert len(few) > 90
    more(THEN)
    many = asked(client, world.numbers)
    grown = [
        f"{address}: {len(few[address])} queries, then {len(told)}: {_new(few[address], told)}"
        for address, told in many.items()
        if len(told) > len(few[address])
    ]
    assert not grown, "\n".join(grown)


def _copied(one: Simulation) -> dict[str, Any]:
    left = ("id", "asked_by_id")
    names = [field.attname for field in Simulation._meta.concrete_fields]
    return {name: getattr(one, name) for name in names if name not in left}


def _new(few: list[str], many: list[str]) -> list[str]:
    """Return what is asked more often, from its tables on and without numbers, to find it by."""
    before, after = (
        Counter(re.sub(r"\d+(, \d+)*", "#", one.partition(" FROM ")[2]) for one in each)
        for each in (few, many)
    )
    return sorted(one[:300] for one in after - before)[:3]
