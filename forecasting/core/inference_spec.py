"""What a batch of inference is described by: its features, each with unit, default and effect."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .checking import MOST_GPUS, Shape, SpecError, one_of, within
from .hardware import Gpu, gpu_type
from .reading import MODEL_SIZE, read

PRECISIONS = ("fp16", "bf16", "fp8", "int8", "int4", "fp4")
CACHES = ("fp16", "fp8")
# Bytes a weight; 4 bits with their scales (groups of 128; of 16 in fp4).
WEIGHT_BYTES = {"fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.53125, "fp4": 0.5625}
CACHE_BYTES = {"fp16": 2.0, "fp8": 1.0}
DEFAULT_BATCH = 256  # sequences at a time, as vLLM is by default
DEFAULT_KV_HEADS, DEFAULT_HEAD = 8, 128
DEFAULT_EXPERTS = 128
DEFAULT_DISK_GBS = 1.0
DEFAULT_STARTUP_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSpec:
    """One batch of inference as it was described. `FEATURES` documents each field."""

    gpu: str
    parameters: float
    prompts: float
    input_tokens: float
    output_tokens: float
    gpus: int | None = None
    active_parameters: float | None = None
    layers: int | None = None
    hidden_size: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    experts: int | None = None
    batch: int | None = None
    precision: str = "bf16"
    kv_precision: str = "fp16"
    tensor_parallel: int | None = None
    cached_part: float = 0.0
    tokens_per_second: float | None = None
    gpus_per_node: int | None = None
    network_gbs: float | None = None
    disk_gbs: float | None = None
    startup_s: float | None = None
    framework: str = ""
    model: str = ""
    project: str = ""

    def __post_init__(self) -> None:
        one_of("precision", self.precision, PRECISIONS)
        one_of("kv_precision", self.kv_precision, CACHES)
        for name, (least, most) in LIMITS.items():
            if (value := getattr(self, name)) is not None:
                within(name, value, least, most, whole=name in WHOLE)
        gpu_type(self.gpu)
        self._agree()

    def _agree(self) -> None:
        """What is given must agree with itself."""
        if (self.active_parameters or 0) > self.parameters:
            raise SpecError(
                f"active_parameters can't be more than parameters ({self.parameters:.4g})."
            )
        across = self.tensor_parallel or 1
        if across & (across - 1):
            raise SpecError(f"tensor_parallel must be a power of two, not {across}.")
        if self.gpus is not None:
            copies_of(self, self.gpus, across)


# The least and the most of each number.
LIMITS: dict[str, tuple[float, float]] = {
    "gpus": (1, MOST_GPUS),
    "parameters": (1e6, 1e14),
    "active_parameters": (1e6, 1e14),
    "prompts": (1, 1e12),
    "input_tokens": (1, 1e8),
    "output_tokens": (1, 1e7),
    "layers": (1, 10_000),
    "hidden_size": (64, 1e6),
    "kv_heads": (1, 10_000),
    "head_size": (1, 10_000),
    "experts": (1, 100_000),
    "batch": (1, 1e6),
    "tensor_parallel": (1, 1024),
    "cached_part": (0.0, 1.0),
    "tokens_per_second": (1e-3, 1e7),
    "gpus_per_node": (1, 1024),
    "network_gbs": (1e-3, 1e5),
    "disk_gbs": (1e-3, 1e4),
    "startup_s": (0.0, 1e6),
}
TEXTS = {"gpu", "precision", "kv_precision", "framework", "model", "project"}
MUST = {
    "parameters": MODEL_SIZE,
    "prompts": 'Say how many prompts there are: "prompts".',
    "input_tokens": 'Say how long a prompt is: "input_tokens", the mean.',
    "output_tokens": 'Say how much is generated for a prompt: "output_tokens", the mean.',
}
WHOLE = {
    "gpus",
    "layers",
    "hidden_size",
    "kv_heads",
    "head_size",
    "experts",
    "batch",
    "tensor_parallel",
    "gpus_per_node",
}


def copies_of(spec: InferenceSpec, gpus: int, across: int) -> int:
    """Copies of the model on so many GPUs; refuses what doesn't divide."""
    copies, rest = divmod(gpus, across)
    if rest or not copies:
        raise SpecError(
            f"{gpus} GPUs can't hold copies of {across} (tensor_parallel): "
            "make gpus a multiple of it."
        )
    return copies


@dataclass(frozen=True, slots=True)
class Settled:
    """A spec with every number that the formulas need, and what was derived or assumed."""

    spec: InferenceSpec
    gpu: Gpu
    active: float
    layers: float
    hidden: float
    kv_heads: int
    head: int
    experts: int
    batch: int
    network_gbs: float
    gpus_per_node: int
    disk_gbs: float
    startup_s: float
    said: tuple[str, ...]

    @property
    def weight_bytes(self) -> float:
        return WEIGHT_BYTES[self.spec.precision] * self.spec.parameters

    @property
    def cache_of_token(self) -> float:
        """Bytes of keys and values of one token, of the whole model."""
        width = self.kv_heads * self.head * CACHE_BYTES[self.spec.kv_precision]
        return 2.0 * self.layers * width


def spec_of(
    work: Mapping[str, Any], *, gpu: str = "", gpus: int | None = None, project: str = ""
) -> InferenceSpec:
    """Read a batch of inference; raises SpecError or UnknownName, each one sentence.

    `gpu` is the type it is to run on, unless `work` names one; `gpus` how many, if that is known.
    """
    takes = {"known": FEATURES, "texts": TEXTS, "switches": (), "whole": WHOLE}
    about = {"gpu": gpu, "gpus": gpus, "project": project}
    return read(InferenceSpec, work, takes=takes, must=MUST, about=about)


def settle(spec: InferenceSpec) -> Settled:
    """Fill in what wasn't given. Deterministic; each thing filled in has its sentence."""
    said: list[str] = []
    gpu = gpu_type(spec.gpu)
    active = spec.active_parameters or spec.parameters
    shape = Shape.of(active, spec.layers, spec.hidden_size)
    if shape.derived:
        said.append(
            "Layers and hidden size are derived from the parameters: "
            f"{shape.layers:.0f} × {shape.hidden:.0f}."
        )
    if not spec.kv_heads:
        said.append(f"No kv_heads given: {DEFAULT_KV_HEADS} are assumed.")
    if not (spec.batch or spec.tokens_per_second):
        said.append(f"No batch given: {DEFAULT_BATCH} sequences at a time are assumed.")
    if spec.startup_s is None:
        said.append(f"No startup_s given: {DEFAULT_STARTUP_S:g} s are assumed.")
    sparse = active < spec.parameters
    return Settled(
        spec=spec,
        gpu=gpu,
        active=active,
        layers=shape.layers,
        hidden=shape.hidden,
        kv_heads=spec.kv_heads or DEFAULT_KV_HEADS,
        head=spec.head_size or DEFAULT_HEAD,
        experts=spec.experts or (DEFAULT_EXPERTS if sparse else 1),
        batch=spec.batch or DEFAULT_BATCH,
        network_gbs=spec.network_gbs or gpu.network_gbs,
        gpus_per_node=max(spec.gpus_per_node or gpu.node, gpu.domain if gpu.domain > 8 else 1),
        disk_gbs=spec.disk_gbs or DEFAULT_DISK_GBS,
        startup_s=DEFAULT_STARTUP_S if spec.startup_s is None else spec.startup_s,
        said=tuple(said),
    )


# name: unit, default, effect. The page's table and the form are made of this.
FEATURES: dict[str, tuple[str, str, str]] = {
    "gpu": ("name", "must be given", "peak, bandwidth, memory, links"),
    "parameters": ("count", "must be given", "bytes read in each step; work"),
    "prompts": ("count", "must be given", "multiplies the work"),
    "input_tokens": ("tokens a prompt, mean", "must be given", "prefill, cache"),
    "output_tokens": ("tokens a prompt, mean", "must be given", "steps, cache"),
    "gpus": ("count", "the least that fits", "copies of the model share the prompts"),
    "active_parameters": ("count", "parameters", "operations of a mixture of experts"),
    "layers": ("count", "from parameters", "cache, attention, launches, messages"),
    "hidden_size": ("count", "from parameters", "attention, messages"),
    "kv_heads": ("count", "8", "cache"),
    "head_size": ("numbers", "128", "cache"),
    "experts": ("count", "1; 128 in a mixture", "1: a step reads all; else what is chosen"),
    "batch": ("sequences of a copy", "256", "weights are read once for all; bound by memory"),
    "precision": ("name", "bf16", "bytes of weights, peak"),
    "kv_precision": ("name", "fp16", "bytes of the cache"),
    "tensor_parallel": ("GPUs, power of two", "the quickest that fits", "splits; messages"),
    "cached_part": ("part of the input", "0", "prefix that needs no prefill"),
    "tokens_per_second": ("output tokens a GPU", "none", "measured: replaces the formulas"),
    "gpus_per_node": ("count", "of the GPU type", "which messages cross the network"),
    "network_gbs": ("GB/s a GPU", "of the GPU type", "how fast those are"),
    "disk_gbs": ("GB/s", "1", "loading"),
    "startup_s": ("s", "120", "time on top, once"),
    "framework": ("name", "none", "history corrects for it"),
    "model": ("name", "none", "history corrects for it"),
    "project": ("name", "none", "history corrects for it"),
}
assert set(FEATURES) == {field.name for field in fields(InferenceSpec)}
