"""Pictures of the main pages, from the demo institute's day: `./run pictures`.

The day is played into an empty database of its own; the pages are served as they are and looked at
in Chromium, light, dark and on a phone. Written to docs/images/pages/.
"""

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
INTO = ROOT / "docs" / "images" / "pages"
PORT = 8791
URL = f"http://127.0.0.1:{PORT}"
WHO = "marta"  # of the demo: administrates the institute
SIZES = {"": (1440, 900), "-phone": (390, 844)}
# Which pages, and which of them also dark and on a phone; docs/ui.md shows the same.
PAGES = {
    "overview": ("/", {"dark", "phone"}),
    "budgets": ("/budgets", set[str]()),
    "shares": ("/budgets/orlo/science/shares", set[str]()),
    "budget": ("/budgets/orlo/science/petrel", {"dark"}),
    "jobs": ("/jobs", {"phone"}),
    "job": ("/jobs/{job}", {"phone"}),
    "plan": ("/plan", {"dark"}),
    "review": ("/reviews/{period}/orlo/science", set[str]()),
    "forecasts": ("/forecasts", set[str]()),
    "cycle": ("/cycles/{cycle}", set[str]()),
}


def main() -> int:
    """Play, serve, look; the exit code."""
    from config.launcher.testing import find_chromium

    chromium = find_chromium()
    if chromium is None:
        print("No Chromium was found: apt-get install chromium.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DATA_DIR": folder,
            "DATABASE_URL": f"sqlite:///{folder}/pictures.sqlite3",
            "CELERY_BROKER_URL": "memory://",
        }
        numbers, cookie = _play()
        with _served():
            _take(chromium, numbers, cookie)
    return 0


def _play() -> tuple[dict[str, int], str]:
    """The numbers of what pages are about, and the cookie of somebody who is signed in."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    from allocator.models import Cycle
    from budgets.models import Period
    from workloads.models import Job, Run

    call_command("migrate", verbosity=0)
    call_command("demo", quiet=True)
    client = Client()
    client.force_login(User.objects.get(username=WHO))
    stopped = Run.objects.filter(end_reason=Run.EndReason.PREEMPTED)
    again = Job.objects.filter(pk__in=stopped.values("job"), state=Job.State.RUNNING)
    numbers = {
        "job": (again.first() or Job.objects.filter(state=Job.State.RUNNING)[0]).pk,
        "period": Period.objects.get(status=Period.Status.ACTIVE).pk,
        "cycle": Cycle.objects.latest("pk").pk,
    }
    return numbers, client.cookies["sessionid"].value


@contextmanager
def _served() -> Iterator[None]:
    command = [sys.executable, "-m", "gunicorn", "config.wsgi", "--bind", f"127.0.0.1:{PORT}"]
    web = subprocess.Popen([*command, "--threads", "4", "--log-level", "error"], cwd=ROOT)
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{URL}/healthz", timeout=5).close()
                break
            except urllib.error.HTTPError:
                break  # it answers: that no worker runs is no matter here
            except OSError:
                time.sleep(0.5)
        yield
    finally:
        web.terminate()
        web.wait()


def _take(chromium: str, numbers: dict[str, int], cookie: str) -> None:
    from playwright.sync_api import sync_playwright

    INTO.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for suffix, (width, height) in SIZES.items():
            context = browser.new_context(viewport={"width": width, "height": height})
            context.add_cookies([{"name": "sessionid", "value": cookie, "url": URL}])
            page = context.new_page()
            for name, (address, also) in PAGES.items():
                if suffix.strip("-") not in ("", *also):
                    continue
                for theme in ("light", *(["dark"] if not suffix and "dark" in also else [])):
                    end = "-dark" if theme == "dark" else suffix
                    _look(page, f"{URL}{address.format(**numbers)}?theme={theme}", name + end)
        browser.close()


def _look(page: Any, url: str, name: str) -> None:
    page.goto(url)
    page.wait_for_load_state("networkidle")
    page.screenshot(path=str(INTO / f"{name}.png"))
    print(f"docs/images/pages/{name}.png")


if __name__ == "__main__":
    sys.exit(main())
