"""Quantization: refusals, terms by method, memory, whole hours, and the page's tables."""

import math
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecasting.core.checking import SpecError
from forecasting.core.correction import THIN
from forecasting.core.estimate import Observation, cheapest, learn_of, least_in_time
from forecasting.core.hardware import UnknownName
from forecasting.core.quantizing import (
    PRIOR,
    VERSION,
    describe,
    estimate,
    estimate_on,
    fitting,
    hours_to_ask,
    least_that_fits,
    memory_of,
    options,
    spec_of,
)
from forecasting.core.quantizing_spec import (
    CALIBRATED,
    FEATURES,
    METHODS,
    QuantizingSpec,
    settle,
    tier,
)
from tests.core.test_forecast_docs import PAGE, table
from tests.core.test_forecast_docs import given as features

PLAIN: dict[str, Any] = {"gpu": "A100", "parameters": 8e9, "method": "gptq"}


def spec(**given: Any) -> QuantizingSpec:
    return QuantizingSpec(**PLAIN | given)


def terms(**given: Any) -> dict[str, float]:
    return dict(estimate_on(settle(spec(**given)), 1).terms)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"parameters": 1e30}, "parameters must be between 1e\\+06 and 1e\\+14, not 1e\\+30."),
        ({"parameters": 0}, "parameters must be between"),
        ({"parameters": "many"}, "parameters must be a number, such as 7e9"),
        ({"parameters": "nan"}, "parameters must be a number, such as 7e9"),
        ({"parameters": None}, "Say how large the model is"),
        ({"samples": 0}, "samples must be between 1 and"),
        ({"samples": 1.5}, "samples must be a whole number, not 1.5."),
        ({"gpu": "H1000"}, "There is no GPU type 'H1000': did you mean one of H100"),
        ({"method": "gguf"}, "There is no method 'gguf'"),
        ({"method": None}, "Say the method: bitsandbytes, awq, gptq."),
        ({"method": 4}, "method must be text"),
        ({"method": "awq", "bits": 3}, "awq writes 4 bits, not 3."),
        ({"method": "bitsandbytes", "samples": 8}, "bitsandbytes isn't calibrated"),
        ({"method": "awq", "activation_order": True}, "Only gptq has an activation_order."),
        ({"activation_order": "perhaps"}, "activation_order must be true or false, not 'perhaps'."),
        ({"active_parameters": 9e9}, "active_parameters can't be more than parameters"),
        ({"experts": 4, "experts_per_token": 8}, "experts_per_token can't be more than experts."),
        ({"offload": "moon"}, "There is no offload 'moon'"),
        ({"gpus": 0}, "gpus must be between 1 and 65536, not 0."),
        ({"colour": "red"}, "There is no feature 'colour'"),
    ],
)
def test_nonsense_gets_a_sentence_and_no_number(changed, sentence):
    with pytest.raises((SpecError, UnknownName), match=sentence) as refused:
        estimate(spec_of(PLAIN | changed))
    assert len(str(refused.value)) < 250


def test_features_are_read_as_people_write_them():
    found = spec_of({**PLAIN, "parameters": "8.03B", "samples": "512", "activation_order": True})
    assert (found.parameters, found.samples, found.activation_order) == (8.03e9, 512, True)
    assert spec_of(PLAIN | {"layers": None, "model": ""}) == spec()
    assert spec_of({"parameters": "8B", "method": "gptq"}, gpu="A100", gpus=2) == spec(gpus=2)
    assert all(unit and default and effect for unit, default, effect in FEATURES.values())


def test_each_method_has_its_own_terms():
    by = {method: terms(method=method) for method in METHODS}
    assert "rounding" in by["bitsandbytes"]
    assert by["bitsandbytes"]["passing"] == 0
    assert {"searching", "clipping"} <= set(by["awq"])
    assert {"Hessians", "inverting", "columns"} <= set(by["gptq"])
    seconds = {method: sum(found.values()) for method, found in by.items()}
    assert seconds["bitsandbytes"] < seconds["awq"] < seconds["gptq"]


def test_terms_follow_their_drivers():
    plain = terms(layers=32, hidden_size=4096)
    wide = terms(layers=32, hidden_size=8192)
    assert wide["Hessians"] == pytest.approx(4 * plain["Hessians"])
    assert wide["inverting"] == pytest.approx(8 * plain["inverting"])
    assert wide["columns"] == pytest.approx(2 * plain["columns"])
    twice = terms(layers=32, hidden_size=4096, samples=256)
    assert twice["Hessians"] == pytest.approx(2 * plain["Hessians"])
    assert twice["inverting"] == plain["inverting"]
    assert terms(group_size=32)["columns"] > terms(group_size=128)["columns"]
    ordered = terms(activation_order=True)
    assert ordered["columns"] > terms()["columns"]
    assert terms(bits=8)["writing"] > terms()["writing"]
    assert terms(disk_gbs=2.0)["loading"] == pytest.approx(terms()["loading"] / 2)
    assert terms(download_gbs=0.5)["fetching"] == pytest.approx(32)
    assert terms(offload="disk")["moving"] > terms()["moving"] > terms(offload="none")["moving"]
    assert terms(gpu="H100")["Hessians"] < terms()["Hessians"]
    kept = terms(saving=False)
    assert (kept["packing"], kept["writing"]) == (0, 0)


def test_an_expert_is_calibrated_with_its_part_of_the_tokens():
    mixture: dict[str, Any] = {
        "parameters": 30e9,
        "active_parameters": 3e9,
        "layers": 48,
        "hidden_size": 2048,
        "intermediate_size": 768,
        "experts_per_token": 8,
    }
    few, many = terms(**mixture, experts=64), terms(**mixture, experts=128)
    assert many["Hessians"] == few["Hessians"]  # T·k ÷ E tokens for each of E
    assert many["columns"] > 1.9 * few["columns"]
    assert many["inverting"] > few["inverting"]


sizes = st.floats(1e8, 1e13)


@settings(max_examples=60, deadline=None)
@given(sizes, sizes, st.sampled_from(METHODS), st.sampled_from(["A100", "H100", "T4", "MI300X"]))
def test_a_larger_model_takes_no_less(one, other, method, gpu):
    small, large = sorted((one, other))
    found = [
        estimate_on(settle(QuantizingSpec(gpu=gpu, parameters=size, method=method)), 1)
        for size in (small, large)
    ]
    assert found[0].seconds <= found[1].seconds * (1 + 1e-12)
    for (name, less), (_, more) in zip(found[0].terms, found[1].terms, strict=True):
        assert less <= more * (1 + 1e-12), name
    assert found[0].memory.total <= found[1].memory.total * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.integers(16, 8192),
    st.integers(0, 8192),
    st.sampled_from(CALIBRATED),
)
def test_a_longer_calibration_takes_no_less(one, other, sequence, longer, method):
    few, many = sorted((one, other))
    found = [
        estimate(spec(method=method, samples=samples, sequence_length=tokens), (), 1)
        for samples, tokens in ((few, sequence), (many, sequence), (many, sequence + longer))
    ]
    assert found[0].physics_s <= found[1].physics_s <= found[2].physics_s
    assert found[0].memory.total <= found[1].memory.total <= found[2].memory.total


@given(st.integers(1, 64), st.floats(1, 1e6), st.floats(0, 3))
def test_hours_to_ask_are_whole_and_never_fewer(gpus, seconds, margin):
    hours = hours_to_ask(gpus, seconds, margin)
    assert hours * 3600 >= gpus * seconds * (1 + margin) * (1 - 1e-8)
    assert hours == 1 or (hours - 1) * 3600 < gpus * seconds * (1 + margin)


def test_hours_are_rounded_up():
    assert hours_to_ask(1, 3600, 0.0) == 1
    assert hours_to_ask(1, 3601, 0.0) == 2
    assert hours_to_ask(8, 1, 0.25) == 1
    found = estimate(spec(parameters=70e9, margin=0.0), (), 2)
    assert found.whole_gpu_hours == math.ceil(2 * found.p50 / 3600)
    assert found.asked_s * 2 >= 2 * found.p50
    assert "whole GPU-hours" in found.reasons[-1]


def test_more_gpus_hold_more_and_are_not_faster():
    kept = spec(parameters=70e9, offload="none")
    assert fitting(kept) == [4, 8, 16, 32, 64, 128, 256, 512, 1024]
    assert least_that_fits(spec(parameters=70e9)) == 1  # two layers at a time
    tried = options(kept, most=8)
    assert [one.gpus for one in tried] == [4, 8]
    assert tried[0].p50 == tried[1].p50
    assert cheapest(tried).gpus == least_in_time(tried, 10**6).gpus == 4
    with pytest.raises(SpecError, match="can't be kept"):
        least_in_time(tried, 60)
    with pytest.raises(SpecError, match="doesn't fit on up to"):
        estimate(spec(gpu="T4", method="awq", samples=100_000))
    assert not estimate(kept, (), 1).fits
    assert any("doesn't fit" in one for one in estimate(kept, (), 1).reasons)


def test_memory_is_of_weights_hessians_and_samples():
    parts = dict(memory_of(settle(spec(layers=32, hidden_size=4096)), 1).parts)
    assert parts["weights"] == pytest.approx(2 * 2 * 8e9 / 32)
    inner = 3.5 * 4096
    squares = 6 * 4096**2 + inner**2
    assert parts["Hessians"] == pytest.approx(4 * squares + 12 * inner**2)
    held = dict(memory_of(settle(spec(method="bitsandbytes")), 2).parts)
    assert held["weights"] < 8e9 / 2


def test_without_history_the_published_spread_stands():
    for method in METHODS:
        found = estimate(spec(method=method), (), 1)
        low, high = (math.exp(one) for one in PRIOR[method])
        assert found.p10 == round(found.physics_s * low)
        assert found.p90 == round(found.physics_s * high)
        assert any("physics alone" in one for one in found.reasons)


def test_history_corrects_by_what_such_jobs_took():
    seen = [
        Observation(spec(method=method, parameters=size * 1e9, project="sonnet"), 1, seconds)
        for method in ("gptq", "awq")
        for size in (1, 2, 4, 7, 8, 13, 30)
        for seconds in [
            2 * estimate_on(settle(spec(method=method, parameters=size * 1e9)), 1).seconds
        ]
    ]
    assert len(seen) >= THIN
    learned = learn_of(seen, describe)
    plain, found = estimate(spec(), (), 1), estimate(spec(project="sonnet"), learned, 1)
    assert found.p50 == pytest.approx(2 * plain.p50, rel=0.15)
    assert found.p90 / found.p10 < plain.p90 / plain.p10
    assert any(f"as {len(seen)} jobs came out" in one for one in found.reasons)
    new = estimate(spec(gpu="L40S", project="sonnet"), learned, 1)
    assert any("no job on this type of GPU" in one for one in new.reasons)


def test_classes_are_by_parameters_and_calibration():
    assert tier(8e9, 262_144) == "≤ 8B, ≤ 262,144 tokens"
    assert tier(8.1e9, 262_145) == "≤ 15B, ≤ 1,048,576 tokens"
    assert tier(405e9, 2e6) == "> 200B, > 1,048,576 tokens"
    assert tier(1e9, 0) == "≤ 1B"
    assert describe(spec(), 1).novel[1] == "≤ 8B, ≤ 262,144 tokens"


def test_the_pages_features_and_terms_are_those_of_the_code():
    found = {name.strip("`"): tuple(rest) for name, *rest in table("feature of a quantization")}
    assert found == FEATURES
    heads = PAGE.split("| what is quantized |")[1].splitlines()[0].split("|")
    names = [head.strip() for head in heads[2:13]]
    for _, text, gpus, *cells in table("what is quantized"):
        one = QuantizingSpec(**features(text))
        worked = estimate_on(settle(one), int(gpus))
        parts = dict(worked.terms)
        assert cells[:-2] == [f"{parts.get(name, 0):.2f}" for name in names]
        assert cells[-2] == f"{worked.seconds:.2f}"
        assert cells[-1] == str(estimate(one, (), int(gpus)).whole_gpu_hours)


def test_the_pages_classes():
    methods = (("bitsandbytes", None), ("awq", 128), ("gptq", 128), ("gptq", 512))
    for size, *cells in table("parameters at most"):
        told = []
        for method, samples in methods:
            given = {"parameters": float(size[:-1]) * 1e9, "method": method, "samples": samples}
            found = estimate(spec(**given))
            told.append(f"{found.gpus} × {found.p50 / 60:.0f} min: {found.whole_gpu_hours}")
        assert cells == told


def test_the_pages_published_figures():
    inside, errors = 0, []
    rows = table("published by")
    for _, text, minutes, *cells in rows:
        found = estimate(QuantizingSpec(**features(text)))
        truth = float(minutes)
        within = found.p10 <= truth * 60 <= found.p90
        told = [f"{one / 60:.1f}" for one in (found.physics_s, found.p10, found.p90)]
        assert cells == [*told, "yes" if within else "no"]
        inside += within
        errors.append(abs(found.physics_s / 60 / truth - 1))
    told = f"{inside} of {len(rows)} lie in the range; the median error is {median(errors):.0%}"
    plain = " ".join(PAGE.split()).replace(" %", "%")
    assert told in plain
    assert f"`{VERSION}`" in plain
