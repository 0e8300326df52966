"""What leads and managers are told of checkpoints: what they would lose, and what they lost."""

import pytest
from django.contrib.auth.models import User

from allocator import tasks
from budgets import checkpoints
from budgets.models import Budget, Checkpoint, Notice, Period
from ledger.takeback_notices import announce
from tests.factories import T0, make_checkpoint, make_period, make_role, make_user, someone
from tests.ledger_world import give
from tests.takeback_world import DAY, NREL, SECOND, carry_out, charged_until, taken, use

pytestmark = pytest.mark.django_db
AT = T0 + 46 * DAY  # half of the period


@pytest.fixture
def petrel(tree: dict[str, Budget]) -> Budget:
    return tree["orlo/science/petrel"]


@pytest.fixture
def period(petrel: Budget) -> Period:
    made = make_period()
    give(petrel, 100_000, made)
    return made


@pytest.fixture
def checkpoint(period: Period) -> Checkpoint:
    return make_checkpoint(period, AT, NREL)


@pytest.fixture(autouse=True)
def people(tree: dict[str, Budget]) -> None:
    roles = {"lead": "orlo/science/petrel", "manager": "orlo/science", "other": "orlo/vision"}
    for name, path in roles.items():
        make_role(make_user(name), tree[path], "manager")


def told(name: str) -> list[str]:
    rows = Notice.objects.filter(user=User.objects.get(username=name)).order_by("pk")
    return list(rows.values_list("text", flat=True))


def test_it_is_told_30_14_and_7_days_before_each_once(checkpoint) -> None:
    counts = []
    for days in (31, 30, 29, 15, 14, 13, 8, 7, 6, 1):
        announce(now=AT - days * DAY)
        announce(now=AT - days * DAY)
        counts.append(len(told("lead")))
    assert counts == [0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert len(told("manager")) == 3
    assert told("other") == []
    announce(now=AT)
    assert len(told("lead")) == 3


def test_a_lead_is_told_what_is_lost_and_what_avoids_it(petrel, checkpoint) -> None:
    now = AT - 30 * DAY
    use(petrel, 700, now - DAY)
    charged_until(now - 7 * DAY)
    charged_until(now)
    assert (announce(now=now), announce(now=now + SECOND)) == (1, 0)
    assert told("lead") == [
        "As things stand orlo/science/petrel loses 40,000.00 credits to the reserve of "
        "orlo/science at the checkpoint of 16 November 2026 00:00 (UTC): used 700.00 of 50,000.00 "
        "planned to date, less than 20.000 %: 80.000 % of what was planned to date, in all. It "
        "loses nothing if 34,300.00 more are used by then, 1,143.33 a day; in the last days it was "
        "100.00 a day, at which 40,000.00 are lost. An exemption can be asked for until then."
    ]
    notice = Notice.objects.get(user__username="lead")
    assert (notice.kind, notice.link) == ("checkpoint", "/budgets/orlo/science/petrel/plan")


def test_managers_are_told_of_all_below_at_once(tree, period, checkpoint) -> None:
    give(tree["orlo/science/auk"], 1_000, period)
    announce(now=AT - 14 * DAY)
    assert told("manager") == [
        "As things stand 2 of the budgets of orlo/science lose 40,400.00 credits to its reserve at "
        "the checkpoint of 16 November 2026 00:00 (UTC): auk 400.00, petrel 40,000.00."
    ]


def test_what_is_told_is_worked_out_anew(petrel, checkpoint) -> None:
    announce(now=AT - 30 * DAY)
    use(petrel, 25_000, AT - 20 * DAY)
    announce(now=AT - 14 * DAY)
    first, second = told("lead")
    assert "loses 40,000.00 credits" in first
    assert "loses 17,500.00 credits" in second
    assert "if 10,000.00 more are used" in second


def test_nothing_is_told_where_nothing_would_be_lost(petrel, checkpoint) -> None:
    use(petrel, 35_000, T0 + DAY)
    assert announce(now=AT - 14 * DAY) == 0
    assert not Notice.objects.exists()


def test_what_falls_behind_later_is_told_then(petrel, period, checkpoint) -> None:
    use(petrel, 35_000, T0 + DAY)
    announce(now=AT - 14 * DAY)
    give(petrel, 10_000, period)
    announce(now=AT - 10 * DAY)
    assert len(told("lead")) == 1


def test_the_exempt_are_told_nothing(petrel, checkpoint) -> None:
    asked = checkpoints.ask_exemption(
        checkpoint=checkpoint, budget=petrel, reason="moving", by=someone(), now=T0
    )
    checkpoints.decide_exemption(
        exemption=asked, approve=True, reason="agreed", by=someone(), now=T0
    )
    assert announce(now=AT - 14 * DAY) == 0
    assert not Notice.objects.filter(kind="checkpoint").exists()


def test_both_sides_are_told_of_an_exemption(petrel, checkpoint) -> None:
    lead, manager = (User.objects.get(username=name) for name in ("lead", "manager"))
    asked = checkpoints.ask_exemption(
        checkpoint=checkpoint, budget=petrel, reason="moving", by=lead, now=T0
    )
    assert told("manager") == [
        "lead asks that the checkpoint of 16 November 2026 00:00 (UTC) spare orlo/science/petrel: "
        "moving"
    ]
    assert told("lead") == []
    checkpoints.decide_exemption(
        exemption=asked, approve=False, reason="you can wait", by=manager, now=T0
    )
    assert told("lead") == [
        "The checkpoint of 16 November 2026 00:00 (UTC) does not spare orlo/science/petrel, "
        "manager decided: you can wait"
    ]
    assert len(told("manager")) == 1  # nobody is told what they did themselves


def test_who_asks_and_decides_is_told_nothing(petrel, checkpoint) -> None:
    manager = User.objects.get(username="manager")
    asked = checkpoints.ask_exemption(
        checkpoint=checkpoint, budget=petrel, reason="moving", by=manager, now=T0
    )
    assert told("manager") == []
    checkpoints.decide_exemption(exemption=asked, approve=True, reason="agreed", by=manager, now=T0)
    assert told("manager") == []
    assert len(told("lead")) == 1


def test_after_an_outage_only_the_newest_is_told(checkpoint) -> None:
    announce(now=AT - 5 * DAY)
    assert [notice.key.split(":")[2] for notice in Notice.objects.all()] == ["7", "7"]


def test_a_checkpoint_close_behind_another_has_all_its_notices(period, checkpoint) -> None:
    later = make_checkpoint(period, AT + 5 * DAY, NREL)
    stages: dict[int, list[tuple[int, str]]] = {checkpoint.pk: [], later.pk: []}
    for days in range(40, 0, -1):
        for _ in range(2):
            known = set(Notice.objects.values_list("pk", flat=True))
            announce(now=AT + 5 * DAY - days * DAY)
            for notice in Notice.objects.filter(user__username="lead").exclude(pk__in=known):
                stages[int(notice.key.split(":")[1])].append((days, notice.key.split(":")[2]))
    # The earlier one is 5 days before: so are its notices.
    assert stages[later.pk] == [(30, "30"), (14, "14"), (7, "7")]
    assert stages[checkpoint.pk] == [(35, "30"), (19, "14"), (12, "7")]
    assert len(told("manager")) == 6


def test_notices_of_a_later_checkpoint_say_what_they_do_not_count(period, checkpoint) -> None:
    later = make_checkpoint(period, AT + 5 * DAY, NREL)
    said = " What the checkpoint of 16 November 2026 00:00 (UTC) takes is not counted yet."
    announce(now=AT - 7 * DAY)
    notices = Notice.objects.filter(kind="checkpoint")
    assert notices.count() == 4
    for notice in notices:
        is_later = notice.key.startswith(f"checkpoint:{later.pk}:")
        assert notice.text.endswith(said) == is_later
    carry_out(checkpoint)
    announce(now=AT + DAY)
    assert said not in Notice.objects.filter(kind="checkpoint").latest("pk").text


def test_without_a_period_or_a_checkpoint_nothing_is_told(tree) -> None:
    assert announce(now=T0) == 0
    make_period()
    assert announce(now=T0) == 0


def test_beat_looks_after_checkpoints(checkpoint, monkeypatch, settings) -> None:
    scheduled = settings.CELERY_BEAT_SCHEDULE["keep_checkpoints"]
    assert scheduled["task"] == tasks.keep_checkpoints.name
    monkeypatch.setattr(tasks, "now", lambda: AT - DAY)
    assert tasks.keep_checkpoints() == 1
    assert len(told("lead")) == 1
    charged_until(AT)
    monkeypatch.setattr(tasks, "now", lambda: AT + DAY)
    assert tasks.keep_checkpoints() == 1
    assert taken(checkpoint) == {"petrel": 40_000}


def test_both_sides_are_told_what_was_taken(checkpoint) -> None:
    carry_out(checkpoint)
    assert told("lead") == [
        "orlo/science/petrel lost 40,000.00 credits to the reserve of orlo/science at the "
        "checkpoint of 16 November 2026 00:00 (UTC): used 0.00 of 50,000.00 planned to date, less "
        "than 20.000 %: 80.000 % of what was planned to date, in all."
    ]
    assert told("manager") == [
        "40,000.00 credits went back to the reserve of orlo/science at the checkpoint of "
        "16 November 2026 00:00 (UTC): petrel 40,000.00."
    ]
    assert set(Notice.objects.values_list("kind", flat=True)) == {"taken"}
