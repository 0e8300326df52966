"""Commit: only what starts or stops now, in one transaction, if the snapshot still holds.

Locks are taken in one order everywhere: jobs, budgets, the allocator's row.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db import transaction
from django.db.models import F

from allocator import outlooks, requests, timesteps
from allocator.core.contract import paid_gpus, starts_now, stops_now
from allocator.core.plan import Assignment, Cause, Preemption, Result
from allocator.models import AllocatorState, Cycle
from allocator.snapshot import Excluded, Snapshot, name_of
from budgets.periods import active
from clusters import services as clusters
from ledger import figures
from ledger import services as ledger
from workloads import services as workloads
from workloads.models import Job, Run, Service


class _Stale(Exception):
    """Another cycle was committed since the snapshot; rolls the commit back."""


class _NotPaid(Exception):
    """Not even the minimum runtime of some is paid any more; rolls all starts back."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        super().__init__(f"{len(names)} jobs")


def commit(
    *,
    cycle: Cycle,
    taken: Snapshot,
    result: Result,
    refused: dict[int, ledger.HoldResult],
) -> bool:
    """Write the decisions, the outlooks and the cycle; False (and nothing) if they are stale."""
    try:
        with transaction.atomic():
            _Commit(cycle, taken, result).write(refused)
    except _Stale:
        return False
    return True


class _Commit:
    def __init__(self, cycle: Cycle, taken: Snapshot, result: Result) -> None:
        self.cycle, self.taken, self.result = cycle, taken, result
        self.at = taken.at
        self.boundary = taken.origin + timesteps.step()
        self.by_victim = {p.victim: p for p in result.preemptions if p.timestep == 0}
        # What services are given in this commit; later in a timestep, what they have stays.
        self.funded_gpus = _funded_now(taken) if taken.settled else {}
        self.promised_mgpus: dict[int, int] = defaultdict(int)  # by budget

    def write(self, refused: dict[int, ledger.HoldResult]) -> None:
        self.cycle.save()  # first: the stories of what it stops name it
        starting = starts_now(self.result.plan, self.taken.runs)
        self._lock_jobs(one.job for one in starting)
        self.cycle.preemptions = sum(self._preempt(run) for run in self._victims())
        self.cycle.stops = self.cycle.preemptions
        started = self._start_all(starting)
        services = [name for name in self.result.plan.realtime if self._serve(name)]
        self.cycle.starts = len(started) + len(services)
        settled = {*started, *services, *(name_of(one.job.pk) for one in self.taken.excluded)}
        self.cycle.waiting = len(self.taken.excluded) + len(
            [r for r in self.result.reasons if r.job not in settled]
        )
        self.cycle.save(update_fields=["preemptions", "stops", "starts", "waiting"])
        outlooks.write(
            cycle=self.cycle,
            taken=self.taken,
            result=self.result,
            refused=refused,
            settled=settled,
        )
        if any(one.cause == Cause.MOVED for one in self.by_victim.values()):
            requests.replan("move")  # its GPUs are free, and it goes on
        self._claim()

    def _lock_jobs(self, starting: Iterable[str]) -> None:
        """Take the rows of all that may start before the ledger's lock, as a cancellation does."""
        services = [name for name in self.result.plan.realtime if name not in self.taken.runs]
        names = [*starting, *services]
        jobs = Job.objects.filter(pk__in=[self.taken.jobs[name].pk for name in names])
        list(jobs.select_for_update(no_key=True).order_by("pk").values_list("pk"))

    def _claim(self) -> None:
        """Compare-and-set on the allocator's version, last, so that its row is locked briefly."""
        claimed = AllocatorState.objects.filter(pk=1, version=self.taken.version)
        if not claimed.update(version=F("version") + 1):
            raise _Stale

    def _victims(self) -> Iterable[str]:
        """Interruptible runs that the plan does not go on with."""
        for name in stops_now(self.result.plan, self.taken.runs):
            batch = not self.taken.jobs[name].is_realtime
            if batch and self.taken.runs[name].state == Run.State.RUNNING:
                yield name

    def _preempt(self, name: str) -> bool:
        run = self.taken.runs[name]
        story = _story(self.by_victim.get(name), self.taken)
        return workloads.decide_stop(
            run=run, reason=Run.EndReason.PREEMPTED, at=self.at, cycle=self.cycle.pk, **story
        )

    def _start_all(self, wanted: list[Assignment]) -> list[str]:
        """Start jobs on their blocks; those that can't be paid for any more fall out."""
        while True:
            try:
                with transaction.atomic():
                    runs = {one.job: run for one in wanted if (run := self._start(one))}
                    if unpaid := self._unpaid(runs):
                        raise _NotPaid(unpaid)
                return list(runs)
            except _NotPaid as short:
                for one in wanted:
                    self.taken.jobs[one.job].refresh_from_db()
                for name in short.names:
                    self._lose_funding(self.taken.jobs[name])
                wanted = [one for one in wanted if one.job not in short.names]

    def _start(self, given: Assignment) -> Run | None:
        """Start a job on its block, if it still waits."""
        job = self.taken.jobs[given.job]
        cells = self.taken.blocks(range(given.first_gpu, given.first_gpu + given.gpus))
        blocks = [workloads.Block(node, mask, job.funded) for node, mask in cells]
        try:
            return workloads.decide_start(job=job, pool=cells[0][0].pool, blocks=blocks, at=self.at)
        except workloads.StateConflict:
            return None

    def _unpaid(self, runs: Mapping[str, Run]) -> list[str]:
        """Set aside each run's first timestep; names of those whose minimum runtime can't be.

        Where only that is paid and it ends within the timestep, the run turns unfunded then
        (``driving`` sees to it once the start is confirmed).
        """
        asking = {name: run for name, run in runs.items() if self.taken.jobs[name].funded}
        if not asking:
            return []
        short = self._uncovered(asking.values(), self.boundary)
        return [name for name, run in asking.items() if run.pk in short and not self._keeps(run)]

    def _keeps(self, run: Run) -> bool:
        promised = self.at + timedelta(seconds=run.job.minimum_runtime_s)
        return promised < self.boundary and not self._uncovered([run], promised)

    def _uncovered(self, runs: Iterable[Run], until: datetime) -> set[int]:
        return ledger.cover(runs=runs, start=self.at, end=until, now=self.at)

    def _lose_funding(self, job: Job) -> None:
        ledger.release_rest(job=job, attempt=job.attempt, at=self.at, now=self.at)
        workloads.lose_funding(job=job, at=self.at)
        self.taken.excluded.append(Excluded(job, "not_funded", {}))

    def _serve(self, name: str) -> bool:
        """Give a service its set of GPUs for this timestep; True if it starts now."""
        job = self.taken.jobs[name]
        gpus = self.result.plan.realtime[name][0]
        run = self.taken.runs.get(name)
        if run is None and not gpus:
            return False
        if run is not None:
            if run.state == Run.State.RUNNING:
                self._change(job, run, gpus)
            return False
        blocks = self._funded_blocks(job, gpus)
        try:
            workloads.decide_start(job=job, pool=blocks[0].node.pool, blocks=blocks, at=self.at)
        except workloads.StateConflict:
            return False
        return True

    def _change(self, job: Job, run: Run, gpus: tuple[int, ...]) -> None:
        """Note another set of GPUs. What is paid of it is settled anew at each timestep only."""
        held = [h for h in run.holdings.all() if h.ended_at is None]
        masks: dict[int, int] = {}
        for holding in held:
            masks[holding.node_id] = masks.get(holding.node_id, 0) | holding.mask
        same = masks == {node.pk: mask for node, mask in self.taken.blocks(gpus)}
        if same and self.taken.settled:
            return
        wanted = sorted([b.node.pk, b.mask, b.funded] for b in self._funded_blocks(job, gpus))
        if wanted != sorted([h.node_id, h.mask, h.funded] for h in held):
            Service.objects.filter(pk=job.service.pk).update(pending=wanted)

    def _funded_blocks(self, job: Job, gpus: tuple[int, ...]) -> list[workloads.Block]:
        """A service's GPUs up to its leaf's entitlement and means are funded, the lowest first.

        What it pays is set aside once the cluster confirms the set (``closing.cover_services``).
        """
        others = sum(
            count
            for name, count in self.funded_gpus.items()
            if self.taken.jobs[name].budget_id == job.budget_id and name != name_of(job.pk)
        )
        funded = paid_gpus(
            len(gpus),
            entitled=self.taken.entitled_gpus(job),
            others=others,
            affordable=self._affordable(job),
        )
        self._promise(job, funded)
        paid = [(cell, True) for cell in self.taken.blocks(gpus[:funded])]
        free = [(cell, False) for cell in self.taken.blocks(gpus[funded:])]
        return [workloads.Block(node, mask, is_funded) for (node, mask), is_funded in paid + free]

    def _promise(self, job: Job, gpus: int) -> None:
        self.funded_gpus[name_of(job.pk)] = gpus
        self.promised_mgpus[job.budget_id] += gpus * self._price(job)

    def _affordable(self, job: Job) -> int:
        """GPUs that the leaf can pay to the timestep's end, besides those of other services."""
        spendable = self._means.spendable(job.budget_id) if self._means else 0
        return max(0, spendable - self.promised_mgpus[job.budget_id]) // self._price(job)

    @cached_property
    def _means(self) -> figures.Accounts | None:
        """What budgets have once all starts are paid for; read once for all services."""
        period = active(self.at)
        return figures.accounts(period=period, at=self.at) if period else None

    def _price(self, job: Job) -> int:
        """What a GPU of the dearest acceptable pool costs to the timestep's end."""
        seconds = int((self.boundary - self.at).total_seconds())
        named = {pool.pk for pool in job.pools.all()}
        rates = clusters.rates(at=self.at)
        return seconds * max(rates[pool] for pool in named or rates)


def _funded_now(taken: Snapshot) -> dict[str, int]:
    """Funded GPUs that each running service holds, by name."""
    return {
        name: sum(h.gpus for h in run.holdings.all() if h.ended_at is None and h.funded)
        for name, run in taken.runs.items()
        if taken.jobs[name].is_realtime
    }


def _story(preemption: Preemption | None, taken: Snapshot) -> dict[str, Any]:
    """The numbers that decided a preemption, for the victim's story."""
    if preemption is None:
        return {}
    story: dict[str, Any] = {"cause": str(preemption.cause)}
    if preemption.preemptor is not None:
        by = taken.jobs[preemption.preemptor.removesuffix("+")]
        story |= {"by_job": by.pk, "by_name": by.name, "by_budget": by.budget.path}
    for side in ("victim_share", "preemptor_share"):
        share = getattr(preemption, side)
        if share is not None:
            story[side] = asdict(share)
    return story
