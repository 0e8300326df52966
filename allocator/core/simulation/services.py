"""Real-time services of a simulated cluster: what they want, hold and lack, and what they pay."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..contract import paid_gpus
from ..traces import TraceJob
from .fleet import Fleet
from .meters import Funds, Meters
from .setup import Setup


class Served(NamedTuple):
    """GPUs [first, first + gpus) that a service, by its number, held in [since, until)."""

    service: int
    first: int
    gpus: int
    since: int
    until: int
    funded: bool


@dataclass(slots=True, eq=False)
class SimService:
    """A service and what has become of it; `held` None: it waits, or is gone.

    The first `funded` of its GPUs, which are sorted, are paid for.
    """

    number: int
    row: TraceJob
    leaf: int
    wanted: int = 0  # GPUs in the present timestep
    held: tuple[int, ...] | None = None
    funded: int = 0
    pool: str = ""
    since: int = 0  # when its set of GPUs became what it is
    paid_until: int = 0
    charged: int = 0  # funded GPU-seconds of its present run
    counted_at: int = 0
    first_start: int | None = None
    held_s: int = 0
    wanted_s: int = 0
    short_s: int = 0
    stopped_for: dict[int, int] = field(default_factory=dict)  # as of a job: nothing stops it

    @property
    def name(self) -> str:
        return f"job-{self.number}"

    @property
    def budget(self) -> str:
        return self.row.group

    @property
    def gpus(self) -> int:
        """The most that it ever wants."""
        return self.row.peak

    @property
    def submitted(self) -> int:
        return self.row.submit_time_s

    @property
    def ends(self) -> int:
        return self.row.submit_time_s + self.row.duration_s

    @property
    def short(self) -> int:
        """GPUs that it lacks."""
        return max(0, self.wanted - len(self.held or ()))


class Services:
    """All services that are there; each change of them is counted and keeps its books."""

    def __init__(self, setup: Setup, meters: Meters, funds: Funds, fleet: Fleet) -> None:
        self.setup, self.meters, self.funds, self.fleet = setup, meters, funds, fleet
        self.all: list[SimService] = []
        self.waiting: dict[int, SimService] = {}
        self.running: dict[int, SimService] = {}
        self.failures = 0  # of runs
        self._served: list[Served] = []

    @property
    def here(self) -> Iterator[SimService]:
        """Those that run or wait, by their numbers."""
        both = self.running | self.waiting
        return (both[number] for number in sorted(both))

    def arrive(self, service: SimService) -> None:
        """It is there from now on."""
        service.counted_at = self.meters.now
        self.waiting[service.number] = service
        self._want(service)

    def leave(self, service: SimService) -> None:
        """It is not wanted any more."""
        self._count(service)
        self.meters.waiting_gpus -= service.short
        service.wanted = 0
        self._drop(service)
        self.running.pop(service.number, None)
        self.waiting.pop(service.number, None)

    def begin_timestep(self) -> None:
        """Each wants what it does in the timestep that begins."""
        for service in self.here:
            self._want(service)

    def release(self, service: SimService, kept: Iterable[int]) -> None:
        """Leave all GPUs but some of those that it holds, before others take them."""
        before = set(service.held or ())
        self.fleet.restore(mask_of(before - set(kept)))

    def serve(
        self, wanted: Iterable[tuple[SimService, tuple[int, ...]]], until: int, *, renewed: bool
    ) -> None:
        """Give services their GPUs, one after another, once what they leave was released.

        Each pays up to its leaf's entitlement besides what others of the leaf pay: all that run, or
        where that is ``renewed``, those that came before it here.
        """
        paid = {} if renewed else {n: service.funded for n, service in self.running.items()}
        for service, gpus in wanted:
            others = sum(
                funded
                for n, funded in paid.items()
                if n != service.number and self.running[n].leaf == service.leaf
            )
            self._give(service, gpus, others, until)
            paid[service.number] = service.funded

    def _give(self, service: SimService, gpus: tuple[int, ...], others: int, until: int) -> None:
        """It holds a set of GPUs from now on, of which it pays what it may up to an instant."""
        now = self.meters.now
        self._count(service)
        if service.held is None:
            self.running[service.number] = self.waiting.pop(service.number)
            service.first_start = now if service.first_start is None else service.first_start
            service.charged = 0
        self.fleet.withdraw(mask_of(set(gpus) - set(service.held or ())))
        self._unpay(service)
        funded = self._paid(service, len(gpus), others, until - now)
        self.funds.set_aside(service.leaf, funded * (until - now))
        self._level(service, gpus, funded)
        service.paid_until = until

    def fail_on(self, node: int) -> None:
        """A node, by its mask, failed: the runs of all that hold GPUs of it end."""
        for service in list(self.running.values()):
            if mask_of(service.held or ()) & node:
                self._fail(service)

    def _fail(self, service: SimService) -> None:
        """It waits, and starts anew."""
        self._count(service)
        self.failures += 1
        if self.setup.refunds:
            self.funds.give_back(service.leaf, service.charged)
        self._drop(service)
        self.waiting[service.number] = self.running.pop(service.number)

    def close(self) -> None:
        """Count up to now."""
        for service in self.here:
            self._count(service)

    def served(self) -> list[Served]:
        """What each held, by its starts; what goes on ends now."""
        live = [one for service in self.running.values() for one in self._stretch(service)]
        return sorted((*self._served, *live), key=lambda one: (one.since, one.first))

    def _want(self, service: SimService) -> None:
        self._count(service)
        step, before = self.setup.step_s, service.short
        origin = self.meters.now - self.meters.now % step
        service.wanted = service.row.demand_over(origin, origin + step)
        self.meters.waiting_gpus += service.short - before

    def _paid(self, service: SimService, gpus: int, others: int, seconds: int) -> int:
        budgets, healthy = self.meters.budgets, self.meters.available.gpus(self.meters.now)
        return paid_gpus(
            gpus,
            entitled=budgets.entitled(service.leaf, healthy),
            others=others,
            affordable=self.funds.affordable(service.leaf, gpus, seconds),
        )

    def _unpay(self, service: SimService) -> None:
        self.funds.give_back(service.leaf, service.funded * (service.paid_until - self.meters.now))

    def _drop(self, service: SimService) -> None:
        """Its run is over."""
        if service.held is None:
            return
        self._unpay(service)
        self.fleet.restore(mask_of(service.held))
        self._level(service, (), 0)
        service.held = None

    def _level(self, service: SimService, gpus: tuple[int, ...], funded: int) -> None:
        """Other GPUs, or others of them paid: where nothing changes, its stretch goes on."""
        before, meters = service.held or (), self.meters
        if service.held == gpus and service.funded == funded:
            return
        short = service.short
        if service.held is not None:
            self._served += self._stretch(service)
        level = meters.levels[service.leaf]
        level.funded += funded - service.funded
        level.unfunded += len(gpus) - funded - (len(before) - service.funded)
        meters.held_gpus += len(gpus) - len(before)
        service.held, service.funded, service.since = gpus, funded, meters.now
        meters.waiting_gpus += service.short - short

    def _count(self, service: SimService) -> None:
        spent = self.meters.now - service.counted_at
        held = len(service.held or ())
        service.held_s += held * spent
        service.wanted_s += service.wanted * spent
        service.short_s += service.short * spent
        service.charged += service.funded * spent
        service.counted_at = self.meters.now

    def _stretch(self, service: SimService) -> Iterator[Served]:
        """Its present set as blocks, those that are paid for apart."""
        held, now = service.held or (), self.meters.now
        if now == service.since:
            return
        for gpus, funded in ((held[: service.funded], True), (held[service.funded :], False)):
            for first, count in blocks(gpus):
                yield Served(service.number, first, count, service.since, now, funded)


def mask_of(gpus: Iterable[int]) -> int:
    """The mask of some GPUs."""
    found = 0
    for gpu in gpus:
        found |= 1 << gpu
    return found


def blocks(gpus: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, how many) of each stretch of sorted GPUs without a gap."""
    first, count = 0, 0
    for gpu in gpus:
        if count and gpu == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = gpu, 1
    if count:
        yield first, count
