"""What `./run` promises: plain refusals, a healing set-up, and nothing that outlives it."""

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from config.launcher import environment, postgres, serve, testing
from config.launcher.console import Refused, step
from config.launcher.processes import Processes

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.once
RUN = str(ROOT / "run")


@pytest.fixture
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.close()


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def prepared() -> None:
    if not environment._done("base"):
        pytest.skip(".venv is not prepared: ./run setup does it")


# --- Refusals -----------------------------------------------------------------------------------


def test_a_taken_port_is_refused_before_anything_else() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = _run("--port", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"run: port {port} of 127.0.0.1 can't be used")
    assert done.stderr.count("\n") == 1


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\ncase "$2" in *print*) echo 3.8.18 ;; *) exit 1 ;; esac\n')
    old.chmod(0o755)
    done = _run("setup", PYTHON=str(old))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Python 3.11 or newer is needed, but {old} is 3.8.18" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_venv_module_names_the_package(
    monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(Refused, match=r"`apt-get install python3\.\d+-venv`"):
        environment._create(processes)


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--port", "x"], ["no-such-command"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    done = _run(*arguments)
    assert done.returncode == 2
    assert "./run: error:" in done.stderr


def test_a_wrong_port_in_the_environment_is_refused() -> None:
    done = _run("serve", WEB_PORT="http")
    assert (done.returncode, done.stderr) == (
        1,
        "run: WEB_PORT is 'http', but must be a whole number from 1 to 65535.\n",
    )


# --- Set-up -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_half_made_environment_is_made_anew_and_a_whole_one_kept(
    monkeypatch: pytest.MonkeyPatch, processes: Processes, tmp_path: Path
) -> None:
    venv, lock = tmp_path / ".venv", tmp_path / "base.txt"
    monkeypatch.setattr(environment, "VENV", venv)
    monkeypatch.setattr(environment, "PYTHON", venv / "bin" / "python")
    monkeypatch.setattr(environment, "REQUIREMENTS", tmp_path)
    sources, kept = tmp_path / "sources", tmp_path / "kept"
    sources.mkdir()
    monkeypatch.setattr(environment, "COMPILED", sources)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(kept))
    ready = kept / hashlib.sha256(b"").hexdigest()[:16] / "ready"
    ready.parent.mkdir(parents=True)
    warm = f"open({str(tmp_path / 'warm')!r}, 'a').write('.'); open({str(ready)!r}, 'w')"
    monkeypatch.setattr(environment, "WARM", ("-c", warm))
    lock.write_text("# nothing yet\n")
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text("half")

    environment.prepare(processes)
    assert (venv / "lib" / f"python3.{sys.version_info[1]}" / "site-packages" / "pip").is_dir()
    (venv / "mark").touch()
    environment.prepare(processes)
    assert (venv / "mark").exists()
    lock.write_text("# another lock file\n")
    environment.prepare(processes)
    assert not (venv / "mark").exists()
    assert (tmp_path / "warm").read_text() == ".."  # once for each environment
    ready.unlink()
    environment.prepare(processes)
    assert (tmp_path / "warm").read_text() == "..."  # and where compiled code was cleared away


@pytest.mark.slow
def test_where_pip_cannot_be_unpacked_python_installs_it_itself(
    monkeypatch: pytest.MonkeyPatch, processes: Processes, tmp_path: Path
) -> None:
    broken = tmp_path / "pip-1-py3-none-any.whl"
    with zipfile.ZipFile(broken, "w") as wheel:
        wheel.writestr("pip/__main__.py", "raise SystemExit(1)")
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: str(tmp_path))
    python = tmp_path / ".venv" / "bin" / "python"
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(environment, "PYTHON", python)
    environment._create(processes)
    answer = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, text=True)
    assert str(tmp_path / ".venv") in answer.stdout


def test_what_runs_beside_other_steps_says_so_before_them(
    processes: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    with processes.beside([sys.executable, "-c", ""], "Compiling"), step("Migrating"):
        pass
    told = [re.sub(r" \.\.+.*", "", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert told == ["Compiling, beside what follows", "Migrating", "Compiling, the rest"]


def test_two_set_ups_at_once_take_turns() -> None:
    program = (
        "from config.launcher import environment\n"
        "with environment._alone(): print('my turn', flush=True)\n"
    )
    with environment._alone():
        second = subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert second.stdout is not None
        assert "waiting for it" in second.stdout.readline()
    assert second.communicate(timeout=60)[0] == "my turn\n"


def test_lock_files_are_complete_and_name_no_address() -> None:
    for path in (ROOT / "requirements").iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"https?:|file:|index-url|find-links|trusted-host:", _body(text))
        if path.suffix == ".txt":
            pins = re.findall(r"^[a-z].*$", text, re.M)
            assert len(pins) > 30
            found = environment._pins(path.stem)
            assert [pin.split("==")[0] for pin in pins] == [name for name, _ in found]
            assert sum(pin.count("--hash=") for _, pin in found) == text.count("--hash=")
            needed = set(environment.NEEDED_TO_COMPILE)
            assert path.stem != "base" or needed <= {name for name, _ in found}
            assert all(re.match(r"[a-z0-9-]+==[\w.]+ .*\\$", pin) for pin in pins)
            assert text.count("--hash=sha256:") >= len(pins)


# --- Nothing outlives the launcher --------------------------------------------------------------

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
LAUNCHER = f"""
import subprocess, sys, time
from config.launcher.processes import Processes
processes = Processes()
child = "import subprocess, sys; subprocess.run([sys.executable, '-c', {STUBBORN!r}])"
processes.start([sys.executable, "-c", child])
print(processes.temporary_folder(), flush=True)
time.sleep(300)
"""


@pytest.mark.slow
def test_stubborn_grandchildren_and_folders_end_with_a_killed_launcher(tmp_path: Path) -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        cwd=ROOT,
        env={**os.environ, "DATA_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    folder = Path(launcher.stdout.readline().strip())
    assert folder.is_dir()
    # The launcher, its guard, the child and the grandchild.
    assert _becomes(lambda: len(_living(tmp_path)) == 4)
    time.sleep(0.5)  # the grandchild learns to ignore SIGTERM
    launcher.kill()
    launcher.wait()
    assert _becomes(lambda: not _living(tmp_path))
    assert not folder.exists()


def test_a_child_whose_launcher_died_too_early_does_not_start(processes: Processes) -> None:
    orphan = processes._bind(launcher=1 if os.getpid() != 1 else 2)
    child = subprocess.Popen(["true"], preexec_fn=orphan, start_new_session=True)
    assert child.wait() == 1


@pytest.mark.slow
@pytest.mark.usefixtures("prepared")
def test_no_service_outlives_a_killed_run(tmp_path: Path, port: int) -> None:
    run = _serve(tmp_path, port)
    assert len(_living(tmp_path)) >= 1 + 1 + 4  # itself, the guard, four services
    run.kill()
    run.wait()
    assert _becomes(lambda: not _living(tmp_path))


@pytest.mark.slow
def test_what_does_not_answer_is_named(tmp_path: Path, port: int) -> None:
    done = _health(tmp_path, port, "--web", "--beat", "--worker", "cycle")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"web: http://127.0.0.1:{port}/healthz does not answer" in done.stderr
    assert "worker: cycle@" in done.stderr
    assert f"beat: no schedule in {tmp_path}" in done.stderr
    assert "database" not in done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("prepared")
def test_a_service_that_ends_is_named_and_stops_the_others(tmp_path: Path, port: int) -> None:
    run = _serve(tmp_path, port)
    beat = next(pid for pid in _living(tmp_path) if " beat " in _command(pid))
    os.kill(beat, signal.SIGKILL)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "run: beat ended by itself (exit code -9); all stopped.\n" in errors
    assert _becomes(lambda: not _living(tmp_path))


@pytest.mark.slow
@pytest.mark.usefixtures("prepared")
def test_all_is_well_while_it_serves_and_an_interrupt_is_no_error(
    tmp_path: Path, port: int
) -> None:
    run = _serve(tmp_path, port)
    for options in (["--web", "--worker", "cycle"], ["--beat", "--worker", "long"]):
        assert _becomes(lambda: _health(tmp_path, port, *options).returncode == 0)  # noqa: B023
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 0
    assert "Stopping." in output
    assert _living(tmp_path) == []


# --- Tests of the tests -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("source", ["debian", "wheel"])
def test_a_postgresql_server_of_our_own_comes_and_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    if source == "wheel":
        monkeypatch.setattr(postgres, "DEBIAN", tmp_path)
        monkeypatch.setattr(postgres, "VENV", Path(sys.prefix))
    elif not list(postgres.DEBIAN.glob("*/bin/initdb")):
        pytest.skip("Debian's PostgreSQL is not installed")
    processes = Processes()
    url = postgres.start(processes)
    folder = Path(url.split("host=")[1])
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 6 * 7").fetchone() == (42,)
    assert folder.is_dir()
    processes.close()
    assert not folder.exists()


def test_no_server_to_be_found_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres, "DEBIAN", tmp_path)
    monkeypatch.setattr(postgres, "VENV", tmp_path)
    with pytest.raises(Refused, match=r"`apt-get install postgresql`"):
        postgres.find()


def test_a_report_of_pytest_is_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert testing._count(report) == (0, 0, 0)
    report.write_text(
        '<testsuites><testsuite tests="10" failures="2" errors="1" skipped="3"/></testsuites>'
    )
    assert testing._count(report) == (4, 3, 3)


def test_the_tests_see_none_of_the_users_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECURE", "true")
    monkeypatch.setenv("SECRET_KEY_FILE", "/nowhere")
    variables = testing.test_environment(tmp_path, "sqlite:///x")
    assert "SECURE" not in variables
    assert "SECRET_KEY_FILE" not in variables
    assert variables["DATA_DIR"] == str(tmp_path)


def test_both_queues_have_a_worker() -> None:
    commands = serve.commands(8000)
    queues = {
        words[words.index("--queues") + 1] for words in commands.values() if "worker" in words
    }
    assert queues == {"cycle", "long"}


# --- Helpers ------------------------------------------------------------------------------------


def _run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RUN, *arguments],
        env={**environment.without_settings(), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _serve(data_dir: Path, port: int) -> subprocess.Popen[str]:
    """Start `./run serve` and return it once it says that it serves."""
    run = subprocess.Popen(
        [RUN, "serve", "--port", str(port)],
        env={**environment.without_settings(), "DATA_DIR": str(data_dir)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    for line in run.stdout:
        if f"http://127.0.0.1:{port}/" in line:
            return run
    pytest.fail(f"./run serve ended with {run.wait()}: {run.communicate()[1]}")


def _health(data_dir: Path, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "healthcheck", *options],
        cwd=ROOT,
        env={**environment.without_settings(), "DATA_DIR": str(data_dir), "WEB_PORT": str(port)},
        capture_output=True,
        text=True,
        check=False,
    )


def _living(data_dir: Path) -> list[int]:
    """Return the processes whose environment names the folder: a zombie has none."""
    mark = f"DATA_DIR={data_dir}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def _becomes(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def _body(text: str) -> str:
    """Return a lock file without its head, which tells how it was made."""
    return "\n".join(line for line in text.splitlines() if "pip-compile" not in line)
