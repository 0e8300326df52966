"""The page on forecasts: features, GPU types and worked tables are what the code gives."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecasting.core import correction, estimate, scoring
from forecasting.core.correction import Errors
from forecasting.core.describing import NAMES
from forecasting.core.hardware import GPUS
from forecasting.core.memory import fits, memory_of
from forecasting.core.physics import estimate_on
from forecasting.core.robust import fit_robust
from forecasting.core.training import FEATURES, TrainingSpec, settle
from forecasting.core.trees import TREES
from forecasting.core.work import work_of

PAGE = (Path(__file__).parents[2] / "docs" / "forecasting.md").read_text(encoding="utf-8")


def table(first: str) -> list[list[str]]:
    """The body of the table whose first heading is `first`."""
    lines = PAGE.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |")) + 2
    body = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        body.append([cell.strip() for cell in line.strip("|").split("|")])
    assert body
    return body


def given(text: str) -> dict[str, Any]:
    """`name=value` pairs; a value that is no number is a name."""
    found: dict[str, Any] = {}
    for name, value in re.findall(r"(\w+)=(\S+)", text.strip("`")):
        number = re.fullmatch(r"[\d.e]+|True|False", value)
        found[name] = ast.literal_eval(value) if number else value
    return found


def jobs() -> Iterator[dict[str, Any]]:
    """The jobs that tables start from, which the page's reader is told in words."""
    yield from (given(text) for text in re.findall(r"<!-- job (.*?) -->", PAGE))


def test_features_and_gpu_types_are_those_of_the_code():
    found = {name.strip("`"): tuple(rest) for name, *rest in table("feature")}
    assert found == FEATURES
    types = {row[0]: row for row in table("type")}
    assert set(types) == set(GPUS)
    for name, gpu in GPUS.items():
        peaks = [f"{peak:g}" if peak else "–" for peak in (gpu.fp32, gpu.half, gpu.fp8, gpu.fp4)]
        links = [gpu.memory_gb, gpu.bandwidth_gbs, gpu.link_gbs, gpu.network_gbs]
        node = gpu.domain if gpu.domain > 8 else gpu.node
        assert types[name][1:] == [gpu.family, *peaks, *(f"{one:g}" for one in (*links, node))]


def test_the_flops_of_a_token():
    base, _ = jobs()
    for _, changed, *cells in table("of a token"):
        work = work_of(settle(TrainingSpec(**base | given(changed))))
        parts = (work.forward, work.backward, work.recomputed, work.other_passes, work.per_token)
        assert cells == [f"{part / 1e9:.2f}" for part in parts]
    assert float(table("of a token")[0][-1]) == round(6 * 8 + 12 * 32 * 4096 * 8192 / 1e9, 2)


def test_the_memory_of_a_gpu():
    _, base = jobs()
    for changed, gpus, *cells, verdict in table("changed"):
        job = settle(TrainingSpec(**base | given(changed)))
        memory = memory_of(job, int(gpus), 1)
        parts = [memory.weights, memory.gradients, memory.optimizer, memory.activations]
        parts += [memory.logits, memory.reserve, memory.total]
        assert cells == [f"{part / 1e9:.2f}" for part in parts]
        assert (verdict == "yes") == fits(job, int(gpus))


def test_the_time_of_jobs():
    for name, text, gpus, *cells in table("job"):
        job = settle(TrainingSpec(**given(text)))
        found = estimate_on(job, int(gpus))
        parts = [found.compute_s, found.waiting_s, found.messages_s, found.launches_s]
        parts += [found.generation_s, found.overhead_s, found.startup_s, found.seconds]
        assert cells == [f"{part:.2f}" for part in parts]
        if "Llama 3" in name:  # 430 of 989 TFLOPS were published
            rate = found.work.per_token * job.tokens / found.seconds / int(gpus)
            assert rate / 1e12 == pytest.approx(430, rel=0.01)


def test_offsets_are_shrunk_by_their_count():
    for text, expected in table("rest of its jobs"):
        rest = np.array([float(one) for one in text.split()])
        count = len(rest)
        assert float(expected) == pytest.approx(rest.sum() / (count + 4))
        # Beside so many rows of another group that the intercept stays at 0.
        others = 100_000
        groups = [np.repeat([0, 1], [count, others])]
        target = np.concatenate([rest, np.zeros(others)])
        fitted = fit_robust(np.zeros((count + others, 0)), groups, target, huber=1e9)
        assert fitted.offsets[0][0] == pytest.approx(float(expected), abs=1e-3)


def test_quantiles_of_errors_count_the_job_itself():
    for text, *expected in table("errors, all as near (w = 1)"):
        errors = np.array([float(one) for one in text.split()])
        found = Errors(np.zeros((len(errors), 1)), errors).quantiles(np.zeros(1), (0.1, 0.9))
        assert ["none" if one is None else f"{one:g}" for one in found] == expected


def test_the_words_about_the_models_hold():
    low, high = np.exp(correction.PRIOR)
    told = [
        f"× {low:.2f} to × {high:.2f}",
        f"{len(NAMES)} figures of the job",
        f"{TREES} boosted trees",
        f"taken (`{correction.METHOD}`)",
        f"fewer than {correction.THIN} jobs",
        f"The version is `{estimate.VERSION}`",
    ]
    plain = re.sub(r"\s+", " ", PAGE)
    assert [words for words in told if words not in plain] == []


def test_the_scores_of_a_range():
    for took, low, middle, high, error, inside in table("took (s)"):
        found = scoring.score(3600, 7200, 10800, int(took))
        losses = (found.loss_p10_ds, found.loss_p50_ds, found.loss_p90_ds)
        assert [low, middle, high] == [f"{loss / 10:.1f}" for loss in losses]
        assert (error, inside) == (
            f"{found.error_per_mille / 10:.1f} %",
            "yes" if found.inside else "no",
        )
