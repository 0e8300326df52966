"""The example files that the README starts from do what it says of them."""

import json
from pathlib import Path

import pytest
from django.core.management import call_command

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
pytestmark = pytest.mark.once


def test_the_scenario_is_planned_best(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    call_command("plan", str(EXAMPLES / "scenario.json"), "--mode", "full", "--out", str(out))
    plan = json.loads(out.read_text())
    assert plan["status"] == "optimal"
    assert {job for row in plan["grid"] for job in row if job} == {
        job["name"] for job in json.loads((EXAMPLES / "scenario.json").read_text())["jobs"]
    }


def test_the_tree_is_ranked(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("fairshare", str(EXAMPLES / "tree.json"))
    factors = json.loads(capsys.readouterr().out)["factors"]
    assert factors == {"platform": 1.0, "science": 0.75, "vision": 0.5, "language": 0.25}


@pytest.mark.slow
@pytest.mark.django_db
def test_the_trace_is_replayed_with_exact_books(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its first jobs, as that takes a second each; the simulations below read all of it."""
    lines = (EXAMPLES / "trace.csv").read_text().splitlines(keepends=True)
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(lines[:16]))
    call_command("replay_trace", str(trace), "--nodes", "4x8", "--days", "1")
    assert "Exact to the GPU-second in 48 of 48 timesteps; 0 entries break" in (
        capsys.readouterr().out
    )


def test_the_trace_is_simulated_under_two_policies(capsys: pytest.CaptureFixture[str]) -> None:
    policies = ["--policy", "fairshare", "--policy", "backfill"]
    call_command("simulate", str(EXAMPLES / "trace.csv"), "--nodes", "4x8", *policies)
    (ended,) = (line for line in capsys.readouterr().out.splitlines() if "jobs ended" in line)
    assert ended.split()[2:] == ["54", "of", "60", "56", "of", "60"]


def test_the_trace_is_simulated_under_the_trees_shares(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(EXAMPLES / "trace.csv"), "--tree", str(EXAMPLES / "tree.json")]
    call_command("simulate", *files, "--nodes", "4x8")
    told = capsys.readouterr().out
    assert "jobs ended" in told
    assert {"language", "science", "vision"} <= set(told.split())
