"""A bound on every legal plan's value that needs no solver: GPUs have prices per timestep.

The relaxation keeps of all rules only that a pool has so many free GPUs at a timestep, and that a
service can be given so many at most. Whatever the prices ≥ 0, no plan is worth more than the free
GPUs at those prices, plus the best profit of each job and service on its own (Lagrangian duality;
Held, Wolfe and Crowder 1974 for the steps). A few hundred steps come close to the linear bound.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .exact_frame import Frame

ROUNDS = 400
PATIENCE = 12  # rounds without a better bound before steps are halved
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
        self.gross = float(np.max(self.value, axis=1, initial=0.0).sum())
        self.prices: Prices = self._first_guess()
        self.best = (np.inf, self.prices)

    def _first_guess(self) -> Prices:
        """The priority at which work alone would fill the fleet, decayed."""
        horizon = self.frame.problem.horizon
        room, guess = float(self.free.sum()), 0.0
        for work in sorted(self.works, key=lambda w: -w.priority):
            room -= work.gpus * min(work.length, horizon)
            if room <= 0:
                guess = work.priority
                break
        decay = self.frame.problem.time_decay ** np.arange(horizon)
        prices: Prices = np.tile(guess * decay, (len(self.free), 1))
        return prices

    def step(self, target: float, scale: float) -> float:
        """The bound at the present prices, after which they move towards fewer conflicts."""
        total, used = self._work()
        served, held = self._services()
        bound = self.frame.constant + float((self.prices * self.free).sum()) + total + served
        if bound < self.best[0]:
            self.best = bound, self.prices
        slack = self.free - used - held
        slack = np.where((self.prices <= 0) & (slack > 0), 0.0, slack)
        norm = float((slack * slack).sum())
        if norm > 0 and scale > 0:
            move = scale * max(bound - target, 1e-9 * abs(bound)) / norm
            self.prices = np.maximum(self.prices - move * slack, 0.0)
        return bound

    def back(self) -> None:
        """Go on from the best prices."""
        self.prices = self.best[1]

    def _work(self) -> tuple[float, Prices]:
        """Each job's best profit, and the GPUs that those choices take."""
        used = np.zeros_like(self.prices)
        if not self.works:
            return 0.0, used
        horizon = self.prices.shape[1]
        sums = np.concatenate((np.zeros((len(used), 1)), self.prices.cumsum(axis=1)), axis=1)
        best = np.zeros(len(self.works))
        choice = np.full(len(self.works), -1)
        for index, total in enumerate(sums):
            cost = total[self.ends] - total[:horizon][None, :]
            profit = self.value - self.gpus[:, None] * cost
            profit[self.shut[:, index]] = -np.inf
            start = profit.argmax(axis=1)
            top = profit[np.arange(len(start)), start]
            better = top > best
            best[better] = top[better]
            choice[better] = index * horizon + start[better]
        for index, row in enumerate(used):
            mine = np.flatnonzero(choice // horizon == index)
            start = choice[mine] % horizon
            change = np.zeros(horizon + 1)
            np.add.at(change, start, self.gpus[mine])
            np.subtract.at(change, self.ends[mine, start], self.gpus[mine])
            row += change[:horizon].cumsum()
        return float(best.sum()), used

    def _services(self) -> tuple[float, Prices]:
        """Each service's profit in its cheapest pool, and the GPUs it takes."""
        held = np.zeros_like(self.prices)
        total = 0.0
        for service in self.frame.services:
            asked = service.job.pools
            open_ = [i for i, pool in enumerate(self.frame.pools) if not asked or pool in asked]
            if not open_:
                continue
            cheapest = self.prices[open_].argmin(axis=0)
            price = self.prices[open_].min(axis=0)
            most = np.array(service.most, dtype=np.float64)
            gain = self.frame.missed(service) - price
            taken = np.where(gain > 0, most, 0.0)
            total += float((gain * taken).sum())
            held[np.array(open_)[cheapest], np.arange(len(most))] += taken
        return total, held
