"""Batch inference: refusals, the roofline's terms, memory, options, the bench, the page."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import speeds
from benchmarks.inference_rows import all_rows
from forecasting.core.checking import SpecError
from forecasting.core.estimate import Observation, cheapest, learn_of, least_in_time
from forecasting.core.hardware import UnknownName, gpu_type
from forecasting.core.inference import (
    MEASURED,
    PRIOR,
    VERSION,
    Estimate,
    describe,
    estimate,
    estimate_on,
    fits,
    fitting,
    gain_of,
    least_that_fits,
    memory_of,
    options,
    spec_of,
)
from forecasting.core.inference_spec import FEATURES, PRECISIONS, InferenceSpec, settle
from tests.core.test_forecast_docs import PAGE, table
from tests.core.test_forecast_docs import given as features

PLAIN: dict[str, Any] = {
    "gpu": "H100",
    "parameters": 8e9,
    "prompts": 1e5,
    "input_tokens": 512,
    "output_tokens": 256,
}


def spec(**given: Any) -> InferenceSpec:
    return InferenceSpec(**PLAIN | given)


def on(gpus: int = 1, **given: Any) -> Estimate:
    return estimate_on(settle(spec(**given)), gpus)


def terms(gpus: int = 1, **given: Any) -> dict[str, float]:
    return dict(on(gpus, **given).terms)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"prompts": 0}, "prompts must be between 1 and 1e\\+12, not 0."),
        ({"input_tokens": 0}, "input_tokens must be between 1 and"),
        ({"output_tokens": float("inf")}, "output_tokens must be a finite number."),
        ({"output_tokens": None}, "Say how much is generated for a prompt"),
        ({"parameters": "1e30"}, "parameters must be between 1e\\+06 and 1e\\+14, not 1e\\+30."),
        ({"tokens_per_second": 0}, "tokens_per_second must be between"),
        ({"cached_part": 1.5}, "cached_part must be between 0 and 1, not 1.5."),
        ({"batch": 0}, "batch must be between 1 and"),
        ({"precision": "bf8"}, "There is no precision 'bf8'"),
        ({"kv_precision": "int2"}, "There is no kv_precision 'int2'"),
        ({"gpu": "H1000"}, "There is no GPU type 'H1000': did you mean one of H100"),
        ({"active_parameters": 9e9}, "active_parameters can't be more than parameters"),
        ({"tensor_parallel": 3}, "tensor_parallel must be a power of two, not 3."),
        ({"gpus": 4, "tensor_parallel": 8}, "4 GPUs can't hold copies of 8"),
        ({"kv_heads": 2.5}, "kv_heads must be a whole number, not 2.5."),
        ({"temperature": 1}, "There is no feature 'temperature'"),
    ],
)
def test_nonsense_gets_a_sentence_and_no_number(changed, sentence):
    with pytest.raises((SpecError, UnknownName), match=sentence) as refused:
        estimate(spec_of(PLAIN | changed))
    assert len(str(refused.value)) < 250


def test_what_is_not_given_is_said():
    said = " ".join(estimate(spec()).reasons)
    for words in ("kv_heads", "256 sequences", "derived from the parameters", "120 s are assumed"):
        assert words in said
    assert spec_of(PLAIN | {"parameters": "8B", "prompts": "100K"}) == spec()
    assert all(unit and default and effect for unit, default, effect in FEATURES.values())


def test_a_measured_throughput_counts_before_the_formulas():
    found = estimate(spec(tokens_per_second=1000.0, startup_s=0.0, disk_gbs=1e4), (), 4)
    assert found.physics_s == pytest.approx(1e5 * 256 / 4000, rel=1e-3)
    assert found.reasons[0].startswith("Measured: 1,000 output tokens a second")
    low, high = (math.exp(one) for one in MEASURED)
    assert (found.p10, found.p90) == (
        round(found.physics_s * low),
        round(found.physics_s * high),
    )


def test_a_measured_throughput_is_that_of_copies_that_have_a_prompt():
    four = spec(prompts=4, tokens_per_second=50.0)
    on_four, on_eight = (estimate_on(settle(four), gpus) for gpus in (4, 8))
    assert on_four.terms == on_eight.terms, "four prompts keep no more than four copies busy"
    assert dict(on_eight.terms)["measured"] == pytest.approx(256 / 50)
    assert on_eight.across == 1, "what was measured doesn't say how a wider copy would do"
    assert "4 prompts keep no more copies of the model busy, of 8." in estimate(four, (), 8).reasons
    uneven = on(4, prompts=10, tokens_per_second=50.0)
    assert dict(uneven.terms)["measured"] == pytest.approx(3 * 256 / 50), "the fullest copy's three"


def test_phases_follow_their_drivers():
    plain = terms(kv_heads=8, layers=32, hidden_size=4096)
    assert terms(cached_part=1.0)["prefill"] == 0
    assert terms(prompts=2e5)["prefill"] == pytest.approx(2 * terms()["prefill"])
    assert terms(kv_heads=4, layers=32, hidden_size=4096)["cache"] == pytest.approx(
        plain["cache"] / 2
    )
    assert terms(kv_precision="fp8")["cache"] == pytest.approx(terms()["cache"] / 2)
    assert terms(precision="fp8")["weights"] == pytest.approx(terms()["weights"] / 2)
    assert terms(batch=64)["weights"] == pytest.approx(4 * terms()["weights"])
    assert terms(batch=64)["products"] == pytest.approx(terms()["products"])
    assert terms(startup_s=7.0)["starting"] == 7
    assert terms(disk_gbs=4.0)["loading"] == pytest.approx(4)
    assert terms()["messages"] == 0
    assert terms(2, tensor_parallel=2)["messages"] > 0


def test_bandwidth_binds_small_batches_and_products_large_ones():
    few, many = (terms(batch=batch, gpu="H200", input_tokens=64) for batch in (1, 1024))
    assert few["weights"] > 20 * few["products"]
    assert many["products"] > many["weights"]
    bandwidth = gpu_type("H200").bandwidth_gbs
    steps = 1e5 * 256
    assert few["weights"] == pytest.approx(steps * 16e9 / (0.6 * bandwidth * 1e9))


def test_a_step_reads_the_experts_that_are_chosen():
    mixture: dict[str, Any] = {"parameters": 80e9, "active_parameters": 8e9, "gpu": "B200"}
    one = terms(batch=1, **mixture)["weights"] / (1e5 * 256)
    rate = 0.6 * 8000e9
    assert one == pytest.approx(16e9 / rate)
    many = on(batch=256, **mixture)
    assert dict(many.terms)["weights"] * many.batch / (1e5 * 256) == pytest.approx(
        160e9 / rate, rel=1e-3
    )


def test_precisions_that_a_gpu_has_not_are_unpacked():
    assert gain_of(gpu_type("H100"), "fp8") == 1.5
    assert gain_of(gpu_type("A100"), "fp8") == 0.8
    assert gain_of(gpu_type("A100"), "int8") == 1.5
    assert gain_of(gpu_type("V100"), "int8") == 0.8
    assert gain_of(gpu_type("B200"), "fp4") == 1.9
    assert gain_of(gpu_type("H100"), "fp4") == gain_of(gpu_type("B200"), "int4") == 0.8
    assert all(gain_of(gpu_type("H100"), name) > 0 for name in PRECISIONS)


def test_the_batch_is_what_fits_and_no_more_than_there_are():
    assert on(prompts=10).batch == 10
    assert on(batch=100_000).batch < 100_000
    crowded = on(parameters=34e9, input_tokens=30_000)
    assert 1 <= crowded.batch < 256
    job = settle(spec(parameters=34e9, input_tokens=30_000))
    held = memory_of(job, crowded.across, crowded.batch + 1).total
    assert crowded.memory.total <= job.gpu.memory_bytes < held


def test_copies_share_prompts_and_split_as_is_quickest():
    small = on(8)
    assert (small.across, small.copies) == (1, 8)
    large = on(8, parameters=70e9)
    assert large.across in (4, 8)
    split = [on(8, parameters=70e9, tensor_parallel=t) for t in (4, 8)]
    assert large.seconds == min(one.seconds for one in split)
    assert fitting(spec(parameters=70e9))[:2] == [2, 4]
    assert least_that_fits(spec(parameters=70e9, tensor_parallel=8)) == 8
    assert not estimate(spec(parameters=70e9), (), 1).fits
    assert any("doesn't fit" in one for one in estimate(spec(parameters=70e9), (), 1).reasons)
    with pytest.raises(SpecError, match="doesn't fit on up to 4 H100-SXM"):
        options(spec(parameters=400e9), most=4)


def test_the_least_in_time_and_the_cheapest():
    tried = options(spec(prompts=1e6), most=16)
    assert [one.gpus for one in tried] == [1, 2, 4, 8, 16]
    assert all(a.p50 > b.p50 for a, b in pairwise(tried))
    deadline = tried[2].p90
    assert least_in_time(tried, deadline).gpus == 4
    assert cheapest(tried).gpus == 1  # each copy starts and loads anew
    with pytest.raises(SpecError, match="can't be kept: the fastest, on 16 GPUs"):
        least_in_time(tried, 60)


sizes = st.floats(1e8, 5e11)
counts = st.floats(1, 1e7)
GPUS_TRIED = ["A100", "H100", "L4", "MI300X", "V100-32"]


def seconds(gpu: str, gpus: int, **given: Any) -> float:
    """Without an end where nothing fits."""
    job = settle(spec(gpu=gpu, **given))
    found = estimate_on(job, gpus)
    return found.seconds if fits(job, found) else math.inf


@settings(max_examples=80, deadline=None)
@given(sizes, sizes, st.sampled_from(GPUS_TRIED), st.sampled_from([1, 4, 8]))
def test_a_larger_model_takes_no_less(one, other, gpu, gpus):
    small, large = sorted((one, other))
    found = [seconds(gpu, gpus, parameters=size) for size in (small, large)]
    assert found[0] <= found[1] * (1 + 1e-9)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(["prompts", "input_tokens", "output_tokens"]),
    counts,
    counts,
    st.sampled_from(GPUS_TRIED),
)
def test_more_prompts_or_tokens_take_no_less(name, one, other, gpu):
    low, high = sorted((one, other))
    least = {"prompts": 1.0, "input_tokens": 1.0, "output_tokens": 1.0}[name]
    found = [seconds(gpu, 2, **{name: max(least, value)}) for value in (low, high)]
    assert found[0] <= found[1] * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(1, 1e6))
def test_what_is_cached_saves(one, other, tokens):
    less, more = sorted((one, other))
    found = [terms(cached_part=part, input_tokens=tokens)["prefill"] for part in (less, more)]
    assert found[0] >= found[1]


def test_history_corrects_an_engine_and_thin_history_does_not():
    plain = estimate(spec())
    low, high = (math.exp(one) for one in PRIOR)
    assert (plain.p10, plain.p90) == (
        round(plain.physics_s * low),
        round(plain.physics_s * high),
    )
    past = [
        spec(prompts=prompts, framework="ours", parameters=size)
        for prompts in (1e4, 2e4, 3e4, 6e4, 1e5, 2e5, 3e5, 6e5)
        for size in (1e9, 3e9, 7e9, 8e9)
    ]
    seen = [Observation(one, 1, 0.7 * estimate_on(settle(one), 1).seconds) for one in past]
    found = estimate(spec(framework="ours"), learn_of(seen, describe))
    assert found.p50 == pytest.approx(0.7 * plain.p50, rel=0.1)
    assert found.p90 / found.p10 < plain.p90 / plain.p10
    thin = estimate(spec(framework="ours"), seen[:3])
    assert thin.p50 == plain.p50


def test_the_bench_holds_out_whole_groups_and_meets_what_is_asked():
    rows = all_rows()
    assert len(rows) == 256
    assert len({row.spec.model for row in rows}) == 11
    result = speeds.measure_all()
    assert {one.way for one in result.outcomes} == {speeds.ALONE, *speeds.WORDS}
    errors = [floor for floor in speeds.floors(result) if "error" in floor.what]
    assert len(errors) == 2
    assert all(floor.met for floor in errors)
    told = speeds.tables(result)[0].text()
    assert "history without the size of the model" in told
    page = PAGE.split("<!-- bench speeds -->")[1].split("<!-- /bench speeds -->")[0]
    alone = [row for row in speeds.tables(result)[0].rows if row[0] == speeds.ALONE]
    assert [row for row in alone if " | ".join(row) not in page] == []


def test_the_pages_features_and_terms_are_those_of_the_code():
    found = {name.strip("`"): tuple(rest) for name, *rest in table("feature of a batch")}
    assert found == FEATURES
    heads = PAGE.split("| batch of inference |")[1].splitlines()[0].split("|")
    names = [head.strip() for head in heads[4:13]]
    for _, text, gpus, across, batch, *cells in table("batch of inference"):
        worked = estimate_on(settle(InferenceSpec(**features(text))), int(gpus))
        parts = dict(worked.terms)
        assert (worked.across, worked.batch) == (int(across), int(batch))
        assert cells[:-1] == [f"{parts.get(name, 0):.2f}" for name in names]
        assert cells[-1] == f"{worked.seconds:.2f}"
    for _, text, gpus, across, prompts, *cells in table("measured batch"):
        job = settle(InferenceSpec(**features(text)))
        worked = estimate_on(job, int(gpus))
        assert (worked.across, int(prompts)) == (int(across), -(-job.spec.prompts // worked.copies))
        assert cells == [f"{took:.2f}" for took in (*dict(worked.terms).values(), worked.seconds)]
    for _, text, across, batch, *cells in table("held by a GPU"):
        memory = memory_of(settle(InferenceSpec(**features(text))), int(across), int(batch))
        sizes = [*(size for _, size in memory.parts), memory.total]
        assert cells == [f"{size / 1e9:.2f}" for size in sizes]
    assert f"`{VERSION}`" in PAGE
