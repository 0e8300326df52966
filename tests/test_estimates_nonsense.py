"""What nobody means as a job: a sentence, over the API, by the command and on the form."""

import json
from html import unescape

import pytest
from django.core.management import CommandError, call_command

from tests.pages_world import client_of, text_of
from tests.test_estimates import ADDRESS, asked, body
from tests.test_estimates import place as place

pytestmark = pytest.mark.django_db
LONG = "x" * 5000
FORM = {"name": "x", "kind": "training", "gpus": "8", "urgency": "normal", "when_unfunded": "wait"}


def quoted(place, language="en", **more):
    """The text of the live quote."""
    form = {"budget": place.petrel.path, **FORM, "work_tokens": "1B", **more}
    client = client_of(place.user)
    answer = client.post("/jobs/quote", form, headers={"accept-language": language})
    assert answer.status_code == 200
    return unescape(text_of(answer))


def refused(path):
    with pytest.raises(CommandError) as error:
        call_command("estimate", str(path))
    assert error.value.returncode == 2
    return str(error.value)


# --- The command ----------------------------------------------------------------------------------


def test_a_file_may_begin_as_windows_writes_it(place, tmp_path, capsys):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(body(place)), encoding="utf-8-sig")
    call_command("estimate", str(path))
    assert capsys.readouterr().out.startswith("GPUs")


def test_what_never_ends_is_no_folder_nor_file_or_nests_for_ever_is_refused(place, tmp_path):
    assert refused("/dev/zero") == (
        "/dev/zero has more than 1,000,000 bytes: a job takes a few hundred."
    )
    assert refused(tmp_path) == f"{tmp_path} can't be read: Is a directory."
    none = tmp_path / "none.json"
    assert refused(none) == f"{none} can't be read: No such file or directory."
    none.write_text("[" * 100_000)
    assert refused(none) == f"{none} is nested too deep: keep it under 100 levels."
    none.write_bytes(b"\xff\xfe")
    assert "can't be read as JSON" in refused(none)


# --- The API --------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_gets_a_problem_and_no_page(place):
    send = {"content_type": "application/json"}
    for size in (1_000_001, 3_000_000):  # Django itself refuses the latter
        answer = client_of(place.user).post(ADDRESS, " " * size, **send)
        assert (answer.status_code, answer["content-type"]) == (413, "application/problem+json")
        assert answer.json()["detail"] == "Send at most 1,000,000 bytes of JSON."


@pytest.mark.parametrize(
    "more",
    [
        *({name: LONG} for name in ("kind", "urgency", "when_unfunded")),
        {"kind": "realtime", "gpus": None, "work": None, "time_zone": LONG, "profile": [1] * 24},
    ],
)
def test_a_refusal_repeats_no_more_than_a_few_characters(place, more):
    answer = asked(place, **more)
    assert answer.status_code == 400
    assert LONG[:40] in answer.json()["detail"]
    assert LONG[:41] not in answer.content.decode()


# --- The form -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("language", "typed"), [("pt-BR", "7,5B"), ("en", "7.5B"), ("en", "7,5B")])
def test_decimals_are_read_as_either_language_writes_them(place, language, typed):
    plain = quoted(place, language, work_parameters="7500000000")
    assert quoted(place, language, work_parameters=typed) == plain
    assert quoted(place, language, work_parameters="75B") != plain
    assert "two ways" in quoted(place, language, work_parameters="1,234B")


def test_a_form_half_typed_tells_what_is_missing_or_wrong(place):
    for typed in ("", "7", "7.", "-", "1e", "{", "NaN", "1e400", "9" * 40, "\x00", "\u0663", LONG):
        for name in ("work_parameters", "work_tokens", "work_sequence_length", "gpus", "work"):
            assert quoted(place, **{"work_parameters": "7B", name: typed})
