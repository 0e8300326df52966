"""What must be true of entries, whatever happened: each breach is named in a sentence."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from django.db.models import F, Q, QuerySet, Sum

from budgets.models import Budget, Period
from ledger import closing_statements
from ledger.figures import SETTLES, accounts, all_open_holds, closed_until, segment_bounds
from ledger.holds import orphan_holds
from ledger.instants import from_seconds, iso, span, to_seconds
from ledger.models import ClosedTimestep, Entry, JobRollup
from ledger.refunds import late_end_key, past_end
from ledger.rollup_checks import wrong_sums
from ledger.segments import segments

Kind = Entry.Kind


@dataclass(frozen=True, slots=True)
class EntryProblem:
    """A breach of a rule: which rule, and a sentence that names where."""

    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


def entry_problems(*, start: datetime, end: datetime) -> list[EntryProblem]:
    """Return every breach: of charges in [start, end), and of holds and totals altogether.

    Rules: timesteps without gap; what is about a job on its own budget, a charge in the period of
    its time; no second of a run charged twice; charges equal to what was held,
    at its rate, up to the last closed timestep, once what lies past a run's end is given back;
    releases and corrections no more than there is to release or give back; no hold that
    nobody needs; totals of the tree, and all sums that figures are read from, equal to the sum of
    entries; closing statements equal to their periods' entries.
    """
    start, end = span(start, end)
    return [
        *_gaps_between_timesteps(),
        *_on_another_budget(),
        *_in_another_period(start, end),
        *_seconds_charged_twice(start, end),
        *_charges_unlike_holdings(start, end),
        *_releases_above_holds(),
        *_refunds_above_charges(),
        *_orphans(),
        *_totals_unlike_entries(),
        *(EntryProblem("sum", str(wrong)) for wrong in wrong_sums()),
        *(EntryProblem("statement", wrong) for wrong in closing_statements.problems()),
    ]


def _gaps_between_timesteps() -> Iterator[EntryProblem]:
    rows = ClosedTimestep.objects.order_by("start").values_list("start", "end")
    for (_, end), (start, _) in pairwise(rows):
        if end != start:
            yield EntryProblem("gap", f"closed timesteps go from {iso(end)} on to {iso(start)}")


def _on_another_budget() -> Iterator[EntryProblem]:
    """Whatever is about a job stands on that job's budget. Read from the sums of jobs."""
    wrong = JobRollup.objects.exclude(budget_id=F("job__budget_id")).order_by("job_id", "pk")
    for one in wrong.select_related("budget", "job__budget", "period"):
        yield EntryProblem(
            "budget",
            f"job {one.job_id}, attempt {one.attempt}: {one.kind} of {one.amount_mgpus} mGPU-s in "
            f"{one.period.name} stands on {one.budget.path}, not on {one.job.budget.path}",
        )


def _in_another_period(start: datetime, end: datetime) -> Iterator[EntryProblem]:
    outside = Q(at__lt=F("period__starts_at")) | Q(at__gte=F("period__ends_at"))
    for charge in _charges(start, end).filter(outside).select_related("period", "budget"):
        yield EntryProblem(
            "period",
            f"run {charge.run_id}: its charge of {charge.amount_mgpus} mGPU-s from "
            f"{iso(charge.at)} on, to {charge.budget.path}, stands in {charge.period.name}",
        )


def _seconds_charged_twice(start: datetime, end: datetime) -> Iterator[EntryProblem]:
    """A run's funded charges may not overlap one another, nor its unfunded ones."""
    last: dict[tuple[int | None, bool], int] = {}
    for charge in _charges(start, end).order_by("run_id", "at"):
        whose = charge.run_id, charge.funded
        since, until = segment_bounds(charge)
        if since < last.get(whose, since):
            yield EntryProblem("charged twice", f"run {charge.run_id} from {iso(charge.at)} on")
        last[whose] = max(until, last.get(whose, until))


def _charges_unlike_holdings(start: datetime, end: datetime) -> Iterator[EntryProblem]:
    closed = closed_until()
    first = ClosedTimestep.objects.order_by("start").first()
    if closed is None or first is None:
        return
    low, high = max(start, first.start), min(end, closed)
    held: dict[tuple[int, bool], list[int]] = defaultdict(lambda: [0, 0])
    charged: dict[tuple[int, bool], list[int]] = defaultdict(lambda: [0, 0])
    if low < high:
        for segment in segments(start=low, end=high):
            _add(held[segment.run_id, segment.funded], segment.gpu_seconds, segment.amount_mgpus)
    for charge in _charges(low, high):
        assert charge.run_id is not None
        _add(charged[charge.run_id, charge.funded], charge.gpu_seconds, charge.amount_mgpus)
    for whose, gpu_seconds, given_back in _past_ends(low, high):
        _add(charged[whose], -gpu_seconds, -given_back)
    for whose in sorted(held.keys() | charged.keys()):
        if held[whose] != charged[whose]:
            run_id, funded = whose
            (was, worth), (paid, amount) = held[whose], charged[whose]
            yield EntryProblem(
                "charge",
                f"run {run_id}, {'funded' if funded else 'unfunded'}: held {was} GPU-seconds worth "
                f"{worth} mGPU-s, charged {paid} for {amount}",
            )


def _add(pair: list[int], gpu_seconds: int, amount: int) -> None:
    pair[0] += gpu_seconds
    pair[1] += amount


def _past_ends(start: datetime, end: datetime) -> Iterator[tuple[tuple[int, bool], int, int]]:
    """Yield whose charge reaches past its run's end, the GPU-seconds beyond, and what of the
    amount was given back for it."""
    late = _charges(start, end).filter(until__gt=F("run__ended_at"))
    back = Entry.objects.filter(kind=Kind.ADJUST, run_id__in=late.order_by().values("run_id"))
    amounts = dict(back.values_list("key", "amount_mgpus"))
    for charge in late.select_related("run"):
        assert charge.run is not None
        assert charge.run.ended_at is not None
        beyond, _ = past_end(charge, charge.run.ended_at)
        yield (charge.run.pk, charge.funded), beyond, -amounts.get(late_end_key(charge), 0)


def _charges(start: datetime, end: datetime) -> QuerySet[Entry]:
    return Entry.objects.filter(kind=Kind.CHARGE, timestep__gte=start, timestep__lt=end)


def _releases_above_holds() -> Iterator[EntryProblem]:
    for mine, left in all_open_holds().items():
        for period_id, amount in left.items():
            if amount < 0:
                yield EntryProblem(
                    "hold",
                    f"job {mine.job_id}, attempt {mine.number}, period {period_id}: {-amount} "
                    "mGPU-s released that were never held",
                )


def _refunds_above_charges() -> Iterator[EntryProblem]:
    corrected = Entry.objects.filter(kind__in=(Kind.REFUND, Kind.ADJUST)).values("run_id")
    rows = Entry.objects.filter(kind__in=SETTLES, run_id__in=corrected).order_by()
    total: dict[int | None, int] = defaultdict(int)
    for run_id, kind, amount in rows.values_list("run_id", "kind").annotate(
        total=Sum("amount_mgpus")
    ):
        total[run_id] += SETTLES[Kind(kind)] * amount
    for run_id, left in sorted(total.items(), key=str):
        if left < 0:
            yield EntryProblem("refund", f"run {run_id}: {-left} mGPU-s more than it was charged")


def _orphans() -> Iterator[EntryProblem]:
    for mine, left in sorted(orphan_holds().items()):
        yield EntryProblem(
            "orphan hold",
            f"job {mine.job_id}, attempt {mine.number}: {sum(left.values())} mGPU-s held for what "
            "will never run",
        )


def _totals_unlike_entries() -> Iterator[EntryProblem]:
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
