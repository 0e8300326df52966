"""Learning by night from jobs that ended, and switching to it where it is no worse."""

import hashlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from django.db import connection, transaction
from django.db.models import Max

from forecasting import estimators
from forecasting.core import comparing, storing
from forecasting.core.correction import THIN, Correction, History
from forecasting.core.describing import Described
from forecasting.core.hardware import UnknownName, gpu_type
from forecasting.core.kinds import KINDS
from forecasting.models import Estimator
from workloads.models import Job, Run

logger = logging.getLogger(__name__)
MOST_JOBS = 100_000  # the newest that are learned from
LOCK_KEY = 7_300_418  # any number of our own that isn't another lock's
KEPT = 7  # newest estimators of a kind whose parameters are kept, beside the active one
OWN_TYPE = ("gpu", "gpu_type")
State = Estimator.State
MEANWHILE = "Another was switched to meanwhile."
BEHIND = "The clock is behind jobs that were learned from: set it right."


@dataclass(frozen=True)
class Retrained:
    """What came of it: `estimator` is the row, None where none was written."""

    kind: str
    rows: int
    why: str
    estimator: Estimator | None = None
    held_out: dict[str, dict[str, float]] | None = None

    @property
    def switched(self) -> bool:
        return self.estimator is not None and self.estimator.state == State.ACTIVE


@dataclass(frozen=True)
class _Rows:
    """Jobs that ran to their end, described, the oldest first; when each ended."""

    described: list[Described]
    seconds: list[float]
    ended: list[datetime]
    left_out: int


def retrain_all(*, now: datetime) -> list[Retrained]:
    """Retrain each kind that can be learned from; what one can't be keeps no other waiting."""
    done = []
    for kind in KINDS:
        try:
            done.append(retrain(kind=kind, now=now))
        except Exception:
            logger.exception("Estimates of %s can't be learned anew.", kind)
    return done


def retrain(*, kind: str, now: datetime, dry_run: bool = False) -> Retrained:
    """Learn from jobs that ended before `now`; switch to it unless it is worse. Dry: write nothing.

    Who reads meanwhile sees the old one or the new one. What was learned from nothing new, or from
    fewer than 8 jobs, isn't kept.
    """
    started = time.monotonic()
    rows = _rows(kind, now)
    old = active(kind)
    if len(rows.seconds) < THIN:
        return Retrained(kind, len(rows.seconds), _too_few(len(rows.seconds)))
    newest = next(last(kind, 1), None)
    known = (KINDS[kind].version, rows.ended[-1], len(rows.ended))
    if newest is not None and (newest.method, newest.newest_at, newest.rows) == known:
        return Retrained(kind, newest.rows, "No job has ended since the last time.")
    if old is not None and rows.ended[-1] < old.newest_at:
        return Retrained(kind, len(rows.seconds), BEHIND)
    history = History.of(rows.described, rows.seconds)
    learned = comparing.learn_and_play(history)
    before = None if old is None else _correction(old)
    newer = np.flatnonzero([old is None or at > old.newest_at for at in rows.ended])
    verdict = comparing.judge(learned, history, before, newer)
    made = Estimator(
        kind=kind,
        method=KINDS[kind].version,
        trained_at=now,
        newest_at=rows.ended[-1],
        rows=len(rows.seconds),
        left_out=rows.left_out,
        scores=comparing.as_json(learned.held_out),
        why=verdict.why,
        parameters=storing.pack(learned.correction),
        seconds=round(time.monotonic() - started, 2),
    )
    made.digest = hashlib.sha256(bytes(made.parameters)).hexdigest()
    made.state = State.ACTIVE if verdict.switch else State.CANDIDATE
    if not dry_run:
        _keep(made, old)
    return Retrained(kind, made.rows, made.why, made, made.scores)


def _too_few(rows: int) -> str:
    jobs = (
        "1 job that told what it computes has"
        if rows == 1
        else (f"{rows} jobs that told what they compute have")
    )
    return f"{jobs} ended; {THIN} are needed."


def active(kind: str) -> Estimator | None:
    """The one in force, if this code can read it."""
    rows = Estimator.objects.filter(kind=kind, state=State.ACTIVE, method=KINDS[kind].version)
    return rows.defer("parameters").first()


def _correction(row: Estimator) -> Correction | None:
    try:
        return estimators.loaded(row.pk, row.digest)
    except storing.Unreadable:
        return None


@transaction.atomic
def _keep(made: Estimator, old: Estimator | None) -> None:
    """Write it; an active one takes the place of the one that it was compared with.

    If another was switched to meanwhile, that one stays.
    """
    _one_at_a_time()
    rows = Estimator.objects.filter(kind=made.kind)
    in_place = rows.filter(state=State.ACTIVE)
    if made.state == State.ACTIVE:
        now_active = in_place.filter(method=made.method).values_list("pk", flat=True).first()
        if now_active != (old.pk if old else None):
            made.state, made.why = State.CANDIDATE, MEANWHILE
        else:
            in_place.update(state=State.RETIRED)
    made.number = (rows.aggregate(last=Max("number"))["last"] or 0) + 1
    made.save()
    kept = list(rows.order_by("-pk").values_list("pk", flat=True)[:KEPT])
    rows.exclude(pk__in=kept).exclude(state=State.ACTIVE).update(parameters=b"")


def _one_at_a_time() -> None:
    """Wait for whoever keeps one, even the first; SQLite has but one writer anyway."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK_KEY])


def _rows(kind: str, now: datetime) -> _Rows:
    """The newest jobs of a kind that completed and told what they compute. One query."""
    runs = Run.objects.filter(
        end_reason=Run.EndReason.COMPLETED,
        ended_at__lte=now,
        job__kind=kind,
        job__session=False,
        job__state=Job.State.COMPLETED,
        job__work__isnull=False,
        job__forecasts__planned=True,
        job__forecasts__actual_s__gt=0,
    )
    # A job has one run that completed, and one forecast that it was planned with.
    asked = runs.order_by("-ended_at", "-pk").values_list(
        *("job__gpus", "job__work", "job__budget__path", "pool__gpu_type"),
        *("job__forecasts__actual_s", "ended_at"),
    )
    found = _Rows([], [], [], 0)
    left_out = 0
    for gpus, work, path, pool, took, ended in reversed(asked[:MOST_JOBS]):
        one = _described(kind, gpus, work, path, pool)
        if one is None:
            left_out += 1
            continue
        found.described.append(one)
        found.seconds.append(took)
        found.ended.append(ended)
    return _Rows(found.described, found.seconds, found.ended, left_out)


def _described(
    kind: str, gpus: int, work: dict[str, Any], path: str, pool: str
) -> Described | None:
    """A job as the correction sees it, on the type of GPU that it ran on."""
    try:
        gpu, given = gpu_type(pool).name, {k: v for k, v in work.items() if k not in OWN_TYPE}
    except UnknownName:
        gpu, given = "", work
    try:
        spec = KINDS[kind].read(given, gpu=gpu, gpus=gpus, project=path)
        return KINDS[kind].describe(spec, gpus)
    except (ValueError, ArithmeticError):
        return None


def last(kind: str, number: int) -> Iterator[Estimator]:
    """Yield the newest estimators of a kind, without their parameters."""
    yield from Estimator.objects.filter(kind=kind).defer("parameters").order_by("-pk")[:number]
