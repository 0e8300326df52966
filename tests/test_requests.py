"""Requests: asked, granted, declined, withdrawn, expired; and what is given for a time ends."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from allocator import steering
from allocator.choices import choices
from budgets import access, requests, shares
from budgets import services as services_of_budgets
from budgets.models import Budget, ChangeSet, Notice, Period, Request
from budgets.refusals import Refused, StaleBase
from ledger import reports, services
from ledger import requests as deciding
from ledger.models import Entry
from tests import factories as make
from tests.factories import HOUR, T0, T1
from tests.ledger_world import CREDIT, give, ledger
from tests.takeback_world import use

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
PETREL, AUK, SCIENCE = "orlo/science/petrel", "orlo/science/auk", "orlo/science"


@pytest.fixture
def period(tree: dict[str, Budget]) -> Period:
    """10 credits for each project, 5 more in science's reserve, 7 in orlo's."""
    period = make.make_period()
    for path in (PETREL, AUK, "orlo/vision/tern"):
        give(tree[path], 10, period)
    give(tree[SCIENCE], 5, period)
    give(tree["orlo"], 7, period)
    return period


def granted(tree: dict[str, Budget], period: Period, at: Any = T0) -> dict[str, float]:
    found = reports.figures(period=period, now=at)
    return {path: found[budget.pk].granted_mgpus / CREDIT for path, budget in tree.items()}


def ask(budget: Budget, by: User, **asked: Any) -> Request:
    defaults: dict[str, Any] = {
        "unit": "credits",
        "asked": 4 * CREDIT,
        "reason": "a deadline",
        "now": T0,
    }
    return requests.ask(budget=budget, by=by, **{**defaults, **asked})


def grant(request: Request, source: Budget, by: User, **decided: Any) -> Request:
    return services.grant_request(
        request=request, source=source, by=by, **{"answer": "agreed", "now": T0 + HOUR, **decided}
    )


def told(kind: str) -> list[tuple[str, str, str]]:
    rows = Notice.objects.filter(kind=kind).order_by("user__username")
    return list(rows.values_list("user__username", "text", "link"))


def shares_of(tree: dict[str, Budget], at: Any) -> tuple[int | None, int | None]:
    return shares.share_of(tree[PETREL], at), shares.share_of(tree[AUK], at)


# --- Asking ---------------------------------------------------------------------------------------


def test_a_request_is_told_to_those_who_may_decide(tree, cast):
    made = ask(tree[PETREL], cast["member"], until=T0 + DAY)
    assert (made.status, made.asked, made.until) == ("open", 4 * CREDIT, T0 + DAY)
    text = (
        "member asks for 4.00 credits for orlo/science/petrel until 02 Oct 2026 00:00 UTC: "
        "a deadline"
    )
    where = f"/requests/{made.pk}"
    assert told("asked") == [("admin", text, where), ("manager", text, where)]


def test_where_nobody_has_the_role_superusers_are_told(tree):
    root = make.make_user("root", is_superuser=True)
    ask(tree["orlo/science"], make.someone(), unit="percent", asked=1)
    assert [name for name, _, _ in told("asked")] == [root.username]


def test_a_manager_who_asks_for_the_own_budget_does_not_decide_on_it(tree, cast):
    ask(tree[SCIENCE], cast["manager"])
    assert [name for name, _, _ in told("asked")] == ["admin"]


@pytest.mark.parametrize(
    ("path", "asked", "sentence"),
    [
        ("orlo", {}, "orlo is the root of the tree"),
        (PETREL, {"unit": "percent", "asked": 50_001}, r"ask for at most 50\.000 % more"),
        (PETREL, {"asked": 0}, "more than nothing"),
        (PETREL, {"asked": 10**17 + 1}, "at most 27,777,777,777.78 credits"),
        (PETREL, {"unit": "gpus"}, "ask for percent or credits"),
        (PETREL, {"until": T0}, "That date has passed"),
        (PETREL, {"until": T0.replace(tzinfo=None)}, "no time zone"),
        (PETREL, {"reason": "  "}, "why more is needed"),
        (PETREL, {"reason": "x" * 2001}, "at most 2000"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(tree, cast, path, asked, sentence):
    with pytest.raises(Refused, match=sentence):
        ask(tree[path], cast["member"], **asked)
    assert not Request.objects.exists()
    assert not Notice.objects.exists()


def test_for_an_archived_budget_nobody_asks(tree, cast):
    make.make_shares(tree[SCIENCE], {tree[AUK]: 50_000})
    with pytest.raises(Refused, match="archived"):
        ask(tree[PETREL], cast["member"])


def test_the_same_is_asked_once_and_the_refusal_points_to_the_open_one(tree, cast):
    first = ask(tree[PETREL], cast["member"])
    with pytest.raises(requests.AskedAlready, match=f"Request {first.pk} of member") as refused:
        ask(tree[PETREL], cast["colleague"], asked=1)
    assert refused.value.open == first
    ask(tree[PETREL], cast["colleague"], unit="percent", asked=1000)
    ask(tree[AUK], cast["manager"])
    assert Request.objects.count() == 3
    requests.withdraw(request=first, by=cast["member"], now=T0)
    assert ask(tree[PETREL], cast["member"]).status == "open"


# --- Credits --------------------------------------------------------------------------------------


def test_credits_from_the_reserve_are_entries_with_reason_and_author(tree, cast, period):
    made = ask(tree[PETREL], cast["member"])
    done = grant(made, tree[SCIENCE], cast["manager"], given=3 * CREDIT)
    (entry,) = Entry.objects.filter(kind="transfer")
    assert (entry.budget, entry.amount_mgpus) == (tree[PETREL], 3 * CREDIT)
    assert (entry.author, entry.note) == (cast["manager"], f"request {made.pk}: agreed")
    assert (done.status, done.decision, done.source) == ("granted", "reserve", tree[SCIENCE])
    assert (done.given, done.decided_by, done.answer) == (3 * CREDIT, cast["manager"], "agreed")
    assert granted(tree, period)[PETREL] == 13
    assert reports.figures(period=period, now=T0)[tree[SCIENCE].pk].reserve_mgpus == 2 * CREDIT
    ((who, text, link),) = told("decided")
    assert (who, link) == ("member", f"/requests/{made.pk}")
    assert text == (
        "manager granted 3.00 credits for orlo/science/petrel out of orlo/science: agreed"
    )
    assert told("transferred") == []


def test_credits_from_an_ancestor_further_up_pass_all_levels(tree, cast, period):
    made = ask(tree[PETREL], cast["member"])
    assert services.place_of_decision(made, tree["orlo"]) == tree["orlo"]
    grant(made, tree["orlo"], cast["admin"])
    found = granted(tree, period)
    assert (found["orlo"], found[SCIENCE], found[PETREL]) == (42, 29, 14)


def test_credits_from_a_sibling_are_told_to_those_who_lead_it(tree, cast, period):
    lead = make.make_user("lead")
    make.make_role(lead, tree[AUK], "manager")
    make.make_role(make.make_user("helper"), tree[AUK], "member")
    made = ask(tree[PETREL], cast["member"])
    assert services.place_of_decision(made, tree[AUK]) == tree[SCIENCE]
    done = grant(made, tree[AUK], cast["manager"])
    found = granted(tree, period)
    assert (found[PETREL], found[AUK], found[SCIENCE]) == (14, 6, 25)
    assert done.decision == "sibling"
    assert told("transferred") == [
        (
            "lead",
            "manager moved 4.00 credits from orlo/science/auk to a budget beside it: agreed",
            "/budgets/orlo/science/auk",
        )
    ]
    ((_, text, _),) = told("decided")  # a member of petrel is not told of auk either
    assert "out of a budget beside it: agreed" in text


@pytest.mark.parametrize("answer", ["", "agreed"])
def test_why_it_was_asked_for_does_not_stand_with_what_a_sibling_reads(
    tree, cast, period, client, answer
):
    viewer = make.make_user("auk-viewer")
    make.make_role(viewer, tree[AUK], "viewer")
    make.make_role(make.make_user("lead"), tree[AUK], "manager")
    by_credits = ask(tree[PETREL], cast["member"], reason="SECRET")
    by_percent = ask(tree[PETREL], cast["member"], reason="SECRET", unit="percent", asked=1_000)
    for made in (by_credits, by_percent):
        grant(made, tree[AUK], cast["manager"], answer=answer)
    note = f"request {by_credits.pk}" + (f": {answer}" if answer else "")
    client.force_login(viewer)
    body = client.get(f"/api/v1/budgets/{AUK}/transfers/").json()
    assert [row["reason"] for row in body["results"]] == [note]
    assert client.get(f"/api/v1/requests/{by_credits.pk}/").status_code == 404
    assert not Entry.objects.filter(note__contains="SECRET").exists()
    assert not ChangeSet.objects.filter(reason__contains="SECRET").exists()
    assert not any("SECRET" in text for _, text, _ in told("transferred"))


@pytest.mark.parametrize(
    ("source", "given", "sentence"),
    [
        (SCIENCE, 6 * CREDIT, r"5\.00 credits in reserve, not 6\.00"),
        (AUK, 11 * CREDIT, r"auk has 10\.00 credits"),
        (PETREL, CREDIT, "neither above orlo/science/petrel nor beside"),
        ("orlo/vision", CREDIT, "neither above"),
        (SCIENCE, 0, "more than nothing"),
        (SCIENCE, 12 * CREDIT + 1, r"at most 12\.00 credits"),
    ],
)
def test_a_grant_that_can_not_be_is_refused_and_leaves_nothing(
    tree, cast, period, source, given, sentence
):
    made = ask(tree[PETREL], cast["member"], asked=12 * CREDIT)
    before, notices = ledger(), Notice.objects.count()
    with pytest.raises((Refused, services.LedgerError), match=sentence):
        grant(made, tree[source], cast["manager"], given=given)
    made.refresh_from_db()
    assert (made.status, made.given, made.decided_by) == ("open", None, None)
    assert (ledger(), Notice.objects.count()) == (before, notices)


def test_who_knows_both_budgets_is_told_their_names(tree, cast, period):
    grant(ask(tree[PETREL], cast["manager"]), tree[AUK], cast["admin"])
    ((who, text, _),) = told("decided")
    assert (who, "out of orlo/science/auk" in text) == ("manager", True)


def test_a_decision_is_made_once_and_the_second_is_told_who_decided(tree, cast, period):
    made = ask(tree[PETREL], cast["member"])
    grant(made, tree[SCIENCE], cast["manager"])
    before = ledger()
    words = "manager decided first: request .* was granted on 01 Oct 2026 at 01:00 UTC"
    with pytest.raises(Refused, match=words):
        grant(made, tree[AUK], cast["admin"])
    with pytest.raises(Refused, match=words):
        services.decline_request(request=made, answer="no", by=cast["admin"], now=T0)
    with pytest.raises(Refused, match=words):
        requests.withdraw(request=made, by=cast["member"], now=T0)
    assert ledger() == before
    assert Notice.objects.filter(kind="decided").count() == 1


def test_declined_with_a_reason(tree, cast, period):
    made = ask(tree[PETREL], cast["member"])
    with pytest.raises(Refused, match="who asked will read it"):
        services.decline_request(request=made, answer=" ", by=cast["manager"], now=T0)
    services.decline_request(request=made, answer="next quarter", by=cast["manager"], now=T0)
    made.refresh_from_db()
    assert (made.status, made.answer, made.given) == ("declined", "next quarter", None)
    ((who, text, _),) = told("decided")
    assert who == "member"
    assert text == "manager declined 4.00 credits for orlo/science/petrel: next quarter"


def test_without_a_period_there_are_no_credits_to_give(tree, cast):
    made = ask(tree[PETREL], cast["member"])
    with pytest.raises(services.LedgerError, match="No period is active"):
        grant(made, tree[SCIENCE], cast["manager"])


# --- Shares ---------------------------------------------------------------------------------------


def percent(tree: dict[str, Budget], by: User, **asked: Any) -> Request:
    return ask(tree[PETREL], by, **{"unit": "percent", "asked": 10_000, **asked})


def loosen(tree: dict[str, Budget]) -> None:
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 40_000, tree[AUK]: 50_000})


def test_a_share_from_the_reserve_is_a_change_set_with_its_grants(tree, cast):
    loosen(tree)
    period = make.make_period(status="approved", capacity={make.make_pool(): 2208 * 3600})
    services.start_period(period=period, at=T0)
    made = percent(tree, cast["member"])
    at = T0 + 92 * DAY // 2  # half of the period is left
    done = grant(made, tree[SCIENCE], cast["manager"], now=at)
    assert shares_of(tree, at) == (50_000, 50_000)
    change_set = ChangeSet.objects.get(pk=done.change_set_id)
    assert (change_set.version, change_set.author, change_set.status) == (
        3, cast["manager"], "approved",
    )  # fmt: skip
    assert change_set.reason == f"request {made.pk}: agreed"
    # 10 % of 60 % of 1,104 GPU-hours
    moved = Entry.objects.filter(
        key__startswith=f"grant:change:{change_set.pk}:", budget=tree[PETREL]
    )
    assert [entry.amount_mgpus for entry in moved] == [6624 * CREDIT // 100]
    assert (done.decision, done.given, done.set_back) == ("reserve", 10_000, None)


def test_a_share_from_a_sibling_lowers_it_by_as_much(tree, cast):
    done = grant(percent(tree, cast["member"]), tree[AUK], cast["manager"], given=7_000)
    assert shares_of(tree, T0 + HOUR) == (57_000, 43_000)
    assert shares_of(tree, T0) == (50_000, 50_000)
    assert done.decision == "sibling"


def test_single_pools_are_raised_with_the_rest(tree, cast):
    pool = make.make_pool()
    make.make_shares(
        tree[SCIENCE],
        {tree[PETREL]: 30_000, tree[AUK]: 50_000},
        overrides={(tree[PETREL], pool): 60_000, (tree[AUK], pool): 40_000},
    )
    grant(percent(tree, cast["member"]), tree[AUK], cast["manager"])
    assert shares_of(tree, T0 + HOUR) == (40_000, 40_000)
    assert shares.share_of(tree[PETREL], T0 + HOUR, pool) == 70_000
    assert shares.share_of(tree[AUK], T0 + HOUR, pool) == 30_000


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (SCIENCE, r"total 110\.000 %"),
        ("orlo", "A share of orlo/science comes from it or a sibling"),
    ],
)
def test_a_share_that_is_not_there_is_refused(tree, cast, source, sentence):
    made = percent(tree, cast["member"])
    with pytest.raises(Refused, match=sentence):
        grant(made, tree[source], cast["manager"])
    assert (shares.version(tree[SCIENCE]), made.status) == (1, "open")


def test_a_sibling_gives_no_more_than_it_has(tree, cast):
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 50_000, tree[AUK]: 9_999})
    with pytest.raises(Refused, match=r"auk has 9\.999 %, not 10\.000 %"):
        grant(percent(tree, cast["member"]), tree[AUK], cast["manager"])


def test_a_decision_on_an_outdated_base_is_refused(tree, cast):
    made = percent(tree, cast["member"])
    loosen(tree)
    with pytest.raises(StaleBase, match="version 2 now"):
        grant(made, tree[SCIENCE], cast["manager"], base_version=1)
    assert grant(made, tree[SCIENCE], cast["manager"], base_version=2).status == "granted"


# --- For a time -----------------------------------------------------------------------------------


def test_a_share_for_a_time_is_set_back_by_a_scheduled_change_set(tree, cast):
    until = T0 + 10 * DAY
    made = percent(tree, cast["member"], until=until)
    done = grant(made, tree[AUK], cast["manager"])
    assert (done.set_back.effective_at, done.set_back.status) == (until, "approved")
    second = timedelta(seconds=1)
    assert shares_of(tree, until - second) == (60_000, 40_000)
    assert shares_of(tree, until) == (50_000, 50_000)
    assert services.end_due(now=until - second) == []
    (ended,) = services.end_due(now=until)
    assert ended.ended_at == until
    assert services.end_due(now=until + HOUR) == []
    assert [name for name, _, _ in told("ended")] == ["admin", "manager", "member"]
    assert (
        told("ended")[0][1] == "10.000 % of orlo/science for orlo/science/petrel has been set back."
    )


def test_what_is_given_and_taken_back_is_worth_the_time_between(tree, cast):
    loosen(tree)
    period = make.make_period(status="approved", capacity={make.make_pool(): 9200 * 3600})
    services.start_period(period=period, at=T0)
    at, until = T0 + 2 * DAY, T0 + 12 * DAY
    grant(percent(tree, cast["member"], until=until), tree[SCIENCE], cast["manager"], now=at)
    before = 9200 * 6 // 10 * 4 // 10
    services.apply_due_change_sets(now=until)
    # 100 GPU-hours a day × 60 % × 10 % × 10 days
    assert granted(tree, period, until)[PETREL] == before + 60


def test_a_raise_goes_on_through_what_is_scheduled_before_its_end(tree, cast):
    at, until = T0 + 5 * DAY, T0 + 10 * DAY
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 20_000, tree[AUK]: 70_000}, at=at)
    grant(percent(tree, cast["member"], until=until), tree[AUK], cast["manager"])
    assert shares_of(tree, T0 + HOUR) == (60_000, 40_000)
    assert shares_of(tree, at) == (30_000, 60_000)
    assert shares_of(tree, until) == (20_000, 70_000)


def test_two_raises_for_a_time_do_not_undo_each_other(tree, cast):
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 10_000, tree[AUK]: 10_000})
    first, second = T0 + 10 * DAY, T0 + 5 * DAY
    grant(percent(tree, cast["member"], until=first), tree[SCIENCE], cast["manager"])
    other = ask(tree[AUK], cast["manager"], unit="percent", asked=2_000, until=second)
    grant(other, tree[SCIENCE], cast["manager"], now=T0 + 2 * HOUR)
    assert shares_of(tree, T0 + 2 * HOUR) == (20_000, 12_000)
    assert shares_of(tree, second) == (20_000, 10_000)
    assert shares_of(tree, first) == (10_000, 10_000)
    ended = services.end_due(now=first)
    assert len(ended) == 2
    assert all("has been set back" in text for _, text, _ in told("ended"))


def test_a_raise_that_what_is_scheduled_has_no_room_for_is_refused(tree, cast):
    loosen(tree)
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 40_000, tree[AUK]: 60_000}, at=T0 + DAY)
    made = percent(tree, cast["member"])
    with pytest.raises(Refused, match="scheduled for 02 Oct 2026 00:00 UTC: The shares"):
        grant(made, tree[SCIENCE], cast["manager"])
    assert shares.version(tree[SCIENCE]) == 3


def test_managers_are_told_where_a_later_change_set_stood_in_for_the_end(tree, cast):
    until = T0 + 10 * DAY
    grant(percent(tree, cast["member"], until=until), tree[AUK], cast["manager"])
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 70_000, tree[AUK]: 30_000}, at=T0 + DAY)
    services.end_due(now=until)
    assert shares_of(tree, until) == (70_000, 30_000)
    assert "a later change set stood in for that" in told("ended")[0][1]


def test_of_credits_for_a_time_what_is_left_goes_back(tree, cast, period):
    until = T0 + DAY
    made = ask(tree[PETREL], cast["member"], until=until)
    grant(made, tree[AUK], cast["manager"])
    # 14 granted, 11 set aside: of the 4 that were given, 3 are left.
    services.place_hold(job=make.make_job(tree[PETREL]), amount_mgpus=11 * CREDIT, now=T0)
    services.end_due(now=until)
    found = granted(tree, period, until)
    assert (found[PETREL], found[AUK], found[SCIENCE]) == (11, 9, 25)
    assert Entry.objects.filter(kind="transfer").count() == 4
    back = Entry.objects.get(key=f"transfer:request:{made.pk}:back:{tree[AUK].pk}")
    assert (back.amount_mgpus, back.author) == (3 * CREDIT, cast["manager"])
    before = ledger()
    services.end_due(now=until + HOUR)
    assert ledger() == before
    assert "3.00 were left and went back." in told("ended")[0][1]


def test_what_another_worker_has_ended_is_not_ended_again(tree, cast, period):
    until = T0 + DAY
    made = grant(ask(tree[PETREL], cast["member"], until=until), tree[AUK], cast["manager"])
    services.end_due(now=until)
    services.place_hold(job=make.make_job(tree[PETREL]), amount_mgpus=9 * CREDIT, now=until)
    before = ledger()
    assert deciding._end(made.pk, until + HOUR) is None
    assert ledger() == before


def test_an_end_that_can_not_be_told_is_none(tree, cast, period, monkeypatch):
    """What went back is not written without the end, or it would go back a second time."""
    until = T0 + DAY
    made = grant(ask(tree[PETREL], cast["member"], until=until), tree[AUK], cast["manager"])
    before = ledger()

    def fails(*_: object) -> None:
        raise RuntimeError("no notice can be written")

    monkeypatch.setattr(deciding, "_tell", fails)
    with pytest.raises(RuntimeError, match="no notice"):
        deciding._end(made.pk, until)
    made.refresh_from_db()
    assert made.ended_at is None
    assert ledger() == before


def test_nothing_comes_from_or_to_what_is_archived(tree, cast, period):
    made = ask(tree[PETREL], cast["member"])
    why = {"author": cast["admin"], "reason": "closed", "now": T0}
    services_of_budgets.archive_budget(budget=tree[AUK], **why)
    with pytest.raises(Refused, match=f"{AUK} is archived: re-activate it first"):
        grant(made, tree[AUK], cast["manager"])


def test_what_a_gone_sibling_gave_goes_back_to_their_parent(tree, cast, period):
    until = T0 + DAY
    grant(ask(tree[PETREL], cast["member"], until=until), tree[AUK], cast["manager"])
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 50_000}, at=T0 + 2 * HOUR)
    services.end_due(now=until)
    found = reports.figures(period=period, now=until)
    assert found[tree[PETREL].pk].granted_mgpus == 10 * CREDIT
    assert found[tree[AUK].pk].granted_mgpus == 6 * CREDIT
    assert found[tree[SCIENCE].pk].reserve_mgpus == 9 * CREDIT


def test_credits_end_with_their_period_at_the_latest(tree, cast, period):
    until = T1 + DAY
    grant(ask(tree[PETREL], cast["member"], until=until), tree[AUK], cast["manager"])
    Period.objects.filter(pk=period.pk).update(status="closed")
    following = make.make_period("next", starts_at=T1, ends_at=T1 + 90 * DAY)
    give(tree[PETREL], 10, following)
    before = ledger()
    services.end_due(now=until)
    assert ledger() == before
    assert "ended with their period" in told("ended")[0][1]


def test_what_a_program_passed_on_stays_there_and_holds_up_no_other_end(tree, cast, period):
    until = T0 + DAY
    give(tree["orlo/vision"], 4, period)
    given = ask(tree[SCIENCE], cast["manager"], until=until)
    grant(given, tree["orlo/vision"], cast["admin"])
    # Science had 5 in reserve: of 9, petrel gets 7, and 4 more that auk had.
    passed = {"amount_mgpus": 7 * CREDIT, "author": cast["manager"], "note": "n", "key": "k"}
    services.transfer(source=tree[SCIENCE], target=tree[PETREL], now=T0 + HOUR, **passed)
    grant(ask(tree[PETREL], cast["member"], until=until), tree[AUK], cast["manager"])
    assert {one.budget for one in services.end_due(now=until)} == {tree[SCIENCE], tree[PETREL]}
    found = reports.figures(period=period, now=until)
    assert [found[tree[path].pk].granted_mgpus // CREDIT for path in (SCIENCE, PETREL, AUK)] == [
        27, 17, 10,
    ]  # fmt: skip
    assert found[tree[SCIENCE].pk].reserve_mgpus == 0
    assert found[tree["orlo/vision"].pk].granted_mgpus == 12 * CREDIT
    assert [text for _, text, _ in told("ended") if SCIENCE + ", 2.00 were" in text] == [
        "Of 4.00 credits for orlo/science, 2.00 were left and went back. What budgets below it "
        "have stays there."
    ] * len(holders_of(tree["orlo"], cast["manager"]))


def holders_of(parent: Budget, asker: User) -> set[User]:
    return {*access.holders(access.Action.DECIDE_REQUESTS, parent), asker}


def test_of_two_that_end_at_once_the_lower_ends_first(tree, cast, period):
    until = T0 + DAY
    grant(ask(tree[SCIENCE], cast["manager"], asked=9 * CREDIT, until=until), tree["orlo"],
          cast["admin"], given=7 * CREDIT)  # fmt: skip
    lower = ask(tree[PETREL], cast["member"], asked=12 * CREDIT, until=until)
    grant(lower, tree[SCIENCE], cast["manager"])
    services.end_due(now=until)
    found = reports.figures(period=period, now=until)
    assert found[tree["orlo"].pk].reserve_mgpus == 7 * CREDIT
    assert found[tree[SCIENCE].pk].reserve_mgpus == 5 * CREDIT


def test_what_may_be_chosen_is_what_a_decision_gives(tree, cast, period):
    """Out of a sibling with others below it, and of a parent that lost a budget that spent."""
    inner = make.make_budget("inner", parent=tree[AUK])
    make.make_shares(tree[AUK], {inner: 100_000}, at=T0)
    services.transfer(
        source=tree[AUK], target=inner, amount_mgpus=7 * CREDIT, author=cast["manager"],
        note="n", key="k", now=T0,
    )  # fmt: skip
    spent = make.make_budget("spent", parent=tree[SCIENCE])
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 40_000, tree[AUK]: 40_000, spent: 20_000}, at=T0)
    services.transfer(
        source=tree[SCIENCE], target=spent, amount_mgpus=3 * CREDIT, author=cast["manager"],
        note="n", key="l", now=T0,
    )  # fmt: skip
    use(spent, 2, T0 + HOUR)
    now = T0 + 2 * HOUR
    steering.move_budget(
        budget=spent, to=tree["orlo/vision"], share=0, author=cast["admin"], reason="r", now=now
    )
    made = ask(tree[PETREL], cast["member"])
    found = choices([made], held=access.standing(cast["admin"]), at=now)[made.pk]
    most = {one.source.path: one.most // CREDIT for one in found}
    assert (most[SCIENCE], most[AUK]) == (2, 3)
    for path in (SCIENCE, AUK):
        with pytest.raises(services.LedgerError, match="in reserve"):
            grant(made, tree[path], cast["admin"], given=(most[path] + 1) * CREDIT, now=now)
        grant(made, tree[path], cast["admin"], given=most[path] * CREDIT, now=now)
        made = ask(tree[PETREL], cast["member"], now=now)


# --- Withdrawn and expired ------------------------------------------------------------------------


def test_withdrawn_requests_are_told_to_those_who_would_decide(tree, cast):
    made = ask(tree[PETREL], cast["member"])
    requests.withdraw(request=made, by=cast["member"], now=T0)
    made.refresh_from_db()
    assert (made.status, made.decided_by) == ("withdrawn", cast["member"])
    assert [name for name, _, _ in told("withdrawn")] == ["admin", "manager"]


def test_requests_expire_with_their_date_and_their_budget(tree, cast):
    dated = ask(tree[PETREL], cast["member"], until=T0 + DAY)
    orphan = ask(tree[AUK], cast["manager"])
    kept = ask(tree["orlo/vision/tern"], cast["stranger"])
    assert requests.expire_due(now=T0 + DAY - HOUR) == []
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 50_000}, at=T0 + HOUR)
    assert [one.pk for one in requests.expire_due(now=T0 + DAY)] == [dated.pk, orphan.pk]
    assert requests.expire_due(now=T0 + DAY) == []
    kept.refresh_from_db()
    assert kept.status == "open"
    assert [(name, text.split("expired: ")[1]) for name, text, _ in told("expired")] == [
        ("manager", "the budget is archived."),
        ("member", "its date has passed."),
    ]


def test_what_has_expired_by_the_clock_is_not_granted_before_beat_says_so(tree, cast, period):
    made = ask(tree[PETREL], cast["member"], until=T0 + DAY)
    with pytest.raises(Refused, match="a time that has passed"):
        grant(made, tree[SCIENCE], cast["manager"], now=T0 + DAY)
