"""What holds for every template and asset: the policy, the sprite, what is vendored."""

import re
from pathlib import Path

import pytest
from django.template.loader import get_template, render_to_string

from clusters.palette import HUES

pytestmark = pytest.mark.once
ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
OWN = sorted((ROOT / "static").glob("*.*"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.name)
def test_templates_keep_to_the_content_security_policy(path):
    text = path.read_text()
    assert not re.findall(r"\sstyle=", text), "inline style is blocked"
    assert not re.findall(r"\son[a-z]+=", text), "inline handlers are blocked"
    assert not re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", text), "inline scripts are blocked"
    assert "<style" not in text
    assert not re.findall(r"(?:src|href)=.https?:", text), "nothing is asked from elsewhere"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.name)
def test_templates_compile(path):
    name = str(path.relative_to(ROOT / "templates"))
    assert get_template(name).template.name == name


def test_every_icon_in_use_is_in_the_sprite():
    sprite = set(re.findall(r'id="i-([a-z0-9-]+)"', (ROOT / "templates/_icons.html").read_text()))
    code = [*TEMPLATES, *ROOT.glob("*/templatetags/*.py"), *ROOT.glob("*/views.py")]
    used = set()
    for path in code:
        text = path.read_text()
        used |= set(re.findall(r'{% icon "([a-z0-9-]+)"', text))
        used |= set(re.findall(r'\bicon="([a-z0-9-]+)"', text))
    from clusters.templatetags.figures import NAVIGATION, REASON_ICONS

    used |= set(REASON_ICONS.values())
    used |= {symbol for _, entries in NAVIGATION for _, symbol, _ in entries}
    assert used
    assert used <= sprite


def test_patterns_exist_for_every_hue():
    ids = set(
        re.findall(r'<pattern id="([a-z0-9-]+)"', (ROOT / "templates/_icons.html").read_text())
    )
    hues = [*map(str, range(HUES + 1)), "grey"]
    assert ids == {f"{kind}-{hue}" for kind in ("hatch", "pale") for hue in hues} | {"cross"}


def test_a_failed_server_still_has_a_page():
    html = render_to_string("500.html")
    assert "Something failed on our side" in html
    assert "<main" in html


def test_vendored_files_point_nowhere_and_are_named_in_the_notice():
    notice = (ROOT / "NOTICE").read_text()
    for path in (ROOT / "static/vendor").iterdir():
        if path.is_dir():
            continue
        assert path.name in notice
        if path.suffix in {".js", ".css"}:
            assert "sourceMappingURL" not in path.read_text()
    for name in re.findall(r"licenses/([\w.-]+\.txt)", notice):
        assert (ROOT / "static/vendor/licenses" / name).read_text().strip()


def test_dark_and_light_define_the_same_colours():
    css = (ROOT / "static/allotment.css").read_text()
    blocks = re.findall(r"\[data-bs-theme=(light|dark)\] \{\s*color-scheme[^}]*\}", css)
    assert blocks == ["light", "dark"]
    light, dark = (
        set(re.findall(r"(--al-[\w-]+):", block))
        for block in re.findall(r"color-scheme: \w+;([^}]*)\}", css)
    )
    assert light == dark
    assert {"--al-h1", "--al-h4-t", "--al-ink", "--al-red-ink"} <= light
