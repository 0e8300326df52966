"""The reader's language: how it is chosen, who stays English, and what it never touches."""

import json
import re
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.http import HttpResponse
from django.template import engines
from django.test import Client, RequestFactory
from django.utils import translation

from allocator.models import Cycle
from budgets.forms.fields import Percent, amount_of
from clusters import numerals
from config.language import ReadersLanguage
from tests import factories as make
from tests.pages_day import NOW, Day, stand_at
from tests.pages_world import client_of

pytestmark = pytest.mark.once

PORTUGUESE = {"HTTP_ACCEPT_LANGUAGE": "pt-BR,pt;q=0.9,en;q=0.5"}
LANG = re.compile(r'<html lang="([^"]+)"')


def spoken(answer: Any) -> str:
    """Return the language of a page; its header and its element agree."""
    found = LANG.search(answer.content.decode())
    assert found
    assert found[1] == answer.headers["Content-Language"]
    return found[1]


# --- Which language -------------------------------------------------------------------------------


def test_the_browser_is_heard_until_the_reader_chooses(db):
    client = Client()
    assert spoken(client.get("/sign-in")) == "en"
    assert spoken(client.get("/sign-in", **PORTUGUESE)) == "pt-br"
    assert spoken(client.get("/sign-in", HTTP_ACCEPT_LANGUAGE="de,fr")) == "en"
    client.post("/language", {"language": "en", "next": "/sign-in"})
    assert spoken(client.get("/sign-in", **PORTUGUESE)) == "en"


def test_a_choice_stays_on_the_page_and_is_kept(cast):
    client = client_of(cast["admin"])
    page = client.get("/budgets?show=all").content.decode()
    assert 'action="/language"' in page
    assert 'value="/budgets?show=all"' in page
    answer = client.post("/language", {"language": "pt-br", "next": "/budgets?show=all"})
    assert (answer.status_code, answer.url) == (302, "/budgets?show=all")
    cookie = answer.cookies[settings.LANGUAGE_COOKIE_NAME]
    assert int(cookie["max-age"]) == settings.LANGUAGE_COOKIE_AGE
    assert cookie["httponly"]
    assert spoken(client.get("/budgets")) == "pt-br"
    assert spoken(client.get("/no-such-page")) == "pt-br"


def test_a_choice_leads_nowhere_else_and_needs_the_token(cast):
    client = client_of(cast["admin"])
    away = {"language": "pt-br", "next": "https://example.org/"}
    assert client.post("/language", away).url == "/"
    strict = Client(enforce_csrf_checks=True)
    assert strict.post("/language", {"language": "pt-br", "next": "/"}).status_code == 403


def test_each_language_is_named_in_itself(db):
    page = Client().get("/sign-in").content.decode()
    assert 'lang="pt-br">' in page
    assert "Português" in page
    page = Client().get("/sign-in", **PORTUGUESE).content.decode()
    assert 'value="en" lang="en">' in page
    assert ">English</button>" in page.replace("</svg>", ">")


# --- Who stays English ----------------------------------------------------------------------------


@pytest.mark.parametrize("cookie", [False, True])
def test_the_api_is_english_whatever_is_asked(cast, api_of, cookie):
    client = api_of("manager")
    if cookie:
        client.cookies[settings.LANGUAGE_COOKIE_NAME] = "pt-br"
    plain = Client().get("/api/v1/budgets/", **PORTUGUESE)
    assert plain.json()["detail"] == "Authentication credentials were not provided."
    for answer in (
        client.get("/api/v1/budgets/orlo/nothing/", **PORTUGUESE),
        client.post("/api/v1/jobs/", {"gpus": "many"}, **PORTUGUESE),
        client.get("/api/v1/budgets/", **PORTUGUESE),
    ):
        again = getattr(client, answer.request["REQUEST_METHOD"].lower())
        assert answer.headers["Content-Language"] == "en"
        if answer.status_code >= 400 and answer.request["REQUEST_METHOD"] == "POST":
            assert answer.json() == again("/api/v1/jobs/", {"gpus": "many"}).json()
            assert "This field is required." in answer.content.decode()


def test_a_page_leaves_no_language_behind(db, capsys):
    assert spoken(Client().get("/sign-in", **PORTUGUESE)) == "pt-br"
    assert translation.get_language() == "en"
    call_command("check")
    assert "no issues" in capsys.readouterr().out


# --- Caches ---------------------------------------------------------------------------------------


@pytest.fixture
def reader(db: Any, played: Day, monkeypatch: pytest.MonkeyPatch) -> User:
    stand_at(monkeypatch, NOW)
    own = ("budgets.views.diffs", "budgets.views.asked", "ledger.views", "allocator.views.reviews")
    for module in own:
        monkeypatch.setattr(f"{module}.now", lambda: NOW)
    user = make.make_user("leitora")
    make.make_role(user, played.place.tree["orlo"], "administrator")
    return user


@pytest.mark.parametrize("url", ["/", "/jobs", "/plan"])
def test_a_part_of_one_language_never_answers_for_another(reader, url):
    client = client_of(reader)
    english = client.get(url, HTTP_HX_REQUEST="true")
    kept = {"HTTP_HX_REQUEST": "true", "HTTP_IF_NONE_MATCH": english.headers["ETag"]}
    assert client.get(url, **kept).status_code == 304
    other = client.get(url, **kept, **PORTUGUESE)
    assert other.status_code == 200
    assert other.headers["ETag"] != english.headers["ETag"]
    for answer in (english, other):
        vary = {one.strip().lower() for one in answer.headers["Vary"].split(",")}
        assert {"accept-language", "cookie", "hx-request"} <= vary


def test_caches_hear_of_the_choice_where_nothing_else_asked_for_a_cookie():
    page = ReadersLanguage(lambda request: HttpResponse())(RequestFactory().get("/somewhere"))
    assert page.headers["Vary"] == "Cookie, Accept-Language"
    told = ReadersLanguage(lambda request: HttpResponse())(RequestFactory().get("/api/v1/me/"))
    assert "Vary" not in told.headers


# --- What a language never touches ----------------------------------------------------------------

PAGES = (
    *("/", "/budgets", "/budgets?view=treemap", "/plan", "/plan?view=table", "/jobs", "/jobs/new"),
    *("/budgets/{budget}", "/budgets/{program}", "/budgets/{program}/shares", "/periods"),
    *("/budgets/{budget}/report", "/budgets/{program}/report", "/budgets/{budget}/plan"),
    *("/budgets/{budget}/requests", "/budgets/{program}/transfers", "/budgets/{program}/diff"),
    *("/jobs/{storm}", "/jobs/{flood}", "/jobs/{sky}", "/periods/{period}", "/requests"),
    *("/periods/{period}/checkpoints", "/simulator", "/reviews", "/reviews/{period}/{program}"),
    *("/cycles", "/cycles/{cycle}", "/forecasts", "/audit", "/nodes", "/notices"),
    *("/search?q=o", "/nothing", "/settings/pools"),
)
FILES = (
    *("/plan.json", "/budgets/{program}/burn.json", "/budgets/{program}/burn.csv"),
    *("/jobs/{storm}/charges.csv", "/simulator/history.csv", "/cycles/{cycle}/plan.json"),
    *("/reviews/{period}/{program}.csv", "/audit.csv"),
)
NUMERIC = {
    *("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "ry", "width", "height", "dx"),
    *("dy", "stroke-width", "min", "max", "step", "rows", "cols", "size", "colspan", "rowspan"),
    *("maxlength", "minlength", "aria-valuenow", "aria-valuemin", "aria-valuemax", "offset"),
}
NUMBER = re.compile(r"-?(\d+(\.\d+)?|\.\d+)%?")
SPOKEN = {"title", "alt", "placeholder", "content", "lang", "label"}
SAID = re.compile(r"aria-(label|description|valuetext|placeholder)|data-(.*word.*|help|over|wrong|"
                  r"label|more|says|total-name|confirm|over-row|over-all)|hx-confirm")  # fmt: skip


class Attributes(HTMLParser):
    """Every attribute but those that are words, in order; the JSON blocks beside them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self.blocks: list[Any] = []
        self._in_block = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in_block = given.get("type") == "application/json"
        hidden = given.get("name") in ("csrfmiddlewaretoken", "key", "language")
        for name, value in given.items():
            if name in SPOKEN or SAID.fullmatch(name) or name in ("hx-headers", "form"):
                continue
            if name == "value" and (hidden or given.get("inputmode") == "decimal"):
                continue
            self.found.append((tag, name, value))

    def handle_data(self, data: str) -> None:
        if self._in_block and data.strip():
            self.blocks.append(json.loads(data))
            self._in_block = False


def bare(data: Any) -> Any:
    """Return JSON without its words: the numbers, instants and names of the fields."""
    if isinstance(data, dict):
        return {key: bare(one) for key, one in data.items() if key not in ("words", "tip")}
    if isinstance(data, list):
        return [bare(one) for one in data]
    return data if not isinstance(data, str) or re.match(r"\d{4}-\d\d", data) else "word"


@pytest.fixture
def places(played: Day) -> dict[str, Any]:
    jobs = {name: job.pk for name, job in played.jobs.items()}
    cycle = Cycle.objects.filter(status=Cycle.Status.COMMITTED).latest("pk").pk
    names = {"budget": "orlo/science/petrel", "program": "orlo/science", "cycle": cycle}
    return jobs | names | {"period": played.place.period.pk}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_differs_in_words_alone(reader, places, page):
    client, url = client_of(reader), page.format(**places)
    english = Attributes(client.get(url).content.decode())
    answer = client.get(url, **PORTUGUESE)
    assert spoken(answer) == "pt-br"
    theirs = Attributes(answer.content.decode())
    random = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f-]{12,}")
    for (tag, name, one), other in zip(english.found, theirs.found, strict=True):
        if (tag, name) == ("button", "value") or tag == "button" or random.search(one):
            continue
        assert (tag, name, one) == other, url
    for tag, name, value in theirs.found:
        if name in NUMERIC:
            assert NUMBER.fullmatch(value) or value == "", f"{url}: <{tag} {name}={value!r}>"
    assert [bare(one) for one in theirs.blocks] == [bare(one) for one in english.blocks]


@pytest.mark.parametrize("file", FILES)
def test_files_hold_the_same_numbers_in_every_language(reader, places, file):
    client, url = client_of(reader), file.format(**places)
    english, theirs = client.get(url), client.get(url, **PORTUGUESE)
    assert english.status_code == theirs.status_code == 200
    bodies = [b"".join(one) if one.streaming else one.content for one in (english, theirs)]
    if ".json" in url:
        assert bare(json.loads(bodies[0])) == bare(json.loads(bodies[1]))
    else:
        assert bodies[0] == bodies[1]


def test_a_template_writes_bare_numbers_plainly():
    asked = '{% load i18n %}<rect x="{{ x }}"/>{% blocktranslate %}{{ x }}{% endblocktranslate %}'
    with translation.override("pt-br"):
        made = engines.all()[0].from_string(asked).render({"x": 1234.5})
    assert made == '<rect x="1234.5"/>1234.5'


# --- Numbers as they are typed --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        *(("33,3", "33.3"), ("33.3", "33.3"), ("1.234,56", "1234.56"), ("1,234.56", "1234.56")),
        *(("1 234,5", "1234.5"), ("1\u202f234.5", "1234.5"), ("1.234.567", "1234567")),
        *(("1.234", "1.234"), ("1,234", "1.234"), ("12", "12"), ("", ""), ("abc", "abc")),
        *(("1.23.4", "1.23.4"), ("1,2,3", "1,2,3"), ("1.234.5,6", "1.234.5,6")),
        *(("1,23.4", "1,23.4"), ("1.234,567.8", "1.234,567.8")),
    ],
)
def test_a_comma_or_a_point_may_stand_before_decimals(text, plain):
    assert numerals.plain(text) == plain


@pytest.mark.parametrize("language", ["en", "pt-br"])
def test_shares_and_amounts_are_read_alike_and_shown_as_typed(language):
    with translation.override(language):
        assert Percent().clean("33,3") == Percent().clean("33.3 %") == 33_300
        assert amount_of(numerals.plain("1.250,5"), "credits") == 1250 * 3_600_000 + 1_800_000
        shown = Percent().prepare_value(33_333)
        assert shown == ("33,333" if language == "pt-br" else "33.333")
        assert Percent().clean(shown) == 33_333


def test_the_editor_shows_shares_as_they_are_typed(reader):
    client = client_of(reader)
    page = client.get("/budgets/orlo/shares", **PORTUGUESE).content.decode()
    values = dict(re.findall(r'name="(share\.[a-z0-9-]+)"[^>]*value="([^"]*)"', page)) or dict(
        (b, a) for a, b in re.findall(r'value="([^"]*)"[^>]*name="(share\.[a-z0-9-]+)"', page)
    )
    assert values
    assert all(re.fullmatch(r"\d+,\d{3}", value) for value in values.values())


def test_rates_take_a_comma_too():
    assert [numerals.Number().clean(text) for text in ("1,5", "1.5", "1.234,5")] == [
        *(Decimal("1.5"), Decimal("1.5"), Decimal("1234.5")),
    ]
