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
from itertools import chain

from .problem import Kind
from .rows import DAY_S as DAY_S
from .rows import MOST_SECONDS as MOST_SECONDS
from .rows import BadRow, Line, check_columns
from .validate import ProblemError
from .weights import RAW_URGENCY

REQUIRED = ("job_id", "submit_time_s", "gpus", "duration_s", "group")
OPTIONAL = ("kind", "min_runtime_s", "resumable", "urgency", "time_limit_s", "parked")
OF_SERVICES = ("demand", "demand_step_s", "swap_cap")
KINDS = tuple(str(kind) for kind in Kind)
URGENCIES = tuple(RAW_URGENCY)
MOST_GPUS = 4096
SWF_FIELDS = 18


@dataclass(frozen=True)
class TraceJob:
    """A job as recorded: seconds and GPUs are whole numbers; None where the trace is silent.

    ``parked_s`` is how long it held its GPUs at its end without using them. A real-time service is
    there for its duration and wants the GPUs of its ``demand``, one number a step, over and over
    from the trace's start; without one it wants ``gpus`` throughout.
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
    demand: tuple[int, ...] = ()
    demand_step_s: int = 3600
    swap_cap: int | None = None

    @property
    def block(self) -> int:
        """The GPUs of its block: rounded up to a power of two."""
        return 1 << (self.gpus - 1).bit_length()

    @property
    def is_realtime(self) -> bool:
        return self.kind == Kind.REALTIME

    @property
    def peak(self) -> int:
        """The most GPUs that a service ever wants."""
        return max(self.demand, default=self.gpus)

    @property
    def cap(self) -> int:
        """GPUs that a service may gain, and lose, at a timestep; where it is silent: all."""
        return self.peak if self.swap_cap is None else self.swap_cap

    def demand_over(self, start_s: int, end_s: int) -> int:
        """The most GPUs that a service wants at a time in [start, end)."""
        if not self.demand:
            return self.gpus
        steps = range(start_s // self.demand_step_s, -(-end_s // self.demand_step_s))
        return max(self.demand[n % len(self.demand)] for n in steps)

    def later(self, start_s: int) -> "TraceJob":
        """The same with times counted from a second on, a whole day."""
        turned = (start_s // self.demand_step_s) % max(1, len(self.demand))
        return replace(
            self,
            submit_time_s=self.submit_time_s - start_s,
            demand=self.demand[turned:] + self.demand[:turned],
        )


@dataclass(frozen=True)
class Trace:
    """Jobs in order of submission, and a sentence for each row that is none; services apart."""

    jobs: tuple[TraceJob, ...]
    problems: tuple[str, ...] = ()
    services: tuple[TraceJob, ...] = ()

    @property
    def rounded(self) -> int:
        """How many jobs get a larger block than they have GPUs."""
        return sum(job.block != job.gpus for job in self.jobs)

    @property
    def rows(self) -> tuple[TraceJob, ...]:
        """Jobs and services in order of submission."""
        both = chain(self.jobs, self.services)
        return tuple(sorted(both, key=lambda job: job.submit_time_s))

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted({job.group for job in chain(self.jobs, self.services)}))

    @property
    def days(self) -> int:
        """The days up to the last submission."""
        return max((job.submit_time_s for job in self.rows), default=0) // DAY_S + 1

    def between(self, start_s: int, end_s: int) -> "Trace":
        """What is submitted in [start, end), with times counted from start, a whole day."""
        jobs, services = (
            tuple(job.later(start_s) for job in rows if start_s <= job.submit_time_s < end_s)
            for rows in (self.jobs, self.services)
        )
        return Trace(jobs, self.problems, services)


def read_csv(lines: Iterable[str], name: str) -> Trace:
    """A trace from CSV lines; ``name`` is what sentences call the file. Raises `ProblemError`
    where the first line lacks a column, or a line can't be parsed at all."""
    reader = csv.DictReader(lines)
    try:
        check_columns(reader.fieldnames, REQUIRED, name)
        rows = ((reader.line_num, row) for row in reader)
        return _collected(rows, name)
    except csv.Error as error:
        raise ProblemError(
            f"{name}, line {reader.line_num}: can't be read ({error}): give one job a line."
        ) from None


def write_csv(trace: Trace) -> Iterator[str]:
    """A trace as CSV, line by line; `read_csv` gives the same jobs again, but for their users."""
    more = OF_SERVICES if trace.services else ()
    yield ",".join((*REQUIRED, *OPTIONAL, *more)) + "\n"
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")
    for job in trace.rows:
        line.seek(0)
        line.truncate()
        served = (" ".join(map(str, job.demand)), job.demand_step_s, job.swap_cap)
        writer.writerow(
            (
                *(job.job_id, job.submit_time_s, job.gpus, job.duration_s, job.group, job.kind),
                *(job.min_runtime_s, str(job.resumable).lower(), job.urgency),
                *(job.time_limit_s, job.parked_s),
                *((served if job.is_realtime else ("",) * len(more)) if more else ()),
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
            job = _job(Line(where, row))
            if job.job_id in seen:
                raise BadRow(f"{where}: job_id {job.job_id!r} is there twice.")
        except BadRow as bad:
            problems.append(str(bad))
            continue
        seen.add(job.job_id)
        jobs.append(job)
    jobs.sort(key=lambda job: job.submit_time_s)
    return Trace(
        tuple(job for job in jobs if not job.is_realtime),
        tuple(problems),
        tuple(job for job in jobs if job.is_realtime),
    )


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


def _job(line: Line) -> TraceJob:
    line.check_width()
    job = TraceJob(
        job_id=line.text("job_id"),
        submit_time_s=line.whole("submit_time_s", least=0, most=10 * MOST_SECONDS),
        gpus=line.whole("gpus", least=1, most=MOST_GPUS),
        duration_s=max(1, line.whole("duration_s", least=0)),
        group=line.text("group"),
        user=line.value("user"),
        kind=line.one_of("kind", KINDS, str(Kind.TRAINING)),
        min_runtime_s=line.maybe("min_runtime_s", least=0),
        resumable=line.one_of("resumable", ("true", "false"), "true") == "true",
        urgency=line.one_of("urgency", URGENCIES, "normal"),
        time_limit_s=line.maybe("time_limit_s", least=1),
        parked_s=line.maybe("parked", least=0) or 0,
    )
    return _service(job, line) if job.is_realtime else job


def _service(job: TraceJob, line: Line) -> TraceJob:
    """The service of a row, with what only services have."""
    step = line.maybe("demand_step_s", least=60, most=DAY_S) or TraceJob.demand_step_s
    if DAY_S % step:
        raise BadRow(
            f"{line.where}: demand_step_s is {step}, but must divide a day: give 3600, say."
        )
    demand = line.wholes("demand", most=MOST_GPUS)
    if demand and not any(demand):
        raise BadRow(f"{line.where}: demand is 0 throughout: give a service that wants some GPU.")
    cap = line.maybe("swap_cap", least=1, most=MOST_GPUS)
    return replace(job, demand=demand, demand_step_s=step, swap_cap=cap)
