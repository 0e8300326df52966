"""What a plan of fair share is told besides jobs: services, and nodes that are to be empty.

As the cycle's snapshot tells it, by the same rules.
"""

from collections.abc import Callable, Mapping
from itertools import groupby

from ..contract import feasible_demand, protected_steps
from ..plan import Result
from ..problem import Drain, RealtimeJob
from .fleet import block
from .policy import Decision
from .services import SimService, mask_of
from .world import World

Value = Callable[[SimService], float]


class Besides:
    """Services and drains of a world as problems have them.

    `settled`: a plan was made earlier in this timestep, so services keep what it gave them.
    """

    def __init__(self, world: World) -> None:
        self.world, self.setup = world, world.setup
        self.drains: tuple[Drain, ...] = ()
        self.settled = False
        self._planned_in = -1  # the newest timestep in which something was decided
        pools = groupby(enumerate(self.setup.nodes), lambda one: one[1].pool)
        self._pools: dict[str, int] = {}  # masks
        for pool, nodes in pools:
            bits = sum(world.fleet.node_bits[n] for n, _ in nodes)
            self._pools[pool] = self._pools.get(pool, 0) | bits

    def look(self) -> None:
        """See how things stand at the instant of a decision."""
        timestep = self.world.now // self.setup.step_s
        self.settled = self._planned_in == timestep
        self._planned_in = timestep
        self.drains = self._drains()

    @property
    def something_is_due(self) -> bool:
        """Whether a plan may change something though no waiting job could start."""
        services = self.world.services
        if services.running and not self.settled:
            return True
        if services.waiting and (self.world.fleet.free or self.world.interruptible()):
            return True
        now = {drain.node for drain in self.drains if drain.start == 0}
        bits = (
            self.world.fleet.node_bits[n]
            for n, node in enumerate(self.setup.nodes)
            if node.name in now
        )
        leaving = sum(bits)
        return bool(leaving) and any(
            job.run is not None and block(job.run.first, job.gpus) & leaving
            for job in self.world.running.values()
        )

    @property
    def awaits_a_drain(self) -> bool:
        """Whether a window is known that is not over."""
        return bool(self.world.nodes.windows(self.world.now))

    def services(self, value: Value) -> list[tuple[bool, RealtimeJob]]:
        """(whether it runs, what the problem says of it) of each service that is there."""
        return [(one.held is not None, self._written(one, value)) for one in self.here]

    @property
    def here(self) -> list[SimService]:
        return list(self.world.services.here)

    def due(self, result: Result, found: Decision) -> None:
        """Take over what each service holds from now on."""
        by_name = {one.name: one for one in self.here}
        for name, sets in result.plan.realtime.items():
            one = by_name[name]
            if one.held == sets[0] and self.settled:
                continue
            if one.held is not None or sets[0]:
                found.serves.append((one, sets[0]))

    def _written(self, one: SimService, value: Value) -> RealtimeJob:
        setup, now = self.setup, self.world.now
        origin, step = now - now % setup.step_s, setup.step_s
        starts = (origin + step * n for n in range(setup.horizon))
        demand = [min(one.row.demand_over(at, at + step), setup.gpus) for at in starts]
        if one.held is not None:
            held, cap = len(one.held), one.row.cap
            demand = feasible_demand(demand, held=held, cap=cap, settled=self.settled)
        else:
            one.pool = self._roomiest()
        return RealtimeJob(
            name=one.name,
            priority=value(one),
            demand=tuple(demand),
            swap_cap=one.row.cap,
            held=one.held,
            steady=self.settled and one.held is not None,
            pools=(one.pool,),
            budget=one.budget,
        )

    def _roomiest(self) -> str:
        """Where most healthy GPUs are free, of equals the first in the grid."""
        free = self.world.fleet.free
        return max(self._pools, key=lambda pool: (self._pools[pool] & free).bit_count())

    def _drains(self) -> tuple[Drain, ...]:
        world, setup = self.world, self.setup
        origin = world.now - world.now % setup.step_s
        asked = world.nodes.asked(world.now, origin + setup.horizon * setup.step_s)
        if not asked:
            return ()
        bits = {n: world.fleet.node_bits[n] for n in asked}
        return world.nodes.drains(
            world.now,
            step_s=setup.step_s,
            horizon=setup.horizon,
            protected=self._protected(bits),
            served=self._served(bits),
            settled=self.settled,
        )

    def _protected(self, bits: Mapping[int, int]) -> dict[int, int]:
        """Timesteps for which runs of a node can't be stopped."""
        found = dict.fromkeys(bits, 0)
        for job in self.world.running.values():
            assert job.run is not None
            steps = protected_steps(job.run.protected_until, self.world.now, self.setup.step_s)
            held = block(job.run.first, job.gpus) if steps else 0
            for n, node in bits.items():
                if held & node:
                    found[n] = max(found[n], steps)
        return found

    def _served(self, bits: Mapping[int, int]) -> dict[int, dict[int, tuple[int, int]]]:
        found: dict[int, dict[int, tuple[int, int]]] = {}
        for service in self.world.services.running.values():
            held = mask_of(service.held or ())
            for n, node in bits.items():
                if held & node:
                    gpus = (held & node).bit_count()
                    found.setdefault(n, {})[service.number] = (gpus, service.row.cap)
        return found
