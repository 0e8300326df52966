"""What must be true of holds, and of what was given back of charges; each breach is named."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from django.db.models import F, OuterRef, Q, Subquery, Sum, Value
from django.db.models.functions import Coalesce, Concat, Substr

from budgets.models import Period
from ledger.figures import HOLDS
from ledger.holds import orphan_holds
from ledger.models import Entry, JobRollup
from ledger.problems import EntryProblem, Kind, Problems
from ledger.refunds import Place, charge_key
from workloads.models import Job, Run

CHUNK = 2000  # rows at a time
AT_ONCE = 500  # corrections, or a run's, whatever they are


def hold_problems() -> Problems:
    """Yield every breach of holds and of corrections, whenever it was written."""
    yield from releases_above_holds()
    yield from orphans()
    yield from without_a_job()
    yield from carried_unlike_released()
    yield from refunds_above_charges()


def releases_above_holds() -> Problems:
    """An attempt releases no more in a period than it set aside there."""
    sums = JobRollup.objects.filter(kind__in=HOLDS).order_by("job_id", "attempt", "period_id")
    rows = sums.values("job_id", "attempt", "period_id", "period__name", "job__budget__path")
    totals = rows.annotate(
        held=Sum("amount_mgpus", filter=Q(kind=Kind.HOLD), default=0),
        released=Sum("amount_mgpus", filter=Q(kind=Kind.RELEASE), default=0),
    )
    for one in totals.filter(released__gt=F("held")).iterator(CHUNK):
        yield EntryProblem(
            "hold",
            f"job {one['job_id']}, attempt {one['attempt']}, of {one['job__budget__path']}, "
            f"{one['period__name']}: {one['released']} mGPU-s released, {one['held']} were set "
            "aside",
        )


def orphans() -> Problems:
    """What is set aside is for a job that waits or a run that is live."""
    found = {mine: left for mine, left in orphan_holds().items() if sum(left.values()) > 0}
    jobs = Job.objects.filter(pk__in={mine.job_id for mine in found})
    paths = dict(jobs.values_list("pk", "budget__path"))
    for mine, left in sorted(found.items()):
        yield EntryProblem(
            "orphan hold",
            f"job {mine.job_id}, attempt {mine.number}, of {paths[mine.job_id]}: "
            f"{sum(left.values())} mGPU-s held for what will never run",
        )


def without_a_job() -> Problems:
    """A hold says whose it is."""
    nobodys = Entry.objects.filter(kind__in=HOLDS, job=None).select_related("budget", "period")
    for entry in nobodys.order_by("pk").iterator(CHUNK):
        yield EntryProblem(
            "hold",
            f"{entry.key}, of {entry.budget.path}, {entry.period.name}: {entry.kind} of "
            f"{entry.amount_mgpus} mGPU-s for no job",
        )


def carried_unlike_released() -> Problems:
    """What is set aside in a period from the one before was released there: the same amount."""
    key = Concat(Value("release:"), Substr(OuterRef("key"), len("hold:") + 1))
    there = Entry.objects.filter(kind=Kind.RELEASE, key=key).values("amount_mgpus")
    into = Entry.objects.filter(kind=Kind.HOLD, key__contains=":into:")
    found = into.annotate(released=Coalesce(Subquery(there), 0)).exclude(amount_mgpus=F("released"))
    for hold in found.select_related("budget", "period").order_by("pk").iterator(CHUNK):
        yield EntryProblem(
            "hold",
            f"job {hold.job_id}, attempt {hold.attempt}, of {hold.budget.path}: "
            f"{hold.amount_mgpus} mGPU-s set aside in {hold.period.name} from the period before, "
            f"where {hold.released} were released",
        )


# --- Refunds and late ends -----------------------------------------------------------------------

Correction = tuple[int, int, str, int]  # ids of a run and a period, key, what it gives back


def refunds_above_charges() -> Problems:
    """Of what a run was charged in a period no more comes back, whichever period it stands in."""
    periods = dict(Period.objects.values_list("pk", "name"))
    for some in _batches():
        runs = {one[0] for one in some}
        back, charged = _given_back(some), _charged(runs)
        wrong = [place for place in sorted(back) if back[place] > charged.get(place, 0)]
        rows = Run.objects.filter(pk__in={run_id for run_id, _ in wrong})
        paths = dict(rows.values_list("pk", "job__budget__path"))
        for run_id, period_id in wrong:
            place = run_id, period_id
            yield EntryProblem(
                "refund",
                f"run {run_id} of {paths[run_id]}, {periods[period_id]}: {back[place]} mGPU-s "
                f"given back of {charged.get(place, 0)} charged",
            )


def _batches() -> Iterator[list[Correction]]:
    """Yield corrections of runs, a few hundred at a time; all of one run together."""
    rows = Entry.objects.filter(kind__in=(Kind.REFUND, Kind.ADJUST)).exclude(run=None)
    values = rows.order_by("run_id", "pk").values_list(
        "run_id", "period_id", "key", "kind", "amount_mgpus"
    )
    some: list[Correction] = []
    for _, mine in groupby(values.iterator(CHUNK), key=itemgetter(0)):
        some += (
            (run_id, period_id, key, amount if kind == Kind.REFUND else -amount)
            for run_id, period_id, key, kind, amount in mine
        )
        if len(some) >= AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _given_back(some: Iterable[Correction]) -> dict[Place, int]:
    """Return what came back of each run's charges of each period; the key names one of them."""
    about = {key: charge_key(key) for _, _, key, _ in some}
    charges = Entry.objects.filter(kind=Kind.CHARGE, key__in={one for one in about.values() if one})
    period_of = dict(charges.values_list("key", "period_id"))
    total: dict[Place, int] = defaultdict(int)
    for run_id, period_id, key, amount in some:
        total[run_id, period_of.get(about[key] or "", period_id)] += amount
    return total


def _charged(runs: Iterable[int]) -> dict[Place, int]:
    mine = Entry.objects.filter(kind=Kind.CHARGE, run__in=runs).order_by()
    rows = mine.values_list("run_id", "period_id").annotate(total=Sum("amount_mgpus"))
    return {(run_id, period_id): total for run_id, period_id, total in rows}
