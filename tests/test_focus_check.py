"""The checker of FOCUS files: each rule is broken once, and named with its row."""

import csv
import io
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ledger.exports import focus_keys
from ledger.exports.focus_check import check_file
from ledger.exports.focus_columns import columns
from ledger.exports.focus_keys import Keys, Place
from ledger.exports.focus_rules import is_unit
from ledger.instants import LedgerError

pytestmark = pytest.mark.once
GOOD = {
    "BillingAccountId": "budget-1", "BillingAccountName": "Orlo",
    "BillingAccountType": "Organisation", "BillingCurrency": "EUR",
    "BillingPeriodStart": "2026-10-01T00:00:00Z", "BillingPeriodEnd": "2027-01-01T00:00:00Z",
    "ChargePeriodStart": "2026-10-01T00:00:00Z", "ChargePeriodEnd": "2026-10-01T00:30:00Z",
    "ChargeCategory": "Usage", "ChargeDescription": "Training", "ChargeFrequency": "Usage-Based",
    "BilledCost": "7.2", "EffectiveCost": "7.2", "ListCost": "7.2", "ContractedCost": "7.2",
    "ListUnitPrice": "0.0005", "ContractedUnitPrice": "0.0005", "PricingCategory": "Standard",
    "PricingQuantity": "14400.0", "PricingUnit": "GPU-Seconds", "ConsumedQuantity": "14400.0",
    "ConsumedUnit": "GPU-Seconds", "CapacityReservationId": "run-1",
    "CapacityReservationStatus": "Used", "InvoiceId": "period-1", "InvoiceIssuerName": "Orlo",
    "ProviderName": "Orlo", "PublisherName": "Orlo", "HostProviderName": "Orlo",
    "ServiceProviderName": "Orlo", "ResourceId": "run-1", "ResourceName": "train",
    "ResourceType": "GPU block", "ServiceCategory": "Compute", "ServiceName": "GPU time",
    "ServiceSubcategory": "Other (Compute)", "SkuId": "main/h100", "SkuMeter": "h100 GPU time",
    "SkuPriceId": "main/h100@1000", "SkuPriceDetails": '{"GpuCount": 1}',
    "SubAccountId": "budget-3", "SubAccountName": "Petrel", "SubAccountType": "Project",
    "x_AmountMilliGpuSeconds": "14400000", "x_BudgetPath": "orlo/science/petrel",
    "x_EntryKey": "charge:1:a", "x_EntryKind": "charge", "x_Funded": "true", "x_JobId": "1",
    "x_JobKind": "training", "x_ParkedGpuSeconds": "0", "x_RatePerMille": "1000",
    "x_RunNumber": "1",
}  # fmt: skip


def written(path: Path, *changes: dict[str, str], header=None, version="1.2") -> Path:
    """Write a file of good rows, one for each dict of changed cells."""
    names = header or [column.name for column in columns(version)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore")
    writer.writeheader()
    for number, cells in enumerate(changes):
        writer.writerow(GOOD | {"x_EntryKey": f"charge:{number}:a"} | cells)
    path.write_text(text.getvalue())
    return path


def said(path: Path) -> list[str]:
    return [str(one) for one in check_file(path).broken]


@pytest.mark.parametrize("version", ["1.2", "1.4"])
def test_a_good_file_breaks_no_rule(tmp_path, version) -> None:
    path = written(tmp_path / "f.csv", {}, {}, version=version)
    found = check_file(path)
    assert (found.broken, found.version, found.rows) == ([], version, 2)
    assert found.amount_mgpus == 28_800_000


BROKEN = [
    ({"ChargePeriodStart": "2026-10-01T00:00:00+00:00"}, "ChargePeriodStart", "is no instant"),
    ({"ChargePeriodStart": "2026-13-01T00:00:00Z"}, "ChargePeriodStart", "is no date"),
    ({"PricingUnit": "gpu hours"}, "PricingUnit", "is no unit"),
    ({"BilledCost": "7,2"}, "BilledCost", "is no plain number"),
    ({"BilledCost": "+7.2"}, "BilledCost", "is no plain number"),
    ({"BilledCost": "-0.0"}, "BilledCost", "is no plain number"),
    ({"BilledCost": ""}, "BilledCost", "must have a value"),
    ({"ChargeClass": "null"}, "ChargeClass", "write nothing"),
    ({"SkuId": " main/h100"}, "SkuId", "begins or ends with a blank"),
    ({"ChargeCategory": "Use"}, "ChargeCategory", "is none of Usage"),
    ({"ServiceCategory": "GPU"}, "ServiceCategory", "is none of"),
    ({"SkuPriceDetails": "{GpuCount: 1}"}, "SkuPriceDetails", "is no JSON"),
    ({"SkuPriceDetails": '{"a": {"b": 1}}'}, "SkuPriceDetails", "one level deep"),
    ({"SkuPriceDetails": "[1]"}, "SkuPriceDetails", "is no JSON object"),
    ({"x_AmountMilliGpuSeconds": "1.5"}, "x_AmountMilliGpuSeconds", "is no whole number"),
    ({"ListCost": "7.20000000001"}, "ListCost", "isn't ListUnitPrice × PricingQuantity"),
    ({"ContractedCost": "0"}, "ContractedCost", "isn't ContractedUnitPrice × PricingQuantity"),
    ({"ListUnitPrice": "-0.0005", "ListCost": "-7.2"}, "ListUnitPrice", "never below 0"),
    ({"ChargePeriodEnd": "2026-10-01T00:00:00Z"}, "ChargePeriodEnd", "isn't after its start"),
    ({"BillingPeriodEnd": "2026-10-01T00:00:00Z"}, "BillingPeriodEnd", "isn't after its start"),
    ({"ChargePeriodStart": "2026-09-30T23:30:00Z"}, "ChargeClass", "say Correction"),
    ({"ChargeClass": "Correction"}, "ChargeClass", "no correction of a closed one"),
    (
        {"ChargePeriodStart": "2027-01-01T00:00:00Z", "ChargePeriodEnd": "2027-01-01T01:00:00Z"},
        "ChargePeriodStart", "after its billing period",
    ),
    ({"SkuPriceId": ""}, "ListUnitPrice", "without a SkuPriceId"),
    ({"SkuId": ""}, "SkuMeter", "without a SkuId"),
    ({"PricingCategory": ""}, "PricingCategory", "Usage must have a value"),
    ({"ConsumedQuantity": "", "ConsumedUnit": ""}, "ConsumedQuantity", "Usage must have a value"),
    ({"ChargeCategory": "Credit"}, "ConsumedQuantity", "Credit consumes nothing"),
    ({"ChargeCategory": "Purchase"}, "ChargeFrequency", "One-Time or Recurring"),
    ({"ChargeCategory": "Tax"}, "SkuPriceId", "must be empty for a tax"),
    ({"ConsumedUnit": ""}, "ConsumedUnit", "go together"),
    ({"CapacityReservationId": ""}, "CapacityReservationStatus", "give its id"),
    ({"CapacityReservationStatus": ""}, "CapacityReservationStatus", "say Used or Unused"),
    ({"ResourceName": "run-1"}, "ResourceName", "repeats the ResourceId"),
    ({"ResourceId": ""}, "ResourceName", "without a ResourceId"),
    ({"SubAccountId": ""}, "SubAccountName", "without a SubAccountId"),
    ({"BillingCurrency": "GPU"}, "BillingCurrency", "no national currency"),
    ({"InvoiceIssuerName": "Reseller"}, "BilledCost", "0 where another"),
    ({"SkuId": "main/a100"}, "SkuPriceId", "belongs to 'main/h100' and to 'main/a100'"),
    ({"BillingPeriodEnd": "2027-02-01T00:00:00Z"}, "InvoiceId", "in two billing periods"),
    ({"x_EntryKey": "charge:0:a"}, "x_EntryKey", "nothing is counted twice"),
]  # fmt: skip


@pytest.mark.parametrize(("cells", "column", "words"), BROKEN)
def test_a_broken_rule_is_named_with_its_row(tmp_path, cells, column, words) -> None:
    found = said(written(tmp_path / "f.csv", {}, cells))
    mine = [line for line in found if line.startswith(f"row 3: {column}: ")]
    assert len(mine) == 1, found
    assert words in mine[0]


HEADERS: list[tuple[Callable[[list[str]], Any], str, str]] = [
    (lambda names: names.append("x_team"), "x_team", "PascalCase"),
    (lambda names: names.append("Team"), "Team", "name your own x_"),
    (lambda names: names.append("x_" + "A" * 49), "x_" + "A" * 49, "more than 50"),
    (lambda names: names.insert(0, "x_Team"), "BilledCost", "comes after a custom column"),
    (lambda names: names.append("x_Author"), "x_Author", "there twice"),
    (lambda names: names.remove("ServiceName"), "ServiceName", "must have this column"),
    (
        lambda names: names.append("AllocatedMethodId"),
        "AllocatedMethodId",
        "no column of FOCUS 1.2",
    ),
]


@pytest.mark.parametrize(("change", "column", "words"), HEADERS)
def test_a_wrong_header_is_named(tmp_path, change, column, words) -> None:
    names = [one.name for one in columns("1.2")]
    change(names)
    found = said(written(tmp_path / "f.csv", {}, header=names))
    words = words.replace("custom columns", "comes after a custom column")
    assert [line for line in found if line.startswith(f"row 1: {column}: ") and words in line], (
        found
    )


def test_names_of_providers_of_another_version_are_no_columns_of_this(tmp_path) -> None:
    names = [one.name for one in columns("1.4")]
    found = said(
        written(tmp_path / "f.csv", {}, header=[*names[:-11], "ProviderName", *names[-11:]])
    )
    assert any("no column of FOCUS 1.4" in line for line in found)


def test_a_pair_of_used_and_unused_is_one_entry(tmp_path) -> None:
    used, unused = (
        {"x_EntryKey": "charge:9:a", "CapacityReservationStatus": status}
        for status in ("Used", "Unused")
    )
    assert said(written(tmp_path / "f.csv", used, unused)) == []
    assert len(said(written(tmp_path / "f.csv", used, unused, used))) == 1
    assert len(said(written(tmp_path / "f.csv", unused, unused))) == 1


def test_the_first_row_of_what_is_there_twice_is_told_whatever_its_key(tmp_path) -> None:
    keys = ("b", "a", "b", "c", "a", "b")
    found = said(written(tmp_path / "f.csv", *({"x_EntryKey": key} for key in keys)))
    words = "'b' is there twice: nothing is counted twice"
    assert found == [f"row 4 (and 2 more rows): x_EntryKey: {words}"]


def test_ten_times_the_keys_take_no_more_memory(monkeypatch) -> None:
    monkeypatch.setattr(focus_keys, "BATCH", 500)
    peaks = []
    for number in (5_000, 50_000):
        with closing(Keys()) as keys:
            tracemalloc.start()
            for row in range(number):
                keys.add(Place(f"charge:{row % (number - 1)}", row, "Used"))
            assert [[one.row for one in places] for places in keys.repeated()] == [[0, number - 1]]
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_a_correction_s_price_needn_t_give_its_cost(tmp_path) -> None:
    cells = {
        "ChargePeriodStart": "2026-09-30T00:00:00Z", "ChargePeriodEnd": "2026-09-30T01:00:00Z",
        "ChargeClass": "Correction", "ListCost": "-1.0",
    }  # fmt: skip
    assert said(written(tmp_path / "f.csv", cells)) == []


def test_one_rule_broken_often_is_one_line(tmp_path) -> None:
    found = said(written(tmp_path / "f.csv", {}, *[{"BilledCost": "x"}] * 7))
    assert found == ["row 3 (and 6 more rows): BilledCost: 'x' is no plain number, such as -1234.5"]


def test_rows_of_another_length_are_told(tmp_path) -> None:
    path = written(tmp_path / "f.csv", {})
    path.write_text(path.read_text() + "a,b\r\n")
    assert said(path) == [f"row 3: row: the row has 2 cells, the header {len(columns('1.2'))}"]


@pytest.mark.parametrize("unit", ["GPU-Seconds", "GB", "1000 Tokens", "GB/Hour", "Units/3 Months"])
def test_units_of_the_format(unit) -> None:
    assert is_unit(unit)


@pytest.mark.parametrize(
    "unit", ["gpu hours", "GPU-hours", "GPU Hours", "Hours-GPU", "GPU-Hour", "GB/hour", "0 GB", ""]
)
def test_what_is_no_unit(unit) -> None:
    assert not is_unit(unit)


# --- The command ----------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("focus_check", *arguments, stdout=out)
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue()
    except CommandError as error:
        return error.returncode, str(error)
    return 0, out.getvalue()


def test_the_command_ends_with_0_1_or_2(tmp_path) -> None:
    path = written(tmp_path / "good.csv", {})
    assert run(str(path)) == (0, "FOCUS 1.2, 1 row, 14,400,000 mGPU-s: no rule broken\n")
    path = written(tmp_path / "bad.csv", {"ServiceCategory": "GPU"})
    status, text = run(str(path))
    assert status == 1
    assert text.splitlines()[0].startswith("row 2: ServiceCategory: 'GPU' is none of")
    assert text.splitlines()[-1].endswith("1 rule broken")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"\xff\xfe", "no CSV file in UTF-8"), (None, "can't be read")],
)
def test_what_can_t_be_read_ends_with_2(tmp_path, content, words) -> None:
    path = tmp_path / "f.csv"
    if content is not None:
        path.write_bytes(content)
    status, text = run(str(path))
    assert (status, "\n" in text) == (2, False)
    assert words in text


def test_an_unknown_version_is_refused(tmp_path) -> None:
    with pytest.raises(LedgerError, match=r"1\.2 or 1\.4"):
        check_file(written(tmp_path / "f.csv", {}), version="1.3")
