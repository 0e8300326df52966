"""How long a batch of inference takes: measured throughput, else a roofline of its two phases.

    seconds = loading + starting + prompts of a copy × (prefill + output × step ÷ batch) + draining

Prefill is bound by operations; a step of decoding reads the weights once for all sequences of a
batch and each one's cache, and multiplies (Pope et al. 2022). Copies of the model share prompts.
`docs/forecasting.md` works each term through; the constants are published or assumptions, and say
which.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .checking import MOST_GPUS, Parts, SpecError
from .correction import Correction
from .describing import Described
from .estimate import Forecast, Observation, corrections, learn_of, spread, told
from .hardware import GIGA, Gpu
from .inference_spec import InferenceSpec, Settled, copies_of, settle
from .inference_spec import spec_of as spec_of
from .memory import RESERVE_BYTES, RESERVE_PART
from .physics import GAIN, SPARSE, TILE

VERSION = "inference-2+correction-1"
READING = 0.6  # part of the bandwidth that decoding reaches; an assumption
UNPACKED = 0.8  # speed of weights that are unpacked before they are multiplied; an assumption
NO_INT8 = ("Kepler", "Pascal", "Volta")
LAYER_S = 0.07e-3  # launches of a layer's forward pass: a third of a training step's
SUM_S = 20e-6  # least time of a sum over GPUs, of which a layer has two; an assumption
CHUNK = 8192  # tokens of prefill at a time
WIDTHS = 12.0  # numbers of a token that are live in a layer, in h; an assumption
# log: four of five runs lie within these factors; the published figures are on the page.
PRIOR = (math.log(0.6), math.log(2.0))
MEASURED = (math.log(0.8), math.log(1.35))  # where the throughput was measured: an assumption


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds by the formulas, term by term, and what they were made for."""

    gpus: int
    across: int  # GPUs of a copy
    copies: int
    batch: int
    terms: tuple[tuple[str, float], ...]
    memory: Parts

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.terms)


def estimate_on(job: Settled, gpus: int) -> Estimate:
    """The estimate on `gpus`; a copy takes as many as is quickest and fits, if it isn't given."""
    if not 1 <= gpus <= MOST_GPUS:
        raise SpecError(f"gpus must be between 1 and {MOST_GPUS}, not {gpus}.")
    tried = [_estimate(job, gpus, across) for across in _splits(job, gpus)]
    fitting = [one for one in tried if fits(job, one)]
    if job.spec.tokens_per_second:  # says nothing of how a wider copy would do: the least that fits
        return (fitting or tried[-1:])[0]
    return min(fitting or tried[-1:], key=lambda one: (one.seconds, one.across))


def fits(job: Settled, found: Estimate) -> bool:
    return found.memory.total <= job.gpu.memory_bytes


def _splits(job: Settled, gpus: int) -> list[int]:
    """Ways to split a copy: the given one, or every power of two that divides the GPUs."""
    if given := job.spec.tensor_parallel:
        copies_of(job.spec, gpus, given)
        return [given]
    return [1 << k for k in range(11) if gpus % (1 << k) == 0]


def _estimate(job: Settled, gpus: int, across: int) -> Estimate:
    copies = gpus // across
    prompts = float(math.ceil(job.spec.prompts / copies))  # of the copy that has most
    batch = _batch(job, across, prompts)
    loading = [
        ("loading", job.weight_bytes / (job.disk_gbs * GIGA)),
        ("starting", job.startup_s),
    ]
    memory = memory_of(job, across, batch)
    if rate := job.spec.tokens_per_second:
        terms = [("measured", prompts * job.spec.output_tokens / (rate * across))]
    else:
        terms = _roofline(job, across, prompts, batch)
    return Estimate(gpus, across, copies, batch, (*terms, *loading), memory)


def _batch(job: Settled, across: int, prompts: float) -> int:
    """Sequences at a time: as asked, as there are, and no more than fit; at least one."""
    free = job.gpu.memory_bytes - memory_of(job, across, 0).total
    most = math.floor(free / _cache_bytes(job, across)) if free > 0 else 0
    return max(1, min(job.batch, int(prompts), most))


def _cache_bytes(job: Settled, across: int) -> float:
    """Of a sequence at its longest, on one of the GPUs; heads aren't split further than to one."""
    length = job.spec.input_tokens + job.spec.output_tokens
    return job.cache_of_token * length / min(across, job.kv_heads)


def memory_of(job: Settled, across: int, batch: int) -> Parts:
    """Bytes of the fullest GPU with so many sequences at a time."""
    tokens = min(CHUNK, job.spec.input_tokens)
    reserve = RESERVE_BYTES + RESERVE_PART * job.gpu.memory_bytes
    return Parts(
        (
            ("weights", job.weight_bytes / across),
            ("cache", batch * _cache_bytes(job, across)),
            ("activations", 2.0 * WIDTHS * job.hidden * tokens / across),
            ("reserve", reserve),
        )
    )


def gain_of(gpu: Gpu, precision: str) -> float:
    """Speed of products in a precision, by that of 16 bits on this GPU."""
    if precision == "int8":
        return GAIN["fp8"] if gpu.family not in NO_INT8 else UNPACKED
    if precision == "int4" or (precision == "fp4" and not gpu.fp4):
        return UNPACKED
    if precision == "fp8" and not gpu.fp8:
        return UNPACKED
    return GAIN[precision]


def rate_of(job: Settled) -> float:
    """FLOP/s of a GPU in large products."""
    rate = job.gpu.peak_flops("fp16") * job.gpu.efficiency("fp16")
    rate *= gain_of(job.gpu, job.spec.precision) * job.hidden / (job.hidden + TILE)
    return rate * (SPARSE if job.active < 0.9 * job.spec.parameters else 1.0)


def _roofline(job: Settled, across: int, prompts: float, batch: int) -> list[tuple[str, float]]:
    """Seconds of a copy: what each prompt takes, and what each step takes for a whole batch."""
    spec, rate = job.spec, rate_of(job) * across
    bandwidth = job.gpu.bandwidth_gbs * GIGA * READING
    computed = spec.input_tokens * (1 - spec.cached_part)
    attention = 2.0 * job.layers * job.hidden * spec.input_tokens  # half of it is masked
    prefill = computed * (2.0 * job.active + attention) / rate
    steps = prompts * spec.output_tokens / batch
    length = spec.input_tokens + spec.output_tokens / 2
    reading = _read_bytes(job, batch) / across / bandwidth
    cache = job.cache_of_token * length / min(across, job.kv_heads) / bandwidth
    products = (2.0 * job.active + 4.0 * job.layers * job.hidden * length) / rate
    step_s = LAYER_S * job.layers + _sums(job, across)
    chunks = prompts * computed / CHUNK
    per_token = _message_s(job, across)
    unshared = job.weight_bytes / across / bandwidth + step_s
    draining = 0.5 * spec.output_tokens * unshared * max(0.0, 1 - batch / prompts)
    return [
        ("prefill", prompts * prefill),
        ("weights", steps * reading),
        ("cache", steps * batch * cache),
        ("products", steps * batch * products),
        ("messages", prompts * (computed + spec.output_tokens) * per_token),
        ("launches", (steps + chunks) * step_s),
        ("draining", draining),
    ]


def _read_bytes(job: Settled, batch: int) -> float:
    """Weights that a step reads: all of a dense model, of experts those that any token chose."""
    part = job.active / job.spec.parameters
    if part >= 1 or job.experts == 1:
        return job.weight_bytes
    missed = (1 - part) ** batch
    return job.weight_bytes * (1 - missed)


def _link(job: Settled, across: int) -> float:
    return GIGA * (job.gpu.link_gbs if across <= job.gpus_per_node else job.network_gbs)


def _message_s(job: Settled, across: int) -> float:
    """Seconds of a token's two sums a layer, by bytes."""
    if across == 1:
        return 0.0
    return 2 * job.layers * 2 * (across - 1) / across * 2.0 * job.hidden / _link(job, across)


def _sums(job: Settled, across: int) -> float:
    """Seconds of a step's two sums a layer, however few tokens there are."""
    return 2 * job.layers * SUM_S if across > 1 else 0.0


def fitting(spec: InferenceSpec, most: int = 1024) -> list[int]:
    """Which powers of two hold the model and one sequence, up to `most`."""
    job, across = settle(spec), spec.tensor_parallel or 1
    counts = [1 << k for k in range(most.bit_length()) if 1 << k <= most]
    return [n for n in counts if n % across == 0 and fits(job, estimate_on(job, n))]


def least_that_fits(spec: InferenceSpec, most: int = MOST_GPUS) -> int:
    """The least power of two that holds the job; one sentence if none does."""
    job, across = settle(spec), spec.tensor_parallel or 1
    for n in (1 << k for k in range(most.bit_length())):
        if n <= most and n % across == 0 and fits(job, estimate_on(job, n)):
            return n
    raise SpecError(
        f"This doesn't fit on up to {most} {job.gpu.name}: quantize the weights, split the model "
        "(tensor_parallel), or shorten prompts."
    )


def describe(spec: InferenceSpec, gpus: int) -> Described:
    job = settle(spec)
    return described(job, estimate_on(job, gpus))


def described(job: Settled, found: Estimate) -> Described:
    """What the correction learns from: as of training jobs, with the precision for a variant."""
    spec, gpu = job.spec, job.gpu.name
    model = f"{spec.framework} {spec.model}"
    plain = (gpu, spec.framework, spec.precision, spec.project, model)
    labels = (*plain, f"{model} {gpu}", f"{spec.framework} {gpu}")
    novel = (gpu, f"2^{round(math.log2(spec.parameters))}", str(found.gpus))
    parts, work = dict(found.terms), found.seconds
    features = (
        math.log(job.active),
        math.log(spec.parameters / job.active),
        math.log(spec.input_tokens),
        math.log(spec.output_tokens),
        math.log(spec.prompts),
        math.log(found.batch),
        math.log(found.across),
        math.log(found.gpus),
        math.log(gain_of(job.gpu, spec.precision)),
        *(parts.get(name, 0.0) / work for name in ("prefill", "weights", "cache", "launches")),
        parts.get("measured", 0.0) / work,
        math.log(job.gpu.peak_flops("fp16") / job.gpu.bandwidth_gbs),
    )
    return Described(features, math.log(work), labels, novel)


def estimate(
    spec: InferenceSpec,
    history: Correction | Sequence[Observation[InferenceSpec]] = (),
    gpus: int | None = None,
) -> Forecast:
    """The forecast on `gpus`, on the spec's own, or on the least power of two that fits.

    `history` is a `Correction` that was learned before, or jobs to learn from; of few of them
    nothing is learned and the formulas stand, with the published spread.
    """
    learned = history if isinstance(history, Correction) else learn_of(history, describe)
    count = gpus if gpus is not None else spec.gpus or least_that_fits(spec)
    job = settle(spec)
    found = estimate_on(job, count)
    factors = learned.correct(described(job, found), MEASURED if spec.tokens_per_second else PRIOR)
    low, likely, high = spread(found.seconds, factors)
    reasons = (*_reasons(job, found), *job.said, *corrections(learned, factors))
    return Forecast(
        gpus=count,
        p10=low,
        p50=likely,
        p90=high,
        physics_s=found.seconds,
        memory=found.memory,
        fits=fits(job, found),
        reasons=reasons,
        version=VERSION,
    )


def options(
    spec: InferenceSpec,
    history: Correction | Sequence[Observation[InferenceSpec]] = (),
    most: int = 1024,
) -> list[Forecast]:
    """A forecast on each power of two up to `most` that the job fits on; one sentence if none."""
    learned = history if isinstance(history, Correction) else learn_of(history, describe)
    least_that_fits(spec, most)
    return [estimate(spec, learned, gpus) for gpus in fitting(spec, most)]


SAID = {
    "measured": "of the work",
    "prefill": "of reading prompts (prefill)",
    "weights": "of reading weights, once a step for the whole batch",
    "cache": "of reading caches",
    "products": "of products of what is generated",
    "messages": "of messages within a copy",
    "launches": "of launching, and of the least time of sums",
    "draining": "while the last sequences end",
    "loading": "of loading weights",
    "starting": "of starting",
}


def _reasons(job: Settled, found: Estimate) -> Iterator[str]:
    """Each term of the formulas, in seconds or bytes."""
    spec, seconds = job.spec, found.seconds
    tokens = spec.prompts * spec.output_tokens
    if rate := spec.tokens_per_second:
        yield f"Measured: {rate:,.0f} output tokens a second and GPU, which counts."
        if spec.prompts < found.copies:
            few = f"{spec.prompts:,.0f} prompts keep no more copies of the model busy"
            yield f"{few}, of {found.copies}."
    else:
        yield (
            f"{found.copies} × {found.across} {job.gpu.name}, {found.batch} sequences at a time: "
            f"{tokens / seconds / found.gpus:,.0f} output tokens a second and GPU."
        )
    for name, took in found.terms:
        if took > 0:
            yield f"{told(took)} {SAID[name]}."
    listed = ", ".join(f"{size / GIGA:.1f} {name}" for name, size in found.memory.parts)
    verdict = "which fits" if fits(job, found) else "which doesn't fit: it may fail"
    yield f"GB a GPU: {listed}; of {job.gpu.memory_gb:g}, {verdict}."
