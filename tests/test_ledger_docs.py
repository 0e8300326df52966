"""docs/ledger.md: every worked table is computed again with the real code."""

from datetime import datetime, timedelta
from fractions import Fraction
from math import floor
from pathlib import Path

import pytest

from allocator import steering
from allocator.pages.effects import Effect, effects
from budgets.models import Budget, Period
from budgets.shares import Vector
from ledger import reports, services
from ledger.instants import from_seconds, to_seconds
from ledger.kept import kept_in
from ledger.models import Entry, Rollup
from ledger.refunds import late_end_key
from ledger.rounding import Place, dues
from ledger.stretches import cover
from tests.factories import (
    HOUR,
    T0,
    make_holding,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_shares,
    make_user,
)
from tests.ledger_world import CREDIT, close, give, give_alone, log_gpus
from workloads import services as workloads
from workloads.models import Job, JobEvent, Run

pytestmark = pytest.mark.django_db
PAGE = Path(__file__).resolve().parent.parent / "docs" / "ledger.md"
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def table(name: str) -> list[list[str]]:
    """Return the cells of the table under the mark, without its header."""
    lines = PAGE.read_text().split(f"<!-- table: {name} -->")[1].strip().splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    assert rows
    return rows


def clock(text: str) -> datetime:
    hours, minutes = map(int, text.split(":"))
    return T0 + hours * HOUR + minutes * MINUTE


def test_the_story_of_a_job(tree: dict[str, Budget]) -> None:
    petrel, period = tree["orlo/science/petrel"], make_period()
    give(petrel, 20, period)
    (node,) = make_nodes(make_pool())
    job = make_job(petrel, state=Job.State.RUNNING, minimum_runtime_s=3600)
    services.place_hold(job=job, amount_mgpus=services.hold_amount(job=job, at=T0), now=T0)
    run = make_run(job, {node: 0xFF})

    def happens(at: datetime) -> None:
        if at == T0 + 30 * MINUTE:
            close()
        elif at == T0 + HOUR:
            close(since=T0 + 30 * MINUTE)
            services.cover(runs=[run], start=at, end=at + 30 * MINUTE, now=at)
        elif at == T0 + 75 * MINUTE:
            workloads.end_run(run=run, reason=Run.EndReason.COMPLETED, at=at)
            services.release_rest(job=job, attempt=1, at=at, now=at)
        elif at == T0 + 90 * MINUTE:
            close(since=T0 + HOUR)

    for at, *amounts, _ in table("story"):
        happens(clock(at))
        one = reports.figures(period=period, now=clock(at))[petrel.pk]
        found = (one.settled_mgpus, one.in_flight_mgpus, one.held_mgpus, one.spendable_mgpus)
        assert found == tuple(int(amount) * CREDIT for amount in amounts), at


def test_spendable_is_the_least_over_the_ancestors(tree: dict[str, Budget]) -> None:
    period, rows = make_period(), table("spendable")
    for path, granted, *_ in rows:
        give_alone(tree[path], int(granted), period)
    figures = reports.figures(period=period, now=T0)
    for path, _, reserve, spendable, binds in rows:
        one = figures[tree[path].pk]
        assert (one.reserve_mgpus, one.spendable_mgpus) == (
            int(reserve) * CREDIT,
            int(spendable) * CREDIT,
        )
        refused = services.place_hold(job=make_job(tree[path]), amount_mgpus=10**12, now=T0)
        assert refused.binding == tree[binds]


def test_holds(tree: dict[str, Budget]) -> None:
    for runtime, gpus, rates, hold in table("holds"):
        pools = [make_pool(rate=int(rate)) for rate in rates.split(",")]
        job = make_job(
            tree["orlo/vision/tern"], minimum_runtime_s=int(runtime), gpus=int(gpus), pools=pools
        )
        assert services.hold_amount(job=job, at=T0) == int(hold)


def test_segments(tree: dict[str, Budget]) -> None:
    pool = make_pool(rate=1000)
    pool.rates.create(effective_at=T0 + 40 * MINUTE, rate_per_mille=1500)
    (node,) = make_nodes(pool)
    run = make_run(make_job(tree["orlo/vision/tern"]), {node: 0b1111}, ended_at=T0 + 50 * MINUTE)
    make_holding(run, node, 0b110000, started_at=T0 + 10 * MINUTE, funded=False)
    found = [
        [
            f"{one.start:%H:%M}",
            f"{one.end:%H:%M}",
            "yes" if one.funded else "no",
            str(one.gpu_seconds),
            str(one.rate),
            str(one.amount_mgpus),
        ]
        for one in services.segments(start=T0, end=T0 + HOUR)
    ]
    assert found == table("segments")


def test_late_ends(tree: dict[str, Budget]) -> None:
    make_period()
    (node,) = make_nodes(make_pool(rate=2500))
    run = make_run(make_job(tree["orlo/vision/tern"], state=Job.State.RUNNING), {node: 0xFF})
    known = close(2)
    workloads.end_run(run=run, reason=Run.EndReason.COMPLETED, at=T0 + 20 * MINUTE)
    services.settle_late_end(run=run, now=known, policy="all")
    found = [
        [
            f"{charge.at:%H:%M}",
            str(charge.amount_mgpus),
            str(Entry.objects.get(key=late_end_key(charge)).amount_mgpus),
        ]
        for charge in Entry.objects.filter(kind="charge").order_by("at")
    ]
    assert found == table("late-ends")


@pytest.mark.parametrize("policy", ["all", "checkpoint", "none"])
def test_refunds(tree: dict[str, Budget], policy: str) -> None:
    make_period()
    (node,) = make_nodes(make_pool(rate=2000))
    job = make_job(tree["orlo/vision/tern"], state=Job.State.RUNNING)
    run = make_run(job, {node: 0b11})
    close(2)
    for minute in (10, 40):
        JobEvent.objects.create(job=job, run=run, at=T0 + minute * MINUTE, kind="checkpoint")
    workloads.end_run(run=run, reason=Run.EndReason.NODE_FAILURE, at=T0 + HOUR)
    refund = services.refund_run(run=run, now=T0 + HOUR, policy=policy)
    assert [policy, str(refund)] in table("refunds")


def granted(tree: dict[str, Budget], at: datetime) -> dict[str, int]:
    period = Entry.objects.earliest("pk").period
    figures = reports.figures(period=period, now=at)
    return {path: figures[budget.pk].granted_mgpus // CREDIT for path, budget in tree.items()}


def test_grants(tree: dict[str, Budget]) -> None:
    one, two = make_pool(), make_pool()
    period = make_period(status="approved", capacity={one: 360_000})
    period.capacities.create(pool=two, gpu_seconds=36_000, rate_per_mille=2000)
    services.start_period(period=period, at=T0)
    found = granted(tree, T0)
    assert found == {path: int(credits) for path, _, credits in table("grants")}


def test_a_change_of_shares(tree: dict[str, Budget]) -> None:
    period = make_period(
        status="approved", ends_at=T0 + 100 * DAY, capacity={make_pool(): 3_600_000}
    )
    services.start_period(period=period, at=T0)
    before, at = granted(tree, T0), T0 + 75 * DAY
    shares = {tree["orlo/science"]: 40_000, tree["orlo/vision"]: 60_000}
    services.apply_change_set(change_set=make_shares(tree["orlo"], shares, at=at), now=at)
    after = granted(tree, at)
    for path, was, becomes in table("change"):
        assert (before[path], after[path]) == (int(was), int(becomes))


def hundred_days() -> Period:
    period = make_period(
        status="approved", ends_at=T0 + 100 * DAY, capacity={make_pool(): 3_600_000}
    )
    services.start_period(period=period, at=T0)
    return period


def spend(budget: Budget, credits: int) -> None:
    if credits:
        services.adjust(
            budget=budget, amount_mgpus=credits * CREDIT, author=make_user(), note="used",
            key=budget.path, now=T0,
        )  # fmt: skip


def test_rounding_what_changes_of_shares_move() -> None:
    lines = table("rounding")
    ids = {path: number for number, (path, *_) in enumerate(lines)}

    def places(column: int) -> dict[int, Place]:
        return {
            pk: Place(ids.get(path.rpartition("/")[0]), Fraction(lines[pk][column]))
            for path, pk in ids.items()
        }

    before, after = places(1), places(2)
    found = dues(before, after)
    for path, _, _, *cells in lines:
        change = after[ids[path]].worth - before[ids[path]].worth
        assert list(map(Fraction, cells)) == [change, floor(change), found[ids[path]]], path


def test_what_a_fall_could_not_take_is_kept(tree: dict[str, Budget]) -> None:
    period, lines = hundred_days(), table("kept")
    for path, _, spent, *_ in lines:
        if not Budget.objects.filter(parent=tree[path]).exists():
            spend(tree[path], int(spent))
    found = [granted(tree, T0)]
    keeps: list[dict[int, int]] = []
    due = []
    for day, science in ((50, 0), (75, 60_000)):
        at = T0 + day * DAY
        shares = {tree["orlo/science"]: science, tree["orlo/vision"]: 100_000 - science}
        vector: Vector = {budget.pk: {None: share} for budget, share in shares.items()}
        due.append(effects(parent=tree["orlo"], vector=vector, period=period, at=at, now=at))
        services.apply_change_set(change_set=make_shares(tree["orlo"], shares, at=at), now=at)
        found.append(granted(tree, at))
        keeps.append(kept_in(period))
    settled = reports.figures(period=period, now=T0 + 75 * DAY)
    for path, *cells in lines:
        pk = tree[path].pk
        before, then, after = (one[path] for one in found)
        dues = [hours for one in due for hours in _due(one, pk)]
        row = [before, settled[pk].settled_mgpus // CREDIT]
        row += [dues[0], then - before, keeps[0].get(pk, 0) // CREDIT]
        row += [dues[1], after - then, keeps[1].get(pk, 0) // CREDIT, after]
        assert list(map(int, cells)) == row, path


def _due(found: list[Effect], pk: int) -> list[int]:
    """Return what a budget's share gains or loses, in credits: GPU-hours at rate 1000."""
    gained = (one.change_gpu_seconds for one in found if one.budget.pk == pk)
    return [seconds // 3600 for seconds in gained if seconds is not None]


def test_a_move(tree: dict[str, Budget]) -> None:
    make_shares(tree["orlo/vision"], {tree["orlo/vision/tern"]: 75_000})
    period, at = hundred_days(), T0 + 50 * DAY
    spend(tree["orlo/science/petrel"], 100)
    before = reports.figures(period=period, now=at)
    steering.move_budget(
        budget=tree["orlo/science/petrel"], to=tree["orlo/vision"], share=25_000,
        author=make_user(), reason="theirs", now=at,
    )  # fmt: skip
    after = reports.figures(period=period, now=at)
    for path, *cells in table("move"):
        pk = tree[path].pk
        written = Entry.objects.filter(budget=tree[path], at=at)
        by_kind = [
            sum(written.filter(kind=kind).values_list("amount_mgpus", flat=True))
            for kind in ("grant", "transfer")
        ]
        was, becomes = ([one[pk].granted_mgpus, one[pk].reserve_mgpus] for one in (before, after))
        assert [int(cell) * CREDIT for cell in cells] == [*was, *by_kind, *becomes], path


def test_a_transfer(tree: dict[str, Budget]) -> None:
    period = make_period()
    for leaf in ("orlo/science/petrel", "orlo/science/auk", "orlo/vision/tern"):
        give(tree[leaf], 10, period)
    before = granted(tree, T0)
    services.transfer(
        source=tree["orlo/science/petrel"], target=tree["orlo/vision/tern"],
        amount_mgpus=4 * CREDIT, author=make_user(), note="agreed", key="t", now=T0,
    )  # fmt: skip
    after = granted(tree, T0)
    for path, was, becomes in table("transfer"):
        assert (before[path], after[path]) == (int(was), int(becomes))


def test_pace_and_runway() -> None:
    for used, given, elapsed, pace, spendable, rate, runway in table("burn"):
        on_pace = reports.pace(
            used_mgpus=int(used), granted_mgpus=int(given), planned=Fraction(elapsed)
        )
        days = reports.runway_days(spendable_mgpus=int(spendable), burn_rate_mgpus=int(rate))
        assert pace == ("-" if on_pace is None else f"{float(on_pace):.2f}")
        assert runway == ("-" if days is None else f"{float(days):.1f}")


def test_conservation(tree: dict[str, Budget]) -> None:
    make_period()
    (node,) = make_nodes(make_pool(), gpus=8)
    tern = tree["orlo/vision/tern"]
    make_run(make_job(tern), {node: 0b11})
    make_run(make_job(tern), {node: 0b100}, ended_at=T0 + 10 * MINUTE, funded=False)
    log_gpus(node, T0, held=0b111)
    log_gpus(node, T0 + 10 * MINUTE, held=0b11)
    log_gpus(node, T0 + 25 * MINUTE, held=0b11, down=0b1000_0000)
    close()
    (row,) = reports.conservation(start=T0, end=T0 + HOUR)
    found = [row.charged, row.unfunded, row.free, row.down, row.inventory]
    assert [list(map(str, found))] == table("conservation")


def test_every_kind_of_entry_is_on_the_page() -> None:
    text = PAGE.read_text()
    for kind in Entry.Kind:
        assert f"\n| {kind.value} |" in text


def test_what_a_window_of_a_week_is_read_from() -> None:
    end = T0 + timedelta(days=7, hours=18, minutes=10)
    found = cover([to_seconds(end - 7 * DAY), to_seconds(end)])
    names = {Rollup.Size.WEEK: "weeks", Rollup.Size.DAY: "days", Rollup.Size.HOUR: "hours"}
    spans = [(span, names[Rollup.Size(size)]) for size in names for span in found.whole[size]]
    spans += [(span, "entries") for span in found.edges]
    rows = [[*map(day_and_clock, span), name] for span, name in sorted(spans)]
    assert rows == table("stretches")


def day_and_clock(seconds: int) -> str:
    at = from_seconds(seconds)
    return f"{at.day} October {at:%H:%M}"
