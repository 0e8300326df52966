"""The plan as the canvas reads it: the format is told at the head of `static/plan.js`."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from allocator.job_rows import JobRow
from allocator.pages import queue
from allocator.pages.plan import Picture
from allocator.pages.plan_grid import Piece
from allocator.pages.plan_risks import Down, Shortfall
from clusters.writing import dated
from ledger.models import Entry
from workloads.models import Run

Spans = dict[int, list[tuple[datetime, datetime]]]


def feed(seen: Picture) -> dict[str, Any]:
    """Return the grid as JSON data; jobs that the reader may not see have no name. One query."""
    parked = _parked(seen)
    rested = {piece.job.pk for piece in seen.pieces if piece.rest}
    return {
        "now": _iso(seen.now),
        "from": _iso(seen.start),
        "to": _iso(seen.end),
        "timestep_minutes": settings.TIMESTEP_MINUTES,
        "zone": timezone.get_current_timezone_name(),
        "pools": _pools(seen),
        "nodes": [
            {"name": node.name, "first_gpu": seen.rows.first[node.name], "gpus": node.gpus}
            for node in seen.rows.nodes
        ],
        "programs": [{"slug": p.path, "name": p.name, "hue": p.hue} for p in seen.names.programs()],
        "bars": [_bar(seen, piece, parked, rested) for piece in seen.pieces],
        "down": [_down(seen, down) for down in seen.down],
        "short": [_short(seen, s) for s in seen.short if s.first_gpu is not None],
        "words": words(),
    }


def label(seen: Picture, job: JobRow) -> str:
    """How a bar is called; those that the reader may not see all alike."""
    if not seen.names.sees(job.budget.path):
        return _("another budget’s work")  # noqa: RUF001
    return f"{job.budget.slug}/{job.name}"


def _pools(seen: Picture) -> list[dict[str, Any]]:
    pools: dict[str, dict[str, Any]] = {}
    for node in seen.rows.nodes:
        row = {"slug": node.pool.slug, "name": node.pool.name, "gpus": 0}
        pool = pools.setdefault(node.pool.slug, row | {"first_gpu": seen.rows.first[node.name]})
        pool["gpus"] += node.gpus
    return list(pools.values())


def _bar(seen: Picture, piece: Piece, parked: Spans, rested: set[int]) -> dict[str, Any]:
    job, run = piece.job, piece.run
    known = seen.names.sees(job.budget.path)
    bar: dict[str, Any] = {
        "job": job.pk if known else None,
        "label": label(seen, job),
        "budget": job.budget.name if known else "",
        "program": seen.names.program(job.budget.path) if known else "",
        "shade": seen.names.shade(job.budget.path) if known else 0,
        "first_gpu": piece.first_gpu,
        "gpus": piece.gpus,
        "start": _iso(piece.start),
        "end": _iso(piece.end),
    }
    if known:
        bar["url"] = reverse("job", args=[job.pk])
    if run is not None:
        bar["run"] = run.number
    return bar | _contract(piece) | _past(seen, piece, parked, rested, known)


def _contract(piece: Piece) -> dict[str, Any]:
    """What protects it, until when, and whether it is charged."""
    job, run = piece.job, piece.run
    more: dict[str, Any] = {}
    if piece.planned:
        more["planned"] = True
    if job.is_realtime:
        more["realtime"] = True
    elif run is not None and run.protected_until is not None:
        more["protected_until"] = _iso(run.protected_until)
    elif piece.planned and job.funded:
        least = timedelta(seconds=job.minimum_runtime_s)
        more["protected_until"] = _iso(piece.start + least)
    if piece.unfunded_from is not None:
        more["unfunded_from"] = _iso(piece.unfunded_from)
    elif piece.planned and not job.funded and not job.is_realtime:
        more["unfunded_from"] = _iso(piece.start)
    return more


def _past(
    seen: Picture, piece: Piece, parked: Spans, rested: set[int], known: bool
) -> dict[str, Any]:
    """What its run has shown so far; ``preempted`` also where the plan will stop it."""
    run = piece.run
    if run is None:
        return {}
    more: dict[str, Any] = {}
    live = run.state in Run.LIVE
    if run.end_reason == Run.EndReason.PREEMPTED or (live and piece.job.pk in rested):
        more["preempted"] = True
    spans = [(max(a, piece.start), min(b, piece.end)) for a, b in parked.get(run.pk, ())]
    if spans := [(a, b) for a, b in spans if a < b]:
        more["parked"] = [[_iso(a), _iso(b)] for a, b in spans]
    estimate = queue.ends(piece.job, run, seen.now) if live and known else None
    if estimate is not None:
        more["end_text"] = _range(seen.now, *estimate)
    return more


def _range(now: datetime, low: datetime, likely: datetime, high: datetime) -> str:
    if high <= now:
        return _("overdue")
    return f"{_near(low, now)} – {_near(high, now)}"


def _near(at: datetime, now: datetime) -> str:
    local, today = timezone.localtime(at), timezone.localtime(now)
    return dated(local, "H:i" if local.date() == today.date() else "D H:i")


def _parked(seen: Picture) -> Spans:
    """Segments of charges of which at least half was parked, joined, by run. One query."""
    runs = {piece.run.pk for piece in seen.pieces if piece.run is not None}
    charges = Entry.objects.filter(
        kind=Entry.Kind.CHARGE, timestep__gte=seen.start, parked_gpu_seconds__gt=0
    ).order_by("at", "pk")
    found: Spans = defaultdict(list)
    rows = charges.values_list("run_id", "at", "until", "gpu_seconds", "parked_gpu_seconds")
    for run_id, at, until, gpu_seconds, parked in rows:
        if run_id not in runs or until is None or 2 * parked < gpu_seconds:
            continue
        spans = found[run_id]
        if spans and spans[-1][1] == at:
            spans[-1] = (spans[-1][0], until)
        else:
            spans.append((at, until))
    return found


def _down(seen: Picture, down: Down) -> dict[str, Any]:
    gpus = next(node.gpus for node in seen.rows.nodes if node.name == down.node)
    why = _("draining: %(why)s") if down.is_drain else _("down: %(why)s")
    return {
        "first_gpu": seen.rows.first[down.node],
        "gpus": gpus,
        "start": _iso(down.start),
        "end": _iso(down.end),
        "label": down.node,
        "why": why % {"why": down.why or _("no reason given")},
    }


def _short(seen: Picture, short: Shortfall) -> dict[str, Any]:
    return {
        "first_gpu": short.first_gpu,
        "start": _iso(short.start),
        "end": _iso(short.end),
        "gpus": short.gpus,
        "label": label(seen, short.job),
    }


def words() -> dict[str, Any]:
    """The words of the canvas in the reader's language; names as in `static/plan.js`."""
    return {
        "past": _("what ran"),
        "ahead": _("plan, 24 h ahead"),
        "now": _("now"),
        "held": [_("held"), _("GPUs")],
        "budget": _("Budget"),
        "gpus": _("GPUs"),
        "on": _("on"),
        "to": _("to"),
        "starts": _("Starts"),
        "started": _("Started"),
        "ended": _("Ended"),
        "ends": _("Ends, estimate"),
        "planned": _("planned"),
        "preempted": _("preempted"),
        "over": _("ended"),
        "unfunded": _("running, unfunded"),
        "until": _("running, protected until"),
        "since": _("running, interruptible since"),
        "realtime": _("real time"),
        "run": _("run"),
        "hint": _("Click opens its story · ← → next job"),
        "short": _("short by"),
        "down": _("down"),
    }


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
