"""What a training job is described by: its features, each with a unit, a default and an effect.

`TrainingSpec` holds what was asked for; None is "not given". `settle` fills in the rest, either
derived from what is given or a default, and says so in sentences. Nonsense is refused in one
sentence before anything is computed.
"""

import math
from dataclasses import dataclass, fields

from .checking import MOST_GPUS as MOST_GPUS
from .checking import SpecError as SpecError
from .checking import one_of, within
from .hardware import PRECISIONS, Gpu, gpu_type

TECHNIQUES = ("sft", "dpo", "rlhf", "rlvr", "cpt")
VARIANTS = tuple(f"{how}-{technique}" for technique in TECHNIQUES for how in ("full", "lora"))
OPTIMIZERS = ("adamw", "adamw-8bit", "adafactor", "lion", "sgd")
CHECKPOINTING = ("none", "selective", "full")
ATTENTION = ("flash", "standard")
SHARDING = ("none", "optimizer", "gradients", "full")
CHOICES = {
    "variant": VARIANTS,
    "precision": PRECISIONS,
    "optimizer": OPTIMIZERS,
    "checkpointing": CHECKPOINTING,
    "attention": ATTENTION,
    "sharding": SHARDING,
}
DEFAULT_SEQUENCE = 2048
DEFAULT_VOCABULARY = 32_000
DEFAULT_RANK = 16
DEFAULT_STARTUP_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpec:
    """One training job as it was described. `FEATURES` documents each field.

    A model that is no language model gives `forward_flops` of a sample instead of layers; its
    "sequences" are samples then.
    """

    gpu: str
    parameters: float
    gpus: int | None = None
    variant: str = "full-sft"
    active_parameters: float | None = None
    trainable_parameters: float | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    vocabulary: int | None = None
    sequence_length: int | None = None
    forward_flops: float | None = None
    tokens: float | None = None
    samples: float | None = None
    epochs: float = 1.0
    global_batch: int | None = None
    micro_batch: int | None = None
    precision: str = "bf16"
    master_weights: bool = True
    optimizer: str = "adamw"
    checkpointing: str = "none"
    attention: str = "flash"
    quantized_base: bool = False
    lora_rank: int | None = None
    generated_tokens: float | None = None
    group_size: int | None = None
    experts_per_token: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    virtual_stages: int = 1
    expert_parallel: int = 1
    sharding: str | None = None
    gpus_per_node: int | None = None
    network_gbs: float | None = None
    framework: str = ""
    packing: float = 1.0
    evaluation: float = 0.0
    saving: float = 0.02
    startup_s: float | None = None
    model: str = ""
    project: str = ""

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value is not None:
                one_of(name, value, known)
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if value is not None:
                within(name, value, least, most, whole=name in WHOLE)
        gpu_type(self.gpu)
        self._agree()

    def _agree(self) -> None:
        """What is given must agree with itself."""
        if self.tokens is None and self.samples is None:
            raise SpecError("Say how much is trained: tokens, or samples and epochs.")
        for name in ("active_parameters", "trainable_parameters"):
            if (getattr(self, name) or 0) > self.parameters:
                raise SpecError(f"{name} can't be more than parameters ({self.parameters:.4g}).")
        if self.quantized_base and not self.lora:
            raise SpecError("Only LoRA trains on quantized weights: choose a lora variant.")
        if self.heads and self.hidden_size and self.heads > self.hidden_size:
            raise SpecError("There can't be more heads than hidden_size.")
        if self.gpus is not None:
            replicas_of(self, self.gpus)

    @property
    def lora(self) -> bool:
        return self.variant.startswith("lora")

    @property
    def technique(self) -> str:
        return self.variant.split("-")[1]

    @property
    def pipeline_of(self) -> int:
        """GPUs that hold one copy of the model between them."""
        return self.tensor_parallel * self.pipeline_parallel


# The least and the most of each number. The most is far beyond what has been trained.
LIMITS: dict[str, tuple[float, float]] = {
    "gpus": (1, MOST_GPUS),
    "parameters": (1e3, 1e14),
    "active_parameters": (1e3, 1e14),
    "trainable_parameters": (1, 1e14),
    "layers": (1, 10_000),
    "hidden_size": (1, 1e6),
    "heads": (1, 10_000),
    "vocabulary": (1, 1e7),
    "sequence_length": (1, 1e8),
    "forward_flops": (1, 1e18),
    "tokens": (1, 1e17),
    "samples": (1, 1e15),
    "epochs": (1e-6, 1e5),
    "global_batch": (1, 1e8),
    "micro_batch": (1, 1e7),
    "lora_rank": (1, 1e5),
    "generated_tokens": (1, 1e7),
    "group_size": (1, 10_000),
    "experts_per_token": (1, 1000),
    "tensor_parallel": (1, 1024),
    "pipeline_parallel": (1, 1024),
    "virtual_stages": (1, 1024),
    "expert_parallel": (1, 4096),
    "gpus_per_node": (1, 1024),
    "network_gbs": (1e-3, 1e5),
    "packing": (0.01, 1.0),
    "evaluation": (0.0, 10.0),
    "saving": (0.0, 10.0),
    "startup_s": (0.0, 1e6),
}


WHOLE = {
    "gpus",
    "layers",
    "hidden_size",
    "heads",
    "vocabulary",
    "sequence_length",
    "global_batch",
    "micro_batch",
    "lora_rank",
    "group_size",
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_stages",
    "expert_parallel",
    "gpus_per_node",
}


def replicas_of(spec: TrainingSpec, gpus: int) -> int:
    """Data-parallel copies on so many GPUs; refuses layouts and batches that don't divide."""
    replicas, rest = divmod(gpus, spec.pipeline_of)
    if rest or not replicas:
        raise SpecError(
            f"{gpus} GPUs can't hold copies of {spec.pipeline_of} GPUs "
            f"(tensor_parallel × pipeline_parallel): make gpus a multiple of it."
        )
    if spec.global_batch is not None and spec.global_batch < replicas:
        raise SpecError(
            f"A global_batch of {spec.global_batch} can't feed {replicas} data-parallel copies: "
            "make it larger, or use fewer GPUs."
        )
    return replicas


@dataclass(frozen=True, slots=True)
class Settled:
    """A spec with every number that the physics needs, and what was derived or assumed."""

    spec: TrainingSpec
    gpu: Gpu
    precision: str  # the one that the GPU really computes in
    active: float
    trainable: float
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int
    sequences: float  # that are trained on in all, padding among them
    network_gbs: float
    gpus_per_node: int
    startup_s: float
    generated: float
    said: tuple[str, ...]

    @property
    def tokens(self) -> float:
        return self.sequences * self.sequence


def settle(spec: TrainingSpec) -> Settled:
    """Fill in what wasn't given. Deterministic; each thing filled in has its sentence."""
    gpu, said = gpu_type(spec.gpu), []
    precision = gpu.computes_in(spec.precision)
    if precision != spec.precision:
        said.append(f"{gpu.name} can't compute in {spec.precision}: {precision} is taken.")
    layers, hidden = _shape(spec, said)
    sequence = 1 if spec.forward_flops else spec.sequence_length or DEFAULT_SEQUENCE
    if not (spec.forward_flops or spec.sequence_length):
        said.append(f"No sequence_length given: {DEFAULT_SEQUENCE} tokens are assumed.")
    trainable = _trainable(spec, layers, hidden, said)
    if spec.startup_s is None:
        said.append(f"No startup_s given: {DEFAULT_STARTUP_S:g} s to load and compile are assumed.")
    return Settled(
        spec=spec,
        gpu=gpu,
        precision=precision,
        active=spec.active_parameters or spec.parameters,
        trainable=trainable,
        layers=layers,
        hidden=hidden,
        heads=spec.heads or max(1, hidden // 128),
        vocabulary=0 if spec.forward_flops else spec.vocabulary or DEFAULT_VOCABULARY,
        sequence=sequence,
        sequences=_sequences(spec, sequence, said),
        network_gbs=spec.network_gbs or gpu.network_gbs,
        gpus_per_node=max(spec.gpus_per_node or gpu.node, gpu.domain if gpu.domain > 8 else 1),
        startup_s=DEFAULT_STARTUP_S if spec.startup_s is None else spec.startup_s,
        generated=_generated(spec, sequence, said),
        said=tuple(said),
    )


def _shape(spec: TrainingSpec, said: list[str]) -> tuple[int, int]:
    """Layers and hidden size: given, or those of a dense transformer of as many parameters.

    Such a model has 12·L·h² parameters, and its h is near 128·L up to 13 billion parameters and
    beyond (Kaplan et al. 2020, GPT-3's table): L = (parameters ÷ (12 · 128²))^⅓.
    """
    if spec.forward_flops or (spec.layers and spec.hidden_size):
        return spec.layers or 1, spec.hidden_size or 1
    active = spec.active_parameters or spec.parameters
    layers = spec.layers or (
        max(1, round(active / (12 * spec.hidden_size**2)))
        if spec.hidden_size
        else max(1, round((active / (12 * 128**2)) ** (1 / 3)))
    )
    layers = min(layers, 10_000)
    hidden = spec.hidden_size or max(64, 64 * round(math.sqrt(active / (12 * layers)) / 64))
    said.append(f"Layers and hidden size are derived from the parameters: {layers} × {hidden}.")
    return layers, hidden


def _trainable(spec: TrainingSpec, layers: int, hidden: int, said: list[str]) -> float:
    if spec.trainable_parameters:
        return spec.trainable_parameters
    if not spec.lora:
        return spec.parameters
    rank = spec.lora_rank or DEFAULT_RANK
    if not spec.lora_rank:
        said.append(f"No lora_rank given: {DEFAULT_RANK} is assumed.")
    # Two thin factors beside each of the matrices of a layer: 4·h² of attention and 8·h² of the
    # perceptron make (4·2 + 2·5)·h·r; rounded to 18·L·h·r.
    return min(spec.parameters, 18.0 * layers * hidden * rank)


def _sequences(spec: TrainingSpec, sequence: int, said: list[str]) -> float:
    """Sequences that are computed on; a preference pair is two."""
    if spec.tokens is not None and spec.samples is not None:
        said.append("Both tokens and samples are given: tokens count.")
    if spec.tokens is not None:
        return spec.tokens * spec.epochs / sequence / spec.packing
    pair = 2 if spec.technique == "dpo" else 1
    if spec.packing == 1.0 and not spec.forward_flops:
        said.append(
            "Samples are counted as full sequences: packing is the part that is no padding."
        )
    group = spec.group_size or (8 if spec.technique == "rlvr" else 1)
    return (spec.samples or 0) * spec.epochs * pair * group


def _generated(spec: TrainingSpec, sequence: int, said: list[str]) -> float:
    """Tokens generated for each sequence that is trained on, of RLHF and RLVR only."""
    if spec.technique not in ("rlhf", "rlvr"):
        return 0.0
    if spec.generated_tokens is None:
        said.append(f"No generated_tokens given: half of the sequence, {sequence // 2}.")
    return spec.generated_tokens or sequence / 2


# name: unit, default, effect. The page's table and the form are made of this.
FEATURES: dict[str, tuple[str, str, str]] = {
    "gpu": ("name", "must be given", "peak, memory and links"),
    "parameters": ("count", "must be given", "FLOPs, and bytes of weights"),
    "gpus": ("count", "the least that fits", "divides the work; more communication"),
    "variant": ("one of ten", "full-sft", "which passes a token takes, which gradients are kept"),
    "active_parameters": ("count", "parameters", "FLOPs of a mixture of experts"),
    "trainable_parameters": ("count", "all; 18·L·h·r with LoRA", "gradients and optimizer states"),
    "layers": ("count", "from parameters", "attention's FLOPs, activations"),
    "hidden_size": ("count", "from parameters", "attention's FLOPs, activations, messages"),
    "heads": ("count", "hidden_size ÷ 128", "activations of standard attention"),
    "vocabulary": ("count", "32,000", "memory of the logits"),
    "sequence_length": ("tokens", "2,048", "attention's FLOPs, activations"),
    "forward_flops": ("FLOPs a sample", "none", "replaces the transformer's count"),
    "tokens": ("count an epoch", "from samples", "the work"),
    "samples": ("count an epoch", "from tokens", "the work; a preference pair is one sample"),
    "epochs": ("count", "1", "multiplies the work"),
    "global_batch": ("sequences", "256, or one a copy", "steps, and so messages"),
    "micro_batch": ("sequences a GPU", "the most that fits", "activations; small ones waste GPUs"),
    "precision": ("name", "bf16", "peak, and bytes"),
    "master_weights": ("yes or no", "yes", "32-bit copies of what is trained"),
    "optimizer": ("name", "adamw", "bytes of its states"),
    "checkpointing": ("name", "none", "computes activations again rather than keep them"),
    "attention": ("name", "flash", "standard attention keeps and moves s × s scores"),
    "quantized_base": ("yes or no", "no", "QLoRA: weights in 4 bits, unpacked in each pass"),
    "lora_rank": ("count", "16", "trainable parameters"),
    "generated_tokens": ("tokens a sequence", "half a sequence", "generation of RLHF and RLVR"),
    "group_size": ("answers a prompt", "8 (RLVR), 1 (RLHF)", "multiplies samples of RLHF, RLVR"),
    "experts_per_token": ("count", "8", "messages between experts"),
    "tensor_parallel": ("GPUs", "1", "splits layers; messages in each layer"),
    "pipeline_parallel": ("GPUs", "1", "splits the stack; waits at both ends of a step"),
    "virtual_stages": ("count", "1", "shorter waits of a pipeline"),
    "expert_parallel": ("GPUs", "1", "splits experts; messages in each layer"),
    "sharding": (
        "name",
        "full; optimizer states in a layout",
        "what data-parallel copies share out between them",
    ),
    "gpus_per_node": ("count", "of the GPU type", "which messages cross the network"),
    "network_gbs": ("GB/s a GPU", "of the GPU type", "how fast those are"),
    "framework": ("name", "none", "history corrects for it"),
    "packing": ("part", "1", "part of computed tokens that is no padding"),
    "evaluation": ("part of training", "0", "time on top"),
    "saving": ("part of training", "0.02", "time on top for writing checkpoints"),
    "startup_s": ("s", "180", "time on top, once"),
    "model": ("name", "none", "history corrects for it"),
    "project": ("name", "none", "history corrects for it"),
}
assert set(FEATURES) == {field.name for field in fields(TrainingSpec)}
