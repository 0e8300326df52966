"""Drawings of a review pack as shapes, which the page writes as SVG and the PDF as vectors.

Coordinates are units of a drawing's own box, y downwards. What a shape is painted with is named by
the classes of static/allotment.css: k- strokes, f- and t- fill; `hue` stands for the program's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _

from allocator.reviews.pack import Pack, Points, Weekly
from clusters.writing import credits, dated, percent, written

AIM = 95_000  # of delivered, thousandths of a percent
CREDIT = 3_600_000
SECOND = timedelta(seconds=1)
LEFT, RIGHT, TOP, BOTTOM = 46, 714, 22, 232
NICE = (1, 2, 2.5, 5, 10)
LETTER = 6  # about how wide one is

Place = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A line through places."""

    places: tuple[Place, ...]
    paint: str
    width: float = 1
    dash: str = ""

    @property
    def path(self) -> str:
        """As SVG writes it."""
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in self.places)


@dataclass(frozen=True)
class Area(Line):
    """What a line encloses."""


@dataclass(frozen=True)
class Words:
    """A text; ``anchor`` says which of its ends stands at the place."""

    place: Place
    text: str
    anchor: str = "start"
    bold: bool = False

    @property
    def x(self) -> str:
        return f"{self.place[0]:.1f}"

    @property
    def y(self) -> str:
        return f"{self.place[1]:.1f}"


@dataclass
class Drawing:
    """A picture of so many units, and what it says to who doesn't see it."""

    width: int
    height: int
    label: str
    caption: str = ""
    areas: list[Area] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    dots: list[Words] = field(default_factory=list)  # where; their text is empty
    words: list[Words] = field(default_factory=list)


def burn(pack: Pack) -> Drawing:
    """Return plan against burn over the whole period: settled, plan, granted, forecast, marks."""
    return _Burn(pack).drawing()


class _Burn:
    def __init__(self, pack: Pack) -> None:
        self.pack, self.about = pack, pack.about
        total = pack.total.burn
        self.span = (self.about.ends_at - self.about.starts_at) / SECOND
        every = [amount for points in self._curves() for _, amount in points]
        tops = [*every, total.forecast_high_mgpus or 0, 1]
        self.step = _step(max(tops) / CREDIT)
        self.most = self.step * CREDIT * max(1, -(-max(tops) // int(self.step * CREDIT)))
        self.zone = ZoneInfo(self.about.time_zone)

    def _curves(self) -> tuple[Points, ...]:
        chart = self.pack.chart
        return chart.settled, chart.plan, chart.granted

    def drawing(self) -> Drawing:
        found = Drawing(720, 252, self._label())
        self._grid(found)
        self._marks(found)
        self._granted(found)
        self._line(found, self.pack.chart.plan, "k-ink2", 1.5, "5 4")
        self._forecast(found)
        self._line(found, self.pack.chart.settled, "k-hue", 2.5)
        if self.about.now < self.about.ends_at:
            self._now(found)
        return found

    def _label(self) -> str:
        total = self.pack.total
        words = {
            "settled": credits(total.burn.settled_mgpus),
            "plan": credits(total.planned_mgpus),
            "granted": credits(total.burn.granted_mgpus),
        }
        return _("Settled %(settled)s cr, planned to date %(plan)s, granted %(granted)s") % words

    def _x(self, at: datetime) -> float:
        gone = (at - self.about.starts_at) / SECOND / self.span
        return LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, gone))

    def _y(self, amount: int) -> float:
        return BOTTOM - (BOTTOM - TOP) * amount / self.most

    def _at(self, at: datetime, amount: int) -> Place:
        return self._x(at), self._y(amount)

    def _line(
        self, found: Drawing, points: Points, paint: str, width: float, dash: str = ""
    ) -> None:
        if len(points) > 1:
            places = tuple(self._at(*one) for one in points)
            found.lines.append(Line(places, paint, width, dash))

    def _grid(self, found: Drawing) -> None:
        steps = round(self.most / CREDIT / self.step)
        for number in range(steps + 1):
            amount = int(number * self.step * CREDIT)
            y = self._y(amount)
            found.lines.append(Line(((LEFT, y), (RIGHT, y)), "k-line"))
            found.words.append(Words((LEFT - 6, y + 4), _short(amount // CREDIT), "end"))
        last = self.about.ends_at - SECOND
        for at in self._months():
            x = self._x(at)
            if RIGHT - x > 60:
                found.lines.append(Line(((x, BOTTOM), (x, BOTTOM + 4)), "k-line2"))
                found.words.append(Words((x, 248), _day(at, self.zone), _anchor(x)))
        found.words.append(Words((RIGHT, 248), _day(last, self.zone), "end"))

    def _months(self) -> Iterator[datetime]:
        """Yield the start and the firsts of months, so many that they can be read."""
        yield self.about.starts_at
        first = self.about.starts_at.astimezone(self.zone)
        months = max(1, round(self.span / 86_400 / 30.4))
        every = -(-months // 8)
        for number in range(every, months + 2, every):
            year, month = divmod(first.year * 12 + first.month - 1 + number, 12)
            at = datetime(year, month + 1, 1, tzinfo=self.zone)
            if at < self.about.ends_at and self._x(at) - LEFT > 50:
                yield at

    def _granted(self, found: Drawing) -> None:
        steps = self.pack.chart.granted
        if not steps:
            return
        places: list[Place] = []
        for at, amount in steps:
            if places:
                places.append((self._x(at), places[-1][1]))
            places.append(self._at(at, amount))
        places.append((RIGHT, places[-1][1]))
        found.lines.append(Line(tuple(places), "k-ink2", 1, "1 3"))
        said = credits(self.pack.total.burn.granted_mgpus)
        words = _("granted %(amount)s cr") % {"amount": said}
        found.words.append(Words((LEFT + 4, places[-1][1] - 5), words))

    def _forecast(self, found: Drawing) -> None:
        total, settled = self.pack.total.burn, self.pack.chart.settled
        low, high = total.forecast_low_mgpus, total.forecast_high_mgpus
        if low is None or high is None or self.about.now >= self.about.ends_at or not settled:
            return
        start, end = self._at(*settled[-1]), self.about.ends_at
        fan = (start, self._at(end, high), self._at(end, low))
        found.areas.append(Area(fan, "t-hue"))
        likely = total.forecast_mgpus or low
        found.lines.append(Line((start, self._at(end, likely)), "k-hue", 1.5, "2 3"))
        said = f"{_short(low // CREDIT)} – {_short(high // CREDIT)}"
        # Where the plan has no line: above a forecast that ends above the grant, else below it.
        is_over = high > total.granted_mgpus
        y = max(12.0, self._y(high) - 6) if is_over else self._below(start, self._y(low))
        found.words.append(
            Words((RIGHT, y), _("forecast %(range)s") % {"range": said}, "end", True)
        )

    def _below(self, start: Place, end_y: float) -> float:
        """Return where words at the right end stand below a line that rises to it."""
        x, y = start
        left = max(0.0, RIGHT - 22 * LETTER - x) / max(1.0, RIGHT - x)
        return min(BOTTOM - 6.0, y + (end_y - y) * left + 12)

    def _now(self, found: Drawing) -> None:
        x = self._x(self.about.end)
        found.lines.append(Line(((x, 6), (x, BOTTOM)), "k-ink"))
        anchor, by = ("end", -4) if x > 120 else ("start", 4)
        found.words.append(Words((x + by, 14), _day(self.about.end, self.zone), anchor, True))

    def _marks(self, found: Drawing) -> None:
        """Changes of the share, each label where no other stands."""
        end = self._x(self.about.end)
        taken = [(end - 50, end)]
        for number, mark in enumerate(self.pack.chart.marks):
            x, width = self._x(mark.at), LETTER * len(mark.label) + 4
            dash = "3 3" if mark.is_open else ""
            found.lines.append(Line(((x, TOP + 14), (x, BOTTOM)), "k-line2", 1, dash))
            sides = ((x - width, x, "end", -4), (x, x + width, "start", 4))
            for low, high, anchor, by in sides:
                free = not any(low < b and a < high for a, b in taken)
                if free and low > LEFT and high < RIGHT:
                    y = BOTTOM - 8 - 14 * (number % 2)
                    found.words.append(Words((x + by, y), mark.label, anchor))
                    taken.append((low, high))
                    break


def week(one: Weekly, *, zone: ZoneInfo) -> Drawing:
    """Return what a budget got of what it was owed, week by week; a gap where nothing was owed."""
    parts = [
        each.delivered_gpu_seconds * 100_000 // each.owed_gpu_seconds
        if each.owed_gpu_seconds
        else None
        for each in one.weeks
    ]
    known = [part for part in parts if part is not None]
    told = ", ".join(percent(part) for part in parts)
    words = {"name": one.label, "values": told}
    found = Drawing(
        228, 92, _("%(name)s, delivered of owed by week: %(values)s percent") % words, one.label
    )
    low = min([*known, AIM]) - 1000
    high = max([*known, AIM, 100_000])

    def place(number: int, part: int) -> Place:
        return 4 + 184 * number / max(1, len(parts) - 1), 8 + 62 * (high - part) / (high - low)

    aim = place(0, AIM)[1]
    found.lines.append(Line(((0, aim), (192, aim)), "k-ink2", 1, "3 3"))
    for run in _runs(parts):
        found.lines.append(Line(tuple(place(*each) for each in run), "k-hue", 2))
    if known:
        last = max(number for number, part in enumerate(parts) if part is not None)
        end = place(last, known[-1])
        found.dots.append(Words(end, ""))
        found.words.append(Words((end[0] + 7, end[1] + 4), percent(known[-1]), "start", True))
    if one.weeks:
        found.words.append(Words((0, 90), _day(one.weeks[0].start, zone)))
    if len(one.weeks) > 1:
        found.words.append(Words((192, 90), _day(one.weeks[-1].start, zone), "end"))
    return found


def _runs(parts: Sequence[int | None]) -> Iterator[list[tuple[int, int]]]:
    """Yield what is drawn in one: neighbours that are known."""
    run: list[tuple[int, int]] = []
    for number, part in enumerate([*parts, None]):
        if part is not None:
            run.append((number, part))
        elif run:
            yield run if len(run) > 1 else [*run, run[0]]
            run = []


def _step(credits_: float) -> float:
    """Return a round step of which three to six make so many credits."""
    size = 10.0
    while size * 10 <= credits_ / 5:
        size *= 10
    while size / 10 > credits_ / 5 and size > 1e-3:
        size /= 10
    return next(size * one for one in NICE if size * one * 5 >= credits_ or one == NICE[-1])


def _short(number: int) -> str:
    """Return a number of credits for an axis."""
    if number >= 10_000_000:
        return f"{written(number / 1_000_000)} M"
    return f"{written(number / 1000)} k" if number >= 10_000 else written(number)


def _day(at: datetime, zone: ZoneInfo) -> str:
    return dated(at.astimezone(zone), "j M")


def _anchor(x: float) -> str:
    return "start" if x - LEFT < 1 else "middle"
