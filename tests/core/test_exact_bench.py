"""The bench of full mode: its figures are right, and three models of a problem agree."""

import json
from pathlib import Path

import pytest

from benchmarks import full
from benchmarks.formulations import MODELS
from benchmarks.full import Row, measure, medians
from benchmarks.scenarios import family_problem


def test_a_scenario_is_measured_and_told() -> None:
    problem = family_problem("mixed-control", 1)
    row = measure(problem, 1e6, limit=20, workers=1)
    assert row.legal
    assert row.status == "optimal"
    assert row.fast <= row.value <= row.bound
    assert row.of_known == pytest.approx(row.value / 1e6)
    cells = full.line(row)
    assert (cells[0], cells[1], cells[2]) == (problem.name, "yes", "optimal")


def test_medians_are_by_family() -> None:
    rows = [
        Row(f"s{i}", "f", True, status, 90.0, bound, 1.0, 45.0, 100.0)
        for i, (status, bound) in enumerate(
            [("optimal", 90.0), ("feasible", 100.0), ("optimal", 90.0)]
        )
    ]
    table = medians(rows)
    assert table.rows == [
        ("f", "3/3", "2/3", "0.00 %", "10.00 %", "90.0 %", "50.0 %", "1.0", "1.0")
    ]


def test_three_models_agree_on_a_small_problem() -> None:
    problem = family_problem("realtime-contention", 0)
    found = {name: model(problem, 30.0, 1) for name, model in MODELS.items()}
    assert all(solved.proven for solved in found.values())
    values = [solved.value for solved in found.values() if solved.value is not None]
    assert values == pytest.approx([values[0]] * 2, abs=1e-2)
    for solved in found.values():
        assert solved.bound is not None
        assert solved.bound >= values[0] - 1e-2


def test_the_command_writes_figures_and_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, bounds = tmp_path / "full.json", tmp_path / "bounds.json"
    arguments = ["--limit", "5", "--only", "mixed-control-1", "--seeds", "2"]
    assert full.main([*arguments, "--json", str(figures), "--bounds", str(bounds)]) == 0
    rows = json.loads(figures.read_text())
    assert rows
    assert json.loads(bounds.read_text()) == {row["name"]: row["bound"] for row in rows}
    assert rows[0]["name"] in capsys.readouterr().out
