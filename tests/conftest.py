"""Fixtures that belong to no part: where Chromium and the shared data are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.celery import app
from config.launcher.testing import find_chromium

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs Chromium where there is none."""
    if find_chromium() is not None:
        return
    skip = pytest.mark.skip(reason="no Chromium was found")
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium's program."""
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium was found")
    return path


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of data shared by the project's repositories, beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("../shared is absent")
    return SHARED


@pytest.fixture(scope="session", autouse=True)
def _broker_in_memory() -> Iterator[None]:
    """Keep tasks that tests send away from the broker of a running installation."""
    app.conf.update(broker_url="memory://", broker_transport_options={})
    yield
    app.close()
