"""The families' picture: the published results beside ours, as an SVG written by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from .published import PUBLISHED, Published
from .tables import median

WIDTH, LEFT, RIGHT = 1000, 58, 16
GROUP_GAP, BAR_GAP = 22, 2
INK, SOFT, LINE, PAPER = "#1f2933", "#61707f", "#e3e8ee", "#ffffff"
FONT = "-apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Series:
    """One colour: a planner of the bench, or what was published."""

    planner: str
    label: str
    colour: str


SERIES = (
    Series("published", "published", "#e08a2e"),
    Series("plain", "plain priority order", "#b9c3ce"),
    Series("construction", "construction alone", "#8fbde0"),
    Series("fast", "fast, in the published time", "#2b7bba"),
    Series("full", "full", "#123f6b"),
)
FIFO = Series("fifo", "FIFO, peaks reserved", "#e3e8ee")


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart of grouped bars: `bars[family]` are (series, fraction) from left to right."""

    title: str
    top: int
    height: int
    most: float
    step: float
    bars: Mapping[str, Sequence[tuple[Series, float]]]

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - value / self.most)


def draw(rows: Rows) -> str:
    """The SVG of the families' rows as they are in the bench's JSON."""
    used = [s for s in SERIES if s.planner == "published" or s.planner in rows[0]["planners"]]
    found = {name: [row for row in rows if row["family"] == name] for name in PUBLISHED}
    found = {name: members for name, members in found.items() if members}
    gains = {name: _bars(members, used, "gain") for name, members in found.items()}
    filled = {name: _bars(members, [FIFO, *used], "utilization") for name, members in found.items()}
    tallest = max(value for bars in gains.values() for _, value in bars)
    above = Panel(
        "Value gained over FIFO, median", 140, 240, _rounded_up(tallest, 0.25), 0.25, gains
    )
    below = Panel("Share of the grid in use, median", 472, 144, 1.0, 0.25, filled)
    return "\n".join(
        [
            *_head(used, rows),
            *_panel(above, {"published", "fast", "full"}),
            *_families(found, 400),
            *_panel(below, set()),
            *_families(found, 636, sizes=False),
            *_notes(rows),
            "</svg>",
            "",
        ]
    )


def _bars(members: Rows, series: Sequence[Series], figure: str) -> list[tuple[Series, float]]:
    bars = []
    for one in series:
        if one.planner == "published":
            bars.append((one, _published(PUBLISHED[members[0]["family"]], figure)))
        else:
            value = median(row["planners"][one.planner][figure] for row in members)
            if value is not None:  # of full mode measured apart only the value is known
                bars.append((one, value))
    return bars


def _published(known: Published, figure: str) -> float:
    return known.gain if figure == "gain" else known.utilization


def _rounded_up(value: float, step: float) -> float:
    return step * (int(value / step) + 1)


def _head(used: Sequence[Series], rows: Rows) -> list[str]:
    height = 696
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title desc" '
        f'font-family="{FONT}">',
        '<title id="title">Published results of seven scenario families, and ours</title>',
        f'<desc id="desc">{escape(_description(rows))}</desc>',
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="{PAPER}" stroke="{LINE}"/>',
        _text(24, 38, "Seven families of workloads: what was published, and ours", 21, weight=650),
        _text(24, 61, "Reconstructions of the published scenarios: same GPUs, same number of "
              "jobs, same result first in, first out.", 13.5, SOFT),
    ]  # fmt: skip
    x = 24.0
    for one in [*used, FIFO]:
        edge = ' stroke="#b9c3ce"' if one is FIFO else ""
        lines.append(
            f'<rect x="{x:.0f}" y="79" width="12" height="12" rx="2" fill="{one.colour}"{edge}/>'
        )
        lines.append(_text(x + 18, 89.5, one.label, 13))
        x += 40 + 6.25 * len(one.label)
    return lines


def _description(rows: Rows) -> str:
    parts = []
    for name, known in PUBLISHED.items():
        ours = median(row["planners"]["fast"]["gain"] for row in rows if row["family"] == name)
        if ours is not None:
            parts.append(f"{name}: published {known.gain:+.1%}, fast mode {ours:+.1%}")
    return "Median value gain over first in, first out. " + "; ".join(parts) + "."


def _panel(panel: Panel, labelled: set[str]) -> list[str]:
    lines = [_text(24, panel.top - 18, panel.title, 14, weight=600)]
    tick = 0.0
    while tick <= panel.most + 1e-9:
        y = panel.y(tick)
        lines.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="{SOFT if tick == 0 else LINE}"/>'
        )
        lines.append(_text(LEFT - 8, y + 4, f"{100 * tick:.0f} %", 12, SOFT, "end"))
        tick += panel.step
    for i, bars in enumerate(panel.bars.values()):
        lines += _group(panel, bars, _left(i, len(panel.bars)), len(panel.bars), labelled)
    return lines


def _group(
    panel: Panel, bars: Sequence[tuple[Series, float]], x: float, groups: int, labelled: set[str]
) -> list[str]:
    wide = (_group_width(groups) - BAR_GAP * (len(bars) - 1)) / len(bars)
    lines = []
    for i, (one, value) in enumerate(bars):
        left, y = x + i * (wide + BAR_GAP), panel.y(max(value, 0))
        tall = panel.top + panel.height - y
        edge = ' stroke="#b9c3ce" stroke-width="0.8"' if one is FIFO else ""
        lines.append(
            f'<rect x="{left:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" '
            f'rx="2" fill="{one.colour}"{edge}>'
            f"<title>{escape(one.label)}: {value:.1%}</title></rect>"
        )
        if one.planner in labelled:
            middle = left + wide / 2
            lines.append(_text(middle, y - 5, _short(value), 12, INK, "middle", weight=600))
    published = next(value for one, value in bars if one.planner == "published")
    y = panel.y(published)
    lines.append(
        f'<line x1="{x:.1f}" x2="{x + _group_width(groups):.1f}" y1="{y:.1f}" y2="{y:.1f}" '
        'stroke="#b4630f" stroke-width="1.2" stroke-dasharray="3 3"/>'
    )
    return lines


def _short(value: float) -> str:
    """Per cent; with a tenth where whole ones would look alike."""
    return f"{100 * value:.0f}" if value >= 0.2 else f"{100 * value:.1f}"


def _families(found: Mapping[str, Rows], y: float, *, sizes: bool = True) -> list[str]:
    lines = []
    for i, name in enumerate(found):
        middle = _left(i, len(found)) + _group_width(len(found)) / 2
        lines.append(_text(middle, y, name, 12.5, INK, "middle", weight=600))
        if sizes:
            known = PUBLISHED[name]
            size = f"{known.gpus} GPUs, {known.jobs} jobs"
            lines.append(_text(middle, y + 16, size, 12, SOFT, "middle"))
    return lines


def _notes(rows: Rows) -> list[str]:
    told = (
        f"Medians of {len(rows)} scenarios, every plan checked. The dashed line is the published "
        "figure. What each bar is and how it was measured: docs/benchmarks.md"
    )
    return [_text(24, 672, told, 12.5, SOFT)]


def _group_width(groups: int) -> float:
    return (WIDTH - LEFT - RIGHT) / groups - GROUP_GAP


def _left(i: int, groups: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) / groups * i + GROUP_GAP / 2


def _text(
    x: float,
    y: float,
    text: str,
    size: float,
    colour: str = INK,
    anchor: str = "start",
    *,
    weight: int = 400,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
    )
