"""The ledger's commands, as people and scripts meet them."""

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from budgets.models import Budget, Period
from ledger import reports
from tests.factories import HOUR, T0, make_job, make_nodes, make_period, make_pool, make_run
from tests.ledger_world import CREDIT, close, give, log_gpus
from workloads.models import Holding

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def period(tree: dict[str, Budget]) -> Period:
    """Two closed timesteps: petrel on 2 of 4 GPUs, parked for 100 seconds."""
    period = make_period(time_zone="America/New_York")
    petrel = tree["orlo/science/petrel"]
    give(petrel, 1500, period)
    (node,) = make_nodes(make_pool("a100"), gpus=4)
    log_gpus(node, T0, held=0b11)
    run = make_run(make_job(petrel), {node: 0b11})
    close(2, parked={(run.pk, T0): 100})
    return period


def run_command(*args: str) -> tuple[int, str]:
    """Return a command's exit status and what it printed."""
    out = io.StringIO()
    try:
        call_command(*args, stdout=out)
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue()
    except CommandError as error:
        return error.returncode, str(error)
    return 0, out.getvalue()


def test_reconcile_prints_a_table_and_clean(period: Period) -> None:
    status, text = run_command("reconcile")
    lines = text.splitlines()
    assert status == 0
    assert lines[0] == (
        "GPU-seconds, 2026-10-01T00:00:00Z to 2026-10-01T01:00:00Z, 2 closed timesteps"
    )
    assert lines[1].split()[0] == "pool"
    assert lines[3].split() == ["a100", "7,200", "0", "7,200", "0", "0", "14,400", "0"]
    assert lines[-1] == "clean"


def test_reconcile_can_show_days_on_the_period_s_clocks(period: Period) -> None:
    close(10, since=T0 + HOUR)  # midnight in New York is at 04:00 UTC
    status, text = run_command("reconcile", "--days", "--from", "2026-09-30", "--to", "2026-10-02")
    assert status == 0
    days = [line.split()[1] for line in text.splitlines() if line.startswith("a100")]
    assert days == ["2026-09-30", "2026-10-01"]


def test_reconcile_names_each_difference_and_exits_with_1(period: Period) -> None:
    Holding.objects.update(mask=0b111)
    status, text = run_command("reconcile", "--to", "2026-10-01T00:30:00Z")
    assert status == 1
    assert "charge: run" in text
    assert text.splitlines()[-1] == "1 differences"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--from", "yesterday"), "neither a date"),
        (("--from", "2026-13-01"), "neither a date"),
        (("--from", "2026-10-01T00:00:00"), "no time zone"),
        (("--from", "2026-10-02", "--to", "2026-10-01"), "must come before"),
    ],
)
def test_reconcile_refuses_bad_dates_in_one_line(
    period: Period, arguments: tuple[str, ...], sentence: str
) -> None:
    status, text = run_command("reconcile", *arguments)
    assert status == 2
    assert sentence in text
    assert "\n" not in text


def test_reconcile_needs_a_closed_timestep() -> None:
    assert run_command("reconcile") == (
        2,
        "No timestep is closed yet: there is nothing to reconcile.",
    )


def report(*arguments: str) -> tuple[int, str]:
    return run_command("burn_report", "orlo", "--now", "2026-10-01T01:00:00Z", *arguments)


def test_the_burn_report_is_a_table_of_credits_and_gpu_hours(period: Period) -> None:
    status, text = report("--by", "leaf")
    lines = text.splitlines()
    assert status == 0
    assert lines[0].startswith("orlo, 2026 Q4: burned from 2026-09-30 20:00 to 2026-09-30 21:00 ")
    petrel = next(line for line in lines if line.startswith("science/petrel"))
    assert petrel.split()[1:6] == ["1,500.00", "2.00", "0.00", "0.00", "1,498.00"]
    assert petrel.split()[-5:] == ["2.00", "1.97", "0.03", "0.00", "0.00"]
    total = next(line for line in lines if line.startswith("total"))
    assert total.split()[1:3] == ["1,500.00", "2.00"]
    budgets = lines[1 : lines.index(total) + 1]
    assert len({len(line) for line in budgets}) == 1  # aligned
    assert lines[-1].split() == ["all", "others", "0", "0.00", "0.00"]
    assert "dearest jobs" in text


def test_csv_and_json_hold_integers_that_add_up(period: Period) -> None:
    status, text = report("--format", "csv")
    assert status == 0
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["row"] for row in rows] == ["budget", "budget", "reserve", "total"]
    for column in reports.ADDITIVE:
        amounts = [int(row[column]) for row in rows]
        assert sum(amounts[:-1]) == amounts[-1], column
    assert rows[-1]["settled_mgpus"] == str(2 * CREDIT)

    status, text = report("--format", "json")
    answer: dict[str, Any] = json.loads(text)
    assert (answer["start"], answer["end"]) == ("2026-10-01T00:00:00Z", "2026-10-01T01:00:00Z")
    assert answer["total"]["burned_mgpus"] == 2 * CREDIT
    assert [row["path"] for row in answer["rows"]] == ["orlo/science", "orlo/vision", "orlo"]


def test_the_interval_narrows_what_was_burned_and_not_the_period_s_figures(
    period: Period,
) -> None:
    _, text = report("--from", "2026-10-01T00:10:00Z", "--to", "2026-10-01T00:40:00Z",
                     "--format", "json")  # fmt: skip
    total = json.loads(text)["total"]
    assert (total["settled_mgpus"], total["burned_mgpus"]) == (2 * CREDIT, CREDIT)


def test_dates_begin_at_midnight_of_the_period_s_zone(period: Period) -> None:
    _, text = report("--from", "2026-10-01", "--to", "2026-10-02", "--format", "json")
    answer = json.loads(text)
    assert (answer["start"], answer["end"]) == ("2026-10-01T04:00:00Z", "2026-10-02T04:00:00Z")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("orlo/nowhere",), "There is no budget 'orlo/nowhere'"),
        (("orlo", "--format", "xml"), "choose table, csv, json, xlsx, focus"),
        (("orlo", "--by", "person"), "choose child or leaf"),
        (("orlo", "--format", "xlsx"), "give --out FILE"),
        (("orlo", "--zone", "Mars/Olympus"), "'Mars/Olympus' is no time zone"),
        (("orlo", "--out", "/nowhere/at/all.csv"), "can't be written"),
        (("orlo", "--from", "x"), "neither a date"),
        (("orlo", "--now", "2025-01-01"), "No started period covers 2025-01-01T05:00:00Z"),
        (("orlo", "--from", "2026-10-03", "--to", "2026-10-02"), "must come before"),
        (("orlo", "--from", "2029-10-03", "--to", "2029-10-04"), "No started period covers"),
    ],
)
def test_bad_input_gets_one_line_and_status_2(
    period: Period, arguments: tuple[str, ...], sentence: str
) -> None:
    status, text = run_command("burn_report", *arguments)
    assert status == 2
    assert sentence in text
    assert "\n" not in text


def test_dates_may_be_those_of_a_reader_s_zone(period: Period) -> None:
    _, text = report("--from", "2026-10-01", "--to", "2026-10-02", "--format", "json",
                     "--zone", "Europe/Zurich")  # fmt: skip
    answer = json.loads(text)
    assert (answer["start"], answer["end"]) == ("2026-09-30T22:00:00Z", "2026-10-01T22:00:00Z")
    assert [day["day"] for day in answer["days"]] == ["2026-10-01"]


def test_a_file_is_written_whole_or_not_at_all(period: Period, tmp_path) -> None:
    out = tmp_path / "burn.xlsx"
    out.write_text("before")
    status, _ = report("--format", "xlsx", "--out", str(out), "--by", "person")
    assert status == 2
    assert out.read_text() == "before"
    status, said = report("--format", "xlsx", "--out", str(out))
    assert (status, said) == (0, "")
    assert out.read_bytes().startswith(b"PK")
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("command", ["reconcile", "burn_report"])
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        call_command(command, "--help")
    assert stop.value.code in (0, None)
    assert f"python manage.py {command}" in capsys.readouterr().out
