"""The pages of docs/ as HTML: the guide that the pages' help leads to, with nothing from elsewhere.

Headings have the ids that GitHub gives them, so one address serves here and there.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from django.conf import settings
from django.urls import reverse
from django.utils.html import escape
from django.utils.translation import gettext_lazy as _
from markdown_it import MarkdownIt
from markdown_it.token import Token

FOLDER = Path(settings.BASE_DIR) / "docs"
# Every page of docs/ once, in the order in which they are listed.
GROUPS: Sequence[tuple[Any, Sequence[str]]] = (
    (_("Words and figures"), ("glossary", "figures")),
    (_("Budgets and money"), ("budgets", "ledger", "reports", "takeback")),
    (
        _("Jobs and plans"),
        ("allocator", "cycle", "fairshare", "sessions", "forecasting", "simulator"),
    ),
    (_("Running it"), ("install", "settings", "maintenance", "audit", "api", "demo")),
    (_("How it is built and measured"), ("ui", "testing", "benchmarks")),
)
PAGES = tuple(name for _group, names in GROUPS for name in names)
FILES = ("*.png", "*.svg", "*.csv", "*.json")  # what pages show or link to


@dataclass(frozen=True)
class Heading:
    """One heading of a page, by which it is linked to."""

    level: int
    id: str
    text: str


@dataclass(frozen=True)
class Page:
    """A page of the guide: trusted HTML, since docs/ is part of the program."""

    name: str
    title: str
    about: str  # its first sentence
    html: str
    headings: tuple[Heading, ...]

    @property
    def parts(self) -> list[Heading]:
        return [heading for heading in self.headings if heading.level == 2]


@dataclass(frozen=True)
class Group:
    """Pages that are listed together."""

    label: str
    pages: list[Page]


def groups() -> list[Group]:
    """Return all pages as they are listed."""
    return [Group(str(label), [page(name) for name in names]) for label, names in GROUPS]


def page(name: str) -> Page:
    """Return a page by its name, one of PAGES; read again where its file has changed."""
    return _read(name, (FOLDER / f"{name}.md").stat().st_mtime_ns)


@cache
def files() -> Mapping[str, Path]:
    """Return what pages show or link to, by the path inside docs/."""
    found = (path for kind in FILES for path in FOLDER.rglob(kind))
    return {path.relative_to(FOLDER).as_posix(): path for path in found}


@lru_cache(maxsize=64)
def _read(name: str, _changed: int) -> Page:
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    for kind in ("html_block", "html_inline"):
        markdown.add_render_rule(kind, _raw)
    markdown.add_render_rule("table_open", _scroll)
    markdown.add_render_rule("table_close", lambda *_: "</table></div>\n")
    tokens = markdown.parse((FOLDER / f"{name}.md").read_text())
    headings = tuple(_headings(tokens))
    for token in tokens:
        _align(token)
        if token.type in ("code_block", "fence"):
            token.attrSet("tabindex", "0")  # what scrolls sideways is reached by the keyboard
        _link(token.children or [])
    html = str(markdown.renderer.render(tokens, markdown.options, {}))
    return Page(name, headings[0].text, _first_sentence(tokens), html, headings)


def _raw(_self: Any, tokens: Sequence[Token], at: int, *_: Any) -> str:
    """Leave comments out, which mark what is written by commands; show all else as text."""
    text = tokens[at].content
    return "" if text.lstrip().startswith("<!--") else escape(text)


def _scroll(*_: Any) -> str:
    return '<div class="al-scroll" tabindex="0"><table class="al-t">\n'


def _headings(tokens: Sequence[Token]) -> Iterator[Heading]:
    """Give every heading its id, and yield them."""
    seen: dict[str, int] = {}
    for token, inline in pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = _text(inline)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number = seen.get(slug, 0)
        seen[slug] = number + 1
        token.attrSet("id", f"{slug}-{number}" if number else slug)
        yield Heading(int(token.tag[1:]), str(token.attrGet("id")), text)


def _text(inline: Token) -> str:
    """Return what is read of an inline token."""
    return "".join(one.content or " " * (one.type == "softbreak") for one in inline.children or [])


def _first_sentence(tokens: Sequence[Token]) -> str:
    starts = (n for n, token in enumerate(tokens) if token.type == "paragraph_open")
    first = next(starts, None)
    text = "" if first is None else _text(tokens[first + 1])
    return re.split(r"(?<=[.:]) ", text, maxsplit=1)[0].rstrip(":.") + "." if text else ""


def _align(token: Token) -> None:
    """Say by a class how a cell is aligned: the policy allows no inline style."""
    style = token.attrs.pop("style", None)
    if style == "text-align:right":
        token.attrSet("class", "num")


def _link(children: Sequence[Token]) -> None:
    """Lead links and pictures to where they are here; what is not here is plain text."""
    gone = False
    for token in children:
        if token.type == "image":
            token.attrSet("src", _address(str(token.attrGet("src"))))
            token.attrSet("loading", "lazy")
        elif token.type == "link_open":
            address = _address(str(token.attrGet("href")))
            gone = not address
            token.tag, token.attrs = ("span", {}) if gone else ("a", {"href": address})
            if address.startswith("http"):
                token.attrSet("rel", "noreferrer")
        elif token.type == "link_close" and gone:
            token.tag = "span"


def _address(target: str) -> str:
    """Return where a link of docs/ leads on the pages, "" where it leads out of docs/."""
    path, mark, part = target.partition("#")
    name = path.removesuffix(".md")
    if not path or path.startswith(("http:", "https:")):
        return target
    if path.endswith(".md") and name in PAGES:
        return reverse("guide-page", args=[name]) + mark + part
    return reverse("guide-file", args=[path]) if path in files() else ""
