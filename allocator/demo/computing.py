"""What the institute's jobs compute, and how long that really takes. Seeded; no clock.

Each kind of job has a model of its own and an amount of work: as much as takes the hours that were
drawn for it, by the formulas of forecasting. What it then takes scatters around that, as it would:
by how its site reads data, and a little from job to job. Half of the owners declare nothing.
"""

import math
import random
import re
from dataclasses import dataclass, replace
from typing import Any

from forecasting.core.correction import Correction
from forecasting.core.kinds import KINDS
from workloads.specs import JobSpec

COMPUTED = 0.8  # part of the jobs whose owners say what they compute
DECLARED = 0.5  # part of those who declare a duration besides
GUESS = 0.35  # σ of the log-normal error of what they declare
SCATTER = 0.18  # σ of the log-normal error of what physics and the site say
ON_B200 = 0.1  # part of the jobs that are for the newer GPUs
PHYSICS = Correction(0, None, {}, ())
# What says how much work there is, and an amount of it.
AMOUNTS = {
    "training": ("tokens", 10**9),
    "batch_inference": ("prompts", 10**6),
    "quantization": ("samples", 512),
}
FEWEST, QUARTER_S = 16, 900
NUMBER = re.compile(r"-?\d*$")  # at the end of a name


@dataclass(frozen=True)
class Computing:
    """Features of a kind of job; `site` is what it takes there ÷ what physics says."""

    features: dict[str, Any]
    site: float = 1.0
    overasks: float = 1.0  # what its owners declare ÷ what it takes


def _pretraining(parameters: str, length: int, **more: Any) -> dict[str, Any]:
    own = {"variant": "full-cpt", "parameters": parameters, "sequence_length": length}
    return own | {"checkpointing": "full"} | more


def _inference(parameters: str, read: int, written: int, **more: Any) -> dict[str, Any]:
    own = {"parameters": parameters, "input_tokens": read, "output_tokens": written}
    return own | {"framework": "vllm"} | more


RL = {"variant": "lora-rlvr", "parameters": "3B", "sequence_length": 2048, "global_batch": 64}
DPO = {"variant": "lora-dpo", "parameters": "8B", "sequence_length": 4096, "global_batch": 32}
GRASP = {"variant": "full-sft", "parameters": "400M", "sequence_length": 1024, "global_batch": 64}
COMPUTING = {
    "ablate": Computing(_pretraining("1.4B", 2048), 1.1, 1.2),
    "anneal": Computing(_pretraining("8B", 4096), 1.05),
    "stage1-34b": Computing(_pretraining("34B", 4096)),
    "stage2-34b": Computing(_pretraining("34B", 8192)),
    "rl-sweep-b": Computing(RL, 1.35, 0.8),
    "dpo": Computing(DPO, 1.15),
    "rlhf-probe": Computing(_inference("8B", 1024, 256), 0.9, 1.3),
    "langid": Computing(_inference("560M", 512, 8), 1.4, 1.5),
    "dedup": Computing(_inference("335M", 512, 1), 1.3, 1.2),
    "quality": Computing(_inference("8B", 1500, 20)),
    "vid-gen": Computing(_pretraining("5B", 8192, micro_batch=1), 1.25, 1.7),
    "vid-tok": Computing(_pretraining("900M", 4096, micro_batch=2), 1.3, 1.6),
    "caption": Computing(_inference("7B", 700, 120), 1.1, 1.5),
    "grasp": Computing(GRASP, 1.2, 1.1),
    "recon": Computing(_inference("1.3B", 2048, 64), 1.2, 1.3),
    "md-screen": Computing(_pretraining("650M", 1024), 1.15, 1.3),
    "fold-screen": Computing(_pretraining("3B", 2048), 1.1),
    "relax": Computing(_inference("600M", 1024, 128), 1.2, 1.2),
    "hindcast": Computing(_pretraining("450M", 2048), 1.3),
    "ens-small": Computing(_pretraining("1.1B", 4096), 1.2),
    "ens-forecast-v": Computing(_pretraining("6B", 4096), 1.1),
    "downscale": Computing(_inference("1B", 1024, 64), 1.1),
    "sky-emulator": Computing(_pretraining("250M", 2048), 1.25, 1.1),
    "photo-z": Computing(_inference("300M", 256, 8), 1.4),
    "gptq": Computing({"method": "gptq", "parameters": "123B"}, 1.1, 1.2),
    "awq": Computing({"method": "awq", "parameters": "70B"}, 1.2),
    "judge": Computing(_inference("32B", 2000, 200, precision="fp8"), 0.85, 1.3),
    "probe": Computing(_inference("8B", 1200, 100), 0.95),
    "suite-nightly": Computing(_inference("70B", 2000, 300, precision="fp8"), 0.9),
}


def described(spec: JobSpec, draw: random.Random) -> JobSpec:
    """The same job, said to compute something, on one type of GPU, and taking its true time.

    One that the script of the day gives a behaviour keeps it, and what its owner declares.
    """
    row = COMPUTING.get(NUMBER.sub("", spec.name))
    hours_s = spec.expected_duration_s
    if row is None or hours_s is None or spec.time_limit_s is not None:
        return spec
    if draw.random() >= COMPUTED and not spec.pools:
        return spec
    pools = spec.pools or (("b200",) if draw.random() < ON_B200 else ("h100",))
    work, likely_s = amount_for(spec, row, pools[0].upper(), hours_s)
    if "simulate" in spec.spec:
        return replace(spec, work=work, pools=pools)
    return replace(spec, work=work, pools=pools, **_truth(row, likely_s, draw))


def amount_for(spec: JobSpec, row: Computing, gpu: str, seconds: int) -> tuple[dict[str, Any], int]:
    """Features with so much work that physics says about so many seconds, and what it says.

    Time is a straight line over the amount of work, so two estimates tell how much.
    """
    name, one = AMOUNTS[spec.kind]
    low, high = (_likely_s(spec, row.features | {name: of}, gpu) for of in (one, 2 * one))
    wanted = one * (1 + (seconds - low) / max(1, high - low))
    work = row.features | {name: _rounded(max(FEWEST, wanted))}
    return work, _likely_s(spec, work, gpu)


def _truth(row: Computing, likely_s: int, draw: random.Random) -> dict[str, Any]:
    """What the cluster is told of its behaviour, and what its owner declares, if anything."""
    truth_s = round(likely_s * row.site * math.exp(draw.gauss(0, SCATTER)))
    told: dict[str, Any] = {"spec": {"simulate": {"duration_s": truth_s}}}
    guess_s = truth_s * row.overasks * math.exp(draw.gauss(0, GUESS))
    declared_s = QUARTER_S * math.ceil(guess_s / QUARTER_S)
    return told | {"expected_duration_s": declared_s if draw.random() < DECLARED else None}


def _likely_s(spec: JobSpec, work: dict[str, Any], gpu: str) -> int:
    kind, gpus = KINDS[spec.kind], spec.gpus or 1
    return kind.estimate(kind.read(work, gpu=gpu, gpus=gpus), PHYSICS, gpus).p50


def _rounded(amount: float) -> str:
    """As people write it: two digits and a unit, such as 3.4B."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if amount >= size:
            return f"{float(f'{amount / size:.2g}'):g}{unit}"
    return f"{amount:.0f}"
