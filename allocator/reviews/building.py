"""Building a review pack from the ledger, the queue and what was decided. The only builder."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo

from django.db.models import Count, Q

from allocator import delivery
from allocator.pages.burning import FIRST_VERDICT
from allocator.reviews import commenting, deciding, queueing
from allocator.reviews.pack import (
    About,
    Chart,
    Job,
    Others,
    Pack,
    Points,
    Previous,
    Row,
    Waits,
    Week,
    Weekly,
)
from budgets import hues, plans, shares
from budgets.access import Kind, NamedThen, Standing, is_within
from budgets.models import Budget, Period
from clusters.reading import reading
from ledger import curves
from ledger.burn_report import BurnRow
from ledger.closing_statements import corrected, corrections
from ledger.exports.sections import checksum
from ledger.full_report import Asked, FullReport, full_report
from ledger.instants import from_seconds, midnight, to_seconds
from ledger.membership import Membership
from ledger.models import ClosingStatement, Entry
from ledger.spenders import JobSpent, PersonSpent
from ledger.totals import Total
from workloads.models import Job as JobRow
from workloads.models import Run

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
MOST_SPENDERS = 6  # of the ten that a burn report ranks
MOST_WEEKLY = 6


def least(budget: Budget) -> Standing:
    """Return what whoever sees a budget knows at least: a pack says that to all of them."""
    return Standing(everything=False, roles=((budget.path, Kind.VIEWER),))


@reading()
def build(*, budget: Budget, period: Period, now: datetime) -> Pack:
    """Return a budget's pack of a period that has started, as of now. Constant queries.

    Raises LedgerError, in a sentence, for what can't be reported.
    """
    return _Builder(budget, period, now).pack()


@dataclass
class _Builder:
    budget: Budget
    period: Period
    now: datetime

    def __post_init__(self) -> None:
        self.start = self.period.starts_at
        self.end = max(min(self.now, self.period.ends_at), self.start + SECOND)
        self.last = self.end - SECOND

    @cached_property
    def report(self) -> FullReport:
        asked = Asked(self.budget, self.start, self.end, self.now, held=least(self.budget))
        return full_report(asked, delivered=delivery.summary(start=self.start, end=self.end))

    @cached_property
    def every(self) -> Mapping[int, Budget]:
        return shares.every_budget()

    @cached_property
    def nodes(self) -> Mapping[int, shares.TreeNode]:
        return shares.tree(at=self.last, budgets=self.every)

    @cached_property
    def planned(self) -> plans.Plans:
        return plans.load(period=self.period, at=min(self.now, self.last))

    @cached_property
    def row_of(self) -> Mapping[int, int]:
        """The budget and what stood below it at the end, each with the child whose row it is in."""
        tree, top, found = Membership.load(), self.budget.pk, {}
        at = to_seconds(self.last)
        for pk in self.every:
            chain = tree.chain(pk, at)
            if top in chain:
                found[pk] = chain[max(0, chain.index(top) - 1)]
        return found

    @cached_property
    def below(self) -> set[int]:
        """Of these the ones that are below it still: whoever sees it reads what is asked there."""
        return {pk for pk in self.row_of if is_within(self.every[pk].path, self.budget.path)}

    @cached_property
    def rows(self) -> list[Row]:
        named = NamedThen(least(self.budget), self.last)
        ids = {named.path(self.every[pk].path): pk for pk in {*self.row_of.values()}}
        rows = [self._row(one, ids.get(one.path, 0)) for one in self.report.burn.rows]
        rows.sort(key=lambda one: (one.burn.is_reserve, -abs(one.over_mgpus), one.label))
        return rows

    def pack(self) -> Pack:
        spent, parts = self.report.spenders, self.rows
        jobs, people = spent.jobs[:MOST_SPENDERS], spent.people[:MOST_SPENDERS]
        waits, every_wait = self._waits()
        asked, more_asked = deciding.asked(
            budget=self.budget,
            ids=self.below,
            start=self.start,
            end=self.end,
            least=least(self.budget),
        )
        changes, more_changes = deciding.changed(
            budget=self.budget, ids=self.below, start=self.start, end=self.end
        )
        transfers, more_transfers = deciding.transfers(self.budget, start=self.start, end=self.end)
        return Pack(
            about=self._about(),
            total=self._row(self.report.burn.total, self.budget.pk),
            rows=tuple(parts),
            chart=self._chart(),
            weekly=tuple(self._weekly()),
            waits=waits,
            all_waits=every_wait,
            jobs=tuple(self._jobs(jobs)),
            other_jobs=self._others(spent.job_count, jobs),
            people=people,
            other_people=self._others(spent.person_count, people),
            asked=asked,
            more_asked=more_asked,
            changes=changes,
            more_changes=more_changes,
            by_hand=self.report.by_hand,
            transfers=transfers,
            options=deciding.options(self.budget, start=self.start, end=self.end),
            comments=commenting.said(budget=self.budget, period=self.period),
            previous=self._previous(),
            corrected_later_mgpus=self._corrected_later(),
            more_transfers=more_transfers,
        )

    def _about(self) -> About:
        burn, period = self.report.burn, self.period
        elapsed = self.planned.elapsed(self.end)
        return About(
            period=period.pk,
            period_name=period.name,
            period_status=period.status,
            starts_at=period.starts_at,
            ends_at=period.ends_at,
            time_zone=period.time_zone,
            budget=self.budget.pk,
            path=self.budget.path,
            name=burn.name,
            hue=str(hues.of_budgets(self.every.values())[self.budget.path]),
            start=self.start,
            end=self.end,
            now=self.now,
            closed_until=burn.closed_until,
            elapsed_part=int(elapsed * 100_000),
            judged=elapsed >= FIRST_VERDICT,
            has_plan=self.budget.pk in self.planned.own,
            checksum=checksum(self.report),
        )

    def _row(self, burn: BurnRow, pk: int) -> Row:
        part = self.planned.planned(pk, self.end) if pk else 0
        node = self.nodes.get(pk)
        return Row(
            burn=burn,
            budget=pk,
            label=burn.name,
            planned_mgpus=int(max(0, burn.granted_mgpus) * part),
            share=None if node is None or burn.is_reserve else node.thousandths,
        )

    # --- The chart and the weeks -----------------------------------------------------------------

    def _chart(self) -> Chart:
        curve = self.planned.of(self.budget.pk)
        granted = max(0, self.report.burn.total.granted_mgpus)
        plan = tuple(
            (from_seconds(mark), int(granted * part / 100_000))
            for mark, part in zip(curve.marks, curve.planned, strict=True)
        )
        return Chart(
            settled=self._settled(),
            plan=plan,
            granted=self._granted(),
            marks=deciding.marks(self.budget, start=self.start, end=self.period.ends_at),
        )

    def _settled(self) -> Points:
        zone, sum_, points = ZoneInfo(self.report.zone), 0, [(self.start, 0)]
        for day in self.report.days:
            sum_ += day.settled_mgpus
            points.append((min(self.end, midnight(day.day + DAY, zone)), sum_))
        return tuple(points)

    def _granted(self) -> Points:
        steps = curves.granted_steps(
            budget=self.budget, period=self.period, until=self.end, begins=self.planned.begins
        )
        sum_, points = 0, []
        for step in steps:
            sum_ += step.amount_mgpus
            points.append((step.at, sum_))
        return tuple(points)

    def _weekly(self) -> Iterator[Weekly]:
        """The projects that got the least of what they were owed, week by week; a leaf's own."""
        rows = [one for one in self.rows if one.budget and not one.burn.is_reserve]
        rows = [one for one in rows if one.burn.owed_gpu_seconds]
        rows.sort(key=lambda one: (_delivered(one.burn), one.label))
        shown = rows[:MOST_WEEKLY]
        if not shown:
            return
        borders = list(_weeks(self.start, self.end))
        found = delivery.between([*borders, self.end], budget_ids=[one.budget for one in shown])
        for row in shown:
            weeks = zip(borders, found[row.budget], strict=True)
            yield Weekly(
                row.budget,
                row.label,
                tuple(
                    Week(at, one.owed_gpu_seconds, one.delivered_gpu_seconds) for at, one in weeks
                ),
            )

    # --- Jobs ------------------------------------------------------------------------------------

    def _waits(self) -> tuple[tuple[Waits, ...], Waits]:
        names = {one.budget: one.label for one in self.rows if one.budget}
        return queueing.waits(
            budget_ids=None if len(self.row_of) == len(self.every) else self.row_of.keys(),
            row_of=self.row_of,
            names=names,
            start=self.start,
            end=self.end,
            counts_waiting=self.now < self.period.ends_at,
        )

    def _jobs(self, dearest: tuple[JobSpent, ...]) -> Iterator[Job]:
        ids = [one.job for one in dearest]
        gpus = dict(JobRow.objects.filter(pk__in=ids).values_list("pk", "gpus"))
        ran = Run.objects.filter(job_id__in=ids, started_at__lt=self.end)
        inside = ran.filter(Q(ended_at__isnull=True) | Q(ended_at__gt=self.start)).order_by()
        stopped = Q(end_reason=Run.EndReason.PREEMPTED, ended_at__lt=self.end)
        counted = inside.values_list("job_id").annotate(
            runs=Count("pk"), preempted=Count("pk", filter=stopped)
        )
        runs = {pk: (number, preempted) for pk, number, preempted in counted}
        charged = Entry.objects.filter(
            run__in=Run.objects.filter(job_id__in=ids),
            kind=Entry.Kind.CHARGE,
            period=self.period,
            funded=True,
        )
        sums = (
            charged.order_by()
            .values_list("job_id")
            .annotate(held=Total("gpu_seconds"), parked=Total("parked_gpu_seconds"))
        )
        held = {pk: (seconds, parked) for pk, seconds, parked in sums}
        for one in dearest:
            number, preempted = runs.get(one.job, (0, 0))
            seconds, parked = held.get(one.job, (0, 0))
            yield Job(one, gpus[one.job], number, preempted, parked, seconds)

    def _others(self, number: int, shown: tuple[JobSpent | PersonSpent, ...]) -> Others:
        spent = self.report.spenders
        return Others(
            number - len(shown),
            spent.settled_mgpus - sum(one.settled_mgpus for one in shown),
            spent.gpu_seconds - sum(one.gpu_seconds for one in shown),
        )

    # --- Other periods ---------------------------------------------------------------------------

    def _previous(self) -> Previous | None:
        before = ClosingStatement.objects.filter(
            budget=self.budget, period__ends_at__lte=self.period.starts_at
        )
        last = before.select_related("period").order_by("-period__starts_at").first()
        if last is None:
            return None
        return Previous(
            name=last.period.name,
            granted_mgpus=last.granted_mgpus + last.carried_mgpus + last.transferred_mgpus,
            settled_mgpus=last.settled_mgpus,
            parked_gpu_seconds=last.parked_gpu_seconds,
            charged_gpu_seconds=last.charged_gpu_seconds,
            owed_gpu_seconds=last.owed_gpu_seconds,
            delivered_gpu_seconds=last.delivered_gpu_seconds,
        )

    def _corrected_later(self) -> int:
        if self.period.status != Period.Status.CLOSED:
            return 0
        return corrected(corrections(self.period)).get(self.budget.pk, 0)


def _delivered(row: BurnRow) -> int:
    return (row.delivered_gpu_seconds or 0) * 100_000 // (row.owed_gpu_seconds or 1)


def _weeks(start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the start, and each Monday's midnight of UTC that lies between it and the end."""
    yield start
    at = start.replace(hour=0, minute=0, second=0, microsecond=0) + DAY * (7 - start.weekday())
    while at < end:
        yield at
        at += 7 * DAY
