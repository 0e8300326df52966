"""Pictures of the main pages, from the demo institute's day: `./run pictures`.

The day is played into an empty database of its own; the pages are served as they are and looked at
in Chromium, light, dark and on a phone. Written to docs/images/pages/.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import time_machine
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
INTO = ROOT / "docs" / "images" / "pages"
PORT = 8791
URL = f"http://127.0.0.1:{PORT}"
WHO = "marta"  # of the demo: manages the institute
OTHER = "ines"  # manages Science, whose shares both change at once
ADMIN = "bo"  # administers everything
NEW = "dora"  # was given a password that serves once
# The day that is played ends here: late in the quarter, so that a day is a tenth of what is granted
# and there is a verdict; and always the same, so that pictures differ only where the pages do.
AT = datetime(2026, 12, 22, 20, 32, 8, tzinfo=UTC)
PATIENCE_MS = 120_000  # for a page, also on a machine that is busy
LONGEST = 2600  # pixels of a page that is still looked at as a whole
SIZES = {"": (1440, 900), "-phone": (390, 844)}
# Which pages, and which of them also dark and on a phone; docs/ui.md shows the same.
PAGES = {
    "overview": ("/", {"dark", "phone"}),
    "budgets": ("/budgets", {"dark", "phone"}),
    "shares": ("/budgets/orlo/shares?set={change_set}", set[str]()),
    "budget": ("/budgets/orlo/science/petrel", {"dark", "phone"}),
    "jobs": ("/jobs", {"phone"}),
    "job": ("/jobs/{job}", {"dark", "phone"}),
    "plan": ("/plan", {"dark"}),
    "review": ("/reviews/{period}/orlo/science", set[str]()),
    "simulator": ("/simulator/{simulation}", set[str]()),
    "forecasts": ("/forecasts", set[str]()),
    "cycle": ("/cycles/{cycle}", set[str]()),
    "people": ("/settings/people", {"phone"}),
    "guide": ("/docs/figures", {"dark"}),
}
EDITOR = "/budgets/orlo/science/shares"
# What each of the two wants, and why: Ines puts hers in force, and then Marta tries the same.
WANTED = {
    OTHER: ({"petrel": "30", "auk": "25"}, "The sky emulator goes first in January"),
    WHO: ({"petrel": "40", "tern": "40"}, "Storm season lasts into January"),
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
        with time_machine.travel(AT):
            numbers, cookies = _play()
        with time_machine.travel(AT), _served():
            _take(chromium, numbers, cookies)
    return 0


def _play() -> tuple[dict[str, int], dict[str, str]]:
    """The numbers of what pages are about, the cookies of three, and the password of who is new."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    from allocator.models import Cycle
    from budgets import signing_in
    from budgets.models import ChangeSet, Period
    from workloads.models import Job, Run

    call_command("migrate", verbosity=0)
    call_command("demo", quiet=True)
    cookies = {}
    for who in (WHO, OTHER, ADMIN):
        client = Client()
        client.force_login(User.objects.get(username=who))
        cookies[who] = client.cookies["sessionid"].value
    stopped = Run.objects.filter(end_reason=Run.EndReason.PREEMPTED, job__minimum_runtime_s__gt=0)
    jobs = Job.objects.filter(pk__in=stopped.values("job")).order_by("-pk")
    numbers = {
        "job": (jobs.filter(state=Job.State.RUNNING).first() or jobs[0]).pk,
        "period": Period.objects.get(status=Period.Status.ACTIVE).pk,
        "cycle": Cycle.objects.latest("pk").pk,
        "change_set": ChangeSet.objects.get(status=ChangeSet.Status.PROPOSED).pk,
        "simulation": _simulated(),
    }
    new = User.objects.get(username=NEW)
    return numbers, cookies | {NEW: signing_in.give_one_time_password(user=new, now=AT)}


def _simulated() -> int:
    """The number of a simulation of the day under two policies."""
    from django.contrib.auth.models import User

    from allocator.simulating import asking, running

    asking.ask(
        by=User.objects.get(username=WHO),
        now=AT,
        window=(AT - timedelta(days=1), AT.replace(minute=0, second=0)),
        policies=("fairshare", "fifo"),
    )
    played = running.run_next(clock=lambda: AT)
    assert played is not None, "no simulation was played"
    return played.pk


@contextmanager
def _served() -> Iterator[None]:
    """Serve from this process, whose clock stands where the day ended and goes on from there."""
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

    from config.wsgi import application

    class Quiet(WSGIRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: what is printed are the pictures."""

    server = ThreadedWSGIServer(("127.0.0.1", PORT), Quiet)
    server.set_app(application)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _take(chromium: str, numbers: dict[str, int], cookies: dict[str, str]) -> None:
    from playwright.sync_api import sync_playwright

    INTO.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for suffix in SIZES:
            page = _page(browser, cookies[WHO], suffix)
            for name, (address, also) in PAGES.items():
                if suffix.strip("-") not in ("", *also):
                    continue
                for theme in ("light", *(["dark"] if not suffix and "dark" in also else [])):
                    end = "-dark" if theme == "dark" else suffix
                    page.emulate_media(color_scheme=theme)
                    _look(page, URL + address.format(**numbers), name + end, suffix)
        _choose_password(browser, cookies[NEW])
        _name_nodes(browser, cookies[ADMIN])
        _collide(browser, cookies)
        browser.close()


def _page(browser: Any, cookie: str, suffix: str = "") -> Any:
    """A page of somebody who is signed in, whose clock stands where the day ended."""
    width, height = SIZES[suffix]
    context = browser.new_context(viewport={"width": width, "height": height})
    context.set_default_timeout(PATIENCE_MS)
    context.clock.set_fixed_time(AT)
    context.add_cookies([{"name": "sessionid", "value": cookie, "url": URL}])
    return context.new_page()


def _choose_password(browser: Any, password: str) -> None:
    """Whoever signs in with a password that serves once is asked for their own."""
    page = _page(browser, "")
    page.goto(f"{URL}/sign-in")
    page.fill("#id_username", NEW)
    page.fill("#id_password", password)
    page.press("#id_password", "Enter")
    page.wait_for_url("**/password**")
    for suffix in SIZES:
        _shoot(page, f"password{suffix}", suffix)


def _name_nodes(browser: Any, cookie: str) -> None:
    """What two more nodes would do stands beside while they are typed; nothing is written."""
    for suffix in SIZES:
        page = _page(browser, cookie, suffix)
        page.goto(f"{URL}/settings/pools/h100/nodes")
        page.fill("#id_nodes", "h100-n[07-08]")
        page.fill("#id_label", "rack 4")
        page.wait_for_selector("#does table")
        _shoot(page, f"nodes-new{suffix}", suffix)


def _collide(browser: Any, cookies: dict[str, str]) -> None:
    """Two managers change the same shares: the second is shown both versions. Changes the day."""
    pages = {who: _page(browser, cookies[who]) for who in WANTED}
    for who, (wanted, reason) in WANTED.items():
        pages[who].goto(URL + EDITOR)
        for slug, share in wanted.items():
            pages[who].fill(f"[data-share={slug}]", share)
        pages[who].fill("#id_reason", reason)
    for page in pages.values():
        page.click("button[value=approve]:visible")
        page.wait_for_load_state("networkidle")
    pages[WHO].locator("table.conf").wait_for()
    _shoot(pages[WHO], "conflict", "")


def _look(page: Any, url: str, name: str, suffix: str = "") -> None:
    # The height of the page before would stay, and what a shorter one leaves is blank.
    page.set_viewport_size(dict(zip(("width", "height"), SIZES[suffix], strict=True)))
    page.goto(url)
    page.wait_for_load_state("networkidle")
    _shoot(page, name, suffix)


def _shoot(page: Any, name: str, suffix: str) -> None:
    width, height = SIZES[suffix]
    whole = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": min(LONGEST, max(height, whole))})
    page.wait_for_timeout(200)  # charts draw themselves anew
    file = INTO / f"{name}.png"
    page.screenshot(path=str(file))
    with Image.open(file) as seen:  # the same points in fewer bytes
        picture = seen.convert("RGB")
    picture.save(file, optimize=True)
    print(f"docs/images/pages/{name}.png")


if __name__ == "__main__":
    sys.exit(main())
