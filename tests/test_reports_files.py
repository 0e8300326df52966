"""The burn report as files: the same numbers in each, and sums that hold however it is sliced."""

import csv
import hashlib
import io
import itertools
import json
from datetime import timedelta
from random import Random
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile
from zoneinfo import ZoneInfo

import pytest

from allocator.delivery import Delivered
from ledger import reports, services
from ledger.by_hand import by_hand_between
from ledger.exports.files import KINDS, burn_file
from ledger.exports.sections import shown
from ledger.instants import from_seconds, to_seconds
from ledger.membership import Membership
from tests.burn_world import END, odd_ledger
from tests.factories import T0, make_shares, make_user
from tests.ledger_world import close

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
BURNED = [name for name in reports.ADDITIVE if name.startswith(("b", "p", "r", "u", "corr"))]
NS = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def asked(tree, path="orlo", start=T0, end=END, by="child", zone=None) -> reports.Asked:
    return reports.Asked(tree[path], start, end, END, by, zone)


def file_of(tree, kind: str, **more) -> bytes:
    owed = {tree["orlo/science"].pk: Delivered(1000, 999), tree["orlo"].pk: Delivered(3000, 2500)}
    return burn_file(asked(tree, **more), kind=kind, delivered=lambda: owed).read()


# --- Slices ---------------------------------------------------------------------------------------


def burned(tree, start, end, by) -> list[int]:
    row = reports.burn_report(budget=tree["orlo"], start=start, end=end, now=END, by=by)
    for name in reports.ADDITIVE:
        assert sum(getattr(one, name) for one in row.rows) == getattr(row.total, name), name
    total = row.total
    parts = total.busy_mgpus + total.parked_mgpus + total.realtime_mgpus + total.corrected_mgpus
    assert parts == total.burned_mgpus
    return [getattr(total, name) for name in BURNED]


@pytest.mark.parametrize("seed", range(4))
def test_totals_are_equal_to_the_last_unit_however_the_interval_is_sliced(tree, seed) -> None:
    odd_ledger(tree)
    auk, science, vision = (tree[p] for p in ("orlo/science/auk", "orlo/science", "orlo/vision"))
    make_shares(science, {tree["orlo/science/petrel"]: 50_000}, at=END)
    make_shares(vision, {tree["orlo/vision/tern"]: 50_000, auk: 50_000}, at=END)
    end = close(2, since=END) + 17 * MINUTE
    random = Random(seed)
    seconds = range(to_seconds(T0), to_seconds(end))
    marks = [T0, *map(from_seconds, sorted(random.sample(seconds, 6))), end]
    whole = burned(tree, T0, end, "child")
    assert len(BURNED) == 9
    assert all(value for name, value in zip(BURNED, whole, strict=True))
    for by in ("child", "leaf"):
        slices = [burned(tree, a, b, by) for a, b in itertools.pairwise(marks)]
        assert [sum(column) for column in zip(*slices, strict=True)] == whole
    for zone in ("UTC", "America/New_York", "Asia/Kathmandu"):
        days = reports.burn_by_day(
            budget=tree["orlo"], start=T0 - 9 * MINUTE, end=end, zone=ZoneInfo(zone)
        )
        names = ["settled_mgpus", *BURNED[1:]]
        assert [sum(getattr(day, name) for day in days) for name in names] == whole


# --- The same in every format ---------------------------------------------------------------------


def sheets(data: bytes) -> dict[str, list[dict[str, Any]]]:
    """Read a workbook without the library that wrote it: numbers are numbers, the rest text."""
    book = ZipFile(io.BytesIO(data))
    shared = [
        "".join(t.text or "" for t in one.iter(f"{NS}t"))
        for one in ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
    ]
    names = [
        one.attrib["name"]
        for one in ElementTree.fromstring(book.read("xl/workbook.xml")).iter(f"{NS}sheet")
    ]
    found = {}
    for number, name in enumerate(names, 1):
        sheet = ElementTree.fromstring(book.read(f"xl/worksheets/sheet{number}.xml"))
        assert not list(sheet.iter(f"{NS}f")), "no formula"
        found[name] = [
            {cell.attrib["r"].rstrip("0123456789"): _cell(cell, shared) for cell in row}
            for row in sheet.iter(f"{NS}row")
        ]
    return found


def _cell(cell, shared):
    value = cell.findtext(f"{NS}v")
    if cell.attrib.get("t") == "s":
        return shared[int(value)]
    return None if value is None else (int(value) if value.lstrip("-").isdigit() else float(value))


def column(number: int) -> str:
    return chr(65 + number) if number < 26 else "A" + chr(65 + number - 26)


@pytest.mark.parametrize("by", ["child", "leaf"])
def test_csv_json_and_workbook_hold_the_same_integers(tree, by) -> None:
    odd_ledger(tree)
    table = list(csv.DictReader(io.StringIO(file_of(tree, "csv", by=by).decode())))
    answer = json.loads(file_of(tree, "json", by=by))
    books = sheets(file_of(tree, "xlsx", by=by))
    for row, in_json in zip(table, [*answer["rows"], answer["total"]], strict=True):
        for name, value in in_json.items():
            if name.endswith(("_mgpus", "_gpu_seconds", "_hours", "_mille")):
                assert row[name] == ("" if value is None else str(value)), name
    budgets = books["Budgets"]
    columns = [column(n) for n in range(len(table[0]))]
    assert [budgets[0][c] for c in columns] == list(table[0])
    for row, cells in zip(table, budgets[1:], strict=True):
        for c, (name, text) in zip(columns, row.items(), strict=True):
            value = cells.get(c)
            assert ("" if value is None else str(value)) == text, name
            assert (
                isinstance(value, int) or not name.endswith(("_mgpus", "_gpu_seconds")) or not text
            )


def test_a_workbook_s_cells_are_numbers_dates_and_words(tree) -> None:
    odd_ledger(tree)
    books = sheets(file_of(tree, "xlsx"))
    assert list(books) == ["Summary", "Budgets", "Days", "Jobs", "People", "By hand", "About"]
    total = books["Summary"][-1]
    whole = reports.burn_report(budget=tree["orlo"], start=T0, end=END, now=END).total
    assert total["A"] == "total"
    assert total["B"] == 319
    assert total["C"] == pytest.approx(whole.settled_mgpus / 3_600_000, abs=0.005)
    assert total["K"] == 83.33  # 2,500 of 3,000 GPU-seconds delivered
    assert books["Days"][1]["A"] == 46_296  # 1 October 2026, as a spreadsheet counts days
    assert books["Jobs"][3]["B"] == "'=sweep"
    assert books["Jobs"][-1]["B"] == "all others"
    assert books["People"][1]["B"] == "Ada Lovelace"
    about = {row["A"]: row["B"] for row in books["About"][1:]}
    assert about["charged up to"] == "2026-10-01T03:00:00Z"
    assert about["as of"] == "2026-10-01T03:00:00Z"


def test_what_was_written_by_hand_stands_with_its_reason(tree) -> None:
    period, petrel = odd_ledger(tree), tree["orlo/science/petrel"]
    services.grant(
        budget=petrel, amount_mgpus=5, author=make_user("=root"), note="=1+1 more", key="g",
        now=END - SECOND,
    )  # fmt: skip
    services.grant(
        budget=petrel, amount_mgpus=7, author=make_user(), note="too late", key="h", now=END
    )
    answer = json.loads(file_of(tree, "json"))
    assert [row["reason"] for row in answer["by_hand"]] == ["miscounted", "=1+1 more"]
    first, second = answer["by_hand"]
    assert first == {
        "at": "2026-10-01T02:11:00Z", "kind": "adjust", "budget": "orlo", "amount_mgpus": -17,
        "author": "meta", "reason": "miscounted",
    }  # fmt: skip
    assert (second["kind"], second["budget"], second["amount_mgpus"]) == ("grant", petrel.path, 5)
    sheet = sheets(file_of(tree, "xlsx"))["By hand"]
    assert [sheet[2][c] for c in "DEF"] == [5, "'=root", "'=1+1 more"]
    below = by_hand_between(budget=petrel, start=T0, end=END, tree=Membership.load())
    assert [one.amount_mgpus for one in below] == [5]
    assert period.name == answer["period"]


def test_the_checksum_is_that_of_the_csv_file(tree) -> None:
    odd_ledger(tree)
    digest = hashlib.sha256(file_of(tree, "csv")).hexdigest()
    assert json.loads(file_of(tree, "json"))["checksum"] == digest
    about = {row["A"]: row["B"] for row in sheets(file_of(tree, "xlsx"))["About"][1:]}
    assert about["SHA-256 of the CSV file"] == digest


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_report_is_the_same_file(tree, kind) -> None:
    odd_ledger(tree)
    assert file_of(tree, kind) == file_of(tree, kind)


def test_owed_and_delivered_are_those_it_was_given(tree) -> None:
    odd_ledger(tree)
    answer = json.loads(file_of(tree, "json"))
    found = {row["path"]: row["delivered_gpu_seconds"] for row in answer["rows"]}
    assert found == {"orlo/science": 999, "orlo/vision": None, "orlo": None}
    assert (answer["total"]["owed_gpu_seconds"], answer["total"]["delivered_gpu_seconds"]) == (
        3000,
        2500,
    )
    text = file_of(tree, "table").decode()
    assert "99.9 %" in next(line for line in text.splitlines() if line.startswith("science"))


def test_days_are_cut_in_the_reader_s_zone(tree) -> None:
    odd_ledger(tree)
    kathmandu = ZoneInfo("Asia/Kathmandu")
    answer = json.loads(file_of(tree, "json", start=T0 - 6 * 60 * MINUTE, zone=kathmandu))
    assert answer["zone"] == "Asia/Kathmandu"
    assert [day["day"] for day in answer["days"]] == ["2026-09-30", "2026-10-01"]
    assert answer["time_zone"] == "UTC"


@pytest.mark.parametrize("text", ["=1", " =1", "\t=1", "\n@x", "-x", "+1", "\rx"])
def test_what_a_spreadsheet_would_compute_is_shown_behind_blanks_too(text: str) -> None:
    assert shown(text) == f"'{text}"
    assert shown(f"x{text}") == f"x{text}"
