"""How long a training job takes by physics alone: work ÷ speed + messages + overheads.

    step = compute × (1 + (p − 1) ÷ (m · v)) + exposed messages + launches
    seconds = steps × step × (1 + evaluation + saving) + generation + startup

p stages of a pipeline, m micro-batches a step, v virtual stages. `docs/forecasting.md` works each
term through. Every constant is a published figure or says that it is an assumption; none is fitted
to what the bench measures.
"""

from dataclasses import dataclass

from .hardware import GIGA
from .memory import Memory, fits, memory_of, most_that_fits, sharding_of
from .training import MOST_GPUS, Settled, SpecError, TrainingSpec, replicas_of, settle
from .work import Work, work_of

VERSION = "physics-1"
DEFAULT_BATCH = 256
# Speed of a precision, by that of 16 bits. fp8: between the 1.3-1.5 of vendors' guides and the 1.75
# of Peng et al. 2023 (FP8-LM, 175B on H100); fp4: a quarter more (its products are not all in fp4).
GAIN = {"fp16": 1.0, "bf16": 1.0, "fp8": 1.5, "fp4": 1.9}
# DeepSeek-V3's report: 14.8T tokens of 37B active parameters in 2.664M hours of H800 make 35 % of
# the 16-bit peak in fp8, where a dense model has 1.5 × 43 %.
SPARSE = 0.55
# NVIDIA DeepLearningExamples: ResNet-50 does 2,400 images a second on an A100, 19 % of its peak.
NO_TRANSFORMER = 0.32
TILE = 128  # narrow matrices fill the last tile of this width by half
OVERLAP = 0.8  # part of data-parallel messages that hide behind compute; an assumption
LAYER_OVERLAP = 0.5  # of messages within layers; an assumption
LAUNCH_S = 0.2e-3  # some 40 launches of 5 µs for a layer, forward and backward
STEP_S = 10e-3  # reading a batch, optimizer's launches; an assumption
DECODING = 64  # sequences decoded at a time by one copy; an assumption
READING = 0.6  # part of the bandwidth that decoding reaches; an assumption


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds by physics on so many GPUs, term by term (all in seconds but the last four)."""

    gpus: int
    seconds: float
    compute_s: float
    waiting_s: float
    messages_s: float
    launches_s: float
    generation_s: float
    overhead_s: float
    startup_s: float
    micro: int
    steps: float
    work: Work
    memory: Memory

    @property
    def gpu_hours(self) -> float:
        return self.gpus * self.seconds / 3600


@dataclass(frozen=True, slots=True)
class _Layout:
    gpus: int
    copies: int
    micro: int
    batches: int  # micro-batches of a copy in a step
    steps: float


def estimate_on(job: Settled, gpus: int) -> Estimate:
    """The estimate on `gpus`; refuses a layout or batch that doesn't divide."""
    if not 1 <= gpus <= MOST_GPUS:
        raise SpecError(f"gpus must be between 1 and {MOST_GPUS}, not {gpus}.")
    layout = _layout(job, gpus)
    work = work_of(job)
    compute, launches = _step_compute(job, layout, work)
    stages = job.spec.pipeline_parallel
    waiting = compute * (stages - 1) / (layout.batches * job.spec.virtual_stages)
    messages = _layer_messages(job, layout) * (1 - LAYER_OVERLAP)
    messages += _exposed(_copy_messages(job, layout), compute + launches - STEP_S)
    compute, waiting, messages, launches = (
        layout.steps * part for part in (compute, waiting, messages, launches)
    )
    steps = compute + waiting + messages + launches
    overhead = steps * (job.spec.evaluation + job.spec.saving)
    generation = _generation(job, gpus)
    return Estimate(
        gpus=gpus,
        seconds=steps + overhead + generation + job.startup_s,
        compute_s=compute,
        waiting_s=waiting,
        messages_s=messages,
        launches_s=launches,
        generation_s=generation,
        overhead_s=overhead,
        startup_s=job.startup_s,
        micro=layout.micro,
        steps=layout.steps,
        work=work,
        memory=memory_of(job, gpus, layout.micro),
    )


def speed(job: Settled, micro: int) -> float:
    """FLOP/s of a GPU in this job, by type, precision, width, micro-batch, experts."""
    gpu, spec = job.gpu, job.spec
    wide = job.precision in ("fp32", "tf32")
    peak = gpu.peak_flops(job.precision) if wide else gpu.peak_flops("fp16") * GAIN[job.precision]
    rate = peak * gpu.efficiency(job.precision)
    if spec.forward_flops:
        return rate * (1.0 if job.precision == "fp32" else NO_TRANSFORMER)
    rate *= job.hidden / (job.hidden + TILE)
    # A product with few tokens waits for its weights: it needs as many as a GPU does FLOPs a byte.
    tokens, ridge = micro * job.sequence, peak / (gpu.bandwidth_gbs * GIGA)
    rate *= tokens / (tokens + ridge)
    return rate * (SPARSE if job.active < 0.9 * spec.parameters else 1.0)


def mfu(job: Settled, micro: int) -> float:
    """The part of the peak that compute reaches, before messages and waiting."""
    return speed(job, micro) / job.gpu.peak_flops(job.precision)


def _layout(job: Settled, gpus: int) -> _Layout:
    copies = replicas_of(job.spec, gpus)
    batch = job.spec.global_batch or max(copies, DEFAULT_BATCH)
    most = -(-batch // copies)
    given = job.spec.micro_batch
    micro = min(given, most) if given else most_that_fits(job, gpus, 1 << (most.bit_length() - 1))
    steps = max(1.0, job.sequences / batch)
    return _Layout(gpus, copies, micro, -(-most // micro), steps)


def _step_compute(job: Settled, layout: _Layout, work: Work) -> tuple[float, float]:
    """Seconds of compute in a step, and what launching adds to it."""
    sequences = job.sequences / layout.steps
    flops = sequences * job.sequence * work.per_token
    compute = flops / (layout.gpus * speed(job, layout.micro))
    launching = LAUNCH_S * layout.batches * job.layers / job.spec.pipeline_parallel
    return compute, STEP_S + max(0.0, launching - compute)


def _link(job: Settled, gpus: int) -> float:
    """Bytes a second of one GPU in messages among `gpus` neighbours."""
    return GIGA * (job.gpu.link_gbs if gpus <= job.gpus_per_node else job.network_gbs)


def _layer_messages(job: Settled, layout: _Layout) -> float:
    """Seconds in a step of tensor-parallel sums (4 a layer) and experts' exchanges (4 a layer)."""
    spec = job.spec
    layers = layout.batches * job.layers / spec.pipeline_parallel
    message = 2.0 * job.sequence * layout.micro * job.hidden
    across, experts = spec.tensor_parallel, spec.expert_parallel
    seconds = 4 * layers * message * 2 * (across - 1) / across / _link(job, across)
    if experts > 1:
        sent = message * (spec.experts_per_token or 8) * (experts - 1) / experts / across
        seconds += 4 * layers * sent / _link(job, across * experts)
    return seconds


def _copy_messages(job: Settled, layout: _Layout) -> float:
    """Seconds in a step of what data-parallel copies tell each other.

    A ring sum moves 2·(D − 1)/D of the gradients; full sharding instead gathers the weights twice
    and shares out the gradients once for each micro-batch.
    """
    if layout.copies == 1:
        return 0.0
    spec, part = job.spec, (layout.copies - 1) / layout.copies
    wide = 4 if job.precision in ("fp32", "tf32") else 2
    weights = wide * spec.parameters / spec.pipeline_of / spec.expert_parallel
    gradients = weights * min(1.0, job.trainable / spec.parameters)
    moved = 2 * gradients
    if sharding_of(job) == "full":
        moved = (2 * weights + gradients) * layout.batches
    return moved * part / _link(job, layout.gpus)


def _exposed(messages: float, busy: float) -> float:
    """What of the messages isn't hidden behind the seconds in which a GPU computes or launches."""
    hidden = min(OVERLAP * messages, busy)
    return messages - hidden


def _generation(job: Settled, gpus: int) -> float:
    """Seconds of generating: by FLOPs, or by reading all weights for each token of the batch."""
    if not job.generated:
        return 0.0
    tokens = job.sequences * job.generated
    computing = (
        2.0 * job.active / (job.gpu.peak_flops(job.precision) * job.gpu.efficiency(job.precision))
    )
    reading = 2.0 * job.active / (job.gpu.bandwidth_gbs * GIGA * READING * DECODING)
    return tokens * max(computing, reading) / gpus


def powers(job: Settled, most: int = MOST_GPUS) -> list[int]:
    """The counts, powers of two up to `most`, that hold whole copies and feed each of them."""
    counts = [1 << k for k in range(most.bit_length()) if 1 << k <= most]
    found = []
    for gpus in counts:
        try:
            replicas_of(job.spec, gpus)
        except SpecError:
            continue
        found.append(gpus)
    return found


def fitting(spec: TrainingSpec, most: int = 1024) -> list[int]:
    """Which powers of two hold the job in memory at all, up to `most`."""
    job = settle(spec)
    micro = spec.micro_batch or 1
    return [gpus for gpus in powers(job, most) if fits(job, gpus, micro)]


def least_that_fits(spec: TrainingSpec, most: int = MOST_GPUS) -> int:
    """The least power of two that holds the job; one sentence if none does."""
    if found := fitting(spec, most):
        return found[0]
    raise SpecError(
        f"This doesn't fit on up to {most} {settle(spec).gpu.name}: share out more (sharding, "
        "tensor_parallel), checkpoint activations, use a smaller micro_batch or LoRA."
    )
