"""Which waiting jobs a plan is asked about."""

from random import Random

from allocator.core.offering import Offering


def test_of_each_class_the_best_placed_and_the_shortest_are_offered() -> None:
    offering: Offering[str] = Offering(first=2, short=1)
    for job, left in ((1, 50), (2, 40), (3, 30), (4, 20), (5, 10)):
        offering.add(job, "a", 0, left)
    offering.add(6, "b", 0, 100)
    assert offering.offered() == [1, 2, 5, 6]
    offering.remove(1)
    assert offering.offered() == [2, 3, 5, 6]
    offering.add(7, "a", -1, 99)  # more urgent
    assert offering.offered() == [2, 5, 6, 7]


def test_a_class_is_used_up_when_all_its_best_placed_started_and_more_wait() -> None:
    offering: Offering[str] = Offering(first=2, short=1)
    for job in (1, 2, 3):
        offering.add(job, "a", 0, 10)
    offering.add(4, "b", 0, 10)
    assert offering.used_up([1, 2])
    assert not offering.used_up([1])
    assert not offering.used_up([4])
    assert not offering.used_up([])


def test_it_keeps_up_with_any_coming_and_going() -> None:
    rng = Random(1)
    offering: Offering[int] = Offering(first=3, short=2)
    waiting: dict[int, tuple[int, int, int]] = {}
    for job in range(300):
        waiting[job] = rng.randrange(4), rng.randrange(-4, 0), rng.randrange(1, 50)
        offering.add(job, *waiting[job])
        if rng.random() < 0.7:
            gone = rng.choice(list(waiting))
            del waiting[gone]
            offering.remove(gone)
        assert offering.offered() == _by_hand(waiting)
        assert set(offering.kinds()) == {kind for kind, _, _ in waiting.values()}


def _by_hand(waiting: dict[int, tuple[int, int, int]]) -> list[int]:
    found = set()
    for kind in range(4):
        mine = [job for job in waiting if waiting[job][0] == kind]
        found |= set(sorted(mine, key=lambda job: (waiting[job][1], job))[:3])
        found |= set(sorted(mine, key=lambda job: (waiting[job][2], job))[:2])
    return sorted(found)
