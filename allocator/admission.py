"""Submission: estimate → fund check → hold → queued, in one transaction; and cancelling."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from allocator import requests
from allocator.core.contract import default_minimum_runtime
from budgets.access import Action, Person, Standing
from budgets.models import Budget
from clusters.connectors import connector_for
from clusters.models import Node, Pool
from clusters.saying import say as _
from forecasting import services as forecasting
from forecasting import works
from ledger import services as ledger
from workloads import services as workloads
from workloads.models import Job, Service
from workloads.specs import JobSpec, SpecError, validate


class AdmissionError(SpecError):
    """A request that can't be admitted here; ``problems`` maps a field to one sentence."""


class KeyReused(Exception):
    """The idempotency key belongs to another request; ``job`` is that request's."""

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(
            _(
                "Idempotency key %(idempotency_key)s belongs to job %(job)s, which asked for "
                "something else: send a new key.",
                idempotency_key=repr(job.idempotency_key),
                job=job.pk,
            )
        )


def submit(*, budget: Budget, user: User, spec: JobSpec, now: datetime) -> Job:
    """Admit a job, or answer with the one that the same key submitted before.

    Blanks around its name are left out. Raises AdmissionError (nothing is written) and KeyReused.
    """
    spec = replace(spec, name=spec.name.strip())
    digest = _digest(budget, spec)
    if (known := _known(user, spec, digest)) is not None:
        return known
    check(budget, spec, now)
    try:
        with transaction.atomic():
            # Looked at again, under the lock of whoever archives or divides it.
            rows = Budget.objects.select_for_update(no_key=True)
            _refuse_what_is_no_project(rows.get(pk=budget.pk))
            job = _create(budget, user, spec, digest, now)
            fund_all(jobs=[job], now=now)
            requests.replan("submission")
    except IntegrityError:
        # The same key, submitted twice at once: the other one was first.
        if (known := _known(user, spec, digest)) is not None:
            return known
        raise
    return job


def may_cancel(held: Standing, user: Person, job: Job) -> bool:
    """Say whether somebody may cancel a job: their own, or anyone's in what they manage."""
    path = job.budget.path
    own = job.submitted_by_id == user.pk and held.can(Action.CANCEL_OWN, path)
    return own or held.can(Action.CANCEL_ANY, path)


def cancel(*, job: Job, by: User | None, now: datetime) -> Job:
    """Cancel a waiting job at once; ask the next cycle to stop a running one."""
    with transaction.atomic():
        # no_key: whoever holds the ledger's lock may still write rows that point at this job.
        job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        if job.has_ended or job.cancel_requested_at is not None:
            return job
        if job.state == Job.State.QUEUED:
            workloads.cancel_queued(job=job, by=by, at=now)
            ledger.release_rest(job=job, attempt=job.attempt, at=now, now=now)
        else:
            workloads.request_cancel(job=job, by=by, at=now)
        requests.replan("cancellation")
    return job


def fund_all(*, jobs: Sequence[Job], now: datetime) -> dict[int, ledger.HoldResult]:
    """Set aside what each job's minimum runtime costs, in their order; refusals by job id.

    Of jobs that are unfunded by choice nothing is asked; a real-time service holds its demand
    timestep by timestep instead, once it runs. The caller holds the transaction.
    """
    asking = [job for job in jobs if job.minimum_runtime_s and not job.is_realtime]
    # Locked before the ledger, and looked at again: one may have been cancelled since it was read.
    rows = Job.objects.filter(pk__in=[job.pk for job in asking], state=Job.State.QUEUED)
    rows = rows.select_for_update(no_key=True).order_by("pk")
    waiting = set(rows.values_list("pk", "attempt"))
    asking = [job for job in asking if (job.pk, job.attempt) in waiting]
    if not asking:
        return {}
    amounts = ledger.hold_amounts(jobs=asking, at=now)
    wanted = [(job, amounts[job.pk]) for job in asking]
    results = ledger.place_holds(wanted=wanted, now=now)
    refused = {}
    for (job, amount), result in zip(wanted, results, strict=True):
        job.funded = result.funded
        if not result.funded:
            refused[job.pk] = result
            continue
        Job.objects.filter(pk=job.pk).update(funded=True)
        workloads.log(job, "funded", at=now, held_mgpus=amount)
    return refused


def _digest(budget: Budget, spec: JobSpec) -> str:
    # By id: a budget that is renamed between two tries is still the same.
    asked = asdict(replace(spec, idempotency_key=None)) | {"budget": budget.pk}
    if not spec.session:
        del asked["session"]  # what was asked before there were sessions is still the same
    if not spec.work:
        del asked["work"]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _known(user: User, spec: JobSpec, digest: str) -> Job | None:
    if spec.idempotency_key is None:
        return None
    job = Job.objects.filter(submitted_by=user, idempotency_key=spec.idempotency_key).first()
    if job is not None and job.request_digest != digest:
        raise KeyReused(job)
    return job


def check(budget: Budget, spec: JobSpec, now: datetime) -> None:
    """Refuse what a submission would be refused for, whoever asks; raises AdmissionError."""
    try:
        validate(
            spec,
            longest_minimum_runtime_s=settings.MINIMUM_RUNTIME_MAX_HOURS * 3600,
            longest_session_s=settings.SESSION_MAX_HOURS * 3600,
        )
    except SpecError as error:
        raise AdmissionError(error.problems) from error
    _refuse_what_is_no_work(spec)
    _refuse_what_is_no_project(budget)
    pools = acceptable_pools(spec)
    _refuse_what_never_fits(spec, pools, now)
    _refuse_what_no_cluster_starts(spec, pools)
    missing = set(spec.dependencies) - set(
        Job.objects.filter(pk__in=spec.dependencies).values_list("pk", flat=True)
    )
    if missing:
        raise AdmissionError(
            {
                "dependencies": _(
                    "There is no job %(missing)s: leave it out of the dependencies.",
                    missing=min(missing),
                )
            }
        )


def _refuse_what_is_no_work(spec: JobSpec) -> None:
    if (problem := problem_with_work(spec)) is not None:
        raise AdmissionError({"work": problem})


def problem_with_work(spec: JobSpec) -> str | None:
    """Return what is wrong with what a job is said to compute, in one sentence."""
    if not spec.work:
        return None
    return works.problem_with(kind=spec.kind, work=spec.work, gpus=spec.gpus)


def _refuse_what_is_no_project(budget: Budget) -> None:
    if budget.archived_at is not None:
        raise AdmissionError(
            {"budget": _("%(budget)s is archived: choose an active project.", budget=budget.path)}
        )
    if budget.children.filter(archived_at=None).exists():
        sentence = _("%(budget)s has budgets below it: choose one of those.", budget=budget.path)
        raise AdmissionError({"budget": sentence})


def acceptable_pools(spec: JobSpec) -> list[Pool]:
    """The acceptable pools; all of them if none is named. Raises AdmissionError for others."""
    pools = {pool.slug: pool for pool in Pool.objects.select_related("cluster")}
    for slug in spec.pools:
        if slug not in pools:
            known = ", ".join(sorted(pools)) or _("none yet")
            raise AdmissionError(
                {
                    "pools": _(
                        "There is no pool %(slug)s: choose from %(known)s.",
                        slug=repr(slug),
                        known=known,
                    )
                }
            )
    return [pools[slug] for slug in spec.pools] or list(pools.values())


def _refuse_what_never_fits(spec: JobSpec, pools: list[Pool], now: datetime) -> None:
    """A block that no acceptable pool could hold even empty would wait for ever."""
    most = largest(pools, now)
    field = "profile" if spec.is_realtime else "gpus"
    if spec.peak_gpus() > most:
        raise AdmissionError(
            {
                field: _(
                    "The largest acceptable pool has %(most)s GPUs: ask for %(most)s or fewer.",
                    most=most,
                )
            }
        )


def largest(pools: Iterable[Pool], now: datetime) -> int:
    """GPUs of the largest of some pools."""
    capacity: dict[int, int] = {}
    for node in Node.objects.filter(pool__in=pools):
        if node.is_active(now):
            capacity[node.pool_id] = capacity.get(node.pool_id, 0) + node.gpus
    return max(capacity.values(), default=0)


def _refuse_what_no_cluster_starts(spec: JobSpec, pools: list[Pool]) -> None:
    """What a connector stumbles over when it starts the run would stop every cycle."""
    for cluster in {pool.cluster for pool in pools}:
        if (problem := connector_for(cluster).problem_with(spec.spec)) is not None:
            raise AdmissionError({"spec": problem})


def _create(budget: Budget, user: User, spec: JobSpec, digest: str, now: datetime) -> Job:
    estimate = estimate_of(budget, spec, now)
    job = Job.objects.create(
        budget=budget,
        submitted_by=user,
        submitted_at=now,
        name=spec.name,
        kind=spec.kind,
        session=spec.session,
        gpus=spec.peak_gpus(),
        minimum_runtime_s=minimum_runtime(spec, estimate.p50_s),
        resumable=spec.resumable,
        urgency=spec.urgency,
        expected_duration_s=spec.expected_duration_s,
        time_limit_s=spec.time_limit_s,
        when_unfunded=spec.when_unfunded,
        command=spec.command,
        spec=spec.spec,
        work=spec.work or None,
        request_digest=digest,
        idempotency_key=spec.idempotency_key,
        state_since=now,
        estimate_p10_s=estimate.p10_s,
        estimate_p50_s=estimate.p50_s,
        estimate_p90_s=estimate.p90_s,
    )
    job.pools.set(Pool.objects.filter(slug__in=spec.pools))
    job.dependencies.set(Job.objects.filter(pk__in=spec.dependencies))
    if spec.is_realtime:
        _create_service(job, spec)
    forecasting.record(job=job, estimate=estimate, now=now)
    workloads.log(
        job,
        "submitted",
        at=now,
        actor=user,
        gpus=job.gpus,
        p10_s=estimate.p10_s,
        p50_s=estimate.p50_s,
        p90_s=estimate.p90_s,
        method=estimate.method,
    )
    return job


def _create_service(job: Job, spec: JobSpec) -> None:
    assert spec.swap_cap is not None, "validate() asks for one"
    Service.objects.create(
        job=job,
        profile=list(spec.profile),
        step_minutes=spec.step_minutes,
        time_zone=spec.time_zone,
        swap_cap=spec.swap_cap,
    )


def estimate_of(budget: Budget, spec: JobSpec, now: datetime) -> forecasting.Estimate:
    """How long a job will take; a session has its whole time box, whether it is used or not."""
    estimate = forecasting.estimate(
        budget=budget,
        kind=spec.kind,
        gpus=spec.peak_gpus(),
        declared_s=spec.time_limit_s if spec.session else spec.expected_duration_s,
        name=spec.name,
        work=spec.work,
        gpu_types=gpu_types(spec) if spec.work else (),
        now=now,
    )
    box = spec.time_limit_s
    if not spec.session or box is None:
        return estimate
    reasons = (_("A session has its whole time box."),)
    whole = replace(estimate, p10_s=box, p50_s=box, p90_s=box, beside=None)
    return replace(whole, method="declared", reasons=reasons)


def gpu_types(spec: JobSpec) -> list[str]:
    """The types of GPU that a job may run on, as its acceptable pools name them."""
    pools = Pool.objects.filter(slug__in=spec.pools) if spec.pools else Pool.objects.all()
    return list(pools.values_list("gpu_type", flat=True))


def minimum_runtime(spec: JobSpec, p50_s: int) -> int:
    """As given; else the lesser of the likely duration, the setting and the time limit.

    A session's is its time box, as far as a minimum runtime may reach.
    """
    if spec.is_realtime:
        return 0
    if spec.session and spec.time_limit_s is not None:
        return min(spec.time_limit_s, settings.MINIMUM_RUNTIME_MAX_HOURS * 3600)
    if spec.minimum_runtime_s is not None:
        return spec.minimum_runtime_s
    default = settings.DEFAULT_MINIMUM_RUNTIME_MINUTES * 60
    return default_minimum_runtime(p50_s, default, spec.time_limit_s)
