"""What befalls a fleet while jobs run: windows of maintenance, and nodes that fail.

Seconds are whole and count from the start of what is simulated; spans are half-open.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .rows import MOST_SECONDS, BadRow, Line, check_columns
from .validate import ProblemError

REQUIRED = ("event", "node", "from_s", "to_s")
OPTIONAL = ("known_s",)
WINDOW, FAILURE = "window", "failure"
LONGEST_S = 10 * MOST_SECONDS
NAMED = 4  # so many nodes are not listed one by one
MOST_EVENTS = 10_000  # each plan looks at all that are not over


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
    """A node that is down in [down, up); up None: to the end. It ends the runs that it holds.

    ``is_new``: it was not down, but not there yet.
    """

    node: str
    down_s: int
    up_s: int | None
    is_new: bool = False


@dataclass(frozen=True)
class Events:
    """All that befalls a fleet, and a sentence for each row that is no event."""

    windows: tuple[Window, ...] = ()
    failures: tuple[Failure, ...] = ()
    problems: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.windows) + len(self.failures)

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
                replace(
                    one,
                    down_s=max(0, one.down_s - start_s),
                    up_s=None if one.up_s is None else one.up_s - start_s,
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


def read_events(lines: Iterable[str], name: str, nodes: Sequence[str]) -> Events:
    """Events of these nodes from CSV lines; ``name`` is what sentences call the file.

    Raises `ProblemError` where the first line lacks a column, a line can't be parsed at all, or
    there are too many.
    """
    reader, known = csv.DictReader(lines), dict.fromkeys(nodes)
    windows: list[Window] = []
    failures: list[Failure] = []
    problems: list[str] = []
    try:
        check_columns(reader.fieldnames, REQUIRED, name)
        for row in reader:
            try:
                found = _event(Line(f"{name}, line {reader.line_num}", row), known)
            except BadRow as bad:
                problems.append(str(bad))
                continue
            if isinstance(found, Window):
                windows.append(found)
            else:
                failures.append(found)
            if len(windows) + len(failures) > MOST_EVENTS:
                raise ProblemError(
                    f"{name} has over {MOST_EVENTS:,} events: leave out those of other days."
                )
    except csv.Error as error:
        raise ProblemError(
            f"{name}, line {reader.line_num}: can't be read ({error}): give one event a line."
        ) from None
    return Events(tuple(windows), tuple(failures), tuple(problems))


def write_events(events: Events) -> Iterator[str]:
    """Events as CSV, line by line; `read_events` gives the same again."""
    yield ",".join((*REQUIRED, *OPTIONAL)) + "\n"
    rows = [
        *((WINDOW, one.node, one.start_s, one.end_s, one.known_s) for one in events.windows),
        *((FAILURE, one.node, one.down_s, one.up_s, None) for one in events.failures),
    ]
    for row in rows:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(row)
        yield line.getvalue()


def _event(line: Line, nodes: Mapping[str, None]) -> Window | Failure:
    line.check_width()
    kind = line.one_of("event", (WINDOW, FAILURE), "")
    node = line.text("node")
    if node not in nodes:
        raise BadRow(f"{line.where}: there is no node {node!r}: the fleet has {_some(nodes)}.")
    start = line.whole("from_s", least=0, most=LONGEST_S)
    end = line.maybe("to_s", least=0, most=LONGEST_S)
    known = line.maybe("known_s", least=0, most=LONGEST_S) or 0
    if end is not None and end <= start:
        raise BadRow(f"{line.where}: to_s is {end}, but must be after from_s ({start}), or empty.")
    if kind == FAILURE:
        return Failure(node, start, end)
    if end is not None and known >= end:
        raise BadRow(
            f"{line.where}: known_s is {known}, but must be before to_s ({end}): a window that is "
            "over does nothing."
        )
    return Window(node, start, end, known)


def _some(nodes: Iterable[str]) -> str:
    first, *rest = nodes
    return ", ".join((first, *rest)) if len(rest) < NAMED else f"{first} to {rest[-1]}"


def _ends(at: int | None) -> int:
    return LONGEST_S + 1 if at is None else at
