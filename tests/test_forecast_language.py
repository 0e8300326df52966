"""Why an estimate is what it is, read in the language of whoever reads it."""

from django.utils import translation

from forecasting.models import Forecast
from tests.pages_world import client_of, text_of
from tests.test_forecast_work import WORK, petrel, pytestmark, submit, user

__all__ = ["petrel", "pytestmark", "user"]
PORTUGUESE = {"accept-language": "pt-BR"}


def test_reasons_are_kept_in_english_and_told_in_the_readers_language(petrel, user):
    with translation.override("pt-br"):  # whoever submitted it
        job = submit(petrel, user, expected_duration_s=7200)
    planned, beside = Forecast.objects.order_by("-planned")
    assert planned.reasons[0] == "Declared: 7200 s."
    assert planned.reasons[-1].endswith("the declared duration is planned with.")
    assert planned.said == planned.reasons
    client = client_of(user)
    page = text_of(client.get(f"/jobs/{job.pk}", headers=PORTUGUESE))
    assert "Declarado: 7200 s." in page
    assert "do declarado; planeja-se com a duração declarada." in page
    assert beside.reasons[0] in page, "the core speaks English"
    assert "Declared: 7200 s." in text_of(client.get(f"/jobs/{job.pk}"))
    answer = client.get(f"/api/v1/jobs/{job.pk}/", headers=PORTUGUESE).json()
    assert "Declared: 7200 s." in str(answer)


def test_what_was_kept_before_there_were_sentences_is_told_as_it_is(petrel, user):
    submit(petrel, user, work=None)
    Forecast.objects.update(sentences=[])
    row = Forecast.objects.get()
    with translation.override("pt-br"):
        assert row.said == row.reasons == ["Nothing is known of like jobs: usual for training."]


def test_a_quote_is_told_in_the_readers_language(petrel, user):
    form = {"budget": petrel.path, "name": "x", "kind": "training", "gpus": "1"}
    form |= {"urgency": "normal", "when_unfunded": "wait"}
    client = client_of(user)
    plain = text_of(client.post("/jobs/quote", form, headers=PORTUGUESE))
    assert "Nada se sabe de jobs semelhantes: o usual para treinamento." in plain
    work = {"work_parameters": WORK["parameters"], "work_tokens": WORK["tokens"]}
    assert "Pelo que ele computa." in text_of(
        client.post("/jobs/quote", form | work, headers=PORTUGUESE)
    )
