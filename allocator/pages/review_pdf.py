"""A review pack as a PDF, drawn from the same sheets as its page."""

from datetime import datetime
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _

from allocator.pages.review_paper import LEFT, POINT, RIGHT, WIDTH, Paper
from allocator.pages.review_sheets import Sheets
from allocator.pages.review_tables import Cell, Column, Table
from allocator.reviews.keeping import Kept
from allocator.reviews.pack import Pack
from clusters.writing import dated

GAP = 6.0  # mm between what stands side by side
PAD = 1.2
BODY, SMALL = 8.0, 7.0  # points
ROW, LINE = 1.9, 3.6  # mm: what a row has besides its lines; one line
CLEAR = 3.0


def pdf(
    pack: Pack, sheets: Sheets, *, kept: Kept | None, by: str, institute: str, now: datetime
) -> bytes:
    """Return the PDF; ``by`` is who made it, at ``now``."""
    return _Pdf(pack, sheets, kept, by, institute, now).made()


class _Pdf:
    def __init__(
        self,
        pack: Pack,
        sheets: Sheets,
        kept: Kept | None,
        by: str,
        institute: str,
        now: datetime,
    ) -> None:
        self.pack, self.sheets, self.kept = pack, sheets, kept
        self.zone = ZoneInfo(pack.about.time_zone)
        words = {
            "institute": institute,
            "name": pack.about.name,
            "period": pack.about.period_name,
            "at": self._moment(pack.about.end),
        }
        made = {"who": by, "at": self._moment(now)}
        version = {"number": kept.row.version if kept else 0}
        foot = (
            _("Allotment · %(institute)s · %(name)s, %(period)s to %(at)s") % words,
            (_("version %(number)s · ") % version if kept else "")
            + _("made by %(who)s, %(at)s") % made,
        )
        self.paper = Paper(title=sheets.title, hue=pack.about.painted, foot=foot)
        self.paper.set_author(by)
        self.paper.set_creation_date(now)

    def _moment(self, at: datetime) -> str:
        return dated(at.astimezone(self.zone), "j M Y H:i")

    def made(self) -> bytes:
        self._first()
        self._second()
        said = self.paper.missing_said()
        if said:
            self.paper.type(SMALL, colour="ink-3")
            self.paper.y0 += 2
            self.paper.paragraph(said, leading=3.3)
        return bytes(self.paper.output())

    # --- The sheets ------------------------------------------------------------------------------

    def _first(self) -> None:
        paper, sheets = self.paper, self.sheets
        paper.sheet()
        self._head()
        self._summary()
        self._keys()
        paper.type(SMALL, colour="ink-3")
        facts = f"{sheets.facts} {sheets.corrected}".strip()
        paper.paragraph(facts, leading=3.3)
        self._title(_("Plan against burn"), self._plan_words())
        paper.y0 += paper.draw(sheets.chart, LEFT, paper.y0, WIDTH) + 1
        self._table(sheets.projects, LEFT, WIDTH)
        self._weeks()

    def _second(self) -> None:
        self.paper.sheet()
        for number, pair in enumerate(self.sheets.pairs):
            self._pair(pair, 0.62 if number else 0.5)
        for table in self.sheets.decided:
            self._table(table, LEFT, WIDTH)
        self._comments()
        self._decision()

    def _head(self) -> None:
        paper = self.paper
        paper.type(15, bold=True)
        lines = paper.lines(self.sheets.title, WIDTH - 12)
        for line in lines:
            paper.put(LEFT, paper.y0 + 5, line)
            paper.y0 += 6.5
        paper.set_fill_color(paper.colour("f-hue"))
        paper.rect(RIGHT - 6, paper.y0 - 6.5 * len(lines) + 0.5, 6, 6, style="F")
        paper.type(8.5, colour="ink-3")
        said = self.sheets.subtitle
        if self.kept is not None:
            day = dated(self.kept.row.held_on, "j F Y")
            said = f"{said} {_('Review held on %(day)s.') % {'day': day}}"
        paper.paragraph(said, leading=4.2)
        paper.y0 += 1.5

    def _summary(self) -> None:
        paper = self.paper
        paper.type(9.5, bold=True)
        paper.paragraph(self.sheets.lead, leading=4.6)
        paper.type(9.5)
        paper.paragraph(self.sheets.sentences, leading=4.6)
        paper.y0 += 2

    def _keys(self) -> None:
        paper, width = self.paper, WIDTH / len(self.sheets.keys)
        paper.rule(paper.y0, "ink", 0.3)
        top, lowest = paper.y0 + 1, 0.0
        for number, key in enumerate(self.sheets.keys):
            x, y = LEFT + number * width, top
            paper.type(SMALL, colour="ink-3")
            paper.put(x, y + 3, key.name)
            paper.type(14, bold=True, colour="red-ink" if key.is_bad else "ink")
            paper.put(x, y + 9, key.value)
            end = x + paper.get_string_width(paper.safe(key.value)) + 1
            paper.type(9)
            paper.put(end, y + 9, key.unit)
            y += 11
            paper.type(6.5, colour="ink-3")
            for text in (key.of, key.beside):
                for line in paper.lines(text, width - 3):
                    paper.put(x, y + 2.2, line)
                    y += 2.9
            lowest = max(lowest, y)
        paper.y0 = lowest + 1
        paper.rule(paper.y0)
        paper.y0 += 1.5

    def _plan_words(self) -> str:
        if self.pack.about.has_plan:
            said = _("credits; dashed: the budget's own plan")
        else:
            said = _("credits; dashed: planned evenly in time, since it has no plan of its own")
        return said + (_("; fan: four times out of five") if self.sheets.chart.areas else "")

    def _title(self, title: str, sub: str = "") -> None:
        paper = self.paper
        paper.room(14)
        paper.y0 += CLEAR
        paper.type(9.5, bold=True)
        paper.put(LEFT, paper.y0 + 3.5, title)
        if sub:
            x = LEFT + paper.get_string_width(paper.safe(title)) + 2
            paper.type(SMALL, colour="ink-3")
            paper.put(x, paper.y0 + 3.5, sub)
        paper.y0 += 5.5

    def _weeks(self) -> None:
        drawings = self.sheets.weeks
        if not drawings:
            return
        paper, width = self.paper, (WIDTH - 2 * GAP) / 3
        height = width * drawings[0].height / drawings[0].width + 4
        paper.room(height + 14)
        self._title(_("Delivered of owed, by week"), "%")
        for number, drawing in enumerate(drawings):
            column = number % 3
            if column == 0 and number:
                paper.y0 += height
                paper.room(height)
            x = LEFT + column * (width + GAP)
            paper.type(BODY, bold=True)
            paper.put(x, paper.y0 + 3, self._cut(drawing.caption, width))
            paper.draw(drawing, x, paper.y0 + 4, width)
        paper.y0 += height + 1
        paper.type(SMALL, colour="ink-3")
        paper.paragraph(self.sheets.weeks_note, leading=3.3)

    def _cut(self, text: str, width: float) -> str:
        lines = self.paper.lines(text, width)
        return lines[0] if len(lines) == 1 else f"{lines[0].rstrip()}…"

    def _comments(self) -> None:
        paper = self.paper
        self._title(_("Comments"))
        if not self.sheets.comments:
            paper.type(BODY, colour="ink-3")
            paper.paragraph(_("Nobody has said anything."), leading=4)
        for who, when, what in self.sheets.comments:
            paper.room(8)
            paper.type(BODY, bold=True)
            paper.put(LEFT, paper.y0 + 3, who)
            x = LEFT + paper.get_string_width(paper.safe(who)) + 1.5
            paper.type(SMALL, colour="ink-3")
            paper.put(x, paper.y0 + 3, when)
            paper.y0 += 4
            paper.type(BODY)
            paper.paragraph(what, leading=3.8)
            paper.y0 += 1

    def _decision(self) -> None:
        paper = self.paper
        paper.room(46)
        self._title(_("Decisions of this review"))
        if self.kept is None:
            for _line in range(4):
                paper.room(8)
                paper.y0 += 8
                paper.rule(paper.y0, "line-2")
            return
        paper.type(9)
        paper.paragraph(self.kept.row.decision, leading=4.3)
        if self.kept.row.reason:
            words = {"number": self.kept.row.version, "why": self.kept.row.reason}
            paper.type(SMALL, colour="ink-3")
            said = _("Version %(number)s corrects the one before: %(why)s") % words
            paper.paragraph(said, leading=3.3)

    # --- Tables ----------------------------------------------------------------------------------

    def _pair(self, pair: tuple[Table, Table], part: float) -> None:
        paper = self.paper
        first = (WIDTH - GAP) * part
        spans = ((LEFT, first), (LEFT + first + GAP, WIDTH - GAP - first))
        tall = max(
            self._height(table, width) for table, (_x, width) in zip(pair, spans, strict=True)
        )
        paper.room(min(tall, 200))
        top, lowest = paper.y0, 0.0
        for table, (x, width) in zip(pair, spans, strict=True):
            paper.y0 = top
            self._table(table, x, width)
            lowest = max(lowest, paper.y0)
        paper.y0 = lowest

    def _height(self, table: Table, width: float) -> float:
        self.paper.type(BODY)
        rows = [*table.rows, table.foot] if table.foot else table.rows
        widths = _widths(table.columns, width)
        return 18 + sum(ROW + LINE * max(map(len, self._texts(table, row, widths))) for row in rows)

    def _table(self, table: Table, x: float, width: float) -> None:
        paper, widths = self.paper, _widths(table.columns, width)
        paper.room(20)
        paper.y0 += CLEAR
        paper.type(9.5, bold=True)
        paper.put(x, paper.y0 + 3.5, table.title)
        paper.y0 += 5.5
        if not (table.rows or table.foot):
            paper.type(BODY, colour="ink-3")
            paper.put(x, paper.y0 + 3, table.nothing)
            paper.y0 += 4
            return
        self._columns(table.columns, x, widths)
        for row in table.rows:
            self._row(table, row, x, widths)
        if table.foot:
            self._row(table, table.foot, x, widths, bold=True)
        if table.note:
            paper.type(SMALL, colour="ink-3")
            paper.put(x, paper.y0 + 3, table.note)
            paper.y0 += 4

    def _columns(self, columns: list[Column], x: float, widths: list[float]) -> None:
        paper = self.paper
        paper.type(6.8, colour="ink-3")
        names = [
            [] if column.is_bar else paper.lines(column.name, width - PAD)
            for column, width in zip(columns, widths, strict=True)
        ]
        lines, at = max(map(len, names)), x
        for column, width, texts in zip(columns, widths, names, strict=True):
            for number, text in enumerate(texts):
                y = paper.y0 + 2.6 + 2.9 * (number + lines - len(texts))
                if column.numeric:
                    paper.put(at + width, y, text, anchor="end")
                else:
                    paper.put(at, y, text)
            at += width
        paper.y0 += 2.9 * lines + 1
        self._rule(x, sum(widths), "line-2")

    def _rule(self, x: float, width: float, colour: str = "line") -> None:
        self.paper.set_draw_color(self._token(colour))
        self.paper.set_line_width(0.2)
        self.paper.line(x, self.paper.y0, x + width, self.paper.y0)

    def _token(self, name: str) -> str:
        return self.paper.colour(f"k-{name}")

    def _texts(self, table: Table, row: list[Cell], widths: list[float]) -> list[list[str]]:
        """Each cell's lines, at most as many as its column takes."""
        parts = zip(table.columns, row, widths, strict=True)
        return [self._lines(cell, width, column.most_lines) for column, cell, width in parts]

    def _lines(self, cell: Cell, width: float, most: int) -> list[str]:
        lines = self.paper.lines(cell.text, width - PAD) if cell.text else [""]
        return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1][:-1]}…"]

    def _row(
        self, table: Table, row: list[Cell], x: float, widths: list[float], *, bold: bool = False
    ) -> None:
        paper = self.paper
        paper.type(BODY, bold=bold)
        texts = self._texts(table, row, widths)
        height = ROW + LINE * max(map(len, texts))
        if paper.room(height):
            self._columns(table.columns, x, widths)
        at = x
        for cell, lines, width in zip(row, texts, widths, strict=True):
            bad = cell.is_bad
            paper.type(BODY, bold=bold or bad, colour="red-ink" if bad else "ink")
            if cell.bar is not None:
                self._bar(cell.bar, at + 2, paper.y0 + height / 2 - 1.1, width - 4)
            for number, text in enumerate(lines):
                y = paper.y0 + ROW / 2 + LINE * number + BODY * POINT * 0.95
                if cell.numeric:
                    paper.put(at + width, y, text, anchor="end")
                else:
                    paper.put(at, y, text)
            at += width
        paper.y0 += height
        self._rule(x, sum(widths))

    def _bar(self, bar: dict[str, int], x: float, y: float, width: float) -> None:
        """As the tag `bullet`: settled, pale what comes, a band of pace 0.9 to 1.1, a mark."""
        granted = bar["granted"]
        settled = min(1.0, max(0.0, bar["settled"] / granted))
        later = min(1.0, settled + max(0, bar["held"] + bar["in_flight"]) / granted)
        gone = bar["elapsed"] / 100_000
        band = (min(1.0, gone * 0.9), min(1.0, gone * 1.1), "f-line-2")
        self.paper.bar(
            [(0, 1, "f-sunken"), band, (0, settled, "f-hue"), (settled, later, "t-hue")],
            x, y, width,
        )  # fmt: skip
        self.paper.set_fill_color(self.paper.colour("f-ink"))
        self.paper.rect(x + min(1.0, gone) * width - 0.2, y - 0.8, 0.4, 3.8, style="F")


def _widths(columns: list[Column], width: float) -> list[float]:
    whole = sum(column.weight for column in columns)
    return [width * column.weight / whole for column in columns]
