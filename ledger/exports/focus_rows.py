"""What each charge and correction becomes in FOCUS: the mapping, and its arithmetic in decimals."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal
from functools import cache
from typing import Any, NamedTuple

from budgets import names as naming
from budgets.models import Budget, Period
from clusters.models import Pool
from ledger.exports import focus_columns as focus
from ledger.exports.sections import CREDIT
from ledger.figures import SETTLES
from ledger.instants import from_seconds, iso, timestep_seconds, to_seconds
from ledger.membership import Membership
from ledger.models import Entry
from ledger.rates import Rates
from workloads.models import Job

Kind = Entry.Kind
UNIT = "GPU-Seconds"
EXACT = Context(prec=60)  # no product of ours has as many digits
# A milli-GPU-second's price is rounded once, here; all else is a product of whole numbers with it.
PLACES = Decimal(1).scaleb(-20)
LEVELS = ("Organisation", "Program", "Project")


class Line(NamedTuple):
    """An entry as it is read, and for a correction when what it corrects ran."""

    kind: str
    budget_id: int
    period_id: int
    at: datetime
    until: datetime | None
    amount_mgpus: int
    job_id: int | None
    job_name: str | None
    job_kind: str | None
    run_id: int | None
    run_number: int | None
    pool_id: int | None
    funded: bool
    gpu_seconds: int
    parked_gpu_seconds: int
    author: str | None
    note: str
    key: str


@dataclass(frozen=True, slots=True)
class Money:
    """``price`` of a credit in a national ``currency``, None: none. Whether people are named."""

    price: Decimal | None
    currency: str
    names_people: bool = False

    def cost(self, amount_mgpus: int) -> str:
        return number(EXACT.multiply(_base(self.price), Decimal(amount_mgpus)))


@cache
def _base(price: Decimal | None) -> Decimal:
    """Return what a milli-GPU-second costs."""
    return EXACT.divide(price or Decimal(0), Decimal(CREDIT)).quantize(PLACES)


def number(value: Decimal) -> str:
    """Return a plain decimal number: no exponent, no zeros at its end, at least one decimal."""
    text = f"{value:f}" if value else "0"
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"


class Names:
    """What rows repeat: budgets, periods, pools and their rates, each in words of the format.

    A budget is named, and stands, as it was at a row's instant: so files of the past stay the same.
    """

    def __init__(
        self,
        budgets: "Dated",
        periods: dict[int, tuple[datetime, datetime, dict[str, str]]],
        pools: dict[int, tuple[str, str]],
        rates: Rates,
    ) -> None:
        self.budgets, self.periods, self.pools, self.rates = budgets, periods, pools, rates

    @classmethod
    def load(cls, tree: Membership) -> "Names":
        return cls(
            Dated(tree, naming.Names.load(), Budget.objects.in_bulk()),
            {one.pk: (one.starts_at, one.ends_at, _period(one)) for one in Period.objects.all()},
            {one.pk: _pool(one) for one in Pool.objects.select_related("cluster")},
            Rates.load(),
        )


class Dated:
    """The columns of a budget as it was called, and where it stood, at an instant."""

    def __init__(self, tree: Membership, names: naming.Names, budgets: dict[int, Budget]) -> None:
        self._tree, self._names, self._budgets = tree, names, budgets
        self._known: dict[tuple[int, int, int], dict[str, str]] = {}

    def at(self, budget_id: int, at: datetime) -> dict[str, str]:
        key = (budget_id, self._tree.epoch(to_seconds(at)), self._names.epoch(at))
        if key not in self._known:
            self._known[key] = self._columns(budget_id, at)
        return self._known[key]

    def _columns(self, budget_id: int, at: datetime) -> dict[str, str]:
        chain = [self._budgets[one] for one in self._tree.chain(budget_id, to_seconds(at))]
        root, depth = chain[-1], len(chain) - 1
        organisation = self._names.at(root, at).name
        return {
            "BillingAccountId": f"budget-{root.pk}",
            "BillingAccountName": organisation,
            "InvoiceIssuerName": organisation,
            **dict.fromkeys(
                ("ProviderName", "PublisherName", "HostProviderName", "ServiceProviderName"),
                organisation,
            ),
            "SubAccountId": f"budget-{budget_id}",
            "SubAccountName": self._names.at(chain[0], at).name,
            "SubAccountType": LEVELS[min(depth, len(LEVELS) - 1)],
            "x_BudgetPath": self._names.path(chain, at),
        }


def _period(period: Period) -> dict[str, str]:
    return {
        "BillingPeriodStart": iso(period.starts_at),
        "BillingPeriodEnd": iso(period.ends_at),
        "InvoiceId": f"period-{period.pk}",
    }


def _pool(pool: Pool) -> tuple[str, str]:
    return f"{pool.cluster.slug}/{pool.slug}", pool.gpu_type


FIXED = {
    "BillingAccountType": LEVELS[0],
    "ServiceCategory": "Compute",
    "ServiceName": "GPU time",
    "ServiceSubcategory": "Other (Compute)",
}


def rows_of(line: "Line | Correction", names: Names, money: Money) -> Iterator[dict[str, Any]]:
    """Yield the one or two rows of a charge, or the one of a correction, by column."""
    if isinstance(line, Correction):
        yield _correction_row(line, names, money)
    else:
        yield from _charge_rows(line, names, money)


def _shared(line: Line, names: Names, money: Money) -> dict[str, Any]:
    """Return what all rows of an entry have in common."""
    budget = names.budgets.at(line.budget_id, line.at)
    row: dict[str, Any] = FIXED | budget | names.periods[line.period_id][2]
    row["BillingCurrency"] = money.currency
    row["x_EntryKey"], row["x_EntryKind"] = line.key, line.kind
    row["x_Funded"] = "true" if line.funded else "false"
    row["x_ParkedGpuSeconds"] = 0
    if money.names_people and line.author:
        row["x_Author"] = line.author
    if line.run_id is not None:
        row |= {
            "ResourceId": f"run-{line.run_id}",
            "ResourceName": (line.job_name or "").strip(),
            "ResourceType": "GPU block",
            "x_JobId": line.job_id,
            "x_JobKind": line.job_kind,
            "x_RunNumber": line.run_number,
        }
        if row["ResourceName"] == row["ResourceId"]:
            row["ResourceName"] = f"job {row['ResourceName']}"
    return row


def _charge_rows(line: Line, names: Names, money: Money) -> Iterator[dict[str, Any]]:
    assert line.until is not None, "a charge has an end"
    assert line.pool_id is not None, "a charge has a pool"
    rate = names.rates.at(line.pool_id, to_seconds(line.at))
    if line.funded and line.gpu_seconds:
        rate = line.amount_mgpus // line.gpu_seconds
    sku, gpu_type = names.pools[line.pool_id]
    row = _shared(line, names, money) | {
        "ChargePeriodStart": iso(line.at),
        "ChargePeriodEnd": iso(line.until),
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "PricingCategory": "Standard",
        "ListUnitPrice": money.cost(rate),
        "ContractedUnitPrice": money.cost(rate if line.funded else 0),
        "PricingUnit": UNIT,
        "ConsumedUnit": UNIT,
        "CapacityReservationId": f"run-{line.run_id}",
        "SkuId": sku,
        "SkuMeter": f"{gpu_type} GPU time",
        "SkuPriceId": f"{sku}@{rate}",
        "SkuPriceDetails": '{"GpuCount": 1}',
        "x_RatePerMille": rate,
    }
    parked = line.parked_gpu_seconds
    if line.gpu_seconds > parked or not parked:
        yield row | _held(line, rate, line.gpu_seconds - parked, focus.USED, money)
    if parked:
        idle = _held(line, rate, parked, focus.UNUSED, money)
        yield row | idle | {"x_ParkedGpuSeconds": parked}


def _held(line: Line, rate: int, gpu_seconds: int, status: str, money: Money) -> dict[str, Any]:
    """Return what differs between the used part of a charge and the parked one."""
    worth = rate * gpu_seconds
    amount = worth if line.funded else 0
    quantity = f"{gpu_seconds}.0"
    kind = Job.Kind(line.job_kind).label if line.job_kind else "A run"
    words = [f"{kind}, {'its GPUs in use' if status == focus.USED else 'its GPUs parked'}"]
    words += [] if line.funded else ["unfunded, so free"]
    words += [] if money.price is not None else ["no price is set for a credit"]
    paid = money.cost(amount)
    return {
        "ChargeDescription": "; ".join(words),
        "CapacityReservationStatus": status,
        "BilledCost": paid,
        "EffectiveCost": paid,
        "ContractedCost": paid,
        "ListCost": money.cost(worth),
        "PricingQuantity": quantity,
        "ConsumedQuantity": quantity,
        "x_AmountMilliGpuSeconds": amount,
    }


@dataclass(frozen=True, slots=True)
class Correction:
    """A refund or adjustment, and from when to when what it corrects ran; None: not known."""

    line: Line
    ran: tuple[datetime, datetime] | None


def _correction_row(one: Correction, names: Names, money: Money) -> dict[str, Any]:
    """Return the row: a credit or an adjustment, which carries an amount and no GPU-time.

    What it corrects ran before the period it is billed in: then that period was closed, and the
    row is a Correction.
    """
    line = one.line
    opens, closes, _ = names.periods[line.period_id]
    start, end = one.ran or _timestep(line.at, opens, closes)
    amount = SETTLES[Kind(line.kind)] * line.amount_mgpus
    what = "Refund" if line.kind == Kind.REFUND else "Adjustment"
    words = [f"{what}: {line.note}" if line.note else what]
    words += [] if money.price is not None else ["no price is set for a credit"]
    return _shared(line, names, money) | {
        "ChargePeriodStart": iso(start),
        "ChargePeriodEnd": iso(end),
        "ChargeCategory": "Credit" if line.kind == Kind.REFUND else "Adjustment",
        "ChargeClass": focus.CORRECTION if start < opens else "",
        "ChargeDescription": "; ".join(words),
        "ChargeFrequency": "One-Time",
        **dict.fromkeys(
            ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), money.cost(amount)
        ),
        "x_AmountMilliGpuSeconds": amount,
    }


def _timestep(at: datetime, opens: datetime, closes: datetime) -> tuple[datetime, datetime]:
    """Return the timestep of an instant, as far as it lies in its period."""
    step = timestep_seconds()
    start = to_seconds(at) // step * step
    return max(from_seconds(start), opens), min(from_seconds(start + step), closes)
