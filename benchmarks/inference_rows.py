"""Published throughputs of inference, as batches with a true duration.

Figures only, from three pages: NVIDIA's TensorRT-LLM `docs/source/performance.md` of version 0.6.1
(output tokens a second and GPU; batches and GPUs as listed) and `performance/perf-overview.md` of
version 1.0 (output tokens a second; engines of up to 2,048 sequences, weights and caches in 8 or 4
bits), and Lambda's `vllm-benchmark/benchmark_v0.md` (vLLM 0.5.4 and 0.6.0, 256 sequences of
ShareGPT, which its result files count 230 tokens in, 223 out). A row is a batch of prompts of which
nothing but the work was measured.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forecasting.core.inference_spec import InferenceSpec

STEADY: dict[str, Any] = {"startup_s": 0.0, "disk_gbs": 1e4}  # neither starting nor loading
WAVES = 50  # prompts a sequence of the batch, where the page tells a steady rate


@dataclass(frozen=True, slots=True)
class Row:
    """A batch, what it took in seconds, and the table that says so."""

    table: str
    spec: InferenceSpec
    gpus: int
    seconds: float


def _model(parameters: float, layers: int, hidden: int, kv: int, **more: Any) -> dict[str, Any]:
    shape = {"parameters": parameters * 1e9, "layers": layers, "hidden_size": hidden}
    return shape | {"kv_heads": kv} | more


# Model cards of their makers.
MODELS = {
    "GPT-J 6B": _model(6.05, 28, 4096, 16, head_size=256),
    "LLaMA 7B": _model(6.74, 32, 4096, 32),
    "LLaMA 70B": _model(69, 80, 8192, 8),
    "Falcon 180B": _model(180, 80, 14_848, 8, head_size=64),
    "Llama 3.1 8B": _model(8.03, 32, 4096, 8),
    "Llama 3.3 70B": _model(70.6, 80, 8192, 8),
    "Llama 3.1 405B": _model(405.9, 126, 16_384, 8),
    "Llama 4 Scout": _model(109, 48, 5120, 8, active_parameters=17e9, experts=16),
    "Llama 4 Maverick": _model(400, 48, 5120, 8, active_parameters=17e9, experts=128),
    "Qwen3-30B-A3B": _model(30.5, 48, 2048, 4, active_parameters=3.3e9, experts=128),
    "Qwen3-235B-A22B": _model(235, 94, 4096, 4, active_parameters=22e9, experts=128),
}
# Version 0.6.1: model, batch, GPUs of a copy, tokens in, out, output tokens a second and GPU.
OLD: dict[tuple[str, str], list[tuple[str, int, int, int, int, int]]] = {
    ("H100", "fp8"): [
        ("GPT-J 6B", 1024, 1, 128, 128, 26_150),
        ("GPT-J 6B", 120, 1, 128, 2048, 8_011),
        ("GPT-J 6B", 64, 1, 2048, 128, 2_551),
        ("GPT-J 6B", 64, 1, 2048, 2048, 3_327),
        ("LLaMA 7B", 768, 1, 128, 128, 19_694),
        ("LLaMA 7B", 112, 1, 128, 2048, 6_818),
        ("LLaMA 7B", 80, 1, 2048, 128, 2_244),
        ("LLaMA 7B", 48, 1, 2048, 2048, 2_740),
        ("LLaMA 70B", 1024, 2, 128, 128, 2_657),
        ("LLaMA 70B", 480, 4, 128, 2048, 1_486),
        ("LLaMA 70B", 96, 2, 2048, 128, 306),
        ("LLaMA 70B", 64, 2, 2048, 2048, 547),
        ("Falcon 180B", 1024, 4, 128, 128, 987),
        ("Falcon 180B", 1024, 8, 128, 2048, 724),
        ("Falcon 180B", 64, 4, 2048, 128, 112),
        ("Falcon 180B", 64, 4, 2048, 2048, 264),
    ],
    ("L40S", "fp8"): [
        ("GPT-J 6B", 64, 1, 128, 128, 3_630),
        ("GPT-J 6B", 64, 1, 128, 2048, 1_859),
        ("GPT-J 6B", 32, 1, 2048, 128, 616),
        ("GPT-J 6B", 32, 1, 2048, 2048, 757),
        ("LLaMA 7B", 64, 1, 128, 128, 3_240),
        ("LLaMA 7B", 64, 1, 128, 2048, 1_622),
        ("LLaMA 7B", 32, 1, 2048, 128, 581),
        ("LLaMA 7B", 16, 1, 2048, 2048, 531),
    ],
    ("A100", "fp16"): [
        ("GPT-J 6B", 512, 1, 128, 128, 6_374),
        ("GPT-J 6B", 120, 2, 128, 2048, 2_192),
        ("GPT-J 6B", 60, 1, 2048, 128, 670),
        ("GPT-J 6B", 64, 2, 2048, 2048, 903),
        ("LLaMA 7B", 384, 1, 128, 128, 5_586),
        ("LLaMA 7B", 60, 1, 128, 2048, 1_928),
        ("LLaMA 7B", 52, 1, 2048, 128, 591),
        ("LLaMA 7B", 64, 2, 2048, 2048, 782),
        ("LLaMA 70B", 1280, 4, 128, 128, 670),
        ("LLaMA 70B", 240, 4, 128, 2048, 525),
        ("LLaMA 70B", 120, 4, 2048, 128, 79),
        ("Falcon 180B", 1024, 8, 128, 128, 232),
        ("Falcon 180B", 128, 8, 128, 2048, 180),
    ],
}
# Version 1.0: tokens in and out of each column of figures, and how many requests were made.
LENGTHS = (
    (128, 128, 30_000),
    (128, 2048, 3000),
    (128, 4096, 1500),
    (500, 2000, 3000),
    (1000, 1000, 3000),
    (1000, 2000, 1500),
    (2048, 128, 3000),
    (2048, 2048, 1500),
    (5000, 500, 1500),
    (20_000, 2000, 1000),
)
# Output tokens a second; 0 where the page has none.
NEW: dict[tuple[str, str, int, str], tuple[int, ...]] = {
    ("Llama 3.1 8B", "H200", 1, "fp8"): (
        (27_911, 26_221, 18_027, 20_770, 17_744, 16_828, 3538, 12_194, 3902, 1804)
    ),
    ("Llama 3.1 8B", "H100", 1, "fp8"): (
        (28_312, 22_714, 14_325, 17_660, 15_220, 13_899, 3450, 9305, 3459, 1351)
    ),
    ("Llama 3.3 70B", "B200", 1, "fp4"): (
        (11_147, 9922, 6831, 7762, 7007, 6271, 1339, 4783, 1459, 665)
    ),
    ("Llama 3.3 70B", "GB200", 1, "fp4"): (
        (12_189, 11_309, 7849, 9028, 7326, 6513, 1450, 5646, 1602, 755)
    ),
    ("Llama 3.3 70B", "H200", 1, "fp8"): (
        (3803, 4336, 2872, 3666, 2909, 2994, 442, 2003, 566, 283)
    ),
    ("Llama 3.3 70B", "H100", 2, "fp8"): (
        (6378, 6651, 4199, 5222, 4205, 4146, 762, 3082, 898, 437)
    ),
    ("Llama 3.1 405B", "B200", 4, "fp4"): (
        (6281, 8020, 6345, 6244, 5209, 4933, 749, 4212, 1048, 672)
    ),
    ("Llama 3.1 405B", "GB200", 4, "fp4"): (
        (6740, 8151, 6608, 6540, 5389, 5135, 797, 4407, 1112, 739)
    ),
    ("Llama 3.1 405B", "H200", 8, "fp8"): (
        (3814, 5348, 4741, 4724, 3330, 3722, 456, 2948, 650, 505)
    ),
    ("Llama 3.1 405B", "H100", 8, "fp8"): (
        (3627, 4340, 3116, 3994, 2919, 2895, 453, 2296, 610, 345)
    ),
    ("Llama 4 Scout", "B200", 1, "fp4"): (
        (25_342, 14_699, 8932, 11_977, 10_591, 9356, 3137, 7152, 2937, 1644)
    ),
    ("Llama 4 Scout", "GB200", 1, "fp4"): (
        (19_954, 15_238, 9556, 11_795, 7738, 8581, 3295, 7464, 3107, 1767)
    ),
    ("Llama 4 Scout", "H200", 4, "fp8"): (
        (30_354, 34_316, 21_332, 24_630, 21_636, 18_499, 3699, 14_949, 4605, 2105)
    ),
    ("Llama 4 Scout", "H100", 4, "fp8"): (
        (0, 15_130, 8603, 12_399, 12_129, 9838, 3253, 7972, 3342, 0)
    ),
    ("Llama 4 Maverick", "B200", 8, "fp4"): (
        (124_323, 112_676, 68_170, 0, 79_617, 63_766, 18_088, 52_195, 0, 12_678)
    ),
    ("Llama 4 Maverick", "H200", 8, "fp8"): (
        (63_994, 40_572, 24_616, 37_835, 31_782, 34_734, 7307, 20_957, 8456, 4106)
    ),
    ("Llama 4 Maverick", "H100", 8, "fp8"): (
        (0, 10_829, 6744, 10_108, 9677, 9151, 0, 6916, 3457, 0)
    ),
    ("Qwen3-30B-A3B", "B200", 1, "fp4"): (
        (39_827, 37_844, 24_953, 27_817, 25_828, 22_051, 6251, 17_554, 6142, 2944)
    ),
    ("Qwen3-30B-A3B", "GB200", 1, "fp4"): (
        (24_107, 31_311, 26_337, 20_604, 17_481, 17_177, 6595, 14_719, 5908, 3203)
    ),
    ("Qwen3-235B-A22B", "B200", 8, "fp4"): (
        (63_362, 66_057, 39_496, 57_117, 42_391, 34_105, 7329, 26_854, 8190, 4453)
    ),
    ("Qwen3-235B-A22B", "H200", 8, "fp8"): (
        (30_429, 42_821, 26_852, 28_026, 23_789, 22_061, 3331, 16_672, 3623, 1876)
    ),
    ("Qwen3-235B-A22B", "H100", 8, "fp8"): (
        (0, 19_658, 12_447, 18_351, 14_898, 15_136, 0, 9924, 3225, 0)
    ),
}
# vLLM on H100: model, GPUs of a copy, precision, prompts, and a figure of each version.
VLLM = (
    ("Llama 3.1 8B", 1, "bf16", 5000, (3032.04, 3958.40, 8088.35)),
    ("Llama 3.3 70B", 4, "bf16", 5000, (1491.93, 2291.0, 3542.88)),
    ("Llama 3.1 405B", 8, "fp8", 1280, (1220.26, 1331.25, 1714.07)),
)
VERSIONS = ("vLLM 0.5.4", "vLLM 0.6.0, 1 step", "vLLM 0.6.0, 10 steps")


def all_rows() -> list[Row]:
    return [*_old(), *_new(), *_vllm()]


def _row(table: str, model: str, gpus: int, rate: float, **given: Any) -> Row:
    """`rate` is of all GPUs together."""
    spec = InferenceSpec(
        tensor_parallel=gpus, framework=table, model=model, **MODELS[model], **given, **STEADY
    )
    return Row(table, spec, gpus, spec.prompts * spec.output_tokens / rate)


def _old() -> Iterator[Row]:
    for (gpu, precision), rows in OLD.items():
        for model, batch, gpus, put_in, out, rate in rows:
            yield _row(
                "TensorRT-LLM 0.6.1",
                model,
                gpus,
                rate * gpus,
                gpu=gpu,
                precision=precision,
                kv_precision="fp8" if precision == "fp8" else "fp16",
                batch=batch,
                prompts=batch * WAVES,
                input_tokens=put_in,
                output_tokens=out,
            )


def _new() -> Iterator[Row]:
    for (model, gpu, gpus, precision), rates in NEW.items():
        for (put_in, out, prompts), rate in zip(LENGTHS, rates, strict=True):
            if rate:
                yield _row(
                    "TensorRT-LLM 1.0",
                    model,
                    gpus,
                    rate,
                    gpu=gpu,
                    precision=precision,
                    kv_precision="fp8",
                    batch=2048,
                    prompts=prompts,
                    input_tokens=put_in,
                    output_tokens=out,
                )


def _vllm() -> Iterator[Row]:
    for model, gpus, precision, prompts, rates in VLLM:
        for version, rate in zip(VERSIONS, rates, strict=True):
            yield _row(
                version,
                model,
                gpus,
                rate,
                gpu="H100",
                precision=precision,
                batch=256,
                prompts=prompts,
                input_tokens=230,
                output_tokens=223,
            )
