"""The tree between two instants: what is different, and by which change sets."""

from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.contrib.auth.models import User

from budgets import services
from budgets.diffs import Difference, diff
from budgets.models import Budget
from budgets.services import Refused
from tests import factories as make

pytestmark = pytest.mark.django_db
T0, DAY = make.T0, timedelta(days=1)


def day(number: int) -> datetime:
    return T0 + number * DAY


def why(number: int, reason: str) -> dict[str, Any]:
    return {"author": make.someone(), "reason": reason, "now": day(number)}


def told(found: list[Difference]) -> dict[str, tuple[list[str], list[str]]]:
    """What happened to each, and the reasons of the sets that did it, by slug."""
    return {
        one.budget.slug: ([str(kind) for kind in one.kinds], [made.reason for made in one.by])
        for one in found
    }


@pytest.fixture
def year(tree: dict[str, Budget]) -> dict[str, Budget]:
    """Make a change a day: a share, a new budget, a move, an archived one that comes back."""
    science, vision, petrel, auk = (
        tree[path]
        for path in ("orlo/science", "orlo/vision", "orlo/science/petrel", "orlo/science/auk")
    )
    services.set_shares(
        parent=science, shares={petrel: 70_000, auk: 20_000}, base_version=1, **why(1, "release")
    )
    tree["kea"] = services.create_budget(
        parent=science, slug="kea", name="Kea", share=10_000, **why(2, "new project")
    )
    services.move_budget(
        budget=auk, to=vision, share=30_000, siblings={tree["orlo/vision/tern"]: 70_000},
        **why(3, "sees more than it hears"),
    )  # fmt: skip
    services.archive_budget(budget=tree["kea"], **why(4, "done"))
    services.reactivate_budget(budget=tree["kea"], share=5000, **why(5, "not done"))
    return tree


def test_each_change_is_told_with_its_set(year: dict[str, Budget]) -> None:
    top = year["orlo"]
    assert told(diff(top=top, start=T0, end=day(1))) == {
        "auk": (["share"], ["release"]),
        "petrel": (["share"], ["release"]),
    }
    assert told(diff(top=top, start=day(1), end=day(2))) == {"kea": (["created"], ["new project"])}
    sees = "sees more than it hears"
    assert told(diff(top=top, start=day(2), end=day(3))) == {
        "auk": (["moved", "share"], [sees, sees]),
        "tern": (["share"], [sees]),
    }
    assert told(diff(top=top, start=day(3), end=day(4))) == {"kea": (["archived"], ["done"])}
    assert told(diff(top=top, start=day(4), end=day(5))) == {"kea": (["reactivated"], ["not done"])}


def test_places_before_and_after_have_paths_and_shares(year: dict[str, Budget]) -> None:
    (auk, *_) = [
        one
        for one in diff(top=year["orlo"], start=T0, end=day(3))
        if one.budget.slug == "auk"
    ]  # fmt: skip
    assert auk.before is not None
    assert auk.after is not None
    assert (auk.before.path, auk.before.thousandths) == ("orlo/science/auk", 50_000)
    assert (auk.after.path, auk.after.thousandths) == ("orlo/vision/auk", 30_000)
    assert (auk.before.effective, auk.after.effective) == (Fraction(3, 10), Fraction(12, 100))
    assert [made.parent.path for made in auk.by] == ["orlo/science", "orlo/science", "orlo/vision"]


def test_what_came_back_as_it_was_is_no_difference(year: dict[str, Budget]) -> None:
    found = told(diff(top=year["orlo"], start=day(2), end=day(5)))
    assert found["kea"] == (["share"], ["done", "not done"])
    assert told(diff(top=year["orlo"], start=day(5), end=day(9))) == {}
    assert diff(top=year["orlo"], start=day(1), end=day(1)) == []


def test_a_subtree_tells_what_is_in_it_and_what_left_it(year: dict[str, Budget]) -> None:
    assert set(told(diff(top=year["orlo/science"], start=day(2), end=day(3)))) == {"auk"}
    assert set(told(diff(top=year["orlo/vision"], start=day(2), end=day(3)))) == {"auk", "tern"}
    assert told(diff(top=year["orlo/vision/tern"], start=T0, end=day(2))) == {}


def test_what_goes_with_its_program_names_the_program_s_set(tree: dict[str, Budget]) -> None:
    services.archive_budget(budget=tree["orlo/vision"], **why(1, "closed"))
    found = diff(top=tree["orlo"], start=T0, end=day(2))
    assert told(found) == {
        "vision": (["archived"], ["closed"]),
        "tern": (["archived"], ["closed"]),
    }
    assert [(one.after, one.by[0].parent.path) for one in found] == [(None, "orlo")] * 2


def test_overrides_are_told_by_pool(tree: dict[str, Budget]) -> None:
    h100, l40s = make.make_pool("h100"), make.make_pool("l40s")
    science, vision = tree["orlo/science"], tree["orlo/vision"]
    services.set_shares(
        parent=tree["orlo"], shares={science: 60_000, vision: 40_000},
        overrides={(vision, h100): 10_000}, base_version=1, **why(1, "vision needs no h100"),
    )  # fmt: skip
    (one,) = diff(top=tree["orlo"], start=T0, end=day(1))
    assert told([one]) == {"vision": (["share"], ["vision needs no h100"])}
    assert one.before is not None
    assert one.after is not None
    assert (one.before.overrides, one.after.overrides) == ({}, {"h100": 10_000})
    assert one.before.effective_in == {"h100": Fraction(2, 5), "l40s": Fraction(2, 5)}
    assert one.after.effective_in == {"h100": Fraction(1, 10), "l40s": Fraction(2, 5)}
    assert l40s.slug in one.after.effective_in


def test_a_set_that_never_came_into_force_did_nothing(tree: dict[str, Budget]) -> None:
    """Scheduled for day 5, but a later version stands in for it from day 2 on."""
    science, petrel, auk = (
        tree[path] for path in ("orlo/science", "orlo/science/petrel", "orlo/science/auk")
    )
    for version, share, on, reason in ((1, 1000, 5, "scheduled"), (2, 2000, 2, "sooner")):
        services.set_shares(
            parent=science, shares={petrel: share, auk: 50_000}, base_version=version,
            effective_at=day(on), **why(1, reason),
        )  # fmt: skip
    assert told(diff(top=science, start=T0, end=day(9))) == {"petrel": (["share"], ["sooner"])}


def test_an_end_before_the_start_is_refused(tree: dict[str, Budget]) -> None:
    with pytest.raises(Refused, match="before the start"):
        diff(top=tree["orlo"], start=day(1), end=T0)
    with pytest.raises(Refused, match="no time zone"):
        diff(top=tree["orlo"], start=datetime(2026, 10, 1), end=T0)  # noqa: DTZ001


def test_a_longer_history_takes_no_more_queries(
    year: dict[str, Budget], django_assert_max_num_queries: Any
) -> None:
    for start, end in ((T0, day(1)), (T0, day(9))):
        with django_assert_max_num_queries(11):
            diff(top=year["orlo"], start=start, end=end)


# --- The API --------------------------------------------------------------------------------------

INTERVAL = "?from=2026-10-01T00:00:00Z&to=2026-10-04T00:00:00Z"


def test_the_api_tells_it_to_who_may_see_it(
    year: dict[str, Budget], cast: dict[str, User], api_of: Any
) -> None:
    rows = api_of("admin").get(f"/api/v1/budgets/orlo/diff/{INTERVAL}").json()["rows"]
    by_name = {row["name"]: row for row in rows}
    assert by_name["Auk"]["kinds"] == ["moved", "share"]
    assert by_name["Auk"]["after"] == {
        "path": "orlo/vision/auk",
        "name": "Auk",
        "share_thousandths": 30_000,
        "share_overrides": {},
        "effective_share": "3/25",
        "effective_shares": {},
    }
    assert by_name["Kea"]["before"] is None
    (made,) = by_name["Kea"]["by"]
    assert (made["reason"], made["author"]) == ("new project", "someone")
    assert (made["parent"], made["effective_at"]) == ("orlo/science", "2026-10-03T00:00:00Z")


def test_the_api_names_no_place_that_one_may_not_see(
    year: dict[str, Budget], cast: dict[str, User], api_of: Any
) -> None:
    answer = api_of("manager").get(f"/api/v1/budgets/orlo/science/diff/{INTERVAL}")
    (auk,) = [row for row in answer.json()["rows"] if row["name"] == "Auk"]
    assert auk["before"]["path"] == "orlo/science/auk"
    assert set(auk["after"].values()) == {None}
    assert {made["parent"] for made in auk["by"]} == {"orlo/science"}
    assert "vision" not in answer.content.decode()


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?from=2026-10-04T00:00:00Z&to=2026-10-01T00:00:00Z", "before the start"),
        ("?from=yesterday", "from"),
        ("?from=2026-10-01T00:00:00Z&until=now", "until"),
        ("", "No period is open"),
    ],
)
def test_the_api_says_what_is_wrong(
    tree: dict[str, Budget], cast: dict[str, User], api_of: Any, query: str, says: str
) -> None:
    answer = api_of("admin").get(f"/api/v1/budgets/orlo/diff/{query}")
    assert answer.status_code == 400
    assert says in answer.content.decode()


def test_the_history_has_before_and_after(
    year: dict[str, Budget], cast: dict[str, User], api_of: Any
) -> None:
    listed = api_of("admin").get("/api/v1/budgets/orlo/science/change-sets/").json()["results"]
    told_of = {row["reason"]: row["moves"] for row in listed}
    assert told_of["release"] == [
        {"child": "auk", "pool": "", "before": 50_000, "after": 20_000},
        {"child": "petrel", "pool": "", "before": 50_000, "after": 70_000},
    ]
    assert told_of["new project"] == [{"child": "kea", "pool": "", "before": None, "after": 10_000}]
    assert told_of["done"] == [{"child": "kea", "pool": "", "before": 10_000, "after": None}]
