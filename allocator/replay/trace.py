"""Reads a trace: a CSV file with a line for each job. Strict, with the line in every refusal."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from workloads.models import Job

REQUIRED = ("job_id", "submit_time_s", "gpus", "duration_s", "group")
KINDS = tuple(kind for kind in Job.Kind.values if kind != Job.Kind.REALTIME)
DAY_S = 24 * 3600
MOST_SECONDS = 366 * DAY_S
MOST_GPUS = 4096
LONGEST = 90  # characters of a name


class BadInput(ValueError):
    """One sentence that says what to change."""


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
    kind: str = Job.Kind.TRAINING
    min_runtime_s: int | None = None
    resumable: bool = True
    urgency: str = Job.Urgency.NORMAL
    time_limit_s: int | None = None
    parked_s: int = 0

    @property
    def block(self) -> int:
        """The GPUs of its block: rounded up to a power of two."""
        return 1 << (self.gpus - 1).bit_length()


def read(path: Path) -> list[TraceJob]:
    """Read the whole file, in order of submission. Raises BadInput."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            jobs = list(_rows(path, csv.DictReader(file)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{path} can't be read ({reason}): name a CSV file.") from None
    if not jobs:
        raise BadInput(f"{path} has no jobs: give a line for each below the names of columns.")
    return sorted(jobs, key=lambda job: job.submit_time_s)


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


def _rows(path: Path, reader: "csv.DictReader[str]") -> Iterator[TraceJob]:
    missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
    if missing:
        raise BadInput(
            f"{path} has no column {missing[0]}: it needs {', '.join(REQUIRED)} in its first line."
        )
    seen: set[str] = set()
    for row in reader:
        job = _Line(f"{path}, line {reader.line_num}", row).job()
        if job.job_id in seen:
            raise BadInput(f"{path}, line {reader.line_num}: job_id {job.job_id!r} is there twice.")
        seen.add(job.job_id)
        yield job


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
            kind=self.one_of("kind", KINDS, Job.Kind.TRAINING),
            min_runtime_s=self.maybe("min_runtime_s", least=0),
            resumable=self.one_of("resumable", ("true", "false"), "true") == "true",
            urgency=self.one_of("urgency", Job.Urgency.values, Job.Urgency.NORMAL),
            time_limit_s=self.maybe("time_limit_s", least=1),
            parked_s=self.maybe("parked", least=0) or 0,
        )

    def value(self, name: str) -> str:
        value = (self.row.get(name) or "").strip()
        if len(value) > LONGEST or not value.isprintable():
            raise BadInput(
                f"{self.where}: {name} is {value[:20]!r}, but must be at most {LONGEST} printable "
                "characters."
            )
        return value

    def text(self, name: str) -> str:
        if not (value := self.value(name)):
            raise BadInput(f"{self.where}: {name} is empty.")
        return value

    def whole(self, name: str, *, least: int, most: int = MOST_SECONDS) -> int:
        value = self.value(name)
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise BadInput(
                f"{self.where}: {name} is {value!r}, but must be a whole number from {least} to "
                f"{most}."
            )
        return int(value)

    def maybe(self, name: str, *, least: int) -> int | None:
        return self.whole(name, least=least) if self.value(name) else None

    def one_of(self, name: str, accepted: list[str] | tuple[str, ...], default: str) -> str:
        value = self.value(name).lower() or default
        if value not in accepted:
            raise BadInput(
                f"{self.where}: {name} is {value!r}, but must be one of {', '.join(accepted)}."
            )
        return value
