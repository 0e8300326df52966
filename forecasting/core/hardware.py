"""What a GPU can do: peaks, memory, links. Vendors' figures, dense (without sparsity).

Peaks are in TFLOPS of matrix multiplication (10¹² floating-point operations a second), memory in GB
(10⁹ bytes), bandwidths in GB/s; a link is one direction of one GPU. `efficiency` is the part
of the 16-bit peak (of the 32-bit peak on types that have no matrix units) that large products
reach, before messages and waiting: such that the formulas of `physics` give what was published.

| family | part | from |
|---|---|---|
| Kepler, Pascal | 0.29, 0.58 | TensorFlow's benchmarks (2017): ResNet-50 at 52, 219 images/s |
| Volta | 0.30 | Shoeybi et al. 2019 (Megatron-LM): 39 of 125 TFLOPS |
| Turing | 0.30 | as Volta; an assumption |
| Ampere | 0.60 | Narayanan et al. 2021: 44-52 % from 1.7B to 1T; Jiang et al. 2024: 55-59 % |
| Ada | 0.45 | between Ampere and Hopper; an assumption |
| Hopper | 0.50 | Dubey et al. 2024 (Llama 3 405B): 430 of 989 TFLOPS on 8,192 H100 |
| Blackwell | 0.46 | MLPerf Training 4.1: a B200 does 2.0-2.2 H100, of 2.27 times the peak |
| CDNA | 0.30 | public runs of 70B models on MI300X: 380-430 of 1,307 TFLOPS |
| TPU | 0.50 | Chowdhery et al. 2022 (PaLM): 46 % with its messages |
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

EFFICIENCY = {
    "Kepler": 0.29,
    "Pascal": 0.58,
    "Volta": 0.30,
    "Turing": 0.30,
    "Ampere": 0.60,
    "Ada": 0.45,
    "Hopper": 0.50,
    "Blackwell": 0.46,
    "CDNA": 0.30,
    "TPU": 0.50,
}
# Without matrix units: NVIDIA DeepLearningExamples, ResNet-50 at some 370 images a second on V100.
EFFICIENCY_32 = 0.55
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
NO_BFLOAT = ("Kepler", "Pascal", "Volta", "Turing")
PCIE3, PCIE4, PCIE5 = 12.0, 24.0, 50.0  # GB/s that a copy reaches, of 16, 32 and 64
TERA, GIGA = 1e12, 1e9


class UnknownName(ValueError):
    """A name that isn't in a list; says which are near."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A type of GPU. A peak of 0 means that it can't compute in that precision.

    `node` is how many usually share a node, `domain` how many share the fast link.
    """

    name: str
    family: str
    fp32: float
    tf32: float
    half: float
    fp8: float
    fp4: float
    memory_gb: float
    bandwidth_gbs: float
    link_gbs: float
    network_gbs: float
    node: int = 8
    domain: int = 8

    def __post_init__(self) -> None:
        positive = (self.fp32, self.memory_gb, self.bandwidth_gbs, self.link_gbs, self.network_gbs)
        if self.family not in EFFICIENCY or min(positive) <= 0 or min(self.node, self.domain) < 1:
            raise ValueError(f"{self.name}: peaks, memory and links must be above 0.")

    def efficiency(self, precision: str) -> float:
        """The part of the peak that large products reach, without units."""
        plain = self.computes_in(precision) == "fp32" and self.half
        return EFFICIENCY_32 if plain and self.family != "Pascal" else EFFICIENCY[self.family]

    @property
    def memory_bytes(self) -> float:
        return self.memory_gb * GIGA

    def computes_in(self, precision: str) -> str:
        """The precision it really computes in when asked for one: the next wider it has."""
        if precision not in PRECISIONS:
            raise UnknownName(near("precision", precision, PRECISIONS))
        if precision == "fp4" and not self.fp4:
            precision = "fp8"
        if precision == "fp8" and not self.fp8:
            precision = "bf16"
        if precision == "bf16" and self.family in NO_BFLOAT:
            precision = "fp16"
        if precision == "fp16" and not self.half:
            precision = "fp32"
        return "fp32" if precision == "tf32" and not self.tf32 else precision

    def peak_flops(self, precision: str) -> float:
        """Dense peak in FLOP/s of the precision it really computes in."""
        real = self.computes_in(precision)
        peaks = {"fp16": self.half, "bf16": self.half}
        return TERA * (peaks[real] if real in peaks else float(getattr(self, real)))


# name: family, fp32, tf32, 16 bit, fp8, fp4, memory, bandwidth, link, network[, node, domain]
_TYPES: dict[str, tuple[str, *tuple[float, ...]]] = {
    "K80": ("Kepler", 4.37, 0, 0, 0, 0, 12, 240, PCIE3, 1.25, 8, 8),  # one of the card's two
    "P100": ("Pascal", 9.3, 0, 18.7, 0, 0, 16, 732, PCIE3, 1.25, 4, 4),
    "V100-16": ("Volta", 15.7, 0, 125, 0, 0, 16, 900, 150, 1.5, 8, 8),
    "V100-32": ("Volta", 15.7, 0, 125, 0, 0, 32, 900, 150, 12.5, 8, 8),
    "T4": ("Turing", 8.1, 0, 65, 0, 0, 16, 320, PCIE3, 1.5, 4, 4),
    "A10": ("Ampere", 31.2, 62.5, 125, 0, 0, 24, 600, PCIE4, 3, 4, 4),
    "A10G": ("Ampere", 35, 35, 70, 0, 0, 24, 600, PCIE4, 3, 4, 4),
    "A30": ("Ampere", 10.3, 82, 165, 0, 0, 24, 933, PCIE4, 3, 4, 4),
    "A40": ("Ampere", 37.4, 74.8, 149.7, 0, 0, 48, 696, PCIE4, 3, 4, 4),
    "A100-40": ("Ampere", 19.5, 156, 312, 0, 0, 40, 1555, 300, 25, 8, 8),
    "A100-80": ("Ampere", 19.5, 156, 312, 0, 0, 80, 2039, 300, 25, 8, 8),
    "A800": ("Ampere", 19.5, 156, 312, 0, 0, 80, 2039, 200, 25, 8, 8),
    "RTX-3090": ("Ampere", 35.6, 35.6, 71, 0, 0, 24, 936, PCIE4, 1.25, 4, 4),
    "RTX-A5000": ("Ampere", 27.8, 55.5, 111, 0, 0, 24, 768, PCIE4, 1.25, 4, 4),
    "RTX-A6000": ("Ampere", 38.7, 77.4, 154.8, 0, 0, 48, 768, PCIE4, 1.25, 4, 4),
    "L4": ("Ada", 30.3, 60, 121, 242, 0, 24, 300, PCIE4, 3, 4, 4),
    "L40": ("Ada", 90.5, 90.5, 181, 362, 0, 48, 864, PCIE4, 3, 8, 8),
    "L40S": ("Ada", 91.6, 183, 362, 733, 0, 48, 864, PCIE4, 6, 8, 8),
    "RTX-4090": ("Ada", 82.6, 82.6, 165, 330, 0, 24, 1008, PCIE4, 1.25, 4, 4),
    "RTX-6000-Ada": ("Ada", 91.1, 182, 364, 728, 0, 48, 960, PCIE4, 1.25, 4, 4),
    "H100-PCIe": ("Hopper", 51, 378, 756, 1513, 0, 80, 2000, PCIE5, 25, 8, 8),
    "H100-SXM": ("Hopper", 67, 494.5, 989, 1979, 0, 80, 3350, 450, 50, 8, 8),
    "H800": ("Hopper", 67, 494.5, 989, 1979, 0, 80, 3350, 200, 50, 8, 8),
    "H200": ("Hopper", 67, 494.5, 989, 1979, 0, 141, 4800, 450, 50, 8, 8),
    "H200-NVL": ("Hopper", 60, 418, 836, 1671, 0, 141, 4800, 450, 50, 4, 4),
    "GH200": ("Hopper", 67, 494.5, 989, 1979, 0, 96, 4000, 450, 50, 4, 4),
    "B200": ("Blackwell", 80, 1125, 2250, 4500, 9000, 180, 8000, 900, 50, 8, 8),
    "B300": ("Blackwell", 80, 1125, 2250, 4500, 15000, 270, 8000, 900, 100, 8, 8),
    "GB200": ("Blackwell", 80, 1250, 2500, 5000, 10000, 186, 8000, 900, 50, 4, 72),
    "GB300": ("Blackwell", 80, 1250, 2500, 5000, 15000, 279, 8000, 900, 100, 4, 72),
    "RTX-5090": ("Blackwell", 104.8, 104.8, 209.5, 419, 838, 32, 1792, PCIE5, 1.25, 4, 4),
    "MI250X": ("CDNA", 47.9, 0, 383, 0, 0, 128, 3277, 200, 25, 8, 8),
    "MI300X": ("CDNA", 163.4, 653.7, 1307, 2614, 0, 192, 5300, 448, 50, 8, 8),
    "MI325X": ("CDNA", 163.4, 653.7, 1307, 2614, 0, 256, 6000, 448, 50, 8, 8),
    "MI355X": ("CDNA", 157.3, 0, 2500, 5000, 10000, 288, 8000, 538, 50, 8, 8),
    "RX-7900-XTX": ("CDNA", 61.4, 0, 122.8, 0, 0, 24, 960, PCIE4, 1.25, 4, 4),
    "TPU-v6e": ("TPU", 459, 459, 918, 918, 0, 32, 1640, 200, 25, 4, 256),
}


def _made(name: str, row: tuple[str, *tuple[float, ...]]) -> Gpu:
    family, *numbers = row
    fp32, tf32, half, fp8, fp4, memory, bandwidth, link, network = map(float, numbers[:-2])
    node, domain = map(int, numbers[-2:])
    peaks = (fp32, tf32, half, fp8, fp4)
    return Gpu(name, family, *peaks, memory, bandwidth, link, network, node, domain)


GPUS = {name: _made(name, row) for name, row in _TYPES.items()}
_ALSO = {"A100": "A100-80", "H100": "H100-SXM", "V100": "V100-16", "RTX 6000": "RTX-6000-Ada"}


def _plain(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum()).removeprefix("nvidia")


_BY_PLAIN = {_plain(name): name for name in GPUS}
_BY_PLAIN |= {_plain(also): name for also, name in _ALSO.items()}
_BY_PLAIN |= {_plain(name) + "gb": name for name in GPUS if name[-2:].isdigit()}


def gpu_type(name: str) -> Gpu:
    """The type of that name, whatever its case, blanks and dashes."""
    if found := _BY_PLAIN.get(_plain(name)):
        return GPUS[found]
    raise UnknownName(near("GPU type", name, (*GPUS, *_ALSO)))


def near(what: str, name: str, known: Iterable[str]) -> str:
    """One sentence on a name that isn't known, with those that are near (or the first few)."""
    plain = {_plain(one): one for one in known}
    close = difflib.get_close_matches(_plain(name), plain, n=4, cutoff=0.4)
    listed = ", ".join(plain[one] for one in close) or ", ".join(list(plain.values())[:6])
    return f"There is no {what} {name[:40]!r}: did you mean one of {listed}?"
