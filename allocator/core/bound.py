"""A bound on every legal plan's value that needs no solver: GPUs have prices per timestep.

The relaxation keeps of all rules only that a pool has so many free GPUs at a timestep, that a
service can be given so many at most, and the budgets' floors, which earn a premium. Whatever the
prices and premiums ≥ 0, no plan is worth more than the free GPUs at those prices, less the floors
at those premiums, plus the best profit of each job and service on its own (Lagrangian duality;
Held, Wolfe and Crowder 1974 for the steps). A few hundred steps come close to the linear bound.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .exact_frame import Frame

ROUNDS = 2000
PATIENCE = 25  # rounds without a better bound before steps are halved
Prices = NDArray[np.float64]  # per pool and timestep


def priced_bound(frame: Frame, reached: float, out_of_time: Callable[[], bool]) -> float:
    """No plan in the frame is worth more; `reached` is the value of one, to measure steps by."""
    prices = _Prices(frame)
    best, waited, scale = prices.step(reached, 0.0), 0, 1.0
    for _ in range(ROUNDS):
        if out_of_time() or best <= reached or scale < 1e-3:
            break
        bound = prices.step(reached, scale)
        waited = 0 if bound < best - 1e-7 * abs(best) else waited + 1
        best = min(best, bound)
        if waited >= PATIENCE:
            waited, scale = 0, scale / 2
            prices.back()
    margin = 1e-9 * (abs(best) + abs(frame.constant) + prices.gross)  # of floating-point sums
    return max(best + margin, reached)


class _Prices:
    """The dual function of the frame's capacity, and steps along its subgradient."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        horizon = frame.problem.horizon
        self.free = np.array([frame.free[pool] for pool in frame.pools], dtype=np.float64)
        self.works = [work for work in frame.works if work.starts]
        count = len(self.works)
        self.gpus = np.array([w.gpus for w in self.works], dtype=np.float64)
        starts = np.arange(horizon)
        length = np.array([min(w.length, horizon) for w in self.works], dtype=np.int64)
        self.ends = np.minimum(starts[None, :] + length.reshape(count, 1), horizon)
        worth = np.array(frame.worth)
        rate = np.array([w.priority * w.gpus for w in self.works]).reshape(count, 1)
        words = np.array([w.starts for w in self.works], dtype=np.uint64).reshape(count, 1)
        allowed = (words >> starts.astype(np.uint64)) & np.uint64(1)
        self.value = np.where(allowed == 1, rate * (worth[self.ends] - worth[starts]), -np.inf)
        self.shut = np.array(
            [[bool(w.pools) and pool not in w.pools for pool in frame.pools] for w in self.works]
        ).reshape(count, len(frame.pools))
        budgets = [floor.budget for floor in frame.floors]
        self.mine = [np.array([w.budget == b for w in self.works], dtype=bool) for b in budgets]
        self.least = np.array([floor.least for floor in frame.floors], dtype=np.float64)
        self.least = self.least.reshape(len(budgets), horizon)
        self.premiums: Prices = np.zeros_like(self.least)  # per floor and prefix
        self.serves = [
            [i for i, b in enumerate(budgets) if service.job.funded and service.job.budget == b]
            for service in frame.services
        ]
        self.gross = float(np.max(self.value, axis=1, initial=0.0).sum())
        self.prices: Prices = self._first_guess()
        self.best = (np.inf, self.prices, self.premiums)

    def _first_guess(self) -> Prices:
        """The priority at which work alone would fill the fleet, decayed."""
        horizon = self.frame.problem.horizon
        room, guess = float(self.free.sum()), 0.0
        for work in sorted(self.works, key=lambda w: -w.priority):
            room -= work.gpus * min(work.length, horizon)
            if room <= 0:
                guess = work.priority
                break
        decay = float(self.frame.problem.time_decay) ** np.arange(horizon)
        prices: Prices = np.tile(guess * decay, (len(self.free), 1))
        return prices

    def step(self, target: float, scale: float) -> float:
        """The bound at the present prices, after which they move towards fewer conflicts."""
        # What one GPU-timestep earns by raising the prefixes that it is part of.
        bonus = self.premiums[:, ::-1].cumsum(axis=1)[:, ::-1]
        given = np.zeros_like(self.least)
        total, used = self._work(bonus, given)
        served, held = self._services(bonus, given)
        bound = self.frame.constant + float((self.prices * self.free).sum()) + total + served
        bound -= float((self.premiums * self.least).sum())
        if bound < self.best[0]:
            self.best = bound, self.prices, self.premiums
        slack = _where_it_moves(self.prices, self.free - used - held)
        above = _where_it_moves(self.premiums, given.cumsum(axis=1) - self.least)
        norm = float((slack * slack).sum() + (above * above).sum())
        if norm > 0 and scale > 0:
            move = scale * max(bound - target, 1e-9 * abs(bound)) / norm
            self.prices = np.maximum(self.prices - move * slack, 0.0)
            self.premiums = np.maximum(self.premiums - move * above, 0.0)
        return bound

    def back(self) -> None:
        """Go on from the best prices."""
        _, self.prices, self.premiums = self.best

    def _work(self, bonus: Prices, given: Prices) -> tuple[float, Prices]:
        """Each job's best profit, and the GPUs that those choices take."""
        used = np.zeros_like(self.prices)
        if not self.works:
            return 0.0, used
        horizon = self.prices.shape[1]
        value = self.value.copy()
        for mine, extra in zip(self.mine, bonus, strict=True):
            total = np.concatenate(([0.0], extra.cumsum()))
            value[mine] += self.gpus[mine, None] * (total[self.ends[mine]] - total[:horizon])
        sums = np.concatenate((np.zeros((len(used), 1)), self.prices.cumsum(axis=1)), axis=1)
        best = np.zeros(len(self.works))
        choice = np.full(len(self.works), -1)
        for index, total in enumerate(sums):
            cost = total[self.ends] - total[:horizon][None, :]
            profit = value - self.gpus[:, None] * cost
            profit[self.shut[:, index]] = -np.inf
            start = profit.argmax(axis=1)
            top = profit[np.arange(len(start)), start]
            better = top > best
            best[better] = top[better]
            choice[better] = index * horizon + start[better]
        for index, row in enumerate(used):
            row += self._cells(choice, np.flatnonzero(choice // horizon == index))
        for mine, row in zip(self.mine, given, strict=True):
            row += self._cells(choice, np.flatnonzero(mine & (choice >= 0)))
        return float(best.sum()), used

    def _cells(self, choice: NDArray[np.int64], chosen: NDArray[np.int64]) -> Prices:
        """GPUs per timestep of the chosen works, each at its choice of pool and start."""
        horizon = self.prices.shape[1]
        start = choice[chosen] % horizon
        change = np.zeros(horizon + 1)
        np.add.at(change, start, self.gpus[chosen])
        np.subtract.at(change, self.ends[chosen, start], self.gpus[chosen])
        cells: Prices = change[:horizon].cumsum()
        return cells

    def _services(self, bonus: Prices, given: Prices) -> tuple[float, Prices]:
        """Each service's profit in its cheapest pool, and the GPUs it takes."""
        held = np.zeros_like(self.prices)
        total = 0.0
        for service, floors in zip(self.frame.services, self.serves, strict=True):
            asked = service.job.pools
            open_ = [i for i, pool in enumerate(self.frame.pools) if not asked or pool in asked]
            if not open_:
                continue
            cheapest = self.prices[open_].argmin(axis=0)
            price = self.prices[open_].min(axis=0)
            most = np.array(service.most, dtype=np.float64)
            gain = self.frame.missed(service) - price + bonus[floors].sum(axis=0)
            taken = np.where(gain > 0, most, 0.0)
            total += float((gain * taken).sum())
            held[np.array(open_)[cheapest], np.arange(len(most))] += taken
            given[floors] += taken
        return total, held


def _where_it_moves(prices: Prices, slack: Prices) -> Prices:
    """The slack, but for prices that are 0 and would fall."""
    moves: Prices = np.where((prices <= 0) & (slack > 0), 0.0, slack)
    return moves
