"""How long it takes to quantize a model, by method: what is read, computed, packed and written.

    seconds = fetching + loading + passes + search or Hessians, inverses, columns + packing
              + writing + starting

bitsandbytes rounds what it reads. AWQ (Lin et al. 2023) tries 20 scales on each group of products
and 10 clippings of each weight. GPTQ (Frantar et al. 2022) sums T tokens' products into a Hessian
of each matrix (2·T·d² operations in 32 bits), inverts it (4/3·d³) and then rounds column by
column. One process does it: more GPUs hold more and aren't faster. `docs/forecasting.md` works each
term through; the constants are published, or set by the figures that the page lists.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .checking import MOST_GPUS, Parts, SpecError
from .correction import Correction
from .describing import Described
from .estimate import Forecast, Observation, corrections, learn_of, spread, told
from .hardware import GIGA, PCIE3
from .memory import RESERVE_BYTES, RESERVE_PART
from .quantizing_spec import QuantizingSpec, Settled, settle, tier
from .quantizing_spec import spec_of as spec_of

VERSION = "quantizing-1+correction-1"
PRODUCTS_32 = 0.75  # of the 32-bit peak that large square products reach without matrix units
READING = 0.6  # of the memory's bandwidth
PASSES = {"bitsandbytes": 0, "awq": 1, "gptq": 2}  # gptq runs a layer again once it is rounded
SCALES = 20  # AWQ's grid
CLIPPINGS, CLIPPED_TOKENS = 10, 512  # steps of its search of a clipping, and tokens that tell
PASSED = 4.0  # bytes of each product that the clipping writes and reads
LAUNCHED_S = 2e-3  # trying one scale on one expert, however small: an assumption
COLUMN_S = 0.15e-3  # a dozen launches for a column
GROUP_S = 1e-3  # a group's scale
# Seconds for 10⁹ weights: AutoRound's figures of 70B (5 and 17 minutes; 25 and 40 before).
PACKING_S = {"bitsandbytes": 0.0, "awq": 14.6, "gptq": 4.3}
# log: four of five runs should lie within these factors, by the published figures of the page.
PRIOR = {
    "bitsandbytes": (math.log(0.4), math.log(2.2)),
    "awq": (math.log(0.6), math.log(2.5)),
    "gptq": (math.log(0.7), math.log(3.0)),
}
HOUR = 3600


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds by the formulas, term by term."""

    gpus: int
    terms: tuple[tuple[str, float], ...]
    memory: Parts

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.terms)


def estimate_on(job: Settled, gpus: int) -> Estimate:
    """The estimate on `gpus`, which hold the model between them."""
    if not 1 <= gpus <= MOST_GPUS:
        raise SpecError(f"gpus must be between 1 and {MOST_GPUS}, not {gpus}.")
    spec, disk = job.spec, job.disk_gbs * GIGA
    terms = [
        ("fetching", job.read_bytes / (spec.download_gbs * GIGA) if spec.download_gbs else 0.0),
        ("loading", job.read_bytes / disk),
        ("moving", _moving(job)),
        ("passing", PASSES[spec.method] * _pass_s(job)),
        *{"awq": _awq, "gptq": _gptq, "bitsandbytes": _rounding}[spec.method](job),
        ("packing", PACKING_S[spec.method] * spec.parameters / 1e9 if spec.saving else 0.0),
        ("writing", job.written_bytes / disk if spec.saving else 0.0),
        ("starting", job.startup_s),
    ]
    return Estimate(gpus, tuple(terms), memory_of(job, gpus))


def _moving(job: Settled) -> float:
    """Weights to the GPU, and back where they aren't kept; from a disk they are read twice."""
    there = job.read_bytes / (PCIE3 * GIGA)
    back = there if job.offload != "none" else 0.0
    again = job.read_bytes / (job.disk_gbs * GIGA) if job.offload == "disk" else 0.0
    return there + back + again


def _rate(job: Settled) -> float:
    """FLOP/s of a GPU in 16 bits."""
    return job.gpu.peak_flops("bf16") * job.gpu.efficiency("bf16")


def _pass_s(job: Settled) -> float:
    """Seconds of one pass of all calibration tokens: 2·N + 4·L·h·s operations each."""
    per_token = 2.0 * job.active + 4.0 * job.layers * job.hidden * job.sequence
    return job.tokens * per_token / _rate(job)


def _rounding(job: Settled) -> list[tuple[str, float]]:
    moved = job.read_bytes + job.written_bytes
    return [("rounding", moved / (job.gpu.bandwidth_gbs * GIGA * READING))]


def _awq(job: Settled) -> list[tuple[str, float]]:
    """Each scale runs attention, its last product, the layer's rest and its last product again."""
    h, inner = job.hidden, job.inner
    attention = 2.0 * 5 * h**2 + 4.0 * h * job.sequence
    beside = 2.0 * 4 * h * inner * job.chosen
    work = SCALES * job.layers * job.tokens * (attention + beside) / _rate(job)
    launches = SCALES * job.layers * (2 + 2 * job.experts) * LAUNCHED_S
    tokens = min(job.tokens, CLIPPED_TOKENS)
    moved = job.spec.parameters * tokens * CLIPPINGS * PASSED
    clipping = moved / (job.gpu.bandwidth_gbs * GIGA * READING)
    return [("searching", work + launches), ("clipping", clipping)]


def _gptq(job: Settled) -> list[tuple[str, float]]:
    """Four products of attention and, of each expert, two of width h and one of the inner width."""
    h, inner, experts = job.hidden, job.inner, job.experts
    rate = job.gpu.peak_flops("fp32") * PRODUCTS_32
    squares = 4 * h**2 + job.chosen * (2 * h**2 + inner**2)  # tokens of an expert: T·k/E
    cubes = 4 * h**3 + experts * (2 * h**3 + inner**3)
    columns = job.layers * (4 * h + experts * (2 * h + inner))
    groups = columns / job.group * GROUP_S * (2 if job.spec.activation_order else 1)
    return [
        ("Hessians", 2.0 * job.tokens * job.layers * squares / rate),
        ("inverting", 4 / 3 * job.layers * cubes / rate),
        ("columns", columns * COLUMN_S + groups),
    ]


def memory_of(job: Settled, gpus: int) -> Parts:
    """Bytes of the fullest GPU: all weights by their share, or two layers at a time."""
    spec, h, inner = job.spec, job.hidden, job.inner
    reserve = RESERVE_BYTES + RESERVE_PART * job.gpu.memory_bytes
    held = job.written_bytes if spec.method == "bitsandbytes" else job.read_bytes
    layer = job.read_bytes / job.layers
    weights = held / gpus + layer if job.offload == "none" else min(held, 2 * layer)
    parts = [("weights", weights)]
    if spec.method == "gptq":
        squares = 4 * h**2 + job.experts * (2 * h**2 + inner**2)
        parts.append(("Hessians", 4.0 * squares + 12.0 * max(h, inner) ** 2))
    if spec.method != "bitsandbytes":
        kept = job.tokens * h * 4 if job.offload == "none" else job.sequence * h * 4.0
        passing = job.tokens if spec.method == "awq" else job.sequence
        parts.append(("activations", kept + 2.0 * passing * (h + inner * job.chosen)))
    return Parts((*parts, ("reserve", reserve)))


def fitting(spec: QuantizingSpec, most: int = 1024) -> list[int]:
    """Which powers of two hold the job in memory at all, up to `most`."""
    job = settle(spec)
    counts = [1 << k for k in range(most.bit_length()) if 1 << k <= most]
    return [n for n in counts if memory_of(job, n).total <= job.gpu.memory_bytes]


def least_that_fits(spec: QuantizingSpec, most: int = MOST_GPUS) -> int:
    """The least power of two that holds the job; one sentence if none does."""
    if found := fitting(spec, most):
        return found[0]
    raise SpecError(
        f"This doesn't fit on up to {most} {settle(spec).gpu.name}: offload it, "
        "calibrate with fewer or shorter samples, or take GPUs with more memory."
    )


def describe(spec: QuantizingSpec, gpus: int) -> Described:
    job = settle(spec)
    return described(job, estimate_on(job, gpus))


def described(job: Settled, found: Estimate) -> Described:
    """What the correction learns from: as of training jobs, with the method for a variant."""
    spec, gpu = job.spec, job.gpu.name
    model = f"{spec.framework} {spec.model}"
    plain = (gpu, spec.framework, spec.method, spec.project, model)
    labels = (*plain, f"{model} {gpu}", f"{spec.framework} {gpu}")
    novel = (gpu, tier(spec.parameters, job.tokens), str(found.gpus))
    parts = dict(found.terms)
    features = (
        math.log(spec.parameters),
        math.log(spec.parameters / job.active),
        math.log(1 + job.tokens),
        math.log(job.hidden),
        math.log(job.group),
        float(spec.bits),
        math.log(found.gpus),
        math.log(job.experts),
        *(float(spec.method == method) for method in ("awq", "gptq")),
        *(parts[name] / found.seconds for name in ("loading", "passing", "packing")),
        math.log(job.disk_gbs),
    )
    return Described(features, math.log(found.seconds), labels, novel)


@dataclass(frozen=True, slots=True)
class QuantizingForecast(Forecast):
    """A forecast, and the whole GPU-hours to ask for: p50 and the margin, rounded up."""

    whole_gpu_hours: int

    @property
    def asked_s(self) -> int:
        """The seconds that so many GPU-hours last, rounded up."""
        return -(-self.whole_gpu_hours * HOUR // self.gpus)


def hours_to_ask(gpus: int, seconds: float, margin: float) -> int:
    """GPU-hours with a margin, rounded up to whole ones; at least 1."""
    return max(1, math.ceil(round(gpus * seconds * (1 + margin) / HOUR, 6)))


def estimate(
    spec: QuantizingSpec,
    history: Correction | Sequence[Observation[QuantizingSpec]] = (),
    gpus: int | None = None,
) -> QuantizingForecast:
    """The forecast on `gpus`, on the spec's own, or on the least power of two that fits.

    `history` is a `Correction` that was learned before, or jobs to learn from; of few of them
    nothing is learned and the formulas stand, with the published spread.
    """
    learned = history if isinstance(history, Correction) else learn_of(history, describe)
    count = gpus if gpus is not None else spec.gpus or least_that_fits(spec)
    job = settle(spec)
    found = estimate_on(job, count)
    factors = learned.correct(described(job, found), PRIOR[spec.method])
    low, likely, high = spread(found.seconds, factors)
    fits = found.memory.total <= job.gpu.memory_bytes
    hours = hours_to_ask(count, likely, spec.margin)
    reasons = (*_reasons(job, found, fits), *job.said, *corrections(learned, factors))
    asked = f"{hours} whole GPU-hours to ask for: {spec.margin:.0%} on top, rounded up."
    return QuantizingForecast(
        gpus=count,
        p10=low,
        p50=likely,
        p90=high,
        physics_s=found.seconds,
        memory=found.memory,
        fits=fits,
        reasons=(*reasons, asked),
        version=VERSION,
        whole_gpu_hours=hours,
    )


def options(
    spec: QuantizingSpec,
    history: Correction | Sequence[Observation[QuantizingSpec]] = (),
    most: int = 1024,
) -> list[QuantizingForecast]:
    """A forecast on each power of two up to `most` that the job fits on; one sentence if none."""
    learned = history if isinstance(history, Correction) else learn_of(history, describe)
    least_that_fits(spec, most)
    return [estimate(spec, learned, gpus) for gpus in fitting(spec, most)]


SAID = {
    "fetching": "of fetching the model",
    "loading": "of loading 16-bit weights",
    "moving": "of moving weights to the GPU and back",
    "passing": "of passing the calibration's tokens through the model",
    "rounding": "of rounding weights",
    "searching": "of trying scales on each layer",
    "clipping": "of looking for the best clipping",
    "Hessians": "of adding up Hessians in 32 bits",
    "inverting": "of inverting them",
    "columns": "of rounding column by column",
    "packing": "of packing weights",
    "writing": "of writing them",
    "starting": "of starting",
}


def _reasons(job: Settled, found: Estimate, fits: bool) -> list[str]:
    """Each term of the formulas, in seconds or bytes."""
    spec = job.spec
    said = [f"{spec.method}, {spec.bits} bits: class {tier(spec.parameters, job.tokens)}."]
    said += [f"{told(seconds)} {SAID[name]}." for name, seconds in found.terms if seconds > 0]
    listed = ", ".join(f"{size / GIGA:.1f} {name}" for name, size in found.memory.parts)
    verdict = "which fits" if fits else "which doesn't fit: it may fail for lack of memory"
    said.append(f"GB a GPU: {listed}; of {job.gpu.memory_gb:g}, {verdict}.")
    if found.gpus > 1:
        said.append("One process quantizes: more GPUs hold more, and aren't faster.")
    return said
