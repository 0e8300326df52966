"""Pools and rates: who may set one, from when on, and what is kept of it."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from allocator import installing
from allocator.audit import listing
from allocator.audit.rows import Filters
from clusters.models import PoolRate
from clusters.refusals import Refused
from ledger.models import ClosedTimestep, Entry
from tests import factories as make
from tests.factories import HOUR, T0
from tests.helpers import Institute, make_institute
from tests.pages_day import stand_at
from tests.pages_world import client_of, queries, text_of

pytestmark = pytest.mark.django_db
NOW = T0 + HOUR


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Institute:
    stand_at(monkeypatch, NOW)
    return make_institute(nodes=1)


@pytest.fixture
def ada(place: Institute) -> User:
    user = make.make_user("ada")
    make.make_role(user, place.tree["orlo"], "administrator")
    return user


def set_rate(place: Institute, by: User, **given: Any) -> PoolRate:
    asked = {"rate_per_mille": 2000, "effective_at": None, "reason": "power", "now": NOW}
    return installing.set_rate(pool=place.pool, by=by, **(asked | given))


def test_what_ran_stays_charged_at_the_rate_of_then(place: Institute, ada: User) -> None:
    place.submit(place.petrel, expected_duration_s=3 * 3600)
    place.play(T0, T0 + HOUR)
    set_rate(place, ada, effective_at=T0 + 2 * HOUR)
    place.play(T0 + HOUR, T0 + 3 * HOUR)
    charges = Entry.objects.filter(kind=Entry.Kind.CHARGE)
    prices = {(c.at >= T0 + 2 * HOUR): c.amount_mgpus // c.gpu_seconds for c in charges}
    assert prices == {False: 1000, True: 2000}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"effective_at": NOW - timedelta(seconds=1)}, "effective_at"),
        ({"rate_per_mille": 1000}, "rate"),
        ({"rate_per_mille": -1}, "rate"),
        ({"rate_per_mille": 10**7}, "rate"),
        ({"reason": " "}, "reason"),
        ({"reason": "x" * 300}, "reason"),
    ],
)
def test_what_cannot_be_is_refused(
    place: Institute, ada: User, given: dict[str, Any], field: str
) -> None:
    before = PoolRate.objects.count()
    with pytest.raises(Refused) as refused:
        set_rate(place, ada, **given)
    assert refused.value.field == field
    assert PoolRate.objects.count() == before


def test_a_closed_timestep_is_over_whatever_the_clock_says(place: Institute, ada: User) -> None:
    place.submit(place.petrel, expected_duration_s=3 * 3600)
    place.play(T0, T0 + 3 * HOUR)
    assert ClosedTimestep.objects.latest("end").end > T0 + HOUR
    with pytest.raises(Refused, match="stays so"):
        set_rate(place, ada, effective_at=T0 + HOUR, now=T0)


def test_the_page_sets_it_and_the_audit_log_tells(place: Institute, ada: User) -> None:
    client = client_of(ada)
    form = {"pool": place.pool.slug, "rate": "1.8", "effective_at": "", "reason": "new price"}
    said = client.post("/settings/pools", form, follow=True)
    assert "rate 1.800 is set." in text_of(said)
    (row, *_) = listing.part(ada, filters=Filters(kind="settings"), key="", size=9).rows
    assert (row.by, row.reason) == (ada, "new price")
    assert row.changes == "1.000 → 1.800, from 2026-10-01 01:00 UTC"
    again = client.post("/settings/pools", form)
    assert again.status_code == 422
    assert "has a rate from then on" in text_of(again)
    wrong = client.post("/settings/pools", form | {"rate": "x", "pool": "none"})
    assert wrong.status_code == 422


def test_others_only_look(place: Institute, ada: User) -> None:
    member = make.make_user("member")
    make.make_role(member, place.petrel, "member")
    client = client_of(member)
    assert "Another rate" not in text_of(client.get("/settings/pools"))
    assert client.post("/settings/pools", {"rate": "2"}).status_code == 403
    few = queries(client_of(ada), "/settings/pools")
    for n in range(3):
        make.make_nodes(make.make_pool(f"p{n}", cluster=place.cluster), 1)
    assert queries(client_of(ada), "/settings/pools") == few
