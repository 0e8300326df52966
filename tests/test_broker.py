"""The embedded broker: a message is there whole or not at all."""

import os
from pathlib import Path
from queue import Empty
from threading import Thread
from typing import Any

import pytest
from kombu.connection import Connection

from config import broker, celery


@pytest.fixture
def channel(tmp_path: Path) -> Any:
    for name in ("queues", "control"):
        (tmp_path / name).mkdir()
    options = {
        "data_folder_in": str(tmp_path / "queues"),
        "data_folder_out": str(tmp_path / "queues"),
        "control_folder": str(tmp_path / "control"),
    }
    with Connection("filesystem://localhost", transport_options=options) as connection:
        yield connection.channel()


def test_the_celery_app_uses_this_transport(channel: Any) -> None:
    assert celery.app.main == "allotment"
    assert isinstance(channel, broker.Channel)


def test_a_message_has_its_name_only_once_it_is_whole(channel: Any, monkeypatch: Any) -> None:
    rename, seen = os.replace, []

    def watched(draft: str, final: str) -> None:
        with pytest.raises(Empty):
            channel._get("cycle")
        seen.append(Path(draft).read_bytes())
        rename(draft, final)

    monkeypatch.setattr(os, "replace", watched)
    channel._put("cycle", {"body": "x" * 10_000})
    assert len(seen[0]) > 10_000
    assert channel._get("cycle") == {"body": "x" * 10_000}


def test_a_reader_that_never_rests_gets_every_message_whole(channel: Any) -> None:
    got: list[int] = []

    def read() -> None:
        while len(got) < 300:
            try:
                got.append(channel._get("cycle")["n"])
            except Empty:
                continue

    reader = Thread(target=read, daemon=True)
    reader.start()
    for n in range(300):
        channel._put("cycle", {"n": n})
    reader.join(timeout=30)
    assert sorted(got) == list(range(300))


def test_a_folder_that_takes_nothing_is_a_channel_error(channel: Any, tmp_path: Path) -> None:
    (tmp_path / "queues").rmdir()
    with pytest.raises(Exception, match="takes no message"):
        channel._put("cycle", {})
