"""A budget's charges and corrections as FOCUS, the FinOps cost-and-usage format; streamed as CSV.

One row per charge, or two where a part of its GPUs was parked (a capacity reservation's Used and
Unused); one per refund or adjustment. Holds, grants and transfers are no charges. The sum of
x_AmountMilliGpuSeconds is what the budget settled, to the last unit. docs/reports.md has the
mapping and its reasons.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import QuerySet

from budgets.models import Budget
from clusters.saying import say as _
from ledger.exports import focus_columns as focus
from ledger.exports.focus_rows import Correction, Line, Money, Names, rows_of
from ledger.exports.sections import shown
from ledger.grants import corrected_period
from ledger.instants import LedgerError, span, to_seconds
from ledger.membership import Membership
from ledger.models import Entry
from ledger.refunds import LATE_END, Place, charge_key
from ledger.stretches import CORRECTIONS, LONGEST_TIMESTEP, standing_below

Kind = Entry.Kind
Ran = tuple[datetime, datetime]  # from when to when
BATCH = 1000  # rows of one chunk
FIELDS = (
    *("kind", "budget_id", "period_id", "at", "until", "amount_mgpus", "job_id", "job__name"),
    *("job__kind", "run_id", "run__number", "pool_id", "funded", "gpu_seconds"),
    *("parked_gpu_seconds", "author__username", "note", "key"),
)
# What people typed, which a spreadsheet must not compute, nor a reader take for nothing.
TYPED = (
    *("BillingAccountName", "ChargeDescription", "HostProviderName", "InvoiceIssuerName"),
    *("ProviderName", "PublisherName", "ResourceName", "ServiceProviderName", "SkuMeter"),
    *("SubAccountName", "x_Author", "x_BudgetPath", "x_EntryKey"),
)


def focus_csv(
    *,
    budget: Budget,
    start: datetime,
    end: datetime,
    version: str,
    money: Money,
) -> Iterator[bytes]:
    """Yield the file of what began, or was corrected, in [start, end), a thousand rows at a time.

    A budget that moved away is named where it stood, which is all that the file tells of it.
    Raises LedgerError at once for a version there is none of, or a currency that is no nation's.
    """
    start, end = span(start, end)
    if version not in focus.VERSIONS:
        choice = " or ".join(focus.VERSIONS)
        raise LedgerError(
            _(
                "There is no FOCUS %(version)s here: choose %(choice)s.",
                version=repr(version),
                choice=choice,
            )
        )
    if money.currency not in focus.CURRENCIES:
        raise LedgerError(
            _(
                "FOCUS_CURRENCY is %(currency)s, no national currency: set one such as EUR.",
                currency=repr(money.currency),
            )
        )
    return _chunks(budget, (start, end), version, money)


def _chunks(budget: Budget, between: Ran, version: str, money: Money) -> Iterator[bytes]:
    columns = [column.name for column in focus.columns(version)]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    tree = Membership.load()
    names, number = Names.load(tree), 0
    for line in _lines(tree, names, budget, *between):
        for row in rows_of(line, names, money):
            for name in TYPED:
                if row.get(name):
                    row[name] = _said(row[name])
            writer.writerow([row.get(name, "") for name in columns])
            number += 1
        if number >= BATCH:
            yield _taken(text)
            number = 0
    yield _taken(text)


def _said(text: str) -> str:
    text = text.strip()
    return f"'{text}" if text.lower() in focus.NO_VALUES else shown(text)


def _taken(text: io.StringIO) -> bytes:
    data = text.getvalue().encode()
    text.seek(0)
    text.truncate()
    return data


def _lines(
    tree: Membership, names: Names, budget: Budget, start: datetime, end: datetime
) -> Iterator[Line | Correction]:
    """Yield charges by timestep, then corrections as they were written; those below the budget."""
    low, high = to_seconds(start), to_seconds(end)
    below = Entry.objects.filter(standing_below(tree, budget.pk, (low, high))[1])
    inside = below.filter(at__gte=start, at__lt=end)
    near = {"timestep__gt": start - LONGEST_TIMESTEP, "timestep__lt": end}
    charges = inside.filter(kind=Kind.CHARGE, **near).order_by("timestep", "pk")
    corrections = inside.filter(kind__in=CORRECTIONS).order_by("pk")
    for line in _read(charges):
        if budget.pk in tree.chain(line.budget_id, to_seconds(line.at)):
            yield line
    batch: list[Line] = []
    for line in _read(corrections):
        if budget.pk in tree.chain(line.budget_id, to_seconds(line.at)):
            batch.append(line)
        if len(batch) == BATCH:
            yield from _with_charges(batch, names)
            batch = []
    yield from _with_charges(batch, names)


def _read(entries: QuerySet[Entry]) -> Iterator[Line]:
    for values in entries.values_list(*FIELDS).iterator(chunk_size=BATCH):
        yield Line(*values)


def _with_charges(lines: list[Line], names: Names) -> Iterator[Correction]:
    """Give each correction the time of what it corrects: a run's, a charge's, or a period."""
    runs = {line.run_id for line in lines if line.run_id is not None}
    charges = _Charges.of(runs) if runs else _Charges()
    for line in lines:
        by_hand = line.run_id is None
        yield Correction(line, _closed(line, names) if by_hand else charges.corrected(line))


def _closed(line: Line, names: Names) -> Ran | None:
    """Return the closed period that an adjustment by hand is about, whole; None: of its own."""
    about = names.periods.get(corrected_period(line.key) or 0)
    if about is None or about[1] > names.periods[line.period_id][0]:
        return None
    return about[:2]


@dataclass(frozen=True, slots=True)
class _Charges:
    """From when to when runs were charged: by run and period in order of time, and by key."""

    by_place: dict[Place, list[Ran]] = field(default_factory=lambda: defaultdict(list))
    by_key: dict[str, tuple[Place, Ran]] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[int]) -> "_Charges":
        found, charges = cls(), Entry.objects.filter(kind=Kind.CHARGE, funded=True, run__in=runs)
        for key, run_id, period_id, at, until in charges.order_by("at").values_list(
            "key", "run_id", "period_id", "at", "until"
        ):
            assert run_id is not None, "a charge is of a run"
            place, ran = (run_id, period_id), (at, until or at)
            found.by_place[place].append(ran)
            found.by_key[key] = place, ran
        return found

    def corrected(self, line: Line) -> Ran | None:
        """Return from when to when it ran, by the charge that the entry's key names; None: unknown.

        A refund is of all that the run was charged, up to that charge, in that charge's period.
        """
        named = self.by_key.get(charge_key(line.key) or "")
        if named is None:
            return None
        place, last = named
        return last if line.key.startswith(LATE_END) else (self.by_place[place][0][0], last[1])
