"""The sheets of a review pack: tables of cells that the page writes as HTML and the PDF draws."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from allocator.pages import review_decisions, review_drawing, review_words
from allocator.pages.review_drawing import Drawing
from allocator.pages.review_tables import Cell, Column, Table, num, text
from allocator.pages.review_words import delivered, parked_part
from allocator.reviews.pack import Pack, Row, Waits, Weekly
from budgets.access import is_within
from clusters.writing import (
    credits,
    dated,
    duration,
    gpu_hours,
    number,
    percent,
    signed_credits,
)

MOST_ROWS, FEW_ROWS = 8, 5
MOST_WEEKS, FEWER_WEEKS = 6, 3  # pictures, of few rows and of more: two sheets are two sheets


@dataclass(frozen=True)
class Sheets:
    """All that the sheets say, in order: tables in pairs stand beside each other."""

    title: str
    subtitle: str
    lead: str
    sentences: str
    keys: list[review_words.Key]
    chart: Drawing
    facts: str
    projects: Table
    weeks: list[Drawing]
    weeks_note: str
    pairs: list[tuple[Table, Table]]
    decided: list[Table]
    comments: list[tuple[str, str, str]]  # who, when, what
    corrected: str


def sheets(pack: Pack, *, seen_options: Callable[[int], bool]) -> Sheets:
    """Return the sheets of a pack; ``seen_options`` says which simulations the reader may see."""
    return _Sheets(pack, seen_options).sheets()


class _Sheets:
    def __init__(self, pack: Pack, seen: Callable[[int], bool]) -> None:
        self.pack, self.about, self.seen = pack, pack.about, seen
        self.zone = ZoneInfo(self.about.time_zone)
        self.is_leaf = pack.is_leaf

    def sheets(self) -> Sheets:
        lead, sentences = review_words.summary(self.pack)
        words = {"name": self.about.name, "period": self.about.period_name}
        return Sheets(
            title=_("%(name)s, review of %(period)s") % words,
            subtitle=self._subtitle(),
            lead=lead,
            sentences=sentences,
            keys=review_words.keys(self.pack),
            chart=review_drawing.burn(self.pack),
            facts=" ".join(self._facts()),
            projects=self._projects(),
            weeks=[review_drawing.week(one, zone=self.zone) for one in self._weekly],
            weeks_note=self._weeks_note(),
            pairs=[(self._parked(), self._waits()), (self._jobs(), self._people())],
            decided=review_decisions.decided(self.pack, seen_options=self.seen),
            comments=[
                (one.author, self._moment(one.at), _("(withdrawn)") if one.withdrawn else one.text)
                for one in self.pack.comments
            ],
            corrected=self._corrected(),
        )

    def _day(self, at: datetime, style: str = "j M") -> str:
        return dated(at.astimezone(self.zone), style)

    def _moment(self, at: datetime) -> str:
        return self._day(at, "j M, H:i")

    def _subtitle(self) -> str:
        words = {
            "start": self._day(self.about.starts_at, "j F Y"),
            "end": self._day(self.about.end, "j F Y"),
            "part": percent(self.about.elapsed_part),
        }
        return _("%(start)s to %(end)s, %(part)s %% of the period's time with GPUs.") % words

    def _facts(self) -> Iterator[str]:
        total, burn = self.pack.total, self.pack.total.burn
        words = {
            "parked": credits(burn.parked_mgpus),
            "part": percent(parked_part(total)),
            "unfunded": gpu_hours(burn.unfunded_gpu_seconds),
        }
        yield (
            _(
                "Parked: %(parked)s cr, %(part)s %% of the GPU-time that was paid for. "
                "Unfunded and free: %(unfunded)s GPU-h."
            )
            % words
        )
        before = self.pack.previous
        if before is not None:
            settled = review_words.part(before.settled_mgpus, before.granted_mgpus)
            parked = review_words.part(before.parked_gpu_seconds, before.charged_gpu_seconds)
            words = {
                "period": before.name,
                "settled": percent(settled),
                "parked": percent(parked),
            }
            yield _("%(period)s closed with %(settled)s %% settled, %(parked)s %% parked.") % words

    # --- By project ------------------------------------------------------------------------------

    @property
    def _weekly(self) -> tuple[Weekly, ...]:
        few = len(self.pack.rows) <= FEW_ROWS
        return self.pack.weekly[: MOST_WEEKS if few else FEWER_WEEKS]

    @property
    def _shown(self) -> tuple[Row, ...]:
        rows = [row for row in self.pack.rows if not row.burn.is_reserve]
        return tuple(rows if len(rows) <= MOST_ROWS + 1 else rows[:MOST_ROWS])

    @property
    def _hidden(self) -> tuple[Row, ...]:
        rows = [row for row in self.pack.rows if not row.burn.is_reserve]
        return tuple(rows[len(self._shown) :])

    @property
    def _reserve(self) -> Row | None:
        found = next((row for row in self.pack.rows if row.burn.is_reserve), None)
        burn = found.burn if found else None
        return found if burn and (burn.granted_mgpus or burn.settled_mgpus) else None

    def _others(self) -> str:
        count = len(self._hidden)
        return ngettext("%(number)s other", "%(number)s others", count) % {"number": number(count)}

    def _projects(self) -> Table:
        columns = [
            Column(_("Budget"), weight=2.2, most_lines=2),
            Column(pgettext("narrow", "Share, %"), True, 0.9),
            Column(pgettext("narrow", "Granted, cr"), True, 1.1),
            Column(pgettext("narrow", "Settled, cr"), True, 1.1),
            Column("%", True, 0.7),
            Column(_("Burn"), weight=1.3, is_bar=True),
            Column(_("Pace"), True, 0.7),
            Column(_("Over plan, cr"), True, 1.1),
            Column(_("Forecast, % of grant"), True, 1.2),
        ]
        rows = [] if self.is_leaf else [self._project(row) for row in self._shown]
        if self._hidden:
            rows.append(self._summed(self._others(), self._hidden))
        if self._reserve:
            rows.append(self._summed(_("Reserve"), [self._reserve], is_reserve=True))
        title = _("By budget") if self.is_leaf else _("By budget, farthest from plan first")
        return Table(title, columns, rows, self._project(self.pack.total, is_total=True))

    def _project(self, row: Row, *, is_total: bool = False) -> list[Cell]:
        burn, pack = row.burn, self.pack
        bar = {
            "name": row.label,
            "settled": burn.settled_mgpus,
            "granted": burn.granted_mgpus,
            "elapsed": self.about.elapsed_part,
            "held": burn.held_mgpus,
            "in_flight": burn.in_flight_mgpus,
            "hue": self.about.painted,
        }
        part = review_words.part(burn.settled_mgpus, burn.granted_mgpus)
        return [
            text(row.label, url="" if is_total else self._url(row)),
            num(percent(self._share(row, is_total))),
            num(credits(burn.granted_mgpus)),
            num(credits(burn.settled_mgpus)),
            num(percent(part)),
            Cell(bar=bar if burn.granted_mgpus > 0 else None),
            num(review_words.pace(row), review_words.is_high(pack, row)),
            num(signed_credits(row.over_mgpus)),
            num(review_words.forecast(row), review_words.is_over(row)),
        ]

    def _share(self, row: Row, is_total: bool) -> int | None:
        """Of its parent; of the whole what its children have together."""
        if not is_total or self.is_leaf:
            return row.share
        return sum(one.share or 0 for one in self.pack.rows)

    def _summed(self, name: str, rows: Sequence[Row], *, is_reserve: bool = False) -> list[Cell]:
        granted = sum(row.burn.granted_mgpus for row in rows)
        settled = sum(row.burn.settled_mgpus for row in rows)
        shares = sum(row.share or 0 for row in rows)
        over = num("") if is_reserve else num(signed_credits(sum(row.over_mgpus for row in rows)))
        return [
            text(name),
            num("" if is_reserve else percent(shares, 1)),
            num(credits(granted)),
            num(credits(settled)),
            num(percent(review_words.part(settled, granted))),
            Cell(),
            num(""),
            over,
            num(""),
        ]

    def _url(self, row: Row) -> str:
        own = row.budget == self.about.budget
        if not row.budget or own or not is_within(row.burn.path, self.about.path):
            return ""  # what moved out of sight has no page for whoever sees no more
        return reverse("review", kwargs={"pk": self.about.period, "path": row.burn.path})

    def _weeks_note(self) -> str:
        said = _(
            "Dashed: 95 %, below which it is red. Owed is the lesser of entitlement and demand in "
            "each timestep; delivered is what funded runs held of it. Weeks of UTC, from Monday."
        )
        rows = [row for row in self.pack.rows if row.burn.owed_gpu_seconds and row.budget]
        more = len([row for row in rows if not row.burn.is_reserve]) - len(self._weekly)
        if more <= 0:
            return said
        told = ngettext(
            "%(number)s more got a greater part.", "%(number)s more got a greater part.", more
        ) % {"number": number(more)}
        return f"{told} {said}"

    # --- Parked, waits, jobs, people -------------------------------------------------------------

    def _parked(self) -> Table:
        columns = [
            Column(_("Budget"), weight=2.0, most_lines=2),
            Column(_("Parked, cr"), True),
            Column(_("% of paid"), True, 0.9),
            Column(_("Unfunded, GPU-h"), True, 1.2),
            Column(pgettext("narrow", "Delivered, %"), True, 1.25),
        ]
        rows = [] if self.is_leaf else [self._parked_row(row) for row in self._shown]
        if self._hidden:
            parked = sum(row.burn.parked_mgpus for row in self._hidden)
            free = sum(row.burn.unfunded_gpu_seconds for row in self._hidden)
            cells = [num(credits(parked)), num(""), num(gpu_hours(free)), num("")]
            rows.append([text(self._others()), *cells])
        return Table(_("Parked and unfunded"), columns, rows, self._parked_row(self.pack.total))

    def _parked_row(self, row: Row) -> list[Cell]:
        return [
            text(row.label),
            num(credits(row.burn.parked_mgpus)),
            num(percent(parked_part(row))),
            num(gpu_hours(row.burn.unfunded_gpu_seconds)),
            num(percent(delivered(row)), review_words.is_behind(row)),
        ]

    def _waits(self) -> Table:
        columns = [
            Column(_("Budget"), weight=2.0, most_lines=2),
            Column(_("Median wait"), True, 1.1),
            Column("p90", True, 1.1),
            Column(pgettext("narrow", "Started"), True),
            Column(pgettext("narrow", "Preempted"), True, 1.3),
            Column(_("Wait now"), True),
        ]
        known = {one.budget: one for one in self.pack.waits}
        shown = [known[row.budget] for row in self._shown if row.budget in known]
        rows = [] if self.is_leaf else [self._wait(one, one.label) for one in shown]
        if self._hidden:
            rest = [known[row.budget] for row in self._hidden if row.budget in known]
            sums = (sum(getattr(one, what) for one in rest) for what in COUNTED)
            cells = [num(number(value)) for value in sums]
            rows.append([text(self._others()), num(""), num(""), *cells])
        foot = self._wait(self.pack.all_waits, self.pack.total.label)
        return Table(_("Waits and preemptions"), columns, rows, foot)

    def _wait(self, one: Waits, name: str) -> list[Cell]:
        return [
            text(name),
            num(duration(one.p50_s, "short")),
            num(duration(one.p90_s, "short")),
            *(num(number(getattr(one, what))) for what in COUNTED),
        ]

    def _jobs(self) -> Table:
        columns = [
            Column(_("Job"), weight=2.4, most_lines=2),
            Column("GPUs", True, 0.8),
            Column(pgettext("narrow", "Runs"), True, 0.8),
            Column(pgettext("narrow", "Charged, cr"), True, 1.1),
            Column(_("Parked, %"), True),
            Column(pgettext("narrow", "Preempted"), True, 1.3),
        ]
        rows = []
        for one in self.pack.jobs:
            parked = review_words.part(one.parked_gpu_seconds, one.charged_gpu_seconds)
            name = f"{one.spent.budget.rpartition('/')[2]}/{one.spent.name}"
            rows.append(
                [
                    text(name, url=reverse("job", args=[one.spent.job])),
                    num(number(one.gpus)),
                    num(number(one.runs)),
                    num(credits(one.spent.settled_mgpus)),
                    num(percent(parked)),
                    num(number(one.preempted)),
                ]
            )
        rest = self.pack.other_jobs
        foot = [
            text(_("%(number)s others, and corrections") % {"number": number(rest.number)}),
            *(num(""), num(""), num(credits(rest.settled_mgpus)), num(""), num("")),
        ]
        nothing = _("Nothing was charged in this time.")
        foot = foot if rest.number or rest.settled_mgpus else []
        return Table(_("Largest jobs"), columns, rows, foot, nothing=nothing)

    def _people(self) -> Table:
        columns = [
            Column(_("Who"), weight=1.8, most_lines=2),
            Column(_("Jobs"), True, 0.8),
            Column("GPU-h", True),
            Column(pgettext("narrow", "Settled, cr"), True, 1.1),
        ]
        rows = [
            [
                text(one.name),
                num(number(one.jobs)),
                num(gpu_hours(one.gpu_seconds)),
                num(credits(one.settled_mgpus)),
            ]
            for one in self.pack.people
        ]
        rest = self.pack.other_people
        foot = [
            text(_("%(number)s others") % {"number": number(rest.number)}),
            num(""),
            num(gpu_hours(rest.gpu_seconds)),
            num(credits(rest.settled_mgpus)),
        ]
        foot = foot if rest.number or rest.settled_mgpus else []
        return Table(_("People"), columns, rows, foot, nothing=_("Nobody's jobs ran."))

    def _corrected(self) -> str:
        amount = self.pack.corrected_later_mgpus
        if not amount:
            return ""
        words = {"amount": signed_credits(amount, 2)}
        return (
            _("Corrected after the period was closed, by later entries: %(amount)s cr settled.")
            % words
        )


COUNTED = ("jobs", "preempted", "waiting")
