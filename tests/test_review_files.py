"""Review packs as PDF, workbook and CSV, and over the API: the same pack as the page's."""

import csv
import io
import re
import zlib
from dataclasses import replace

import pytest

from allocator.models import ReviewComment, ReviewRecord
from allocator.pages import review_paper, review_pdf, reviews
from allocator.pages.review_paper import MISSING, Paper
from allocator.reviews import building
from allocator.reviews.freezing import frozen
from config import clock
from ledger.burn_report import ADDITIVE
from tests.burn_world import odd_ledger
from tests.pages_world import at, client_of
from tests.test_pages_reviews import NOW
from tests.test_reports_files import sheets

pytestmark = [pytest.mark.django_db, pytest.mark.once]
TYPES = {
    "pdf": "application/pdf",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "csv": "text/csv; charset=utf-8",
}


@pytest.fixture
def world(cast, tree, monkeypatch):
    period = odd_ledger(tree)
    at(monkeypatch, NOW)
    monkeypatch.setattr(clock, "now", lambda: NOW)
    return tree, period


@pytest.fixture
def said(monkeypatch):
    """Every text that is put on paper, in order."""
    texts: list[str] = []
    put = Paper.put

    def note(self, x, y, text, **where):
        texts.append(text)
        assert -1 <= x <= 210
        assert 0 <= y <= 297
        put(self, x, y, text, **where)

    monkeypatch.setattr(Paper, "put", note)
    return texts


def drawn(cast, pack, who="admin") -> bytes:
    shown = reviews.sheets_of(cast[who], pack)
    return review_pdf.pdf(pack, shown, kept=None, by="Ada", institute="Orlo", now=NOW)


def streams(pdf: bytes) -> str:
    """Return what pages draw."""
    found = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    texts = []
    for one in found:
        try:
            texts.append(zlib.decompress(one))
        except zlib.error:
            continue
    return b"\n".join(texts).decode("latin-1")


@pytest.mark.parametrize("kind", TYPES)
def test_page_and_api_send_the_same_file(cast, world, api_of, kind):
    _, period = world
    mine = client_of(cast["manager"]).get(f"/reviews/{period.pk}/orlo/science.{kind}")
    theirs = api_of("manager").get(f"/api/v1/reviews/files/{kind}/{period.pk}/orlo/science/")
    assert mine.status_code == theirs.status_code == 200
    assert mine["Content-Type"] == theirs["Content-Type"] == TYPES[kind]
    assert mine["Content-Disposition"] == theirs["Content-Disposition"]
    assert f"review-orlo-science-2026-10-01.{kind}" in mine["Content-Disposition"]
    if kind != "xlsx":  # whose parts carry the time of day
        assert mine.content == theirs.content


def test_files_have_the_figures_of_the_pack(cast, world):
    tree, period = world
    pack = building.build(budget=tree["orlo"], period=period, now=NOW)
    client = client_of(cast["admin"])
    text = client.get(f"/reviews/{period.pk}/orlo.csv").content.decode()
    *rows, total = csv.DictReader(io.StringIO(text))
    for name in ADDITIVE:
        assert sum(int(row[name]) for row in rows) == int(total[name])
        assert int(total[name]) == getattr(pack.total.burn, name)
    book = sheets(client.get(f"/reviews/{period.pk}/orlo.xlsx").content)
    assert list(book) == [
        *("Budgets", "Weeks", "Waits", "Jobs", "People", "Requests", "Changes", "By hand"),
        *("Options", "Comments", "About"),
    ]
    head, *lines = book["Budgets"]
    settled = next(column for column, name in head.items() if name == "settled_mgpus")
    assert lines[-1]["A"] == "total"
    assert lines[-1][settled] == pack.total.burn.settled_mgpus
    assert "'=sweep" in [line.get("B") for line in book["Jobs"]]


def test_the_pdf_says_what_the_page_says(cast, world, said):
    tree, period = world
    pack = building.build(budget=tree["orlo/science"], period=period, now=NOW)
    made = drawn(cast, pack)
    shown = reviews.sheets_of(cast["admin"], pack)
    assert made.startswith(b"%PDF-1.")
    assert made.count(b"/Type /Page\n") == 2
    assert b"/ToUnicode" in made  # text can be selected and searched
    assert shown.title in said
    assert {key.value for key in shown.keys} <= set(said)
    for table in (shown.projects, *shown.pairs[0], *shown.pairs[1], *shown.decided):
        assert table.title in said
        for cell in (*table.foot, *(cell for row in table.rows for cell in row)):
            assert not cell.numeric or cell.text in said
    assert any("made by Ada, 1 Oct 2026 03:07" in text for text in said)
    assert " l\n" in streams(made)  # its charts are lines, no pictures
    assert b"/Subtype /Image" not in made


def test_sixty_budgets_and_any_script_are_two_sheets(cast, world, said):
    tree, period = world
    pack = building.build(budget=tree["orlo/science"], period=period, now=NOW)
    names = (
        "Previsão de tempestades e ressacas no litoral sul",
        "x" * 100,
        "مشروع",
        "פרויקט",
        "Проект",
    )
    rows = tuple(
        replace(pack.rows[0], label=f"{names[n % len(names)]} {n}", budget=1000 + n)
        for n in range(60)
    )
    waits = tuple(replace(pack.waits[0], budget=row.budget, label=row.label) for row in rows)
    weekly = (
        replace(pack.weekly[0], label=names[0]) for _ in range(6)
    ) if pack.weekly else ()  # fmt: skip
    made = drawn(cast, replace(pack, rows=rows, waits=waits, weekly=tuple(weekly)))
    assert made.count(b"/Type /Page\n") == 2
    assert "52 others" in said
    assert any(text.endswith("…") for text in said)
    assert not any(MISSING in text for text in said)


def test_what_no_font_has_is_owned_up_to(cast, world, said, settings):
    tree, period = world
    pack = building.build(budget=tree["orlo/science"], period=period, now=NOW)
    about = replace(pack.about, name="気象\u200b予測 Science")
    drawn(cast, replace(pack, about=about))
    assert any(text.startswith(f"{MISSING} stands for 4 characters") for text in said)
    said.clear()
    drawn(cast, pack)
    assert not any(MISSING in text for text in said)


def test_fonts_of_the_setting_are_asked_last(settings):
    paper = Paper(title="t", hue=1, foot=("", ""))
    assert paper.safe("気") == MISSING
    settings.PDF_FONTS = [str(review_paper.SPARE)]
    assert paper.safe("Ж→") == "Ж→"
    assert paper.safe("12\u202f345") == "12\u00a0345"


def test_colours_are_the_pages_own():
    assert review_paper.tokens()["h1"] == "#1d55c0"
    assert Paper(title="t", hue=3, foot=("", "")).colour("t-hue") == review_paper.tokens()["h3-t"]
    assert (
        Paper(title="t", hue="org", foot=("", "")).colour("k-hue") == review_paper.tokens()["ink-2"]
    )


# --- The API -------------------------------------------------------------------------------------


def test_the_api_answers_with_the_pack(world, api_of):
    tree, period = world
    api, address = api_of("manager"), f"/api/v1/reviews/{period.pk}/orlo/science/"
    live = api.get(address).json()
    assert live["record"] is None
    pack = building.build(budget=tree["orlo/science"], period=period, now=NOW)
    assert live["pack"] == frozen(pack)
    listed = api.get("/api/v1/reviews/").json()
    assert [(one["path"], one["version"]) for one in listed] == [("orlo/science", 0)]
    assert listed[0]["settled_mgpus"] == pack.total.burn.settled_mgpus


def test_a_review_is_held_over_the_api(world, api_of):
    _, period = world
    api = api_of("manager")
    address = f"/api/v1/reviews/hold/{period.pk}/orlo/science/"
    body = {"held_on": "2026-10-01", "decision": "Go on.", "base_version": 0}
    made = api.post(address, body)
    assert (made.status_code, made.json()["version"]) == (201, 1)
    again = api.post(address, body)
    assert again.status_code == 409
    assert "Version 1 was kept by manager meanwhile" in again.json()["detail"]
    wrong = api.post(address, body | {"base_version": 1})
    assert wrong.status_code == 400
    assert ReviewRecord.objects.count() == 1
    kept = api.get(f"/api/v1/reviews/{period.pk}/orlo/science/").json()
    assert kept["record"]["decision"] == "Go on."
    assert kept["record"]["checksum"] == made.json()["checksum"]
    assert kept["changed"] == []
    assert api.get(f"/api/v1/reviews/{period.pk}/orlo/science/?version=7").status_code == 404


def test_comments_over_the_api(world, api_of):
    _, period = world
    api = api_of("viewer")
    address = f"/api/v1/reviews/comment/{period.pk}/orlo/science/petrel/"
    made = api.post(address, {"text": "More, please."})
    assert made.status_code == 201
    pk = made.json()["id"]
    edited = api.post(f"/api/v1/reviews/comments/{pk}/edit/", {"text": "Less, please."})
    assert edited.json()["text"] == "Less, please."
    assert api_of("manager").post(f"/api/v1/reviews/comments/{pk}/withdraw/").status_code == 403
    gone = api.post(f"/api/v1/reviews/comments/{pk}/withdraw/").json()
    assert (gone["text"], gone["withdrawn_at"]) == ("", "2026-10-01T03:07:00Z")
    assert ReviewComment.objects.get().text == "Less, please."
