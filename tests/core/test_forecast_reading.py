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
        ("7,5B", 7.5e9),
        ("6.738B", 6.738e9),
        ("0,125", 0.125),
        ("1.234,5M", 1.2345e9),
        ("1,234.5M", 1.2345e9),
        ("1.234.567", 1_234_567),
        ("1,234,567", 1_234_567),
        ("1_000_000", 10**6),
        ("1,5e9", 1.5e9),
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


@pytest.mark.parametrize("written", ["1,2,3", "7_5B", "1,,2", "7,", ",7", "12,34,567", "1.2.3B"])
def test_marks_that_group_nothing_are_refused(written):
    with pytest.raises(SpecError, match="tokens must be a number, such as 7e9"):
        number("tokens", written)


def test_what_may_be_read_in_two_ways_is_refused_unless_only_one_is_whole():
    for written in ("2,048", "1,234B", "1,234e9"):
        with pytest.raises(SpecError, match=r"two ways, '.,...': write \d{4} or .\.\d{3}\."):
            number("tokens", written)
    assert number("sequence_length", "2,048", whole=True) == 2048
    with pytest.raises(SpecError, match="two ways"):  # both are whole
        number("sequence_length", "2,048k", whole=True)
    spec = training_spec(
        {"parameters": "7,5B", "tokens": 1, "sequence_length": "2,048"}, gpu="H100"
    )
    assert (spec.parameters, spec.sequence_length) == (7.5e9, 2048)


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
