"""Commit: only what starts or stops now, in one transaction, if the snapshot still holds.

Locks are taken in one order everywhere: jobs, budgets, the allocator's row.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from django.db import transaction
from django.db.models import F

from allocator import outlooks, timesteps
from allocator.core.plan import Assignment, Preemption, Result
from allocator.models import AllocatorState, Cycle
from allocator.snapshot import Snapshot, name_of
from clusters import services as clusters
from ledger import reports
from ledger import services as ledger
from workloads import services as workloads
from workloads.models import Job, Run, Service


class _Stale(Exception):
    """Another cycle was committed since the snapshot; rolls the commit back."""


class _NotCovered(Exception):
    """The run's first timestep can't be paid any more; rolls its start back."""


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
        now = {a.job: a for a in self.result.plan.assignments if a.start == 0}
        self._lock_jobs(now)
        self.cycle.preemptions = sum(self._preempt(run) for run in self._victims(now))
        self.cycle.stops = self.cycle.preemptions
        started = [name for name in now if name not in self.taken.runs and self._start(now[name])]
        services = [name for name in self.result.plan.realtime if self._serve(name)]
        self.cycle.starts = len(started) + len(services)
        self.cycle.waiting = len(self.taken.excluded) + len(
            [r for r in self.result.reasons if r.job not in started]
        )
        self.cycle.save()
        outlooks.write(
            cycle=self.cycle,
            taken=self.taken,
            result=self.result,
            refused=refused,
            started=set(started) | set(services),
        )
        self._claim()

    def _lock_jobs(self, now: Iterable[str]) -> None:
        """Take the rows of all that may start before the ledger's lock, as a cancellation does."""
        names = [name for name in (*now, *self.result.plan.realtime) if name not in self.taken.runs]
        jobs = Job.objects.filter(pk__in=[self.taken.jobs[name].pk for name in names])
        list(jobs.select_for_update(no_key=True).order_by("pk").values_list("pk"))

    def _claim(self) -> None:
        """Compare-and-set on the allocator's version, last, so that its row is locked briefly."""
        claimed = AllocatorState.objects.filter(pk=1, version=self.taken.version)
        if not claimed.update(version=F("version") + 1):
            raise _Stale

    def _victims(self, now: dict[str, Assignment]) -> Iterable[str]:
        """Interruptible runs that the plan does not go on with."""
        for name, run in self.taken.runs.items():
            batch = not self.taken.jobs[name].is_realtime
            if batch and run.state == Run.State.RUNNING and name not in now:
                yield name

    def _preempt(self, name: str) -> bool:
        run = self.taken.runs[name]
        story = _story(self.by_victim.get(name), self.taken)
        return workloads.decide_stop(
            run=run, reason=Run.EndReason.PREEMPTED, at=self.at, cycle=self.cycle.pk, **story
        )

    def _start(self, given: Assignment) -> bool:
        """Start a job on its block, if it still waits and its first timestep is paid."""
        job = self.taken.jobs[given.job]
        cells = self.taken.blocks(range(given.first_gpu, given.first_gpu + given.gpus))
        blocks = [workloads.Block(node, mask, job.funded) for node, mask in cells]
        try:
            with transaction.atomic():
                run = workloads.decide_start(
                    job=job, pool=cells[0][0].pool, blocks=blocks, at=self.at
                )
                if job.funded and ledger.cover(
                    runs=[run], start=self.at, end=self.boundary, now=self.at
                ):
                    raise _NotCovered
        except workloads.StateConflict:
            return False
        except _NotCovered:
            ledger.release_rest(job=job, attempt=job.attempt, at=self.at, now=self.at)
            workloads.lose_funding(job=job, at=self.at)
            return False
        return True

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
        entitled = max(0, self.taken.entitled_gpus(job) - others)
        funded = min(len(gpus), entitled, self._affordable(job))
        self._promise(job, funded)
        paid = [(cell, True) for cell in self.taken.blocks(gpus[:funded])]
        free = [(cell, False) for cell in self.taken.blocks(gpus[funded:])]
        return [workloads.Block(node, mask, is_funded) for (node, mask), is_funded in paid + free]

    def _promise(self, job: Job, gpus: int) -> None:
        self.funded_gpus[name_of(job.pk)] = gpus
        self.promised_mgpus[job.budget_id] += gpus * self._price(job)

    def _affordable(self, job: Job) -> int:
        """GPUs that the leaf can pay to the timestep's end, besides those of other services."""
        spendable = reports.spendable(budget=job.budget, now=self.at)
        return max(0, spendable - self.promised_mgpus[job.budget_id]) // self._price(job)

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
    story: dict[str, Any] = {}
    if preemption.preemptor is not None:
        by = taken.jobs[preemption.preemptor.removesuffix("+")]
        story |= {"by_job": by.pk, "by_name": by.name, "by_budget": by.budget.path}
    for side in ("victim_share", "preemptor_share"):
        share = getattr(preemption, side)
        if share is not None:
            story[side] = asdict(share)
    return story
