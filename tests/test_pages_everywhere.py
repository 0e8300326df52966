"""Every page in a real browser: light and dark, on a phone and on a projector.

Nothing is written to the console as an error, no request fails, nothing scrolls sideways, and
axe-core (vendored, WCAG 2.2 A and AA) finds nothing serious.
"""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.pages_day import NOW, stand_at
from tests.pages_everything import everything
from tests.pages_world import client_of
from tests.test_access_everywhere import PAGES
from tests.undoing import undone

pytestmark = [pytest.mark.browser, pytest.mark.once, pytest.mark.slow]
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
SIZES = {"phone": (360, 800), "projector": (1920, 1080)}
# Only colours differ between the themes, so that all else is looked at in one of them.
THEMES = {"light": "all", "dark": "colours"}
HALVES = (0, 1)  # as many as tests run at once
# What a job, a budget and a change set look like in other states than the table's.
MORE = (
    *("jobs?state=ended", "jobs/{waiting}", "jobs/{preempted}", "jobs/{service}"),
    *("plan?view=table", "budgets/orlo", "budgets/orlo/science/shares?set={change_set}"),
    *("simulator/{played}", "simulator/{played}/runs"),
)
SERIOUS = """async look => {
  const only = look == 'colours' ? {type: 'rule', values: ['color-contrast', 'link-in-text-block']}
    : {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']};
  const found = (await axe.run(document, {runOnly: only, resultTypes: ['violations']})).violations;
  return found.filter(v => ['serious', 'critical'].includes(v.impact))
    .map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.target.join(' ')).join(' | '));
}"""
# Colours of buttons fade over when the theme changes.
FADED = "() => Promise.allSettled(document.getAnimations().map(one => one.finished))"
# What follows the size of the window has done so.
DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
BEYOND = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def numbers(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    stand_at(monkeypatch, NOW)
    return everything().numbers


def addresses(numbers: dict[str, Any], half: int) -> list[str]:
    """Where a whole page is shown; files, fragments and what leads elsewhere are left out."""
    client: Client = client_of(numbers["user"])
    table = (address for method, address, _ in PAGES if method == "get")
    found = []
    for address in list(dict.fromkeys((*table, *MORE)))[half :: len(HALVES)]:
        path = "/" + address.format(**numbers)
        with undone():
            answer = client.get(path)
        html = answer.get("Content-Type", "").startswith("text/html")
        if html and answer.status_code == 200 and b"<html" in answer.content:
            found.append(path)
    return found


@pytest.mark.parametrize("half", HALVES)
def test_no_page_has_a_fault(browser_page: Any, numbers: dict[str, Any], half: int) -> None:
    page = browser_page(numbers["user"], "/")
    failed: list[str] = []
    page.on(
        "requestfailed",
        lambda asked: (
            None if _broken_off(asked) else failed.append(f"{asked.url}: {asked.failure}")
        ),
    )
    page.on(
        "response",
        lambda told: failed.append(f"{told.url}: {told.status}") if told.status >= 400 else None,
    )
    base = page.url.rstrip("/")
    wrong: dict[str, list[str]] = {}
    pages = addresses(numbers, half)
    assert len(pages) > 20
    for path in pages:
        faults = _faults(page, base + path)
        if faults:
            wrong[path] = faults
    assert not wrong, f"{wrong}, and of the network: {failed}"
    assert not failed


def _broken_off(asked: Any) -> bool:
    """Whether it is a page's poll that was under way when the page was left: no fault of it."""
    return asked.resource_type in ("xhr", "fetch") and asked.failure == "net::ERR_ABORTED"


def _faults(page: Any, url: str) -> list[str]:
    """Open a page on a phone, and then have it grow to a projector."""
    faults = []
    for name, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        if name == "phone":
            page.goto(url)
            page.wait_for_load_state("networkidle")
            page.evaluate(AXE)
        page.evaluate(DRAWN)
        beyond = page.evaluate(BEYOND)
        if beyond > 0:
            faults.append(f"{name}: scrolls sideways by {beyond} px")
        for theme, look in THEMES.items():
            page.evaluate("theme => document.documentElement.dataset.bsTheme = theme", theme)
            page.evaluate(FADED)
            faults += [f"{name}, {theme}: {fault}" for fault in page.evaluate(SERIOUS, look)]
    return faults
