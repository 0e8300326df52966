"""Dockerfile and docker-compose.yml: no engine runs here, so everything they name is looked up."""

import json
import re
import shlex
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from celery.bin.celery import celery as celery_command
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.test import Client
from gunicorn.config import Config

from config.launcher import serve
from config.launcher.environment import settings_variables, without_settings

ROOT = Path(__file__).resolve().parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
# Variables of Python, the shell and the database's image; all others must be settings.
FOREIGN = {"PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
EXAMPLE = dict(
    line.split("=", 1)
    for line in (ROOT / ".env.example").read_text().splitlines()
    if line and not line.startswith("#")
)
FILLED = {**EXAMPLE, "SECRET_KEY": string.ascii_letters, "POSTGRES_PASSWORD": "p" * 24}
pytestmark = pytest.mark.once


def _instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions as (word, rest), continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    pairs = [line.split(None, 1) for line in lines if line.strip()]
    return [(word, rest) for word, rest in pairs]


def _of_image(word: str) -> list[str]:
    return [rest for each, rest in _instructions() if each == word]


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Yield (where, command) for everything that runs in a container of ours."""
    yield "image", json.loads(_of_image("CMD")[-1])
    yield "image's health", json.loads(_of_image("HEALTHCHECK")[-1].split("CMD ", 1)[1])
    yield "collectstatic", shlex.split(_of_image("RUN")[-1].split("&&")[0].split(" ", 1)[1])
    for name in OURS:
        service = SERVICES[name]
        if "command" in service:
            yield name, service["command"]
        test = service.get("healthcheck", {}).get("test")
        if test:
            assert test[0] == "CMD"
            yield f"{name}'s health", test[1:]


@pytest.mark.parametrize(("where", "command"), list(_commands()), ids=lambda value: str(value)[:40])
def test_every_command_exists_and_knows_its_options(where: str, command: list[str]) -> None:
    assert all(isinstance(word, str) for word in command)
    program, *rest = command
    match program:
        case "gunicorn":
            options = Config().parser().parse_args(rest)
            assert options.args == ["config.wsgi"]
        case "python":
            assert rest[0] == "manage.py"
            assert (ROOT / rest[0]).exists()
            app = get_commands()[rest[1]]
            parser = load_command_class(str(app), rest[1]).create_parser("manage.py", rest[1])
            assert parser.parse_args(rest[2:])
        case "celery":
            assert rest[0] == "--app=config.worker"
            assert _celery_leaves(rest[1], rest[2:]) == []
        case _:
            pytest.fail(f"{where} runs {program}, which nothing here checks")


def test_an_option_that_celery_does_not_have_would_be_noticed() -> None:
    with pytest.raises(click.NoSuchOption, match="no-such-option"):
        _celery_leaves("worker", ["--no-such-option"])


def test_each_queue_has_one_worker_that_its_health_check_asks() -> None:
    queues = {}
    for name in OURS:
        words = [*SERVICES[name].get("command", []), *_health(name)]
        queue = next((word[9:] for word in words if word.startswith("--queues=")), None)
        if queue:
            queues[queue] = name
            assert f"--hostname={queue}@%h" in words
            assert words[words.index("--worker") + 1] == queue
    routed = {route["queue"] for route in settings.CELERY_TASK_ROUTES.values()}
    assert set(queues) == routed | {settings.CELERY_TASK_DEFAULT_QUEUE}


def test_services_are_those_of_an_installation() -> None:
    assert set(SERVICES) == {
        *("db", "broker", "migrate", "web", "worker-cycle", "worker-long", "beat"),
    }
    assert SERVICES["db"]["image"] == "postgres:17"


def test_each_lasting_service_has_a_health_check() -> None:
    for name, service in SERVICES.items():
        if name == "migrate":
            assert service["healthcheck"] == {"disable": True}
        elif name == "web":
            assert len(_of_image("HEALTHCHECK")) == 1
        else:
            assert service["healthcheck"]["test"][0] == "CMD"


def test_services_wait_for_what_they_need() -> None:
    for name in OURS:
        needs = SERVICES[name]["depends_on"]
        assert needs["db"] == {"condition": "service_healthy"}
        for other, need in needs.items():
            wanted = "service_completed_successfully" if other == "migrate" else "service_healthy"
            assert need == {"condition": wanted}
            assert other in SERVICES
        if name != "migrate":
            assert set(needs) == {"db", "broker", "migrate"}


def test_every_variable_is_a_documented_setting() -> None:
    known = {*settings_variables(), "SECRET_KEY_FILE"}
    for name in OURS:
        assert set(SERVICES[name]["environment"]) <= known
    image = {pair.split("=")[0] for rest in _of_image("ENV") for pair in rest.split()}
    assert image - FOREIGN <= known
    assert set(EXAMPLE) - {"POSTGRES_PASSWORD", "PUBLISH"} <= known


def test_every_placeholder_stands_in_the_example() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    assert set(re.findall(r"\$\{([A-Z_]+)", text)) == set(EXAMPLE)


def test_the_example_once_filled_in_passes_the_deployment_check(tmp_path: Path) -> None:
    environment = {
        name: _filled(str(value)) for name, value in SERVICES["web"]["environment"].items()
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={**without_settings(), **environment, "DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert environment["DATABASE_URL"].startswith("postgresql://allotment:pppp")


def test_volumes_are_declared_and_mounted_where_data_is() -> None:
    mounts = [mount.split(":") for each in SERVICES.values() for mount in each.get("volumes", [])]
    assert {volume for volume, _ in mounts} == set(COMPOSE["volumes"])
    assert ["beat", "/data"] in mounts
    assert any("DATA_DIR=/data" in rest for rest in _of_image("ENV"))


def test_the_image_copies_what_exists_and_does_not_run_as_root() -> None:
    for rest in _of_image("COPY"):
        *sources, _ = [word for word in rest.split() if not word.startswith("--")]
        if "--from=" not in rest:
            assert all((ROOT / source).exists() for source in sources)
    user = _of_image("USER")[-1]
    assert any(re.search(rf"useradd .*\b{user}\b", rest) for rest in _of_image("RUN"))
    versions = [re.fullmatch(r"python:3\.(\d+)-slim.*", rest) for rest in _of_image("FROM")]
    assert all(version and int(version[1]) >= 11 for version in versions)


def test_web_listens_where_it_is_published_and_asked() -> None:
    port = SERVICES["web"]["ports"][0].rsplit(":", 1)[1]
    assert f"0.0.0.0:{port}" in json.loads(_of_image("CMD")[-1])
    assert any(f"WEB_PORT={port}" in rest for rest in _of_image("ENV"))
    assert _of_image("EXPOSE") == [port]


def test_the_image_leaves_out_secrets_and_tests() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".env", ".data", ".git", "tests"} <= set(ignored)
    # Read at start, for the version: must not be left out.
    assert "CHANGELOG.md" not in ignored


def test_static_files_can_be_collected_under_hashed_names(tmp_path: Path) -> None:
    """A style sheet that names a file we don't have would fail the build of the image."""
    program = (
        "import django; from django.conf import settings; django.setup()\n"
        "from django.core.management import call_command\n"
        f"settings.STATIC_ROOT = {str(tmp_path / 'static')!r}\n"
        "call_command('collectstatic', interactive=False, verbosity=0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        env={
            **without_settings(),
            "DATA_DIR": str(tmp_path),
            "COLLECTED_STATIC": "true",
            "DJANGO_SETTINGS_MODULE": "config.settings",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "static" / "staticfiles.json").exists()


@pytest.mark.django_db
def test_health_is_told_without_sign_in_and_under_the_strict_policy(client: Client) -> None:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["ok"] is True
    assert answer.json()["version"] == settings.VERSION
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_launcher_and_the_containers_serve_the_same_application() -> None:
    web = serve.commands(8000)["web"]
    assert "config.wsgi" in web
    assert "config.worker" in serve.commands(8000)["cycle"]


def _celery_leaves(name: str, words: list[str]) -> list[str]:
    """Return the words that a command of Celery doesn't know what to do with."""
    command = celery_command.commands[name]
    _, left, _ = command.make_parser(click.Context(command)).parse_args(list(words))
    return left


def _health(name: str) -> list[str]:
    return list(SERVICES[name].get("healthcheck", {}).get("test", []))


def _filled(value: str) -> str:
    def fill(match: re.Match[str]) -> str:
        return FILLED[match[1]]

    return re.sub(r"\$\{([A-Z_]+)(?::[-?][^}]*)?\}", fill, value)
