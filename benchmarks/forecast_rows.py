"""Published training speeds as jobs with a true duration, read from ../shared/data/training.

A row of a table of speeds becomes a job of one step (start-up, evaluation and saving left out); a
row of times to train becomes the whole run. What a table doesn't say is taken from the literature
named beside it.
"""

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forecasting.core.hardware import gpu_type
from forecasting.core.training import TrainingSpec

TRAINING = Path(__file__).parents[2] / "shared" / "data" / "training"
STEP: dict[str, Any] = {"startup_s": 0.0, "saving": 0.0}  # nothing but steps was measured


@dataclass(frozen=True, slots=True)
class Row:
    """A job, what it took in seconds, and the table that says so."""

    table: str
    spec: TrainingSpec
    gpus: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Transformer:
    """A published model: parameters and active ones in 10⁹, layers that attend, hidden size."""

    parameters: float
    active: float
    layers: int
    hidden: int
    vocabulary: int

    def fields(self) -> dict[str, Any]:
        return {
            "parameters": self.parameters * 1e9,
            "active_parameters": self.active * 1e9,
            "layers": self.layers,
            "hidden_size": self.hidden,
            "vocabulary": self.vocabulary,
        }


# Model cards and reports of their makers. Of the hybrid Nemotrons only layers with attention count.
TRANSFORMERS = {
    "LLAMA3_8B": Transformer(8.03, 8.03, 32, 4096, 128_256),
    "LLAMA3_70B": Transformer(70.6, 70.6, 80, 8192, 128_256),
    "LLAMA3.1_405B": Transformer(405.9, 405.9, 126, 16_384, 128_256),
    "DeepSeekV3": Transformer(671, 37, 61, 7168, 129_280),
    "DeepSeekV4 Flash": Transformer(284, 13, 43, 4096, 129_280),
    "Kimi_K2": Transformer(1040, 32.6, 61, 7168, 163_840),
    "Qwen3_30B_a3B": Transformer(30.5, 3.3, 48, 2048, 151_936),
    "Qwen3_235B_a22B": Transformer(235, 22, 94, 4096, 151_936),
    "GPT OSS 120B": Transformer(116.8, 5.1, 36, 2880, 201_088),
    "Nemotron_3_Nano": Transformer(31.6, 3.6, 6, 2688, 131_072),
    "Nemotron_3_Super": Transformer(120.6, 12.7, 8, 4096, 131_072),
    "Nemotron_3_Ultra": Transformer(550, 55, 12, 8192, 131_072),
}
# layers, hidden size of MPT by the names of llm-foundry's configurations.
MPT = {
    "125m": (12, 768),
    "350m": (24, 1024),
    "760m": (24, 1536),
    "1b": (24, 2048),
    "3b": (32, 2560),
    "7b": (32, 4096),
    "13b": (40, 5120),
    "30b": (48, 7168),
    "70b": (80, 8192),
}


def _table(name: str) -> list[dict[str, str]]:
    with (TRAINING / name).open(newline="") as file:
        return list(csv.DictReader(file))


def _number(cell: str, other: float = 1.0) -> float:
    """The first number of a cell; some hold a second one in brackets, some "n/a"."""
    found = re.match(r"\d+(\.\d+)?", cell)
    return float(found[0]) if found else other


def llm_foundry() -> Iterator[Row]:
    """MPT with fully sharded data parallel; `PURE` keeps no 32-bit copies."""
    names = {"a100_40gb": "A100-40", "a100_80gb": "A100-80", "h100_80gb": "H100-SXM"}
    for row in _table("llm_foundry_mpt_throughput.csv"):
        layers, hidden = MPT[row["Model"]]
        gpus, tokens = int(row["# GPUs"]), float(row["GlobalBatchSize (T)"])
        spec = TrainingSpec(
            gpu=names[row["GPU"]],
            gpus=gpus,
            parameters=float(row["NumParams"]),
            layers=layers,
            hidden_size=hidden,
            vocabulary=50_368,
            sequence_length=int(row["SeqLen (T)"]),
            tokens=tokens,
            variant="full-cpt",
            global_batch=int(row["GlobalBatchSize"]),
            micro_batch=int(row["MicroBatchSize"]),
            precision="fp8" if "fp8" in row["Precision"] else "bf16",
            master_weights=row["MP Mode"] != "PURE",
            checkpointing="full" if row["Activation Checkpointing"] == "True" else "none",
            sharding="full" if row["Sharding Strategy"] == "FULL_SHARD" else "gradients",
            framework="llm-foundry",
            model=f"mpt-{row['Model']}",
            **STEP,
        )
        seconds = tokens / gpus / float(row["Throughput (T/s/GPU)"])
        yield Row("llm_foundry", spec, gpus, seconds)


BRIDGE_TASKS = {"Pre-Training": "full-cpt", "SFT": "full-sft", "LoRA": "lora-sft"}


def megatron_bridge() -> Iterator[Row]:
    """Without a model that isn't published. Context parallel splits as tensor parallel does."""
    for row in _table("megatron_bridge_throughput.csv"):
        name = row["model"].split(" (")[0]
        if name not in TRANSFORMERS:
            continue
        spec = _bridge_spec(row, name)
        gpus = int(row["#-GPUs"])
        seconds = (spec.tokens or 0) / gpus / _number(row["Tokens / sec / GPU"])
        yield Row("megatron_bridge", spec, gpus, seconds)


def _bridge_spec(row: dict[str, str], name: str) -> TrainingSpec:
    model, across = TRANSFORMERS[name], {key: int(_number(row[key])) for key in ("TP", "PP", "CP")}
    batch, sequence = int(row["GBS"]), int(row["Sequence Length"])
    return TrainingSpec(
        gpu=row["System"].removeprefix("DGX-").replace("H100", "H100-SXM"),
        gpus=int(row["#-GPUs"]),
        sequence_length=sequence,
        tokens=float(batch * sequence),
        variant=BRIDGE_TASKS[row["task"]],
        global_batch=batch,
        micro_batch=int(row["MBS"]),
        precision=_bridge_precision(row["Precision"], model),
        tensor_parallel=across["TP"] * across["CP"],
        pipeline_parallel=across["PP"],
        virtual_stages=int(_number(row["VP"])),
        expert_parallel=int(_number(row["EP"])),
        sharding="full" if _number(row["FSDP"], 0) > 1 else "optimizer",
        framework="megatron-bridge",
        model=name,
        **model.fields(),
        **STEP,
    )


def _bridge_precision(cell: str, model: Transformer) -> str:
    """The oldest rows don't say: dense models were run in fp8 then, experts in 16 bits."""
    if not cell:
        return "fp8" if model.active == model.parameters else "bf16"
    return {"BF": "bf16", "NV": "fp4"}.get(cell[:2], "fp8")


def megatron_lm() -> Iterator[Row]:
    """Weak scaling on H100, 4,096 tokens a sequence (its README)."""
    for row in _table("megatron_lm_h100_weak_scaling.csv"):
        layers, hidden = int(row["layers"]), int(row["hidden_size"])
        batch, gpus = int(row["global_batch_size"]), int(row["gpus"])
        parameters = float(row["model_size"][:-1]) * 1e9
        tokens = batch * 4096.0
        flops = tokens * (6 * parameters + 12 * layers * hidden * 4096)
        spec = TrainingSpec(
            gpu="H100-SXM",
            gpus=gpus,
            parameters=parameters,
            layers=layers,
            hidden_size=hidden,
            vocabulary=131_072,
            sequence_length=4096,
            tokens=tokens,
            variant="full-cpt",
            global_batch=batch,
            micro_batch=1,
            tensor_parallel=int(row["tensor_parallel"]),
            pipeline_parallel=int(row["pipeline_parallel"]),
            sharding="optimizer",
            framework="megatron-lm",
            model=f"gpt-{row['model_size']}",
            **STEP,
        )
        yield Row("megatron_lm", spec, gpus, flops / gpus / float(row["tflops_per_gpu"]) / 1e12)


# Korthikanti et al. 2022, table 3: layers, hidden, pipeline, virtual stages, GPUs, batch, micro.
KORTHIKANTI = {
    "22B": (48, 6144, 1, 1, 8, 4, 4),
    "175B": (96, 12_288, 8, 3, 64, 64, 1),
    "530B": (105, 20_480, 35, 3, 280, 280, 1),
    "1T": (128, 25_600, 64, 1, 512, 512, 1),
}


def megatron_lm_a100() -> Iterator[Row]:
    for row in _table("megatron_lm_a100_mfu.csv"):
        name = row["model_size"]
        layers, hidden, stages, virtual, gpus, batch, micro = KORTHIKANTI[name]
        parameters = 1e12 if name == "1T" else float(name[:-1]) * 1e9
        tokens = batch * 2048.0
        flops = tokens * (6 * parameters + 12 * layers * hidden * 2048)
        spec = TrainingSpec(
            gpu="A100-80",
            gpus=gpus,
            parameters=parameters,
            layers=layers,
            hidden_size=hidden,
            vocabulary=51_200,
            sequence_length=2048,
            tokens=tokens,
            variant="full-cpt",
            global_batch=batch,
            micro_batch=micro,
            checkpointing="selective",
            tensor_parallel=8,
            pipeline_parallel=stages,
            virtual_stages=virtual,
            sharding="none",
            framework="megatron-lm",
            model=f"gpt-{name}",
            **STEP,
        )
        seconds = flops / gpus / (312e12 * float(row["mfu_pct"]) / 100)
        yield Row("megatron_lm", spec, gpus, seconds)


# Forward FLOPs a sample, parameters, samples to the target: the models' papers and the reference
# convergence points of MLPerf (rounded). Of dlrm and rgat the FLOPs are those of their dense parts:
# what takes the time is looking up embeddings and neighbours, which physics can't know.
MLPERF_OTHERS = {
    "bert": (2 * 0.334e9 * 256, 0.334e9, 2.7e6),
    "retinanet": (182e9, 37e6, 5 * 1.17e6),
    "stable_diffusion": (680e9, 865e6, 2.56e6),
    "dlrm_dcnv2": (32e6, 16e6, 4.0e9),
    "rgat": (1.7e9, 25e6, 1.0e8),
}
MLPERF_GPUS = {
    "MI300X": "MI300X",
    "MI325X": "MI325X",
    "7900": "RX-7900-XTX",
    "GB200": "GB200",
    "B200": "B200",
    "H200-NVL": "H200-NVL",
    "H200": "H200",
    "H100": "H100-SXM",
    "A5000": "RTX-A5000",
    "4090": "RTX-4090",
    "TPU-trillium": "TPU-v6e",
}


def mlperf() -> Iterator[Row]:
    for row in _table("mlperf_training_v5_0_time_to_train.csv"):
        gpu = next(name for part, name in MLPERF_GPUS.items() if part in row["accelerator"])
        gpus, batch = int(row["accelerators"]), int(row["global_batch_size"])
        given: dict[str, Any] = {
            "gpu": gpu,
            "gpus": gpus,
            "gpus_per_node": int(row["accelerators_per_node"]),
            "global_batch": max(batch, gpus) if row["benchmark"] in MLPERF_OTHERS else batch,
            "framework": "mlperf",
            "model": row["benchmark"],
            "startup_s": 0.0,
            "saving": 0.0,
        }
        spec = TrainingSpec(**given, **_mlperf_work(row, gpu, gpus, batch))
        yield Row("mlperf", spec, gpus, 60 * float(row["minutes_olympic_mean"]))


def _mlperf_work(row: dict[str, str], gpu: str, gpus: int, batch: int) -> dict[str, Any]:
    """What is trained, how much, and the least layout that the batch allows."""
    name = row["benchmark"]
    if name in MLPERF_OTHERS:
        flops, parameters, samples = MLPERF_OTHERS[name]
        work = {"forward_flops": flops, "parameters": parameters, "samples": samples}
        return {**work, "sharding": "none", "variant": "full-cpt", "precision": "bf16"}
    language = {
        "sequence_length": 8192,
        "samples": float(row["samples_count_mean_as_logged"]),
        "micro_batch": 1,
        "precision": "fp8" if gpu_type(gpu).fp8 else "bf16",
    }
    if name == "llama31_405b":  # evaluates 5,760 sequences after every 46,080
        layout = {"tensor_parallel": 4 if "B200" in gpu else 8, "pipeline_parallel": 8}
        model = TRANSFORMERS["LLAMA3.1_405B"].fields()
        return language | layout | model | {"evaluation": 0.04, "variant": "full-cpt"}
    model = TRANSFORMERS["LLAMA3_70B"].fields() | {"vocabulary": 32_000}
    across = {"tensor_parallel": max(1, gpus // batch), "lora_rank": 16}
    return language | model | across | {"evaluation": 0.15, "variant": "lora-sft"}


# Forward FLOPs a sample (two for a multiplication and addition) and parameters, from the models'
# papers and reference code. At what sequence length the language models were run isn't said: 384
# tokens (SQuAD) for bert, 128 for gpt2 (1,024 would be above the peak), 25 words for Transformer.
SMALL = {
    "resnet50": (8.2e9, 25.6e6),
    "imagenet": (8.2e9, 25.6e6),
    "resnet50_cifar10": (2.6e9, 23.5e6),
    "cifar10": (1.1e9, 11.2e6),
    "vgg16": (31e9, 138e6),
    "inception3": (11.4e9, 23.8e6),
    "deepspeech2": (38e9, 38e6),
    "bert": (2 * 110e6 * 384, 110e6),
    "gpt2": (2 * 124e6 * 128, 124e6),
    "ncf": (0.2e6, 32e6),
    "yolov3": (65.6e9, 61.5e6),
    "ResNet-18": (1.1e9, 11.2e6),
    "ResNet-50": (8.2e9, 25.6e6),
    "Transformer": (2 * 45e6 * 25, 45e6),
    "LM": (0.5e9, 13.6e6),
    "Recommendation": (48e6, 24e6),
    "CycleGAN": (600e9, 28e6),
    "A3C": (10e6, 0.6e6),
}


def _small(name: str, gpu: str, gpus: int, batch: int, **more: Any) -> TrainingSpec:
    flops, parameters = SMALL[name]
    return TrainingSpec(
        gpu=gpu,
        gpus=gpus,
        parameters=parameters,
        forward_flops=flops,
        samples=float(batch),
        global_batch=batch,
        variant="full-cpt",
        sharding="none",
        model=name,
        **more,
        **STEP,
    )


def elasticflow() -> Iterator[Row]:
    """Strong scaling. PyTorch's defaults: tf32 on A100, fp32 on T4. A speed of 0 is none."""
    for row in _table("elasticflow_iterations_per_s.csv"):
        rate, gpus = float(row["iterations_per_s"]), int(row["gpus"])
        if rate > 0 and math.isfinite(rate):
            tensor = "tf32" if row["gpu"] == "A100" else "fp32"
            gpu = {"A100": "A100-40"}.get(row["gpu"], row["gpu"])
            batch = int(row["global_batch_size"])
            spec = _small(row["model"], gpu, gpus, batch, precision=tensor, framework="elasticflow")
            yield Row("elasticflow", spec, gpus, 1 / rate)


def gavel() -> Iterator[Row]:
    """The batch is a worker's and the speed all workers' together; `unconsolidated`: one a node."""
    seen = set()
    for row in _table("gavel_steps_per_s.csv"):
        gpus, rate = int(row["gpus"]), float(row["steps_per_s"])
        gpu, _, apart = row["gpu"].partition("_")
        key = (gpu, row["job_type"], gpus, bool(apart) and gpus > 1)
        if not rate or key in seen:
            continue
        seen.add(key)
        name = row["job_type"].split(" (")[0]
        batch = int(_number(row["job_type"].partition("size ")[2]))
        more = {"gpus_per_node": 1} if apart else {}
        spec = _small(
            name,
            {"v100": "V100-16"}.get(gpu, gpu),
            gpus,
            batch * gpus,
            precision="fp32",
            micro_batch=batch,
            framework="gavel",
            **more,
        )
        yield Row("gavel", spec, gpus, gpus / rate)


TABLES = (llm_foundry, megatron_bridge, megatron_lm, megatron_lm_a100, mlperf, elasticflow, gavel)


def all_rows() -> list[Row]:
    return [row for table in TABLES for row in table()] if TRAINING.exists() else []
