"""Closing statements: what a period came to, kept as it was; and what was corrected afterwards."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from django.db.models import Max, QuerySet

from budgets import shares
from budgets.models import Budget, Period
from budgets.names import Names
from ledger.figures import SETTLES
from ledger.grants import corrected_period
from ledger.instants import to_seconds
from ledger.membership import Membership
from ledger.models import ClosingStatement, Entry
from ledger.refunds import LATE_END
from ledger.stretches import PeriodSum, period_sums

Kind = Entry.Kind
SECOND = timedelta(seconds=1)
OWN = {  # of the budget alone
    Kind.GRANT: "granted_mgpus",
    Kind.CARRY: "carried_mgpus",
    Kind.TRANSFER: "transferred_mgpus",
}
SETTLED = {
    Kind.CHARGE: "charged_mgpus",
    Kind.REFUND: "refunded_mgpus",
    Kind.ADJUST: "adjusted_mgpus",
}
# What entries tell. Owed and delivered are others' measurements.
FIGURES = (
    *OWN.values(),
    *SETTLED.values(),
    *("settled_mgpus", "released_mgpus"),
    *("charged_gpu_seconds", "parked_gpu_seconds", "unfunded_gpu_seconds"),
)
Sums = dict[str, int]


class Delivered(Protocol):
    """What a budget was owed and got of it over a period, in GPU-seconds."""

    @property
    def owed_gpu_seconds(self) -> int: ...

    @property
    def delivered_gpu_seconds(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Correction:
    """An entry of a later period that corrects a closed one; above 0: more was settled."""

    entry: Entry
    budgets: tuple[int, ...]  # whom it concerns: the budget and what was above it

    @property
    def settled_mgpus(self) -> int:
        return SETTLES[Kind(self.entry.kind)] * self.entry.amount_mgpus


def write_statement(
    *, period: Period, delivered: Mapping[int, Delivered] | None = None, now: datetime
) -> None:
    """Write the statement of a period that is being closed: a row for every budget that was
    active at its end or has entries in it. Under the ledger's lock, in the closing transaction.
    It is closed ``now``, or when the last of its entries was written.
    """
    figures, active = _figures(period), shares.tree(at=period.ends_at - SECOND)
    every, tree, names = Budget.objects.in_bulk(), Membership.load(), Names.load()
    budgets = {pk: every[pk] for pk in active.keys() | figures.keys()}
    last = period.ends_at - SECOND
    known = delivered or {}
    # A cycle that is late closes it as of its end, and others write meanwhile by clocks of theirs.
    written = Entry.objects.filter(period=period, created_at__gt=now).order_by()
    closed_at = written.aggregate(last=Max("created_at"))["last"] or now
    ClosingStatement.objects.bulk_create(
        (
            ClosingStatement(
                period=period,
                budget=budget,
                path=names.path((every[one] for one in tree.chain(pk, to_seconds(last))), last),
                name=names.at(budget, last).name,
                closed_at=closed_at,
                owed_gpu_seconds=known[pk].owed_gpu_seconds if pk in known else None,
                delivered_gpu_seconds=known[pk].delivered_gpu_seconds if pk in known else None,
                **dict.fromkeys(FIGURES, 0) | figures.get(pk, {}),
            )
            for pk, budget in sorted(budgets.items())
        ),
        batch_size=500,
    )


def statement(period: Period) -> QuerySet[ClosingStatement]:
    """Return a closed period's rows, parents before children; none for one that is open."""
    return ClosingStatement.objects.filter(period=period).order_by("path", "pk")


def corrections(period: Period) -> list[Correction]:
    """Return what was written in later periods about a closed one, oldest first.

    Refunds and late ends whose (last) charge lies in it, and adjustments that name it.
    """
    tree, found = Membership.load(), []
    for entry in _later(period).order_by("pk"):
        at = _about(entry, period)
        if at is not None:
            found.append(Correction(entry, tree.chain(entry.budget_id, at)))
    return found


def problems() -> Iterator[str]:
    """Yield every figure of a statement that isn't that of the period's entries."""
    periods = Period.objects.filter(pk__in=ClosingStatement.objects.values("period"))
    for period in periods.order_by("starts_at"):
        rows = {row.budget_id: row for row in statement(period)}
        figures = _figures(period)
        paths = dict(Budget.objects.filter(pk__in=figures).values_list("pk", "path"))
        for pk in sorted(rows.keys() | figures.keys()):
            row, right = rows.get(pk), figures.get(pk, {})
            path = row.path if row else paths[pk]
            for name in FIGURES:
                says, is_so = getattr(row, name) if row else 0, right.get(name, 0)
                if says != is_so:
                    yield f"{period.name}, {path}: {name} is {says:,}, by the entries {is_so:,}"


def _figures(period: Period) -> dict[int, Sums]:
    """Return what a period's entries come to, by budget; without those that have none."""
    tree, last = Membership.load(), to_seconds(period.ends_at - SECOND)
    found: dict[int, Sums] = defaultdict(lambda: dict.fromkeys(FIGURES, 0))
    for one in period_sums(period, tree):
        kind = Kind(one.kind)
        if kind in OWN:
            found[one.budget_id][OWN[kind]] += one.amount_mgpus
        elif kind in SETTLED:
            for node in tree.chain(one.budget_id, one.since):
                _settle(found[node], kind, one)
    for budget_id, amount in _released(period):
        for node in tree.chain(budget_id, last):
            found[node]["released_mgpus"] += amount
    return {pk: sums for pk, sums in found.items() if any(sums.values())}


def _settle(sums: Sums, kind: Entry.Kind, one: PeriodSum) -> None:
    sums[SETTLED[kind]] += one.amount_mgpus
    sums["settled_mgpus"] += SETTLES[kind] * one.amount_mgpus
    if kind == Kind.CHARGE:
        sums["charged_gpu_seconds" if one.funded else "unfunded_gpu_seconds"] += one.gpu_seconds
        sums["parked_gpu_seconds"] += one.parked_gpu_seconds if one.funded else 0


def _released(period: Period) -> Iterator[tuple[int, int]]:
    """Yield what was set aside to the end: it went on into the next period, or was given back."""
    border = Entry.objects.filter(kind=Kind.RELEASE, period=period, run=None)
    rows = border.filter(at__gte=period.ends_at - SECOND).order_by()
    for key, budget_id, amount in rows.values_list("key", "budget_id", "amount_mgpus"):
        words = key.split(":")
        if words[3:4] == ["into"] or words[3:5] == ["closed", str(period.pk)]:
            yield budget_id, amount


def _later(period: Period) -> QuerySet[Entry]:
    entries = Entry.objects.filter(kind__in=(Kind.REFUND, Kind.ADJUST))
    later = entries.filter(period__starts_at__gte=period.ends_at)
    return later.select_related("period", "budget", "author")


def _about(entry: Entry, period: Period) -> int | None:
    """Return the instant (seconds) in a period that an entry corrects; None if it is another's."""
    last = to_seconds(period.ends_at - SECOND)
    if corrected_period(entry.key) == period.pk:
        return last
    if entry.run_id is None:
        return None
    # The keys of both end in the run's id and the charge's instant.
    tail = entry.key.removeprefix(LATE_END).removeprefix("refund:")
    _, _, text = tail.partition(":")
    at = to_seconds(datetime.fromisoformat(text[: len("2026-10-01T00:00:00Z")]))
    return at if to_seconds(period.starts_at) <= at <= last else None


def corrected(found: Iterable[Correction]) -> dict[int, int]:
    """Return what corrections add to settled, by budget, subtree included."""
    total: dict[int, int] = defaultdict(int)
    for one in found:
        for budget in one.budgets:
            total[budget] += one.settled_mgpus
    return dict(total)
