"""Sentences that are said again in another language, with the numbers and dates of that one."""

import json
from datetime import UTC, datetime

import pytest
from django.utils import translation

from budgets.refusals import credits, percent
from clusters.saying import clock, in_english, instant, joined, kept, number, say, state, told

AT = datetime(2026, 11, 27, 14, 5, tzinfo=UTC)


def again(text: str, language: str = "pt-br") -> str:
    with translation.override(language):
        return str(told(json.loads(json.dumps(kept(text)))))


def test_a_sentence_is_said_again_with_the_figures_of_the_language():
    said = say("%(share)s of %(parent)s", share=percent(12_345), parent="orlo")
    assert said == "12.345 % of orlo"
    assert again(said) == "12,345 % de orlo"


def test_one_sentence_may_stand_in_another():
    inner = say("%(amount)s credits", amount=credits(4_445_280_000))
    said = joined((say("Say %(what)s.", what=inner), " ", "As typed: 100 %."))
    assert said == "Say 1,234.80 credits. As typed: 100 %."
    assert again(said) == "Diga 1.234,80 créditos. As typed: 100 %."


@pytest.mark.parametrize(
    ("figure", "english", "portuguese"),
    [
        (number(1_234_567), "1,234,567", "1.234.567"),
        (credits(-3_600_000), "-1.00", "-1,00"),
        (credits(18_000), "0.01", "0,01"),
        (credits(17_999), "0.00", "0,00"),
        (instant(AT), "27 Nov 2026 14:05 UTC", "27 Nov 2026 14:05 UTC"),
        (clock(AT), "27 November 2026 14:05", "27 Novembro 2026 14:05"),
        (state("Declined"), "declined", "recusado"),
    ],
)
def test_figures_follow_the_language(figure, english, portuguese):
    said = say("Say %(what)s.", what=figure)
    assert said == f"Say {english}."
    assert again(said).lower() == f"diga {portuguese}.".lower()


def test_what_was_said_in_portuguese_is_english_for_the_api():
    with translation.override("pt-br"):
        said = say("%(share)s of %(parent)s", share=percent(5_000), parent="orlo")
        assert said == "5,000 % de orlo"
        assert in_english(said) == "5.000 % of orlo"


def test_a_percent_sign_of_a_plain_text_is_left_alone():
    assert say("A part can't be below 0 %.") == "A part can't be below 0 %."
    assert again("already %(text)s 100 %") == "already %(text)s 100 %"
