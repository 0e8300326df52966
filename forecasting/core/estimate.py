"""How long a training job will take, as a range with its reasons: physics, corrected by history."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from . import correction, physics
from .correction import Corrected, Correction, History, fit_correction
from .describing import Described, describe, described
from .physics import Estimate, estimate_on, fitting, least_that_fits
from .training import Settled, SpecError, TrainingSpec, settle

VERSION = f"{physics.VERSION}+correction-1"
LONGEST_S = 2**31 - 1
GIGA = 1e9


Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True)
class Observation(Generic[Spec]):
    """A job that ran to its end: what it was, on how many GPUs, what it took in seconds."""

    spec: Spec
    gpus: int
    seconds: float


class Kept(Protocol):
    """What a job keeps on its fullest GPU, in bytes."""

    @property
    def total(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Forecast:
    """Whole seconds p10 ≤ p50 ≤ p90 on `gpus`, and what they follow from.

    `fits` is what physics says of the memory. It isn't refused when it doesn't: what a run keeps
    depends on its code.
    """

    gpus: int
    p10: int
    p50: int
    p90: int
    physics_s: float
    memory: Kept
    fits: bool
    reasons: tuple[str, ...]
    version: str

    def __post_init__(self) -> None:
        if not 0 < self.p10 <= self.p50 <= self.p90 <= LONGEST_S:
            raise ValueError(f"A range must rise from above 0: {self.p10}, {self.p50}, {self.p90}.")

    @property
    def seconds(self) -> int:
        """The likely duration."""
        return self.p50

    @property
    def gpu_hours(self) -> tuple[float, float, float]:
        """GPU-hours at p10, p50 and p90."""
        low, likely, high = (self.gpus * s / 3600 for s in (self.p10, self.p50, self.p90))
        return low, likely, high


def learn(history: Iterable[Observation[TrainingSpec] | tuple[Described, float]]) -> Correction:
    """Fit the correction. Jobs may come already described, as they are once they are kept."""
    return learn_of(history, describe)


def learn_of(
    history: Iterable[Observation[Spec] | tuple[Described, float]],
    describe: Callable[[Spec, int], Described],
) -> Correction:
    """The same of another kind, whose jobs `describe` turns into what the correction sees."""
    rows: list[Described] = []
    seconds: list[float] = []
    for one in history:
        if isinstance(one, Observation):
            rows.append(describe(one.spec, one.gpus))
            seconds.append(one.seconds)
        else:
            rows.append(one[0])
            seconds.append(one[1])
    if not rows:
        return Correction(0, None, {}, ())
    return fit_correction(History.of(rows, seconds))


def estimate(
    spec: TrainingSpec,
    history: Correction | Sequence[Observation[TrainingSpec]] = (),
    gpus: int | None = None,
) -> Forecast:
    """The forecast of a job on `gpus`, on the spec's own, or on the least power of two that fits.

    `history` is a `Correction` that was learned before, or the jobs to learn from. A job that is
    nonsense is refused (SpecError, or UnknownName for a GPU) in one sentence.
    """
    learned = history if isinstance(history, Correction) else learn(history)
    count = gpus if gpus is not None else spec.gpus or least_that_fits(spec)
    job = settle(spec)
    found = estimate_on(job, count)
    factors = learned.correct(described(job, found))
    low, likely, high = spread(found.seconds, factors)
    fits = found.memory.total <= job.gpu.memory_bytes
    reasons = (*_reasons(job, found), *job.said, *corrections(learned, factors))
    return Forecast(count, low, likely, high, found.seconds, found.memory, fits, reasons, VERSION)


def options(
    spec: TrainingSpec,
    history: Correction | Sequence[Observation[TrainingSpec]] = (),
    most: int = 1024,
) -> list[Forecast]:
    """A forecast on each power of two up to `most` that the job fits on; one sentence if none."""
    learned = history if isinstance(history, Correction) else learn(history)
    least_that_fits(spec, most)
    return [estimate(spec, learned, gpus) for gpus in fitting(spec, most)]


def least_in_time(tried: Sequence[Forecast], deadline_s: float) -> Forecast:
    """Of some options the one with the fewest GPUs that ends in time even at its p90."""
    for one in sorted(tried, key=lambda one: one.gpus):
        if one.p90 <= deadline_s:
            return one
    fastest = min(tried, key=lambda one: one.p90)
    raise SpecError(
        f"{deadline_s:g} s can't be kept: the fastest, on {fastest.gpus} GPUs, "
        f"may take {fastest.p90} s."
    )


def cheapest(tried: Sequence[Forecast]) -> Forecast:
    """Of some options the one with the fewest likely GPU-hours, and of equals the smallest."""
    return min(tried, key=lambda one: (one.gpus * one.p50, one.gpus))


def spread(seconds: float, factors: Corrected) -> tuple[int, int, int]:
    """The formulas' seconds as a range: p10, p50 and p90 in whole seconds."""
    low, likely, high = (
        whole(seconds * math.exp(factor)) for factor in (factors.p10, factors.p50, factors.p90)
    )
    return low, likely, high


def whole(seconds: float) -> int:
    return min(max(round(seconds), 1), LONGEST_S)


def _reasons(job: Settled, found: Estimate) -> list[str]:
    """Each term of the physical estimate, in seconds or bytes."""
    work, memory, rate = found.work, found.memory, physics.mfu(job, found.micro)
    unit = "sample" if job.spec.forward_flops else "token"
    peak = job.gpu.peak_flops(job.precision) / 1e12
    said = [
        f"{job.tokens:.4g} {unit}s × {work.per_token:.4g} FLOPs a {unit}.",
        f"{found.gpus} {job.gpu.name} at {rate:.0%} of {peak:g} TFLOPS ({job.precision}): "
        f"{told(found.compute_s)} of computing.",
    ]
    terms = [
        (found.waiting_s, "of waiting in the pipeline"),
        (found.messages_s, "of messages that don't hide behind computing"),
        (found.launches_s, "of reading batches and launching"),
        (found.generation_s, "of generating"),
        (found.overhead_s, "of evaluating and saving"),
        (found.startup_s, "of starting"),
    ]
    said += [f"{told(seconds)} {what}." for seconds, what in terms if seconds > 0]
    parts = [
        (memory.weights, "weights"),
        (memory.gradients, "gradients"),
        (memory.optimizer, "optimizer states"),
        (memory.activations, f"activations of a micro-batch of {found.micro}"),
        (memory.logits, "logits"),
        (memory.reserve, "reserve"),
    ]
    listed = ", ".join(f"{size / GIGA:.1f} {what}" for size, what in parts if size > 0)
    fits = memory.total <= job.gpu.memory_bytes
    verdict = "which fits" if fits else "which doesn't fit: it may fail for lack of memory"
    said.append(f"GB a GPU: {listed}; of {job.gpu.memory_gb:g}, {verdict}.")
    return said


def told(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


WORDS = {
    "gpu": "no job on this type of GPU",
    "size": "no model of this size",
    "count": "no job on as many GPUs",
}


def corrections(learned: Correction, factors: Corrected) -> list[str]:
    if learned.model is None:
        return [f"A history of {learned.rows} jobs is too thin to correct by: physics alone."]
    said = [f"Corrected by {math.exp(factors.p50):.2f}, as {learned.rows} jobs came out."]
    if factors.way != correction.KNOWN:
        new = " and ".join(WORDS[way] for way in factors.way.split("+"))
        said.append(f"The history has {new}, so the range is wider.")
    return said
