"""Quantizations and batches of inference say what they compute, and are estimated by it."""

import pytest

from allocator import admission
from forecasting import works
from forecasting.core import inference, quantizing
from forecasting.core.kinds import KINDS
from tests import factories as make
from tests.factories import T0
from tests.pages_world import client_of, text_of
from workloads.models import Job
from workloads.specs import JobSpec

pytestmark = pytest.mark.django_db
WORKS = {
    "quantization": {"parameters": "70B", "method": "gptq", "samples": 512},
    "batch_inference": {
        "parameters": "8B",
        "prompts": "1M",
        "input_tokens": 512,
        "output_tokens": 256,
        "precision": "fp8",
    },
}
VARIANTS = {"quantization": "gptq", "batch_inference": "fp8"}


@pytest.fixture
def petrel(tree):
    make.make_nodes(make.make_pool("h100", gpu_type="H100"), 2)
    return tree["orlo/science/petrel"]


@pytest.fixture
def user(petrel):
    user = make.make_user()
    make.make_role(user, petrel)
    return user


def submit(budget, user, kind, work):
    spec = JobSpec(name="x", kind=kind, gpus=2, work=work)
    return admission.submit(budget=budget, user=user, spec=spec, now=T0)


def test_every_kind_but_services_has_an_estimator():
    assert set(KINDS) == set(Job.Kind.values) - {Job.Kind.REALTIME}


@pytest.mark.parametrize("kind", WORKS)
def test_a_job_is_estimated_by_what_it_computes(petrel, user, kind):
    job = submit(petrel, user, kind, WORKS[kind])
    module = {"quantization": quantizing, "batch_inference": inference}[kind]
    spec = module.spec_of(WORKS[kind], gpu="H100", gpus=2, project=petrel.path)
    expected = module.estimate(spec, (), 2)
    forecast = job.forecasts.get()
    assert (forecast.method, forecast.variant) == ("physics", VARIANTS[kind])
    assert forecast.version == module.VERSION
    assert (job.estimate_p10_s, job.estimate_p50_s) == (expected.p10, expected.p50)
    assert set(expected.reasons) - set(forecast.reasons) <= set(expected.reasons[-2:])


@pytest.mark.parametrize(
    ("kind", "wrong", "sentence"),
    [
        ("quantization", {"method": "gguf"}, "There is no method 'gguf'"),
        ("quantization", {"samples": 0}, "samples must be between 1 and"),
        ("quantization", {"tokens": 5}, "There is no feature 'tokens'"),
        ("batch_inference", {"prompts": 0}, "prompts must be between 1 and"),
        ("batch_inference", {"tensor_parallel": 4}, "2 GPUs can't hold copies of 4"),
        ("batch_inference", {"gpu": "H900"}, "There is no GPU type 'H900'"),
    ],
)
def test_nonsense_is_refused_in_one_sentence_at_its_field(petrel, user, kind, wrong, sentence):
    with pytest.raises(admission.AdmissionError) as refused:
        submit(petrel, user, kind, WORKS[kind] | wrong)
    assert sentence in refused.value.problems["work"]
    assert not Job.objects.exists()


@pytest.mark.parametrize("kind", WORKS)
def test_options_are_the_counts_that_fit(kind):
    found = works.options(kind=kind, work=WORKS[kind], gpu_types=["H100", "L40S"])
    counts = [one.gpus for one in found]
    assert counts == sorted(counts)
    assert counts[0] == 1
    if kind == "quantization":
        assert len({one.p50_s for one in found}) == 1
    else:
        assert found[-1].p50_s < found[0].p50_s


def test_the_quote_tells_hours_to_ask_for(petrel, user):
    form = {
        **{"budget": petrel.path, "name": "x", "kind": "quantization", "gpus": "2"},
        **{"urgency": "normal", "when_unfunded": "wait"},
        **{"work": '{"parameters": "70B", "method": "gptq"}'},
    }
    told = text_of(client_of(user).post("/jobs/quote", form))
    assert "whole GPU-hours to ask for" in told
