"""`manage.py simulate`: its table, its file, and everything that it refuses."""

import json
import re
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
    assert "1 job gets more GPUs than it asks" in told
    assert "fifo: 1 day in" in told
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


def test_bad_rows_of_trace_and_events_are_told_together(tmp_path: Path) -> None:
    path = written(tmp_path, *ROWS, "d,x,1,60,nlp")
    events = written(
        tmp_path, "window,n0009,1,2,", "failure,n0001,5,5,", "failure,n0001,90000,,",
        name="e.csv", head="event,node,from_s,to_s,known_s",
    )  # fmt: skip
    told = StringIO()
    given = ("simulate", str(path), "--nodes", "1x8", "--events", str(events))
    with pytest.raises(CommandError, match="3 rows can't be read: mend them"):
        call_command(*given, stdout=StringIO(), stderr=told)
    assert "t.csv, line 5: submit_time_s is 'x'" in told.getvalue()
    assert "e.csv, line 2: there is no node 'n0009': the fleet has n0001." in told.getvalue()
    assert "e.csv, line 3: to_s is 5, but must be after" in told.getvalue()
    _, said = simulated(path, "--policy", "fifo", "--skip-bad-rows", "--events", str(events))
    assert "1 event that was given is of other days, and left out." in said
    assert "fifo: 1 day in" in said
    none = written(tmp_path, name="n.csv", head="event,node,from_s,to_s")
    assert "it has no events" in refused(path, "--events", str(none))


def test_one_bad_row_is_one_row(tmp_path: Path) -> None:
    path = written(tmp_path, *ROWS, "d,x,1,60,nlp")
    assert "1 row can't be read: mend it, or give --skip-bad-rows." in refused(path)


def test_a_service_that_wants_more_than_there_is_lacks_the_rest(tmp_path: Path) -> None:
    head = "job_id,submit_time_s,gpus,duration_s,group,kind,demand"
    path = written(tmp_path, "s,0,1,86400,nlp,realtime,12", head=head)
    text, said = simulated(path)
    assert "1 real-time service wants more GPUs at times than there are" in said
    assert re.search(r"shortfall GPU-h +96\n", text)


def test_no_file_is_written_over_that_is_read_or_written(tmp_path: Path) -> None:
    path = written(tmp_path, *ROWS)
    events = written(tmp_path, "failure,n0001,5,9,", name="e.csv", head="event,node,from_s,to_s")
    before = events.read_text()
    said = refused(path, "--events", str(events), "--json", str(events))
    assert "is read or written already; name another file" in said
    assert events.read_text() == before
    new = str(tmp_path / "new")
    assert "is read or written already" in refused(path, "--json", new, "--write-trace", new)


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
    assert "that is 6,199,938 GPUs, and at most" in refused(
        written(tmp_path, *ROWS), nodes="99999x62"
    )
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
