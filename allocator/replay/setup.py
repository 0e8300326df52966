"""What a trace is played on: pools of nodes with their rates, and the groups' shares."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from allocator.replay.trace import BadInput, TraceJob
from budgets.models import WHOLE

POOL = re.compile(r"(?:([a-z0-9]+(?:-[a-z0-9]+)*)=)?([1-9][0-9]{0,4})x([1-9][0-9]?)")
MOST_GPUS_A_NODE = 62
RATE = 1000


@dataclass(frozen=True)
class PoolSpec:
    """``nodes`` machines of ``gpus`` GPUs each; the rate is per mille of the reference GPU."""

    slug: str
    nodes: int
    gpus: int
    rate: int = RATE

    @property
    def total(self) -> int:
        return self.nodes * self.gpus


def pools_of(text: str, rates: str = "") -> list[PoolSpec]:
    """Read ``56x8`` or ``h100=40x8,b200=16x8``, and rates such as ``1200`` or ``b200=1500``."""
    found: dict[str, PoolSpec] = {}
    for part in text.split(","):
        match = POOL.fullmatch(part.strip())
        if match is None or int(match[3]) > MOST_GPUS_A_NODE:
            raise BadInput(
                f"--nodes {text!r}: give NODESxGPUS as in 56x8, or pools as in "
                f"h100=40x8,b200=16x8, with 1 to {MOST_GPUS_A_NODE} GPUs a node."
            )
        slug = match[1] or "gpu"
        if slug in found:
            raise BadInput(f"--nodes {text!r}: name each pool once, not {slug} twice.")
        found[slug] = PoolSpec(slug, int(match[2]), int(match[3]))
    return _with_rates(found, rates)


def _with_rates(pools: dict[str, PoolSpec], text: str) -> list[PoolSpec]:
    if not text:
        return list(pools.values())
    given: dict[str, int] = {}
    for part in text.split(","):
        slug, _, value = part.strip().rpartition("=")
        if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 1_000_000:
            raise BadInput(f"--rate {text!r}: give per mille as in 1200, or as in b200=1500.")
        for name in [slug] if slug else pools:
            given[name] = int(value)
    unknown = sorted(given.keys() - pools.keys())
    if unknown:
        raise BadInput(f"--rate: there is no pool {unknown[0]}: --nodes has {', '.join(pools)}.")
    return [
        PoolSpec(pool.slug, pool.nodes, pool.gpus, given.get(pool.slug, RATE))
        for pool in pools.values()
    ]


def shares_of(text: str, jobs: Iterable[TraceJob]) -> dict[str, int]:
    """Thousandths of a percent by group: as given (``a=60,b=40``; others get 0), or all equal."""
    groups = sorted({job.group for job in jobs})
    if not text:
        part, rest = divmod(WHOLE, len(groups))
        return {group: part + (n < rest) for n, group in enumerate(groups)}
    pairs = [_share(part, text) for part in text.split(",")]
    given = dict(pairs)
    if len(given) < len(pairs):
        raise BadInput(f"--shares {text!r}: name each group once.")
    unknown = sorted(given.keys() - set(groups))
    if unknown:
        raise BadInput(
            f"--shares: the trace has no group {unknown[0]!r} in this window: it has "
            f"{', '.join(groups)}."
        )
    total = sum(given.values())
    if total > WHOLE:
        over = Decimal(total) / 1000
        raise BadInput(f"--shares total {over} %: lower them to 100 % or less.")
    return {group: given.get(group, 0) for group in groups}


def _share(part: str, text: str) -> tuple[str, int]:
    group, _, value = part.strip().rpartition("=")
    try:
        percent = Decimal(value.strip().removesuffix("%"))
        thousandths = percent * 1000
        if not group or thousandths != int(thousandths) or not 0 <= thousandths <= WHOLE:
            raise InvalidOperation
    except (InvalidOperation, OverflowError, ValueError):
        raise BadInput(
            f"--shares {text!r}: give GROUP=PERCENT as in a=60,b=40, 0 to 100 with at most three "
            "decimals."
        ) from None
    return group.strip(), int(thousandths)
