"""Where every GPU is now: each one once. From the connector's log, and what runs hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from allocator.pages.names import Names
from clusters import services as clusters
from clusters import states
from ledger import idle
from ledger.models import ClosedTimestep
from workloads.models import Holding, Run


@dataclass
class Use:
    """GPUs that a program's runs hold now; parked ones are not counted as funded or unfunded."""

    path: str = ""  # of the program; empty: programs that the reader may not see
    name: str = ""
    hue: int | str = 0
    funded: int = 0
    unfunded: int = 0
    parked: int = 0
    jobs: set[int] = field(default_factory=set)

    @property
    def gpus(self) -> int:
        return self.funded + self.unfunded + self.parked

    @property
    def number_of_jobs(self) -> int:
        return len(self.jobs)

    @property
    def bar(self) -> list[dict[str, Any]]:
        """Parts of a bar: funded, unfunded, parked."""
        return [
            {"value": self.funded, "hue": self.hue},
            {"value": self.unfunded, "hue": self.hue, "pattern": "unfunded"},
            {"value": self.parked, "pattern": "parked"},
        ]


@dataclass
class Census:
    """GPUs by what they do: inventory = held + free + down + unseen (not yet reported)."""

    inventory: int = 0
    held: int = 0
    free: int = 0
    down: int = 0
    uses: list[Use] = field(default_factory=list)
    parked_of: datetime | None = None  # the timestep that tells what is parked

    @property
    def healthy(self) -> int:
        return self.inventory - self.down

    @property
    def unseen(self) -> int:
        return self.inventory - self.held - self.free - self.down

    @property
    def funded(self) -> int:
        return sum(use.funded for use in self.uses)

    @property
    def unfunded(self) -> int:
        return sum(use.unfunded for use in self.uses)

    @property
    def parked(self) -> int:
        return sum(use.parked for use in self.uses)

    @property
    def running(self) -> int:
        return sum(use.number_of_jobs for use in self.uses)

    @property
    def largest_use(self) -> int:
        return max((use.gpus for use in self.uses), default=0)


def census(names: Names, *, at: datetime, pool_ids: Collection[int] | None = None) -> Census:
    """Count the GPUs of some pools, or of all. A constant number of queries."""
    nodes = [
        node
        for node in clusters.active_nodes(at=at)
        if pool_ids is None or node.pool_id in pool_ids
    ]
    seen = states.last_gpu_states(at=at)
    logged = [seen[node.pk] for node in nodes if node.pk in seen]
    closed = ClosedTimestep.objects.order_by("-start").first()
    uses = _uses(names, {state.node_id: state.held for state in logged}, closed)
    return Census(
        inventory=sum(node.gpus for node in nodes),
        held=sum(state.held.bit_count() for state in logged),
        free=sum(state.free.bit_count() for state in logged),
        down=sum(state.down.bit_count() for state in logged),
        uses=uses,
        parked_of=closed.start if closed else None,
    )


def _uses(names: Names, held_on: Mapping[int, int], closed: ClosedTimestep | None) -> list[Use]:
    """What the GPUs that the log calls held (a mask by node) are held for."""
    parked = _parked_gpus(closed)
    found: dict[str, Use] = defaultdict(Use)
    for program in names.programs():
        found[program.path] = Use(program.path, program.name, program.hue)
    held = Holding.objects.filter(
        ended_at=None, started_at__isnull=False, run__state__in=Run.LIVE, node_id__in=held_on
    ).order_by("pk")
    rows = held.values_list(
        *("run_id", "run__job_id", "run__job__budget__path", "node_id", "mask", "funded")
    )
    for run_id, job_id, path, node_id, mask, funded in rows:
        # What the reader may not see stands under no program: not even as a part of its sum.
        owner = names.program(path)
        use = found[owner if owner in found and names.sees(path) else ""]
        gpus = (mask & held_on[node_id]).bit_count()
        idle_gpus = min(gpus, parked.get(run_id, 0))
        parked[run_id] = parked.get(run_id, 0) - idle_gpus
        use.parked += idle_gpus
        use.jobs.add(job_id)
        if funded:
            use.funded += gpus - idle_gpus
        else:
            use.unfunded += gpus - idle_gpus
    return list(found.values())


def _parked_gpus(closed: ClosedTimestep | None) -> dict[int, int]:
    """GPUs that each run left idle in the last closed timestep, on average, rounded."""
    if closed is None:
        return {}
    seconds = max(1, int((closed.end - closed.start).total_seconds()))
    return {
        run: (2 * held.parked_gpu_seconds + seconds) // (2 * seconds)
        for run, held in idle.by_run(timestep=closed.start).items()
    }
