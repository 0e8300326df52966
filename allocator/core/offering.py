"""Which of many waiting jobs a plan is asked about, where thousands wait for a full cluster.

Jobs that one leaf could put on the same block (the same kind of funding and number of GPUs) are a
class. Of each class the best-placed jobs are offered, in the order in which their leaf would place
them, and of the others those that need the least time, since only they could fit a gap that the
first don't fit. A plan that starts all the best-placed ones of a class is followed by another with
those that come next, until no class is used up: so no job is passed over for want of being offered.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Place = tuple[int, int]  # sorts a leaf's jobs, best first; the second is the job's own number


@dataclass
class _Class:
    """Numbers of jobs in the order of their places, and in that of their lengths."""

    by_place: list[Place] = field(default_factory=list)
    by_length: list[Place] = field(default_factory=list)


class Offering(Generic[K]):
    """The waiting jobs by class, kept sorted as they come and go."""

    def __init__(self, first: int = 4, short: int = 2) -> None:
        self.first = first
        self.short = short
        self._classes: dict[K, _Class] = {}
        self._of: dict[int, tuple[K, Place, Place]] = {}

    def add(self, job: int, kind: K, rank: int, left_s: int) -> None:
        """A job waits: in its leaf it comes by rank, then by its number; it needs `left_s`."""
        place, length = (rank, job), (left_s, job)
        found = self._classes.setdefault(kind, _Class())
        insort(found.by_place, place)
        insort(found.by_length, length)
        self._of[job] = kind, place, length

    def remove(self, job: int) -> None:
        """A job waits no longer."""
        kind, place, length = self._of.pop(job)
        found = self._classes[kind]
        del found.by_place[bisect_left(found.by_place, place)]
        del found.by_length[bisect_left(found.by_length, length)]
        if not found.by_place:
            del self._classes[kind]

    def __contains__(self, job: int) -> bool:
        return job in self._of

    def kinds(self) -> Collection[K]:
        """The classes of which some job waits."""
        return self._classes.keys()

    def offered(self) -> list[int]:
        """Numbers of the jobs to ask about, in the order of their numbers."""
        found = {job for kind in self._classes for job in self._front(kind)}
        for waiting in self._classes.values():
            found.update(job for _, job in waiting.by_length[: self.short])
        return sorted(found)

    def used_up(self, started: Collection[int]) -> bool:
        """Whether all the best-placed jobs of some class have started while more of it wait."""
        kinds = {self._of[job][0] for job in started}
        return any(
            len(self._classes[kind].by_place) > self.first
            and all(job in started for job in self._front(kind))
            for kind in kinds
        )

    def _front(self, kind: K) -> Iterator[int]:
        return (job for _, job in self._classes[kind].by_place[: self.first])
