"""Dearest jobs and people: whatever the interval, the lists and the others are the whole."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets.models import Budget, Period
from ledger import burn, spenders, spent
from ledger.reports import burn_report
from tests.burn_world import END, odd_ledger
from tests.factories import HOUR, T0, make_shares
from tests.ledger_world import close, write_entry

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
RATE = 1237


def asked(budget: Budget, start=T0, end=END, **more) -> spenders.Spenders:
    return spenders.spenders(budget=budget, start=start, end=end, now=END, **more)


def test_jobs_and_people_are_ranked_by_what_they_settled(tree) -> None:
    odd_ledger(tree)
    found = asked(tree["orlo"])
    assert [job.name for job in found.jobs] == ["train", "chat", "=sweep", "free", "failed"]
    assert [(one.name, one.jobs) for one in found.people] == [("Ada Lovelace", 1), ("bo", 4)]
    train, free, failed = (
        next(job for job in found.jobs if job.name == name) for name in ("train", "free", "failed")
    )
    assert train.settled_mgpus == 3 * 60 * (100 * RATE + 80 * 1499)
    assert (train.person, train.budget) == ("Ada Lovelace", "orlo/science/petrel")
    assert (free.settled_mgpus, free.gpu_seconds) == (0, 8 * 3 * 3600)
    assert (failed.settled_mgpus, failed.gpu_seconds) == (0, 4 * 71 * 60)
    assert found.other_jobs == (-17, 0)


@pytest.mark.parametrize("minutes", [(0, 180), (0, 90), (13, 47), (31, 133), (120, 180), (5, 6)])
@pytest.mark.parametrize("path", ["orlo", "orlo/science", "orlo/vision/tern"])
def test_lists_and_the_others_are_the_interval_s_whole(tree, path, minutes) -> None:
    odd_ledger(tree)
    start, end = (T0 + minute * MINUTE for minute in minutes)
    whole = burn_report(budget=tree[path], start=start, end=end, now=END).total
    held = whole.busy_gpu_seconds + whole.parked_gpu_seconds
    held += whole.realtime_gpu_seconds + whole.unfunded_gpu_seconds
    for limit in (1, 2, 10):
        found = asked(tree[path], start, end, limit=limit)
        assert (found.settled_mgpus, found.gpu_seconds) == (whole.burned_mgpus, held)
        for rows, others in (
            (found.jobs, found.other_jobs),
            (found.people, found.other_people),
        ):
            assert sum(row.settled_mgpus for row in rows) + others[0] == whole.burned_mgpus
            assert sum(row.gpu_seconds for row in rows) + others[1] == held
            assert len(rows) <= limit


def test_sums_and_entries_give_the_same(tree, monkeypatch) -> None:
    odd_ledger(tree)
    from_sums = asked(tree["orlo"])
    monkeypatch.setattr(spenders, "whole_periods", lambda *_: None)
    assert asked(tree["orlo"]) == from_sums


def test_a_report_over_whole_periods_is_that_over_all_their_hours(tree, monkeypatch) -> None:
    odd_ledger(tree)
    asked_for = {"budget": tree["orlo"], "start": T0, "end": END, "now": END, "by": "leaf"}
    whole = burn_report(**asked_for)
    monkeypatch.setattr(spent, "whole_periods", lambda *_: None)
    assert burn_report(**asked_for) == whole
    assert whole.total.burned_mgpus


@pytest.mark.parametrize(("after", "counts"), [(-1, True), (0, False)])
def test_what_is_corrected_in_the_second_of_the_end_is_in_no_part_of_it(
    tree, after: int, counts: bool
) -> None:
    """Half-open, whatever is summed: rows, days, dearest jobs and people."""
    odd_ledger(tree)
    petrel, at = tree["orlo/science/petrel"], END + timedelta(seconds=after)
    before = burn_report(budget=petrel, start=T0, end=END, now=END).total.burned_mgpus
    write_entry(
        kind="adjust", budget=petrel, period=Period.objects.get(), at=at, amount_mgpus=7_000,
        key="adjust:late", note="late", created_at=END,
    )  # fmt: skip
    total = before + 7_000 * counts
    asked_for = {"budget": petrel, "start": T0, "end": END}
    assert burn_report(**asked_for, now=END).total.burned_mgpus == total
    assert sum(day.settled_mgpus for day in burn.burn_by_day(**asked_for)) == total
    assert asked(petrel).settled_mgpus == total


def test_what_moved_away_counts_where_it_ran(tree) -> None:
    odd_ledger(tree)
    auk, science, vision = (tree[p] for p in ("orlo/science/auk", "orlo/science", "orlo/vision"))
    make_shares(science, {tree["orlo/science/petrel"]: 50_000}, at=END)
    make_shares(vision, {tree["orlo/vision/tern"]: 50_000, auk: 50_000}, at=END)
    end = close(2, since=END)
    for budget in (science, vision):
        found = spenders.spenders(budget=budget, start=T0, end=end, now=end)
        whole = burn_report(budget=budget, start=T0, end=end, now=end).total
        assert found.settled_mgpus == whole.burned_mgpus
    sweeps = {
        budget.slug: next(
            job.gpu_seconds
            for job in spenders.spenders(budget=budget, start=T0, end=end, now=end).jobs
            if job.name == "=sweep"
        )
        for budget in (science, vision)
    }
    assert sweeps == {"science": 173 * 60, "vision": 3600}


def test_they_take_the_same_few_queries_for_any_number_of_jobs(tree) -> None:
    odd_ledger(tree)
    with CaptureQueriesContext(connection) as sums:
        asked(tree["orlo"])
    with CaptureQueriesContext(connection) as entries:
        asked(tree["orlo"], T0 + MINUTE, T0 + HOUR)
    assert len(sums) <= 10
    assert len(entries) <= 12
