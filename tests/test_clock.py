"""The clock of the interfaces."""

from datetime import timedelta

from config import clock


def test_the_clock_gives_whole_seconds_of_utc():
    assert clock.now().microsecond == 0
    assert clock.now().utcoffset() == timedelta(0)
