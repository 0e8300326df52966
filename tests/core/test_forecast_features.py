"""Every documented feature does something, and its documented default is what is taken."""

from typing import Any

import pytest

from forecasting.core import inference_spec, quantizing_spec, training
from forecasting.core.correction import Correction
from forecasting.core.kinds import KINDS

NOTHING = Correction(0, None, {}, ())
Given = dict[str, Any]
BASE: dict[str, Given] = {
    "training": {"gpu": "H100", "parameters": 7e9, "tokens": 1e9},
    "quantization": {"gpu": "A100", "parameters": 7e9, "method": "gptq"},
    "batch_inference": {
        **{"gpu": "H100", "parameters": 7e9, "prompts": 1e5},
        **{"input_tokens": 512, "output_tokens": 256},
    },
}
FEATURES = {
    "training": training.FEATURES,
    "quantization": quantizing_spec.FEATURES,
    "batch_inference": inference_spec.FEATURES,
}
MIXTURE = {"active_parameters": 1e9}
# kind: feature: (what it is set to, in a job that is described by this besides)
EFFECTS: dict[str, dict[str, tuple[Any, Given]]] = {
    "training": {
        "gpu": ("A100", {}),
        "parameters": (8e9, {}),
        "gpus": (16, {}),
        "variant": ("full-dpo", {}),
        "active_parameters": (1e9, {}),
        "trainable_parameters": (1e7, {"variant": "lora-sft"}),
        "layers": (16, {"hidden_size": 4096}),
        "hidden_size": (8192, {"layers": 32}),
        "heads": (64, {"attention": "standard"}),
        "vocabulary": (128_256, {}),
        "sequence_length": (8192, {}),
        "forward_flops": (1e12, {"tokens": None, "samples": 1e6}),
        "tokens": (2e9, {}),
        "samples": (1e6, {"tokens": None, "samples": 2e6}),
        "epochs": (2, {}),
        "global_batch": (64, {"sharding": "optimizer"}),
        "micro_batch": (1, {}),
        "precision": ("fp8", {}),
        "master_weights": (False, {}),
        "optimizer": ("sgd", {}),
        "checkpointing": ("full", {}),
        "attention": ("standard", {}),
        "quantized_base": (True, {"variant": "lora-sft"}),
        "lora_rank": (256, {"variant": "lora-sft"}),
        "generated_tokens": (100, {"variant": "full-rlvr"}),
        "group_size": (4, {"variant": "full-rlvr", "tokens": None, "samples": 1e5}),
        "experts_per_token": (2, {**MIXTURE, "expert_parallel": 8}),
        "tensor_parallel": (2, {}),
        "pipeline_parallel": (2, {}),
        "virtual_stages": (4, {"pipeline_parallel": 4}),
        "expert_parallel": (8, MIXTURE),
        "sharding": ("none", {}),
        "gpus_per_node": (4, {}),
        "network_gbs": (5, {"gpus": 16}),
        "packing": (0.5, {}),
        "evaluation": (0.1, {}),
        "saving": (0.1, {}),
        "startup_s": (1000, {}),
    },
    "quantization": {
        "gpu": ("H100", {}),
        "parameters": (8e9, {}),
        "method": ("awq", {}),
        "gpus": (2, {"offload": "none"}),
        "active_parameters": (1e9, {}),
        "layers": (16, {}),
        "hidden_size": (8192, {}),
        "intermediate_size": (30_000, {}),
        "experts": (16, MIXTURE),
        "experts_per_token": (2, MIXTURE),
        "bits": (8, {}),
        "group_size": (32, {}),
        "activation_order": (True, {}),
        "samples": (512, {}),
        "sequence_length": (512, {}),
        "offload": ("disk", {}),
        "disk_gbs": (4, {}),
        "download_gbs": (0.1, {}),
        "saving": (False, {}),
        "margin": (10, {}),
        "startup_s": (1000, {}),
    },
    "batch_inference": {
        "gpu": ("A100", {}),
        "parameters": (8e9, {}),
        "prompts": (2e5, {}),
        "input_tokens": (2048, {}),
        "output_tokens": (512, {}),
        "gpus": (2, {}),
        "active_parameters": (1e9, {}),
        "layers": (16, {}),
        "hidden_size": (8192, {}),
        "kv_heads": (32, {}),
        "head_size": (64, {}),
        "experts": (1, {**MIXTURE, "batch": 4}),  # how many others there are says nothing
        "batch": (16, {}),
        "precision": ("fp8", {}),
        "kv_precision": ("fp8", {}),
        "tensor_parallel": (4, {}),
        "cached_part": (0.5, {}),
        "tokens_per_second": (1000, {}),
        "gpus_per_node": (2, {"tensor_parallel": 8}),
        "network_gbs": (5, {"tensor_parallel": 8, "gpus_per_node": 2}),
        "disk_gbs": (4, {}),
        "startup_s": (1000, {}),
    },
}
TOLD_APART = ("framework", "model", "project")  # what only history corrects for
# Documented defaults that stand for a value, and the job in which that is so.
DEFAULTS: dict[str, dict[str, tuple[Any, Given]]] = {
    "training": {
        "variant": ("full-sft", {}),
        "vocabulary": (32_000, {}),
        "sequence_length": (2048, {}),
        "epochs": (1, {}),
        "global_batch": (256, {}),
        "precision": ("bf16", {}),
        "master_weights": (True, {}),
        "optimizer": ("adamw", {}),
        "checkpointing": ("none", {}),
        "attention": ("flash", {}),
        "quantized_base": (False, {"variant": "lora-sft"}),
        "lora_rank": (16, {"variant": "lora-sft"}),
        "generated_tokens": (1024, {"variant": "full-rlvr"}),
        "group_size": (8, {"variant": "full-rlvr", "tokens": None, "samples": 1e5}),
        "experts_per_token": (8, {**MIXTURE, "expert_parallel": 8}),
        "tensor_parallel": (1, {}),
        "pipeline_parallel": (1, {}),
        "virtual_stages": (1, {"pipeline_parallel": 4}),
        "expert_parallel": (1, MIXTURE),
        "sharding": ("full", {}),
        "active_parameters": (7e9, {}),
        "trainable_parameters": (7e9, {}),
        "heads": (32, {"attention": "standard", "hidden_size": 4096, "layers": 32}),
        "gpus_per_node": (8, {"gpus": 16}),
        "network_gbs": (50, {"gpus": 16}),
        "packing": (1, {}),
        "evaluation": (0, {}),
        "saving": (0.02, {}),
        "startup_s": (180, {}),
    },
    "quantization": {
        "active_parameters": (7e9, {}),
        "intermediate_size": (3.5 * 4096, {"hidden_size": 4096}),
        "experts": (128, MIXTURE),
        "experts_per_token": (8, MIXTURE),
        "bits": (4, {}),
        "group_size": (128, {}),
        "activation_order": (False, {}),
        "samples": (128, {}),
        "sequence_length": (2048, {}),
        "offload": ("cpu", {}),
        "disk_gbs": (1, {}),
        "saving": (True, {}),
        "margin": (0.25, {}),
        "startup_s": (60, {}),
    },
    "batch_inference": {
        "active_parameters": (7e9, {}),
        "kv_heads": (8, {}),
        "head_size": (128, {}),
        "experts": (128, MIXTURE),
        "batch": (256, {}),
        "precision": ("bf16", {}),
        "kv_precision": ("fp16", {}),
        "cached_part": (0, {}),
        "gpus_per_node": (8, {"tensor_parallel": 8}),
        "network_gbs": (50, {"tensor_parallel": 8, "gpus_per_node": 2}),
        "disk_gbs": (1, {}),
        "startup_s": (120, {}),
    },
}
CASES = [(kind, name) for kind, known in FEATURES.items() for name in known]


def seen(kind: str, work: Given) -> tuple[Any, ...]:
    """All that a description comes to: time, memory, what to ask for, what history learns by."""
    row = KINDS[kind]
    spec = row.read(work, gpus=None)
    gpus = spec.gpus or 8
    found: Any = row.estimate(spec, NOTHING, gpus)
    asked = getattr(found, "whole_gpu_hours", 0)
    return found.physics_s, found.memory.total, found.fits, asked, row.describe(spec, gpus)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_feature_has_the_effect_that_it_is_said_to_have(kind, name):
    if name in TOLD_APART:
        value, besides = "something", {}
        before, after = (seen(kind, BASE[kind] | given) for given in ({}, {name: value}))
        assert after[:4] == before[:4]
        assert after[4].labels != before[4].labels
        return
    value, besides = EFFECTS[kind][name]
    base = BASE[kind] | besides
    assert seen(kind, base | {name: value}) != seen(kind, base)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, found in DEFAULTS.items() for name in found]
)
def test_a_default_is_the_one_that_is_documented(kind, name):
    value, besides = DEFAULTS[kind][name]
    base = BASE[kind] | besides
    assert name not in base
    assert seen(kind, base | {name: value}) == seen(kind, base)
    said = FEATURES[kind][name][1]
    if said.replace(",", "").replace(".", "").isdigit():
        assert float(said.replace(",", "")) == value


def test_each_default_that_is_a_number_or_a_name_is_tried():
    derived = {"must be given", "none", "from parameters", "the least that fits", "from samples"}
    derived |= {"from tokens", "the most that fits", "the quickest that fits"}
    for kind, known in FEATURES.items():
        left = {name for name, (_, default, _) in known.items() if default not in derived}
        left -= {name for name in left if known[name][1].startswith("none:")}
        assert left - set(DEFAULTS[kind]) == set()
