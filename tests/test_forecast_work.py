"""What a job computes: given with it, refused in a sentence, estimated by physics, kept, scored."""

from datetime import timedelta

import pytest

from allocator import admission
from forecasting import services as forecasting
from forecasting import works
from forecasting.core.scoring import pinball_ds, score
from forecasting.models import Forecast
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_world import client_of, text_of
from workloads.models import Job
from workloads.specs import JobSpec

pytestmark = pytest.mark.django_db
WORK = {"parameters": "7B", "tokens": "1B", "sequence_length": 4096}
NONSENSE = [
    ({"parameters": "7B", "tokens": 0}, "tokens must be between 1 and 1e+17, not 0."),
    ({"parameters": 10**30, "tokens": 1}, "parameters must be between 1000 and 1e+14, not 1e+30."),
    ({"parameters": 10**400, "tokens": 1}, "parameters must be a finite number."),
    ({"parameters": "many", "tokens": 1}, 'such as 7e9 or "7B", not'),
    ({"parameters": "7B"}, "Say how much is trained"),
    ({"tokens": 5}, "Say how large the model is"),
    (WORK | {"gpu": "H900"}, "There is no GPU type 'H900': did you mean one of H800"),
    (WORK | {"paramters": 1}, "There is no feature 'paramters': did you mean one of parameters"),
    (WORK | {"gpu": "H100", "gpu_type": "H100"}, "gpu is given twice"),
    (WORK | {"gpus": 16}, "gpus is 16 here and 8 in the job"),
    (WORK | {"tensor_parallel": 16}, "8 GPUs can't hold copies of 16 GPUs"),
    (WORK | {"quantized_base": "yes"}, "quantized_base must be true or false"),
    (WORK | {"framework": 5}, "framework must be text"),
]


@pytest.fixture
def petrel(tree):
    make.make_nodes(make.make_pool("h100", gpu_type="H100"), 2)
    return tree["orlo/science/petrel"]


@pytest.fixture
def user(petrel):
    user = make.make_user()
    make.make_role(user, petrel)
    return user


def ask(budget, **changed):
    asked = {"budget": budget, "kind": "training", "gpus": 8, "work": WORK, "now": T0}
    return forecasting.estimate(**({"gpu_types": ["H100"]} | asked | changed))


def submit(budget, user, **asked):
    wanted = {"name": "train", "kind": "training", "gpus": 8, "work": WORK} | asked
    return admission.submit(budget=budget, user=user, spec=JobSpec(**wanted), now=T0)


# --- Given with a job ----------------------------------------------------------------------------


@pytest.mark.parametrize(("work", "sentence"), NONSENSE)
def test_nonsense_is_refused_in_one_sentence_at_its_field(petrel, user, work, sentence):
    with pytest.raises(admission.AdmissionError) as refused:
        submit(petrel, user, work=work)
    assert sentence in refused.value.problems["work"]
    assert not Job.objects.exists()


def test_only_kinds_that_can_be_read_take_it(petrel, user):
    with pytest.raises(admission.AdmissionError, match="leave work out"):
        submit(petrel, user, kind="realtime", gpus=None, profile=(1,) * 24, swap_cap=1)


def test_it_is_kept_with_the_job_and_its_absence_changes_no_key(petrel, user):
    job = submit(petrel, user, idempotency_key="a")
    assert Job.objects.get().work == WORK
    assert submit(petrel, user, idempotency_key="a") == job
    with pytest.raises(admission.KeyReused):
        submit(petrel, user, idempotency_key="a", work=WORK | {"tokens": "2B"})
    plain = submit(petrel, user, idempotency_key="b", work=None)
    assert submit(petrel, user, idempotency_key="b", work={}) == plain
    assert plain.work is None


def test_the_api_takes_shows_and_refuses_it(petrel, user):
    client = client_of(user)
    body = {"budget": petrel.path, "name": "x", "kind": "training", "gpus": 8, "work": WORK}
    send = {"content_type": "application/json"}
    made = client.post("/api/v1/jobs/", body, **send)
    assert (made.status_code, made.json()["work"]) == (201, WORK)
    (told,) = made.json()["forecasts"]
    assert (told["method"], told["variant"], told["planned"]) == ("physics", "full-sft", True)
    refused = client.post("/api/v1/jobs/", body | {"work": {"parameters": "7B"}}, **send)
    assert refused.status_code == 400
    assert "Say how much is trained" in str(refused.json())


def test_the_form_has_fields_for_it_and_refuses_at_them(petrel, user):
    client = client_of(user)
    form = {
        **{"budget": petrel.path, "name": "x", "kind": "training", "gpus": "8"},
        **{"urgency": "normal", "when_unfunded": "wait"},
        **{"work_parameters": "7B", "work_tokens": "0", "work": '{"layers": 32}'},
    }
    refused = client.post("/jobs/new", form)
    assert "tokens must be between 1 and" in text_of(refused)
    assert refused.context["form"].errors.keys() == {"work_tokens"}
    quote = text_of(client.post("/jobs/quote", form))
    assert "tokens must be between 1 and" in quote
    assert " cr" not in quote
    twice = client.post("/jobs/new", form | {"work": '{"tokens": 5}', "work_tokens": "1B"})
    assert "tokens is given in its own field too" in text_of(twice)
    assert not Job.objects.exists()
    assert client.post("/jobs/new", form | {"work_tokens": "1B"}).status_code == 302
    assert Job.objects.get().work == {"parameters": "7B", "tokens": "1B", "layers": 32}


def test_the_page_of_a_job_says_what_it_computes_and_how_its_estimate_came_about(petrel, user):
    job = submit(petrel, user, expected_duration_s=7200)
    text = text_of(client_of(user).get(f"/jobs/{job.pk}"))
    assert "What it computes parameters 7B sequence_length 4096 tokens 1B" in text
    assert "How the estimate came about 1 h 00 – 3 h 00, likely 2 h 00 (quantiles-1)" in text
    assert "made beside it, not planned with" in text
    forecasting.score(job=job, actual_s=6000, now=T0 + HOUR)
    assert "it took 1 h 40, inside the range" in text_of(client_of(user).get(f"/jobs/{job.pk}"))


# --- Which estimate counts ------------------------------------------------------------------------


def test_physics_counts_where_nothing_is_declared(petrel):
    found = ask(petrel)
    assert (found.method, found.version) == ("physics", "physics-1+correction-1")
    assert (found.variant, found.fits, found.beside) == ("full-sft", True, None)
    assert found.reasons[0] == "By what it computes."
    assert found.p10_s < found.p50_s < found.p90_s
    assert ask(petrel, gpus=16).p50_s < found.p50_s


def test_what_is_declared_is_planned_with_and_physics_is_kept_beside_it(petrel, user):
    found = ask(petrel, declared_s=7200)
    assert (found.method, found.p50_s) == ("declared", 7200)
    assert found.beside == forecasting.by_physics(
        works.physical(kind="training", work=WORK, gpus=8, gpu_types=["H100"], project=petrel.path)
    )
    percent = round(100 * found.beside.p50_s / 7200)
    assert f"{percent} % of what is declared" in found.reasons[-1]
    job = submit(petrel, user, expected_duration_s=7200)
    rows = list(job.forecasts.values_list("planned", "method"))
    assert rows == [(True, "declared"), (False, "physics")]
    assert job.estimate_p50_s == 7200


def test_pools_decide_the_type_and_the_slowest_the_far_end(petrel):
    fast, slow = ask(petrel), ask(petrel, gpu_types=["A100"])
    both = ask(petrel, gpu_types=["A100", "NVIDIA H100", "H100-SXM"])
    assert fast.p90_s < slow.p90_s
    assert (both.p10_s, both.p50_s, both.p90_s) == (fast.p10_s, slow.p50_s, slow.p90_s)
    assert "It may run on H100-SXM or A100-80: " in both.reasons[1]
    named = ask(petrel, gpu_types=["A100"], work=WORK | {"gpu": "H100"})
    assert named.p50_s == fast.p50_s
    partly = ask(petrel, gpu_types=["H100", "Quantum"])
    assert partly.p50_s == fast.p50_s
    assert "Nothing is known of Quantum: left out." in partly.reasons


def test_a_job_takes_the_types_of_the_pools_that_it_accepts(petrel, user):
    make.make_nodes(make.make_pool("a100", gpu_type="A100"), 2)
    on_a100 = submit(petrel, user, pools=("a100",))
    on_any = submit(petrel, user)
    assert on_a100.estimate_p50_s == ask(petrel, gpu_types=["A100"]).p50_s
    assert on_any.estimate_p10_s == ask(petrel).p10_s
    assert on_any.estimate_p90_s == on_a100.estimate_p90_s


@pytest.mark.parametrize("declared_s", [None, 7200])
def test_what_gives_no_estimate_falls_back_and_says_so(petrel, declared_s):
    found = ask(petrel, gpu_types=["Quantum"], declared_s=declared_s)
    assert found.method == ("declared" if declared_s else "default")
    assert "What it computes gives no estimate: No acceptable pool has a type" in found.reasons[-1]
    assert found.beside is None


def test_what_does_not_fit_in_memory_is_told(petrel):
    found = ask(petrel, work=WORK | {"parameters": "400B"})
    assert found.fits is False
    assert any("which doesn't fit" in reason for reason in found.reasons)


def test_options_are_the_counts_that_fit_in_the_memory_of_each_type(petrel):
    large = {"parameters": "70B", "global_batch": 64, "checkpointing": "full"}
    asked = {"kind": "training", "work": WORK | large}
    one, both = (
        [o.gpus for o in works.options(gpu_types=types, **asked)]
        for types in (["H200"], ["H200", "A100-40"])
    )
    assert one == [16, 32, 64]
    assert both == [64]
    with pytest.raises(works.CannotEstimate, match="doesn't fit on up to"):
        works.options(gpu_types=["T4"], **asked)
    with pytest.raises(works.CannotEstimate, match="Nothing reads"):
        works.options(kind="realtime", work=WORK, gpu_types=["T4"])


# --- Scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forecast", "actual", "tenths", "loss"),
    [(100, 200, 1, 100), (200, 100, 1, 900), (100, 200, 9, 900), (200, 100, 9, 100), (5, 5, 5, 0)],
)
def test_pinball_loss_in_tenths_of_a_second(forecast, actual, tenths, loss):
    assert pinball_ds(forecast, actual, tenths) == loss


def test_a_score_refuses_what_has_no_truth():
    with pytest.raises(ValueError, match="above 0"):
        score(1, 2, 3, 0)
    with pytest.raises(ValueError, match="between 1 and 9"):
        pinball_ds(1, 1, 10)


def test_all_forecasts_of_a_job_are_scored_when_it_ends(petrel, user):
    job = submit(petrel, user, expected_duration_s=7200)
    assert forecasting.score(job=job, actual_s=6000, now=T0 + HOUR) == 2
    assert forecasting.score(job=job, actual_s=1, now=T0 + 2 * HOUR) == 0
    said, beside = job.forecasts.all()
    assert (said.actual_s, said.scored_at, said.inside) == (6000, T0 + HOUR, True)
    assert (said.loss_p10_ds, said.loss_p50_ds, said.loss_p90_ds) == (2400, 6000, 4800)
    assert said.error_per_mille == 200
    assert beside.actual_s == 6000
    assert beside.inside == (beside.p10_s <= 6000 <= beside.p90_s)


def test_what_was_made_later_or_took_no_second_has_no_score(petrel, user):
    job = submit(petrel, user)
    assert forecasting.score(job=job, actual_s=5, now=T0 - timedelta(seconds=1)) == 0
    assert forecasting.score(job=job, actual_s=0, now=T0) == 1
    row = Forecast.objects.get()
    assert (row.actual_s, row.error_per_mille, row.inside) == (0, None, None)


def test_like_jobs_count_once_whatever_stands_beside(petrel, user):
    for _ in range(3):
        job = submit(petrel, user, expected_duration_s=7200)
        Job.objects.filter(pk=job.pk).update(state="completed", ended_at=T0)
        forecasting.score(job=job, actual_s=3600, now=T0)
    found = ask(petrel, work=None, declared_s=1000)
    assert found.reasons[1].startswith("3 like jobs")
