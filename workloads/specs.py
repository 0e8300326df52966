"""What a user asks for, checked once at the door: the same for API, pages and commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import available_timezones

from clusters.saying import number
from clusters.saying import say as _
from workloads.models import Job

MAX_GPUS = 4096
MAX_SECONDS = 366 * 24 * 3600
DAY_MINUTES = 24 * 60
WEEK_MINUTES = 7 * DAY_MINUTES
LONGEST_ECHO = 40  # characters of what was sent that a refusal repeats


class SpecError(ValueError):
    """What is wrong with a request: ``problems`` maps a field to one sentence."""

    def __init__(self, problems: dict[str, str]) -> None:
        self.problems = problems
        super().__init__(" ".join(problems.values()))


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job as asked for. Seconds and GPUs are integers; None means "not given".

    Real time: ``gpus`` is not given; ``profile`` lists GPUs per step of a day or a week, local
    to ``time_zone``, and ``swap_cap`` bounds the change from one timestep to the next.
    """

    name: str
    kind: str
    gpus: int | None = None
    pools: tuple[str, ...] = ()
    minimum_runtime_s: int | None = None
    resumable: bool = False
    urgency: str = Job.Urgency.NORMAL
    expected_duration_s: int | None = None
    time_limit_s: int | None = None
    when_unfunded: str = Job.WhenUnfunded.WAIT
    command: str = ""
    spec: dict[str, Any] = field(default_factory=dict)
    dependencies: tuple[int, ...] = ()
    idempotency_key: str | None = None
    profile: tuple[int, ...] = ()
    step_minutes: int = 60
    time_zone: str = "UTC"
    swap_cap: int | None = None
    work: dict[str, Any] | None = None  # what it computes: features that a forecast is made of
    session: bool = False  # somebody works in it: its time limit is a box, protected throughout

    @property
    def is_realtime(self) -> bool:
        return self.kind == Job.Kind.REALTIME

    def peak_gpus(self) -> int:
        """GPUs that it may hold at most."""
        return max(self.profile) if self.is_realtime else self.gpus or 0


def validate(
    spec: JobSpec, *, longest_minimum_runtime_s: int, longest_session_s: int = MAX_SECONDS
) -> None:
    """Refuse what can't be right whatever the cluster: raise SpecError with every problem."""
    problems: dict[str, str] = {}
    for name, sentence in (
        *_text_problems(spec),
        *_choice_problems(spec),
        *_time_problems(spec, longest_minimum_runtime_s),
        *(_session_problems(spec, longest_session_s) if spec.session else ()),
        *(_profile_problems(spec) if spec.is_realtime else _block_problems(spec)),
    ):
        problems.setdefault(name, sentence)
    if problems:
        raise SpecError(problems)


def _text_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    if not spec.name.strip() or len(spec.name) > 100:
        yield "name", _("Give a name of 1 to 100 characters.")
    for name, text, most in (
        ("name", spec.name, 100),
        ("command", spec.command, 100_000),
        ("idempotency_key", spec.idempotency_key or "", 100),
    ):
        if "\x00" in text:
            yield (name, _("Leave out the NUL character in %(name)s.", name=name))
        if len(text) > most:
            yield (
                name,
                _("Keep %(name)s to %(most)s characters or fewer.", name=name, most=number(most)),
            )
    if spec.idempotency_key == "":
        yield "idempotency_key", _("Give an idempotency key of 1 to 100 characters, or none.")


def _choice_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    for name, value, choices in (
        ("kind", spec.kind, Job.Kind.values),
        ("urgency", spec.urgency, Job.Urgency.values),
        ("when_unfunded", spec.when_unfunded, Job.WhenUnfunded.values),
    ):
        if value not in choices:
            yield (
                name,
                _(
                    "Choose one of %(choices)s: %(name)s can't be %(value)s.",
                    choices=", ".join(choices),
                    name=name,
                    value=repr(value[:LONGEST_ECHO]),
                ),
            )


def _time_problems(spec: JobSpec, longest: int) -> Iterator[tuple[str, str]]:
    for name, value, least in (
        ("minimum_runtime_s", spec.minimum_runtime_s, 0),
        ("expected_duration_s", spec.expected_duration_s, 1),
        ("time_limit_s", spec.time_limit_s, 1),
    ):
        if value is not None and not least <= value <= MAX_SECONDS:
            yield (
                name,
                _(
                    "Give %(name)s as %(least)s to %(max_seconds)s seconds.",
                    name=name,
                    least=least,
                    max_seconds=number(MAX_SECONDS),
                ),
            )
    if spec.minimum_runtime_s is not None and spec.minimum_runtime_s > longest:
        yield (
            "minimum_runtime_s",
            _(
                "A minimum runtime is at most %(hours)s h here: give %(seconds)s s or less.",
                hours=longest // 3600,
                seconds=number(longest),
            ),
        )
    limit = spec.time_limit_s
    if limit is not None and (spec.minimum_runtime_s or 0) > limit:
        yield "minimum_runtime_s", _("Give a minimum runtime that is not above the time limit.")


def _session_problems(spec: JobSpec, longest: int) -> Iterator[tuple[str, str]]:
    if spec.is_realtime:
        yield "session", _("A real-time service runs until it is stopped: it can't be a session.")
    limit = spec.time_limit_s
    if limit is None:
        yield "time_limit_s", _("Give a session a time limit: it is ended there, if not extended.")
    elif limit > longest:
        yield (
            "time_limit_s",
            _(
                "A session lasts at most %(hours)s h here: give %(seconds)s s or less.",
                hours=longest // 3600,
                seconds=number(longest),
            ),
        )
    if spec.minimum_runtime_s not in (None, limit):
        yield (
            "minimum_runtime_s",
            _("Leave the minimum runtime out: a session is protected for its time limit."),
        )
    if spec.resumable:
        yield "resumable", _("A session can't be resumable: what it holds in memory is lost.")


def _block_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    if spec.gpus is None:
        yield "gpus", _("Say how many GPUs: a power of two.")
    elif not 1 <= spec.gpus <= MAX_GPUS:
        yield ("gpus", _("Ask for 1 to %(max_gpus)s GPUs.", max_gpus=number(MAX_GPUS)))
    elif spec.gpus & (spec.gpus - 1):
        smaller = 1 << (spec.gpus.bit_length() - 1)
        yield (
            "gpus",
            _(
                "Ask for a power of two: %(smaller)s or %(larger)s GPUs, not %(gpus)s.",
                smaller=smaller,
                larger=2 * smaller,
                gpus=spec.gpus,
            ),
        )
    if spec.profile or spec.swap_cap is not None:
        yield "profile", _("Only a real-time service has a profile and a swap cap: leave them out.")


def _profile_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    if spec.gpus is not None:
        yield "gpus", _("Leave gpus out: a real-time service's demand is its profile.")
    if spec.time_zone not in available_timezones():
        yield (
            "time_zone",
            _(
                "Give an IANA time zone such as Europe/Berlin, not %(time_zone)s.",
                time_zone=repr(spec.time_zone[:LONGEST_ECHO]),
            ),
        )
    if not 1 <= spec.step_minutes <= DAY_MINUTES:
        yield (
            "step_minutes",
            _("Give step_minutes as 1 to %(day_minutes)s.", day_minutes=DAY_MINUTES),
        )
    elif len(spec.profile) * spec.step_minutes not in (DAY_MINUTES, WEEK_MINUTES):
        yield (
            "profile",
            _(
                "Give a profile that spans a day or a week: %(day_minutes)s or "
                "%(week_minutes)s steps of %(step_minutes)s min, not %(count)s.",
                day_minutes=DAY_MINUTES // spec.step_minutes,
                week_minutes=WEEK_MINUTES // spec.step_minutes,
                step_minutes=spec.step_minutes,
                count=len(spec.profile),
            ),
        )
    if any(not 0 <= gpus <= MAX_GPUS for gpus in spec.profile) or not any(spec.profile):
        yield (
            "profile",
            _(
                "Give 0 to %(max_gpus)s GPUs per step, above 0 in one at least.",
                max_gpus=number(MAX_GPUS),
            ),
        )
    if spec.swap_cap is None or not 1 <= spec.swap_cap <= MAX_GPUS:
        yield (
            "swap_cap",
            _("Give a swap cap of 1 to %(max_gpus)s GPUs per timestep.", max_gpus=number(MAX_GPUS)),
        )
