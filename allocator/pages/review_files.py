"""A review pack as a file: PDF, workbook or CSV, of the same pack as the page."""

from datetime import datetime

from django.contrib.auth.models import User

from allocator.pages import reviews, shell
from allocator.pages.reviews import Asked
from allocator.reviews import sections
from allocator.reviews.deciding import name_of
from ledger.exports.files import CSV, XLSX, File
from ledger.exports.workbook import workbook

PDF = "application/pdf"
KINDS = {"pdf": PDF, "xlsx": XLSX, "csv": CSV}


def file_of(user: User, *, asked: Asked, kind: str, now: datetime) -> File:
    """Return a pack as a file of a kind. Raises LedgerError for what there is no report of."""
    pack, kept = reviews.pack_of(asked, now=now)
    if kind == "pdf":
        # Fonts and images cost a process half a second, most of which never make a PDF.
        from allocator.pages import review_pdf

        body = review_pdf.pdf(
            pack,
            reviews.sheets_of(user, pack),
            kept=kept,
            by=name_of(user),
            institute=shell.institute(),
            now=now,
        )
    elif kind == "xlsx":
        decision = kept.row.decision if kept else ""
        seen = sorted(reviews.options_seen(user, pack))
        parts = sections.sections(pack, seen_options=seen, decision=decision)
        title = f"{pack.about.path}, {pack.about.period_name}"
        body = workbook(title, parts, made=kept.row.kept_at if kept else now)
    else:
        body = sections.as_csv(pack).encode()
    version = f"-v{kept.row.version}" if kept else ""
    stem = f"review-{asked.budget.path.replace('/', '-')}-{pack.about.end:%Y-%m-%d}{version}"
    return File(f"{stem}.{kind}", KINDS[kind], [body])
