"""The acceptance tests of day one, rows 17 to 29: charges, corrections, periods, the past.

Each class is a row: what goes wrong elsewhere, and what must hold here.
"""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.db import transaction
from django.db.models import ProtectedError, Sum

from allocator import cycle
from budgets import services
from budgets.models import Period
from clusters.models import SimulatedFault, SimulatedTask
from ledger import holds, reports
from ledger import services as ledger
from ledger.entries import Attempt
from ledger.instants import LedgerError
from ledger.models import ClosedTimestep, Entry
from tests import factories as make
from tests.acceptance_world import API, MINUTE, root_api
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import CREDIT, make_institute
from tests.ledger_world import ledger as book
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db


class TestRow17NothingSpentIsInvisible:
    """Settled, in flight and held; what a job did not use is released as it ends."""

    def test_each_second_is_in_exactly_one_part(self, noon: datetime) -> None:
        place = make_institute(credits={"orlo/science/petrel": 100})
        job = place.submit(place.petrel, minimum_runtime_s=7200, lasts=3 * 3600)
        parts = []
        place.cycle(T0)
        for at in (T0, T0 + 10 * MINUTE):
            parts.append(reports.figures(period=place.period, now=at)[place.petrel.pk])
        place.play(T0 + 30 * MINUTE, T0 + HOUR)
        parts.append(reports.figures(period=place.period, now=T0 + HOUR)[place.petrel.pk])
        seen = [(p.settled_mgpus, p.in_flight_mgpus, p.held_mgpus) for p in parts]
        tenth = 8 * 600 * 1000
        assert seen[0] == (0, 0, 16 * CREDIT)
        assert seen[1] == (0, tenth, 16 * CREDIT - tenth)
        assert seen[2] == (8 * CREDIT, 0, 8 * CREDIT)
        assert job.runs.get().state == Run.State.RUNNING

    def test_a_job_that_ends_at_a_tenth_gives_nine_tenths_back_at_once(self) -> None:
        place = make_institute(credits={"orlo/science/petrel": 100})
        place.submit(place.petrel, minimum_runtime_s=3600, lasts=360)
        place.cycle(T0)
        end = T0 + 6 * MINUTE
        place.cycle(end)
        mine = reports.figures(period=place.period, now=end)[place.petrel.pk]
        assert mine.held_mgpus == 0
        assert mine.in_flight_mgpus == 8 * CREDIT // 10
        assert mine.spendable_mgpus == 100 * CREDIT - 8 * CREDIT // 10

    def test_orphan_holds_expire_by_a_sweeper(self) -> None:
        place = make_institute()
        job = place.submit(place.petrel)
        Job.objects.filter(pk=job.pk).update(state="failed", ended_at=T0)  # as no service would
        assert holds.orphan_holds() == {Attempt(job.pk, job.attempt): {place.period.pk: 8 * CREDIT}}
        (swept,) = ledger.sweep_holds(now=T0 + MINUTE)
        assert (swept.job_id, swept.amount_mgpus) == (job.pk, 8 * CREDIT)
        assert holds.orphan_holds() == {}
        assert ledger.sweep_holds(now=T0 + 2 * MINUTE) == []


class TestRow20EachSecondIsChargedOnce:
    """Replays, restarts, requeues and reused ids of a cluster leave the ledger equal."""

    def test_replaying_the_day_changes_nothing(self) -> None:
        place = make_institute()
        SimulatedFault.objects.create(
            node=place.nodes[0], starts_at=T0 + 40 * MINUTE, ends_at=T0 + HOUR
        )
        for _ in range(3):
            place.submit(place.petrel, lasts=2 * 3600, minimum_runtime_s=0, when_unfunded="run")
            place.submit(place.auk, lasts=2 * 3600)
        place.play(T0, T0 + 12 * HOUR)
        before = book()
        for one in ClosedTimestep.objects.all():
            assert not ledger.close_timestep(
                start=one.start, end=one.end, parked={}, now=T0 + 13 * HOUR
            )
        for run in Run.objects.filter(end_reason=Run.EndReason.NODE_FAILURE):
            ledger.refund_run(run=run, now=T0 + 13 * HOUR, policy="all")
        cycle.run(at=T0 + 12 * HOUR, trigger="test")
        cycle.run(at=T0 + 12 * HOUR, trigger="test")
        assert book() == before
        place.check(at=T0 + 12 * HOUR)

    def test_each_requeue_is_a_run_of_its_own_whatever_its_cluster_calls_it(self) -> None:
        """A cluster is given our id, job and attempt, so none comes round again."""
        place = make_institute()
        (node, *_) = place.nodes
        job = make.make_job(place.petrel, gpus=1)
        runs = [
            make.make_run(
                job,
                {node: 0b1},
                started_at=T0 + number * 10 * MINUTE,
                ended_at=T0 + (number + 1) * 10 * MINUTE,
            )
            for number in range(3)
        ]
        assert len({run.external_id for run in runs}) == 3
        for _ in range(2):
            ledger.close_timestep(start=T0, end=T0 + TIMESTEP, parked={}, now=T0 + TIMESTEP)
        charges = Entry.objects.filter(kind="charge")
        assert sorted(charges.values_list("run_id", "gpu_seconds")) == [
            (run.pk, 600) for run in runs
        ]
        assert len(set(charges.values_list("key", flat=True))) == 3

    @pytest.mark.parametrize("still_runs", [False, True])
    def test_a_name_that_comes_round_again_takes_nothing_of_who_had_it(
        self, still_runs: bool
    ) -> None:
        """A cluster has known a run by the new one's name for nine years, of somebody else."""
        place = make_institute()
        job = place.submit(place.petrel, gpus=1, lasts=3600)
        then = T0.replace(year=2017)
        old = SimulatedTask.objects.create(
            cluster=place.cluster, external_id=f"allotment-{job.pk}-1", started_at=then,
            ends_at=None if still_runs else then + HOUR, outcome="failed",
        )  # fmt: skip
        for at in (T0, T0 + MINUTE, T0 + 2 * HOUR):
            cycle.run(at=at, trigger="test")
        job.refresh_from_db()
        assert job.state == Job.State.COMPLETED
        assert [run.end_reason for run in job.runs.all()] == ["refused", "completed"]
        (own,) = job.runs.exclude(started_at=None)
        assert (own.started_at, own.ended_at) == (T0 + MINUTE, T0 + HOUR + MINUTE)
        charges = Entry.objects.filter(kind="charge")
        assert {entry.run_id for entry in charges} == {own.pk}
        assert sum(entry.gpu_seconds for entry in charges) == 3600
        assert min(entry.at for entry in charges) == T0 + MINUTE
        old.refresh_from_db()
        assert (old.stopped_at is None) == still_runs, "and nobody has stopped it"


class TestRow21EveryGpuSecondIsSomewhere:
    """Σ charged + unfunded + free + down = inventory, per type of GPU and timestep."""

    def test_a_day_with_every_kind_of_work_is_conserved(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place = make_institute()
        SimulatedFault.objects.create(
            node=place.nodes[1], starts_at=T0 + 100 * MINUTE, ends_at=T0 + 200 * MINUTE
        )
        place.submit(place.petrel, lasts=5000)
        place.submit(place.auk, gpus=1, lasts=700, minimum_runtime_s=0, when_unfunded="run")
        place.serve(place.tern, profile=(2,) * 24, swap_cap=2)
        place.play(T0, T0 + 6 * HOUR)  # the invariants hold after every cycle, worked out by hand
        rows = reports.conservation(start=T0, end=T0 + 6 * HOUR)
        for row in rows:
            parts = row.charged + row.unfunded + row.free + row.down
            assert (parts, row.unaccounted) == (row.inventory, 0)
        assert sum(row.inventory for row in rows) == 16 * 6 * 3600
        assert sum(row.down for row in rows) == 8 * 6000
        assert sum(row.unfunded for row in rows) == 700
        call_command("reconcile")
        assert "clean" in capsys.readouterr().out.lower()

    def test_what_nobody_charged_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        place = make_institute()
        make.make_run(make.make_job(place.petrel), {place.nodes[0]: 0xFF})
        ClosedTimestep.objects.create(start=T0, end=T0 + TIMESTEP, closed_at=T0 + TIMESTEP)
        with pytest.raises(SystemExit) as ended:
            call_command("reconcile")
        assert ended.value.code == 1
        assert place.pool.slug in capsys.readouterr().out


class TestRow23CorrectionsAreEntries:
    """With reason, author and reference; a closed period gets none, the open one does."""

    def test_a_closed_period_is_corrected_in_the_open_one(self) -> None:
        place = make_institute(ends_at=T0 + HOUR)
        following = make.make_period("next", starts_at=T0 + HOUR, ends_at=T0 + 3 * HOUR)
        place.submit(place.petrel, lasts=1800)
        place.play(T0, T0 + HOUR)
        closed = Period.objects.get(pk=place.period.pk)
        assert closed.status == Period.Status.CLOSED, "by itself, once it was over and charged"
        before = Entry.objects.filter(period=closed).count()
        entry = ledger.adjust(
            budget=place.petrel, amount_mgpus=-CREDIT, author=place.user, of=closed,
            note="billed for a machine that never was", key="ticket-17", now=T0 + 2 * HOUR,
        )  # fmt: skip
        assert entry.period == following
        assert (entry.author, entry.note) == (place.user, "billed for a machine that never was")
        assert "ticket-17" in entry.key
        assert Entry.objects.filter(period=closed).count() == before
        again = ledger.adjust(
            budget=place.petrel, amount_mgpus=-CREDIT, author=place.user, of=closed,
            note="billed for a machine that never was", key="ticket-17", now=T0 + 2 * HOUR,
        )  # fmt: skip
        assert again == entry, "the same correction twice is one"

    def test_none_is_written_without_a_reason(self) -> None:
        place = make_institute()
        for note in ("", "  "):
            with pytest.raises(LedgerError, match="reason"):
                ledger.adjust(
                    budget=place.petrel, amount_mgpus=-CREDIT, author=place.user,
                    note=note, key="ticket-18", now=T0 + HOUR,
                )  # fmt: skip
        assert not Entry.objects.filter(kind="adjust").exists()

    def test_a_preemption_gives_nothing_back(self) -> None:
        """The minimum runtime made it worth having: what it held stays charged."""
        place = make_institute(credits={"orlo/vision/tern": 1000})
        free = [place.submit(place.petrel, when_unfunded="run", lasts=6 * 3600) for _ in range(2)]
        place.play(T0, T0 + HOUR)
        place.submit(place.tern, T0 + HOUR, gpus=4)
        place.play(T0 + HOUR, T0 + 2 * HOUR)
        stopped = Run.objects.filter(job__in=free, end_reason=Run.EndReason.PREEMPTED)
        assert stopped.exists()
        assert not Entry.objects.filter(kind="refund").exists()

    @pytest.mark.parametrize(("policy", "refunded"), [("all", 8 * 2400), ("none", 0)])
    def test_what_a_node_failure_gives_back_is_a_setting(
        self, settings: Any, policy: str, refunded: int
    ) -> None:
        settings.NODE_FAILURE_REFUND = policy
        place = make_institute()
        job = place.submit(place.petrel, lasts=2 * 3600)
        for node in place.nodes:
            SimulatedFault.objects.create(
                node=node, starts_at=T0 + 40 * MINUTE, ends_at=T0 + 50 * MINUTE
            )
        place.play(T0, T0 + HOUR)
        given = Entry.objects.filter(job=job, kind="refund").aggregate(sum=Sum("amount_mgpus"))
        assert (given["sum"] or 0) == refunded * 1000


class TestRow27ADayIsADayOnItsOwnClocks:
    """Half-open periods of a named zone: one reset each, runs are split, days have 25 or 23 h."""

    ZONE = ZoneInfo("America/New_York")

    @pytest.mark.parametrize(
        ("day", "hours", "border"),
        [
            ("2026-11-01", 25, datetime(2026, 11, 1, 4, tzinfo=UTC)),
            ("2026-03-08", 23, datetime(2026, 3, 8, 5, tzinfo=UTC)),
        ],
    )
    def test_a_run_over_the_border_is_split_and_the_day_is_whole(
        self, day: str, hours: int, border: datetime
    ) -> None:
        """A period ends where the day begins, and one GPU is held around the clock."""
        pool, tree = make.make_pool("h100"), make.make_tree()
        (node,) = make.make_nodes(pool, 1)
        zone, ahead, after = str(self.ZONE), border - 24 * HOUR, border + 48 * HOUR
        before = make.make_period("before", starts_at=ahead, ends_at=border, time_zone=zone)
        following = make.make_period("next", starts_at=border, ends_at=after, time_zone=zone)
        petrel = tree["orlo/science/petrel"]
        make.make_run(make.make_job(petrel, gpus=1), {node: 0b1}, started_at=ahead)
        for number in range(144):
            start = ahead + number * TIMESTEP
            ledger.close_timestep(start=start, end=start + TIMESTEP, parked={}, now=after)
        held = Entry.objects.filter(kind="charge").values_list("period__name")
        assert dict(held.annotate(sum=Sum("gpu_seconds"))) == {
            before.name: 24 * 3600, following.name: 48 * 3600,
        }  # fmt: skip
        days = reports.burn_by_day(budget=petrel, start=ahead, end=after, zone=self.ZONE)
        seconds = {f"{one.day}": one.busy_gpu_seconds + one.unfunded_gpu_seconds for one in days}
        assert seconds[day] == hours * 3600
        assert list(seconds).count(day) == 1
        assert sum(seconds.values()) == 72 * 3600


class TestRow29NothingWithEntriesIsDeleted:
    """Only archived; and totals of past periods do not move after a move."""

    def test_a_budget_can_be_archived_and_not_deleted(self, noon: datetime, settings: Any) -> None:
        settings.REPLAN_AT_ONCE = False
        place = make_institute()
        place.submit(place.auk, lasts=1800)
        place.play(T0, T0 + HOUR)
        for row in (place.auk, place.pool, place.user, place.period):
            with pytest.raises(ProtectedError), transaction.atomic():
                row.delete()
        api = root_api()
        assert api.delete(f"{API}orlo/science/auk/").status_code == 405
        assert api.post(f"{API}orlo/science/auk/archive/", {"reason": "done"}).status_code == 200
        listed = api.get(API, {"archived": "true"}).json()["budgets"]
        assert "orlo/science/auk" in [row["path"] for row in listed]
        assert (
            reports.figures(period=place.period, now=noon)[
                place.tree["orlo/science"].pk
            ].settled_mgpus
            == 4 * CREDIT
        )

    def test_past_totals_stay_after_a_move(self, noon: datetime, settings: Any) -> None:
        settings.REPLAN_AT_ONCE = False
        place = make_institute()
        place.submit(place.auk, lasts=3600)
        place.play(T0, T0 + 2 * HOUR)
        api = root_api()
        past = {"from": "2026-10-01T00:00:00Z", "to": "2026-10-01T06:00:00Z"}

        def burned() -> dict[str, int]:
            return {
                path: api.get(f"{API}{path}/burn/", past).json()["total"]["burned_mgpus"]
                for path in ("orlo", "orlo/science", "orlo/vision")
            }

        before = burned()
        assert before == {"orlo": 8 * CREDIT, "orlo/science": 8 * CREDIT, "orlo/vision": 0}
        services.move_budget(
            budget=place.auk, to=place.tree["orlo/vision"], share=0, author=place.user,
            reason="sees more than it hears", now=T0 + 8 * HOUR,
        )  # fmt: skip
        assert burned() == before

    def test_names_are_kept_as_of_the_time(self, noon: datetime, settings: Any) -> None:
        settings.REPLAN_AT_ONCE = False
        place = make_institute()
        place.submit(place.auk, lasts=1800)
        place.play(T0, T0 + HOUR)
        services.rename_budget(
            budget=place.auk, slug="puffin", name="Puffin", author=place.user, now=T0 + 8 * HOUR
        )
        api = root_api()

        def named(until: str) -> list[str]:
            asked = {"from": "2026-10-01T00:00:00Z", "to": until}
            rows = api.get(f"{API}orlo/science/burn/", asked).json()["rows"]
            return [row["name"] for row in rows if row["burned_mgpus"]]

        assert named("2026-10-01T06:00:00Z") == ["Auk"]
        assert named("2026-10-01T10:00:00Z") == ["Puffin"]
