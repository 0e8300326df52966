"""The plan page: what ran in the last 12 h, what runs, and what the newest plan places next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from allocator import timesteps
from allocator.job_rows import JobRow
from allocator.models import Cycle
from allocator.pages import plan_grid, plan_risks
from allocator.pages.names import Names, Program
from allocator.pages.plan_grid import Piece, Rows
from allocator.pages.plan_risks import Down, Shortfall
from allocator.reading import newest, plan_view
from budgets.access import Person
from budgets.hues import Hue
from budgets.models import WHOLE
from clusters import services as clusters
from clusters.models import Pool
from workloads.models import Job, Run

NEAR = timedelta(hours=8)  # how far ahead the sentence promises
NEXT = 5
OVER = ("ran", "preempted")


@dataclass(frozen=True)
class Picture:
    """Everything that the grid, the cards beside it and the table are made of."""

    now: datetime
    start: datetime
    end: datetime
    rows: Rows
    pieces: list[Piece]  # in order of rows and time
    down: list[Down]
    short: list[Shortfall]
    cycle: Cycle | None
    names: Names

    def running(self) -> list[Piece]:
        live = [p for p in self.pieces if p.run is not None and p.run.state in Run.LIVE]
        return [p for p in live if p.end >= self.now]

    def next_starts(self) -> list[Piece]:
        """First placements of what waits, the soonest first."""
        waiting = [p for p in self.pieces if p.planned and not p.rest and _waits(p.job)]
        firsts: dict[int, Piece] = {}
        for piece in sorted(waiting, key=lambda p: (p.start, -p.gpus, p.job.pk)):
            firsts.setdefault(piece.job.pk, piece)
        return list(firsts.values())


def picture(user: Person, *, now: datetime, pool: Pool | None = None) -> Picture:
    """Read the grid of one pool or of all. A constant number of queries."""
    rows = Rows.load(at=now, pool_ids=None if pool is None else [pool.pk])
    names = Names.load(user)
    cycle = newest()
    start = timesteps.floor(now) - plan_grid.PAST
    end = timesteps.floor(now) + plan_grid.AHEAD
    past = plan_grid.held(rows, start=start, now=now)
    ahead: list[Piece] = []
    short: list[Shortfall] = []
    if cycle is not None:
        plan = plan_view(cycle)
        ahead = plan_grid.planned(rows, plan, now=now)
        short = plan_risks.shortfalls(rows, plan, names, now=now)
    return Picture(
        now=now,
        start=start,
        end=end,
        rows=rows,
        pieces=sorted(_joined(past, ahead, now), key=lambda p: (p.first_gpu, p.start, p.job.pk)),
        down=plan_risks.down(rows, start=start, end=end, now=now),
        short=short,
        cycle=cycle,
        names=names,
    )


def _waits(job: JobRow) -> bool:
    return job.state in (Job.State.QUEUED, Job.State.STARTING)


def _joined(past: list[Piece], ahead: list[Piece], now: datetime) -> Iterator[Piece]:
    """Past and plan in one axis: what runs goes on to where the plan lets it run."""
    goes_on = {
        (p.job.pk, p.first_gpu): p
        for p in ahead
        if p.start == now and not p.rest and not p.job.is_realtime
    }
    for piece in past:
        live = piece.run is not None and piece.run.state in Run.LIVE and piece.end == now
        following = goes_on.pop((piece.job.pk, piece.first_gpu), None) if live else None
        yield piece if following is None else replace(piece, end=following.end)
    left = {id(p) for p in goes_on.values()}
    for piece in ahead:
        batch_now = piece.start == now and not piece.rest and not piece.job.is_realtime
        if not batch_now or id(piece) in left:
            yield piece


# --- The page ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanPage:
    """What the page says beside the grid. Ratios in thousandths of a percent."""

    picture: Picture
    healthy: int
    held_now: int
    kept_held: int | None
    kept_until: datetime
    starts: list[Piece]
    largest: Piece | None
    pools: list[Pool]
    next_tick: datetime

    @property
    def cycle(self) -> Cycle | None:
        return self.picture.cycle

    @property
    def programs(self) -> list[Program]:
        return list(self.picture.names.programs())

    @property
    def next_rows(self) -> list[Row]:
        return [_row(self.picture, piece) for piece in self.starts[:NEXT]]

    @property
    def gap(self) -> int | None:
        """How far the plan is from its proven bound, in thousandths of a percent of it."""
        if self.cycle is None or not self.cycle.bound or self.cycle.objective is None:
            return None
        return max(0, round((1 - self.cycle.objective / self.cycle.bound) * WHOLE))

    @property
    def serves(self) -> bool:
        return any(piece.job.is_realtime for piece in self.picture.pieces)

    @property
    def coming(self) -> list[Down]:
        """Nodes that are down or draining now or later."""
        return [down for down in self.picture.down if down.end > self.picture.now]


def page(user: Person, *, now: datetime, pool: Pool | None = None) -> PlanPage:
    """Return the plan page's facts."""
    seen = picture(user, now=now, pool=pool)
    down = clusters.nodes_down(at=now)
    healthy = sum(node.gpus for node in seen.rows.nodes if node.pk not in down)
    until = timesteps.floor(now) + NEAR
    starts = seen.next_starts()
    return PlanPage(
        picture=seen,
        healthy=healthy,
        held_now=sum(piece.gpus for piece in seen.running()),
        kept_held=_kept(seen, healthy, until) if seen.cycle else None,
        kept_until=until,
        starts=starts,
        largest=max(starts, key=lambda p: (p.gpus, -p.job.pk), default=None),
        pools=list(Pool.objects.all()),
        next_tick=timesteps.floor(now) + timesteps.step(),
    )


def _kept(seen: Picture, healthy: int, until: datetime) -> int | None:
    """Planned GPU-seconds ÷ healthy GPU-seconds from now on, in thousandths of a percent."""
    seconds = int((until - seen.now).total_seconds())
    if not healthy or seconds <= 0:
        return None
    held = sum(
        p.gpus * max(0, int((min(p.end, until) - max(p.start, seen.now)).total_seconds()))
        for p in seen.pieces
    )
    return min(WHOLE, held * WHOLE // (healthy * seconds))


@dataclass(frozen=True)
class Row:
    """A bar as a line of the table; job is None where the reader may not see it."""

    piece: Piece
    job: JobRow | None
    label: str
    hue: Hue
    node: str
    last_node: str
    state: str  # ran, preempted, runs, planned


def table(seen: Picture) -> list[Row]:
    """Return what runs and what comes, by start, then what ran, the last first."""
    rows = [_row(seen, piece) for piece in seen.pieces]
    return [
        *sorted((r for r in rows if r.state == "runs"), key=lambda r: r.piece.start),
        *sorted((r for r in rows if r.state == "planned"), key=lambda r: r.piece.start),
        *sorted((r for r in rows if r.state in OVER), key=lambda r: r.piece.end, reverse=True),
    ]


def _row(seen: Picture, piece: Piece) -> Row:
    path = piece.job.budget.path
    known = seen.names.sees(path)
    return Row(
        piece=piece,
        job=piece.job if known else None,
        label=f"{piece.job.budget.slug}/{piece.job.name}" if known else "",
        hue=seen.names.hue_of(path) if known else 0,
        node=seen.rows.node_at(piece.first_gpu),
        last_node=seen.rows.node_at(piece.first_gpu + piece.gpus - 1),
        state=_state(seen, piece),
    )


def _state(seen: Picture, piece: Piece) -> str:
    run = piece.run
    if run is None:
        return "planned"
    if run.state in Run.LIVE and piece.end >= seen.now:
        return "runs"
    return "preempted" if run.end_reason == Run.EndReason.PREEMPTED else "ran"
