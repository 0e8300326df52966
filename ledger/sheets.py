"""Reports as files for spreadsheets: integers in milli-GPU-seconds and GPU-seconds."""

import csv
import io
from dataclasses import asdict

from ledger.burn_report import BurnReport

FORMULA = ("=", "+", "-", "@")  # what a spreadsheet computes and does not show


def burn_csv(report: BurnReport) -> str:
    """Return a burn report as CSV: a line per row, the total last."""
    rows = [
        {"row": "reserve" if row.is_reserve else "budget", **asdict(row)} for row in report.rows
    ]
    rows.append({"row": "total", **asdict(report.total)})
    for row in rows:
        row["name"] = shown(row["name"])
    text = io.StringIO()
    columns = [name for name in rows[0] if name != "is_reserve"]
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def shown(text: str) -> str:
    """Return what people typed such that a spreadsheet shows it, whatever it begins with."""
    return f"'{text}" if text.startswith(FORMULA) else text
