"""Reads the trace that is replayed: a CSV file with a line for each job; one bad line is enough."""

from pathlib import Path

from allocator.core import traces
from allocator.core.traces import DAY_S, TraceJob
from allocator.core.validate import ProblemError

__all__ = ["DAY_S", "BadInput", "TraceJob", "read", "window"]


class BadInput(ValueError):
    """One sentence that says what to change."""


def read(path: Path) -> list[TraceJob]:
    """Read the whole file, in order of submission. Raises BadInput."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            found = traces.read_csv(file, str(path))
    except ProblemError as error:
        raise BadInput(str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{path} can't be read ({reason}): name a CSV file.") from None
    if found.problems:
        raise BadInput(found.problems[0])
    if not found.rows:
        raise BadInput(f"{path} has no jobs: give a line for each below the names of columns.")
    return list(found.rows)


def window(jobs: list[TraceJob], *, start_day: int, days: int) -> list[TraceJob]:
    """The jobs submitted in [start_day, start_day + days). Raises BadInput if there are none."""
    first, last = start_day * DAY_S, (start_day + days) * DAY_S
    inside = [job for job in jobs if first <= job.submit_time_s < last]
    if not inside:
        until = jobs[-1].submit_time_s // DAY_S
        raise BadInput(
            f"No job was submitted from day {start_day} to day {start_day + days - 1}: the trace "
            f"has days 0 to {until}."
        )
    return inside
