"""The columns of FOCUS, the FinOps cost-and-usage format, that our files have or rules speak of.

By the specification, versions 1.2 and 1.4: https://focus.finops.org/focus-specification/
"""

from typing import NamedTuple

VERSIONS = ("1.2", "1.4")
DEFAULT = VERSIONS[0]


class Column(NamedTuple):
    """``kind``: string, decimal, instant, json, or (ours alone) integer."""

    name: str
    kind: str
    may_be_null: bool


def _columns(kind: str, names: str, *, null: bool = False) -> list[Column]:
    return [Column(name, kind, null) for name in names.split()]


COMMON = (
    *_columns("string", "BillingAccountId"),
    *_columns("string", "BillingAccountName", null=True),
    *_columns("string", "BillingAccountType BillingCurrency"),
    *_columns("instant", "BillingPeriodStart BillingPeriodEnd ChargePeriodStart ChargePeriodEnd"),
    *_columns("string", "ChargeCategory"),
    *_columns("string", "ChargeClass ChargeDescription", null=True),
    *_columns("string", "ChargeFrequency"),
    *_columns("decimal", "BilledCost EffectiveCost ListCost ContractedCost"),
    *_columns("decimal", "ListUnitPrice ContractedUnitPrice", null=True),
    *_columns("string", "PricingCategory", null=True),
    *_columns("decimal", "PricingQuantity", null=True),
    *_columns("string", "PricingUnit", null=True),
    *_columns("decimal", "ConsumedQuantity", null=True),
    *_columns("string", "ConsumedUnit CapacityReservationId", null=True),
    *_columns("string", "CapacityReservationStatus CommitmentDiscountStatus InvoiceId", null=True),
    *_columns("string", "InvoiceIssuerName"),
)
SERVICE = (
    *_columns("string", "ResourceId ResourceName ResourceType", null=True),
    *_columns("string", "ServiceCategory ServiceName ServiceSubcategory"),
    *_columns("string", "SkuId SkuMeter SkuPriceId", null=True),
    *_columns("json", "SkuPriceDetails", null=True),
    *_columns("string", "SubAccountId SubAccountName SubAccountType", null=True),
)
PROVIDERS = {
    "1.2": _columns("string", "ProviderName PublisherName"),
    "1.4": _columns("string", "HostProviderName ServiceProviderName"),
}
OURS = (
    *_columns("integer", "x_AmountMilliGpuSeconds"),
    *_columns("string", "x_Author", null=True),
    *_columns("string", "x_BudgetPath x_EntryKey x_EntryKind"),
    *_columns("string", "x_Funded"),
    *_columns("integer", "x_JobId", null=True),
    *_columns("string", "x_JobKind", null=True),
    *_columns("integer", "x_ParkedGpuSeconds"),
    *_columns("integer", "x_RatePerMille x_RunNumber", null=True),
)
MANDATORY = frozenset(
    (
        *("BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "BillingAccountId"),
        *("BillingAccountName", "BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd"),
        *("ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "ChargeClass"),
        *("ChargeDescription", "InvoiceIssuerName", "PricingQuantity", "PricingUnit"),
        *("ServiceCategory", "ServiceName"),
    )
)
# What else the specification has; our files have no use for it.
OTHERS = frozenset(
    (
        *("AvailabilityZone", "CommitmentDiscountCategory", "CommitmentDiscountId"),
        *("CommitmentDiscountName", "CommitmentDiscountQuantity", "CommitmentDiscountType"),
        *("CommitmentDiscountUnit", "PricingCurrency", "PricingCurrencyContractedUnitPrice"),
        *("PricingCurrencyEffectiveCost", "PricingCurrencyListUnitPrice", "RegionId"),
        *("RegionName", "Tags"),
    )
)
SINCE_1_3 = frozenset(
    (
        *("AllocatedMethodDetails", "AllocatedMethodId", "AllocatedResourceId"),
        *("AllocatedResourceName", "AllocatedTags", "ContractApplied", "InvoiceDetailId"),
    )
)
CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
FREQUENCIES = ("One-Time", "Recurring", "Usage-Based")
PRICING = ("Standard", "Dynamic", "Committed", "Other")
USED, UNUSED = "Used", "Unused"
# What a reader may take for nothing, so that nobody writes it for a value.
NO_VALUES = frozenset(("null", "none", "n/a", "nan", '""', "-"))
CORRECTION = "Correction"
SERVICES = (
    *("AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases"),
    *("Developer Tools", "Multicloud", "Identity", "Integration", "Internet of Things"),
    *("Management and Governance", "Media", "Migration", "Mobile", "Networking", "Security"),
    *("Storage", "Web", "Other"),
)
# National currencies, as ISO 4217 lists them.
CURRENCIES = frozenset(
    """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD
    CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP
    GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD
    KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN
    NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP
    SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES
    VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWG
    """.split()  # noqa: SIM905 (154 words read better than 154 strings)
)


def columns(version: str) -> tuple[Column, ...]:
    """Return the columns of our files in order: the format's own, then ours."""
    return (*COMMON, *PROVIDERS[version], *SERVICE, *OURS)


def mandatory(version: str) -> frozenset[str]:
    return MANDATORY | {column.name for column in PROVIDERS[version]}


def known(version: str) -> frozenset[str]:
    """Return every column of the format itself that a file of a version may have."""
    own = {one.name for one in (*COMMON, *PROVIDERS[version], *SERVICE)}
    return frozenset(own | OTHERS | (SINCE_1_3 if version != "1.2" else set()))
