"""One day of the institute's work: what is asked for, by whom and when. Seeded; no clock."""

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from allocator.demo.computing import described
from allocator.demo.institute import NODE_GPUS, NODES, ZONE
from workloads.models import Job
from workloads.specs import JobSpec

SEED = 2026
DEMAND = 2.2  # GPU-hours asked for in the day ÷ its capacity
CAPACITY_GPU_H = sum(NODES.values()) * NODE_GPUS * 24
HOUR, MINUTE = 3600, 60
CHECKPOINTS = 0.8  # part of the jobs that can go on where they were stopped
DEBUG_S = 15 * MINUTE
TRAINING, BATCH, QUANTIZATION, REALTIME = Job.Kind.values
# How busy people are at each hour of their day; some work is sent by night.
BUSY = (2, 1, 1, 1, 1, 1, 2, 4, 7, 9, 9, 8, 6, 7, 9, 9, 8, 7, 5, 4, 3, 3, 2, 2)
# GPUs that the assistant wants at each hour of the day: few by night, most in the evening.
ASSISTANT = (2, 2, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 5, 5, 6, 7, 7, 6, 4, 3)


def key_of(name: str) -> str:
    """The idempotency key under which a job of the day is submitted; names are unique."""
    return f"demo:{name}"


@dataclass(frozen=True)
class Ask:
    """A submission, some seconds after the day's start; ``waits_for`` names other asks.

    ``by``: who submits it; else the project's member.
    """

    after_s: int
    project: str
    spec: JobSpec
    waits_for: tuple[str, ...] = ()
    cancelled_after_s: int | None = None
    by: str = ""

    def keyed(self, dependencies: Iterable[int]) -> JobSpec:
        """What is submitted: with the ids of the jobs it waits for, and a key of its own."""
        key = key_of(self.spec.name)
        return replace(self.spec, dependencies=tuple(dependencies), idempotency_key=key)

    @property
    def gpu_hours(self) -> float:
        """By what it really takes, where the day says, else as declared."""
        truth_s = self.spec.spec.get("simulate", {}).get("duration_s")
        return (self.spec.gpus or 0) * (truth_s or self.spec.expected_duration_s or 0) / HOUR


@dataclass(frozen=True)
class Habit:
    """What a project often asks for: ``hours`` is the median of its durations."""

    project: str
    stem: str
    kind: str
    gpus: tuple[int, ...]
    hours: float
    weight: int
    at_once: int = 1
    asks: dict[str, Any] | None = None


ENSEMBLE: dict[str, Any] = {
    "pools": ("h100",),
    "minimum_runtime_s": 2 * HOUR,
    "resumable": True,
    "urgency": "high",
}
STAGE: dict[str, Any] = {"minimum_runtime_s": 8 * HOUR, "resumable": True}
PROTECTED: dict[str, Any] = {"minimum_runtime_s": 4 * HOUR, "resumable": True}
FREE: dict[str, Any] = {"minimum_runtime_s": 0, "when_unfunded": "run", "resumable": True}
LONG: dict[str, Any] = {"minimum_runtime_s": 3 * HOUR, "resumable": True}
HABITS = (
    Habit("language/heron", "ablate", TRAINING, (8, 8, 16), 4.0, 4, asks=LONG),
    Habit("language/heron", "anneal", TRAINING, (8,), 5.0, 3, asks={"pools": ("h100",)}),
    Habit("language/wren", "rl-sweep-b", TRAINING, (1, 2, 2, 4), 5.0, 4, 4, FREE),
    Habit("language/wren", "dpo", TRAINING, (4, 8), 3.5, 4, asks={"resumable": True}),
    Habit("language/wren", "rlhf-probe", BATCH, (4, 8), 2.0, 2),
    Habit("language/magpie", "langid", BATCH, (2,), 3.0, 2, 2),
    Habit("language/magpie", "dedup", BATCH, (4, 8), 2.5, 2),
    Habit("vision/lynx", "vid-gen", TRAINING, (8, 16), 4.0, 4, asks=LONG),
    Habit("vision/lynx", "vid-tok", TRAINING, (4, 8), 3.5, 3),
    Habit("vision/lynx", "caption", BATCH, (1, 2), 2.0, 1, 2),
    Habit("vision/ibex", "grasp", TRAINING, (4, 8), 3.5, 4, asks={"resumable": True}),
    Habit("vision/ibex", "recon", BATCH, (2, 4), 2.5, 2, 2),
    Habit("science/tern", "md-screen", TRAINING, (8, 16), 4.0, 4, asks=LONG),
    Habit("science/tern", "relax", BATCH, (2, 4), 2.0, 2, 2),
    Habit("science/petrel", "hindcast", TRAINING, (2, 4), 5.0, 2, 2, FREE),
    Habit("science/petrel", "ens-small", TRAINING, (4, 8), 3.5, 3, asks={"urgency": "high"}),
    Habit("science/petrel", "downscale", BATCH, (2, 4), 2.0, 2),
    Habit("science/auk", "sky-emulator", TRAINING, (8,), 4.0, 3, asks={"resumable": True}),
    Habit("science/auk", "photo-z", BATCH, (1, 2), 2.0, 2, 2),
    Habit("platform/anvil", "gptq", QUANTIZATION, (2, 4), 1.5, 1, 2),
    Habit("platform/anvil", "awq", QUANTIZATION, (1, 2), 1.5, 1),
    Habit("platform/compass", "judge", BATCH, (2, 4), 2.5, 3),
    Habit("platform/compass", "probe", BATCH, (1, 2), 1.0, 2),
)


def asks(*, start: datetime, seed: int = SEED) -> list[Ask]:
    """The day's submissions in order of time; named ones first, then what fills the day."""
    draw = random.Random(seed)
    wanted = list(_named())
    total = sum(ask.gpu_hours for ask in wanted)
    numbers = {habit.stem: draw.randrange(30, 60) for habit in HABITS}
    while total < DEMAND * CAPACITY_GPU_H:
        habit = draw.choices(HABITS, [h.weight for h in HABITS])[0]
        after = _moment(draw, start)
        for _ in range(draw.randint(1, habit.at_once)):
            numbers[habit.stem] += 1
            ask = _draw(draw, habit, after, numbers[habit.stem])
            wanted.append(ask)
            total += ask.gpu_hours
    wanted += [*_debugging(draw, start), *_sessions()]
    computes = random.Random(f"{seed} computes3")  # a day that has all that its tour tells
    wanted = [replace(ask, spec=described(ask.spec, computes)) for ask in wanted]
    return sorted(wanted, key=lambda ask: ask.after_s)


def _named() -> Iterator[Ask]:
    """Jobs that have a part to play; the rest of the day is drawn around them."""
    yield _service()
    yield _job(0, "science/petrel", "ens-forecast-v3", TRAINING, 32, 8, **ENSEMBLE)
    stage1 = {"simulate": {"duration_s": 7 * HOUR}}
    yield _job(
        0, "language/heron", "stage1-34b", TRAINING, 16, 8, pools=("b200",), spec=stage1, **STAGE
    )
    for n in range(1, 4):
        yield _job(0, "language/wren", f"rl-sweep-b-{n}", TRAINING, 4, 5, **FREE)
    # A notebook that its owner left open: it trains for half an hour, then holds its GPUs.
    idle = {"simulate": {"duration_s": 5 * HOUR, "idle": [[30 * MINUTE, None]]}}
    yield _job(
        20 * MINUTE, "vision/lynx", "vid-tok-7", TRAINING, 8, 5, minimum_runtime_s=4 * HOUR,
        pools=("h100",), spec=idle,
    )  # fmt: skip
    yield _job(150 * MINUTE, "science/auk", "sky-emulator", TRAINING, 16, 6, **PROTECTED)
    yield _job(180 * MINUTE, "science/tern", "md-screen", TRAINING, 16, 5, **PROTECTED)
    fails = {"simulate": {"duration_s": 2 * HOUR, "fails_after_s": 40 * MINUTE}}
    yield _job(0, "platform/anvil", "awq-4", QUANTIZATION, 2, 1.5, resumable=True)
    yield _job(0, "vision/ibex", "recon-12", BATCH, 2, 2, spec=fails, urgency="high")
    yield _job(4 * HOUR, "science/tern", "fold-screen-04", TRAINING, 32, 5, pools=("h100",))
    changed = _job(5 * HOUR, "language/magpie", "quality-2", BATCH, 8, 3)
    yield replace(changed, cancelled_after_s=50 * MINUTE)
    stage2 = _job(
        6 * HOUR, "language/heron", "stage2-34b", TRAINING, 16, 8, pools=("b200",), **STAGE
    )
    yield replace(stage2, waits_for=("stage1-34b",))
    nightly = _job(20 * HOUR, "platform/compass", "suite-nightly", BATCH, 8, 2)
    yield replace(nightly, waits_for=("ens-forecast-v4",))
    slow = {"simulate": {"duration_s": 25 * MINUTE}}
    yield _job(
        10 * HOUR, "platform/compass", "probe-17", BATCH, 4, 0.2, time_limit_s=DEBUG_S, spec=slow
    )
    yield _job(19 * HOUR, "science/petrel", "ens-forecast-v4", TRAINING, 32, 6, **ENSEMBLE)
    for n, after in enumerate((15, 17, 21), 21):
        yield _job(after * HOUR, "platform/anvil", f"gptq-{n}", QUANTIZATION, 8, 4, **PROTECTED)
    yield _job(22 * HOUR, "language/heron", "anneal-2", TRAINING, 16, 8, pools=("b200",))


def _service() -> Ask:
    spec = JobSpec(
        name="assistant",
        kind=REALTIME,
        pools=("h100",),
        profile=ASSISTANT,
        swap_cap=2,
        time_zone=ZONE.key,
        command="serve assistant --replicas auto",
    )
    return Ask(0, "platform/beacon", spec)


def _job(
    after_s: int, project: str, name: str, kind: str, gpus: int, hours: float, **more: Any
) -> Ask:
    spec = JobSpec(
        name=name,
        kind=kind,
        gpus=gpus,
        expected_duration_s=round(hours * HOUR),
        command=f"run {name} --gpus {gpus}",
        **more,
    )
    return Ask(after_s, project, spec)


def _draw(draw: random.Random, habit: Habit, after_s: int, number: int) -> Ask:
    hours = habit.hours * math.exp(draw.gauss(0, 0.6))
    return _job(
        after_s,
        habit.project,
        f"{habit.stem}-{number}",
        habit.kind,
        draw.choice(habit.gpus),
        max(0.1, min(12.0, hours)),
        **{
            "urgency": draw.choice(("normal", "normal", "normal", "low", "high")),
            "resumable": draw.random() < CHECKPOINTS,
        }
        | (habit.asks or {}),
    )


def _debugging(draw: random.Random, start: datetime) -> Iterator[Ask]:
    """Short trials before a long run: at most 15 minutes, ended at the limit."""
    for n in range(1, 9):
        project, stem = draw.choice([(h.project, h.stem) for h in HABITS])
        likely = draw.choice((2, 4, 6, 9)) * MINUTE
        yield _job(
            _moment(draw, start), project, f"{stem}-debug-{n}", TRAINING,
            draw.choice((1, 2, 4)), likely / HOUR, time_limit_s=DEBUG_S, minimum_runtime_s=likely,
            urgency="high",
        )  # fmt: skip


def _sessions() -> Iterator[Ask]:
    """Two people who work in the cluster: one early, and one who still does when the day is over.

    Whoever is warned the first time asks for another hour.
    """
    yield _session(20 * MINUTE, "vision/ibex", "grasp-notebook", 1.5)
    yield replace(_session(22 * HOUR, "science/auk", "sky-notebook", 3), by="ines")


def _session(after_s: int, project: str, name: str, hours: float) -> Ask:
    left = {"simulate": {"duration_s": 12 * HOUR, "idle": [[40 * MINUTE, 60 * MINUTE]]}}
    spec = JobSpec(
        name=name,
        kind=TRAINING,
        gpus=2,
        time_limit_s=round(hours * HOUR),
        session=True,
        command="jupyter lab",
        spec=left,
    )
    return Ask(after_s, project, spec)


def _moment(draw: random.Random, start: datetime) -> int:
    """Seconds after the day's start at which somebody submits: a tenth right at its beginning.

    At whole ten minutes, so that some submissions share a cycle, as they do where people are busy.
    """
    if draw.random() < 0.1:
        return 10 * MINUTE
    first = start.astimezone(ZONE).hour
    hour = draw.choices(range(24), [BUSY[(first + n) % 24] for n in range(24)])[0]
    at = hour * HOUR + draw.randrange(0, HOUR, 10 * MINUTE)
    return min(at, int(timedelta(days=1).total_seconds()) - HOUR)
