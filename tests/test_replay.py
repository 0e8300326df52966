"""Replaying a trace: a generated one through the real code, and everything that is refused."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from allocator.models import Cycle
from allocator.replay import dumping, playback, setup, telling, trace, world
from allocator.replay.playback import Course
from allocator.replay.trace import BadInput, TraceJob
from budgets.models import Budget
from clusters.models import GpuState
from ledger.models import ClosedTimestep, Entry
from tests import factories as make
from workloads.models import Job, Run

HEAD = "job_id,submit_time_s,gpus,duration_s,group"
HOUR = 3600


def lines(number: int = 18, *, hours: int = 8, seed: int = 3) -> Iterator[str]:
    """A day's trace of two groups that ask for more than two nodes have; sizes not all powers."""
    draw = random.Random(seed)
    for n in range(number):
        at = draw.randrange(hours) * HOUR + draw.randrange(2) * 900
        gpus, lasts = draw.choice((1, 2, 3, 8, 16)), draw.randrange(HOUR, 6 * HOUR)
        yield f"j{n},{at},{gpus},{lasts},{draw.choice(('nlp', 'vision'))}"


def written(folder: Path, *rows: str, head: str = HEAD) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


@pytest.fixture
def a_trace(tmp_path: Path) -> Path:
    return written(tmp_path, *lines())


def replay(path: Path, *options: str, nodes: str = "2x8", days: str = "1") -> str:
    out = StringIO()
    arguments = (str(path), "--nodes", nodes, "--days", days, *options)
    call_command("replay_trace", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


# --- The real thing -----------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_replay_keeps_the_books_and_every_plan_is_legal(a_trace: Path) -> None:
    jobs = trace.window(trace.read(a_trace), start_day=0, days=1)
    shares = setup.shares_of("nlp=70,vision=30", jobs)
    place = world.build(pools=setup.pools_of("2x8"), shares=shares, jobs=jobs)
    told: list[int] = []
    course = Course(start_day=0, days=1)
    played = playback.play(place, jobs, course, lambda played, made: told.append(made.pk))

    assert telling.verdict(place, played).clean
    assert played.reached == world.START + timedelta(days=1)
    assert played.cycles == len(told) == Cycle.objects.count()
    assert played.rounded == len([job for job in jobs if job.gpus == 3]) > 0
    assert Job.objects.count() == len(jobs)
    done = Job.objects.filter(state=Job.State.COMPLETED)
    assert done.exists()
    for job in done:
        ran = timedelta()
        for run in job.runs.all():
            assert run.started_at is not None
            assert run.ended_at is not None
            ran += run.ended_at - run.started_at
        assert ran == timedelta(seconds=job.spec["simulate"]["duration_s"])
    assert Run.objects.filter(end_reason=Run.EndReason.PREEMPTED).exists()
    text = "\n".join(telling.report(place, played))
    closed = ClosedTimestep.objects.count()  # from the first job's timestep on
    assert closed > 40
    assert f"Exact to the GPU-second in {closed} of {closed} timesteps; 0 entries break" in text
    assert "groups' settled credits add up" in text
    assert f"{played.rounded} size" in text


@pytest.mark.once
@pytest.mark.django_db
def test_wrong_books_are_found() -> None:
    """The control: a verdict that is clean turns when one log or one plan is wrong."""
    jobs = [TraceJob("a", 0, 8, HOUR, "nlp")]
    place = world.build(pools=setup.pools_of("1x8"), shares={"nlp": 100_000}, jobs=jobs)
    played = playback.play(place, jobs, Course(start_day=0, days=1), lambda *_: None)
    assert telling.verdict(place, played).clean

    played.illegal = 1
    assert not telling.verdict(place, played).clean
    played.illegal = 0
    last = GpuState.objects.latest("at")
    assert last.free == 0b11111111
    GpuState.objects.filter(pk=last.pk).update(free=0b01111111)
    assert not telling.verdict(place, played).clean
    assert "NOT exact" in "\n".join(telling.report(place, played))


@pytest.mark.once
@pytest.mark.django_db
def test_the_time_limit_stops_early_and_says_so(a_trace: Path) -> None:
    jobs = trace.read(a_trace)
    shares = setup.shares_of("", jobs)
    place = world.build(pools=setup.pools_of("2x8"), shares=shares, jobs=jobs)
    course = Course(start_day=0, days=1, time_limit_s=0.01)
    played = playback.play(place, jobs, course, lambda *_: None)
    assert (played.cycles, played.in_time) == (1, False)
    assert "Stopped at the time limit" in "\n".join(telling.report(place, played))


@pytest.mark.once
@pytest.mark.django_db
def test_an_installation_with_an_organisation_is_left_alone(a_trace: Path) -> None:
    make.make_tree()
    before = Budget.objects.count()
    with pytest.raises(CommandError, match="has an organisation already"):
        replay(a_trace, "--database")
    assert (Budget.objects.count(), Entry.objects.count()) == (before, 0)


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_the_command_plays_in_a_file_of_its_own_and_dumps_cycles(
    a_trace: Path, tmp_path: Path, shared: Path
) -> None:
    kept, folder = tmp_path / "kept.sqlite3", tmp_path / "cycles"
    text = replay(a_trace, "--keep", str(kept), "--dump-cycles", str(folder), "--dump-count", "5")
    assert "0 illegal plans" in text
    assert kept.stat().st_size > 0
    assert not Budget.objects.exists(), "the installation's own database stays as it was"
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(f"{kind}-{k}.json" for kind in ("PLAN", "SCENARIO") for k in range(1, 6))
    for k in range(1, 6):
        assert judge(shared, folder, k)["legal"], k


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_a_day_of_a_public_trace(tmp_path: Path, shared: Path) -> None:
    path = shared / "data" / "traces" / "philly_4vcs_28d.csv"
    folder = tmp_path / "cycles"
    text = replay(path, "--dump-cycles", str(folder), "--exact", nodes="56x8")
    assert "0 illegal plans" in text
    assert "Exact to the GPU-second in 48 of 48 timesteps" in text
    verdicts = [judge(shared, folder, k) for k in range(1, 21)]
    assert [verdict["legal"] for verdict in verdicts] == [True] * 20


def judge(shared: Path, folder: Path, k: int) -> dict[str, Any]:
    program = shared / "judge" / "check_plan.py"
    files = (folder / f"SCENARIO-{k}.json", folder / f"PLAN-{k}.json")
    done = subprocess.run(
        [sys.executable, program, *files], capture_output=True, text=True, check=False
    )
    return dict(json.loads(done.stdout))


# --- What is refused ----------------------------------------------------------------------------

ROW = "a,0,8,3600,nlp"
BAD_ROWS = [
    ("a,x,8,3600,nlp", "line 2: submit_time_s is 'x'"),
    ("a,-1,8,3600,nlp", "line 2: submit_time_s is '-1'"),
    ("a,0,0,3600,nlp", "line 2: gpus is '0'"),
    ("a,0,0.5,3600,nlp", "line 2: gpus is '0.5'"),
    ("a,0,8,,nlp", "line 2: duration_s is ''"),
    ("a,0,8,99999999999,nlp", "line 2: duration_s is '99999999999'"),
    ("a,0,8,3600,", "line 2: group is empty"),
    (",0,8,3600,nlp", "line 2: job_id is empty"),
    (f"{ROW}\n{ROW}", "line 3: job_id 'a' is there twice"),
    ("a,0,8", "line 2: duration_s is ''"),
    ("a,²,8,3600,nlp", "line 2: submit_time_s is '²'"),
    ("a,0,8,3600,\0", "at most 90 printable characters"),
    (f"a,0,8,3600,{'n' * 91}", "at most 90 printable characters"),
]  # fmt: skip
BAD_OPTIONS = [
    (("--shares", "nlp=60,sound=40"), "no group 'sound'"),
    (("--shares", "nlp=101"), "0 to 100"),
    (("--shares", "nlp=60,vision=50"), "total 110 %: lower them"),
    (("--shares", "nlp"), "give GROUP=PERCENT"),
    (("--shares", "nlp=50,nlp=40"), "name each group once"),
    (("--shares", "nlp=NaN"), "give GROUP=PERCENT"),
    (("--shares", "nlp=-1"), "give GROUP=PERCENT"),
    (("--shares", "nlp=1.2345"), "at most three decimals"),
    (("--nodes", "56"), "give NODESxGPUS"),
    (("--nodes", "0x8"), "give NODESxGPUS"),
    (("--nodes", "2x63"), "1 to 62 GPUs a node"),
    (("--nodes", "a=2x8,a=3x8"), "name each pool once"),
    (("--nodes", ""), "give NODESxGPUS"),
    (("--rate", "fast"), "give per mille"),
    (("--rate", "b200=1500"), "no pool b200"),
    (("--days", "0"), "--days is 0"),
    (("--days", "-3"), "--days is -3"),
    (("--start-day", "5"), "the trace has days 0 to 0"),
    (("--start-day", "-1"), "--start-day is -1"),
    (("--dump-count", "0"), "--dump-count is 0"),
    (("--time-limit", "0"), "--time-limit is 0"),
    (("--time-limit", "nan"), "--time-limit is nan"),
    (("--keep", "x", "--database"), "exclude each other"),
    (("--keep", "/no/such/place/x"), "no such folder"),
    (("--keep", __file__), "such a file already"),
    (("--keep", "/proc/x"), "nothing can be written there"),
    (("--dump-cycles", "/proc/x"), "nothing can be written there"),
    (("--dump-cycles", __file__), "is a file"),
    (("--dump-cycles", "/no/such/place"), "no folder above it"),
]


def refused(path: Path, *options: str) -> str:
    """The one line that a replay is refused with; nothing may be written."""
    before = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    with pytest.raises(CommandError) as refusal:
        replay(path, *options)
    assert refusal.value.returncode == 2
    assert (sorted(path.parent.iterdir()) if path.parent.is_dir() else []) == before
    text = str(refusal.value)
    assert "\n" not in text
    return text


@pytest.mark.once
@pytest.mark.parametrize(("row", "sentence"), BAD_ROWS)
def test_a_bad_line_is_named(tmp_path: Path, row: str, sentence: str) -> None:
    assert sentence in refused(written(tmp_path, *row.split("\n")))


@pytest.mark.once
@pytest.mark.parametrize(("options", "sentence"), BAD_OPTIONS)
def test_a_bad_option_is_named(tmp_path: Path, options: tuple[str, ...], sentence: str) -> None:
    path = written(tmp_path, ROW, "b,9,8,3600,vision")
    assert sentence in refused(path, *options)


@pytest.mark.once
@pytest.mark.parametrize(
    ("head", "row", "sentence"),
    [
        ("job_id,submit_time_s,gpus,duration_s", "a,0,8,60", "has no column group"),
        (f"{HEAD},kind", f"{ROW},pod", "kind is 'pod', but must be one of training"),
        (f"{HEAD},kind,demand", f"{ROW},realtime,4 x", "demand has 'x', but must be whole"),
        (f"{HEAD},urgency", f"{ROW},asap", "urgency is 'asap'"),
        (f"{HEAD},resumable", f"{ROW},perhaps", "resumable is 'perhaps'"),
        (f"{HEAD},time_limit_s", f"{ROW},0", "time_limit_s is '0'"),
        (f"{HEAD},parked", f"{ROW},1.5", "parked is '1.5'"),
    ],
)
def test_a_bad_column_is_named(tmp_path: Path, head: str, row: str, sentence: str) -> None:
    assert sentence in refused(written(tmp_path, row, head=head))


@pytest.mark.once
def test_a_missing_or_empty_file_is_named(tmp_path: Path) -> None:
    assert "can't be read (No such file" in refused(tmp_path / "none.csv")
    assert "can't be read" in refused(tmp_path)
    assert "has no jobs" in refused(written(tmp_path))
    binary = tmp_path / "binary.csv"
    binary.write_bytes(bytes(range(128, 256)))
    assert "can't be read" in refused(binary)


# --- Details ------------------------------------------------------------------------------------


@pytest.mark.once
def test_shares_are_equal_where_none_are_given_and_use_up_the_whole() -> None:
    jobs = [TraceJob(str(n), 0, 1, 60, group) for n, group in enumerate("cab")]
    assert setup.shares_of("", jobs) == {"a": 33_334, "b": 33_333, "c": 33_333}
    assert setup.shares_of("a=60, b=0.001 %", jobs) == {"a": 60_000, "b": 1, "c": 0}


@pytest.mark.once
def test_pools_and_rates() -> None:
    pools = setup.pools_of("h100=40x8,b200=16x4", "b200=1500")
    assert [(p.slug, p.total, p.rate) for p in pools] == [("h100", 320, 1000), ("b200", 64, 1500)]
    assert [p.rate for p in setup.pools_of("h100=1x8,b200=1x8", "1200")] == [1200, 1200]


@pytest.mark.once
@pytest.mark.parametrize(("gpus", "block"), [(1, 1), (2, 2), (3, 4), (24, 32), (128, 128)])
def test_sizes_are_rounded_up_to_a_power_of_two(gpus: int, block: int) -> None:
    assert TraceJob("a", 0, gpus, 60, "g").block == block


@pytest.mark.once
def test_a_job_asks_as_its_owner_would_have() -> None:
    job = TraceJob(
        "a", 0, 6, 1000, "g", min_runtime_s=99_999, time_limit_s=2000, parked_s=300, urgency="high"
    )
    spec = playback.spec_of(job, 1.5)
    assert (spec.gpus, spec.expected_duration_s, spec.minimum_runtime_s) == (8, 1500, 2000)
    assert spec.spec == {"simulate": {"duration_s": 1000, "idle": [[700, None]]}}
    assert (spec.urgency, spec.resumable, spec.when_unfunded) == ("high", True, "run")


@pytest.mark.once
def test_dumped_cycles_are_spread_from_the_first_to_the_last() -> None:
    ids = list(range(10, 110))
    assert dumping.spread(ids, 4) == [10, 43, 76, 109]
    assert dumping.spread(ids, 1) == [109]
    assert dumping.spread(ids[:3], 20) == [10, 11, 12]


@pytest.mark.once
def test_errors_are_those_of_the_seed_and_bad_input_is_a_value_error() -> None:
    assert issubclass(BadInput, ValueError)
    draws = [random.Random(seed).gauss(0, playback.SPREAD) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
