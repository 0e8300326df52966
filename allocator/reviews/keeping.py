"""Holding a review: its pack is kept as it was, and a later correction is another version."""

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import date, datetime
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.http import Http404
from django.utils.translation import gettext_lazy

from allocator.models import ReviewRecord
from allocator.reviews import building, commenting
from allocator.reviews.differing import Difference, differences
from allocator.reviews.freezing import frozen, thawed
from allocator.reviews.pack import Pack
from budgets.models import Budget, Period
from budgets.refusals import Refused, check_instant
from clusters.saying import say as _
from ledger.instants import LedgerError
from ledger.segments import STARTED

TEXT_MAX = 4000
NO_PERIOD = gettext_lazy("There is no such period, or it has not started.")


@dataclass(frozen=True)
class Kept:
    """A record with its pack and what differed from the version before."""

    row: ReviewRecord
    pack: Pack
    differences: tuple[Difference, ...]


def period_or_404(pk: int) -> Period:
    """Return a period that has started, which alone has figures; else Http404."""
    found = Period.objects.filter(pk=pk, status__in=STARTED).first()
    if found is None:
        raise Http404(NO_PERIOD)
    return found


def records(*, budget: Budget, period: Period) -> list[ReviewRecord]:
    """Return the versions there are, the newest first, without their packs. One query."""
    rows = ReviewRecord.objects.filter(budget=budget, period=period)
    light = rows.select_related("kept_by").defer("pack", "differences")
    return list(light.order_by("-version"))


def kept(*, budget: Budget, period: Period, version: int) -> Kept:
    """Return one version; else Http404.

    As it was kept, but for the text of comments that their authors withdrew since.
    """
    rows = ReviewRecord.objects.filter(budget=budget, period=period, version=version)
    row = rows.select_related("kept_by").first()
    if row is None:
        raise Http404(_("There is no such version of this review."))
    pack = thawed(Pack, row.pack)
    return Kept(
        row,
        replace(pack, comments=commenting.as_said_now(pack.comments)),
        tuple(thawed(Difference, one) for one in row.differences),
    )


def hold(
    *,
    budget: Budget,
    period: Period,
    held_on: date,
    decision: str,
    reason: str = "",
    base_version: int,
    by: User,
    now: datetime,
) -> ReviewRecord:
    """Keep a budget's pack as it is now: the review of the period was held.

    ``base_version`` is the version that the author saw, 0 for none; from 1 on this is a correction
    and wants a ``reason``. Refused on an outdated version, for a date before the period or in the
    future, without a decision, or where the pack can't be made.
    """
    check_instant(now, "now")
    decision = _checked("decision", decision, _("what was decided in the review"))
    if base_version:
        reason = _checked("reason", reason, _("what is corrected, and why"))
    _check_date(held_on, period, now)
    pack = _built(budget, period, now)
    try:
        with transaction.atomic():
            newest = _newest(budget, period)
            if (newest.version if newest else 0) != base_version:
                raise _outdated(newest, base_version)
            before = thawed(Pack, newest.pack) if newest else None
            data = frozen(pack)
            return ReviewRecord.objects.create(
                budget=budget,
                period=period,
                version=base_version + 1,
                held_on=held_on,
                decision=decision,
                reason=reason if base_version else "",
                kept_by=by,
                kept_at=now,
                pack=data,
                checksum=checksum(data),
                differences=frozen(differences(before, pack)) if before else [],
            )
    except IntegrityError:  # somebody else was a moment earlier
        raise _outdated(_newest(budget, period), base_version) from None


def _built(budget: Budget, period: Period, now: datetime) -> Pack:
    try:
        return building.build(budget=budget, period=period, now=now)
    except LedgerError as error:
        raise Refused("period", error.args[0]) from error


def checksum(data: object) -> str:
    """Return the SHA-256 of a frozen pack, in hexadecimal digits."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _newest(budget: Budget, period: Period) -> ReviewRecord | None:
    rows = ReviewRecord.objects.filter(budget=budget, period=period)
    return rows.select_related("kept_by").order_by("-version").first()


def _outdated(newest: ReviewRecord | None, base_version: int) -> Refused:
    if newest is None:
        return Refused(
            "base_version",
            _("There is no version %(base_version)s: hold the review.", base_version=base_version),
        )
    return Refused(
        "base_version",
        _(
            "Version %(version)s was kept by %(get_username)s meanwhile, yours is based on "
            "%(base_version)s: look at it and decide again.",
            version=newest.version,
            get_username=newest.kept_by.get_username(),
            base_version=base_version,
        ),
    )


def _check_date(held_on: date, period: Period, now: datetime) -> None:
    zone = ZoneInfo(period.time_zone)
    if held_on > now.astimezone(zone).date():
        raise Refused("held_on", _("The review can't have been held in the future: give its date."))
    if held_on < period.starts_at.astimezone(zone).date():
        raise Refused(
            "held_on",
            _("%(period)s had not begun then: give the review's date.", period=period.name),
        )


def _checked(field: str, text: str, what: str) -> str:
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise Refused(field, _("Say %(what)s.", what=what))
    if len(text) > TEXT_MAX or "\0" in text:
        raise Refused(field, _("Give at most %(most)s plain characters.", most=TEXT_MAX))
    return text
