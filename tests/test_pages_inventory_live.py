"""Adding a node, taking one out of use and giving a first role, in a real browser."""

from typing import Any

import pytest

from clusters.models import Node
from tests import factories as make
from tests.factories import HOUR, T0
from tests.helpers import Institute, make_institute
from tests.pages_day import stand_at

pytestmark = [pytest.mark.browser, pytest.mark.once]
NOW = T0 + HOUR


@pytest.fixture
def place(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Institute:
    stand_at(monkeypatch, NOW)
    return make_institute(nodes=2)


@pytest.mark.parametrize("width", [1440, 360])
def test_what_a_change_does_stands_there_before_it_is_done(
    place: Institute, browser_page: Any, width: int
) -> None:
    ada = make.make_user("ada")
    make.make_role(ada, place.tree["orlo"], "administrator")
    page = browser_page(ada, "/settings/pools/h100/nodes", width)
    does = page.locator("#does")
    page.fill("#id_nodes", place.nodes[0].name)
    does.get_by_text("a name is given once only").wait_for()
    page.fill("#id_nodes", "h100-n9")
    does.get_by_text("has 24 GPUs").wait_for()
    page.fill("#id_reason", "bought")
    page.get_by_role("button", name="Add the nodes").click()
    page.get_by_role("link", name="h100-n9").click()
    page.fill("#id_effective_at", "2026-10-02T00:00")
    does.get_by_text("has 16 GPUs").wait_for()
    page.fill("#id_reason", "sold")
    page.get_by_role("button", name="Take it out of use").click()
    page.get_by_text("until 2026-10-02 00:00 UTC").wait_for()
    assert Node.objects.get(name="h100-n9").active_until == T0 + 24 * HOUR


def test_a_manager_gives_a_first_role(place: Institute, browser_page: Any) -> None:
    boss, zoe = make.make_user("boss"), make.make_user("zoe", first_name="Zoe", last_name="Lima")
    make.make_role(boss, place.tree["orlo/science"], "manager")
    page = browser_page(boss, "/", 1440)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="People").click()
    page.get_by_role("link", name="Give somebody a role").click()
    page.fill("#id_account", "zoe@example.org")
    page.get_by_role("button", name="Find them").click()
    page.get_by_text("Zoe Lima").wait_for()
    page.get_by_role("button", name="Give the role").click()
    page.wait_for_url(f"**/settings/people/{zoe.pk}")
    assert [role.kind for role in zoe.roles.all()] == ["member"]
