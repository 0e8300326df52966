"""A closing statement as a table of integers."""

import csv
import io
from collections.abc import Iterable, Mapping

from ledger.closing_statements import FIGURES
from ledger.exports.sections import shown
from ledger.models import ClosingStatement

DELIVERED = ("owed_gpu_seconds", "delivered_gpu_seconds")
COLUMNS = ("path", "name", *FIGURES, "unspent_mgpus", *DELIVERED)


def statement_csv(rows: Iterable[ClosingStatement], corrected: Mapping[int, int]) -> str:
    """Return a statement as CSV, a line per budget; in the last column what was corrected later.

    ``corrected`` by budget id. A parent's line has its children's in it: lines don't add up.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow((*COLUMNS, "corrected_later_mgpus"))
    for row in rows:
        cells = (getattr(row, name) for name in COLUMNS)
        told = (shown(cell) if isinstance(cell, str) else cell for cell in cells)
        writer.writerow((*told, corrected.get(row.budget_id, 0)))
    return text.getvalue()
