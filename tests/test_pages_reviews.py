"""Review packs: the same figures as the burn report, kept when a review is held, and comments."""

import itertools
from dataclasses import fields, replace
from datetime import date, timedelta

import pytest
from django.db import IntegrityError, transaction
from django.db.utils import InternalError

from allocator import delivery
from allocator.models import Delivery, ReviewComment, ReviewRecord, Simulation
from allocator.pages import review_drawing, review_words
from allocator.reviews import building, commenting, keeping, queueing
from allocator.reviews.differing import Difference, differences
from allocator.reviews.freezing import frozen, thawed
from allocator.reviews.pack import Pack
from budgets import services as budgets
from budgets.refusals import Refused
from ledger import reports
from ledger import services as ledger
from ledger.burn_report import ADDITIVE
from ledger.spenders import spenders
from tests import factories as make
from tests.burn_world import END, odd_ledger
from tests.factories import HOUR, T0
from tests.ledger_world import CREDIT, close, give
from tests.pages_world import at, cells, client_of, queries, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
NOW = END + 7 * MINUTE


@pytest.fixture
def world(cast, tree, monkeypatch):
    """The odd ledger's three hours, with what was owed; the period's id is `period`."""
    period = odd_ledger(tree)
    pool = make.make_pool("b200")
    for path, owed, got in (("science", 1000, 950), ("science/petrel", 700, 690)):
        Delivery.objects.create(
            timestep=T0, budget=tree[f"orlo/{path}"], pool=pool, entitled_gpu_seconds=owed,
            demand_gpu_seconds=owed + 9, funded_gpu_seconds=got,
        )  # fmt: skip
    at(monkeypatch, NOW)
    return tree, period


def pack_of(world, path="orlo/science", now=NOW) -> Pack:
    tree, period = world
    return building.build(budget=tree[path], period=period, now=now)


@pytest.mark.parametrize("path", ["orlo", "orlo/science", "orlo/science/petrel"])
def test_the_pack_says_what_the_burn_report_says_to_the_last_unit(world, path):
    tree, _period = world
    pack = pack_of(world, path)
    report = reports.burn_report(
        budget=tree[path], start=T0, end=NOW, now=NOW,
        delivered=delivery.summary(start=T0, end=NOW),
    )  # fmt: skip
    assert pack.total.burn == report.total
    assert sorted(row.burn.path for row in pack.rows) == sorted(row.path for row in report.rows)
    assert {row.burn for row in pack.rows} == set(report.rows)
    for name in ADDITIVE:
        assert sum(getattr(row.burn, name) for row in pack.rows) == getattr(report.total, name)
    spent = spenders(budget=tree[path], start=T0, end=NOW, now=NOW)
    for shown, others in ((pack.jobs, pack.other_jobs), (pack.people, pack.other_people)):
        rows = [getattr(one, "spent", one) for one in shown]
        assert sum(one.settled_mgpus for one in rows) + others.settled_mgpus == spent.settled_mgpus
        assert sum(one.gpu_seconds for one in rows) + others.gpu_seconds == spent.gpu_seconds
    assert pack.chart.settled[-1] == (NOW, report.total.burned_mgpus)
    assert pack.chart.granted[-1][1] == report.total.granted_mgpus


def test_rows_farthest_from_plan_come_first_and_the_reserve_last(world):
    pack = pack_of(world, "orlo")
    distances = [abs(row.over_mgpus) for row in pack.rows if not row.burn.is_reserve]
    assert distances == sorted(distances, reverse=True)
    assert pack.rows[-1].burn.is_reserve
    assert [row.burn.is_reserve for row in pack.rows].count(True) == 1


def test_a_pack_is_the_same_when_it_was_kept(world):
    pack = pack_of(world)
    assert thawed(Pack, frozen(pack)) == pack
    older = frozen(pack)
    del older["corrected_later_mgpus"], older["options"]
    older["of another version"] = 1
    assert thawed(Pack, older) == replace(pack, options=())


def test_a_pack_says_the_same_to_whoever_sees_its_budget(cast, world):
    _tree, period = world
    pages = [
        client_of(cast[who]).get(f"/reviews/{period.pk}/orlo/science/petrel").context["page"].pack
        for who in ("admin", "manager", "viewer")
    ]
    assert pages[0] == pages[1] == pages[2]


def test_weeks_add_up_to_the_whole(tree):
    pool, budget = make.make_pool("h100"), tree["orlo/science/auk"]
    start = T0 + 5 * HOUR
    for day in range(20):
        for hour in (0, 6, 23):
            Delivery.objects.create(
                timestep=T0 + day * DAY + hour * HOUR, budget=budget, pool=pool,
                entitled_gpu_seconds=100 + day, demand_gpu_seconds=500, funded_gpu_seconds=90,
            )  # fmt: skip
    for summed in (False, True):
        if summed:
            delivery.sum_days(before=T0 + 18 * DAY)
        end = T0 + 19 * DAY + 7 * HOUR
        borders = [*building._weeks(start, end), end]
        found = delivery.between(borders, budget_ids=[budget.pk])[budget.pk]
        each = [delivery.summary(start=a, end=b)[budget.pk] for a, b in itertools.pairwise(borders)]
        assert found == each
        assert len(found) == 4
        assert sum(one.owed_gpu_seconds for one in found) == (
            delivery.summary(start=start, end=end)[budget.pk].owed_gpu_seconds
        )


def test_waits_are_from_submission_to_first_start(tree):
    pool = make.make_pool("h100")
    node = make.make_nodes(pool, 1)[0]
    petrel, tern = tree["orlo/science/petrel"], tree["orlo/vision/tern"]
    for minutes in (1, 2, 3, 40):
        job = make.make_job(petrel, submitted_at=T0, state="completed")
        ended = T0 + minutes * MINUTE + HOUR
        make.make_run(
            job, {node: 1}, started_at=T0 + minutes * MINUTE, ended_at=ended, end_reason="preempted"
        )
        make.make_run(job, {node: 1}, number=2, started_at=ended + HOUR, ended_at=ended + 2 * HOUR)
    make.make_job(petrel, submitted_at=T0)
    make.make_run(make.make_job(tern, submitted_at=T0), {node: 1}, started_at=T0 + HOUR)
    lines, every = queueing.waits(
        budget_ids={petrel.pk}, row_of={}, names={petrel.pk: "Petrel", tern.pk: "Tern"},
        start=T0, end=T0 + DAY, counts_waiting=True,
    )  # fmt: skip
    mine, other = lines
    assert (mine.jobs, mine.p50_s, mine.p90_s, mine.preempted, mine.waiting) == (4, 120, 2400, 4, 1)
    assert (other.jobs, other.p50_s) == (0, None)
    assert replace(every, budget=petrel.pk, label="Petrel") == mine


def test_the_page_opens_with_its_answer(cast, world):
    _, period = world
    answer = client_of(cast["manager"]).get(f"/reviews/{period.pk}/orlo/science")
    page = text_of(answer)
    total = pack_of(world).total
    part = total.burn.settled_mgpus * 100 / total.burn.granted_mgpus
    assert f"Science has settled {part:.1f} % of its grant and is" in page
    assert "It is too early to say what that leads to." in page
    assert "95.0 %" in page
    assert "Petrel" in page
    assert cells(answer, "Petrel")[2:4] == [
        f"{row.burn.granted_mgpus / CREDIT:,.0f}" if what == "granted"
        else f"{row.burn.settled_mgpus / CREDIT:,.0f}"
        for row in pack_of(world).rows if row.label == "Petrel" for what in ("granted", "settled")
    ]  # fmt: skip
    assert "=sweep" in page
    assert "Nothing was asked in this time." in page


def test_the_first_sentence_says_who_is_off_plan(world):
    pack = pack_of(world)
    assert "most of it" in review_words.summary(pack)[0]
    even = replace(pack.total, planned_mgpus=pack.total.used_mgpus)
    assert review_words.summary(replace(pack, total=even))[0].endswith("as planned.")
    none = replace(pack.total, burn=replace(pack.total.burn, granted_mgpus=0))
    assert review_words.summary(replace(pack, total=none))[0].endswith("was granted none.")


def test_addresses_of_a_budget_that_was_renamed_lead_to_it(cast, world, api_of):
    tree, period = world
    budgets.rename_budget(
        budget=tree["orlo/science/petrel"], slug="kea", name="Kea", author=cast["manager"], now=NOW
    )
    client, pk = client_of(cast["manager"]), period.pk
    for address in (
        f"/reviews/{pk}/orlo/science/{{}}?version=live",
        f"/reviews/{pk}/orlo/science/{{}}.csv",
        f"/api/v1/reviews/{pk}/orlo/science/{{}}/",
        f"/api/v1/reviews/files/csv/{pk}/orlo/science/{{}}/",
    ):
        answer = client.get(address.format("petrel"))
        assert (answer.status_code, answer["Location"]) == (302, address.format("kea"))
        assert client.get(answer["Location"]).status_code == 200


def test_keys_come_in_the_order_of_every_page(world):
    names = [key.name for key in review_words.keys(pack_of(world))]
    assert names == ["Settled", "Pace", "Delivered of owed", "Runway", "Spendable"]


def test_a_budget_without_anything_has_a_pack(cast, tree, monkeypatch):
    period = make.make_period(ends_at=T0 + DAY)
    at(monkeypatch, T0 + HOUR)
    answer = client_of(cast["admin"]).get(f"/reviews/{period.pk}/orlo/vision")
    assert answer.status_code == 200
    assert "Vision has settled 0 cr and was granted none." in text_of(answer)
    assert "Nothing was charged in this time." in text_of(answer)


def test_the_chart_has_the_plan_of_its_own_and_its_forecast(world):
    tree, period = world
    make.make_plan(tree["orlo/science"], period, [100])
    pack = pack_of(world)
    assert pack.about.has_plan
    assert pack.chart.plan[-1][1] == pack.total.burn.granted_mgpus
    drawn = review_drawing.burn(pack)
    assert not drawn.areas
    burn = replace(
        pack.total.burn, forecast_low_mgpus=CREDIT, forecast_mgpus=2 * CREDIT,
        forecast_high_mgpus=900 * CREDIT,
    )  # fmt: skip
    ahead = review_drawing.burn(replace(pack, total=replace(pack.total, burn=burn)))
    assert len(ahead.areas) == 1
    places = [place for line in (*ahead.areas, *ahead.lines) for place in line.places]
    assert all(0 <= x <= ahead.width and 0 <= y <= ahead.height for x, y in places)


def test_what_was_asked_and_changed_is_told(cast, world):
    tree, period = world
    petrel, science = tree["orlo/science/petrel"], tree["orlo/science"]
    make.make_request(petrel, unit="credits", asked=5 * CREDIT, reason="more sweeps")
    budgets.set_shares(
        parent=science, shares={petrel: 60_000, tree["orlo/science/auk"]: 40_000},
        reason="petrel leads", author=cast["manager"], base_version=1, now=NOW - MINUTE,
    )  # fmt: skip
    answer = client_of(cast["manager"]).get(f"/reviews/{period.pk}/orlo/science")
    page = text_of(answer)
    assert [one.what.partition(", ")[2] for one in answer.context["page"].waiting] == [
        "5 cr, Petrel"
    ]
    assert "5 cr" in page
    assert "more sweeps" in page
    assert "1 request waits for a decision." in page
    assert "petrel leads" in page
    own = text_of(client_of(cast["viewer"]).get(f"/reviews/{period.pk}/orlo/science/petrel"))
    assert "petrel leads" in own
    assert "Petrel 50 → 60" in own
    assert "Auk" not in own


def test_simulations_are_shown_to_who_may_see_them(cast, world):
    tree, period = world
    course = {
        "shares": "now", "policy": "fairshare", "budgets": [{
            "path": "orlo/science/petrel", "owed_gpu_seconds": 200, "delivered_gpu_seconds": 150,
            "waits": {"jobs": 3, "p50_s": 3660},
        }],
    }  # fmt: skip
    Simulation.objects.create(
        asked_by=cast["manager"], budget=tree["orlo/science/petrel"], name="what if",
        state="done", created_at=T0 + HOUR, policies=["fairshare"], result={"courses": [course]},
    )  # fmt: skip
    address = f"/reviews/{period.pk}/orlo/science/petrel"
    page = text_of(client_of(cast["manager"]).get(address))
    assert "what if 75.0" in page
    assert "1 h 01" in page
    assert "what if" not in text_of(client_of(cast["viewer"]).get(address))


def test_a_simulation_tells_of_the_budget_whatever_it_is_called_since(cast, world):
    tree, period = world
    petrel, auk = tree["orlo/science/petrel"], tree["orlo/science/auk"]
    figures = [
        {
            "path": one.path, "owed_gpu_seconds": 100, "delivered_gpu_seconds": got,
            "waits": {"jobs": 0, "p50_s": None},
        }
        for one, got in ((petrel, 75), (auk, 10))
    ]  # fmt: skip
    course = {"shares": "now", "policy": "fairshare", "budgets": figures}
    Simulation.objects.create(
        asked_by=cast["manager"], budget=petrel, name="what if", state="done",
        created_at=T0 + HOUR, policies=["fairshare"], result={"courses": [course]},
        trees={"now": {"nodes": [], "budgets": {petrel.pk: petrel.path, auk.pk: auk.path}}},
    )  # fmt: skip
    for one, slug in ((petrel, "gannet"), (auk, "petrel")):
        budgets.rename_budget(budget=one, slug=slug, name=slug, author=cast["admin"], now=NOW)
    petrel.refresh_from_db()
    (option,) = building.build(budget=petrel, period=period, now=NOW).options
    assert option.delivered_part == 75_000


def test_a_page_takes_as_many_queries_for_twice_as_many_budgets(cast, world):
    tree, period = world
    client, address = client_of(cast["admin"]), f"/reviews/{period.pk}/orlo/science"

    def more(number: int) -> None:
        give(make.make_budget(f"more-{number}", parent=tree["orlo/science"]), 3, period)
        make.make_request(make.make_budget(f"ask-{number}", parent=tree["orlo/science"]))
        budget = tree["orlo/science"]
        commenting.add(
            budget=budget, period=period, author=make.make_user(), text="so", now=T0 + HOUR
        )

    for number in range(4):
        more(number)
    queries(client, address)
    first, listed = queries(client, address), queries(client, "/reviews")
    for number in range(4, 12):
        more(number)
    assert queries(client, address) == first
    assert queries(client, "/reviews") == listed


# --- Holding a review ----------------------------------------------------------------------------


def held(world, cast, **fields) -> ReviewRecord:
    tree, period = world
    given = {
        "budget": tree["orlo/science"], "period": period, "held_on": T0.date(),
        "decision": "Go on.", "base_version": 0, "by": cast["manager"], "now": NOW,
    }  # fmt: skip
    return keeping.hold(**given | fields)


def test_a_review_that_can_t_be_reported_on_is_refused(cast, world):
    _, period = world
    later = T0 + 11 * 366 * 24 * HOUR
    type(period).objects.filter(pk=period.pk).update(ends_at=later + HOUR)
    period.refresh_from_db()
    with pytest.raises(Refused, match=r"A report is about 3\d\d\d days at most: choose fewer\."):
        held(world, cast, now=later)
    assert not ReviewRecord.objects.exists()


def test_a_comment_that_is_withdrawn_is_told_by_no_kept_pack_either(cast, world):
    tree, period = world
    given = {"budget": tree["orlo/science"], "period": period, "author": cast["viewer"]}
    gone, stays = (
        commenting.add(**given, text=text, now=NOW - MINUTE) for text in ("Slower", "Go on")
    )
    row = held(world, cast)
    commenting.withdraw(comment=gone, by=cast["viewer"], now=NOW + MINUTE)
    pack = keeping.kept(budget=tree["orlo/science"], period=period, version=1).pack
    assert [(one.text, one.withdrawn) for one in pack.comments] == [("", True), ("Go on", False)]
    client, where = client_of(cast["manager"]), f"{period.pk}/orlo/science"
    for address in (f"/reviews/{where}", f"/api/v1/reviews/{where}/"):
        answer = client.get(f"{address}?version=1")
        assert answer.status_code == 200
        assert "Go on" in answer.content.decode()
        assert "Slower" not in answer.content.decode()
    row.refresh_from_db()
    assert row.checksum == keeping.checksum(row.pack)  # what was kept stays as it was
    assert stays.withdrawn_at is None


def test_a_review_that_was_held_stays_as_it_was(cast, world):
    tree, period = world
    before = pack_of(world)
    client, address = client_of(cast["manager"]), f"/reviews/{period.pk}/orlo/science"
    answer = client.post(
        f"/reviews/hold/{period.pk}/orlo/science",
        {"held_on": "2026-10-01", "decision": "Petrel slows down.", "base_version": 0},
    )
    assert answer.status_code == 302
    ledger.adjust(
        budget=tree["orlo/science"], amount_mgpus=CREDIT, author=cast["admin"], note="late",
        key="late", now=NOW,
    )  # fmt: skip
    page = client.get(address).context["page"]
    assert page.pack == before
    assert page.kept.row.version == 1
    text = text_of(client.get(address))
    assert "Petrel slows down." in text
    assert "Kept as it was when the review was held on 1 Oct 2026, version 1." in text
    settled = next(one for one in page.changed if one.figure == "settled_mgpus" and not one.where)
    assert settled.after == settled.before + CREDIT
    live = client.get(f"{address}?version=live").context["page"]
    assert live.pack.total.burn.settled_mgpus == before.total.burn.settled_mgpus + CREDIT
    assert live.kept is None
    assert client.get(f"{address}?version=2").status_code == 404
    assert client.get(f"{address}?version=x").status_code == 404


def test_a_correction_is_another_version_with_what_differs(cast, world):
    tree, _ = world
    first = held(world, cast)
    ledger.adjust(
        budget=tree["orlo/science"], amount_mgpus=7, author=cast["admin"], note="late", key="late",
        now=NOW,
    )  # fmt: skip
    with pytest.raises(Refused, match="Say what is corrected"):
        held(world, cast, base_version=1)
    second = held(world, cast, base_version=1, reason="a charge was missing")
    assert second.version == 2
    found = [thawed(Difference, one) for one in second.differences]
    settled = next(one for one in found if one.figure == "settled_mgpus" and not one.where)
    assert settled.after - settled.before == 7
    first.refresh_from_db()
    assert first.checksum == keeping.checksum(first.pack) != second.checksum
    with pytest.raises(Refused, match="Version 2 was kept by"):
        held(world, cast, base_version=1, reason="so")


def test_a_record_never_changes(cast, world):
    row = held(world, cast)
    for change in (
        lambda: ReviewRecord.objects.filter(pk=row.pk).update(decision="else"),
        lambda: ReviewRecord.objects.filter(pk=row.pk).delete(),
    ):
        with (
            pytest.raises((IntegrityError, InternalError), match="never changes"),
            transaction.atomic(),
        ):
            change()
    row.refresh_from_db()
    assert row.decision == "Go on."


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"held_on": date(2026, 10, 2)}, "in the future"),
        ({"held_on": date(2026, 9, 30)}, "had not begun"),
        ({"decision": "  "}, "Say what was decided"),
        ({"base_version": 1, "reason": "so"}, "There is no version 1"),
    ],
)
def test_what_is_wrong_with_holding_is_said_and_nothing_kept(cast, world, fields, sentence):
    with pytest.raises(Refused, match=sentence):
        held(world, cast, **fields)
    assert not ReviewRecord.objects.exists()


def test_a_refusal_stands_in_the_form_and_loses_nothing(cast, world):
    _, period = world
    answer = client_of(cast["manager"]).post(
        f"/reviews/hold/{period.pk}/orlo/science",
        {"held_on": "2026-10-09", "decision": "Long thought about.", "base_version": 0},
    )
    assert answer.status_code == 422
    assert "in the future" in text_of(answer)
    assert "Long thought about." in answer.content.decode()


def test_what_a_pack_has_no_room_for_differs_too(world):
    pack = pack_of(world)
    fuller = replace(pack, more_asked=3, more_changes=2)
    assert differences(pack, fuller) == (
        Difference("", "asked", "number", 0, 3),
        Difference("", "changes", "number", 0, 2),
    )


def test_changes_of_a_later_period_do_not_hide_those_of_this_one(cast, world):
    tree, period = world
    petrel, auk = tree["orlo/science/petrel"], tree["orlo/science/auk"]
    times = [T0 + HOUR, *(period.ends_at + n * HOUR for n in range(7))]
    for number, when in enumerate(times):
        budgets.set_shares(
            parent=tree["orlo/science"], shares={petrel: 60_000 + number, auk: 40_000 - number},
            reason=f"r{number}", author=cast["manager"], base_version=1 + number, now=when,
        )  # fmt: skip
    pack = building.build(budget=petrel, period=period, now=times[-1])
    assert [one.at for one in pack.chart.marks] == [T0 + HOUR]
    assert [one.reason for one in pack.changes] == ["r0"]


def test_every_change_of_the_own_share_is_counted(cast, world):
    tree, _period = world
    petrel, auk = tree["orlo/science/petrel"], tree["orlo/science/auk"]
    for number in range(9):
        budgets.set_shares(
            parent=tree["orlo/science"], shares={petrel: 60_000 + number, auk: 40_000 - number},
            reason="r", author=cast["manager"], base_version=1 + number,
            now=T0 + (1 + number) * MINUTE,
        )  # fmt: skip
    pack = pack_of(world, "orlo/science/petrel")
    assert (len(pack.changes), pack.more_changes) == (6, 3)


def test_transfers_that_have_no_room_are_counted(cast, world):
    tree, period = world
    give(tree["orlo/science"], 500, period)
    for number in range(8):
        ledger.transfer(
            source=tree["orlo/science"], target=tree["orlo/science/petrel"], amount_mgpus=1,
            author=cast["admin"], note="n", key=f"t{number}", now=NOW - MINUTE,
        )  # fmt: skip
    pack = pack_of(world, "orlo/science/petrel")
    assert (len(pack.transfers), pack.more_transfers) == (6, 2)
    page = text_of(client_of(cast["manager"]).get(f"/reviews/{period.pk}/orlo/science/petrel"))
    assert "2 more." in page


def test_what_a_reserve_gave_to_a_child_is_among_the_parent_s_decisions(cast, world):
    tree, period = world
    give(tree["orlo"], 1000, period)
    give(tree["orlo/science"], 500, period)
    ways = {
        "reserve": ("orlo/science", "orlo/science/petrel"),
        "siblings": ("orlo/science/petrel", "orlo/science/auk"),
        "back": ("orlo/science/petrel", "orlo/science"),
        "above": ("orlo", "orlo/science"),
        "through": ("orlo", "orlo/science/auk"),
    }
    for number, (note, (source, target)) in enumerate(ways.items()):
        ledger.transfer(
            source=tree[source], target=tree[target], amount_mgpus=7, author=cast["admin"],
            note=note, key=note, now=NOW - MINUTE + timedelta(seconds=number),
        )  # fmt: skip

    def told(path):
        return [
            (one.reason, one.budget, one.amount_mgpus) for one in pack_of(world, path).transfers
        ]

    assert told("orlo/science") == [
        ("through", "orlo/science", 7),
        ("above", "orlo/science", 7),
        ("back", "orlo/science/petrel", -7),
        ("reserve", "orlo/science/petrel", 7),
    ]
    assert told("orlo") == [("through", "orlo/science", 7), ("above", "orlo/science", 7)]
    assert [note for note, *_ in told("orlo/science/auk")] == ["through", "siblings"]


def test_a_budget_that_moved_away_later_keeps_its_row_and_waits(cast, world):
    tree, period = world
    type(period).objects.filter(pk=period.pk).update(ends_at=NOW)
    period.refresh_from_db()
    before = pack_of(world)
    budgets.move_budget(
        budget=tree["orlo/science/petrel"], to=tree["orlo/vision"], share=1000, now=NOW + HOUR,
        siblings={tree["orlo/vision/tern"]: 50_000}, author=cast["admin"], reason="x",
    )  # fmt: skip
    science = type(tree["orlo"]).objects.get(pk=tree["orlo/science"].pk)
    after = building.build(budget=science, period=period, now=NOW + 2 * HOUR)
    lasting = [(row.label, row.budget, row.share) for row in before.rows]
    assert sorted(map(str, lasting)) == sorted(
        str((row.label, row.budget, row.share)) for row in after.rows
    )
    waits = {one.label: (one.jobs, one.p90_s) for one in before.waits}
    assert {one.label: (one.jobs, one.p90_s) for one in after.waits} == waits
    assert after.all_waits.jobs == before.all_waits.jobs
    page = client_of(cast["admin"]).get(f"/reviews/{period.pk}/orlo/science")
    assert "elsewhere/petrel" not in page.content.decode()


def test_a_version_of_any_length_is_none(cast, world):
    _, period = world
    for version in ("9" * 30, "9" * 5000, "²", "٣"):
        address = f"/reviews/{period.pk}/orlo/science?version={version}"
        assert client_of(cast["admin"]).get(address).status_code == 404


def test_what_two_packs_differ_in_is_named(world):
    pack = pack_of(world)
    assert differences(pack, pack) == ()
    row = pack.rows[0]
    burn = replace(row.burn, settled_mgpus=row.burn.settled_mgpus + 5)
    other = replace(pack, rows=(replace(row, burn=burn), *pack.rows[1:]))
    assert differences(pack, other) == (
        Difference(
            row.label, "settled_mgpus", "credits", burn.settled_mgpus - 5, burn.settled_mgpus
        ),
    )
    assert {one.name for one in fields(Difference)} >= {"where", "figure", "before", "after"}


def test_a_period_that_has_not_started_has_no_reviews(cast, tree, monkeypatch):
    period = make.make_period(status="approved")
    at(monkeypatch, T0 - DAY)
    client = client_of(cast["admin"])
    assert client.get(f"/reviews/{period.pk}/orlo").status_code == 404
    assert "There is nothing to review yet" in text_of(client.get("/reviews"))


def test_a_closed_period_s_pack_tells_what_was_corrected_later(cast, tree):
    period = make.make_period(ends_at=T0 + 2 * HOUR)
    give(tree["orlo/vision/tern"], 50, period)
    node = make.make_nodes(make.make_pool("h100"), 1)[0]
    make.make_run(make.make_job(tree["orlo/vision/tern"]), {node: 1})
    after = make.make_period(
        "next", starts_at=T0 + 2 * HOUR, ends_at=T0 + 9 * HOUR, status="approved",
        capacity={make.make_pool("b200"): 3600},
    )  # fmt: skip
    end = close(4)
    ledger.close_period(period=period, at=end)
    ledger.start_period(period=after, at=end)
    ledger.adjust(
        budget=tree["orlo/vision/tern"], amount_mgpus=9, author=cast["admin"], note="late",
        key="late", now=end + MINUTE, of=type(period).objects.get(pk=period.pk),
    )  # fmt: skip
    period.refresh_from_db()
    pack = building.build(budget=tree["orlo/vision"], period=period, now=end + HOUR)
    assert pack.corrected_later_mgpus == 9
    assert pack.about.end == T0 + 2 * HOUR
    assert pack.total.burn.settled_mgpus == 2 * CREDIT
    later = building.build(budget=tree["orlo/vision"], period=after, now=end + HOUR)
    assert later.previous is not None
    assert later.previous.settled_mgpus == 2 * CREDIT


# --- Comments ------------------------------------------------------------------------------------


def test_a_comment_is_its_author_s_and_is_never_deleted(cast, world):
    _, period = world
    client, address = client_of(cast["viewer"]), f"/reviews/comment/{period.pk}/orlo/science/petrel"
    assert client.post(address, {"text": "  We need\r\nthe ensemble. "}).status_code == 302
    row = ReviewComment.objects.get()
    assert (row.text, row.author) == ("We need\nthe ensemble.", cast["viewer"])
    assert client.post(address, {"text": " "}).status_code == 422
    other = client_of(cast["manager"])
    other.post(f"/reviews/comments/{row.pk}/edit", {"text": "Not mine"})
    other.post(f"/reviews/comments/{row.pk}/withdraw")
    row.refresh_from_db()
    assert (row.text, row.withdrawn_at) == ("We need\nthe ensemble.", None)
    client.post(f"/reviews/comments/{row.pk}/edit", {"text": "We need it."})
    page = text_of(client.get(f"/reviews/{period.pk}/orlo/science/petrel"))
    assert "We need it." in page
    client.post(f"/reviews/comments/{row.pk}/withdraw")
    page = text_of(client.get(f"/reviews/{period.pk}/orlo/science/petrel"))
    assert "We need it." not in page
    assert "(withdrawn)" in page
    with (
        pytest.raises((IntegrityError, InternalError), match="never changes"),
        transaction.atomic(),
    ):
        row.delete()


def test_a_comment_can_be_edited_for_a_quarter_of_an_hour(cast, world):
    tree, period = world
    author = cast["viewer"]
    row = commenting.add(
        budget=tree["orlo/science/petrel"], period=period, author=author, text="a", now=NOW
    )
    last = NOW + commenting.EDITABLE
    commenting.edit(comment=row, by=author, text="b", now=last - timedelta(seconds=1))
    with pytest.raises(Refused, match="15 minutes"):
        commenting.edit(comment=row, by=author, text="c", now=last)
    with pytest.raises(Refused, match="at most 2000"):
        commenting.add(budget=row.budget, period=period, author=author, text="x" * 2001, now=NOW)
    row.refresh_from_db()
    assert row.text == "b"
    commenting.edit(comment=row, by=author, text="d", now=NOW - HOUR)  # a clock set back
    row.refresh_from_db()
    assert (row.text, row.edited_at) == ("d", row.created_at)


def test_the_list_says_which_reviews_were_held(cast, world):
    held(world, cast)
    answer = client_of(cast["manager"]).get("/reviews")
    assert "held 1 Oct 2026, version 1 kept" in text_of(answer)
    names = [one.budget.path for one in answer.context["page"][0].entries]
    assert names == ["orlo/science"]
    everything = client_of(cast["admin"]).get("/reviews").context["page"][0].entries
    assert [one.budget.path for one in everything] == ["orlo", "orlo/science", "orlo/vision"]
    assert [one.version for one in everything] == [0, 1, 0]
