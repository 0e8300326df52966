"""What befalls a fleet while jobs run: windows of maintenance, and nodes that fail.

Seconds are whole and count from the start of what is simulated; spans are half-open.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .rows import MOST_SECONDS, BadRow, Line
from .validate import ProblemError

REQUIRED = ("event", "node", "from_s", "to_s")
WINDOW, FAILURE = "window", "failure"
LONGEST_S = 10 * MOST_SECONDS


@dataclass(frozen=True)
class Window:
    """A node that is to hold nothing in [start, end); end None: until somebody ends it.

    It is known from ``known_s`` on, and as it stands here until ``replaced_s`` (None: to the end).
    """

    node: str
    start_s: int
    end_s: int | None
    known_s: int = 0
    replaced_s: int | None = None

    def counts(self, now: int) -> bool:
        """Whether it is known, and not over."""
        known = self.known_s <= now and (self.replaced_s is None or now < self.replaced_s)
        return known and (self.end_s is None or now < self.end_s)


@dataclass(frozen=True)
class Failure:
    """A node that is down in [down, up); up None: to the end. It ends the runs that it holds."""

    node: str
    down_s: int
    up_s: int | None


@dataclass(frozen=True)
class Events:
    """All that befalls a fleet, and a sentence for each row that is no event."""

    windows: tuple[Window, ...] = ()
    failures: tuple[Failure, ...] = ()
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.windows or self.failures)

    @property
    def nodes(self) -> set[str]:
        return {one.node for one in self.windows} | {one.node for one in self.failures}

    def between(self, start_s: int, end_s: int) -> "Events":
        """What touches [start, end), with times counted from start."""
        return Events(
            tuple(
                replace(
                    one,
                    start_s=one.start_s - start_s,
                    end_s=None if one.end_s is None else one.end_s - start_s,
                    known_s=max(0, one.known_s - start_s),
                    replaced_s=None if one.replaced_s is None else one.replaced_s - start_s,
                )
                for one in self.windows
                if _ends(one.end_s) > start_s
                and _ends(one.replaced_s) > start_s
                and one.known_s < end_s
            ),
            tuple(
                Failure(
                    one.node,
                    max(0, one.down_s - start_s),
                    None if one.up_s is None else one.up_s - start_s,
                )
                for one in self.failures
                if _ends(one.up_s) > start_s and one.down_s < end_s
            ),
            self.problems,
        )


NOTHING = Events()


def check_nodes(events: Events, nodes: Iterable[str]) -> None:
    """Raise `ProblemError` for the first event of a node that isn't there."""
    lost = sorted(events.nodes - set(nodes))
    if lost:
        raise ProblemError(
            f"there is no node {lost[0]!r}: name the nodes of the fleet that is simulated (of "
            "NODESxGPUS: n0001, n0002 and so on)."
        )


def read_events(lines: Iterable[str], name: str) -> Events:
    """Events from CSV lines; ``name`` is what sentences call the file. Raises `ProblemError` where
    the first line lacks a column, or a line can't be parsed at all."""
    reader = csv.DictReader(lines)
    windows: list[Window] = []
    failures: list[Failure] = []
    problems: list[str] = []
    try:
        missing = [column for column in REQUIRED if column not in (reader.fieldnames or ())]
        if missing:
            raise ProblemError(
                f"{name} has no column {missing[0]}: it needs {', '.join(REQUIRED)} in its first "
                "line."
            )
        for row in reader:
            try:
                found = _event(Line(f"{name}, line {reader.line_num}", row))
            except BadRow as bad:
                problems.append(str(bad))
                continue
            if isinstance(found, Window):
                windows.append(found)
            else:
                failures.append(found)
    except csv.Error as error:
        raise ProblemError(
            f"{name}, line {reader.line_num}: can't be read ({error}): give one event a line."
        ) from None
    return Events(tuple(windows), tuple(failures), tuple(problems))


def _event(line: Line) -> Window | Failure:
    kind = line.one_of("event", (WINDOW, FAILURE), "")
    node = line.text("node")
    start = line.whole("from_s", least=0, most=LONGEST_S)
    end = line.maybe("to_s", least=0, most=LONGEST_S)
    if end is not None and end <= start:
        raise BadRow(f"{line.where}: to_s is {end}, but must be after from_s ({start}), or empty.")
    if kind == FAILURE:
        return Failure(node, start, end)
    return Window(node, start, end, line.maybe("known_s", least=0, most=LONGEST_S) or 0)


def _ends(at: int | None) -> int:
    return LONGEST_S + 1 if at is None else at
