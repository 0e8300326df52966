"""The page of two instants: what is different, the sets between, and who may see which of it."""

import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from budgets import services
from budgets.models import Budget
from clusters.models import Pool
from tests import factories as make
from tests.pages_world import at, cells, client_of, queries, text_of

pytestmark = pytest.mark.django_db
T0, DAY, HOUR = make.T0, timedelta(days=1), make.HOUR
NOW = T0 + 20 * DAY
SCIENCE, PETREL, AUK = "orlo/science", "orlo/science/petrel", "orlo/science/auk"
FIRST = "?from=2026-10-01T00:00:00Z&to=2026-10-04T00:00:00Z"


def why(day: int, reason: str) -> dict[str, Any]:
    author = make.someone()
    author.first_name = "Ines"
    author.save()
    return {"author": author, "reason": reason, "now": T0 + day * DAY}


@pytest.fixture
def year(tree: dict[str, Budget], monkeypatch: pytest.MonkeyPatch) -> dict[str, Budget]:
    """A share on day 1, a move and a pool's override on day 2, a rename on day 3."""
    at(monkeypatch, NOW)
    pool = make.make_pool("h100")
    services.set_shares(
        parent=tree[SCIENCE], shares={tree[PETREL]: 33_333, tree[AUK]: 50_000}, base_version=1,
        **why(1, "release"),
    )  # fmt: skip
    services.move_budget(
        budget=tree[AUK], to=tree["orlo/vision"], share=0, **why(2, "sees more than it hears")
    )
    services.set_shares(
        parent=tree[SCIENCE], shares={tree[PETREL]: 33_333}, base_version=3,
        overrides={(tree[PETREL], pool): 10_000}, **why(2, "needs no h100"),
    )  # fmt: skip
    services.rename_budget(
        budget=Budget.objects.get(path=PETREL), slug="kea", name="Kea",
        author=make.someone(), now=T0 + 3 * DAY,
    )  # fmt: skip
    return tree


def shown(user: Any, path: str = "orlo", query: str = FIRST) -> Any:
    answer = client_of(user).get(f"/budgets/{path}/diff{query}")
    assert answer.status_code == 200
    return answer


def test_what_is_different_stands_by_parent_with_shares_before_and_after(
    cast: Any, year: Any
) -> None:
    page = shown(cast["admin"])
    text = text_of(page)
    assert "2 budgets are different (1 moved, 1 renamed, 2 another share)" in text
    kea = cells(page, "Kea")
    assert kea[2:5] == ["50.000 → 33.333", "−16.667", "30.000 → 20.000"] or kea[2:4] == [
        "50.000 → 33.333",
        "−16.667",
    ]
    assert kea[4] == "30.000 → 19.999"  # 60 % of 33.333 %, rounded down
    assert kea[1].startswith("renamed, another share Petrel (petrel) until 4 Oct 2026")
    pool = Pool.objects.get().name
    assert cells(page, f"in {pool}")[2:] == ["as overall → 10.000", "–", "30.000 → 6.000", ""]
    auk = cells(page, "Auk")
    assert auk[1:5] == [
        *("moved, another share from orlo/science", "50.000 → 0.000", "−50.000"),
        "30.000 → 0.000",
    ]
    groups = re.findall(r'scope="rowgroup">(.*?)</th>', page.content.decode())
    assert groups == ["Below orlo/science", "Below orlo/vision"]


def test_the_sets_between_say_who_why_and_when_and_what_budgets_were_called(
    cast: Any, year: Any
) -> None:
    text = text_of(shown(cast["admin"]))
    between = text[text.index("Change sets between") :]
    assert between.index("“needs no h100”") < between.index("“release”")
    assert "Petrel 50.0 → 33.3" in between  # it was no Kea yet
    assert "Kea" not in between
    assert "Ines, 2 Oct, from Fri 2 Oct" in between
    assert "Auk new → 0.0" in between


def test_a_set_by_another_than_who_approved_it_names_both(
    cast: Any, tree: Any, at_now: Any
) -> None:
    proposed = services.draft_change_set(
        parent=tree[SCIENCE], shares={tree[PETREL]: 1, tree[AUK]: 2}, base_version=1,
        effective_at=T0 + DAY, **why(1, "asked for"),
    )  # fmt: skip
    services.propose(change_set=proposed, now=T0 + DAY)
    services.approve(change_set=proposed, by=cast["manager"], now=T0 + DAY)
    text = text_of(shown(cast["manager"], SCIENCE))
    assert "approved by manager, from Fri 2 Oct" in text
    assert "“asked for”" in text


@pytest.fixture
def at_now(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, NOW)


def test_a_change_that_was_taken_back_is_in_the_sets_and_in_no_row(
    cast: Any, tree: Any, at_now: Any
) -> None:
    for version, share in ((1, 1), (2, 50_000)):
        services.set_shares(
            parent=tree[SCIENCE], shares={tree[PETREL]: share, tree[AUK]: 50_000},
            base_version=version, **why(version, f"number {version}"),
        )  # fmt: skip
    text = text_of(shown(cast["manager"], SCIENCE))
    assert "no budget is different." in text
    assert "Nothing is different" in text
    assert "“number 1”" in text
    assert "“number 2”" in text


def test_nothing_at_all_says_so(cast: Any, tree: Any, at_now: Any) -> None:
    text = text_of(shown(cast["manager"], SCIENCE, "?from=2026-10-05&to=2026-10-06"))
    assert "Nothing is different" in text
    assert "None came into force." in text


def test_only_what_the_reader_may_see_is_named(cast: Any, year: Any) -> None:
    manager = shown(cast["manager"], SCIENCE)
    assert "Auk" in text_of(manager)  # it was theirs
    assert "vision" not in manager.content.decode().lower()
    assert "“sees more than it hears”" in text_of(manager)  # of science's own set
    auk = cells(manager, "Auk")
    assert auk[2:5] == ["50.000 → –", "–", "30.000 → –"]
    member = shown(cast["member"], "orlo/science/kea")
    text = text_of(member)
    assert "release" not in text  # the set is science's
    assert "Auk" not in text
    assert cells(member, "Kea")[5] == ""
    assert "Auk" not in text_of(shown(cast["stranger"], "orlo/vision/tern"))


def test_a_later_name_of_what_moved_out_of_sight_is_not_told(cast: Any, year: Any) -> None:
    services.rename_budget(
        budget=Budget.objects.get(pk=year[AUK].pk), slug="secret", name="Secret",
        author=make.someone(), now=T0 + 4 * DAY,
    )  # fmt: skip
    query = "?from=2026-10-01T00:00:00Z&to=2026-10-09T00:00:00Z"
    manager = shown(cast["manager"], SCIENCE, query).content.decode()
    assert "ecret" not in manager
    assert "Secret" in text_of(shown(cast["admin"], "orlo", query))


# --- Which instants -------------------------------------------------------------------------------


def instants(page: Any) -> tuple[str, str]:
    found = page.context["page"]
    return found.start.isoformat(), found.end.isoformat()


def test_without_dates_it_is_the_open_period_up_to_now(cast: Any, year: Any) -> None:
    assert instants(shown(cast["admin"], query="")) == (
        (NOW - timedelta(days=7)).isoformat(),
        NOW.isoformat(),
    )
    make.make_period()
    page = shown(cast["admin"], query="")
    assert instants(page) == (T0.isoformat(), NOW.isoformat())
    assert "2 budgets are different" in text_of(page)


@pytest.mark.parametrize(
    ("query", "start"),
    [
        ("?from=2026-10-01", "2026-10-01T04:00:00+00:00"),
        ("?from=2026-10-01T09:30", "2026-10-01T13:30:00+00:00"),
        ("?from=2026-10-01T09:30:05", "2026-10-01T13:30:05+00:00"),
        ("?from=2026-10-01T09:30:00Z", "2026-10-01T09:30:00+00:00"),
        ("?from=2026-10-01T09:30&zone=Asia/Tokyo", "2026-10-01T00:30:00+00:00"),
    ],
)
def test_dates_are_of_the_reader_s_zone_and_stand_in_the_form_so(
    cast: Any, year: Any, query: str, start: str
) -> None:
    make.make_period(starts_at=T0 - DAY, time_zone="America/New_York")
    page = shown(cast["admin"], query=query)
    assert instants(page) == (start, NOW.isoformat())
    zone = "Asia/Tokyo" if "Tokyo" in query else "America/New_York"
    html = page.content.decode()
    assert f'name="zone" value="{zone}"' in html
    local = page.context["page"].start.astimezone(page.context["zone"])
    assert f'name="from" value="{local:%Y-%m-%dT%H:%M:%S}"' in html
    again = re.findall(r'name="(from|to)" value="([^"]+)"', html)
    same = shown(cast["admin"], query="?" + "&".join(map("=".join, [*again, ("zone", zone)])))
    assert instants(same) == instants(page)


WRONG = [
    ("?from=2026-10-05&to=2026-10-01", "before the start"),
    ("?from=yesterday", "neither a date"),
    ("?from=2026-13-45T00:00", "neither a date"),
    ("?to=2026-10-01T00:00:00.5Z", "second"),
    ("?from=0001-01-01T00:00", "from"),
    ("?zone=Mars/Olympus", "is no time zone"),
    (
        "?from=2026-03-29T02:30&zone=Europe/Zurich",
        "from: 2026-03-29 02:30:00 is left out in Europe/Zurich, whose clocks go forward then: "
        "give an earlier or a later time.",
    ),
    ("?to=9999-12-31T23:59&zone=America/New_York", "to: 9999-12-31T23:59:00 is no time of ours"),
]


@pytest.mark.parametrize(("query", "says"), WRONG)
def test_what_is_asked_wrongly_is_said_above_the_default(
    cast: Any, year: Any, query: str, says: str
) -> None:
    answer = client_of(cast["admin"]).get(f"/budgets/orlo/diff{query}")
    assert answer.status_code == 400
    assert says in text_of(answer)
    assert instants(answer)[1] == NOW.isoformat()


TWICE = [  # the last Sunday of October 2026 in Zurich: 02:30 is 00:30 and 01:30 UTC
    "2026-10-25T00:30:00Z",
    "2026-10-25T01:30:00Z",
]


def sent(page: Any, **typed: str) -> str:
    """Return what the form of a page asks, as a browser sends it: no seconds where they are 0."""
    fields = re.findall(
        r'name="(from|to|from_at|to_at|zone)" value="([^"]+)"', page.content.decode()
    )
    assert len(fields) == 5
    asked = dict(fields) | typed
    return "?" + urlencode({name: re.sub(r"(T..:..):00$", r"\1", v) for name, v in asked.items()})


@pytest.mark.parametrize("start", TWICE)
def test_an_instant_of_an_hour_that_comes_twice_survives_the_form(
    cast: Any, year: Any, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    at(monkeypatch, NOW + 20 * DAY)
    admin = cast["admin"]
    page = shown(admin, query=f"?from={start}&to=2026-10-25T02:00:00Z&zone=Europe/Zurich")
    assert 'name="from" value="2026-10-25T02:30:00"' in page.content.decode()
    again = shown(admin, query=sent(page))
    assert instants(again) == instants(page)
    assert instants(again)[0] == start.replace("Z", "+00:00")
    # What is typed holds, and a time that stays is one of the zone that is chosen.
    typed = shown(admin, query=sent(page, **{"from": "2026-10-24T02:30"}))
    assert instants(typed)[0] == "2026-10-24T00:30:00+00:00"
    elsewhere = shown(admin, query=sent(page, zone="Asia/Tokyo"))
    assert instants(elsewhere)[0] == "2026-10-24T17:30:00+00:00"


def test_the_last_change_in_such_an_hour_is_asked_about_again_by_the_form(
    cast: Any, tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = datetime.fromisoformat(TWICE[1])
    at(monkeypatch, late + 10 * DAY)
    services.set_shares(
        parent=tree[SCIENCE], shares={tree[PETREL]: 1, tree[AUK]: 2}, base_version=1,
        **why(0, "less") | {"now": late},
    )  # fmt: skip
    (last, *_) = shown(cast["admin"], query="?zone=Europe/Zurich").context["page"].presets
    page = shown(cast["admin"], query=sent(shown(cast["admin"], query=f"?{last.query}")))
    assert instants(page) == ((late - timedelta(seconds=1)).isoformat(), late.isoformat())
    assert "2 budgets are different" in text_of(page)


@pytest.mark.parametrize(
    ("exact", "start"),
    [
        ("soon", None),
        ("2026-10-25T02:30:00", None),  # of no zone
        ("2026-10-25T03:30:00Z", None),  # another time
        ("0001-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59Z", None),
        (TWICE[1], "2026-10-25T01:30:00+00:00"),
    ],
)
def test_the_unseen_instant_counts_only_where_it_is_the_time_that_is_seen(
    cast: Any, year: Any, monkeypatch: pytest.MonkeyPatch, exact: str, start: str | None
) -> None:
    at(monkeypatch, NOW + 20 * DAY)
    query = f"?from=2026-10-25T02:30&zone=Europe/Zurich&from_at={exact}"
    answer = client_of(cast["admin"]).get(f"/budgets/orlo/diff{query}")
    if start is None:
        assert answer.status_code == 400
        assert (
            "from: 2026-10-25 02:30:00 comes twice in Europe/Zurich, whose clocks go back then: "
            "choose the time zone UTC, and 2026-10-25T00:30:00Z or 2026-10-25T01:30:00Z."
        ) in text_of(answer)
    else:
        assert instants(answer)[0] == start


def test_presets_lead_to_the_last_change_the_period_and_a_week(cast: Any, year: Any) -> None:
    make.make_period(starts_at=T0 - DAY)
    found = shown(cast["admin"]).context["page"].presets
    assert {one.label: one.query for one in found} == {
        "Last change": "from=2026-10-03T23%3A59%3A59Z&to=2026-10-04T00%3A00%3A00Z",
        "This period": "from=2026-09-30T00%3A00%3A00Z",
        "Last 7 days": "from=2026-10-14T00%3A00%3A00Z",
    }
    last = shown(cast["admin"], query=f"?{found[0].query}")
    assert "one budget is different (1 renamed)" in text_of(last)
    assert [one.is_chosen for one in last.context["page"].presets] == [True, False, False]


LAST = [
    ("admin", "orlo", 3),  # the rename
    ("admin", "orlo/vision", 2),  # auk came
    ("admin", "orlo/vision/tern", None),  # auk came beside it
    ("admin", "orlo/science/kea", 3),
    ("stranger", "orlo/vision/tern", None),
]


@pytest.mark.parametrize(("who", "path", "day"), LAST)
def test_the_last_change_is_of_what_is_here(
    cast: Any, year: Any, who: str, path: str, day: int | None
) -> None:
    presets = {one.label: one.query for one in shown(cast[who], path).context["page"].presets}
    if day is None:
        first = presets.get("Last change", "2026-10-01T00%3A00%3A00Z")
        assert first.endswith("2026-10-01T00%3A00%3A00Z")  # when the tree was made
    else:
        until = f"2026-10-0{1 + day}T00%3A00%3A00Z"
        assert presets["Last change"].endswith(f"to={until}")


def test_the_last_change_of_one_s_own_share_counts_where_the_parent_isn_t_seen(
    cast: Any, tree: Any, at_now: Any
) -> None:
    services.set_shares(
        parent=tree[SCIENCE], shares={tree[PETREL]: 1, tree[AUK]: 2}, base_version=1,
        **why(5, "less"),
    )  # fmt: skip
    (last, *_) = shown(cast["member"], PETREL).context["page"].presets
    page = shown(cast["member"], PETREL, f"?{last.query}")
    assert cells(page, "Petrel")[2] == "50.000 → 0.001"
    assert "less" not in text_of(page)


def test_the_last_change_is_found_behind_many_sets_that_move_others_or_nothing(
    cast: Any, tree: Any, at_now: Any
) -> None:
    def write(parent: str, shares: dict[str, int], version: int, now: datetime) -> None:
        services.set_shares(
            parent=tree[parent], shares={tree[path]: part for path, part in shares.items()},
            base_version=version, **why(0, "so") | {"now": now},
        )  # fmt: skip

    write(SCIENCE, {PETREL: 40_000, AUK: 50_000}, 1, T0 + DAY)
    for n in range(30):
        write(SCIENCE, {PETREL: 40_000, AUK: 40_000 + n}, 2 + n, T0 + 2 * DAY + n * HOUR)
    for n in range(30):  # nothing of them, and they are the newest below
        write(SCIENCE, {PETREL: 40_000, AUK: 40_029}, 32 + n, T0 + 9 * DAY + n * HOUR)
    for who, path, end in (
        ("member", PETREL, T0 + DAY),
        ("manager", SCIENCE, T0 + 2 * DAY + 29 * HOUR),
    ):
        (last, *_) = shown(cast[who], path).context["page"].presets
        assert last.label == "Last change"
        assert last.query.endswith(urlencode({"to": end.strftime("%Y-%m-%dT%H:%M:%SZ")})), path


def test_what_lies_ahead_is_as_it_is_scheduled(cast: Any, year: Any) -> None:
    services.set_shares(
        parent=Budget.objects.get(path=SCIENCE), shares={year[PETREL]: 90_000}, base_version=4,
        effective_at=NOW + DAY, **why(19, "soon"),
    )  # fmt: skip
    page = shown(cast["admin"], query="?from=2026-10-20&to=2026-10-25")
    assert "What lies ahead is as it is scheduled now." in text_of(page)
    assert cells(page, "Kea")[2] == "33.333 → 90.000"
    assert "What lies ahead" not in text_of(shown(cast["admin"]))


# --- Where it is, and what it costs ---------------------------------------------------------------


def test_pages_lead_to_it(cast: Any, year: Any) -> None:
    for path in ("orlo", SCIENCE):
        page = client_of(cast["admin"]).get(f"/budgets/{path}").content.decode()
        assert f'href="/budgets/{path}/diff"' in page
    assert 'href="/budgets/orlo/diff"' in client_of(cast["admin"]).get("/budgets").content.decode()


def test_a_longer_history_and_a_larger_tree_take_no_more_queries(cast: Any, year: Any) -> None:
    client, science = client_of(cast["admin"]), Budget.objects.get(path=SCIENCE)
    counts = []
    for numbers in (range(1), range(1, 7)):
        for number in numbers:
            slug = f"s{number}"
            made = services.create_budget(
                parent=science, slug=slug, name="S", share=1, **why(4, "more")
            )
            services.rename_budget(budget=made, name="T", author=make.someone(), now=T0 + 5 * DAY)
        query = "?from=2026-10-01T00:00:00Z&to=2026-10-19T00:00:00Z"
        counts.append(queries(client, f"/budgets/orlo/diff{query}"))
    assert counts[1] <= counts[0] <= 50
