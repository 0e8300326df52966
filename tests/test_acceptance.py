"""The acceptance tests of day one, row by row, at the level of the whole product.

Rows 1 to 16, shares and what may be spent; the others stand in test_acceptance_ledger.py.
Each class is a row: what goes wrong elsewhere, and what must hold here. The finer tests of each
part stand with that part.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import cycle, repeat
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connections, transaction
from django.db.models import Sum
from rest_framework.test import APIClient

from allocator import entitlements
from allocator.core.fairshare import ShareNode, factors
from budgets import shares
from budgets.models import Budget, ChangeSet, Share
from clusters.models import Node, SimulatedFault
from ledger import holds, reports
from ledger import services as ledger
from ledger.models import Entry
from ledger.rollups import Fact, sums_of
from tests import factories as make
from tests.acceptance_world import API, MINUTE, figures_of, root_api
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import CREDIT, Institute, make_institute
from tests.ledger_world import ledger as book
from tests.pages_world import client_of, text_of
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db


class TestRow1ChildrenNeverTotalMoreThanTheirParent:
    """33.333 + 33.333 + 33.334 is accepted and 60 + 50 refused, wherever shares are written."""

    PARENT = "orlo/science/petrel"

    @pytest.fixture
    def api(self, tree: dict[str, Budget], noon: datetime, settings: Any) -> APIClient:
        settings.REPLAN_AT_ONCE = False
        make.make_pool("h100")
        make.make_pool("l40s")
        api = root_api()
        for slug, share in (("a", 33_333), ("b", 33_333), ("c", 33_334)):
            body = {"parent": self.PARENT, "slug": slug, "name": slug.title(), "share": share}
            assert api.post(API, body | {"reason": "thirds"}).status_code == 201
        return api

    def refused(self, answer: Any, *, binds: str) -> None:
        assert answer.status_code == 400
        detail = answer.json()["detail"]
        assert "too much" in detail
        assert f"{binds} (" in detail, "the row that sets the bound is named"

    def test_on_create(self, api: APIClient) -> None:
        body = {"parent": self.PARENT, "slug": "d", "name": "D", "share": 1, "reason": "more"}
        self.refused(api.post(API, body), binds=f"{self.PARENT}/d")

    def test_on_edit(self, api: APIClient) -> None:
        body = {"shares": {"a": 60_000, "b": 50_000, "c": 0}, "reason": "r", "base_version": 3}
        self.refused(api.post(f"{API}{self.PARENT}/change-sets/", body), binds=f"{self.PARENT}/a")

    def test_on_move(self, api: APIClient) -> None:
        body = {"to": self.PARENT, "share": 1, "reason": "closer"}
        self.refused(api.post(f"{API}orlo/science/auk/move/", body), binds=f"{self.PARENT}/auk")

    def test_on_reactivation(self, api: APIClient) -> None:
        gone = f"{API}{self.PARENT}/c/"
        siblings = {"a": 50_000, "b": 50_000}
        answer = api.post(f"{gone}archive/", {"reason": "done", "siblings": siblings})
        assert answer.status_code == 200
        body = {"share": 1, "reason": "not done"}
        self.refused(api.post(f"{gone}reactivate/", body), binds=f"{self.PARENT}/c")

    def test_for_every_type_of_gpu(self, api: APIClient) -> None:
        body = {
            "shares": {"a": 33_333, "b": 33_333, "c": 33_334},
            "overrides": {"a": {"l40s": 60_000}, "b": {"l40s": 50_000}, "c": {"l40s": 0}},
            "reason": "r",
            "base_version": 3,
        }
        answer = api.post(f"{API}{self.PARENT}/change-sets/", body)
        self.refused(answer, binds=f"{self.PARENT}/a")
        assert "in l40s" in answer.json()["detail"]

    def test_in_the_form(self, api: APIClient, cast: dict[str, User]) -> None:
        typed = {
            "base_version": "3", "when": "now", "effective_at": "", "do": "approve",
            "reason": "r", "share.a": "60", "share.b": "50", "share.c": "0",
        }  # fmt: skip
        page = client_of(cast["admin"]).post(f"/budgets/{self.PARENT}/shares", typed)
        assert page.status_code == 422
        assert "too much" in text_of(page)

    def test_in_the_database(self, api: APIClient, cast: dict[str, User]) -> None:
        parent = Budget.objects.get(path=self.PARENT)
        draft = ChangeSet.objects.create(
            parent=parent, version=4, reason="raw", author=cast["admin"], created_at=T0,
            effective_at=T0,
        )  # fmt: skip
        for child, share in zip(parent.children.order_by("slug"), (60_000, 50_000, 0), strict=True):
            Share.objects.create(change_set=draft, budget=child, thousandths=share)
        with pytest.raises(DatabaseError, match="total more than 100 %"), transaction.atomic():
            ChangeSet.objects.filter(pk=draft.pk).update(status="approved")
        for value in (-1, 100_001):
            row = Share.objects.filter(change_set=draft)
            with pytest.raises(DatabaseError), transaction.atomic():
                row.update(thousandths=value)


class TestRow2WhatIsShownIsSpendable:
    """Spendable is the least over the ancestors, and one child's overspend locks no sibling."""

    def test_own_balance_spendable_and_given_to_children_stand_apart(self, noon: datetime) -> None:
        place = make_institute(credits=0)
        for path, credits in {"orlo": 300, "orlo/science": 200}.items():
            give_one(place, path, credits)
        give_one(place, "orlo/science/petrel", 800)
        api = root_api()
        petrel, science = (figures_of(api, p) for p in ("orlo/science/petrel", "orlo/science"))
        assert petrel["granted_mgpus"] == 800 * CREDIT
        assert petrel["spendable_mgpus"] == 200 * CREDIT
        assert science["reserve_mgpus"] == (200 - 800) * CREDIT

    def test_one_child_at_zero_locks_no_sibling(self) -> None:
        place = make_institute(credits={"orlo/science/petrel": 4, "orlo/science/auk": 8})
        long = place.submit(place.petrel, minimum_runtime_s=1800, lasts=4 * 3600)
        place.play(T0, T0 + 2 * HOUR)
        assert Entry.objects.filter(job=long, funded=False).exists(), "it went on unfunded"
        at = T0 + 2 * HOUR
        assert reports.spendable(budget=place.petrel, now=at) == 0
        assert reports.spendable(budget=place.auk, now=at) == 8 * CREDIT
        assert place.submit(place.auk, at).funded

    def test_nor_does_one_that_overspends_while_nobody_ticks(self) -> None:
        """petrel's 4 credits last half an hour; for two hours no cycle stops charging it."""
        place = make_institute(credits={"orlo/science/petrel": 4, "orlo/science/auk": 8})
        long = place.submit(place.petrel, minimum_runtime_s=1800, lasts=4 * 3600)
        place.cycle(T0)
        at = T0 + 2 * HOUR
        seen = reports.figures(period=place.period, now=at)
        petrel, auk = seen[place.petrel.pk], seen[place.auk.pk]
        assert (petrel.in_flight_mgpus, petrel.spendable_mgpus) == (4 * CREDIT, 0)
        assert auk.spendable_mgpus == 8 * CREDIT
        assert place.submit(place.auk, at).funded
        place.play(at, at + TIMESTEP)  # catches up: what petrel couldn't pay ran unfunded
        charged = Entry.objects.filter(job=long, kind="charge")
        assert charged.aggregate(sum=Sum("amount_mgpus"))["sum"] == 4 * CREDIT

    def test_the_screen_shows_the_three_apart(self, noon: datetime, settings: Any) -> None:
        place = make_institute(credits=0)
        give_one(place, "orlo", 300)
        give_one(place, "orlo/science", 200)
        give_one(place, "orlo/science/petrel", 130)
        give_one(place, "orlo/vision/tern", 50)
        client = client_of(make.make_user(is_superuser=True))
        science, petrel, tern = (
            text_of(client.get(f"/budgets/orlo/{path}"))
            for path in ("science", "science/petrel", "vision/tern")
        )
        assert "Granted 200 cr" in science
        assert "Spendable 200 cr bound by Science itself" in science
        assert "70 cr of the grant are in reserve" in science
        assert "Spendable 130 cr bound by Petrel itself" in petrel
        assert "Granted 50 cr" in tern
        assert "Spendable 0 cr bound by Vision" in tern


def give_one(place: Institute, path: str, credits: int) -> None:
    """Grant credits to one budget alone."""
    ledger.grant(
        budget=place.tree[path], amount_mgpus=credits * CREDIT, author=place.user,
        note="for the test", key=path, now=T0,
    )  # fmt: skip


class TestRow4AShareOfZeroIsDefined:
    """Share 0: only unfunded, preemptible work. All siblings 0: equal, still running."""

    def test_all_siblings_at_zero_run_unfunded_and_alike(self) -> None:
        zero = make.TREE | {"orlo/science/petrel": 0, "orlo/science/auk": 0}
        place = make_institute(shares=zero, credits={"orlo/vision/tern": 100})
        jobs = [
            place.submit(leaf, when_unfunded="run", lasts=1800)
            for leaf in (place.petrel, place.auk)
        ]
        place.play(T0, T0 + HOUR)
        for job in jobs:
            job.refresh_from_db()
            assert (job.state, job.funded) == (Job.State.COMPLETED, False)
        assert not Entry.objects.filter(job__in=jobs).exclude(amount_mgpus=0).exists()

    def test_no_infinity_and_no_nan_reaches_a_sort(self) -> None:
        rows = [ShareNode("o", None, 1, 0)]
        rows += [ShareNode(f"zero{n}", "o", 0, n) for n in range(3)]
        rows += [ShareNode("unused", "o", 1, 0), ShareNode("used", "o", 1, 10**30)]
        found = dict(factors(rows))
        assert found["unused"] > found["used"] > found["zero0"]
        assert found["zero0"] == found["zero1"] == found["zero2"]
        assert all(0 < factor <= 1 for factor in found.values())

    def test_inside_is_never_preempted_for_outside_nor_let_back_in_ahead(self) -> None:
        """tern is inside its 40 % on one node of two; petrel's share is 0, so all of it is out."""
        zero = make.TREE | {"orlo/science": 0}
        place = make_institute(shares=zero, credits={"orlo/vision/tern": 1000})
        inside = place.submit(place.tern, minimum_runtime_s=60, lasts=6 * 3600)
        place.cycle(T0)
        for _ in range(2):
            place.submit(place.petrel, T0 + MINUTE, when_unfunded="run", lasts=6 * 3600)
        place.play(T0 + 5 * MINUTE, T0 + 2 * HOUR)
        assert inside.runs.get().state == Run.State.RUNNING
        # And an outsider's run makes room for who is inside, and stays behind it.
        late = place.submit(place.tern, T0 + 2 * HOUR, gpus=4)
        place.play(T0 + 2 * HOUR, T0 + 3 * HOUR)
        late.refresh_from_db()
        assert late.state == Job.State.RUNNING
        victim = Run.objects.get(end_reason=Run.EndReason.PREEMPTED)
        assert victim.job.budget == place.petrel
        assert not victim.job.runs.filter(started_at__lte=late.runs.get().started_at).exclude(
            pk=victim.pk
        )


class TestRow6OneBrokenGpuStopsNobody:
    """Kill 1 of N GPUs: entitlements scale, a warning shows, scheduling goes on."""

    def test_with_one_of_eight_down_work_goes_on(self, noon: datetime, settings: Any) -> None:
        place = make_institute(nodes=8, gpus=1)
        broken = T0 + 2 * HOUR
        SimulatedFault.objects.create(node=place.nodes[0], starts_at=broken, ends_at=T0 + 24 * HOUR)
        jobs = [place.submit(place.petrel, gpus=1, lasts=3600) for _ in range(7)]
        place.play(T0, broken)
        full = entitled(broken)
        later = [place.submit(place.tern, broken, gpus=1, lasts=3600) for _ in range(7)]
        place.play(broken, T0 + 12 * HOUR)
        for job in (*jobs, *later):
            job.refresh_from_db()
            assert job.state == Job.State.COMPLETED
        # Eight GPUs for two hours, then seven for ten; each share of that.
        step = TIMESTEP.total_seconds()
        whole = 8 * 7200 + 7 * 36_000 + 7 * step
        assert entitled(noon)["orlo"] == whole
        assert entitled(noon)["orlo/vision"] == whole * 4 // 10
        assert full["orlo"] == 8 * 7200 + 7 * step
        page = text_of(client_of(make.make_user(is_superuser=True)).get("/"))
        assert f"{place.nodes[0].name} is down" in page


def entitled(at: datetime) -> dict[str, int]:
    """Entitlements of a window that begins with the nodes' first second, by path."""
    Node.objects.update(active_from=T0)
    nodes = entitlements.budget_nodes(tree=shares.tree(at=at), at=at, until=at + TIMESTEP)
    return {node.path: node.entitled for node in nodes}


class TestRow9TheLedgerNeverForgets:
    """Changing the half-life changes the order only: the ledger is identical to the last unit."""

    def test_burn_reports_are_byte_for_byte_the_same(self, noon: datetime, settings: Any) -> None:
        place = make_institute()
        place.submit(place.petrel, gpus=8, lasts=3600)
        place.play(T0, T0 + 2 * HOUR)
        place.submit(place.auk, T0 + 2 * HOUR, gpus=2, lasts=3 * 3600)
        place.play(T0 + 2 * HOUR, T0 + 5 * HOUR)
        api, seen, order = root_api(), [], []
        for half_life in (0, 1, 168):
            settings.USAGE_HALF_LIFE_HOURS = half_life
            burn = api.get(f"{API}orlo/burn/", {"by": "leaf"})
            assert burn.status_code == 200
            seen.append((burn.content, api.get(API).content, book()))
            at = T0 + 5 * HOUR
            nodes = entitlements.budget_nodes(tree=shares.tree(at=at), at=at, until=at + TIMESTEP)
            found = entitlements.factors(nodes)
            order.append(found["orlo/science/petrel"] > found["orlo/science/auk"])
        assert seen[0] == seen[1] == seen[2]
        assert order == [False, True, False], "eight long ago, six of late"


class TestRow11SmallUseAddsUp:
    """1 GPU × 1 s × 10⁶ rows sums exactly; 5 minutes decayed by 168 h is more than nothing."""

    @pytest.mark.once
    def test_a_million_seconds_are_a_million_seconds(self) -> None:
        second = Fact(1, 1, "charge", True, False, 1, 1, 1, 0, 1, 1, 0)  # at rate 1 per mille
        found = sums_of(repeat(second, 10**6), {1: UTC})
        assert {sums[:2] for sums in found.values()} == {(10**6, 10**6)}

    def test_the_case_that_was_cut_to_zero(self) -> None:
        place = make_institute()
        place.submit(place.petrel, gpus=1, lasts=300, minimum_runtime_s=300)
        place.play(T0, T0 + HOUR)
        for hours in (1, 24, 167):
            end = T0 + hours * HOUR
            used = reports.usage_window(
                start=end - 168 * HOUR, end=end, now=end, half_life_hours=168
            )
            assert 0 < used[place.petrel.pk] <= 300_000


class TestRow16NothingIsSpentTwice:
    """50 threads submit against funds for 10: exactly 10 are funded."""

    @pytest.mark.django_db(transaction=True)
    def test_fifty_against_funds_for_ten(self) -> None:
        place = make_institute(credits={"orlo/science/petrel": 80})
        results = at_once(lambda: place.submit(place.petrel, gpus=8), 50)
        assert [type(result) for result in results] == [Job] * 50, results
        assert sum(job.funded for job in results) == 10
        assert Entry.objects.filter(kind="hold").aggregate(held=Sum("amount_mgpus")) == {
            "held": 80 * CREDIT
        }
        assert reports.spendable(budget=place.petrel, now=T0) == 0
        place.check(at=T0)

    @pytest.mark.django_db(transaction=True)
    def test_nor_by_many_projects_out_of_what_is_above_all(self) -> None:
        """Each has credits for 50 of its own; their program has them for 9."""
        more = {f"orlo/science/p{number}": 0 for number in range(23)}
        place = make_institute(credits=0, shares=make.TREE | more)
        for path, credits in {"orlo": 400, "orlo/science": 72}.items():
            give_one(place, path, credits)
        for path in more:
            give_one(place, path, 400)
        leaves = cycle([place.tree[path] for path in more])
        results = at_once(lambda: place.submit(next(leaves), gpus=8), 50)
        assert [type(result) for result in results] == [Job] * 50, results
        assert sum(job.funded for job in results) == 9
        assert {reports.spendable(budget=place.tree[path], now=T0) for path in more} == {0}

    def test_a_hold_that_cannot_be_written_leaves_no_job_behind(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = make_institute()

        def broken(*args: Any, **kwargs: Any) -> None:
            raise DatabaseError("the disk is full")

        monkeypatch.setattr(holds, "write", broken)
        with pytest.raises(DatabaseError):
            place.submit(place.petrel)
        assert not Job.objects.exists()
        assert not Entry.objects.filter(kind="hold").exists()


def at_once(work: Callable[[], Any], number: int) -> list[Any]:
    barrier = threading.Barrier(number)
    results: list[Any] = []

    def one() -> None:
        try:
            barrier.wait(timeout=60)
            results.append(work())
        except Exception as error:
            results.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
