"""Each corruption, written straight into the database, is named by `reconcile`, and alone."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ledger import reports, services
from ledger.models import Entry
from tests import corruptions as wrong
from tests.factories import T0
from tests.reconcile_world import END, Books, make_books, past_triggers

pytestmark = pytest.mark.django_db
PAGE = Path(__file__).resolve().parent.parent / "docs" / "ledger.md"


@pytest.fixture(scope="module")
def books(module_rows: None) -> Books:
    return make_books()


def lines() -> list[str]:
    found = [*map(str, reports.differences(start=T0, end=END))]
    return found + [str(one) for one in reports.entry_problems(start=T0, end=END)]


def test_sound_books_are_clean(books: Books) -> None:
    assert lines() == []


class Case(NamedTuple):
    """What is written, and the lines of `reconcile` for it; {b}: the books."""

    corrupt: Callable[[Books], None]
    named: tuple[str, ...]


LONG = "run {b.long.pk} of orlo/science/petrel, timestep 2026-10-01T01:30:00Z"
LAST, SUM = "h100 2026-10-01T01:30:00Z: inventory is", "sum: orlo/science/petrel"
CASES = [
    Case(
        wrong.gap,
        ("gap: closed timesteps go from 2026-09-30T22:30:00Z on to 2026-10-01T00:00:00Z",),
    ),
    Case(
        wrong.node_state_gap,
        (f"{LAST} 7200 GPU-seconds more than is known: node {{b.nodes[1].name}}",),
    ),
    Case(
        wrong.on_another_budget,
        (
            "budget: job {b.long.job_id}, attempt 1: charge of 14400000 mGPU-s in second stands on "
            "orlo/vision/tern, not on orlo/science/petrel",
        ),
    ),
    Case(
        wrong.on_a_divided_budget,
        (f"leaf: {LONG}: 14400000 mGPU-s are charged to a budget that has others below it",),
    ),
    Case(
        wrong.in_another_period,
        (
            "period: run {b.long.pk}: its charge of 14400000 mGPU-s from 2026-10-01T01:30:00Z on, "
            "to orlo/science/petrel, stands in third",
        ),
    ),
    Case(
        wrong.charged_twice,
        (
            f"{LAST} 14400 GPU-seconds less than was counted: run {{b.long.pk}}",
            f"charged twice: {LONG}: from 2026-10-01T01:30:00Z on 14400000 mGPU-s for 14400 "
            "GPU-seconds are charged, from 2026-10-01T01:30:00Z on 14400000 for 14400",
        ),
    ),
    Case(
        wrong.overlapping,
        (
            f"{LAST} 480 GPU-seconds less than was counted: run {{b.long.pk}}",
            f"charged twice: {LONG}: from 2026-10-01T01:59:00Z on 480000 mGPU-s for 480 "
            "GPU-seconds are charged, from 2026-10-01T01:30:00Z on 14400000 for 14400",
        ),
    ),
    Case(
        wrong.missing_charge,
        (
            f"{LAST} 14400 GPU-seconds more than is known: run {{b.long.pk}}",
            f"charge: {LONG}, funded: held 14400 GPU-seconds, charged 0",
        ),
    ),
    Case(
        wrong.unlike_holding,
        (
            f"{LAST} 1800 GPU-seconds more than is known: run {{b.long.pk}}",
            f"charge: {LONG}, funded: held 14400 GPU-seconds, charged 12600",
        ),
    ),
    Case(
        wrong.unfunded_second,
        (
            "charge: run {b.free.pk} of orlo/vision/auk, timestep 2026-10-01T01:00:00Z, unfunded: "
            "held 3600 GPU-seconds, charged 0, funded: held 0 GPU-seconds, charged 3600",
        ),
    ),
    Case(
        wrong.wrong_amount,
        (f"rate: {LONG}: 14400 GPU-seconds at rate 1000 are 14400000 mGPU-s, charged 14400007",),
    ),
    Case(
        wrong.over_a_change_of_rate,
        (
            f"rate: {LONG}: the 14400000 mGPU-s from 2026-10-01T01:30:00Z on are not cut at "
            "2026-10-01T01:59:00Z, where the rate changes",
        ),
    ),
    Case(
        wrong.without_a_run,
        (
            f"charge: {LONG}, funded: held 14400 GPU-seconds, charged 0",
            "run: charge:{b.long.pk}:2026-10-01T01:30:00Z, of orlo/science/petrel: 14400000 mGPU-s "
            "for 14400 GPU-seconds without a run or a timestep",
        ),
    ),
    Case(wrong.parked_above_held, (f"parked: {LONG}: 14401 GPU-seconds parked of 14400 held",)),
    Case(
        wrong.late_end,
        (
            f"late end: {LONG}: 480000 mGPU-s are charged past its end at 2026-10-01T01:59:00Z, "
            "0 given back",
        ),
    ),
    Case(
        wrong.hold_without_job,
        (
            "hold: hold:{b.long.job_id}:1:2026-10-01T02:00:00Z, of orlo/science/petrel, second: "
            "hold of 14400000 mGPU-s for no job",
        ),
    ),
    Case(
        wrong.never_released,
        (
            "orphan hold: job {b.killed.job_id}, attempt 1, of orlo/vision/tern: 7200000 mGPU-s "
            "held for what will never run",
        ),
    ),
    Case(
        wrong.release_above_hold,
        (
            "hold: job {b.long.job_id}, attempt 1, of orlo/science/petrel, second: 43200005 mGPU-s "
            "released, 43200000 were set aside",
        ),
    ),
    Case(
        wrong.carried_hold,
        (
            "hold: job {b.waiting.pk}, attempt 1, of orlo/vision/tern: 28800001 mGPU-s set aside "
            "in second from the period before, where 28800000 were released",
        ),
    ),
    Case(
        wrong.refund_above_charges,
        (
            "refund: run {b.killed.pk} of orlo/vision/tern, second: 3600007 mGPU-s given back of "
            "3600000 charged",
        ),
    ),
    Case(
        wrong.half_a_transfer,
        (
            "transfer: transfer:petrel-auk, 2026-10-01T01:05:00Z, from orlo/science/petrel to "
            "orlo/vision/auk: in mGPU-s orlo/science/petrel 0, not -14400000",
        ),
    ),
    Case(
        wrong.unbalanced_transfer,
        (
            "transfer: transfer:petrel-auk, 2026-10-01T01:05:00Z, from orlo/science/petrel to "
            "orlo/vision/auk: in mGPU-s orlo/vision/auk 14400005, not 14400000",
        ),
    ),
    Case(
        wrong.unbalanced_old_transfer,
        (
            "transfer: transfer:petrel-auk, 2026-10-01T01:05:00Z, the halves of a transfer don't "
            "match: in mGPU-s orlo/science/petrel -14400000; orlo/vision/auk 14400005",
        ),
    ),
    Case(
        wrong.half_a_move,
        (
            "transfer: move:{moved}, 2026-10-01T01:40:00Z, what orlo/vision/auk took along: in "
            "mGPU-s orlo/vision 0, not 284712641",
        ),
    ),
    Case(
        wrong.grant_unlike_shares,
        (
            "grant: orlo/vision/tern, second, at 2026-10-01T01:00:00Z: granted 1440000003 mGPU-s, "
            "by the shares in force 1440000000",
        ),
    ),
    Case(
        wrong.change_unlike_shares,
        (
            "grant: orlo/vision, second, at 2026-10-01T01:30:00Z: granted 359918440 mGPU-s, by the "
            "shares in force 359918441",
        ),
    ),
    Case(
        wrong.carry_above_cap,
        (
            "carry: orlo/vision/tern, second: carried over 360000009 mGPU-s, by the period's "
            "policy 360000000",
        ),
    ),
    Case(
        wrong.carry_in_wrong_period,
        (
            "carry: orlo/vision/tern, first: carried over 360000000 mGPU-s, by the period's "
            "policy 0",
            "carry: orlo/vision/tern, second: carried over 0 mGPU-s, by the period's policy "
            "360000000",
            "statement: first, orlo/vision/tern: carried_mgpus is 0, by the entries 360,000,000",
        ),
    ),
    Case(
        wrong.granted_below_claims,
        (
            "granted: orlo/vision/tern, second: granted 14399999 mGPU-s, settled -14400000 and "
            "set aside 28800000",
        ),
    ),
    Case(
        wrong.after_closing,
        (
            "closed: orlo/vision/tern, first: hold of 28800000 mGPU-s was written at "
            "2026-10-01T02:00:00Z, and the period closed at 2026-10-01T01:00:00Z: "
            "hold:{b.waiting.pk}:1",
        ),
    ),
]
OF_SUMS = [
    Case(
        wrong.wrong_sum,
        (
            f"{SUM}, hour of 2026-10-01T01:00:00Z, charge: the sum says 28,800,007 mGPU-s, "
            "entries 28,800,000",
        ),
    ),
    Case(
        wrong.missing_sum,
        (
            f"{SUM}, hour of 2026-10-01T01:00:00Z, charge: the sum says 0 mGPU-s, entries "
            "28,800,000; 0 GPU-seconds, entries 28,800",
        ),
    ),
    Case(
        wrong.wrong_total,
        (
            "roll-up: second: the organisation has settled 14400007 mGPU-s, entries total 14400000",
            f"{SUM}, second, charge: the sum says 28,800,007 mGPU-s, entries 28,800,000",
        ),
    ),
    Case(
        wrong.sum_of_anothers_job,
        (
            f"{SUM}, second, job {{b.long.job_id}}, settled: the sum says 0 mGPU-s, entries "
            "28,800,000; 0 GPU-seconds, entries 28,800",
            f"{SUM}, second, job {{b.long.job_id}}, settled: the sum says 28,800,000 mGPU-s, "
            "entries 0; 28,800 GPU-seconds, entries 0",
        ),
    ),
    Case(
        wrong.wrong_sum_of_a_job,
        (
            f"{SUM}, second, job {{b.long.job_id}}, settled: the sum says 28,799 GPU-seconds, "
            "entries 28,800",
        ),
    ),
    Case(
        wrong.wrong_sum_of_an_attempt,
        (
            f"{SUM}, second, job {{b.long.job_id}}, attempt 1, hold: the sum says 43,200,007 "
            "mGPU-s, entries 43,200,000",
        ),
    ),
]


def told(case: Case, books: Books) -> list[str]:
    moved = Entry.objects.filter(key__startswith="move:").values_list("key", flat=True)[0]
    return [
        line.format(b=books, moved=moved.split(":", 1)[1].rpartition(":")[0]) for line in case.named
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.corrupt.__name__)
def test_what_is_wrong_is_named_and_nothing_else(books: Books, case: Case) -> None:
    expected = told(case, books)
    with past_triggers():
        case.corrupt(books)
        services.rebuild_rollups()  # as if it had been written so
    assert lines() == expected


@pytest.mark.parametrize("case", OF_SUMS, ids=lambda case: case.corrupt.__name__)
def test_a_sum_that_is_wrong_is_named_and_nothing_else(books: Books, case: Case) -> None:
    expected = told(case, books)
    case.corrupt(books)
    assert lines() == expected


def test_every_rule_that_the_docs_name_is_broken_here() -> None:
    table = PAGE.read_text().split("| rule | what must be true |")[1].split("\n\n")[0]
    rules = {line.split("|")[1].strip() for line in table.splitlines()[2:]}
    named = {line.split(":")[0] for case in (*CASES, *OF_SUMS) for line in case.named}
    assert rules == {rule for rule in named if not rule.startswith("h100 ")}
