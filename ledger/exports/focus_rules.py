"""The rules of one row of a FOCUS file, and those that hold between rows."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Context, Decimal
from typing import NamedTuple

from ledger.exports import focus_columns as focus
from ledger.exports.focus_keys import Keys, Place

Row = Mapping[str, str]
EXACT = Context(prec=100)
KINDS = {one.name: one for version in focus.VERSIONS for one in focus.columns(version)}
DECIMAL = re.compile(r"(?!-0(\.0*)?$)-?(0|[1-9]\d*)(\.\d+)?(E-?\d{1,3})?")
INTEGER = re.compile(r"-?(0|[1-9]\d*)")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
FREE_TEXT = {"BillingAccountName", "ChargeDescription", "ResourceName", "SubAccountName"}
TIMES = ("Year", "Month", "Day", "Hour", "Minute", "Second", "Millisecond", "Microsecond")
UNIT_WORD = re.compile(r"[A-Z][A-Za-z]*")
QUANTITIES = ("PricingQuantity", "ConsumedQuantity")
COSTS = (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost"))
ALLOWED = {
    "ChargeCategory": focus.CATEGORIES,
    "ChargeClass": (focus.CORRECTION,),
    "ChargeFrequency": focus.FREQUENCIES,
    "PricingCategory": focus.PRICING,
    "CapacityReservationStatus": (focus.USED, focus.UNUSED),
    "CommitmentDiscountStatus": (focus.USED, focus.UNUSED),
    "ServiceCategory": focus.SERVICES,
}


class Fault(NamedTuple):
    """A broken rule: its short name, the column, and what to change."""

    rule: str
    column: str
    sentence: str


class Seen:
    """What rules between rows need to remember: a few names in memory, keys outside of it."""

    def __init__(self, version: str, keys: Keys) -> None:
        self.version, self.keys = version, keys
        self.row = 1  # the one that is looked at; 1 is the header
        self.amount_mgpus: int | None = None
        self.parent_of: dict[str, str] = {}
        self.period_of: dict[str, tuple[str, str]] = {}


def faults_of(row: Row, seen: Seen) -> Iterator[Fault]:
    """Yield what is wrong with a row; what isn't of its form is told, and judged no further."""
    ill = list(_ill_formed(row))
    yield from ill
    unsound = {one.column for one in ill}
    sound = {name: value for name, value in row.items() if name not in unsound} if ill else row
    for rule in RULES:
        yield from rule(sound, seen)


def _ill_formed(row: Row) -> Iterator[Fault]:
    """Types and formats: plain numbers, instants with Z, JSON of one level, null as nothing."""
    for name, value in row.items():
        column = KINDS.get(name)
        if value.strip() != value:
            yield Fault("blanks", name, f"{value!r} begins or ends with a blank")
        elif value.lower() in focus.NO_VALUES and name not in FREE_TEXT:
            yield Fault("null", name, f"{value!r}: write nothing where there is no value")
        elif value and column and (words := _FORMS[column.kind](value)):
            yield Fault(column.kind, name, f"{value!r} {words}")
        elif value and name in ALLOWED and value not in ALLOWED[name]:
            yield Fault("allowed", name, f"{value!r} is none of {', '.join(ALLOWED[name])}")


def _not_a_decimal(value: str) -> str:
    return "" if DECIMAL.fullmatch(value) else "is no plain number, such as -1234.5"


def _not_an_integer(value: str) -> str:
    return "" if INTEGER.fullmatch(value) else "is no whole number"


def _not_an_instant(value: str) -> str:
    if INSTANT.fullmatch(value):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return "is no date"
        return ""
    return "is no instant of UTC, such as 2026-10-01T00:00:00Z"


def _not_json(value: str) -> str:
    try:
        found = json.loads(value)
    except ValueError:
        return "is no JSON"
    if not isinstance(found, dict):
        return "is no JSON object"
    if any(isinstance(one, dict | list) for one in found.values()):
        return "has values inside values: JSON is one level deep"
    return ""


_FORMS: dict[str, Callable[[str], str]] = {
    "string": lambda value: "",
    "decimal": _not_a_decimal,
    "integer": _not_an_integer,
    "instant": _not_an_instant,
    "json": _not_json,
}


# --- Rules of a row ------------------------------------------------------------------------------


def _is_empty(row: Row, name: str) -> bool:
    """Say whether the column is there and has no value; an ill-formed one is judged elsewhere."""
    return row.get(name) == ""


def _never_null(row: Row, seen: Seen) -> Iterator[Fault]:
    for name, value in row.items():
        column = KINDS.get(name)
        if column and not column.may_be_null and not value:
            yield Fault("empty", name, "it must have a value (of its form) in every row")


def _periods(row: Row, seen: Seen) -> Iterator[Fault]:
    bills, closes = row.get("BillingPeriodStart"), row.get("BillingPeriodEnd")
    start, end = row.get("ChargePeriodStart"), row.get("ChargePeriodEnd")
    if not (bills and closes and start and end):
        return
    if closes <= bills:
        yield Fault("ends", "BillingPeriodEnd", f"{closes} isn't after its start, {bills}")
    if end <= start:
        yield Fault("ends", "ChargePeriodEnd", f"{end} isn't after its start, {start}")
    before = start < bills
    if before and row.get("ChargeClass") != focus.CORRECTION:
        words = f"the charge began at {start}, before its billing period: say Correction"
        yield Fault("correction", "ChargeClass", words)
    if not before and row.get("ChargeClass") == focus.CORRECTION:
        words = "a charge of the billing period itself is no correction of a closed one"
        yield Fault("no correction", "ChargeClass", words)
    if start >= closes:
        words = f"the charge began at {start}, after its billing period"
        yield Fault("after", "ChargePeriodStart", words)


def _products(row: Row, seen: Seen) -> Iterator[Fault]:
    """Price × quantity = cost, to the last digit, but in corrections."""
    quantity = row.get("PricingQuantity")
    if not quantity or row.get("ChargeClass") == focus.CORRECTION:
        return
    for price, cost in COSTS:
        if row.get(price) and row.get(cost):
            product = EXACT.multiply(Decimal(row[price]), Decimal(quantity))
            if product != Decimal(row[cost]):
                words = f"{row[cost]} isn't {price} × PricingQuantity, {product:f}"
                yield Fault("product", cost, words)


def _prices(row: Row, seen: Seen) -> Iterator[Fault]:
    for price, _ in COSTS:
        if row.get(price) and Decimal(row[price]) < 0:
            yield Fault("negative", price, f"{row[price]}: a unit price is never below 0")


def _with_a_sku_price(row: Row, seen: Seen) -> Iterator[Fault]:
    without = ("ListUnitPrice", "ContractedUnitPrice", "SkuPriceDetails", *QUANTITIES)
    if _is_empty(row, "SkuPriceId"):
        for name in without:
            if row.get(name):
                yield Fault("no sku", name, "without a SkuPriceId it must be empty")
    if row.get("SkuPriceId") and _is_empty(row, "SkuId"):
        yield Fault("no sku", "SkuId", "a SkuPriceId has a SkuId above it")
    if row.get("SkuMeter") and _is_empty(row, "SkuId"):
        yield Fault("no sku", "SkuMeter", "without a SkuId it must be empty")


def _by_category(row: Row, seen: Seen) -> Iterator[Fault]:
    category, corrects = row.get("ChargeCategory"), row.get("ChargeClass") == focus.CORRECTION
    if category in ("Usage", "Purchase") and not corrects:
        needs = ["SkuPriceId", "PricingQuantity", "ListUnitPrice", "ContractedUnitPrice"]
        needs.append("PricingCategory")
        if category == "Usage" and row.get("CommitmentDiscountStatus") != focus.UNUSED:
            needs.append("ConsumedQuantity")
        for name in needs:
            if _is_empty(row, name):
                yield Fault("usage", name, f"{category} must have a value here")
    if category != "Usage" and row.get("ConsumedQuantity"):
        yield Fault("consumed", "ConsumedQuantity", f"{category} consumes nothing: leave it empty")
    if category == "Purchase" and row.get("ChargeFrequency") == "Usage-Based":
        yield Fault("frequency", "ChargeFrequency", "a purchase is One-Time or Recurring")
    if category == "Tax":
        for name in ("SkuPriceId", "PricingCategory", "PricingQuantity", "ListUnitPrice"):
            if row.get(name):
                yield Fault("tax", name, "it must be empty for a tax")


def _units(row: Row, seen: Seen) -> Iterator[Fault]:
    for quantity in QUANTITIES:
        unit = quantity.replace("Quantity", "Unit")
        if unit in row and quantity in row and bool(row[quantity]) != bool(row[unit]):
            yield Fault("unit", unit, f"{quantity} and its unit go together")
        if row.get(unit) and not is_unit(row[unit]):
            words = f"{row[unit]!r} is no unit of the format, such as GPU-Hours or GB"
            yield Fault("unit form", unit, words)


def is_unit(text: str) -> bool:
    """Say whether it is one: "GPU-Hours", "GB", "1000 Tokens", "GB/Hour", "Units/3 Months"."""
    over, slash, under = text.partition("/")
    amount, blank, words = over.rpartition(" ")
    if blank and not re.fullmatch(r"[1-9]\d*", amount):
        return False
    if not _is_compound(words):
        return False
    if not slash:
        return True
    number, blank, time = under.rpartition(" ")
    if blank:
        return bool(re.fullmatch(r"[1-9]\d*", number)) and time.removesuffix("s") in TIMES
    return time in TIMES


def _is_compound(words: str) -> bool:
    *before, last = words.split("-")
    if not all(UNIT_WORD.fullmatch(word) for word in (*before, last)):
        return False
    times = {time.lower() for time in TIMES} | {f"{time.lower()}s" for time in TIMES}
    if any(word.lower() in times for word in before):
        return False
    return last.lower() not in times or last in {f"{time}s" for time in TIMES}


def _reservations(row: Row, seen: Seen) -> Iterator[Fault]:
    name, status = "CapacityReservationStatus", row.get("CapacityReservationStatus")
    reserved = row.get("CapacityReservationId")
    if status and _is_empty(row, "CapacityReservationId"):
        yield Fault("reservation", name, f"{status} of no reservation: give its id")
    if reserved and _is_empty(row, name) and row.get("ChargeCategory") == "Usage":
        yield Fault("status", name, "say Used or Unused")


def _names(row: Row, seen: Seen) -> Iterator[Fault]:
    for name in ("ResourceName", "ResourceType"):
        if row.get(name) and _is_empty(row, "ResourceId"):
            yield Fault("resource", name, "without a ResourceId it must be empty")
    if row.get("ResourceName") and row["ResourceName"] == row.get("ResourceId"):
        yield Fault("same", "ResourceName", "it repeats the ResourceId: give a name, or nothing")
    for name in ("SubAccountName", "SubAccountType"):
        if row.get(name) and _is_empty(row, "SubAccountId"):
            yield Fault("sub account", name, "without a SubAccountId it must be empty")


def _money(row: Row, seen: Seen) -> Iterator[Fault]:
    currency = row.get("BillingCurrency")
    if currency and currency not in focus.CURRENCIES:
        words = f"{currency!r} is no national currency of ISO 4217"
        yield Fault("currency", "BillingCurrency", words)
    provider = row.get("ProviderName" if seen.version == "1.2" else "ServiceProviderName")
    issuer, billed = row.get("InvoiceIssuerName"), row.get("BilledCost")
    if provider and issuer and provider != issuer and billed and Decimal(billed):
        words = f"0 where another ({issuer}) than the provider ({provider}) sends the invoice"
        yield Fault("third party", "BilledCost", words)


# --- Rules between rows --------------------------------------------------------------------------


def _parents(row: Row, seen: Seen) -> Iterator[Fault]:
    price, sku = row.get("SkuPriceId"), row.get("SkuId")
    if price and sku and seen.parent_of.setdefault(price, sku) != sku:
        words = f"{price!r} belongs to {seen.parent_of[price]!r} and to {sku!r}"
        yield Fault("parent", "SkuPriceId", words)
    invoice = row.get("InvoiceId")
    period = (row.get("BillingPeriodStart", ""), row.get("BillingPeriodEnd", ""))
    if invoice and all(period) and seen.period_of.setdefault(invoice, period) != period:
        yield Fault("invoice", "InvoiceId", f"{invoice!r} stands in two billing periods")


def _entries(row: Row, seen: Seen) -> Iterator[Fault]:
    """Our own columns: an amount to add up, and keys to look at once all are known."""
    amount = row.get("x_AmountMilliGpuSeconds")
    if amount:
        seen.amount_mgpus = (seen.amount_mgpus or 0) + int(amount)
    if key := row.get("x_EntryKey"):
        seen.keys.add(Place(key, seen.row, row.get("CapacityReservationStatus", "")))
    yield from ()


def faults_of_keys(keys: Keys) -> Iterator[tuple[int, Fault]]:
    """Yield the rows, each with its fault, of entries that stand there neither once nor as a pair
    of Used and Unused."""
    for places in keys.repeated():
        first, second = places[:2]
        is_pair = {first.status, second.status} == {focus.USED, focus.UNUSED}
        for place in places[2 if is_pair else 1 :]:
            words = f"{place.key!r} is there twice: nothing is counted twice"
            yield place.row, Fault("pair", "x_EntryKey", words)


RULES: tuple[Callable[[Row, Seen], Iterator[Fault]], ...] = (
    *(_never_null, _periods, _products, _prices, _with_a_sku_price, _by_category, _units),
    *(_reservations, _names, _money, _parents, _entries),
)
