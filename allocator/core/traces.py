"""Traces: the jobs of a cluster as they were submitted, from a CSV or SWF file or a seed.

Lines go in, frozen rows come out. A row that can't be read gets one sentence that names its line
and says what must be there; nothing is guessed. Times are whole seconds from the trace's start.
SWF is the Standard Workload Format of the Parallel Workloads Archive, version 2.2: 18 numbers a
line, -1 for unknown, comments behind a semicolon.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from .problem import Kind
from .validate import ProblemError
from .weights import RAW_URGENCY

REQUIRED = ("job_id", "submit_time_s", "gpus", "duration_s", "group")
OPTIONAL = ("kind", "min_runtime_s", "resumable", "urgency", "time_limit_s", "parked")
KINDS = tuple(str(kind) for kind in Kind if kind != Kind.REALTIME)
URGENCIES = tuple(RAW_URGENCY)
DAY_S = 24 * 3600
MOST_SECONDS = 366 * DAY_S
MOST_GPUS = 4096
LONGEST = 90  # characters of a name
SWF_FIELDS = 18


class BadRow(ValueError):
    """One sentence about one line."""


@dataclass(frozen=True)
class TraceJob:
    """A job as recorded: seconds and GPUs are whole numbers; None where the trace is silent.

    ``parked_s`` is how long it held its GPUs at its end without using them.
    """

    job_id: str
    submit_time_s: int
    gpus: int
    duration_s: int
    group: str
    user: str = ""
    kind: str = str(Kind.TRAINING)
    min_runtime_s: int | None = None
    resumable: bool = True
    urgency: str = "normal"
    time_limit_s: int | None = None
    parked_s: int = 0

    @property
    def block(self) -> int:
        """The GPUs of its block: rounded up to a power of two."""
        return 1 << (self.gpus - 1).bit_length()


@dataclass(frozen=True)
class Trace:
    """Jobs in order of submission, and a sentence for each row that is none."""

    jobs: tuple[TraceJob, ...]
    problems: tuple[str, ...] = ()

    @property
    def rounded(self) -> int:
        """How many jobs get a larger block than they have GPUs."""
        return sum(job.block != job.gpus for job in self.jobs)

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted({job.group for job in self.jobs}))

    def between(self, start_s: int, end_s: int) -> "Trace":
        """The jobs submitted in [start, end), with times counted from start."""
        inside = (job for job in self.jobs if start_s <= job.submit_time_s < end_s)
        moved = (replace(job, submit_time_s=job.submit_time_s - start_s) for job in inside)
        return Trace(tuple(moved), self.problems)


def read_csv(lines: Iterable[str], name: str) -> Trace:
    """A trace from CSV lines; ``name`` is what sentences call the file. Raises `ProblemError`
    where the first line lacks a column, or a line can't be parsed at all."""
    reader = csv.DictReader(lines)
    try:
        missing = [column for column in REQUIRED if column not in (reader.fieldnames or ())]
        if missing:
            raise ProblemError(
                f"{name} has no column {missing[0]}: it needs {', '.join(REQUIRED)} in its first "
                "line."
            )
        rows = ((reader.line_num, row) for row in reader)
        return _collected(rows, name)
    except csv.Error as error:
        raise ProblemError(
            f"{name}, line {reader.line_num}: can't be read ({error}): give one job a line."
        ) from None


def write_csv(trace: Trace) -> Iterator[str]:
    """A trace as CSV, line by line; `read_csv` gives the same jobs again, but for their users."""
    yield ",".join((*REQUIRED, *OPTIONAL)) + "\n"
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")
    for job in trace.jobs:
        line.seek(0)
        line.truncate()
        writer.writerow(
            (
                *(job.job_id, job.submit_time_s, job.gpus, job.duration_s, job.group, job.kind),
                *(job.min_runtime_s, str(job.resumable).lower(), job.urgency),
                *(job.time_limit_s, job.parked_s),
            )
        )
        yield line.getvalue()


def read_swf(lines: Iterable[str], name: str) -> Trace:
    """A trace from SWF lines: processors are GPUs, the requested time is the time limit."""
    return _collected(_swf_rows(lines), name)


def _collected(rows: Iterable[tuple[int, Mapping[str, str | None]]], name: str) -> Trace:
    jobs: list[TraceJob] = []
    problems: list[str] = []
    seen: set[str] = set()
    for number, row in rows:
        where = f"{name}, line {number}"
        try:
            job = _Line(where, row).job()
            if job.job_id in seen:
                raise BadRow(f"{where}: job_id {job.job_id!r} is there twice.")
        except BadRow as bad:
            problems.append(str(bad))
            continue
        seen.add(job.job_id)
        jobs.append(job)
    return Trace(tuple(sorted(jobs, key=lambda job: job.submit_time_s)), tuple(problems))


def _swf_rows(lines: Iterable[str]) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    """(line, columns as a CSV's) of each job."""
    for number, line in enumerate(lines, 1):
        fields = line.partition(";")[0].split()
        if not fields:
            continue
        fields += [""] * (SWF_FIELDS - len(fields))
        gpus = fields[4] if not fields[4].startswith("-") else fields[7]
        limit = "" if fields[8].startswith("-") or fields[8] == "0" else fields[8]
        group = "" if fields[12].startswith("-") else fields[12]
        yield (
            number,
            {
                "job_id": fields[0],
                "submit_time_s": fields[1],
                "gpus": gpus,
                "duration_s": fields[3].partition(".")[0],
                "group": f"group-{group}" if group else "",
                "user": fields[11],
                "time_limit_s": limit.partition(".")[0],
            },
        )


@dataclass(frozen=True)
class _Line:
    """One line of the file, and where it stands."""

    where: str
    row: Mapping[str, str | None]

    def job(self) -> TraceJob:
        return TraceJob(
            job_id=self.text("job_id"),
            submit_time_s=self.whole("submit_time_s", least=0, most=10 * MOST_SECONDS),
            gpus=self.whole("gpus", least=1, most=MOST_GPUS),
            duration_s=max(1, self.whole("duration_s", least=0)),
            group=self.text("group"),
            user=self.value("user"),
            kind=self.one_of("kind", KINDS, str(Kind.TRAINING)),
            min_runtime_s=self.maybe("min_runtime_s", least=0),
            resumable=self.one_of("resumable", ("true", "false"), "true") == "true",
            urgency=self.one_of("urgency", URGENCIES, "normal"),
            time_limit_s=self.maybe("time_limit_s", least=1),
            parked_s=self.maybe("parked", least=0) or 0,
        )

    def value(self, name: str) -> str:
        value = (self.row.get(name) or "").strip()
        if len(value) > LONGEST or not value.isprintable():
            raise BadRow(
                f"{self.where}: {name} is {value[:20]!r}, but must be at most {LONGEST} printable "
                "characters."
            )
        return value

    def text(self, name: str) -> str:
        if not (value := self.value(name)):
            raise BadRow(f"{self.where}: {name} is empty.")
        return value

    def whole(self, name: str, *, least: int, most: int = MOST_SECONDS) -> int:
        value = self.value(name)
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise BadRow(
                f"{self.where}: {name} is {value!r}, but must be a whole number from {least} to "
                f"{most}."
            )
        return int(value)

    def maybe(self, name: str, *, least: int) -> int | None:
        return self.whole(name, least=least) if self.value(name) else None

    def one_of(self, name: str, accepted: tuple[str, ...], default: str) -> str:
        value = self.value(name).lower() or default
        if value not in accepted:
            raise BadRow(
                f"{self.where}: {name} is {value!r}, but must be one of {', '.join(accepted)}."
            )
        return value
