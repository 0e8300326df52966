"""The bench: its scenarios are what they claim, its figures are right, its tables tell them."""

import argparse
import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import pytest

from allocator.core.check import check, objective, utilization
from allocator.core.plan import Assignment, Plan
from allocator.core.problem import Problem
from allocator.core.scenario import parse_problem
from benchmarks import bench, fairshare, families_report, scale, scenarios
from benchmarks.baselines import fifo, priority_first
from benchmarks.chart import draw
from benchmarks.families import Known, measure, with_files
from benchmarks.fleets import fleet_problem
from benchmarks.planners import Answer, Planner, all_planners, baseline, published_limit
from benchmarks.published import PUBLISHED
from benchmarks.scenarios import FAMILIES, FITTING, candidate, family_problem, fits, fitting
from benchmarks.tables import Table, milliseconds, put_into
from config.launcher import main as launcher
from tests.core.problems import job, problem, service

SVG = "{http://www.w3.org/2000/svg}"
PLAIN = [baseline("fifo", fifo), baseline("plain", priority_first)]


# The bench's own scenarios


@pytest.mark.parametrize("name", FAMILIES)
def test_own_scenarios_are_like_the_published_ones(name: str) -> None:
    known = PUBLISHED[name]
    for seed in range(len(FITTING[name])):
        made = family_problem(name, seed)
        assert (made.gpus, len(made.jobs), made.family) == (known.gpus, known.jobs, name)
        first, plain = fifo(made), priority_first(made)
        assert abs(utilization(made, first) - known.fifo_utilization) <= 0.01
        assert abs(utilization(made, plain) - known.utilization) <= 0.02
        gain = objective(made, plain) / objective(made, first) - 1
        assert abs(gain - known.gain) <= 0.03
        assert fits(made)


def test_the_listed_draws_are_the_ones_the_search_finds() -> None:
    name = "large-mixed"
    assert tuple(islice(fitting(name), 2)) == FITTING[name][:2]
    beyond = family_problem(name, len(FITTING[name]))
    assert fits(beyond)
    assert beyond.name not in {family_problem(name, seed).name for seed in range(3)}


def test_the_same_seed_gives_the_same_scenario_and_another_seed_another() -> None:
    assert family_problem("scale-test", 0) == family_problem("scale-test", 0)
    assert family_problem("scale-test", 0) != family_problem("scale-test", 1)
    assert not fits(candidate("mixed-control", (0, 0)))


def test_in_scale_test_whole_fleet_jobs_never_fit() -> None:
    made = family_problem("scale-test", 0)
    assert sum(job.gpus == 64 for job in made.batch) == 3
    assert all(sum(s.demand[t] for s in made.realtime) > 0 for t in range(24))


def test_scenarios_are_written_as_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scenarios.main([str(tmp_path / "new"), "--seeds", "1"]) == 0
    files = sorted((tmp_path / "new").iterdir())
    assert [file.stem for file in files] == sorted(f"{name}-1" for name in FAMILIES)
    for file in files:
        made = parse_problem(file.read_bytes())
        assert made == family_problem(made.family, 0)
    assert "7 scenarios" in capsys.readouterr().err


def test_a_fleet_with_and_without_budgets_asks_for_as_much() -> None:
    one, other = (fleet_problem(nodes=8, jobs=40, budgets=budgets) for budgets in (True, False))
    assert (len(one.budgets), len(other.budgets)) == (21, 0)
    assert len(one.jobs) == len(other.jobs) == 44
    assert all(job.funded for job in other.jobs)
    assert one == fleet_problem(nodes=8, jobs=40)


# Figures


def test_a_scenarios_figures_by_hand() -> None:
    """Two jobs for one place: FIFO runs the first of worth 8, the plain planner that of 32."""
    made = problem(job("a", 8, 1), job("b", 8, 1, priority=4), horizon=1, family="mixed-control")
    row = measure(made, Known(bound=40, tight=True, best=36), PLAIN, repeats=2)
    plain = row.planners["plain"]
    assert (row.planners["fifo"].value, plain.value) == (8, 32)
    assert (plain.gain, plain.value_of_plain, plain.utilization) == (3, 1, 1)
    assert (plain.of_bound, plain.of_best, plain.broken) == (0.8, 32 / 36, [])
    assert plain.time_of_plain == 1
    assert row.planners["fifo"].time_of_plain == pytest.approx(
        row.planners["fifo"].seconds / plain.seconds
    )


def test_the_lower_bound_counts_and_a_better_plan_is_the_best_known() -> None:
    made = problem(job("a", 8, 1, priority=4), horizon=1, family="mixed-control")
    found = with_files([(made, Known(bound=40, tight=True))], {made.name: 33}, {made.name: 20})
    assert found == [(made, Known(bound=33, tight=True, best=20))]
    prover = Planner("full", lambda p: Answer(priority_first(p), bound=32.0, status="optimal"))
    row = measure(*found[0], [*PLAIN, prover], repeats=1)
    assert (row.bound, row.best) == (32, 32)
    assert row.planners["plain"].of_bound == 1
    assert "optimal" in families_report.proofs([row]).text()


def test_an_illegal_plan_is_told_and_is_no_best_value() -> None:
    made = problem(job("a", 8, 1), horizon=1, family="mixed-control")

    def twice(p: Problem) -> Plan:
        return Plan(p.gpus, p.horizon, (Assignment("a", 0, 8, 0, 1),) * 2)

    row = measure(made, Known(best=1), [*PLAIN, baseline("twice", twice)], repeats=1)
    assert "GPU 0 is held by another job" in row.planners["twice"].broken[0]
    assert row.best == 8


def test_the_published_time_goes_by_the_fleet() -> None:
    assert published_limit(problem(job("a"))) == 0.002
    assert published_limit(problem(job("a"), nodes=(8,) * 8)) == 0.015


def test_figures_asked_for_are_compared_with_what_was_measured() -> None:
    rows = [
        measure(family_problem("mixed-control", seed), Known(bound=1e6, tight=True), _quick(), 1)
        for seed in range(2)
    ]
    floors = {floor.what: floor for floor in families_report.floors(rows)}
    assert floors["every plan legal"].met
    assert not floors["fast: of bound, median"].met
    gain = sorted(row.planners["fast"].gain or 0 for row in rows)
    assert floors["fast: gain, median"].met == (sum(gain) / 2 > 0.548)
    lines = families_report.details(rows).text().splitlines()
    assert lines[3].split()[:2] == ["mixed-control", "published"]
    assert "+54.8 %" in lines[3]
    assert all("2/2" in line for line in lines[4:])


def _quick() -> list[Planner]:
    return [p for p in all_planners() if p.name != "fast 50 ms"] + [
        Planner("fast 50 ms", lambda p: Answer(priority_first(p)))
    ]


# Scale


def test_growth_is_the_exponent_of_gpus_times_jobs() -> None:
    rows = [_row(gpus, jobs, 1e-6 * (gpus * jobs) ** 1.25) for gpus, jobs in
            ((64, 30), (256, 500), (1024, 3000))]  # fmt: skip
    assert scale.growth(rows, lambda row: row.seconds) == pytest.approx(1.25)
    assert scale.to_json(rows)["growth"] == {"no budgets": pytest.approx(1.25)}


def test_growth_beyond_linear_is_told() -> None:
    for exponent, met in ((1.0, True), (1.3, False)):
        rows = [_row(gpus, jobs, (gpus * jobs) ** exponent) for gpus, jobs in ((64, 9), (512, 99))]
        (floor,) = [f for f in scale.floors(rows) if f.what == "construction: growth"]
        assert (floor.met, floor.measured) == (met, f"{exponent:.2f}")


def test_a_fleet_is_measured() -> None:
    sizes = (scale.Size(8, 20, 4, limit=1e-9), scale.Size(8, 40, 4, limit=1e9))
    rows = scale.measure_all(sizes, repeats=1, memory=False)
    assert [(row.gpus, row.budgets) for row in rows] == [
        (8, False), (14, False), (64, False), (64, False), (64, True), (64, True),
    ]  # fmt: skip
    assert all(row.broken == [] and row.seconds > 0 and row.again > 0 for row in rows)
    times = [floor for floor in scale.floors(rows) if floor.what.endswith("new problem")]
    assert [floor.met for floor in times][2:] == [False, True, False, True]
    assert "64 GPUs x 40 jobs" in scale.tables(rows)[0].text()


def test_memory_is_of_the_process_and_of_the_solve() -> None:
    found = scale._memory_of(scale.Size(8, 30, 6, 1), True)
    if found is None:
        pytest.skip("only Linux tells it")
    peak, solve = found
    assert 10 << 20 < peak < 2 << 30
    assert 0 <= solve < peak


def _row(gpus: int, jobs: int, seconds: float) -> scale.Measured:
    return scale.Measured(
        name="", gpus=gpus, jobs=jobs, budgets=False, limit=1, seconds=seconds, again=seconds,
        plain_seconds=seconds, value_of_plain=1, utilization=1, plain_utilization=1, broken=[],
        peak_memory=None, solve_memory=None,
    )  # fmt: skip


# Fair share


def test_fair_share_is_measured_and_held_to_its_time_for_ten_thousand_budgets() -> None:
    shapes = [fairshare.Shape("small", 40, 3), fairshare.Shape("large", fairshare.LARGE, 10)]
    rows = fairshare.measure_all(repeats=1, shapes=shapes)
    assert [(row.nodes, row.leaves) for row in rows] == [(40, 27), (10_000, 9000)]
    assert all(row.seconds > 0 for row in rows)
    (floor,) = fairshare.floors([rows[0], replace(rows[1], seconds=0.021)])
    assert (floor.asked, floor.measured, floor.met) == ("≤ 20", "21.0", False)
    (table,) = fairshare.tables(rows)
    assert [row[:3] for row in table.rows] == [
        ("small", "40", "27"), ("large", "10,000", "9,000"),
    ]  # fmt: skip


# What is printed


def test_a_table_for_a_terminal_and_for_a_page() -> None:
    table = Table("Times", ("what", "ms"), [("a", "1.00"), ("longer", "12.5")])
    assert table.text().splitlines() == [
        "Times", "", "what      ms", "a       1.00", "longer  12.5",
    ]  # fmt: skip
    assert table.markdown().splitlines()[2:] == [
        "| what | ms |", "| :-- | --: |", "| a | 1.00 |", "| longer | 12.5 |",
    ]  # fmt: skip
    assert [milliseconds(s) for s in (0.00004, 0.0123, 1.5)] == ["0.04", "12.3", "1500"]


def test_tables_are_put_between_a_pages_marks() -> None:
    page = "# Page\n\n<!-- bench scale -->\n\nold\n\n<!-- /bench scale -->\n\nend\n"
    table = Table("New", ("a",), [("1",)])
    assert put_into(page, "scale", [table]) == page.replace("old", table.markdown())
    assert put_into(page, "rolling", [table]) == page


def test_the_bench_prints_writes_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, picture = tmp_path / "bench.json", tmp_path / "bench.svg"
    given = ["--own", "--seeds", "1", "--repeats", "1", "--family", "mixed-control"]
    whole, part = tmp_path / "whole.md", tmp_path / "part.md"
    whole.write_text("<!-- bench families -->\n<!-- /bench families -->\n")
    part.write_text("<!-- bench families 1 -->\n<!-- /bench families 1 -->\n")
    pages = ["--page", str(whole), "--page", str(part)]
    assert bench.main(["families", *given, *pages, "--markdown", "--json", str(data)]) == 0
    printed = capsys.readouterr().out
    assert [page.read_text().count("| mixed-control |") for page in (whole, part)] == [2, 1]
    assert "| mixed-control | published |" in printed
    document = json.loads(data.read_text())
    assert document["machine"]["cores"] >= 1
    (row,) = document["families"]
    assert row["planners"]["fast"]["broken"] == []
    assert {floor["what"] for floor in document["floors"]} >= {"fast: gain, median"}
    assert bench.main(["plot", str(data), "--out", str(picture)]) == 0
    _assert_picture(picture.read_text(), bars=4 + 5)


def _assert_picture(svg: str, bars: int) -> None:
    root = ElementTree.fromstring(svg)
    assert root.get("aria-labelledby") == "title desc"
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert desc is not None
    assert "mixed-control: published +54.8%" in (desc.text or "")
    assert "Reconstructions" in svg
    drawn = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    assert len(drawn) == bars


def test_full_mode_measured_apart_is_told_with_its_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = family_problem("oversubscribed", 0)
    value = 1.01 * objective(made, priority_first(made))
    given, data = tmp_path / "full.json", tmp_path / "bench.json"
    row = {"name": made.name, "value": value, "bound": 1.1 * value, "seconds": 9, "legal": True}
    given.write_text(json.dumps([row | {"status": "feasible", "gap": 0.1}]))
    options = ["--own", "--seeds", "1", "--repeats", "1", "--family", "oversubscribed"]
    assert bench.main(["families", *options, "--full", str(given), "--json", str(data)]) == 0
    assert "feasible" in capsys.readouterr().out
    (found,) = json.loads(data.read_text())["families"]
    full, plain = found["planners"]["full"], found["planners"]["plain"]
    assert full["value_of_plain"] == pytest.approx(1.01)
    assert found["bound"] == pytest.approx(1.1 * value)
    assert full["of_bound"] == pytest.approx(1 / 1.1)
    assert plain["of_best"] == pytest.approx(plain["value"] / max(value, found["best"]))
    picture = ElementTree.fromstring(draw([found]))
    drawn = [t.text or "" for t in picture.iter(f"{SVG}title") if (t.text or "")[:5] == "full:"]
    assert len(drawn) == 1


def test_full_mode_measured_on_other_scenarios_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "full.json"
    row = {"name": "x", "value": 1, "bound": 1, "seconds": 1, "legal": True, "status": "optimal"}
    given.write_text(json.dumps([row]))
    assert bench.main(["families", "--own", "--seeds", "1", "--full", str(given)]) == 2
    assert "has no row of mixed-control-own-64.7" in capsys.readouterr().err


def test_a_value_above_its_bound_is_told() -> None:
    made = problem(job("a", 8, 1), horizon=1, family="mixed-control")
    row = measure(made, Known(bound=7), [*PLAIN, *_quick()[4:]], repeats=1)
    floors = {floor.what: floor for floor in families_report.floors([row])}
    assert not floors["no value above its bound"].met


def test_a_picture_shows_full_mode_where_it_was_measured() -> None:
    figures = {"gain": 0.5, "utilization": 0.7}
    planners = {name: figures for name in ("fifo", "plain", "construction", "fast", "full")}
    rows = [{"family": name, "planners": planners} for name in FAMILIES]
    root = ElementTree.fromstring(draw(rows))
    labels = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert labels.count("full: 50.0%") == labels.count("full: 70.0%") == 7
    wide = float(root.get("width", "0"))
    assert all(float(text.get("x", "0")) < wide for text in root.iter(f"{SVG}text"))


def test_full_mode_is_held_to_its_time_and_its_proofs() -> None:
    def prover(status: str) -> Planner:
        return Planner(
            "full", lambda p: Answer(priority_first(p), None, 1e6, status), lambda p: 60, once=True
        )

    rows = [
        measure(family_problem("mixed-control", n), Known(), [*_quick(), prover(status)], 1)
        for n, status in enumerate(("optimal", "optimal", "feasible"))
    ]
    floors = {floor.what: floor for floor in families_report.floors(rows)}
    assert (floors["full: proven optimal"].measured, floors["full: proven optimal"].met) == (
        "2 of 3", True,
    )  # fmt: skip
    assert floors["full: seconds taken, most"].met


def test_every_option_is_in_the_docs() -> None:
    page = (Path(bench.__file__).parents[1] / "docs" / "benchmarks.md").read_text()
    parser = argparse.ArgumentParser()
    bench._measuring(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    missing = {o for o in options - {"-h", "--help"} if f"`{o}" not in page and f"{o} " not in page}
    assert missing == set()
    assert all(f"./run bench {name}" in page for name in bench.COMMANDS if name != "all")


def test_run_hands_its_arguments_to_the_bench() -> None:
    options, rest = launcher._parse(["bench", "families", "--json", "x", "--help"])
    assert (options.command, rest) == ("bench", ["families", "--json", "x", "--help"])


def test_a_file_without_families_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "empty.json"
    file.write_text("{}")
    with pytest.raises(SystemExit) as stop:
        bench.main(["plot", str(file)])
    assert stop.value.code == 2
    assert "holds no families" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("other-1.json", None, "holds no scenario of a published family"),
        ("mixed-control-1.json", "{", "mixed-control-1.json: the file is not valid JSON"),
    ],
)
def test_scenarios_that_are_none_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, told: str
) -> None:
    small = json.dumps(problem(job("a")).to_dict())
    (tmp_path / name).write_text(text or small)
    assert bench.main(["families", "--scenarios", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert told in err
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    "given", [["--repeats", "0"], ["nonsense"], ["families", "--family", "x"],
              ["--scenarios", "/nowhere"], ["--weeks", "x"], ["--bounds", __file__],
              ["--best", "/nowhere"], ["--json", "/nowhere/x.json"], ["--page", "/nowhere"],
              ["--full-seconds", "nan"], ["--full", __file__], ["plot"]],
)  # fmt: skip
def test_wrong_arguments_are_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        bench.main(given)
    assert stop.value.code == 2


def test_the_baselines_of_the_bench_are_legal_where_real_time_falls_short() -> None:
    made = problem(service("s", [0, 8, 8, 0], swap_cap=2), job("a", 2, 4), job("b", 4, 1))
    for planner in all_planners()[:4]:
        assert check(made, planner.run(made).plan) == ()
