"""What was published of the seven families: sizes and results, never the jobs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """Fractions: utilization first in, first out and planned; gain in value over the former."""

    gpus: int
    jobs: int  # services included
    fifo_utilization: float
    utilization: float
    gain: float
    milliseconds: float  # the time a plan took


PUBLISHED = {
    "mixed-control": Published(8, 10, 0.516, 0.724, 0.548, 2),
    "realtime-contention": Published(8, 8, 0.750, 0.802, 0.246, 2),
    "training-heavy": Published(8, 16, 0.536, 0.870, 1.051, 2),
    "large-mixed": Published(14, 16, 0.768, 0.827, 0.438, 2),
    "oversubscribed": Published(8, 9, 0.854, 0.875, 0.336, 2),
    "scale-test": Published(64, 30, 0.449, 0.449, 0.159, 15),
    "uniform-priority": Published(14, 16, 0.768, 0.875, 0.231, 2),
}
