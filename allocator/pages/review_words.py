"""What a review pack says in words: its first sentences, and its key figures."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from allocator.pages.burning import DELIVERED_AIM, HIGH_PACE
from allocator.reviews.pack import Pack, Row
from clusters import writing
from clusters.writing import (
    credits,
    dated,
    days,
    gpu_hours,
    percent,
)

WHOLE = 100_000
HIGH_PER_MILLE = int(HIGH_PACE * 1000)
NEAR_PLAN = 50  # a fiftieth of what is planned: as planned
SHORT = timedelta(days=7)
HOUR = timedelta(hours=1)
CREDIT = 3_600_000


@dataclass(frozen=True)
class Key:
    """A key figure: its number and unit, what it is of, and what it is compared with."""

    name: str
    value: str
    unit: str
    of: str
    beside: str
    is_bad: bool = False


def part(value: int | None, whole: int | None) -> int | None:
    """Return a part of a whole in thousandths of a percent; None where there is no whole."""
    return value * WHOLE // whole if value is not None and whole and whole > 0 else None


def pace(row: Row) -> str:
    """Return a row's pace with two decimals, or a dash."""
    return writing.pace(row.burn.pace_per_mille)


def is_high(pack: Pack, row: Row) -> bool:
    """Say whether a row's pace is to be acted on."""
    value = row.burn.pace_per_mille
    return pack.about.judged and value is not None and value >= HIGH_PER_MILLE


def delivered(row: Row) -> int | None:
    return part(row.burn.delivered_gpu_seconds, row.burn.owed_gpu_seconds)


def is_behind(row: Row) -> bool:
    """Say whether less than the aim was delivered of what was owed."""
    found = delivered(row)
    return found is not None and found < DELIVERED_AIM


def parked_part(row: Row) -> int | None:
    """Return the parked part of what was held funded."""
    burn = row.burn
    funded = burn.busy_gpu_seconds + burn.parked_gpu_seconds + burn.realtime_gpu_seconds
    return part(burn.parked_gpu_seconds, funded)


def forecast(row: Row) -> str:
    """Return the forecast's range in percent of the grant, or a dash."""
    burn = row.burn
    low, high = (
        part(value, burn.granted_mgpus)
        for value in (burn.forecast_low_mgpus, burn.forecast_high_mgpus)
    )
    return "–" if low is None else f"{percent(low, 0)} – {percent(high, 0)}"


def is_over(row: Row) -> bool:
    """Say whether even the low end of the forecast is more than is granted."""
    low, granted = row.burn.forecast_low_mgpus, row.burn.granted_mgpus
    return low is not None and granted > 0 and low > granted


def runs_out(pack: Pack, row: Row) -> datetime | None:
    """Return when the credits end at the burn rate, if that is before the period does."""
    hours = row.burn.runway_hours
    if hours is None or not pack.about.judged or pack.about.now >= pack.about.ends_at:
        return None
    at = pack.about.now + min(hours, 24 * 36_500) * HOUR
    return at if at < pack.about.ends_at else None


def summary(pack: Pack) -> tuple[str, str]:
    """Return the pack's first sentence, and those that follow it."""
    return _settled(pack), " ".join(_rest(pack))


def _settled(pack: Pack) -> str:
    total, name = pack.total, pack.about.name
    settled = part(total.burn.settled_mgpus, total.burn.granted_mgpus)
    words = {"name": name, "amount": credits(total.burn.settled_mgpus)}
    if settled is None:
        return _("%(name)s has settled %(amount)s cr and was granted none.") % words
    words |= {"part": percent(settled), "over": credits(abs(total.over_mgpus))}
    if abs(total.over_mgpus) * NEAR_PLAN <= total.planned_mgpus:
        return _("%(name)s has settled %(part)s %% of its grant, as planned.") % words
    most = _mostly(pack)
    if total.over_mgpus > 0:
        said = (
            _("%(name)s has settled %(part)s %% of its grant and is %(over)s cr above plan") % words
        )
    else:
        said = (
            _("%(name)s has settled %(part)s %% of its grant and is %(over)s cr below plan") % words
        )
    return said + (_(", most of it %(row)s.") % {"row": most} if most else ".")


def _mostly(pack: Pack) -> str:
    """Return which row most of the distance from plan is due to; empty where there is none."""
    over = pack.total.over_mgpus
    rows = [row for row in pack.rows if not row.burn.is_reserve]
    if pack.is_leaf or len(rows) < 2 or not over:
        return ""
    first = max(rows, key=lambda row: row.over_mgpus * (1 if over > 0 else -1))
    return first.label if first.over_mgpus * 2 * (1 if over > 0 else -1) > abs(over) else ""


def _rest(pack: Pack) -> Iterator[str]:
    if pack.about.now < pack.about.ends_at:
        ends = forecast(pack.total)
        if ends == "–":
            yield _("It is too early to say what that leads to.")
        else:
            words = {"range": ends}
            yield _("As its days were, the period ends at %(range)s %% of the grant.") % words
    yield from _outs(pack)
    yield from _least(pack)
    waiting = sum(one.status == "open" for one in pack.asked)
    if waiting:
        yield ngettext(
            "%(number)s request waits for a decision.",
            "%(number)s requests wait for a decision.",
            waiting,
        ) % {"number": waiting}


def _outs(pack: Pack) -> Iterator[str]:
    rows = [pack.total] if pack.is_leaf else [one for one in pack.rows if not one.burn.is_reserve]
    ends = sorted((at, row.label) for row in rows if (at := runs_out(pack, row)))
    if not ends:
        return
    at, label = ends[0]
    zone = ZoneInfo(pack.about.time_zone)
    words = {"name": label, "day": dated(at.astimezone(zone), "j F")}
    yield _("%(name)s runs out about %(day)s at its present rate.") % words


def _least(pack: Pack) -> Iterator[str]:
    rows = [one for one in pack.rows if not one.burn.is_reserve and delivered(one) is not None]
    if pack.is_leaf or len(rows) < 2:
        got = delivered(pack.total)
        if got is not None:
            words = {"part": percent(got)}
            yield _("It got %(part)s %% of the GPU-time that it was owed.") % words
        return
    least = min(rows, key=lambda one: (delivered(one) or 0, one.label))
    words = {"name": least.label, "part": percent(delivered(least))}
    yield _("%(name)s got %(part)s %% of what it was owed, the least of all.") % words


def keys(pack: Pack) -> list[Key]:
    """Return settled, pace, delivered, runway and spendable: the order they have on every page."""
    total, about = pack.total, pack.about
    burn = total.burn
    before = pack.previous
    settled = part(burn.settled_mgpus, burn.granted_mgpus)
    plan = {"plan": credits(total.planned_mgpus)}
    got = delivered(total)
    last = part(before.delivered_gpu_seconds, before.owed_gpu_seconds) if before else None
    aim = {"aim": percent(DELIVERED_AIM, 0)}
    was = {"period": before.name, "part": percent(last)} if before and last is not None else None
    return [
        Key(
            _("Settled"),
            credits(burn.settled_mgpus),
            "cr",
            _("%(part)s %% of %(granted)s granted")
            % {"part": percent(settled), "granted": credits(burn.granted_mgpus)},
            _("planned to date %(plan)s") % plan,
        ),
        Key(
            _("Pace"),
            pace(total),
            "",
            _("used ÷ planned to date"),
            _("%(part)s %% of the time gone") % {"part": percent(about.elapsed_part)},
            is_high(pack, total),
        ),
        Key(
            _("Delivered of owed"),
            percent(got),
            "" if got is None else "%",
            _("of %(owed)s GPU-h owed") % {"owed": gpu_hours(burn.owed_gpu_seconds or 0)},
            _("%(period)s: %(part)s %%") % was if was else _("aim %(aim)s %%") % aim,
            is_behind(total),
        ),
        _runway(pack),
        Key(
            _("Spendable"),
            credits(burn.spendable_mgpus),
            "cr",
            _("%(held)s held") % {"held": credits(burn.held_mgpus)},
            _("%(amount)s in flight") % {"amount": credits(burn.in_flight_mgpus)},
        ),
    ]


def _runway(pack: Pack) -> Key:
    burn, about = pack.total.burn, pack.about
    hours = burn.runway_hours
    rate = _("at %(rate)s cr a day") % {"rate": credits(burn.burn_rate_mgpus)}
    left = max(timedelta(), about.ends_at - about.now)
    ends = _("period ends in %(days)s d") % {"days": days(int(left.total_seconds()))}
    if about.now >= about.ends_at:
        ends = _("the period is over")
    end = runs_out(pack, pack.total)
    short = end is not None and end + SHORT <= about.ends_at
    if hours is None:
        return Key(_("Runway"), "–", "", _("none spent lately"), ends)
    return Key(_("Runway"), days(hours * 3600), "d", rate, ends, short)
