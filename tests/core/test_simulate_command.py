"""`manage.py simulate`: its table, its file, and everything that it refuses."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

HEAD = "job_id,submit_time_s,gpus,duration_s,group"
ROWS = ("a,0,4,7200,nlp", "b,60,8,3600,vision", "c,120,3,600,nlp")
TREE: dict[str, list[dict[str, Any]]] = {
    "tree": [
        {"name": "org", "parent": None, "shares": 1, "usage": 0},
        {"name": "nlp", "parent": "org", "shares": 60, "usage": 0},
        {"name": "vision", "parent": "org", "shares": 20, "usage": 0},
    ]
}


def written(folder: Path, *rows: str, name: str = "t.csv", head: str = HEAD) -> Path:
    path = folder / name
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def simulated(path: Path | str, *options: str, nodes: str = "1x8") -> tuple[str, str]:
    out, told = StringIO(), StringIO()
    call_command("simulate", str(path), "--nodes", nodes, *options, stdout=out, stderr=told)
    return out.getvalue(), told.getvalue()


def refused(path: Path | str, *options: str, nodes: str = "1x8") -> str:
    with pytest.raises(CommandError) as refusal:
        simulated(path, *options, nodes=nodes)
    assert refusal.value.returncode == 2
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_policies_stand_side_by_side_and_figures_are_written(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    path = written(tmp_path, *ROWS)
    text, told = simulated(path, "--policy", "fifo", "--policy", "fairshare", "--json", str(out))
    assert text.splitlines()[0].split() == ["fifo", "fairshare"]
    assert "jobs ended" in text
    assert "1 of 3 jobs get more GPUs than they ask" in told
    assert "fifo: 1 days in" in told
    found = json.loads(out.read_text())
    assert [one["policy"] for one in found["policies"]] == ["fifo", "fairshare"]
    assert (found["gpus"], found["seconds"]) == (8, 86400)
    fifo = found["policies"][0]
    assert fifo["completed"] == 3
    held = sum(fifo[f"{kind}_gpu_seconds"] for kind in ("funded", "unfunded"))
    assert held == 4 * 7200 + 8 * 3600 + 4 * 600
    assert fifo["occupancy"] == held / (8 * 86400)


def test_shares_come_from_the_tree_file(tmp_path: Path) -> None:
    tree, out = tmp_path / "tree.json", tmp_path / "out.json"
    tree.write_text(json.dumps(TREE))
    options = ("--tree", str(tree), "--policy", "fifo", "--json", str(out))
    simulated(written(tmp_path, *ROWS), *options)
    (policy,) = json.loads(out.read_text())["policies"]
    entitled = {one["path"]: one["entitled_gpu_seconds"] for one in policy["budgets"]}
    # 60 and 20 are parts of what they add up to.
    assert entitled == {"org": 8 * 86400, "nlp": 6 * 86400, "vision": 2 * 86400}


def test_the_trace_that_comes_with_the_project_needs_no_file() -> None:
    given = ("--days", "1", "--policy", "backfill", "--debug-jobs", "10", "--groups", "3")
    text, _ = simulated("made", *given)
    assert "wait debug" in text
    assert "group-03" in text
    assert "group-04" not in text


def test_standard_workload_format_is_known_by_its_name(tmp_path: Path) -> None:
    line = "1 0 5 3600 8 -1 -1 8 7200 -1 1 3 2 -1 1 -1 -1 -1"
    path = written(tmp_path, line, name="t.swf", head="; Version: 2.2")
    assert "group-2" in simulated(path, "--policy", "fifo")[0]


def test_bad_rows_are_named_one_by_one_and_may_be_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, *ROWS, "d,x,1,60,nlp", "e,0,0.5,60,nlp")
    told = StringIO()
    with pytest.raises(CommandError, match="2 rows can't be read: mend them, or give --skip-bad"):
        call_command("simulate", str(path), "--nodes", "1x8", stdout=StringIO(), stderr=told)
    assert "t.csv, line 5: submit_time_s is 'x'" in told.getvalue()
    assert "t.csv, line 6: gpus is '0.5'" in told.getvalue()
    text, _ = simulated(path, "--policy", "fifo", "--skip-bad-rows")
    assert "3 of 3" in text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--days", "0"), "--days is 0, but must be 1 to 366"),
        (("--start-day", "-1"), "--start-day is -1"),
        (("--start-day", "9"), "the trace has days 0 to 0"),
        (("--seed", "-1"), "--seed is -1"),
        (("--debug-jobs", "-1"), "--debug-jobs is -1"),
        (("--groups", "0"), "--groups is 0, but must be 1 to 100"),
        (("--json", "/no/such/place/x"), "no such directory"),
        (("--tree", "/no/such/tree.json"), "No such file"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, options: tuple[str, str], sentence: str) -> None:
    assert sentence in refused(written(tmp_path, *ROWS), *options)


def test_bad_files_are_named(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.csv")
    assert "it has no jobs" in refused(written(tmp_path))
    assert "has no column group" in refused(
        written(tmp_path, "a,0,1,60", head="job_id,submit_time_s,gpus,duration_s")
    )
    binary = tmp_path / "binary.csv"
    binary.write_bytes(bytes(range(128, 256)))
    assert "no text in UTF-8" in refused(binary)
    assert "--nodes '56': give NODESxGPUS" in refused(written(tmp_path, *ROWS), nodes="56")
    assert "job 'b' needs 8 GPUs in one block" in refused(written(tmp_path, *ROWS), nodes="1x4")


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        ({"tree": TREE["tree"][:2]}, "group 'vision' is no leaf of the tree"),
        ({"tree": [*TREE["tree"], {**TREE["tree"][1], "name": "x", "shares": "parent"}]},
         "shares must be a number to simulate with"),
        ({"tree": [*TREE["tree"], {**TREE["tree"][1], "name": "x", "parent": "y"}]},
         "there is no node 'y'"),
        ({"trees": []}, 'one field, "tree"'),
    ],
)  # fmt: skip
def test_a_tree_that_does_not_fit_is_named(
    tmp_path: Path, tree: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(tree))
    assert sentence in refused(written(tmp_path, *ROWS), "--tree", str(path))
