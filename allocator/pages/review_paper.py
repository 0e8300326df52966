"""Paper for PDFs: A4, the pages' own type and colours, and every character drawn or owned up to.

Text is Inter, which has the Latin letters; what it lacks (Greek, Cyrillic, Hebrew, Arabic, arrows)
is DejaVu Sans, then the fonts that the setting PDF_FONTS names. A character that none of them has
becomes ▯, and the last page says how many there were. Letters that join, and lines that run from
right to left, are shaped.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.translation import ngettext
from fontTools.ttLib import TTFont
from fpdf import FPDF
from fpdf.enums import Align, MethodReturnValue, XPos, YPos

from allocator.pages.review_drawing import Drawing, Words

FONTS = settings.BASE_DIR / "static" / "vendor"
PLAIN, BOLD, SPARE = FONTS / "inter-400.ttf", FONTS / "inter-600.ttf", FONTS / "dejavu-sans.ttf"
MISSING = "▯"
LEFT, RIGHT, TOP, BOTTOM = 14.0, 196.0, 13.0, 280.0  # mm
WIDTH = RIGHT - LEFT
SHAPED = ("R", "AL")  # classes of letters that run from right to left
NO_WIDTH = ("Cc", "Cf")
POINT = 25.4 / 72  # mm
Part = tuple[float, float, str]  # of a bar: from, to, paint


@cache
def tokens() -> dict[str, str]:
    """Return the light colours of static/allotment.css by name: #rrggbb."""
    text = (settings.BASE_DIR / "static" / "allotment.css").read_text()
    block = text[: text.index("data-bs-theme=dark")]
    return dict(re.findall(r"--al-([\w-]+):\s*(#[0-9a-f]{6})", block))


@cache
def letters(path: Path) -> frozenset[int]:
    """Return which characters a font file has."""
    with TTFont(path, lazy=True) as font:
        return frozenset(font.getBestCmap())


class Paper(FPDF):
    """A document of A4 sheets; lengths in mm, sizes of type in points."""

    def __init__(self, *, title: str, hue: int | str, foot: tuple[str, str]) -> None:
        super().__init__(orientation="portrait", unit="mm", format="A4")
        self.missing: set[str] = set()
        self.hue, self.foot = hue, foot
        self._spare: list[Path] = []
        self.set_margins(LEFT, TOP, 210 - RIGHT)
        self.set_auto_page_break(False)
        self.add_font("inter", "", PLAIN)
        self.add_font("inter", "B", BOLD)
        self.set_title(self.safe(title))
        self.set_creator("Allotment")
        self.c_margin = 0

    # --- Text ------------------------------------------------------------------------------------

    def safe(self, text: str) -> str:
        """Return a text of which a font has every character; make those fonts ready."""
        text = text.replace("\u202f", "\u00a0").replace("\r", "")
        known = letters(PLAIN)
        if all(ord(one) in known or one == "\n" for one in text):
            return text
        return "".join(self._known(one) for one in unicodedata.normalize("NFC", text))

    def _known(self, one: str) -> str:
        if one == "\n" or ord(one) in letters(PLAIN):
            return one
        for path in (SPARE, *map(Path, settings.PDF_FONTS)):
            if ord(one) in letters(path):
                self._have(path)
                return one
        if unicodedata.category(one) in NO_WIDTH:
            return ""
        self.missing.add(one)
        self._have(SPARE)
        return MISSING

    def _have(self, path: Path) -> None:
        if path not in self._spare:
            self._spare.append(path)
            self.add_font(f"spare{len(self._spare)}", "", path)
            names = [f"spare{number}" for number in range(1, len(self._spare) + 1)]
            self.set_fallback_fonts(names, exact_match=False)

    def type(self, size: float, *, bold: bool = False, colour: str = "ink") -> None:
        self.set_font("inter", "B" if bold else "", size)
        self.set_text_color(tokens()[colour])

    def lines(self, text: str, width: float) -> list[str]:
        """Return a text broken into lines that fit a width, in the type that is set."""
        text = self.safe(text)
        self._shape(text)
        found: Any = self.multi_cell(
            max(width, 4), 4, text, align=Align.L, dry_run=True, output=MethodReturnValue.LINES
        )
        return [str(line) for line in found] or [""]

    def put(self, x: float, y: float, text: str, *, anchor: str = "start") -> None:
        """Write one line with its baseline at y; by its start, middle or end."""
        text = self.safe(text)
        self._shape(text)
        length = self.get_string_width(text)
        at = {"start": 0.0, "middle": length / 2, "end": length}[anchor]
        height = self.font_size
        self.set_xy(x - at, y - 0.8 * height)
        self.cell(length, height, text, new_x=XPos.RIGHT, new_y=YPos.TOP)
        if self._spare and any(ord(one) not in letters(PLAIN) for one in text):
            self._again()

    def _again(self) -> None:
        """Have the type named anew: after letters of another font fpdf2 takes it for set."""
        style, size = self.font_style, self.font_size_pt
        self.set_font("inter", "" if style else "B", size)
        self.set_font("inter", style, size)

    def _shape(self, text: str) -> None:
        runs = any(unicodedata.bidirectional(one) in SHAPED for one in text)
        self.set_text_shaping(runs)

    def paragraph(self, text: str, *, leading: float, width: float = WIDTH) -> None:
        """Write a text below what there is."""
        for line in self.lines(text, width):
            self.room(leading)
            self.put(LEFT, self.y0 + 0.75 * leading, line)
            self.y0 += leading

    # --- Sheets ----------------------------------------------------------------------------------

    y0: float = TOP  # where the next thing stands

    def sheet(self) -> None:
        self.add_page()
        self.y0 = TOP

    def room(self, height: float) -> bool:
        """Go on on a new sheet where so much is not left; say whether that was so."""
        if self.y0 + height <= BOTTOM:
            return False
        self.sheet()
        return True

    def footer(self) -> None:
        """Below each sheet: what it is of, who made it and when, and its number."""
        self.type(7, colour="ink-3")
        y = 287.0
        self.put(LEFT, y, self.foot[0])
        self.put(RIGHT - 14, y, self.foot[1], anchor="end")
        self.set_text_shaping(False)
        self.set_xy(RIGHT - 14, y - 2.2)
        self.cell(14, 2.6, f"{self.page_no()} / {{nb}}", align=Align.R)

    def rule(self, y: float, colour: str = "line", width: float = 0.2) -> None:
        self.set_draw_color(tokens()[colour])
        self.set_line_width(width)
        self.line(LEFT, y, RIGHT, y)

    def missing_said(self) -> str:
        """Return the sentence about characters that no font has; empty where there are none."""
        if not self.missing:
            return ""
        return ngettext(
            "%(box)s stands for a character that no font of this PDF has; the page and the "
            "workbook have it.",
            "%(box)s stands for %(number)s characters that no font of this PDF has; the page and "
            "the workbook have them.",
            len(self.missing),
        ) % {"box": MISSING, "number": len(self.missing)}

    # --- Drawings --------------------------------------------------------------------------------

    def colour(self, paint: str) -> str:
        """Return the colour of a class of static/allotment.css."""
        if paint in ("k-hue", "f-hue", "t-hue"):
            numbered = isinstance(self.hue, int) and self.hue > 0
            if paint == "t-hue":
                return tokens()[f"h{self.hue}-t" if numbered else "grey-t"]
            return tokens()[f"h{self.hue}" if numbered else "ink-2"]
        plain = paint.partition("-")[2]
        return tokens()[{"ink2": "ink-2", "line2": "line-2"}.get(plain, plain)]

    def draw(self, drawing: Drawing, x: float, y: float, width: float) -> float:
        """Draw at a place, so wide; return how high that is."""
        scale = width / drawing.width

        def place(at: tuple[float, float]) -> tuple[float, float]:
            return x + at[0] * scale, y + at[1] * scale

        for area in drawing.areas:
            self.set_fill_color(self.colour(area.paint))
            self.polygon([place(at) for at in area.places], style="F")
        for line in drawing.lines:
            self.set_draw_color(self.colour(line.paint))
            self.set_line_width(line.width * scale)
            self._dash(line.dash, scale)
            self.polyline([place(at) for at in line.places])
        self.set_dash_pattern()
        for dot in drawing.dots:
            self.set_fill_color(self.colour("f-hue"))
            at = place(dot.place)
            self.circle(at[0], at[1], 3 * scale, style="F")
        for words in drawing.words:
            self._words(words, place(words.place), scale)
        return drawing.height * scale

    def _words(self, words: Words, at: tuple[float, float], scale: float) -> None:
        size = 11 * scale / POINT
        self.type(size, bold=words.bold, colour="ink" if words.bold else "ink-2")
        self.put(*at, words.text, anchor=words.anchor)

    def _dash(self, dash: str, scale: float) -> None:
        if not dash:
            self.set_dash_pattern()
            return
        on, off = (float(part) * scale for part in dash.split())
        self.set_dash_pattern(dash=on, gap=off)

    def bar(self, parts: Sequence[Part], x: float, y: float, width: float) -> None:
        """Draw a bar of (from, to, paint), parts of 1, in the order given."""
        for start, end, paint in parts:
            if end > start:
                self.set_fill_color(self.colour(paint))
                self.rect(x + start * width, y, (end - start) * width, 2.2, style="F")
