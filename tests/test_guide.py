"""The guide: docs/ inside the pages, and where the question marks lead."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.test import Client

from config import guide
from tests import factories as make
from tests.pages_world import client_of

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
HELP = re.compile(r"{% help [^%]*%}")
TARGET = re.compile(r'"([a-z]+)#([^"]+)" %}$')


class Found(HTMLParser):
    """The ids and links of a page, and what its elements are called."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        self.attributes |= set(given)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if given.get("href") or given.get("src"):
            self.links.append(str(given.get("href") or given["src"]))


@pytest.fixture(scope="module")
def pages() -> dict[str, Found]:
    return {name: Found(guide.page(name).html) for name in guide.PAGES}


def of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> guide.Page:
    (tmp_path / "ledger.md").write_text(text)
    monkeypatch.setattr(guide, "FOLDER", tmp_path)
    return guide.page("ledger")


# --- Where help leads -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_question_mark_leads_to_a_heading_that_exists(path, pages):
    for tag in HELP.findall(path.read_text()):
        target = TARGET.search(tag)
        assert target, f"no page and heading in {tag}"
        page, heading = target.groups()
        assert page in pages, f"no page docs/{page}.md for {tag}"
        assert heading in pages[page].ids, f"no heading #{heading} in docs/{page}.md for {tag}"


def test_there_is_help_to_follow():
    assert sum(len(HELP.findall(path.read_text())) for path in TEMPLATES) > 40


# --- The pages of docs/ ---------------------------------------------------------------------------


def test_every_page_of_docs_is_listed_once():
    assert sorted(guide.PAGES) == sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("name", guide.PAGES)
def test_every_link_inside_the_guide_arrives(name, pages):
    for link in pages[name].links:
        address, _, heading = link.partition("#")
        if address.startswith("/docs/files/"):
            assert address.removeprefix("/docs/files/") in guide.files()
        elif not link.startswith("http"):
            there = address.removeprefix("/docs/") or name
            assert there in pages, link
            assert not heading or heading in pages[there].ids, link


@pytest.mark.parametrize("name", guide.PAGES)
def test_pages_keep_to_the_content_security_policy(name, pages):
    found = pages[name]
    assert "style" not in found.attributes
    assert not {one for one in found.attributes if one.startswith("on")}
    assert not found.tags & {"script", "style", "iframe", "form"}
    assert len(found.ids) == len(set(found.ids))


def test_headings_have_the_ids_that_github_gives(tmp_path, monkeypatch):
    text = "# One\n\n## A lead's plan\n\n## Data attributes (`ui.js`)\n\n## Moves\n\n## Moves\n"
    page = of_text(tmp_path, monkeypatch, text)
    assert [heading.id for heading in page.headings] == [
        *("one", "a-leads-plan", "data-attributes-uijs", "moves", "moves-1")
    ]
    assert [part.text for part in page.parts][1] == "Data attributes (ui.js)"


def test_a_page_says_what_it_is_about(tmp_path, monkeypatch):
    page = of_text(tmp_path, monkeypatch, "# The ledger\n\nIt has `entries` that\nstay. More.\n")
    assert (page.title, page.about) == ("The ledger", "It has entries that stay.")


def test_markup_is_text_and_comments_are_left_out(tmp_path, monkeypatch):
    text = "# One\n\n<!-- bench -->\n\na <b>bold</b> <script>x</script> end\n\n<div>x</div>\n"
    html = of_text(tmp_path, monkeypatch, text).html
    assert "bench" not in html
    assert "&lt;script&gt;x&lt;/script&gt;" in html
    assert "&lt;div&gt;" in html
    assert not Found(html).tags & {"b", "script", "div"}


def test_links_lead_to_where_things_are_here(tmp_path, monkeypatch):
    text = "# One\n\n[a](budgets.md#roles) [b](../CHANGELOG.md) [c](#one) [d](http://x.org/y)\n"
    html = of_text(tmp_path, monkeypatch, text).html
    assert Found(html).links == ["/docs/budgets#roles", "#one", "http://x.org/y"]
    assert "<span>b</span>" in html


def test_columns_of_numbers_are_to_the_right(tmp_path, monkeypatch):
    html = of_text(tmp_path, monkeypatch, "# One\n\n| a | b |\n|---|--:|\n| x | 1 |\n").html
    assert html.count('class="num"') == 2
    assert "<td>x</td>" in html


# --- Addresses ------------------------------------------------------------------------------------


@pytest.fixture
def client(db: None) -> Client:
    return client_of(make.make_user("ines"))


def test_the_guide_lists_its_pages_and_shows_them(client):
    html = client.get("/docs").content.decode()
    assert [html.count(f'href="/docs/{name}"') for name in guide.PAGES] == [1] * len(guide.PAGES)
    page = client.get("/docs/ledger").content.decode()
    assert '<h2 id="burn">' in page
    assert 'href="#burn"' in page
    assert 'aria-current="page"' in page


def test_a_picture_of_the_guide_is_served(client):
    answer = client.get("/docs/files/images/bench-families.svg")
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert b"".join(answer.streaming_content).startswith(b"<svg")


@pytest.mark.parametrize(
    "path", ["nothing", "files/nothing.png", "files/ledger.md", "files/../config/settings.py"]
)
def test_nothing_else_is_served(client, path):
    assert client.get(f"/docs/{path}").status_code == 404


@pytest.mark.parametrize("path", ["", "/ledger", "/files/images/bench-families.svg"])
def test_the_guide_is_for_who_is_signed_in(db, path):
    answer = Client().get(f"/docs{path}")
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/sign-in")


def test_readers_in_portuguese_are_told_that_it_is_in_english(client):
    html = client.get("/docs/ledger", headers={"Accept-Language": "pt-BR"}).content.decode()
    assert "em inglês" in html
    assert '<article class="card prose" lang="en">' in html
