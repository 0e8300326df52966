"""What a training job keeps on each GPU, in bytes, and whether that fits.

Weights, gradients and optimizer states are shared out by tensor and pipeline parallel, by experts,
and among data-parallel copies by the sharding (Rajbhandari et al. 2020, ZeRO). A layer keeps
32·s·b·h bytes of activations in 16 bits, and 5·a·s²·b more with standard attention; with full
checkpointing 2·s·b·h, and one layer's whole while it is computed again (Korthikanti et al. 2022,
whose 34 hold two masks of dropout that language models no longer train with).
"""

from dataclasses import dataclass

from .training import SHARDING, Settled, replicas_of
from .work import OTHER_PASSES

RESERVE_BYTES, RESERVE_PART = 1e9, 0.03  # context and buffers of messages; fragments
QUANTIZED_BYTES = 0.5 + 0.127 / 8  # Dettmers et al. 2023: 4 bits and 0.127 bits of constants
# Bytes a trained parameter beside weight and gradient: with 32-bit master weights, and without.
OPTIMIZER_BYTES = {
    "adamw": (12, 4),
    "adamw-8bit": (6, 2),
    "adafactor": (4, 0),
    "lion": (8, 2),
    "sgd": (8, 2),
}
TRAINED_COPIES = {"rlhf": 2}  # policy and critic
GATHERED_LAYERS = 2  # fully sharded weights are whole for the layer at work and the next


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the fullest GPU."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    reserve: float

    @property
    def total(self) -> float:
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.logits
            + self.reserve
        )


def sharding_of(job: Settled) -> str:
    """What data-parallel copies share out: all of it, unless said or laid out otherwise."""
    return job.spec.sharding or ("full" if job.spec.pipeline_of == 1 else "optimizer")


def memory_of(job: Settled, gpus: int, micro: int) -> Memory:
    """Bytes a GPU when `gpus` share the job and compute `micro` sequences at a time."""
    spec, copies = job.spec, replicas_of(job.spec, gpus)
    stage = SHARDING.index(sharding_of(job))
    held = _held_parameters(job)
    wide = 4 if job.precision in ("fp32", "tf32") else 2
    base = QUANTIZED_BYTES if spec.quantized_base else wide
    technique = spec.technique
    trained = held * min(1.0, job.trainable / spec.parameters) * TRAINED_COPIES.get(technique, 1)
    models = len({*OTHER_PASSES[technique]} & {"reference", "reward", "critic trained"}) + 1
    if spec.lora and "reference" in OTHER_PASSES[technique]:
        models -= 1  # it is the same weights without the adapters
    adapters = wide * trained if spec.lora else 0.0
    weights = held * base * models + adapters
    if stage == 3 and copies > 1:
        weights = weights / copies + min(1.0, GATHERED_LAYERS / job.layers) * held * base
    gradients = trained * wide / (copies if stage >= 2 else 1)
    states = trained * _optimizer_bytes(job, wide) / (copies if stage >= 1 else 1)
    reserve = RESERVE_BYTES + RESERVE_PART * job.gpu.memory_bytes
    return Memory(
        weights, gradients, states, _activations(job, micro, wide), _logits(job, micro), reserve
    )


def _held_parameters(job: Settled) -> float:
    """Parameters of one GPU before sharding: experts are what isn't active for a token."""
    spec = job.spec
    experts = spec.parameters - job.active
    return (job.active + experts / spec.expert_parallel) / spec.pipeline_of


def _optimizer_bytes(job: Settled, wide: int) -> int:
    master, pure = OPTIMIZER_BYTES[job.spec.optimizer]
    if wide == 4:
        return master - 4
    return master if job.spec.master_weights else pure


def _activations(job: Settled, micro: int, wide: int) -> float:
    """Bytes; none are counted of a model that is no transformer, whose shape isn't known."""
    spec = job.spec
    if spec.forward_flops:
        return 0.0
    tokens = float(job.sequence * micro * job.hidden)
    whole = 32.0 * tokens
    if spec.attention == "standard" and spec.checkpointing == "none":
        whole += 5.0 * job.heads * float(job.sequence) ** 2 * micro
    kept = 2.0 * tokens if spec.checkpointing == "full" else whole
    working = whole if spec.checkpointing == "full" else 0.0
    # The first stage of a pipeline keeps as many micro-batches as there are stages: all layers.
    return (kept * job.layers + working) / spec.tensor_parallel * wide / 2


def _logits(job: Settled, micro: int) -> float:
    """Logits in 16 bits, and their softmax in 32."""
    return 6.0 * job.sequence * micro * job.vocabulary / job.spec.tensor_parallel


def most_that_fits(job: Settled, gpus: int, most: int) -> int:
    """The most sequences at a time that fit, of `most` (a power of two) and its halves; at least 1.

    Activations and logits grow with their number; all else stands.
    """
    one, micro = memory_of(job, gpus, 1), most
    standing = one.weights + one.gradients + one.optimizer
    while micro > 1:
        held = standing + micro * one.activations + micro * one.logits + one.reserve
        if held <= job.gpu.memory_bytes:
            break
        micro //= 2
    return micro


def fits(job: Settled, gpus: int, micro: int = 1) -> bool:
    return memory_of(job, gpus, micro).total <= job.gpu.memory_bytes
