"""What a training job may be: nonsense gets one sentence, what isn't given is derived and said."""

from dataclasses import replace
from typing import Any

import pytest

from forecasting.core.estimate import estimate
from forecasting.core.hardware import GPUS, UnknownName, gpu_type
from forecasting.core.training import FEATURES, VARIANTS, SpecError, TrainingSpec, settle

PLAIN: dict[str, Any] = {"gpu": "H100", "parameters": 8e9, "tokens": 1e9}


def spec(**given: Any) -> TrainingSpec:
    return TrainingSpec(**PLAIN | given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tokens": 0}, "tokens must be between 1 and 1e\\+17, not 0."),
        ({"tokens": float("nan")}, "tokens must be between"),
        ({"tokens": float("inf")}, "tokens must be between"),
        ({"tokens": None}, "Say how much is trained"),
        ({"parameters": 1e30}, "parameters must be between 1000 and 1e\\+14"),
        ({"tokens": "1e9"}, "tokens must be a number, not '1e9'."),
        ({"gpus": True}, "gpus must be a number, not 'True'."),
        ({"parameters": -1}, "parameters must be between"),
        ({"gpu": "H1000"}, "There is no GPU type 'H1000': did you mean one of H100"),
        ({"gpu": ""}, "There is no GPU type"),
        ({"layers": 0}, "layers must be between 1 and 10000, not 0."),
        ({"layers": 1.5}, "layers must be a whole number, not 1.5."),
        ({"gpus": 0}, "gpus must be between 1 and 65536, not 0."),
        ({"gpus": 8, "global_batch": 4}, "can't feed 8 data-parallel copies"),
        ({"gpus": 6, "tensor_parallel": 4}, "make gpus a multiple of it"),
        ({"active_parameters": 9e9}, "active_parameters can't be more than parameters"),
        ({"trainable_parameters": 9e9}, "trainable_parameters can't be more"),
        ({"quantized_base": True}, "Only LoRA trains on quantized weights"),
        ({"hidden_size": 8, "heads": 16}, "more heads than hidden_size"),
        ({"variant": "full-ppo"}, "There is no variant 'full-ppo': did you mean one of full-"),
        ({"precision": "bf8"}, "There is no precision 'bf8': did you mean"),
        ({"packing": 0.0}, "packing must be between"),
    ],
)
def test_nonsense_gets_a_sentence_and_no_number(given, sentence):
    with pytest.raises((SpecError, UnknownName), match=sentence) as refused:
        estimate(spec(**given))
    assert len(str(refused.value)) < 250


def test_there_are_22_documented_features_and_more_and_ten_variants():
    assert len(FEATURES) >= 22
    assert len(VARIANTS) == len(set(VARIANTS)) == 10
    assert all(unit and default and effect for unit, default, effect in FEATURES.values())


def test_what_is_not_given_is_derived_and_said():
    job = settle(spec(parameters=6.7e9))
    assert (job.layers, job.hidden) == (32, 4160)  # GPT-3's table has 32 layers of 4,096
    assert any("32 × 4160" in one for one in job.said)
    assert any("2048 tokens" in one for one in job.said)
    told = settle(spec(layers=32, hidden_size=4096, sequence_length=4096, startup_s=0.0))
    assert told.said == ()
    assert (told.layers, told.hidden, told.active) == (32, 4096, 8e9)


def test_work_is_counted_in_sequences():
    assert settle(spec(sequence_length=1000)).sequences == 1e6
    assert settle(spec(sequence_length=1000, epochs=3)).sequences == 3e6
    assert settle(spec(sequence_length=1000, packing=0.5)).sequences == 2e6
    samples: dict[str, Any] = {"tokens": None, "samples": 100}
    assert settle(spec(**samples)).sequences == 100
    assert settle(spec(**samples, variant="lora-dpo")).sequences == 200
    assert settle(spec(**samples, variant="full-rlvr")).sequences == 800
    assert settle(spec(**samples, variant="full-rlhf")).sequences == 100


def test_a_gpu_computes_in_the_next_wider_precision_it_has():
    asked = {("A100", "fp8"): "bf16", ("V100", "bf16"): "fp16", ("K80", "fp8"): "fp32"}
    asked |= {("H100", "fp4"): "fp8", ("V100", "tf32"): "fp32", ("B200", "fp4"): "fp4"}
    for (name, precision), real in asked.items():
        assert gpu_type(name).computes_in(precision) == real
    assert any("fp8: bf16" in one for one in settle(spec(gpu="A100", precision="fp8")).said)


def test_gpu_types_are_found_by_any_spelling():
    for name in ("h100", "H100 SXM", "NVIDIA H100-SXM", "h100sxm"):
        assert gpu_type(name).name == "H100-SXM"
    assert gpu_type("A100-40GB").name == "A100-40"
    assert {gpu_type(name) for name in GPUS} == set(GPUS.values())
    with pytest.raises(ValueError, match="must be above 0"):
        replace(GPUS["T4"], memory_gb=0.0)
