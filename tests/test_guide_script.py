"""The question mark in a browser: hover, focus and a first touch open it; it leads to the guide."""

from typing import Any

import pytest

from tests.factories import make_cast
from tests.pages_day import NOW, play, stand_at

pytestmark = [pytest.mark.browser, pytest.mark.once, pytest.mark.slow]
MARK = ".al-pyr .q >> nth=0"


@pytest.fixture
def overview(transactional_db: None, monkeypatch: pytest.MonkeyPatch, browser_page: Any) -> Any:
    stand_at(monkeypatch, NOW)
    day = play()
    return browser_page(make_cast(day.place.tree)["admin"], "/")


def test_the_formula_opens_on_focus_and_enter_opens_its_heading(overview):
    overview.focus(MARK)
    assert overview.inner_text(".al-pop").startswith("Healthy GPUs ÷ inventory")
    with overview.context.expect_page() as opened:
        overview.keyboard.press("Enter")
    guide = opened.value
    guide.wait_for_selector("#availability:target")
    overview.keyboard.press("Escape")
    assert overview.is_hidden(".al-pop")


def test_the_formula_stays_while_the_pointer_goes_into_it(overview):
    overview.hover(MARK)
    overview.wait_for_selector(".al-pop:visible")
    overview.hover(".al-pop a")
    overview.wait_for_timeout(400)
    with overview.context.expect_page() as opened:
        overview.click(".al-pop a")
    opened.value.wait_for_selector("#availability:target")
    overview.hover("h1")
    overview.wait_for_selector(".al-pop", state="hidden")


def test_a_first_touch_opens_the_formula_and_goes_nowhere(overview):
    touch = "{pointerType: 'touch', bubbles: true, cancelable: true}"
    for kind in ("pointerdown", "click"):
        event = f"mark => mark.dispatchEvent(new PointerEvent('{kind}', {touch}))"
        overview.eval_on_selector(MARK, event)
    assert overview.is_visible(".al-pop")
    assert len(overview.context.pages) == 1
