"""Rows 1, 2, 4 and 11 of the acceptance tests, word by word; test_acceptance.py has each once.

What is accepted as well as what is refused, on every way by which shares are written; the formula
of what is spendable; share 0 from the first second; a million rows as real entries.
"""

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, models, transaction
from rest_framework.test import APIClient

from budgets.models import Budget, ChangeSet, Share
from clusters.models import Pool
from ledger import reports, services
from ledger.instants import LedgerError
from ledger.models import ClosedTimestep, Entry
from ledger.rollups import rebuild
from tests import factories as make
from tests.acceptance_world import API, root_api
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import CREDIT, Institute, make_institute
from tests.pages_world import client_of
from workloads.models import Holding, Job, Run

pytestmark = pytest.mark.django_db
PETREL = "orlo/science/petrel"
THIRDS = {"a": 33_333, "b": 33_333, "c": 33_334}
WHY = {"reason": "as agreed"}


@pytest.fixture
def api(tree: dict[str, Budget], noon: datetime, settings: Any) -> APIClient:
    """petrel's a, b and c with a third each; two types of GPU."""
    settings.REPLAN_AT_ONCE = False
    make.make_pool("h100")
    make.make_pool("l40s")
    api = root_api()
    for slug, share in THIRDS.items():
        body = {"parent": PETREL, "slug": slug, "name": slug.title(), "share": share}
        assert api.post(API, body | WHY).status_code == 201
    return api


def edit(api: APIClient, shares: dict[str, int], **more: Any) -> Any:
    version = ChangeSet.objects.filter(parent__path=PETREL).count()
    body = {"shares": shares, "base_version": version, **more}
    asked = api.post(f"{API}{PETREL}/change-sets/", body | WHY)
    if asked.status_code != 201:
        return asked
    return api.post(f"/api/v1/change-sets/{asked.json()['id']}/approve/", {})


def create(api: APIClient, share: int, **siblings: int) -> Any:
    body = {"parent": PETREL, "slug": "d", "name": "D", "share": share, "siblings": siblings}
    return api.post(API, body | WHY)


def move(api: APIClient, share: int, **siblings: int) -> Any:
    body = {"to": PETREL, "share": share, "siblings": siblings}
    return api.post(f"{API}orlo/science/auk/move/", body | WHY)


def reactivate(api: APIClient, share: int, **siblings: int) -> Any:
    body = {"share": share, "siblings": siblings}
    return api.post(f"{API}{PETREL}/c/reactivate/", body | WHY)


def archive(api: APIClient) -> None:
    assert api.post(f"{API}{PETREL}/c/archive/", WHY).status_code == 200


WAYS: dict[str, Callable[..., Any]] = {"create": create, "move": move, "reactivate": reactivate}


class TestRow1Shares:
    """33.333 + 33.333 + 33.334 is accepted and 60 + 50 refused, for every type of GPU."""

    @pytest.mark.parametrize("way", WAYS)
    def test_what_adds_up_to_the_last_thousandth_is_accepted(
        self, api: APIClient, way: str
    ) -> None:
        archive(api)
        assert edit(api, {"a": 33_333, "b": 33_333}).status_code == 200
        assert WAYS[way](api, 33_334).status_code in (200, 201)

    @pytest.mark.parametrize("way", WAYS)
    def test_60_and_50_are_refused(self, api: APIClient, way: str) -> None:
        archive(api)
        answer = WAYS[way](api, 50_000, a=60_000, b=0)
        assert (answer.status_code, "too much" in answer.json()["detail"]) == (400, True)

    @pytest.mark.parametrize("way", WAYS)
    def test_also_where_they_are_too_much_in_one_pool_only(self, api: APIClient, way: str) -> None:
        archive(api)
        pools = {"a": {"l40s": 60_000}, "b": {"l40s": 0}}
        assert edit(api, {"a": 10_000, "b": 10_000}, overrides=pools).status_code == 200
        answer = WAYS[way](api, 50_000)
        assert answer.status_code == 400
        assert "in l40s" in answer.json()["detail"]
        assert WAYS[way](api, 40_000).status_code in (200, 201)

    def test_an_edit_and_the_form_accept_it_too(
        self, api: APIClient, cast: dict[str, User]
    ) -> None:
        turned = {"a": 33_334, "b": 33_333, "c": 33_333}
        assert edit(api, turned).status_code == 200
        typed = {
            "base_version": "4", "when": "now", "effective_at": "", "do": "approve",
            "reason": "r", "share.a": "33.333", "share.b": "33.333", "share.c": "33.334",
        }  # fmt: skip
        page = client_of(cast["admin"]).post(f"/budgets/{PETREL}/shares", typed)
        assert page.status_code == 302
        assert ChangeSet.objects.filter(parent__path=PETREL, status="approved").count() == 5

    def test_the_database_looks_at_each_pool(self, api: APIClient, cast: dict[str, User]) -> None:
        parent, pool = Budget.objects.get(path=PETREL), Pool.objects.get(slug="l40s")
        draft = ChangeSet.objects.create(
            parent=parent, version=4, reason="raw", author=cast["admin"], created_at=T0,
            effective_at=T0,
        )  # fmt: skip
        for child, share in zip(parent.children.order_by("slug"), (60_000, 50_000, 0), strict=True):
            Share.objects.create(change_set=draft, budget=child, thousandths=10_000)
            Share.objects.create(change_set=draft, budget=child, pool=pool, thousandths=share)
        with pytest.raises(DatabaseError, match="total more than 100 %"), transaction.atomic():
            ChangeSet.objects.filter(pk=draft.pk).update(status="approved")

    def test_shares_are_whole_numbers_and_nothing_is_without_limit(self, api: APIClient) -> None:
        assert isinstance(Share._meta.get_field("thousandths"), models.PositiveIntegerField)
        for share in (-1, 0.1, "unlimited", None, True, 100_001):
            assert edit(api, THIRDS | {"a": share}).status_code == 400, share  # type: ignore[arg-type]
            assert create(api, share, c=0).status_code == 400, share  # type: ignore[arg-type]


class TestRow2Spendable:
    """spendable(node) = min over ancestors of (limit − settled − held)."""

    def test_it_is_that_of_all_entries_whatever_was_spent_and_set_aside(self) -> None:
        place = make_institute(credits={PETREL: 90, "orlo/science/auk": 30, "orlo/vision/tern": 50})
        for budget, gpus, lasts in (
            (place.petrel, 8, 9 * 3600), (place.auk, 4, 5000), (place.tern, 4, 700),
            (place.auk, 8, 3600), (place.tern, 8, 7200),
        ):  # fmt: skip
            place.submit(budget, gpus=gpus, lasts=lasts, minimum_runtime_s=min(lasts, 7200))
        for path, credits in {"orlo": -20, "orlo/science": -70, PETREL: 15}.items():
            services.grant(
                budget=place.tree[path], amount_mgpus=credits * CREDIT, author=place.user,
                note="unlike the shares", key=path, now=T0,
            )  # fmt: skip
        binding = set()
        for at in (T0 + HOUR, T0 + 2 * HOUR, T0 + 3 * HOUR):
            place.play(at - HOUR, at)
            free = free_by_hand(place)
            if at == T0 + 3 * HOUR:  # the organisation has less than anybody below it
                lowered = min(free.values()) - free["orlo"] - 1
                services.grant(
                    budget=place.tree["orlo"], amount_mgpus=max(lowered, -free["orlo"]), now=at,
                    author=place.user, note="less", key="less",
                )  # fmt: skip
                free = free_by_hand(place)
            for path, budget in place.tree.items():
                chain = [one for one in free if f"{path}/".startswith(f"{one}/")]
                least = min(chain, key=lambda one: free[one])
                assert reports.spendable(budget=budget, now=at) == free[least], (path, at)
                binding.add(path.count("/") - least.count("/"))
        assert binding == {0, 1, 2}, "by itself, by the one above it, by the organisation"

    def test_a_refusal_names_the_row_that_binds(self) -> None:
        place = make_institute(credits={PETREL: 90, "orlo/vision/tern": 50})
        spent: dict[str, Any] = {"author": place.user, "note": "x", "now": T0}
        services.adjust(budget=place.auk, amount_mgpus=70 * CREDIT, key="auk", **spent)
        ways: dict[str, Any] = {
            "source": place.petrel,
            "target": place.tern,
            "amount_mgpus": 40 * CREDIT,
        }
        with pytest.raises(LedgerError, match=r"^orlo/science has 20\.00 credits .*, not 40\.00"):
            services.transfer(**ways, key="t", **spent)


def free_by_hand(place: Institute) -> dict[str, int]:
    """Return granted − settled − what is set aside of each node, from the bare entries."""
    signs = {"charge": -1, "adjust": -1, "refund": 1, "hold": -1, "release": 1}
    free: dict[str, int] = defaultdict(int)
    for kind, path, amount in Entry.objects.values_list("kind", "budget__path", "amount_mgpus"):
        for node in place.tree:
            if kind in signs and f"{path}/".startswith(f"{node}/"):
                free[node] += signs[kind] * amount
            elif kind in ("grant", "carry", "transfer") and node == path:
                free[node] += amount
    return free


class TestRow4ShareZero:
    """Only unfunded work, preemptible from its first second."""

    def test_it_waits_for_funds_or_runs_free_and_unprotected(self) -> None:
        place = make_institute(
            shares=make.TREE | {"orlo/science": 0}, credits={"orlo/vision/tern": 100}
        )
        waits = place.submit(place.petrel, gpus=1)
        runs = place.submit(place.petrel, when_unfunded="run", minimum_runtime_s=3600, gpus=8)
        also = place.submit(place.auk, when_unfunded="run", gpus=8)
        place.cycle(T0)
        for job in (waits, runs, also):
            job.refresh_from_db()
            assert not job.funded
        assert (waits.state, runs.state, also.state) == ("queued", "running", "running")
        assert not Holding.objects.filter(funded=True).exists()
        at = T0 + timedelta(seconds=1)
        paid = place.submit(place.tern, at)
        place.cycle(at)
        paid.refresh_from_db()
        assert paid.state == Job.State.RUNNING, "a second later its GPUs are somebody else's"


class TestRow11AMillionEntries:
    """Integer units; what is rounded is rounded for display only."""

    def test_all_that_is_counted_is_an_integer(self) -> None:
        for field in ("amount_mgpus", "gpu_seconds", "parked_gpu_seconds"):
            assert isinstance(Entry._meta.get_field(field), models.IntegerField), field

    @pytest.mark.once
    @pytest.mark.slow
    def test_a_gpu_for_a_second_a_million_times(self) -> None:
        """11.6 days of 1 GPU, charged by the second at rates of 1 and 1001 per mille in turn."""
        place = make_institute(nodes=1, gpus=1)
        end = T0 + timedelta(seconds=10**6)
        job = make.make_job(place.petrel, gpus=1, state="completed", ended_at=end)
        run = make.make_run(job, {place.nodes[0]: 1}, ended_at=end)
        write_a_million(run, place)
        steps = (T0 + number * TIMESTEP for number in range(10**6 // 1800 + 1))
        ClosedTimestep.objects.bulk_create(
            ClosedTimestep(start=step, end=step + TIMESTEP, closed_at=end) for step in steps
        )
        rebuild()
        mine = reports.figures(period=place.period, now=end)[place.tree["orlo"].pk]
        assert mine.settled_mgpus == (1 + 1001) * 10**6 // 2
        assert mine.charged_gpu_seconds == 10**6
        days = reports.burn_by_day(budget=place.tree["orlo"], start=T0, end=end)
        assert sum(day.busy_gpu_seconds for day in days) == 10**6
        assert [day.busy_gpu_seconds for day in days] == [86_400] * 11 + [49_600]
        used = reports.usage_window(start=T0, end=end, now=end)
        assert used == {place.petrel.pk: (1 + 1001) * 10**6 // 2}


def write_a_million(run: Run, place: Institute) -> None:
    """Write the entries by one statement, which knows nothing of how others are written."""
    second = "1 + 1000 * (n %% 2)"
    if connection.vendor == "postgresql":
        numbers, at = (
            "generate_series(0, 999999) AS s(n)",
            "%s::timestamptz + ({}) * interval '1 s'",
        )
    else:
        numbers = (
            "(WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 999999) "
            "SELECT n FROM s)"
        )
        at = "datetime(%s, '+' || ({}) || ' seconds')"
    start = T0.strftime("%Y-%m-%d %H:%M:%S") + ("+00" if connection.vendor == "postgresql" else "")
    columns = {
        "kind": "'charge'", "budget_id": f"{place.petrel.pk}", "period_id": f"{place.period.pk}",
        "job_id": f"{run.job_id}", "run_id": f"{run.pk}", "attempt": "1",
        "pool_id": f"{place.pool.pk}",
        "at": at.format("n"), "until": at.format("n + 1"), "timestep": at.format("n / 1800 * 1800"),
        "funded": "true", "amount_mgpus": second, "gpu_seconds": "1", "parked_gpu_seconds": "0",
        "note": "''", "key": "'second:' || n", "created_at": at.format("n + 1"),
    }  # fmt: skip
    names, values = ", ".join(columns), ", ".join(columns.values())
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO ledger_entry ({names}) SELECT {values} FROM {numbers}", [start] * 4
        )
