"""The families' tables: what each planner buys, and whether the figures asked for are met."""

from collections.abc import Callable, Iterator, Sequence

from .families import Figures, Measured
from .published import PUBLISHED
from .tables import NOTHING, Floor, Table, least, median, milliseconds, percent, signed, times

Rows = Sequence[Measured]
LABELS = {
    "fifo": "FIFO, peaks reserved",
    "conservative": "FIFO, conservative backfill",
    "easy": "EASY backfill",
    "plain": "priority first",
    "construction": "construction alone",
    "fast": "fast, published time",
    "fast 50 ms": "fast, 50 ms",
    "full": "full",
}
LEAST_OF_BOUND = {"large-mixed": 0.85}  # its bounds are known to lie above anything reachable


def tables(rows: Rows) -> list[Table]:
    found = [gains(rows), details(rows)]
    return [*found, proofs(rows)] if "full" in _planners(rows) else found


def gains(rows: Rows) -> Table:
    """One line per family, one column per planner: median value gain over FIFO."""
    names = [name for name in _planners(rows) if name != "fifo"]
    head = ("family", "GPUs", "jobs", "published", *(LABELS[name] for name in names))
    lines = []
    for family, found in by_family(rows):
        known = PUBLISHED[family]
        cells = (signed(median(row.planners[name].gain for row in found)) for name in names)
        lines.append((family, str(known.gpus), str(known.jobs), signed(known.gain), *cells))
    return Table("Value gain over FIFO with peak reservation, medians", head, lines)


def details(rows: Rows) -> Table:
    """Per family what was published, then one line per planner; medians, and the least share."""
    head = (
        "family", "planner", "legal", "util", "gain", "of bound", "least", "of best", "least",
        "given ms", "taken ms", "value ÷ plain", "time ÷ plain",
    )  # fmt: skip
    lines = []
    for family, members in by_family(rows):
        lines.append(_published(family))
        for planner in _planners(rows):
            lines.append(_line(LABELS[planner], [row.planners[planner] for row in members]))
    return Table("Every planner on every family", head, lines, left=2)


def _published(family: str) -> tuple[str, ...]:
    known = PUBLISHED[family]
    figures = (percent(known.utilization), signed(known.gain))
    taken = f"{known.milliseconds:g}"
    none = (NOTHING,) * 2
    return (family, "published", NOTHING, *figures, *none, *none, NOTHING, taken, *none)


def _line(label: str, figures: Sequence[Figures]) -> tuple[str, ...]:
    return (
        "",
        label,
        f"{sum(not f.broken for f in figures)}/{len(figures)}",
        percent(median(f.utilization for f in figures)),
        signed(median(f.gain for f in figures)),
        *_shares([f.of_bound for f in figures]),
        *_shares([f.of_best for f in figures]),
        milliseconds(median(f.limit for f in figures)),
        milliseconds(median(f.seconds for f in figures)),
        times(median(f.value_of_plain for f in figures)),
        times(median(f.time_of_plain for f in figures)),
    )


def proofs(rows: Rows) -> Table:
    """What full mode proved, scenario by scenario."""
    lines = []
    for row in rows:
        full = row.planners["full"]
        gap = None if full.bound is None or full.value <= 0 else full.bound / full.value - 1
        bound = NOTHING if full.bound is None else f"{full.bound:,.3f}"
        tightest = NOTHING if row.bound is None else f"{row.bound:,.3f}"
        taken = f"{full.seconds:.1f}"
        figures = (f"{full.value:,.3f}", bound, percent(gap), tightest, percent(full.of_bound))
        lines.append((row.name, full.status, *figures, taken))
    head = ("scenario", "status", "value", "bound", "gap", "tightest", "of it", "seconds")
    return Table("Full mode's proofs", head, lines, left=2)


def floors(rows: Rows) -> list[Floor]:
    """What is asked of the product's planners, family by family."""
    found: list[Floor] = []
    for family, members in by_family(rows):
        found += _fast(family, members)
        found += _of_best(family, members, "fast 50 ms", 0.95)
        if "full" in members[0].planners:
            found += _full(family, members)
    over = [
        row.name
        for row in rows
        for f in row.planners.values()
        if f.of_bound is not None and f.of_bound > 1 + 1e-6
    ]
    found.append(Floor("no value above its bound", "all", "0", str(len(over)), not over))
    wrong = [row.name for row in rows for f in row.planners.values() if f.broken]
    found.append(Floor("every plan legal", "all", "0 illegal", str(len(wrong)), not wrong))
    return found


def by_family(rows: Rows) -> Iterator[tuple[str, list[Measured]]]:
    for family in PUBLISHED:
        members = [row for row in rows if row.family == family]
        if members:
            yield family, members


def _planners(rows: Rows) -> list[str]:
    return list(rows[0].planners) if rows else []


def _shares(values: list[float | None]) -> tuple[str, str]:
    return percent(median(values)), percent(least(values))


def _fast(family: str, rows: Rows) -> Iterator[Floor]:
    published, name = PUBLISHED[family], "fast"
    gain = median(row.planners[name].gain for row in rows)
    if gain is not None:
        yield _at_least("fast: gain, median", family, published.gain, gain, signed, above=True)
    share = median(row.planners[name].of_bound for row in rows)
    if share is not None:
        yield _at_least("fast: of bound, median", family, LEAST_OF_BOUND.get(family, 0.9), share)
    tight = least(row.planners[name].of_bound for row in rows if row.tight)
    if tight is not None:
        yield _at_least("fast: of a tight bound, least", family, 0.75, tight)
    taken = median(row.planners[name].seconds for row in rows)
    yield _at_most("fast: ms taken, median", family, published.milliseconds / 1000, taken)


def _of_best(family: str, rows: Rows, planner: str, asked: float) -> Iterator[Floor]:
    share = median(row.planners[planner].of_best for row in rows)
    if share is not None:
        yield _at_least(f"{planner}: of best, median", family, asked, share)


def _full(family: str, rows: Rows) -> Iterator[Floor]:
    tight = least(row.planners["full"].of_bound for row in rows if row.tight)
    if tight is not None:
        yield _at_least("full: of a tight bound, least", family, 0.99, tight)
    loose = [row for row in rows if not row.tight]
    if loose:
        yield from _of_best(family, loose, "full", 0.97)
    figures = [row.planners["full"] for row in rows]
    given, taken = figures[0].limit, max(f.seconds for f in figures)
    if given is not None:
        asked, met = f"≤ {1.1 * given:g}", taken <= 1.1 * given
        yield Floor("full: seconds taken, most", family, asked, f"{taken:.1f}", met)
    if rows[0].gpus <= 8:
        proved = sum(f.status == "optimal" for f in figures)
        met, most = 2 * proved > len(rows), f"{proved} of {len(rows)}"
        yield Floor("full: proven optimal", family, "most", most, met)


def _at_least(
    what: str,
    where: str,
    asked: float,
    measured: float,
    shown: Callable[[float], str] = percent,
    *,
    above: bool = False,
) -> Floor:
    met = measured > asked if above else measured >= asked
    return Floor(what, where, f"{'>' if above else '≥'} {shown(asked)}", shown(measured), met)


def _at_most(what: str, where: str, asked: float, measured: float | None) -> Floor:
    met = measured is not None and measured <= asked
    return Floor(what, where, f"≤ {1000 * asked:g}", milliseconds(measured) or NOTHING, met)
