"""What a browser fetches to show a page for the first time: bytes as the image serves them.

Static files are collected as the image does it, under hashed names with a compressed one beside
each, and WhiteNoise is asked for every file that the page or one of its style sheets names.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CHARTS = "vendor/echarts.min.js"
MOST = 500_000  # bytes, apart from the charts library
ENCODINGS = "gzip, deflate, br, zstd"  # that Chromium takes
NAMED = re.compile(r"""(?:src|href)=["']/static/([^"'?#]+)""")
IN_STYLES = re.compile(r"""url\(\s*["']?([^"')]+)""")
COLLECT = """
import django
from django.conf import settings
django.setup()
from django.core.management import call_command
settings.STATIC_ROOT = {folder!r}
call_command("collectstatic", interactive=False, verbosity=0)
"""


def weigh(client: Any, address: str) -> dict[str, int]:
    """Return the bytes of each file that a page needs, itself under its address."""
    answer = client.get(address, headers={"Accept-Encoding": ENCODINGS})
    assert answer.status_code == 200, answer.status_code
    page = client.get(address).content.decode()
    found = {address: len(answer.content)}
    folder = Path(_collected().name)
    served = _server(folder)
    hashed = json.loads((folder / "staticfiles.json").read_text())["paths"]
    for name in sorted(set(NAMED.findall(page))):
        for each in (hashed[name], *_of_styles(folder, hashed[name])):
            found[each] = _size(served, each)
    return found


def total(weights: dict[str, int]) -> int:
    """Return the bytes of them all but the charts library."""
    library = CHARTS.removesuffix(".js")
    return sum(size for name, size in weights.items() if not name.startswith(library))


@cache
def _collected() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of them all, collected once; it goes with this process."""
    made = tempfile.TemporaryDirectory(prefix="allotment-static-")
    _collect(Path(made.name))
    return made


def _collect(folder: Path) -> None:
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COLLECT.format(folder=str(folder))],
        cwd=ROOT,
        env={
            **os.environ,
            "COLLECTED_STATIC": "true",
            "DATA_DIR": str(folder.parent / f"{folder.name}-data"),
            "DJANGO_SETTINGS_MODULE": "config.settings",
        },
        check=True,
    )


def _of_styles(folder: Path, name: str) -> Iterator[str]:
    """Yield what a style sheet names: fonts, also of letters that a page may not have."""
    if not name.endswith(".css"):
        return
    for address in IN_STYLES.findall((folder / name).read_text()):
        if not address.startswith(("data:", "#")):
            yield os.path.normpath(Path(name).parent / re.split(r"[?#]", address)[0])


def _server(folder: Path) -> Any:
    from whitenoise import WhiteNoise

    return WhiteNoise(lambda environ, start: [], root=str(folder), prefix="static/")


def _size(served: Any, name: str) -> int:
    told: dict[str, str] = {}

    def start(status: str, headers: list[tuple[str, str]]) -> None:
        assert status.startswith("200"), f"{name}: {status}"
        told.update(headers)

    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": f"/static/{name}",
        "HTTP_ACCEPT_ENCODING": ENCODINGS,
    }
    served(environ, start)
    return int(told["Content-Length"])
