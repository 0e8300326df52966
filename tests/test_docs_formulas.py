"""The pages' formulas: each worked table is computed again with the real code."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from allocator import entitlements
from budgets import periods, services, shares
from budgets.models import Budget, Period
from budgets.shares import CapacitySlice
from ledger import reports
from ledger import services as ledger
from ledger.burn import rate_window
from ledger.by_hand import Kind, preview_by_hand, write_by_hand
from ledger.decay import Decay
from ledger.instants import to_seconds
from ledger.models import ClosedTimestep, Entry
from tests.factories import (
    HOUR,
    T0,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_request,
    make_run,
    make_shares,
    someone,
)
from tests.ledger_world import CREDIT, give, write_entry
from workloads.models import Job

pytestmark = pytest.mark.django_db
DOCS = Path(__file__).resolve().parent.parent / "docs"
DAY = timedelta(days=1)
SCIENCE, PETREL, AUK = "orlo/science", "orlo/science/petrel", "orlo/science/auk"
Tree = Mapping[str, Budget]


def table(page: str, name: str) -> list[list[str]]:
    """Return the cells of the table under the mark, without its header."""
    lines = (DOCS / page).read_text().split(f"<!-- table: {name} -->")[1].strip().splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")])
    assert rows
    return rows


def instant(text: str) -> datetime:
    """Return an instant of October 2026, such as "3 October 12:00"."""
    return datetime.strptime(f"{text} 2026 +0000", "%d %B %H:%M %Y %z")


def whole(amount_mgpus: int) -> int:
    """Return an amount in credits, of which it must be a whole number."""
    credits, rest = divmod(amount_mgpus, CREDIT)
    assert rest == 0, amount_mgpus
    return credits


def spoken(at: datetime) -> str:
    return f"{at.day} {at:%B %H:%M}"


def adjust(budget: Budget, credits: int, at: datetime) -> None:
    ledger.adjust(
        budget=budget, amount_mgpus=credits * CREDIT, author=someone(), note="settled",
        key=f"{at}", now=at,
    )  # fmt: skip


# --- docs/ledger.md -------------------------------------------------------------------------------


def test_burn_rates(tree: Tree) -> None:
    make_period(ends_at=T0 + 12 * DAY)
    make_period("2027 Q1", starts_at=T0 + 12 * DAY)
    petrel, at, first = tree[PETREL], T0 + DAY, T0 + DAY
    for closed, since, days, settled, rate in table("ledger.md", "burn-rate"):
        now = instant(closed)
        while at + 6 * HOUR < now:
            day = (at - T0).days + 1
            adjust(petrel, 12 if day <= 5 else 30 if day <= 12 else 6, at + 6 * HOUR)
            at += DAY
        if now > first:
            start = max(ClosedTimestep.objects.values_list("end", flat=True), default=first)
            ClosedTimestep.objects.create(start=start, end=now, closed_at=now)
        window = rate_window(Period.objects.get(starts_at__lte=now, ends_at__gt=now), now)
        length = window[1] - window[0] if window else timedelta(0)
        spent = 0
        if window:
            spent = reports.burn_report(
                budget=petrel, start=window[0], end=window[1], now=now
            ).total.burned_mgpus
        assert [since, Fraction(days), int(settled) * CREDIT] == [
            spoken(window[0]) if window else "-",
            Fraction(int(length.total_seconds()), 86_400),
            spent,
        ], closed
        assert f"{reports.burn_rate(budget=petrel, now=now) / CREDIT:.2f}" == rate, closed


def test_the_pace_in_a_period_that_gets_gpus_late(tree: Tree) -> None:
    period = make_period(ends_at=T0 + 30 * DAY)
    make_nodes(make_pool(), active_from=T0 + 10 * DAY)
    give(tree[PETREL], 200, period)
    lines, before = table("ledger.md", "late-gpus"), 0
    assert instant(lines[-1][0]) == period.ends_at
    for at, of_period, of_gpus, used, pace in lines:
        # At its end a period is no longer the running one: a second earlier it is as good as over.
        now = min(instant(at), period.ends_at - timedelta(seconds=1))
        if int(used) > before:
            adjust(tree[PETREL], int(used) - before, now)
        before = int(used)
        assert Fraction(of_period) * (period.ends_at - T0).days == (instant(at) - T0).days
        assert Fraction(of_gpus) == periods.elapsed(period, instant(at))
        row = reports.burn_report(budget=tree[PETREL], start=T0, end=now, now=now).total
        shown = "-" if row.pace_per_mille is None else f"{row.pace_per_mille / 1000:.2f}"
        assert (shown, row.settled_mgpus) == (pace, int(used) * CREDIT), at


def test_grants_and_adjustments_by_hand(tree: Tree) -> None:
    period, by_entry = make_period(), dict[str, list[list[str]]]()
    for path, credits in ((PETREL, 10), (AUK, 10), (SCIENCE, 5)):
        give(tree[path], credits, period)
    adjust(tree[PETREL], 4, T0)
    for entry, *cells in table("ledger.md", "by-hand"):
        by_entry.setdefault(entry, []).append(cells)
    assert len(by_entry) == 5
    for entry, lines in by_entry.items():
        word, _, amount = entry.partition(" of ")
        kind = Kind.GRANT if word == "grant" else Kind.ADJUST
        asked: dict[str, Any] = {
            "kind": kind,
            "budget": tree[PETREL],
            "amount_mgpus": int(amount) * CREDIT,
        }
        if lines[0][1] == "refused":
            with pytest.raises(ledger.LedgerError, match="neither spent nor set aside"):
                preview_by_hand(**asked, now=T0)
            continue
        effect = preview_by_hand(**asked, now=T0)
        for change, (path, *cells) in zip(effect.changes, lines, strict=False):
            pairs = (change.granted, change.settled, change.spendable, change.reserve)
            found = [f"{whole(was)} → {whole(then)}" for was, then in pairs]
            assert [change.path, *found] == [path, *cells], entry
        if entry == "grant of 8":
            assert effect.beyond == 3 * CREDIT
        becomes = [[int(cell.split(" → ")[1]) for cell in cells] for _, *cells in lines]
        assert _written(tree, period, asked) == becomes, entry


def _written(tree: Tree, period: Period, asked: dict[str, Any]) -> list[list[int]]:
    """Return what petrel and science have after an entry, in credits; then take it back."""
    undo = asked | {"amount_mgpus": -asked["amount_mgpus"]}
    more: dict[str, Any] = {"author": someone(), "note": "as the page says", "now": T0}
    write_by_hand(**asked, **more, key=f"do {asked}")
    figures = reports.figures(period=period, now=T0)
    write_by_hand(**undo, **more, key=f"undo {asked}")
    names = ("granted_mgpus", "settled_mgpus", "spendable_mgpus", "reserve_mgpus")
    rows = [figures[tree[path].pk] for path in (PETREL, SCIENCE)]
    return [[whole(getattr(row, name)) for name in names] for row in rows]


def test_holds_go_on_over_a_border(tree: Tree) -> None:
    border, petrel, lines = T0 + HOUR, tree[PETREL], table("ledger.md", "border")
    old = make_period(ends_at=border)
    new = make_period(
        "2027 Q1", starts_at=border, status="approved", capacity={make_pool(): 30 * 3600}
    )  # 9 of 30 credits are petrel's
    give(petrel, 100, old)
    jobs = []
    for _, held, in_flight, *_ in lines:
        job = make_job(petrel, gpus=4)
        assert ledger.place_hold(job=job, amount_mgpus=int(held) * CREDIT, now=T0).funded
        if int(in_flight):
            Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING)
            (node,) = make_nodes(make_pool())
            lasts = timedelta(seconds=int(in_flight) * 3600 // 4)
            make_run(job, {node: 0b1111}, started_at=border - lasts)
        jobs.append(job)
    _, running, waiting, _ = _claims(petrel, old, border)
    assert running == sum(int(row[2]) for row in lines)
    assert running + waiting == sum(int(row[1]) for row in lines)
    started = ledger.start_period(period=new, at=border)
    assert [mine.job_id for mine in started.moved] == [
        job.pk for job, row in zip(jobs, lines, strict=True) if row[5] == "yes"
    ]
    left = 9
    for job, (_, _, _, spendable, set_aside, funded) in zip(jobs, lines, strict=True):
        assert left == int(spendable)
        rows = Entry.objects.filter(job=job, kind="hold", period=new)
        assert sum(rows.values_list("amount_mgpus", flat=True)) == int(set_aside) * CREDIT
        assert (job.pk in {mine.job_id for mine in started.unfunded}) is (funded == "no")
        left -= int(set_aside)
    assert _claims(petrel, new, border)[3] == left


def _claims(budget: Budget, period: Period, at: datetime) -> tuple[int, int, int, int]:
    row = reports.figures(period=period, now=at)[budget.pk]
    amounts = (row.settled_mgpus, row.in_flight_mgpus, row.held_mgpus, row.spendable_mgpus)
    return tuple(map(whole, amounts))  # type: ignore[return-value]


# --- docs/budgets.md ------------------------------------------------------------------------------


def test_what_a_budget_is_entitled_to_is_rounded_down_once(tree: Tree) -> None:
    pool, petrel = make_pool(), tree[PETREL]
    vector = {petrel: 40_000, tree[AUK]: 60_000}
    make_shares(tree[SCIENCE], vector, at=T0 + HOUR)
    lines, exact = table("budgets.md", "entitled"), Fraction(0)
    for start, end, gpu_seconds, effective, worth, rounded in lines:
        since, until = (T0 + int(text[:2]) * HOUR for text in (start, end))
        slices = [CapacitySlice(pool.pk, since, until, int(gpu_seconds))]
        found = shares.entitled_gpu_seconds(slices=slices)[petrel.pk, pool.pk]
        assert found == int(rounded), (start, end)
        if effective:
            share = shares.tree(at=since)[petrel.pk].effective
            assert (Fraction(effective), Fraction(worth)) == (share, share * int(gpu_seconds))
            exact += share * int(gpu_seconds)
    assert exact == Fraction(lines[-1][4])
    assert sum(int(row[5]) for row in lines[:-1]) == 6 < int(lines[-1][5])


def test_a_share_for_a_time_is_set_back_with_its_grants(tree: Tree) -> None:
    period = make_period(
        status="approved", ends_at=T0 + 100 * DAY, capacity={make_pool(): 3_600_000}
    )
    ledger.start_period(period=period, at=T0)
    until = T0 + 75 * DAY
    asked = make_request(tree[PETREL], asked=10_000, until=until)

    def now(at: datetime) -> dict[str, list[str]]:
        nodes, figures = shares.tree(at=at), reports.figures(period=period, now=at)
        return {
            path: [
                services.percent(nodes[budget.pk].thousandths),
                str(whole(figures[budget.pk].granted_mgpus)),
            ]
            for path, budget in tree.items()
        }

    found = [now(T0)]
    ledger.grant_request(request=asked, source=tree[AUK], by=someone(), now=T0 + 50 * DAY)
    found.append(now(T0 + 50 * DAY))
    ledger.apply_due_change_sets(now=until)
    (ended,) = ledger.end_due(now=until)
    assert ended == asked
    found.append(now(until))
    for path, *cells in table("budgets.md", "set-back"):
        assert [cell for one in found for cell in one[path]] == cells, path


# --- docs/fairshare.md ----------------------------------------------------------------------------


def test_decayed_usage(tree: Tree, settings: Any) -> None:
    settings.USAGE_HALF_LIFE_HOURS = 24
    period, petrel, pool = make_period(starts_at=T0 - DAY), tree[PETREL], make_pool()
    job, now = make_job(petrel, state=Job.State.RUNNING), instant("8 October 12:15")
    (node,) = make_nodes(pool)
    lines = table("fairshare.md", "usage")
    closed = now.replace(minute=0)
    ClosedTimestep.objects.create(start=closed - HOUR, end=closed, closed_at=closed)
    for number, (since, seconds, rate, age, weight, usage, reference) in enumerate(lines):
        at = instant(since)
        if at < closed:
            write_entry(
                kind="charge", budget=petrel, period=period, job=job, pool=pool, at=at,
                until=at + HOUR, timestep=at, gpu_seconds=int(seconds), key=f"charge:{number}",
                amount_mgpus=int(seconds) * int(rate), created_at=at + HOUR,
            )  # fmt: skip
        else:
            make_run(job, {node: 0b1}, started_at=at)
        if age != "-":
            decay = Decay(to_seconds(now), 24)
            assert (now.replace(minute=0) - at) // HOUR == int(age)
            assert decay.weight(to_seconds(at)) == int(weight)
        found = reports.usage_window(start=now - 7 * DAY, end=now, now=now, half_life_hours=24).get(
            petrel.pk, 0
        )
        assert (found, entitlements.usage(at=now).get(petrel.pk, 0)) == (
            int(usage),
            int(reference),
        ), since
