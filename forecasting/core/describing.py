"""Jobs as numbers: what the correction learns from, beside the physical estimate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .memory import sharding_of
from .physics import GAIN, Estimate, estimate_on
from .training import Settled, TrainingSpec, settle

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# What the correction sees of a job. Logarithms are natural; parts lie between 0 and 1.
NAMES = (
    "log active parameters",
    "log parameters ÷ active",
    "log trainable part",
    "log sequence length",
    "log tokens of a micro-batch",
    "log GPUs",
    "log nodes",
    "log micro-batches a step",
    "messages, part of the time",
    "waiting, part of the time",
    "overheads of a step, part of the time",
    "attention, part of the forward pass",
    "recomputed, part of the work",
    "log gain of the precision",
    "32 bits",
    "no transformer",
    "fully sharded",
    "log tensor parallel",
    "log expert parallel",
    "log peak",
    "log peak ÷ bandwidth",
    "log link ÷ peak",
)
# What may be new about a job: the type of GPU, the size of the model, the count of GPUs.
NOVEL = ("gpu", "size", "count")
# What has an offset of its own in the correction.
GROUPS = ("gpu", "framework", "variant", "project", "model", "model on gpu", "framework on gpu")


@dataclass(frozen=True, slots=True)
class Described:
    """One job: features as in `NAMES`, log seconds by physics, and its labels."""

    features: tuple[float, ...]
    log_physics: float
    labels: tuple[str, ...]  # as in GROUPS
    novel: tuple[str, ...]  # as in NOVEL


def size_of(spec: TrainingSpec) -> str:
    """The size class: parameters to the nearest power of two; other models each by its name."""
    if spec.forward_flops:
        return spec.model or f"{spec.forward_flops:.1e}"
    return f"2^{round(math.log2(spec.parameters))}"


def describe(spec: TrainingSpec, gpus: int) -> Described:
    job = settle(spec)
    return described(job, estimate_on(job, gpus))


def described(job: Settled, found: Estimate) -> Described:
    spec = job.spec
    gpu, model = job.gpu.name, f"{spec.framework} {spec.model}"
    plain = (gpu, spec.framework, spec.variant, spec.project, model)
    labels = (*plain, f"{model} {gpu}", f"{spec.framework} {gpu}")
    novel = (job.gpu.name, size_of(spec), str(found.gpus))
    return Described(_features(job, found), math.log(found.seconds), labels, novel)


def _features(job: Settled, found: Estimate) -> tuple[float, ...]:
    spec, gpu, work, log = job.spec, job.gpu, found.work, math.log
    copies = found.gpus / spec.pipeline_of
    steps = found.compute_s + found.waiting_s + found.messages_s + found.launches_s
    peak = gpu.peak_flops(job.precision)
    batches = max(1.0, job.sequences / found.steps / copies / found.micro)
    return (
        log(job.active),
        log(spec.parameters / job.active),
        log(min(1.0, job.trainable / spec.parameters)),
        log(job.sequence),
        log(found.micro * job.sequence),
        log(found.gpus),
        log(max(1.0, found.gpus / job.gpus_per_node)),
        log(batches),
        found.messages_s / steps,
        found.waiting_s / steps,
        found.launches_s / steps,
        work.attention / work.forward,
        work.recomputed / work.per_token,
        log(GAIN.get(job.precision, 1.0)),
        float(job.precision in ("fp32", "tf32")),
        float(spec.forward_flops is not None),
        float(sharding_of(job) == "full"),
        log(spec.tensor_parallel),
        log(spec.expert_parallel),
        log(peak),
        log(peak / gpu.bandwidth_gbs),
        log(gpu.link_gbs / peak * 1e12),
    )


@dataclass(frozen=True, slots=True)
class Standard:
    """Features as multiples of their spread, no further out than the history reached."""

    middle: Floats
    spread: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, features: Floats) -> "Standard":
        spread = features.std(axis=0)
        low, high = features.min(axis=0), features.max(axis=0)
        return cls(features.mean(axis=0), np.where(spread > 1e-9, spread, 1.0), low, high)

    def apply(self, features: Floats) -> Floats:
        """A feature that never changed says nothing, and is 0."""
        kept = np.minimum(np.maximum(features, self.low), self.high)
        found: Floats = (kept - self.middle) / self.spread
        return found


def codes(labels: Sequence[str]) -> tuple[dict[str, int], Ints]:
    """Labels as small numbers, in order of their first appearance."""
    known = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    return known, np.fromiter(map(known.__getitem__, labels), np.int64, count=len(labels))
