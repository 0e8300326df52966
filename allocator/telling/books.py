"""The books: conservation of GPU-time by pool, and what each budget has burned."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from allocator import delivery
from allocator.telling import frame
from budgets import plans
from budgets.models import Budget, Period
from budgets.shares import TreeNode
from ledger import reports
from ledger.reports import ConservationRow, EntryProblem

PARTS = ("charged", "unfunded", "free", "down", "inventory")


@dataclass(frozen=True)
class Proof:
    """Conservation over a span: rows per pool and timestep, those that aren't exact, and every
    entry that breaks a rule of the ledger."""

    rows: list[ConservationRow]
    wrong: list[ConservationRow]
    problems: list[EntryProblem]

    @property
    def clean(self) -> bool:
        return not self.wrong and not self.problems

    @property
    def timesteps(self) -> int:
        return len({row.timestep for row in self.rows})

    def total(self, part: str, pool: str | None = None) -> int:
        """Sum one part, in GPU-seconds, over a pool or all of them."""
        return sum(getattr(row, part) for row in self.rows if pool in (None, row.pool))


def prove(*, start: datetime, end: datetime) -> Proof:
    """Add up both sides of every closed timestep in [start, end)."""
    rows = reports.conservation(start=start, end=end)
    wrong = [row for row in rows if not row.is_proven]
    return Proof(rows, wrong, reports.entry_problems(start=start, end=end))


def proof_table(proof: Proof) -> Iterator[str]:
    """GPU-hours by pool: what was charged, unfunded, free and down, and the inventory."""
    pools = list(dict.fromkeys(row.pool for row in proof.rows))
    lines = [(pool, *_parts(proof, pool)) for pool in pools]
    if len(pools) > 1:
        lines += [("-",), ("all", *_parts(proof, None))]
    head = ("GPU-hours", "charged", "unfunded", "free", "down", "inventory", "difference")
    yield from frame.table(head, lines)
    held = proof.total("charged") + proof.total("unfunded")
    healthy = proof.total("inventory") - proof.total("down")
    yield f"  Occupancy {frame.ratio(held, healthy)} of the healthy GPU-time."
    exact = proof.timesteps - len({row.timestep for row in proof.wrong})
    steps = frame.plural(proof.timesteps, "timestep")
    breaches = frame.plural(len(proof.problems), "entry breaks", "entries break")
    yield (f"  Exact to the GPU-second in {exact} of {steps}; {breaches} a rule of the ledger.")
    yield from (f"  WRONG: {problem}" for problem in proof.problems[:10])
    for row in proof.wrong[:10]:
        yield (
            f"  NOT exact: {row.pool} {row.timestep:%Y-%m-%dT%H:%MZ} differs by "
            f"{row.difference} GPU-seconds, {row.unaccounted} unaccounted for."
        )


def _parts(proof: Proof, pool: str | None) -> Iterator[str]:
    sums = {part: proof.total(part, pool) for part in PARTS}
    yield from (frame.hours(sums[part]) for part in PARTS)
    yield f"{2 * sums['inventory'] - sum(sums.values()):,} s"


def burn_table(
    nodes: Iterable[TreeNode], *, period: Period, at: datetime, since: datetime
) -> Iterator[str]:
    """Credits of each budget given, and how much of what it was owed it got."""
    figures = reports.figures(period=period, now=at)
    delivered = delivery.summary(start=since, end=at)
    planned = plans.load(period=period, at=at)
    rows = []
    for node in nodes:
        mine, got = figures[node.budget.pk], delivered.get(node.budget.pk)
        money = (mine.granted_mgpus, mine.settled_mgpus, mine.in_flight_mgpus, mine.held_mgpus)
        used = mine.settled_mgpus + mine.in_flight_mgpus
        rows.append(
            (
                "  " * node.depth + node.budget.name,
                *(frame.credits(amount) for amount in (*money, mine.spendable_mgpus)),
                _pace(used, mine.granted_mgpus, planned.planned(node.budget.pk, at)),
                frame.credits(mine.parked_mgpus),
                frame.hours(mine.unfunded_gpu_seconds),
                _delivered(got),
            )
        )
    head = ("Credits", "granted", "settled", "in flight", "held", "spendable", "pace", "parked")
    yield from frame.table((*head, "unfunded", "of owed"), rows)


def sums_agree(parent: Budget, *, period: Period, at: datetime) -> bool:
    """Whether the children's settled credits add up to their parent's, to the last unit."""
    figures = reports.figures(period=period, now=at)
    below = sum(figures[pk].settled_mgpus for pk in parent.children.values_list("pk", flat=True))
    return below == figures[parent.pk].settled_mgpus


def _pace(used: int, granted: int, planned: Fraction) -> str:
    value = reports.pace(used_mgpus=used, granted_mgpus=granted, planned=planned)
    return "–" if value is None else f"{float(value):.2f}"


def _delivered(got: delivery.Delivered | None) -> str:
    if got is None:
        return "–"
    return frame.ratio(got.delivered_gpu_seconds, got.owed_gpu_seconds)
