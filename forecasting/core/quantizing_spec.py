"""What a quantization is described by: its features, each with a unit, a default and an effect."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .checking import MOST_GPUS, Shape, SpecError, one_of, within
from .hardware import Gpu, gpu_type
from .reading import MODEL_SIZE, read

METHODS = ("bitsandbytes", "awq", "gptq")
OFFLOADS = ("none", "cpu", "disk")
CALIBRATED = ("awq", "gptq")
# What each can write, in bits a weight.
BITS = {"bitsandbytes": (4, 8), "awq": (4,), "gptq": (2, 3, 4, 8)}
# Samples × tokens by default: the papers of GPTQ and AWQ, and the packages made of them.
CALIBRATION = {"bitsandbytes": (0, 0), "awq": (128, 512), "gptq": (128, 2048)}
DEFAULT_GROUP = 128
DEFAULT_DISK_GBS = 1.0  # published runs that only read and write reach 0.4 to 1.6
DEFAULT_STARTUP_S = 60.0
DEFAULT_MARGIN = 0.25
WIDE = 3.5  # width between the two products of a dense layer, in h: Llama 3, Mistral
DEFAULT_EXPERTS, DEFAULT_CHOSEN = 128, 8

# Upper ends of the classes of models and of calibrations, by parameters and by tokens.
SIZES = (1e9, 3e9, 8e9, 15e9, 40e9, 80e9, 200e9)
TOKENS = (0.0, 65_536.0, 262_144.0, 1_048_576.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizingSpec:
    """One quantization as it was described. `FEATURES` documents each field."""

    gpu: str
    parameters: float
    method: str
    gpus: int | None = None
    active_parameters: float | None = None
    layers: int | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    bits: int = 4
    group_size: int | None = None
    activation_order: bool = False
    samples: int | None = None
    sequence_length: int | None = None
    offload: str | None = None
    disk_gbs: float | None = None
    download_gbs: float | None = None
    saving: bool = True
    margin: float = DEFAULT_MARGIN
    startup_s: float | None = None
    framework: str = ""
    model: str = ""
    project: str = ""

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)
        if self.offload is not None:
            one_of("offload", self.offload, OFFLOADS)
        for name, (least, most) in LIMITS.items():
            if (value := getattr(self, name)) is not None:
                within(name, value, least, most, whole=name in WHOLE)
        gpu_type(self.gpu)
        self._agree()

    def _agree(self) -> None:
        """What is given must agree with itself."""
        if self.bits not in BITS[self.method]:
            known = " or ".join(str(bits) for bits in BITS[self.method])
            raise SpecError(f"{self.method} writes {known} bits, not {self.bits}.")
        if (self.active_parameters or 0) > self.parameters:
            raise SpecError(
                f"active_parameters can't be more than parameters ({self.parameters:.4g})."
            )
        if self.method == "bitsandbytes" and (self.samples or self.sequence_length):
            raise SpecError("bitsandbytes isn't calibrated: leave samples and sequence_length out.")
        if self.activation_order and self.method != "gptq":
            raise SpecError("Only gptq has an activation_order.")
        if (self.experts_per_token or 0) > (self.experts or DEFAULT_EXPERTS):
            raise SpecError("experts_per_token can't be more than experts.")


# The least and the most of each number.
LIMITS: dict[str, tuple[float, float]] = {
    "gpus": (1, MOST_GPUS),
    "parameters": (1e6, 1e14),
    "active_parameters": (1e6, 1e14),
    "layers": (1, 10_000),
    "hidden_size": (64, 1e6),
    "intermediate_size": (64, 1e7),
    "experts": (1, 100_000),
    "experts_per_token": (1, 1000),
    "bits": (2, 8),
    "group_size": (1, 1e6),
    "samples": (1, 1e6),
    "sequence_length": (1, 1e7),
    "disk_gbs": (1e-3, 1e4),
    "download_gbs": (1e-4, 1e4),
    "margin": (0.0, 10.0),
    "startup_s": (0.0, 1e6),
}
TEXTS = {"gpu", "method", "offload", "framework", "model", "project"}
SWITCHES = {"activation_order", "saving"}
WHOLE = set(LIMITS) - {
    "parameters",
    "active_parameters",
    "disk_gbs",
    "download_gbs",
    "margin",
    "startup_s",
}


@dataclass(frozen=True, slots=True)
class Settled:
    """A spec with every number that the formulas need, and what was derived or assumed."""

    spec: QuantizingSpec
    gpu: Gpu
    active: float
    layers: float
    hidden: float
    inner: float  # width of an expert, of the one there is in a dense model
    experts: int
    chosen: int  # experts that a token passes
    group: float  # weights that share a scale
    samples: int
    sequence: int
    offload: str
    disk_gbs: float
    startup_s: float
    said: tuple[str, ...]

    @property
    def tokens(self) -> float:
        """Of the calibration."""
        return float(self.samples) * self.sequence

    @property
    def written_bytes(self) -> float:
        """Quantized weights, and 4 bytes of scale and zero for each group of them."""
        return self.spec.parameters * (self.spec.bits / 8 + 4 / self.group)

    @property
    def read_bytes(self) -> float:
        return 2.0 * self.spec.parameters


def spec_of(
    work: Mapping[str, Any], *, gpu: str = "", gpus: int | None = None, project: str = ""
) -> QuantizingSpec:
    """Read a quantization; raises SpecError or UnknownName, each one sentence.

    `gpu` is the type it is to run on, unless `work` names one; `gpus` how many, if that is known.
    """
    takes = {"known": FEATURES, "texts": TEXTS, "switches": SWITCHES, "whole": WHOLE}
    must = {"parameters": MODEL_SIZE, "method": f"Say the method: {', '.join(METHODS)}."}
    about = {"gpu": gpu, "gpus": gpus, "project": project}
    return read(QuantizingSpec, work, takes=takes, must=must, about=about)


def settle(spec: QuantizingSpec) -> Settled:
    """Fill in what wasn't given. Deterministic; each thing filled in has its sentence."""
    said: list[str] = []
    active = spec.active_parameters or spec.parameters
    shape = Shape.of(active, spec.layers, spec.hidden_size)
    if shape.derived:
        said.append(
            "Layers and hidden size are derived from the parameters: "
            f"{shape.layers:.0f} × {shape.hidden:.0f}."
        )
    experts, chosen = _experts(spec, active, said)
    samples, sequence = _calibration(spec, said)
    if spec.disk_gbs is None:
        said.append(f"No disk_gbs given: {DEFAULT_DISK_GBS:g} GB/s are assumed.")
    if spec.startup_s is None:
        said.append(f"No startup_s given: {DEFAULT_STARTUP_S:g} s are assumed.")
    return Settled(
        spec=spec,
        gpu=gpu_type(spec.gpu),
        active=active,
        layers=shape.layers,
        hidden=shape.hidden,
        inner=_inner(spec, shape, experts),
        experts=experts,
        chosen=chosen,
        group=float(spec.group_size or DEFAULT_GROUP),
        samples=samples,
        sequence=sequence,
        offload=spec.offload or ("cpu" if spec.method in CALIBRATED else "none"),
        disk_gbs=spec.disk_gbs or DEFAULT_DISK_GBS,
        startup_s=DEFAULT_STARTUP_S if spec.startup_s is None else spec.startup_s,
        said=tuple(said),
    )


def _experts(spec: QuantizingSpec, active: float, said: list[str]) -> tuple[int, int]:
    if active >= spec.parameters and not spec.experts:
        return 1, 1
    experts = spec.experts or DEFAULT_EXPERTS
    chosen = min(experts, spec.experts_per_token or DEFAULT_CHOSEN)
    if not (spec.experts and spec.experts_per_token):
        said.append(f"{chosen} of {experts} experts a token are assumed where not given.")
    return experts, chosen


def _inner(spec: QuantizingSpec, shape: Shape, experts: int) -> float:
    """Three products a layer and expert hold what is neither attention nor anything else."""
    if spec.intermediate_size:
        return float(spec.intermediate_size)
    if experts == 1:
        return WIDE * shape.hidden
    return max(64.0, spec.parameters / (3 * shape.hidden * shape.layers * experts))


def _calibration(spec: QuantizingSpec, said: list[str]) -> tuple[int, int]:
    samples, sequence = CALIBRATION[spec.method]
    if spec.method in CALIBRATED and not (spec.samples and spec.sequence_length):
        said.append(
            f"Calibrated with {spec.samples or samples} samples of "
            f"{spec.sequence_length or sequence} tokens, as {spec.method} is by default."
        )
    return spec.samples or samples, spec.sequence_length or sequence


def tier(parameters: float, tokens: float) -> str:
    """The class of a model and its calibration: "≤ 8B, ≤ 262,144 tokens"."""
    size = next((f"≤ {most / 1e9:g}B" for most in SIZES if parameters <= most), "> 200B")
    if not tokens:
        return size
    found = next((f"≤ {most:,.0f}" for most in TOKENS[1:] if tokens <= most), "> 1,048,576")
    return f"{size}, {found} tokens"


# name: unit, default, effect. The page's table and the form are made of this.
FEATURES: dict[str, tuple[str, str, str]] = {
    "gpu": ("name", "must be given", "speeds, memory"),
    "parameters": ("count", "must be given", "bytes read, written; work"),
    "method": ("name", "must be given", "bitsandbytes, awq or gptq: which terms there are"),
    "gpus": ("count", "the least that fits", "holds more; isn't faster"),
    "active_parameters": ("count", "parameters", "calibration's work in a mixture of experts"),
    "layers": ("count", "from parameters", "matrices"),
    "hidden_size": ("count", "from parameters", "width of matrices: squares and cubes"),
    "intermediate_size": ("count", "3.5 · hidden_size", "the widest matrix"),
    "experts": ("count", "1; 128 in a mixture", "matrices a layer"),
    "experts_per_token": ("count", "8", "tokens that each expert is calibrated with"),
    "bits": ("bits a weight", "4", "bytes written"),
    "group_size": ("weights", "128", "scales to find and to write"),
    "activation_order": (
        "yes or no",
        "no",
        "gptq reorders columns, so that groups are found singly",
    ),
    "samples": ("count", "128", "calibration's work"),
    "sequence_length": ("tokens", "2,048 (gptq), 512 (awq)", "calibration's work"),
    "offload": ("name", "cpu; none for bitsandbytes", "memory; weights move to the GPU and back"),
    "disk_gbs": ("GB/s", "1", "loading and saving"),
    "download_gbs": ("GB/s", "none: the model is at hand", "fetching the model first"),
    "saving": ("yes or no", "yes", "packing and writing"),
    "margin": ("part", "0.25", "on top of the hours to ask for, never of the range"),
    "startup_s": ("s", "60", "time on top, once"),
    "framework": ("name", "none", "history corrects for it"),
    "model": ("name", "none", "history corrects for it"),
    "project": ("name", "none", "history corrects for it"),
}
assert set(FEATURES) == {field.name for field in fields(QuantizingSpec)}
