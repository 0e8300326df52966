"""What a job computes, as people write it."""

import pytest

from forecasting.core.kinds import KINDS
from forecasting.core.reading import number, training_spec
from forecasting.core.training import SpecError


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("7B", 7e9),
        ("1.5T", 1.5e12),
        ("70 b", 7e10),
        ("2,048", 2048),
        ("32k", 32_000),
        ("125M", 1.25e8),
        ("1e9", 1e9),
        (3, 3),
        (0.5, 0.5),
    ],
)
def test_numbers_are_read_with_their_units(written, read):
    assert number("tokens", written) == read


@pytest.mark.parametrize(
    "written", ["", "B", "-7", "nan", "inf", "7BB", "1e99999", True, None, [7], {"n": 1}, "\u0667"]
)
def test_what_is_no_number_is_refused(written):
    with pytest.raises(SpecError, match="tokens must be a"):
        number("tokens", written)


def test_null_is_not_given_and_the_works_own_type_wins():
    work = {"parameters": "7B", "tokens": "1B", "layers": None, "gpu_type": "A100"}
    spec = training_spec(work, gpu="H100", gpus=8, project="orlo/science")
    assert (spec.gpu, spec.gpus, spec.layers, spec.project) == ("A100", 8, None, "orlo/science")
    assert spec.parameters == 7e9


def test_whole_features_stay_whole():
    spec = training_spec({"parameters": 7e9, "samples": 10, "layers": "32"}, gpu="H100")
    assert spec.layers == 32
    assert isinstance(spec.layers, int)


def test_without_a_type_or_with_a_long_name_one_sentence_says_so():
    with pytest.raises(SpecError, match="which type of GPU"):
        training_spec({"parameters": 7e9, "tokens": 1})
    with pytest.raises(SpecError, match="at most 100 characters"):
        training_spec({"parameters": 7e9, "tokens": 1, "model": "m" * 101}, gpu="H100")


def test_every_kind_has_the_same_shape():
    work = {"training": {"parameters": "7B", "tokens": "1B"}}
    for name, kind in KINDS.items():
        if name in work:
            spec = kind.read(work[name], gpu="H100", gpus=8)
            assert kind.variant(spec)
            assert kind.least(spec) in kind.fitting(spec, 1024)
            assert len(kind.describe(spec, 8).features)


def test_a_name_without_end_is_refused_as_any_other():
    """Likeness is looked for among its first letters only: the whole would take for ever."""
    with pytest.raises(SpecError, match="There is no feature 'parameters") as refused:
        training_spec({"parameters" * 100_000: 1}, gpu="H100")
    assert len(str(refused.value)) < 300
