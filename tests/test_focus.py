"""FOCUS files: each charge once, sums equal to the ledger, corrections as the format wants them."""

import csv
import io
import itertools
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.db.models import Sum
from django.test import override_settings

from budgets import services as budgets
from budgets.models import Budget, Period
from ledger import reports, services
from ledger.exports import focus
from ledger.exports.focus_check import Checked, check_file
from ledger.exports.focus_rows import Money, number
from ledger.exports.sections import CREDIT
from ledger.models import Entry
from ledger.refunds import refund_run
from tests.burn_world import END, odd_ledger
from tests.factories import (
    HOUR,
    LONG_AGO,
    T0,
    make_budget,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_shares,
    make_user,
    someone,
)
from tests.ledger_world import close, give, write_entry
from workloads.models import Job, JobEvent, Run

pytestmark = pytest.mark.django_db
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
EURO = Money(Decimal("2.5"), "EUR")
FREE = Money(None, "USD")
ROW_KINDS = ("charge", "refund", "adjust")


def file_of(budget: Budget, start=T0, end=END, *, version="1.2", money=EURO) -> bytes:
    what = {"budget": budget, "start": start, "end": end}
    return b"".join(focus.focus_csv(**what, version=version, money=money))


def rows(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def checked(data: bytes, path: Path, **more) -> Checked:
    path.write_bytes(data)
    return check_file(path, **more)


def settled() -> int:
    sign = {"charge": 1, "refund": -1, "adjust": 1}
    every = Entry.objects.filter(kind__in=ROW_KINDS)
    return sum(sign[entry.kind] * entry.amount_mgpus for entry in every)


# --- Charges --------------------------------------------------------------------------------------


def test_half_parked_charge_is_two_rows_used_and_unused_with_the_entry_s_sum(tree) -> None:
    """14,400 GPU-seconds, half parked → two rows Used 7200.0, Unused 7200.0."""
    period, petrel = make_period(), tree["orlo/science/petrel"]
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool("h100", rate=1500))
    run = make_run(make_job(petrel, name="train"), {node: 0xFF})
    close(1, parked={(run.pk, T0): 7200})
    used, unused = rows(file_of(tree["orlo"]))
    assert (used["CapacityReservationStatus"], used["ConsumedQuantity"]) == ("Used", "7200.0")
    assert (unused["CapacityReservationStatus"], unused["ConsumedQuantity"]) == ("Unused", "7200.0")
    amounts = [int(row["x_AmountMilliGpuSeconds"]) for row in (used, unused)]
    entry = Entry.objects.get(kind="charge")
    assert (entry.gpu_seconds, sum(amounts)) == (14_400, entry.amount_mgpus)
    assert {row["CapacityReservationId"] for row in (used, unused)} == {f"run-{run.pk}"}
    assert (unused["x_ParkedGpuSeconds"], used["x_ParkedGpuSeconds"]) == ("7200", "0")
    assert (used["ChargePeriodStart"], used["ChargePeriodEnd"]) == (
        "2026-10-01T00:00:00Z",
        "2026-10-01T00:30:00Z",
    )
    assert (used["ResourceName"], used["SubAccountName"]) == ("train", "Petrel")
    assert used["SkuPriceId"].endswith("/h100@1500")
    assert Decimal(used["BilledCost"]) + Decimal(unused["BilledCost"]) == pytest.approx(
        Decimal("2.5") * entry.amount_mgpus / CREDIT, abs=Decimal("1e-9")
    )


@pytest.mark.parametrize("version", ["1.2", "1.4"])
@pytest.mark.parametrize("money", [EURO, FREE], ids=["priced", "free"])
def test_the_file_keeps_every_rule_and_its_sum_is_the_ledger_s(
    tree, tmp_path, version, money
) -> None:
    odd_ledger(tree)
    found = checked(file_of(tree["orlo"], version=version, money=money), tmp_path / "f.csv")
    assert found.broken == []
    assert (found.version, found.amount_mgpus) == (version, settled())
    whole = reports.burn_report(budget=tree["orlo"], start=T0, end=END, now=END).total
    assert found.amount_mgpus == whole.burned_mgpus
    table = rows(file_of(tree["orlo"], version=version, money=money))
    held = sum(Decimal(row["ConsumedQuantity"] or 0) for row in table)
    assert held == Entry.objects.aggregate(s=Sum("gpu_seconds"))["s"]
    parked = sum(int(row["x_ParkedGpuSeconds"]) for row in table)
    assert parked == Entry.objects.aggregate(s=Sum("parked_gpu_seconds"))["s"] > 0
    keys = {row["x_EntryKey"] for row in table}
    assert keys == set(Entry.objects.filter(kind__in=ROW_KINDS).values_list("key", flat=True))


def test_price_times_quantity_is_the_cost_to_the_last_digit(tree) -> None:
    odd_ledger(tree)
    usage = [row for row in rows(file_of(tree["orlo"])) if row["ChargeCategory"] == "Usage"]
    assert len(usage) > 20
    for row in usage:
        quantity = Decimal(row["PricingQuantity"])
        assert Decimal(row["ListUnitPrice"]) * quantity == Decimal(row["ListCost"])
        assert Decimal(row["ContractedUnitPrice"]) * quantity == Decimal(row["ContractedCost"])
    total = sum(Decimal(row["BilledCost"]) for row in rows(file_of(tree["orlo"])))
    assert total == pytest.approx(Decimal("2.5") * settled() / CREDIT, abs=Decimal("1e-6"))


def test_an_unfunded_run_has_a_list_cost_and_no_other(tree) -> None:
    odd_ledger(tree)
    free = [row for row in rows(file_of(tree["orlo"])) if row["x_Funded"] == "false"]
    assert len(free) == 7  # six timesteps, and the change of the rate in one of them
    for row in free:
        assert Decimal(row["ListCost"]) > 0
        costs = {row[name] for name in ("BilledCost", "EffectiveCost", "ContractedCost")}
        assert costs == {"0.0"} == {row["ContractedUnitPrice"]}
        assert "unfunded, so free" in row["ChargeDescription"]
    assert {row["SkuPriceId"].split("@")[1] for row in free} == {"1237", "1499"}


def test_without_a_price_costs_are_0_and_the_description_says_so(tree) -> None:
    odd_ledger(tree)
    for row in rows(file_of(tree["orlo"], money=FREE)):
        names = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
        assert {row[name] for name in names} == {"0.0"}
        assert row["BillingCurrency"] == "USD"
        assert "no price is set for a credit" in row["ChargeDescription"]


def test_people_are_named_only_where_a_setting_says_so(tree) -> None:
    odd_ledger(tree)
    assert b"meta" not in file_of(tree["orlo"])
    named = rows(file_of(tree["orlo"], money=Money(None, "USD", names_people=True)))
    assert {row["x_Author"] for row in named} == {"", "meta"}


def test_slices_and_subtrees_hold_each_entry_once(tree) -> None:
    odd_ledger(tree)
    auk, science, vision = (tree[p] for p in ("orlo/science/auk", "orlo/science", "orlo/vision"))
    make_shares(science, {tree["orlo/science/petrel"]: 50_000}, at=END)
    make_shares(vision, {tree["orlo/vision/tern"]: 50_000, auk: 50_000}, at=END)
    end = close(2, since=END)
    whole = sorted(row["x_EntryKey"] for row in rows(file_of(tree["orlo"], T0, end)))
    marks = [T0, T0 + 17 * MINUTE, T0 + HOUR, T0 + 131 * MINUTE, end]
    parts = [
        row["x_EntryKey"]
        for a, b in itertools.pairwise(marks)
        for row in rows(file_of(tree["orlo"], a, b))
    ]
    assert sorted(parts) == whole
    below = [file_of(budget, T0, end) for budget in (science, vision)]
    keys = [row["x_EntryKey"] for data in below for row in rows(data)]
    assert sorted([*keys, "adjust:odd"]) == whole
    sums = [sum(int(row["x_AmountMilliGpuSeconds"]) for row in rows(data)) for data in below]
    for budget, amount in zip((science, vision), sums, strict=True):
        report = reports.burn_report(budget=budget, start=T0, end=end, now=end)
        assert amount == report.total.burned_mgpus


def test_nothing_but_charges_refunds_and_adjustments_is_in_it(tree) -> None:
    odd_ledger(tree)
    assert {row["x_EntryKind"] for row in rows(file_of(tree["orlo"]))} == set(ROW_KINDS)
    assert Entry.objects.filter(kind="hold").exists()


def test_names_of_providers_change_with_the_version(tree) -> None:
    odd_ledger(tree)
    old, new = (rows(file_of(tree["orlo"], version=version))[0] for version in ("1.2", "1.4"))
    assert {"ProviderName", "PublisherName"} <= set(old)
    assert {"HostProviderName", "ServiceProviderName"} <= set(new)
    assert set(old) ^ set(new) == {
        *("ProviderName", "PublisherName", "HostProviderName", "ServiceProviderName"),
    }
    assert old["InvoiceIssuerName"] == old["ProviderName"] == new["ServiceProviderName"] == "Orlo"


# --- Corrections ----------------------------------------------------------------------------------


@pytest.fixture
def failed(tree) -> Run:
    """A run that a node failure ended in the last timestep of a quarter, not refunded yet."""
    quarter = make_period(ends_at=T0 + HOUR)
    make_period("2027 Q1", starts_at=T0 + HOUR, ends_at=T0 + 30 * DAY)
    petrel = tree["orlo/science/petrel"]
    give(petrel, 100, quarter)
    (node,) = make_nodes(make_pool("h100"))
    with override_settings(NODE_FAILURE_REFUND="none"):
        run = make_run(
            make_job(petrel), {node: 0b11}, started_at=T0 + 30 * MINUTE, ended_at=T0 + 50 * MINUTE,
            end_reason=Run.EndReason.NODE_FAILURE,
        )  # fmt: skip
        close(2)
    return run


def test_a_refund_after_close_is_a_correction_in_the_open_period(tree, failed, tmp_path) -> None:
    """ChargeClass Correction, charge period the old timestep, billing period the open one."""
    quarter = Period.objects.get(name="2026 Q4")
    services.close_period(period=quarter, at=T0 + HOUR)
    before = file_of(tree["orlo"], T0, T0 + HOUR)
    refund_run(run=failed, now=T0 + 2 * HOUR, policy="all")
    assert file_of(tree["orlo"], T0, T0 + HOUR) == before
    (row,) = rows(file_of(tree["orlo"], T0 + HOUR, T0 + DAY))
    assert row["ChargeClass"] == "Correction"
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == (
        "2026-10-01T00:30:00Z",
        "2026-10-01T00:50:00Z",
    )
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == (
        "2026-10-01T01:00:00Z",
        "2026-10-31T00:00:00Z",
    )
    assert row["InvoiceId"] not in before.decode()
    assert row["x_AmountMilliGpuSeconds"] == str(-2 * 1200 * 1000)
    assert Decimal(row["BilledCost"]) < 0
    found = checked(file_of(tree["orlo"], T0, T0 + DAY), tmp_path / "f.csv")
    assert (found.broken, found.amount_mgpus) == ([], 0)


def test_a_refund_before_close_has_no_charge_class(tree, failed) -> None:
    refund_run(run=failed, now=T0 + HOUR, policy="all")
    row = rows(file_of(tree["orlo"], T0, T0 + HOUR))[-1]
    assert (row["x_EntryKind"], row["ChargeClass"], row["ChargeCategory"]) == (
        *("refund", "", "Credit"),
    )
    assert row["ConsumedQuantity"] == row["PricingQuantity"] == row["SkuPriceId"] == ""
    assert row["BillingPeriodEnd"] == "2026-10-01T01:00:00Z"


@pytest.fixture
def crossing(tree, settings) -> Run:
    """A run over the border of two periods that a node failure ended, not refunded yet.

    Half an hour of it lies in either.
    """
    settings.NODE_FAILURE_REFUND = "none"  # closing a timestep would refund it
    quarter = make_period(ends_at=T0 + HOUR)
    following = make_period("2027 Q1", starts_at=T0 + HOUR, ends_at=T0 + 30 * DAY)
    petrel = tree["orlo/science/petrel"]
    for period in (quarter, following):
        give(petrel, 100, period)
    (node,) = make_nodes(make_pool("h100"))
    return make_run(
        make_job(petrel), {node: 0b11}, started_at=T0 + 30 * MINUTE, ended_at=T0 + 90 * MINUTE,
        end_reason=Run.EndReason.NODE_FAILURE,
    )  # fmt: skip


def refunds(tree) -> list[tuple[str, ...]]:
    """Class, from when to when it ran, and the period it is billed in, of each refund."""
    columns = ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart")
    found = [r for r in rows(file_of(tree["orlo"], T0, T0 + DAY)) if r["x_EntryKind"] == "refund"]
    return [(r["ChargeClass"], *(r[column][11:16] for column in columns)) for r in found]


def test_of_a_run_over_a_border_only_the_closed_period_s_refund_is_a_correction(
    tree, crossing, tmp_path
) -> None:
    close(2)
    services.close_period(period=Period.objects.get(name="2026 Q4"), at=T0 + HOUR)
    close(1, since=T0 + HOUR)
    refund_run(run=crossing, now=T0 + 2 * HOUR, policy="all")
    assert refunds(tree) == [
        ("Correction", "00:30", "01:00", "01:00"),
        ("", "01:00", "01:30", "01:00"),
    ]
    assert checked(file_of(tree["orlo"], T0, T0 + DAY), tmp_path / "f.csv").broken == []


def test_of_a_run_over_a_border_nothing_is_a_correction_while_both_are_open(
    tree, crossing, tmp_path
) -> None:
    close(3)
    refund_run(run=crossing, now=T0 + 2 * HOUR, policy="all")
    assert refunds(tree) == [("", "00:30", "01:00", "00:00"), ("", "01:00", "01:30", "01:00")]
    assert checked(file_of(tree["orlo"], T0, T0 + DAY), tmp_path / "f.csv").broken == []


def test_a_second_refund_of_a_run_names_the_time_of_its_last_charge(tree, crossing) -> None:
    """What a later policy gives back is of the same charges: its numbered key names them."""
    JobEvent.objects.create(job=crossing.job, run=crossing, at=T0 + 75 * MINUTE, kind="checkpoint")
    close(3)
    for policy in ("checkpoint", "all"):
        refund_run(run=crossing, now=T0 + 2 * HOUR, policy=policy)
    assert Entry.objects.filter(kind="refund", key__endswith=":2").count() == 1
    # each names its period's time; none of the second period's begins in the first
    assert sorted(refunds(tree)) == [
        ("", "00:30", "01:00", "00:00"),
        *[("", "01:00", "01:30", "01:00")] * 2,
    ]


def test_what_was_charged_past_a_late_end_names_that_charge_s_time(tree, tmp_path) -> None:
    period, petrel = make_period(), tree["orlo/science/petrel"]
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool("h100"))
    run = make_run(make_job(petrel), {node: 0b11})
    close(3)
    Run.objects.filter(pk=run.pk).update(ended_at=T0 + 40 * MINUTE, end_reason="completed")
    run.refresh_from_db()
    services.settle_late_end(run=run, now=T0 + 2 * HOUR, policy="all")
    late = [row for row in rows(file_of(tree["orlo"])) if row["x_EntryKind"] == "adjust"]
    assert [(row["ChargePeriodStart"][11:16], row["ChargeCategory"]) for row in late] == [
        ("00:30", "Adjustment"),
        ("01:00", "Adjustment"),
    ]
    assert checked(file_of(tree["orlo"]), tmp_path / "f.csv").broken == []


def test_an_adjustment_by_hand_of_a_closed_period_is_a_correction_of_all_of_it(
    tree, tmp_path
) -> None:
    old = make_period("2026 Q3", starts_at=T0 - 92 * DAY, ends_at=T0, status="closed")
    petrel, period = tree["orlo/science/petrel"], make_period()
    give(petrel, 100, period)
    words = {"budget": petrel, "author": someone(), "now": T0 + HOUR}
    for key, of in (("billed", old), ("own", None)):
        services.adjust(**words, amount_mgpus=-CREDIT, note=f"as {key}", key=key, of=of)
    write_entry(
        kind="adjust", budget=petrel, period=period, at=T0 + HOUR, amount_mgpus=-CREDIT,
        author=someone(), note="as of", key=f"adjust:of:{period.pk}:own", created_at=T0 + HOUR,
    )  # fmt: skip
    columns = (
        *("ChargeClass", "ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart"),
        "ChargeCategory",
    )
    found = {
        row["x_EntryKey"]: tuple(row[name] for name in columns)
        for row in rows(file_of(tree["orlo"], T0, T0 + DAY))
    }
    opens, own = "2026-10-01T00:00:00Z", ("2026-10-01T01:00:00Z", "2026-10-01T01:30:00Z")
    assert found == {
        f"adjust:of:{old.pk}:billed": (
            *("Correction", "2026-07-01T00:00:00Z", opens, opens, "Adjustment"),
        ),
        "adjust:own": ("", *own, opens, "Adjustment"),
        # a key that only looks like one, from when any was taken
        f"adjust:of:{period.pk}:own": ("", *own, opens, "Adjustment"),
    }
    whole = checked(file_of(tree["orlo"], T0, T0 + DAY), tmp_path / "f.csv")
    assert (whole.broken, whole.amount_mgpus) == ([], -3 * CREDIT)


# --- Streaming and refusals -----------------------------------------------------------------------


def test_it_is_streamed_a_thousand_rows_at_a_time(tree, monkeypatch) -> None:
    odd_ledger(tree)
    whole = file_of(tree["orlo"])
    monkeypatch.setattr(focus, "BATCH", 5)
    read = iter(focus.focus_csv(
        budget=tree["orlo"], start=T0, end=END, version="1.2", money=EURO
    ))  # fmt: skip
    first = next(read)
    assert len(rows(first)) in (5, 6)  # a pair isn't parted
    assert first + b"".join(read) == whole


def test_an_unknown_version_and_a_currency_of_no_nation_are_refused_at_once(tree) -> None:
    with pytest.raises(services.LedgerError, match=r"choose 1\.2 or 1\.4"):
        focus.focus_csv(budget=tree["orlo"], start=T0, end=END, version="1.3", money=EURO)
    with pytest.raises(services.LedgerError, match="no national currency"):
        focus.focus_csv(
            budget=tree["orlo"], start=T0, end=END, version="1.2", money=Money(None, "GPU")
        )


@pytest.mark.parametrize(
    ("value", "text"),
    [("0", "0.0"), ("14400", "14400.0"), ("-1.500", "-1.5"), ("1E-20", "0.00000000000000000001")],
)
def test_numbers_are_plain(value: str, text: str) -> None:
    assert number(Decimal(value)) == text


def test_names_that_a_spreadsheet_would_compute_are_shown(tree) -> None:
    odd_ledger(tree)
    names = {row["ResourceName"] for row in rows(file_of(tree["orlo"]))}
    assert "'=sweep" in names


ODD_NAMES = [
    *[(" x", "x"), ("x ", "x"), ("\u00a0x", "x"), ("\x0b", ""), (" run-1 ", "job run-1")],
    *[("null", "'null"), ("N/A", "'N/A"), ("-", "'-"), ("=1+1", "'=1+1"), (" =1+1", "'=1+1")],
    *[("a\nb", "a\nb"), ("a\rb", "a\rb"), ("Nullarbor", "Nullarbor")],
]


@pytest.mark.parametrize(("name", "written"), ODD_NAMES)
def test_odd_names_of_jobs_are_shown_and_keep_every_rule(tree, tmp_path, name, written) -> None:
    period, petrel = make_period(), tree["orlo/science/petrel"]
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool("h100"))
    run = make_run(make_job(petrel), {node: 0b11})
    Job.objects.update(name=name.replace("run-1", f"run-{run.pk}"))
    close(1)
    (row,) = rows(file_of(tree["orlo"]))
    assert row["ResourceName"] == written.replace("run-1", f"run-{run.pk}")
    assert checked(file_of(tree["orlo"]), tmp_path / "f.csv").broken == []


@pytest.mark.parametrize("name", ["=1+1", "@x", "null", "None", "-"])
@pytest.mark.parametrize("version", ["1.2", "1.4"])
def test_odd_names_of_an_organisation_are_shown_in_every_column(
    tree, tmp_path, name, version
) -> None:
    budgets.rename_budget(budget=tree["orlo"], name=name, author=someone(), now=LONG_AGO)
    period, petrel = make_period(), tree["orlo/science/petrel"]
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool("h100", gpu_type="=h100"))
    make_run(make_job(petrel), {node: 0b11})
    close(1)
    data = file_of(tree["orlo"], version=version)
    (row,) = rows(data)
    providers = {
        "1.2": ("ProviderName", "PublisherName"),
        "1.4": ("HostProviderName", "ServiceProviderName"),
    }[version]
    columns = ("BillingAccountName", "InvoiceIssuerName", *providers)
    assert {column: row[column] for column in columns} == dict.fromkeys(columns, f"'{name}")
    assert row["SkuMeter"] == "'=h100 GPU time"
    assert checked(data, tmp_path / "f.csv").broken == []


def test_nothing_that_people_typed_is_computed_in_any_column(tree, tmp_path) -> None:
    """Whoever is named null, too, and a leaf that is an organisation of that address."""
    root = make_budget("null", name="=null")
    period = make_period()
    give(root, 100, period)
    author = make_user("null")
    services.adjust(
        budget=root, amount_mgpus=CREDIT, author=author, note=" =1+1", key="k", now=T0 + HOUR
    )
    data = file_of(root, money=Money(None, "USD", names_people=True))
    (row,) = rows(data)
    assert (row["x_BudgetPath"], row["x_Author"], row["SubAccountName"]) == (
        *("'null", "'null", "'=null"),
    )
    assert not [name for name, value in row.items() if value.startswith(("=", "@", "+"))]
    assert checked(data, tmp_path / "f.csv").broken == []


def test_a_key_that_ends_in_a_blank_is_refused(tree) -> None:
    """It would stand in x_EntryKey, where a blank at the end is no part of a value."""
    make_period()
    with pytest.raises(services.LedgerError, match="ends in a blank"):
        services.adjust(
            budget=tree["orlo"], amount_mgpus=CREDIT, author=someone(), note="n", key="k ", now=T0
        )
    assert not Entry.objects.exists()
