"""Small figures and pieces that pages include: bars, sparks, chips, icons, the side bar.

The widths are computed here, so that the templates hold no arithmetic; they are attributes of
inline SVG, so that pages need no inline style and print as they look.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django import template
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join, json_script
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from clusters.templatetags.allotment import hue as hue_class
from clusters.templatetags.allotment import percent, sort_url, sorted_as, written
from clusters.writing import typed

register = template.Library()

# Icon of the rule that binds for a waiting job; the words beside it always say it too.
REASON_ICONS = {
    "starts_now": "player-play",
    "arrival": "calendar",
    "behind": "sort-ascending",
    "unfunded_behind": "circle-dashed",
    "no_block": "layout-grid",
    "draining": "tool",
    "pool": "server",
    "beyond_horizon": "hourglass",
    "not_funded": "coin-off",
    "dependency": "link",
    "refused": "refresh",
    "unreachable": "plug-x",
}
# Someone must act on these, so they are red.
REASONS_TO_ACT_ON = {"not_funded", "unreachable"}

# Entries of the side bar: route, icon, words. Those without a route are left out.
NAVIGATION = (
    (
        "",
        (
            ("overview", "layout-dashboard", gettext_lazy("Overview")),
            ("budgets", "sitemap", gettext_lazy("Budgets")),
            ("periods", "calendar", gettext_lazy("Periods")),
            ("requests", "inbox", gettext_lazy("Requests")),
            ("jobs", "list-details", gettext_lazy("Jobs")),
            ("plan", "layout-grid", gettext_lazy("Plan")),
            ("reviews", "file-text", gettext_lazy("Reviews")),
            ("simulator", "flask", gettext_lazy("Simulator")),
        ),
    ),
    (
        gettext_lazy("Operations"),
        (
            ("forecasts", "chart-line", gettext_lazy("Forecasts")),
            ("cycles", "refresh", gettext_lazy("Cycles")),
            ("nodes", "server", gettext_lazy("Nodes")),
            ("audit", "history", gettext_lazy("Audit log")),
        ),
    ),
    (
        gettext_lazy("Settings"),
        (
            ("people", "user", gettext_lazy("People")),
            ("pools", "coin", gettext_lazy("Pools and rates")),
        ),
    ),
)


# What the charts say by themselves, as charts.js has it.
CHART_WORDS = {
    "now": gettext_lazy("now"),
    "left": gettext_lazy("left"),
    "forecast": gettext_lazy("forecast"),
    "plan": gettext_lazy("plan"),
    "against plan": gettext_lazy("against plan"),
    "traffic": gettext_lazy("traffic"),
    "held": gettext_lazy("held"),
    "a second": gettext_lazy("a second"),
    "lost": gettext_lazy("lost a run"),
    "exactly its share": gettext_lazy("exactly its share"),
    "used": gettext_lazy("used"),
    "asked": gettext_lazy("asked"),
    "used, h; asked upwards": gettext_lazy("used, h; asked upwards"),
}


@register.simple_tag
def chart_words() -> SafeString:
    """The JSON block in which charts.js finds its words in the reader's language."""
    return json_script({word: str(said) for word, said in CHART_WORDS.items()}, "chart-words")


def _width(part: float, whole: float) -> str:
    """A part of a whole as an SVG length, 0 % to 100 %, never localised."""
    share = 0.0 if whole <= 0 else min(1.0, max(0.0, part / whole))
    return f"{share * 100:.2f}%"


@register.simple_tag
def route(name: str, *args: object) -> str:
    """Address of a route, or nothing where it doesn't exist."""
    try:
        return reverse(name, args=args)
    except NoReverseMatch:
        return ""


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    """An icon of ``_icons.html``: ``{% icon "plus" %}``. Decoration: words stand beside it."""
    return format_html(
        '<svg class="ico{}" viewBox="0 0 24 24" aria-hidden="true"><use href="#i-{}"/></svg>',
        f" {extra}" if extra else "",
        name,
    )


@register.simple_tag(name="help")
def question_mark(formula: str, guide: str) -> SafeString:
    """The question mark beside a number: its formula opens on focus, hover and touch, and it leads
    to the heading of the guide that explains it: ``{% help _("Used ÷ plan") "ledger#burn" %}``."""
    page, _hash, heading = guide.partition("#")
    return format_html(
        '<a class="q" href="{}#{}" target="_blank" hreflang="en" data-help="{}" data-more="{}" '
        'aria-label="{}">?</a>',
        reverse("guide-page", args=[page]),
        heading,
        formula,
        _("More in the guide"),
        formula,
    )


@register.inclusion_tag("_nav.html", takes_context=True)
def navigation(
    context: template.Context,
    counts: Mapping[str, int] | None = None,
    hidden: Collection[str] = (),
) -> dict[str, Any]:
    """The side bar's entries that have routes. A page names its own by ``nav_current``, else the
    route decides. ``counts``: route → number at the entry's end; ``hidden``: routes that aren't
    there for the reader."""
    match = getattr(context.get("request"), "resolver_match", None)
    here = context.get("nav_current") or (match.url_name if match else "")
    groups = []
    for label, entries in NAVIGATION:
        items = [
            {
                "url": url,
                "icon": symbol,
                "label": words,
                "current": name == here,
                "count": (counts or {}).get(name),
            }
            for name, symbol, words in entries
            if name not in hidden and (url := route(name))
        ]
        if items:
            groups.append({"label": label, "entries": items})
    return {"groups": groups}


@register.inclusion_tag("_bullet.html")
def bullet(
    *,
    name: str,
    settled: int,
    granted: int,
    elapsed: int | None,
    held: int = 0,
    in_flight: int = 0,
    hue: int | str | None = None,
) -> dict[str, Any]:
    """Burn of a budget as a bar: settled, pale = held and in flight, band = pace 0.9 to 1.1.

    ``settled``, ``granted``, ``held`` and ``in_flight`` in one unit (milli-GPU-seconds);
    ``elapsed`` in thousandths of a percent of the period, None: no mark.
    """
    done = settled * 100_000 // granted if granted > 0 else 0
    label = _("%(name)s: %(done)s %% of its grant settled") % {"name": name, "done": percent(done)}
    if elapsed is not None:
        label += _(", %(part)s %% of the period elapsed") % {"part": percent(elapsed)}
    later = min(held + in_flight, max(0, granted - settled))
    return {
        "label": label,
        "hue": hue_class(hue),
        "settled": _width(settled, granted),
        "later": _width(later, granted),
        "elapsed": None if elapsed is None else _width(elapsed, 100_000),
        "band": None if elapsed is None else _width(elapsed * 0.9, 100_000),
        "band_width": None
        if elapsed is None
        else _width(min(elapsed * 1.1, 100_000) - elapsed * 0.9, 100_000),
    }


@register.inclusion_tag("_spark.html")
def spark(values: Sequence[float | None], label: str, aim: float | None = None) -> dict[str, Any]:
    """A line without axes over evenly spaced values (None leaves a gap); ``aim`` is dashed."""
    known = [v for v in values if v is not None]
    low, high = (
        min([*known, aim or known[0]]) if known else 0,
        max([*known, aim or known[0]]) if known else 0,
    )
    spread = (high - low) or 1
    step = 120 / max(1, len(values) - 1)

    def height(value: float) -> str:
        return f"{29 - 26 * (value - low) / spread:.1f}"

    path, pen = [], "M"
    for index, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        path.append(f"{pen}{index * step:.1f} {height(value)}")
        pen = "L"
    line = None if aim is None or not known else height(aim)
    return {"path": "".join(path), "aim": line, "label": label}


def _paint(pattern: str, hue: int | str | None) -> dict[str, str]:
    """Class, fill and stroke of a part, by the one vocabulary of patterns (docs/ui.md)."""
    number = hue_class(hue).removeprefix("hue-")
    flat = number if number.isdigit() else "grey"
    tone = hue_class(hue)
    return {
        "solid": {"css": f"{tone} f-hue"},
        "held": {"css": f"{tone} t-hue"},
        "realtime": {"css": f"{tone} m-hue"},
        "planned": {"css": f"{tone} t-hue k-hue", "stroke": "1"},
        "interruptible": {"fill": f"url(#hatch-{flat})"},
        "unfunded": {"fill": f"url(#pale-{flat if hue is not None else 'grey'})"},
        "parked": {"css": "f-surf k-ink", "stroke": "1.5"},
        "free": {"css": "f-surf k-line2", "stroke": "1"},
        "down": {"fill": "url(#cross)"},
    }[pattern]


def _parts(parts: Iterable[Mapping[str, Any]], total: float, gap: float) -> list[dict[str, Any]]:
    """Parts laid end to end: x and width in percent, and how each is painted."""
    laid, at = [], 0.0
    for part in parts:
        width = part["value"] / total * 100 if total else 0.0
        drawn = width > 2 * gap
        laid.append(
            {
                "label": part.get("label", ""),
                "value": part["value"],
                "text": part.get("text") or written(part["value"]),
                "x": f"{at + (gap if drawn else 0):.2f}%",
                "width": f"{max(0.0, width - (2 * gap if drawn else 0)):.2f}%",
                **{"css": "", "fill": "", "stroke": ""},
                **_paint(part.get("pattern", "solid"), part.get("hue")),
            }
        )
        at += width
    return laid


@register.inclusion_tag("_bar.html")
def bar(parts: Iterable[Mapping[str, Any]], total: float, label: str = "") -> dict[str, Any]:
    """A thin bar of parts on a track of ``total``: ``[{"value", "hue"?, "pattern"?}]``."""
    return {"parts": _parts(parts, total, 0.0), "label": label}


@register.inclusion_tag("_strip.html")
def strip(parts: Iterable[Mapping[str, Any]], label: str, note: str = "") -> dict[str, Any]:
    """Each GPU of the cluster once, with its legend: ``[{"label", "value", "hue"?, "pattern"?}]``.

    Parts of value 0 are left out of the picture and of the legend.
    """
    kept = [part for part in parts if part["value"] > 0]
    total = sum(part["value"] for part in kept)
    return {"parts": _parts(kept, total, 0.12), "label": label, "note": note}


@register.simple_tag
def reason_icon(code: str) -> SafeString:
    """The icon of a rule alone, for a group of jobs that wait for the same reason."""
    return icon(REASON_ICONS.get(code, "hourglass"))


@register.simple_block_tag
def reason(content: str, code: str, over: bool = False) -> SafeString:
    """Chip that says why a job waits: the rule that binds, as icon, and words; or why it did."""
    shown = {
        "icon": REASON_ICONS.get(code, "hourglass"),
        "text": SafeString(content.strip()),  # rendered, and so escaped already
        "act": code in REASONS_TO_ACT_ON and not over,
    }
    return render_to_string("_reason.html", shown)


@register.inclusion_tag("_sort.html", takes_context=True)
def sort_header(
    context: template.Context, key: str, words: str, num: bool = False, css: str = ""
) -> dict[str, Any]:
    """A column heading that sorts and says so in the URL: down, up, as it was."""
    return {
        "url": sort_url(context, key),
        "sorted": sorted_as(context["request"], key),
        "words": words,
        "css": " ".join(filter(None, ["num" if num else "", css])),
    }


@register.simple_tag(takes_context=True)
def keep_query(context: template.Context, *names: str) -> SafeString:
    """Hidden fields for all filters in the URL but ``names`` and the page: for a filter's form."""
    query = context["request"].GET
    return format_html_join(
        "",
        '<input type="hidden" name="{}" value="{}">',
        ((name, query[name]) for name in query if name not in names and name != "page"),
    )


@register.inclusion_tag("_pager.html", takes_context=True)
def pager(context: template.Context, page: Any) -> dict[str, Any]:
    """Earlier and later pages of a Django ``Page``; filters and sort are kept."""

    def url(number: int) -> str:
        query = context["request"].GET.copy()
        query["page"] = str(number)
        return f"?{query.urlencode()}"

    return {
        "page": page,
        "first": page.start_index(),
        "last": page.end_index(),
        "total": page.paginator.count,
        "earlier": url(page.previous_page_number()) if page.has_previous() else "",
        "later": url(page.next_page_number()) if page.has_next() else "",
    }


@register.inclusion_tag("_split.html")
def split(rows: Iterable[Mapping[str, Any]], label: str) -> dict[str, Any]:
    """The bar of the share editor: ``[{"slug", "name", "share", "hue"}]``, edges to drag."""
    laid, at = [], 0
    kept = list(rows)
    whole = max(100_000, sum(row["share"] for row in kept))
    for row in kept:
        start, at = at, at + row["share"]
        laid.append(
            {
                "slug": row["slug"],
                "name": row["name"],
                "hue": hue_class(row.get("hue")),
                "x": _width(start, whole),
                "text_x": f"{start / whole * 100 + 0.8:.2f}%",
                "width": _width(row["share"], whole),
                "end": _width(at, whole),
                "percent": f"{row['share'] / 1000:.3f}",
                "text": f"{row['name']} " + typed(f"{row['share'] / 1000:g}"),
            }
        )
    return {
        "rows": laid,
        "label": label,
        "rest_x": _width(at, whole),
        "rest": _width(max(0, whole - at), whole),
    }
