"""Ways in which books may come to be wrong, each written straight into the database."""

from typing import Any

from django.db.models import F

from clusters.models import GpuState, PoolRate
from ledger import reports
from ledger.instants import iso, to_seconds
from ledger.models import ClosedTimestep, Entry, JobRollup, JobSettled, Rollup
from tests.factories import T0, T1, TIMESTEP, make_budget, make_period, make_shares, make_user
from tests.reconcile_world import AUK, BORDER, END, MINUTE, PETREL, TERN, Books
from workloads.models import Holding, Run

LAST_STEP = "2026-10-01T01:30:00Z"


def of(key: str) -> Any:
    rows = Entry.objects.filter(key=key)
    assert rows.exists(), key
    return rows


def charge(run: Run) -> Any:
    return of(f"charge:{run.pk}:{LAST_STEP}")


def add(like: Entry, **changes: Any) -> None:
    """Write an entry as one that is there, but for some of it."""
    columns = [field.name for field in Entry._meta.concrete_fields if not field.primary_key]
    Entry.objects.bulk_create([Entry(**{name: getattr(like, name) for name in columns} | changes)])


def wrong_amount(books: Books) -> None:
    charge(books.long).update(amount_mgpus=14_400_007)


def unfunded_second(books: Books) -> None:
    rows = Entry.objects.filter(run=books.free, timestep=BORDER, kind="charge")
    assert rows.update(funded=True, amount_mgpus=3_600_000) == 1


def missing_charge(books: Books) -> None:
    charge(books.long).delete()


def charged_twice(books: Books) -> None:
    add(charge(books.long).get(), key="forged")


def overlapping(books: Books) -> None:
    rest = {"gpu_seconds": 480, "amount_mgpus": 480_000}
    add(charge(books.long).get(), key="forged", at=END - MINUTE, **rest)


def unlike_holding(books: Books) -> None:
    charge(books.long).update(gpu_seconds=12_600, amount_mgpus=12_600_000)


def parked_above_held(books: Books) -> None:
    charge(books.long).update(parked_gpu_seconds=14_401)


def hold_without_job(books: Books) -> None:
    of(f"hold:{books.long.job_id}:1:{iso(END)}").update(job=None)


def never_released(books: Books) -> None:
    of(f"release:{books.killed.job_id}:1:end").delete()


def release_above_hold(books: Books) -> None:
    release = of(f"release:{books.long.pk}:{LAST_STEP}")
    release.update(amount_mgpus=28_800_005)


def carried_hold(books: Books) -> None:
    of(f"hold:{books.waiting.pk}:1:into:{books.second.pk}").update(amount_mgpus=28_800_001)


def refund_above_charges(books: Books) -> None:
    of(f"refund:{books.killed.pk}:2026-10-01T01:00:00Z").update(amount_mgpus=3_600_007)


def half_a_transfer(books: Books) -> None:
    of(f"transfer:petrel-auk:{books.tree[PETREL].pk}").delete()


def unbalanced_transfer(books: Books) -> None:
    of(f"transfer:petrel-auk:{books.tree[AUK].pk}").update(amount_mgpus=14_400_005)


def unbalanced_old_transfer(books: Books) -> None:
    """Of before there were marks of who gave to whom."""
    of(f"grant:way:petrel-auk:{books.tree[PETREL].pk}:{books.tree[AUK].pk}").delete()
    unbalanced_transfer(books)


def half_a_move(books: Books) -> None:
    vision = books.tree["orlo/vision"].pk
    of(Entry.objects.get(key__startswith="move:", budget=vision).key).delete()


def carry_above_cap(books: Books) -> None:
    of(f"carry:{books.second.pk}:{books.tree[TERN].pk}").update(amount_mgpus=360_000_009)


def carry_in_wrong_period(books: Books) -> None:
    rows = Entry.objects.filter(key=f"carry:{books.second.pk}:{books.tree[TERN].pk}")
    rows.update(period=books.first)


def grant_unlike_shares(books: Books) -> None:
    key = f"grant:{books.second.pk}:{books.tree[TERN].pk}:{books.pool.pk}"
    of(key).update(amount_mgpus=1_440_000_003)


def change_unlike_shares(books: Books) -> None:
    rows = Entry.objects.filter(key__startswith="grant:change:", budget=books.tree["orlo/vision"])
    of(rows.exclude(amount_mgpus=0).get().key).update(amount_mgpus=359_918_440)


def granted_below_claims(books: Books) -> None:
    key, tern = "grant:by-hand:forged", books.tree[TERN]
    like = of(f"grant:{books.second.pk}:{tern.pk}:{books.pool.pk}").get()
    figures = reports.figures(period=books.second, now=END)[tern.pk]
    add(like, key=key, amount_mgpus=28_800_000 - figures.granted_mgpus - 14_400_000 - 1)


def after_closing(books: Books) -> None:
    of(f"hold:{books.waiting.pk}:1").update(created_at=END)


def on_a_divided_budget(books: Books) -> None:
    petrel = books.tree[PETREL]
    make_shares(petrel, {make_budget("chick", parent=petrel): 100_000}, at=END - TIMESTEP)


def on_another_budget(books: Books) -> None:
    charge(books.long).update(budget=books.tree[TERN])


def in_another_period(books: Books) -> None:
    third = make_period("third", starts_at=T1, ends_at=T1 + TIMESTEP, status="approved")
    charge(books.long).update(period=third)


def gap(books: Books) -> None:
    start = T0 - 4 * TIMESTEP
    ClosedTimestep.objects.create(start=start, end=start + TIMESTEP, closed_at=T0)


def over_a_change_of_rate(books: Books) -> None:
    PoolRate.objects.create(pool=books.pool, effective_at=END - MINUTE, rate_per_mille=2000)


def late_end(books: Books) -> None:
    rows = (Run.objects.filter(pk=books.long.pk), Holding.objects.filter(run=books.long))
    for one in rows:
        one.update(ended_at=END - MINUTE)


def node_state_gap(books: Books) -> None:
    GpuState.objects.filter(node=books.nodes[1], at=END - TIMESTEP).update(free=0b1111)


def wrong_sum(books: Books) -> None:
    rows = Rollup.objects.filter(size=Rollup.Size.HOUR, since=to_seconds(BORDER), kind="charge")
    rows.filter(budget=books.tree[PETREL]).update(amount_mgpus=F("amount_mgpus") + 7)


def missing_sum(books: Books) -> None:
    rows = Rollup.objects.filter(size=Rollup.Size.HOUR, since=to_seconds(BORDER), kind="charge")
    rows.filter(budget=books.tree[PETREL]).delete()


def wrong_total(books: Books) -> None:
    rows = Rollup.objects.filter(size=Rollup.Size.PERIOD, period=books.second, kind="charge")
    rows.filter(budget=books.tree[PETREL]).update(amount_mgpus=F("amount_mgpus") + 7)


def wrong_sum_of_a_job(books: Books) -> None:
    rows = JobSettled.objects.filter(job=books.long.job_id, period=books.second)
    rows.update(gpu_seconds=F("gpu_seconds") - 1)


def sum_of_anothers_job(books: Books) -> None:
    rows = JobSettled.objects.filter(job=books.long.job_id, period=books.second)
    rows.update(person=make_user("other"))


def wrong_sum_of_an_attempt(books: Books) -> None:
    rows = JobRollup.objects.filter(job=books.long.job_id, period=books.second, kind="hold")
    rows.update(amount_mgpus=F("amount_mgpus") + 7)


def without_a_run(books: Books) -> None:
    charge(books.long).update(run=None)
