"""What must be true of entries, whatever happened: each breach is named in a sentence.

Rules of charges are in `ledger.charge_checks`, those of holds and refunds in `ledger.hold_checks`,
of grants and carry-over in `ledger.grant_checks`, of transfers in `ledger.transfer_checks`.
"""

from collections import defaultdict
from datetime import datetime
from itertools import pairwise

from django.db.models import Q, Sum

from budgets.models import Budget, Period
from ledger import closing_statements
from ledger.charge_checks import charge_problems
from ledger.figures import SETTLES, accounts
from ledger.grant_checks import grant_problems
from ledger.hold_checks import hold_problems
from ledger.instants import from_seconds, iso, span, to_seconds
from ledger.models import ClosedTimestep, ClosingStatement, Entry
from ledger.problems import EntryProblem as EntryProblem
from ledger.problems import Kind, Problems
from ledger.rollup_checks import wrong_sums
from ledger.transfer_checks import transfer_problems

CHUNK = 2000  # rows at a time


def entry_problems(*, start: datetime, end: datetime) -> list[EntryProblem]:
    """Return every breach: of charges in [start, end), and of holds and totals altogether.

    Rules: timesteps without gap; what is about a job on its own budget, a leaf, a charge in the
    period of its time; no second of a run charged twice; charges equal to what was held, at its
    rate, once what lies past a run's end is given back; releases and corrections no more than there
    is to release or give back; no hold that nobody needs; totals of the tree, and all sums that
    figures are read from, equal to the sum of entries; closing statements equal to their periods'
    entries. What is kept in memory doesn't grow with the number of charges.
    """
    start, end = span(start, end)
    return [
        *_gaps_between_timesteps(),
        *_unreadable_charges(),
        *charge_problems(start, end),
        *hold_problems(),
        *transfer_problems(),
        *grant_problems(),
        *_written_after_closing(),
        *_totals_unlike_entries(),
        *(EntryProblem("sum", str(wrong)) for wrong in wrong_sums()),
        *(EntryProblem("statement", wrong) for wrong in closing_statements.problems()),
    ]


def _unreadable_charges() -> Problems:
    """A charge that no figure can place: it says no pool, or no timestep."""
    nowhere = Entry.objects.filter(Q(pool=None) | Q(timestep=None), kind=Kind.CHARGE)
    for entry in nowhere.select_related("budget").order_by("pk").iterator(CHUNK):
        missing = "pool" if entry.pool_id is None else "timestep"
        yield EntryProblem(
            "charge", f"{entry.key}: {entry.gpu_seconds} GPU-seconds of {entry.budget.path} "
            f"from {iso(entry.at)} on have no {missing}",
        )  # fmt: skip


def _gaps_between_timesteps() -> Problems:
    rows = ClosedTimestep.objects.order_by("start").values_list("start", "end")
    for (_, end), (start, _) in pairwise(rows):
        if end != start:
            yield EntryProblem("gap", f"closed timesteps go from {iso(end)} on to {iso(start)}")


def _written_after_closing() -> Problems:
    """What is written about a closed period stands in the open one."""
    closings = ClosingStatement.objects.order_by("period_id")
    for period_id, closed_at in closings.values_list("period_id", "closed_at").distinct():
        late = Entry.objects.filter(period_id=period_id, created_at__gt=closed_at)
        for entry in late.select_related("budget", "period").order_by("pk").iterator(CHUNK):
            yield EntryProblem(
                "closed",
                f"{entry.budget.path}, {entry.period.name}: {entry.kind} of {entry.amount_mgpus} "
                f"mGPU-s was written at {iso(entry.created_at)}, and the period closed at "
                f"{iso(closed_at)}: {entry.key}",
            )


def _totals_unlike_entries() -> Problems:
    """What the roots have settled must be all that was ever settled, whoever moved in between."""
    roots = Budget.objects.filter(parent=None).values_list("pk", flat=True)
    settled: dict[int, int] = defaultdict(int)
    rows = Entry.objects.filter(kind__in=SETTLES).order_by().values_list("period_id", "kind")
    for period_id, kind, total in rows.annotate(total=Sum("amount_mgpus")):
        settled[period_id] += SETTLES[Kind(kind)] * total
    for period in Period.objects.filter(pk__in=settled).order_by("pk"):
        last = from_seconds(to_seconds(period.ends_at) - 1)
        found = accounts(period=period, at=last)
        rolled_up = sum(found.settled[root] for root in roots)
        if rolled_up != settled[period.pk]:
            yield EntryProblem(
                "roll-up",
                f"{period.name}: the organisation has settled {rolled_up} mGPU-s, entries total "
                f"{settled[period.pk]}",
            )
