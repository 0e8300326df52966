"""What a review pack says was asked, decided, changed and simulated, as tables."""

from collections.abc import Callable, Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from django.urls import reverse
from django.utils.translation import gettext as _

from allocator.pages.review_tables import Column, Table, num, text
from allocator.reviews.pack import Asked, Change, Moved, Pack
from clusters.writing import credits, dated, duration, number, percent, signed_credits

STATUS_WORDS: dict[str, Callable[[], str]] = {
    "open": lambda: _("open"),
    "granted": lambda: _("granted"),
    "declined": lambda: _("declined"),
    "withdrawn": lambda: _("withdrawn"),
    "expired": lambda: _("expired"),
    "proposed": lambda: _("proposed"),
    "approved": lambda: _("approved"),
}


def decided(pack: Pack, *, seen_options: Callable[[int], bool]) -> list[Table]:
    """Return the tables; ``seen_options`` says which simulations the reader may see."""
    return list(_Decided(pack, seen_options).tables())


def quantity(one: Asked, amount: int) -> str:
    """Return an amount of a request in its unit: points of a share, or credits."""
    if one.unit == "percent":
        return _("%(part)s points") % {"part": percent(amount)}
    return _("%(amount)s cr") % {"amount": credits(amount)}


class _Decided:
    def __init__(self, pack: Pack, seen: Callable[[int], bool]) -> None:
        self.pack, self.seen = pack, seen
        self.zone = ZoneInfo(pack.about.time_zone)

    def _day(self, at: datetime) -> str:
        return dated(at.astimezone(self.zone), "j M")

    def tables(self) -> Iterator[Table]:
        yield self._asked()
        if self.pack.changes:
            yield self._changes()
        if self.pack.by_hand or self.pack.transfers:
            yield self._by_hand()
        options = [one for one in self.pack.options if self.seen(one.pk)]
        if options:
            yield self._options()

    def _asked(self) -> Table:
        columns = [
            Column(_("Request"), weight=1.1),
            Column(_("From"), weight=1.3),
            Column(_("Why"), weight=2.2),
            Column(_("Decision"), weight=2.2),
        ]
        rows = [
            [
                text(f"#{one.pk}, {quantity(one, one.asked)}", url=self._request_url(one)),
                text(f"{one.label}, {self._day(one.created_at)}"),
                text(one.reason),
                text(self._decision(one), bad=one.status == "open"),
            ]
            for one in self.pack.asked
        ]
        nothing = _("Nothing was asked in this time.")
        return Table(
            _("Requests and decisions"),
            columns,
            rows,
            note=self._more(self.pack.more_asked),
            nothing=nothing,
        )

    def _request_url(self, one: Asked) -> str:
        return reverse("request", args=[one.pk])

    def _more(self, count: int) -> str:
        return _("%(number)s more.") % {"number": number(count)} if count else ""

    def _decision(self, one: Asked) -> str:
        said = STATUS_WORDS[one.status]()
        if one.status == "granted" and one.given is not None and one.given != one.asked:
            said += f" {quantity(one, one.given)}"
        if one.decided_at is not None:
            said += f" {self._day(one.decided_at)}"
        if one.source:
            said += _(", from %(source)s") % {"source": one.source}
        if one.decided_by:
            said += f", {one.decided_by}"
        return f"{said}: {one.answer}" if one.answer else said

    def _changes(self) -> Table:
        columns = [
            Column(_("Change of shares"), weight=1.1),
            Column(_("From"), weight=0.9),
            Column(_("Shares, %"), weight=2.3),
            Column(_("Why, who"), weight=2.2),
        ]
        rows = [
            [
                text(f"#{one.pk}, {one.parent.rpartition('/')[2]}", bad=one.status == "proposed"),
                text(self._when(one)),
                text("; ".join(_move(move) for move in one.moves)),
                text(f"{one.reason} ({one.author})"),
            ]
            for one in self.pack.changes
        ]
        return Table(_("Changes of shares"), columns, rows, note=self._more(self.pack.more_changes))

    def _when(self, one: Change) -> str:
        day = self._day(one.effective_at)
        return day if one.status == "approved" else f"{day}, {STATUS_WORDS[one.status]()}"

    def _by_hand(self) -> Table:
        columns = [
            Column(_("When"), weight=0.8),
            Column(_("Budget"), weight=1.2),
            Column(_("What"), weight=0.9),
            Column(_("Credits"), True, 0.9),
            Column(_("Why, who"), weight=2.6),
        ]
        kinds = {"grant": _("granted"), "adjust": _("adjusted"), "transfer": _("transferred")}
        rows = [
            [
                text(self._day(one.at)),
                text(one.budget.rpartition("/")[2]),
                text(kinds.get(one.kind, one.kind)),
                num(signed_credits(one.amount_mgpus, 2)),
                text(f"{one.reason} ({one.author})"),
            ]
            for one in sorted((*self.pack.by_hand, *self.pack.transfers), key=lambda one: one.at)
        ]
        more = self._more(self.pack.more_transfers)
        return Table(_("By hand and transferred"), columns, rows, note=more)

    def _options(self) -> Table:
        columns = [
            Column(_("Option"), weight=2.4),
            Column(_("Delivered of owed, %"), True, 1.4),
            Column(_("now"), True, 0.8),
            Column(_("Median wait, simulated"), True, 1.5),
            Column(_("now"), True, 0.8),
        ]
        rows = [
            [
                text(
                    one.name or _("Simulation %(number)s") % {"number": one.pk},
                    url=reverse("simulation", args=[one.pk]),
                ),
                num(percent(one.delivered_part)),
                num(percent(one.before_delivered_part)),
                num(duration(one.p50_s, "short")),
                num(duration(one.before_p50_s, "short")),
            ]
            for one in self.pack.options
            if self.seen(one.pk)
        ]
        return Table(_("Options simulated"), columns, rows)


def _move(move: Moved) -> str:
    pool = f" ({move.pool})" if move.pool else ""
    return f"{move.name}{pool} {_share(move.before)} → {_share(move.after)}"


def _share(thousandths: int | None) -> str:
    return "–" if thousandths is None else percent(thousandths, 3).rstrip("0").rstrip(".,") or "0"
