"""The physical estimate: more work takes longer, more memory fits more, units scale."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecasting.core.hardware import GPUS
from forecasting.core.memory import fits, memory_of, most_that_fits
from forecasting.core.physics import estimate_on, fitting, least_that_fits, mfu, powers
from forecasting.core.training import VARIANTS, SpecError, TrainingSpec, settle
from forecasting.core.work import work_of

PLAIN: dict[str, Any] = {
    "gpu": "H100",
    "parameters": 8e9,
    "layers": 32,
    "hidden_size": 4096,
    "sequence_length": 4096,
    "tokens": 1e9,
    "global_batch": 256,
    "micro_batch": 1,
    "startup_s": 0.0,
    "saving": 0.0,
}
COUNTS = st.sampled_from([1, 2, 4, 8, 16, 64, 256])
JOBS = st.fixed_dictionaries(
    {
        "gpu": st.sampled_from(sorted(GPUS)),
        "parameters": st.floats(1e8, 1e12),
        "sequence_length": st.sampled_from([128, 2048, 32_768]),
        "tokens": st.floats(1e3, 1e13),
        "variant": st.sampled_from(VARIANTS),
        "precision": st.sampled_from(["fp32", "bf16", "fp8"]),
        "checkpointing": st.sampled_from(["none", "selective", "full"]),
        "global_batch": st.sampled_from([None, 256, 1000]),
    }
)


def spec(**given: Any) -> TrainingSpec:
    return TrainingSpec(**PLAIN | given)


def seconds(gpus: int = 8, **given: Any) -> float:
    return estimate_on(settle(spec(**given)), gpus).seconds


@settings(max_examples=60)
@given(JOBS, COUNTS, st.integers(0, 12))
def test_the_most_sequences_that_fit_are_found_by_halves(job, gpus, doublings):
    made, micro = settle(TrainingSpec(**job)), 1 << doublings
    while micro > 1 and not fits(made, gpus, micro):
        micro //= 2
    assert most_that_fits(made, gpus, 1 << doublings) == micro


@settings(max_examples=60)
@given(JOBS, COUNTS, st.floats(1.0, 100.0))
def test_more_tokens_never_take_less(job, gpus, times):
    less = estimate_on(settle(TrainingSpec(**job)), gpus)
    job |= {"tokens": min(job["tokens"] * times, 1e17)}
    more = estimate_on(settle(TrainingSpec(**job)), gpus)
    assert 0 < less.seconds <= more.seconds * (1 + 1e-12)


@settings(max_examples=60)
@given(JOBS, COUNTS, st.floats(1.0, 10.0))
def test_more_memory_never_fits_less(job, gpus, times):
    small = settle(TrainingSpec(**job))
    large = replace(small, gpu=replace(small.gpu, memory_gb=small.gpu.memory_gb * times))
    assert fits(large, gpus) >= fits(small, gpus)
    assert set(fitting(small.spec)) <= set(powers(small, 1024))


@settings(max_examples=40)
@given(JOBS, COUNTS)
def test_the_terms_add_up_and_none_is_negative(job, gpus):
    found = estimate_on(settle(TrainingSpec(**job)), gpus)
    terms = [found.compute_s, found.waiting_s, found.messages_s, found.launches_s]
    terms += [found.generation_s, found.overhead_s, found.startup_s]
    assert min(terms) >= 0
    assert sum(terms) == pytest.approx(found.seconds)
    assert found.gpu_hours == pytest.approx(gpus * found.seconds / 3600)


def test_twice_the_work_takes_twice_as_long():
    assert seconds(tokens=2e9) == pytest.approx(2 * seconds())
    assert seconds(epochs=3) == pytest.approx(3 * seconds())
    assert seconds(evaluation=0.5) == pytest.approx(1.5 * seconds())
    assert seconds(startup_s=100.0) == pytest.approx(100 + seconds())


def test_flops_follow_technique_lora_checkpointing_and_experts():
    full = work_of(settle(spec()))
    attention = 12 * 32 * 4096 * 4096
    assert full.per_token == pytest.approx(6 * 8e9 + attention)
    lora = work_of(settle(spec(variant="lora-sft", lora_rank=16)))
    trained = 18 * 32 * 4096 * 16
    assert lora.per_token == pytest.approx(4 * 8e9 + attention + 6 * trained)
    assert work_of(settle(spec(checkpointing="full"))).per_token == pytest.approx(
        full.per_token * 4 / 3
    )
    passes = {"full-dpo": 1, "full-rlvr": 2, "full-rlhf": 7, "full-cpt": 0}
    for variant, more in passes.items():
        assert work_of(settle(spec(variant=variant))).per_token == pytest.approx(
            full.forward * (3 + more)
        )
    experts = work_of(settle(spec(active_parameters=1e9)))
    assert experts.per_token == pytest.approx(6 * 1e9 + attention)
    picture = work_of(settle(spec(forward_flops=8e9)))
    assert picture.per_token == 24e9


def test_memory_is_shared_out_by_what_the_sharding_says():
    def memory(gpus=8, **given):
        return memory_of(settle(spec(**given)), gpus, 1)

    alone = memory(sharding="none")
    assert (alone.weights, alone.gradients, alone.optimizer) == (16e9, 16e9, 96e9)
    states = memory(sharding="optimizer")
    assert (states.weights, states.gradients, states.optimizer) == (16e9, 16e9, 12e9)
    assert memory(sharding="gradients").gradients == 2e9
    whole = memory(sharding="full")
    assert whole.weights == pytest.approx(16e9 / 8 + 2 / 32 * 16e9)
    assert memory(1, sharding="full").total == memory(1, sharding="none").total
    assert memory(tensor_parallel=4, sharding="none").weights == 4e9
    assert memory(active_parameters=2e9, expert_parallel=4, sharding="none").weights == 7e9
    assert memory(master_weights=False, sharding="none").optimizer == 32e9
    quantized = memory(variant="lora-sft", quantized_base=True, sharding="none")
    assert quantized.weights == pytest.approx(8e9 * 0.5159, rel=0.03)
    assert quantized.optimizer < 1e9
    assert memory(variant="full-rlhf", sharding="none").weights == 4 * 16e9
    assert memory(variant="full-dpo", sharding="none").weights == 2 * 16e9
    assert memory(variant="lora-dpo", sharding="none").weights < 17e9
    kept, again = memory().activations, memory(checkpointing="full").activations
    assert again == pytest.approx(kept * (2 * 32 + 32) / (32 * 32))
    assert memory(attention="standard").activations > 5 * kept
    assert memory(tensor_parallel=4).activations == pytest.approx(kept / 4)


def test_the_least_count_that_fits_is_the_first_that_does():
    counts = fitting(spec())
    assert counts == [4, 8, 16, 32, 64, 128, 256]  # a batch of 256 feeds no more
    assert least_that_fits(spec()) == 4
    job = settle(spec())
    assert not fits(job, 2)
    assert least_that_fits(spec(variant="lora-sft", quantized_base=True)) == 1
    with pytest.raises(SpecError, match="doesn't fit on up to 65536 H100-SXM"):
        least_that_fits(spec(parameters=1e13))


def test_a_micro_batch_that_is_not_given_is_the_most_that_fits():
    found = estimate_on(settle(spec(micro_batch=None)), 8)
    assert found.micro == 2
    assert fits(settle(spec()), 8, 2)
    assert not fits(settle(spec()), 8, 4)


def test_messages_cost_more_across_nodes_and_with_slower_networks():
    inside, across = (estimate_on(settle(spec()), n) for n in (8, 16))
    assert across.messages_s > 2 * inside.messages_s
    slow = estimate_on(settle(spec(network_gbs=5.0)), 16)
    assert slow.messages_s > across.messages_s
    assert estimate_on(settle(spec()), 1).messages_s == 0
    assert estimate_on(settle(spec(gpu="GB200")), 64).messages_s < across.messages_s


def test_a_pipeline_waits_and_virtual_stages_shorten_that():
    plain = estimate_on(settle(spec(pipeline_parallel=4)), 16)
    assert plain.waiting_s == pytest.approx(plain.compute_s * 3 / 64)
    cut = estimate_on(settle(spec(pipeline_parallel=4, virtual_stages=4)), 16)
    assert cut.waiting_s == pytest.approx(plain.waiting_s / 4)


def test_narrow_matrices_small_batches_and_experts_are_slower():
    wide = mfu(settle(spec()), 4)
    assert wide < 0.5
    assert mfu(settle(spec(hidden_size=512)), 4) < wide
    assert mfu(settle(spec(sequence_length=128)), 1) < wide / 2
    assert mfu(settle(spec(active_parameters=1e9)), 4) == pytest.approx(0.55 * wide)
    assert seconds(precision="fp8") < seconds() < seconds(precision="fp32")


def test_generating_takes_time_only_where_something_is_generated():
    for variant in VARIANTS:
        found = estimate_on(settle(spec(variant=variant)), 8)
        assert (found.generation_s > 0) == (variant.split("-")[1] in ("rlhf", "rlvr"))
    short, long = (
        estimate_on(settle(spec(variant="full-rlvr", generated_tokens=tokens)), 8).generation_s
        for tokens in (100, 200)
    )
    assert long == pytest.approx(2 * short)


@pytest.mark.parametrize("gpus", [0, 65_537])
def test_counts_beyond_all_fleets_are_refused(gpus):
    with pytest.raises(SpecError, match="gpus must be between"):
        estimate_on(settle(spec()), gpus)
