"""A review pack as tables of integers: for its workbook and its CSV file."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from allocator.reviews.pack import Pack, Row
from ledger.burn_report import BurnRow
from ledger.exports.sections import CREDIT, Cell, Section, shown
from ledger.instants import iso

OF_ROW = tuple(one.name for one in fields(BurnRow) if one.name != "is_reserve")


def sections(pack: Pack, *, seen_options: Sequence[int] = (), decision: str = "") -> list[Section]:
    """Return every table of a pack; ``seen_options`` are simulations that the reader may see."""
    shown_options = [one for one in pack.options if one.pk in seen_options]
    return [
        _budgets(pack),
        _weeks(pack),
        _waits(pack),
        _jobs(pack),
        _table("People", pack.people, ("username", "name", "jobs", "settled_mgpus", "gpu_seconds")),
        _table("Requests", pack.asked, ASKED),
        _changes(pack),
        _table("By hand", (*pack.by_hand, *pack.transfers), BY_HAND),
        _table("Options", shown_options, OPTION),
        _table("Comments", pack.comments, ("at", "author", "text", "withdrawn")),
        _about(pack, decision),
    ]


ASKED = (
    *("pk", "budget", "unit", "asked", "given", "status", "reason", "asked_by", "created_at"),
    *("until", "decision", "source", "answer", "decided_by", "decided_at"),
)
BY_HAND = ("at", "kind", "budget", "amount_mgpus", "author", "reason")
OPTION = (
    *("pk", "name", "shares", "policy", "delivered_part", "before_delivered_part", "p50_s"),
    "before_p50_s",
)


def as_csv(pack: Pack) -> str:
    """Return the budgets of a pack as CSV: a line per row, the total last."""
    text, budgets = io.StringIO(), _budgets(pack)
    writer = csv.writer(text)
    writer.writerow(budgets.columns)
    writer.writerows(budgets.rows)
    return text.getvalue()


def _cell(value: Any) -> Cell:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(value) if isinstance(value, str) else value


def _cells(row: Any, columns: Sequence[str]) -> tuple[Cell, ...]:
    return tuple(_cell(getattr(row, name)) for name in columns)


def _table(name: str, rows: Sequence[Any], columns: tuple[str, ...]) -> Section:
    return Section(name, columns, tuple(_cells(row, columns) for row in rows))


def _budgets(pack: Pack) -> Section:
    columns = ("row", *OF_ROW, "planned_to_date_mgpus", "over_plan_mgpus", "share")

    def line(kind: str, row: Row) -> tuple[Cell, ...]:
        planned = row.planned_mgpus, row.over_mgpus
        return kind, *_cells(row.burn, OF_ROW), *planned, row.share

    rows = [line("reserve" if row.burn.is_reserve else "budget", row) for row in pack.rows]
    return Section("Budgets", columns, (*rows, line("total", pack.total)))


def _weeks(pack: Pack) -> Section:
    rows = tuple(
        (shown(one.label), iso(week.start), week.owed_gpu_seconds, week.delivered_gpu_seconds)
        for one in pack.weekly
        for week in one.weeks
    )
    columns = ("budget", "from", "owed_gpu_seconds", "delivered_gpu_seconds")
    return Section("Weeks", columns, rows)


def _waits(pack: Pack) -> Section:
    columns = ("budget", "jobs", "p50_s", "p90_s", "preempted", "waiting")
    rows = [(shown(one.label), *_cells(one, columns[1:])) for one in pack.waits]
    return Section("Waits", columns, (*rows, ("total", *_cells(pack.all_waits, columns[1:]))))


def _jobs(pack: Pack) -> Section:
    spent = ("job", "name", "kind", "budget", "person", "settled_mgpus", "gpu_seconds")
    own = ("gpus", "runs", "preempted", "charged_gpu_seconds", "parked_gpu_seconds")
    rows: list[tuple[Cell, ...]] = [
        (*_cells(one.spent, spent), *_cells(one, own)) for one in pack.jobs
    ]
    rest = pack.other_jobs
    sums = rest.settled_mgpus, rest.gpu_seconds
    others: tuple[Cell, ...] = (None, "all others", "", "", "", *sums, *([None] * len(own)))
    return Section("Jobs", (*spent, *own), (*rows, others))


def _changes(pack: Pack) -> Section:
    columns = ("change_set", "parent", "status", "effective_at", "budget", "pool")

    def rows() -> Iterator[tuple[Cell, ...]]:
        for one in pack.changes:
            for move in one.moves:
                about = (one.pk, one.parent, one.status, iso(one.effective_at))
                moved = (shown(move.name), move.pool, move.before, move.after)
                yield *about, *moved, shown(one.reason), shown(one.author)

    return Section("Changes", (*columns, "before", "after", "reason", "author"), tuple(rows()))


def _about(pack: Pack, decision: str) -> Section:
    about = pack.about
    rows: tuple[tuple[Cell, ...], ...] = (
        ("budget", shown(about.path)),
        ("name", shown(about.name)),
        ("period", shown(about.period_name)),
        ("from", iso(about.start)),
        ("to", iso(about.end)),
        ("as of", iso(about.now)),
        ("charged up to", iso(about.closed_until) if about.closed_until else "nothing yet"),
        ("elapsed, thousandths of a percent", about.elapsed_part),
        ("milli-GPU-seconds in a credit", CREDIT),
        ("corrected later, milli-GPU-seconds", pack.corrected_later_mgpus),
        ("SHA-256 of the burn report's CSV file", about.checksum),
        ("decision", shown(decision)),
    )
    return Section("About", ("what", "value"), rows)
