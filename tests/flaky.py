"""A simulated cluster whose calls fail: before anything was done, or with the answer lost."""

import random
from typing import Any

from clusters.connectors.base import ConnectorError
from clusters.connectors.simulated import SimulatedConnector


class Flaky(SimulatedConnector):
    """Fails as told: before it has done what it was asked, or after it, with the answer lost."""

    failing: set[tuple[str, str]] = set()  # (call, before or after)
    chance = 0.0
    dice = random.Random(0)

    def _around(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._fail(name, "before")
        answer = getattr(super(), name)(*args, **kwargs)
        self._fail(name, "after")
        return answer

    def _fail(self, name: str, moment: str) -> None:
        if (name, moment) in self.failing or self.dice.random() < self.chance:
            raise ConnectorError(f"{name} failed {moment} it was done")

    def observe(self, *args: Any, **kwargs: Any) -> Any:
        return self._around("observe", *args, **kwargs)

    def start(self, *args: Any, **kwargs: Any) -> Any:
        return self._around("start", *args, **kwargs)

    def stop(self, *args: Any, **kwargs: Any) -> Any:
        return self._around("stop", *args, **kwargs)

    def set_time_limit(self, *args: Any, **kwargs: Any) -> Any:
        return self._around("set_time_limit", *args, **kwargs)

    def resize(self, *args: Any, **kwargs: Any) -> Any:
        return self._around("resize", *args, **kwargs)

    def idle(self, *args: Any, **kwargs: Any) -> Any:
        return self._around("idle", *args, **kwargs)
