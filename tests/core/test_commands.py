"""`plan` and `fairshare`: a file in, a file out; bad input is one line, exit 2, nothing written."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from allocator.core import exact
from allocator.core.check import check
from allocator.core.plan import Plan
from allocator.management.commands import plan
from benchmarks.scenarios import family_problem

ROOT = Path(__file__).parents[2]
TREE = {
    "tree": [
        {"name": "org", "parent": None, "shares": 1, "usage": 0},
        {"name": "a", "parent": "org", "shares": 60, "usage": 30},
        {"name": "b", "parent": "org", "shares": 40, "usage": 70},
        {"name": "c", "parent": "org", "shares": 0, "usage": 0},
    ]
}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(family_problem("mixed-control", 1).to_dict()))
    return file


def run(*args: object, **options: Any) -> tuple[str, str]:
    """What the command writes to its output and to its error output."""
    out, err = io.StringIO(), io.StringIO()
    call_command(*map(str, args), stdout=out, stderr=err, **options)
    return out.getvalue(), err.getvalue()


def refused(*args: object) -> str:
    with pytest.raises(CommandError) as error:
        run(*args)
    assert error.value.returncode == 2
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_plan_is_written_whole_and_summed_up(scenario: Path, tmp_path: Path) -> None:
    out, _ = run("plan", scenario, "--out", tmp_path / "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    made = family_problem("mixed-control", 1)
    assert (plan["scenario"], plan["mode"], plan["status"]) == (made.name, "fast", "heuristic")
    assert check(made, Plan.from_grid(made, plan["grid"])) == ()
    for word in ("objective", "bound", "utilization", "jobs placed", "seconds", "heuristic"):
        assert word in out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["plan.json", "scenario.json"]


def test_without_a_file_the_plan_goes_to_the_output_and_the_summary_does_not(
    scenario: Path,
) -> None:
    out, err = run("plan", scenario)
    assert json.loads(out)["scenario"] == family_problem("mixed-control", 1).name
    assert "objective" in err


def test_the_same_seed_writes_the_same_grid(scenario: Path) -> None:
    one, other = (json.loads(run("plan", scenario, "--seed", "7")[0]) for _ in range(2))
    assert one["grid"] == other["grid"]


def test_full_mode_writes_a_bound(scenario: Path) -> None:
    out, _ = run("plan", scenario, "--mode", "full", "--time-limit", "5")
    plan = json.loads(out)
    assert plan["mode"] == "full"
    assert plan["bound"] is None or plan["bound"] >= plan["objective"] - 1e-6


def test_fairshare_prints_six_decimals(tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(TREE))
    out, _ = run("fairshare", file)
    assert out.strip() == '{"factors": {"a": 1.000000, "b": 0.666667, "c": 0.333333}}'
    assert json.loads(out)["factors"]["a"] == 1


@pytest.mark.parametrize("command", ["plan", "fairshare"])
def test_files_that_cannot_be_read_get_one_line(command: str, tmp_path: Path) -> None:
    assert "No such file" in refused(command, tmp_path / "absent.json")
    assert "Is a directory" in refused(command, tmp_path)
    file = tmp_path / "bad.json"
    for content, says in (
        (b"not json", "not valid JSON"),
        (b"\x00\xff" * 9, "not valid JSON"),
        (b"[" + b"1," * 2_000_000 + b"1]", "must be an object"),
        (b"[" + b"1," * 5_000_000 + b"1]", "has more than the 8 MB that it may have"),
        (b'{"a": 1}', "{"),
    ):
        file.write_bytes(content)
        message = refused(command, file)
        assert says in message or command == "fairshare" or "not a field" in message
    assert [item.name for item in tmp_path.iterdir()] == ["bad.json"]


def test_bad_scenarios_write_nothing(scenario: Path, tmp_path: Path) -> None:
    good = json.loads(scenario.read_text())
    for change, says in (
        ({"horizon": 65}, "at most 64"),
        ({"colour": 1}, "not a field"),
        ({"nodes": [{"name": "n0", "gpus": -8}]}, "at least 1"),
        ({"nodes": [{"name": "n0", "gpus": 1}]}, "at most the fleet's 1"),
    ):
        scenario.write_text(json.dumps(good | change))
        assert says in refused("plan", scenario, "--out", tmp_path / "plan.json")
        assert not (tmp_path / "plan.json").exists()


def test_an_output_that_cannot_be_written_is_refused_before_planning(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no such directory" in refused("plan", scenario, "--out", tmp_path / "no" / "p.json")
    assert "is a directory" in refused("plan", scenario, "--out", tmp_path)
    assert "File name too long" in refused("plan", scenario, "--out", tmp_path / ("x" * 300))
    before = scenario.read_bytes()
    (tmp_path / "link.json").symlink_to(scenario)
    for same in (scenario, tmp_path / "link.json"):
        assert "is what is read" in refused("plan", scenario, "--out", same)
    assert scenario.read_bytes() == before
    (tmp_path / "link.json").unlink()
    monkeypatch.setattr(plan, "solve", lambda *args, **options: pytest.fail("it planned first"))
    assert "No such file" in refused("plan", scenario, "--out", "/proc/x.json")
    assert [file.name for file in tmp_path.iterdir()] == ["scenario.json"]


def test_an_output_stays_what_it_is(scenario: Path, tmp_path: Path) -> None:
    """A link is followed, a file keeps who may read it, a device is written to."""
    private, link = tmp_path / "private.json", tmp_path / "link.json"
    private.touch(mode=0o600)
    link.symlink_to(private)
    run("plan", scenario, "--out", link)
    assert link.is_symlink()
    assert json.loads(private.read_text())["mode"] == "fast"
    assert private.stat().st_mode & 0o777 == 0o600
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    run("plan", scenario, "--out", pipe)
    assert json.loads(reader.communicate(timeout=60)[0])["mode"] == "fast"
    assert pipe.is_fifo()


def test_no_more_of_a_file_is_read_than_may_be() -> None:
    assert "more than the 8 MB" in refused("plan", "/dev/zero")


def test_a_name_that_would_forge_a_line_is_shown_as_text(scenario: Path, tmp_path: Path) -> None:
    good = json.loads(scenario.read_text())
    scenario.write_text(json.dumps(good | {"name": "a\nstatus  \x1b[31mbad"}))
    out, _ = run("plan", scenario, "--out", tmp_path / "plan.json")
    assert out.splitlines()[0].startswith("scenario     'a\\nstatus  \\x1b[31mbad': 8 GPUs")
    assert "\x1b" not in out


def test_what_a_failed_solver_said_is_told(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "priced_bound", lambda *args: 1 / 0)
    out, _ = run("plan", scenario, "--mode", "full", "--out", tmp_path / "plan.json")
    assert "solver_failed (full), legal; fast's plan was kept: 'ZeroDivisionError" in out


@pytest.mark.parametrize("limit", ["-1", "soon", "nan", "inf"])
def test_a_bad_time_limit_is_refused(scenario: Path, limit: str) -> None:
    with pytest.raises(CommandError, match="must be 0 to 86400 seconds"):
        run("plan", scenario, f"--time-limit={limit}")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--seed", "-1"), ("--seed", "2147483648"), ("--seed", "x"), ("--workers", "0")],
)
def test_a_seed_or_number_of_workers_out_of_range_is_refused(
    scenario: Path, option: str, value: str
) -> None:
    with pytest.raises(CommandError, match=r"must be a whole number from \d+ to \d+, not"):
        run("plan", scenario, f"{option}={value}")


def test_from_the_shell_bad_input_is_one_line_and_exit_2(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "plan", str(tmp_path / "absent.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("command", ["plan", "fairshare"])
def test_help_shows_an_example(command: str) -> None:
    words = [sys.executable, "manage.py", command, "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert f"manage.py {command}" in done.stdout.split("example:")[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "F", "--mode", "odd"],
        ["plan", "F", "--bogus"],
        ["fairshare"],
        ["replay_trace"],
        ["burn_report"],
        ["reconcile", "--bogus"],
        ["demo", "--bogus"],
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "--help" in done.stderr
    assert not done.stdout
