"""A service's traffic as it is kept: taken in bounded lists, read back as the core wants it.

One row a service and step of its traffic. The same list sent again writes nothing; a rate that is
sent anew replaces the one before. What is missing is a gap, never a zero.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Max, Min

from clusters.refusals import Refused, check_instant
from clusters.saying import number
from clusters.saying import say as _
from forecasting.core import arriving
from forecasting.core.profile import KEPT_DAYS, Traffic
from forecasting.models import DemandForecast, ServiceProfile, TrafficBucket
from workloads.models import Job, Service

STEPS = (5, 10, 15, 20, 30, 60)  # minutes
USUAL_STEP = 60
MOST_ROWS = 10_000  # of one list: 56 days of 10 minutes, and more
MOST_FILE_ROWS = 120_000  # of a file: a year of 5 minutes
MOST_FILE_BYTES = 8_000_000
HIGHEST_RATE = 10**12
MICRO = 10**6
LATE = timedelta(seconds=60)  # clocks differ by so much
COLUMNS = ("at", "rate")

Row = tuple[datetime, Decimal]


@dataclass(frozen=True)
class Stored:
    """What became of a list, in rows."""

    new: int
    changed: int
    same: int
    too_old: int


def store(
    *, job: Job, rows: Sequence[Row], now: datetime, step_minutes: int | None = None
) -> Stored:
    """Keep rates (a second) by the instant at which their steps begin, all of them or none.

    ``step_minutes`` counts for a service's first traffic; later it must be the same. Rows older
    than TRAFFIC_KEPT_DAYS are left out. Raises Refused.
    """
    service = _service(job)
    step = _step(service, step_minutes)
    found = _checked(rows, step, now)
    oldest = now - timedelta(days=settings.TRAFFIC_KEPT_DAYS)
    recent = {at: rate for at, rate in found.items() if at >= oldest}
    if not recent:  # nothing is kept, so that it says nothing of the step either
        return Stored(0, 0, 0, len(found))
    with transaction.atomic():
        _settle_step(service, step)
        before = _newest(service)
        new, changed = _write(service, recent)
        if before is None or max(recent) > before:
            _note_arrival(service, now)
    same = len(recent) - new - changed
    return Stored(new, changed, same, len(found) - len(recent))


@dataclass(frozen=True)
class Extent:
    """How much traffic there is: from its first to its last known step, and how many are known."""

    step_minutes: int
    span: timedelta
    steps: int
    known: int


def extent(service: Service, *, until: datetime, days: int = KEPT_DAYS) -> Extent | None:
    """Return how much `series` would answer with; None: nothing. One query."""
    if service.traffic_step_minutes is None:
        return None
    step = timedelta(minutes=service.traffic_step_minutes)
    rows = TrafficBucket.objects.filter(
        service=service, at__lte=until - step, at__gt=until - step - timedelta(days=days)
    )
    found = rows.aggregate(first=Min("at"), last=Max("at"), known=Count("pk"))
    if not found["known"]:
        return None
    span = found["last"] - found["first"] + step
    return Extent(service.traffic_step_minutes, span, span // step, found["known"])


def series(service: Service, *, until: datetime, days: int = KEPT_DAYS) -> Traffic | None:
    """Return the traffic whose steps have ended by an instant, of its newest days; None: none.

    It begins on a whole hour of UTC and ends with the last step that is known.
    """
    if service.traffic_step_minutes is None:
        return None
    step = timedelta(minutes=service.traffic_step_minutes)
    rows = TrafficBucket.objects.filter(
        service=service, at__lte=until - step, at__gt=until - step - timedelta(days=days)
    ).order_by("at")
    known = {at: micro / MICRO for at, micro in rows.values_list("at", "rate_micro")}
    if not known:
        return None
    newest = max(known)
    start = min(known).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    steps = (newest - start) // step + 1
    rates = tuple(known.get(start + step * n) for n in range(steps))
    return Traffic(start, int(step.total_seconds()), rates, service.time_zone)


def between(service: Service, *, start: datetime, end: datetime) -> list[tuple[datetime, float]]:
    """Return the known rates a second of the steps that begin in [start, end)."""
    rows = TrafficBucket.objects.filter(service=service, at__gte=start, at__lt=end).order_by("at")
    return [(at, micro / MICRO) for at, micro in rows.values_list("at", "rate_micro")]


def peak(service: Service, *, since: datetime) -> tuple[datetime, float] | None:
    """Return the highest known rate a second since an instant, and when; None: nothing is known."""
    rows = TrafficBucket.objects.filter(service=service, at__gte=since)
    found = rows.order_by("-rate_micro", "at").values_list("at", "rate_micro").first()
    return None if found is None else (found[0], found[1] / MICRO)


def keep(*, now: datetime) -> int:
    """Let go of traffic older than TRAFFIC_KEPT_DAYS, and of what was forecast; how many rates.

    Of versions of profiles that old the figures stay, and their reasons.
    """
    oldest = now - timedelta(days=settings.TRAFFIC_KEPT_DAYS)
    old = ServiceProfile.objects.filter(made_at__lt=oldest).exclude(fitted={})
    old.exclude(in_force_at__isnull=False, replaced_at=None).update(fitted={}, week=[])
    DemandForecast.objects.filter(at__lt=oldest).delete()
    gone, _ = TrafficBucket.objects.filter(at__lt=oldest).delete()
    return gone


# --- Files --------------------------------------------------------------------------------------


def read_csv(content: bytes) -> list[Row]:
    """Read a file with the columns at and rate; refuse it by its first line that is wrong."""
    if len(content) > MOST_FILE_BYTES:
        raise Refused(
            "file", _("Give a file of at most %(most)s bytes.", most=number(MOST_FILE_BYTES))
        )
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        head = [name.strip().lower() for name in next(lines, [])]
        if not set(COLUMNS) <= set(head):
            raise Refused(
                "file", _("Give the file a first line that names the columns at and rate.")
            )
        where = (head.index("at"), head.index("rate"))
        rows = list(_file_rows(lines, where))
    except UnicodeDecodeError:
        raise Refused("file", _("The file is no text in UTF-8: give a CSV file.")) from None
    except csv.Error as error:
        raise Refused("file", _("The file is no CSV: %(error)s.", error=error)) from None
    if not rows:
        raise Refused("file", _("The file has no rates: give a line for each."))
    return rows


def _file_rows(lines: Iterable[list[str]], where: tuple[int, int]) -> Iterator[Row]:
    for line, cells in enumerate(lines, 2):
        if not any(cell.strip() for cell in cells):
            continue
        if line > MOST_FILE_ROWS + 1:
            raise Refused(
                "file", _("Give a file of at most %(most)s rates.", most=number(MOST_FILE_ROWS))
            )
        if len(cells) <= max(where):
            raise Refused("file", _("Line %(line)s lacks a cell: give at and rate.", line=line))
        at, rate = (cells[n].strip() for n in where)
        yield _instant(at, line), _decimal(rate, line)


def _instant(text: str, line: int) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None and not at.microsecond:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise Refused(
        "file",
        _(
            "Line %(line)s: give an instant with a zone and whole seconds, such as "
            "2026-10-01T00:00:00Z, not %(text)s.",
            line=line,
            text=repr(text[:40]),
        ),
    )


def _decimal(text: str, line: int) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise Refused(
            "file",
            _(
                "Line %(line)s: give a rate a second, not %(text)s.",
                line=line,
                text=repr(text[:40]),
            ),
        ) from None


def silent_since(service: Service, *, now: datetime) -> datetime | None:
    """Return since when traffic is missed, by how often it comes; None: it isn't. Two queries.

    What came before the service ran, or was kept before arrivals were, counts from its last step.
    """
    step = timedelta(minutes=service.traffic_step_minutes or USUAL_STEP)
    came = service.traffic_came_at
    if came is None:
        newest = _newest(service)
        came = None if newest is None else newest + step
    since = max(came or service.job.state_since, service.job.state_since)
    may_last = arriving.allowed(int(step.total_seconds()), service.traffic_every_s)
    return since if now - since > timedelta(seconds=may_last) else None


# --- One list -----------------------------------------------------------------------------------


def _service(job: Job) -> Service:
    if not job.is_realtime:
        raise Refused(
            "job", _("Job %(job)s is no real-time service: it has no traffic.", job=job.pk)
        )
    if job.has_ended:
        raise Refused("job", _("Job %(job)s has ended: it takes no more traffic.", job=job.pk))
    return job.service


def _step(service: Service, asked: int | None) -> int:
    """Return the minutes of a step: the service's own, once it has some."""
    known = service.traffic_step_minutes
    if asked is not None and asked not in STEPS:
        choices = ", ".join(map(str, STEPS[:-1]))
        raise Refused(
            "step_minutes",
            _("Give step_minutes as %(choices)s or %(steps)s.", choices=choices, steps=STEPS[-1]),
        )
    if known is not None and asked not in (None, known):
        raise Refused(
            "step_minutes",
            _(
                "This service's traffic comes in steps of %(known)s min: give it in those.",
                known=known,
            ),
        )
    return known or asked or USUAL_STEP


def _settle_step(service: Service, step: int) -> None:
    """Of two first lists at once, one says what the step is; the other must say the same."""
    unset = Service.objects.filter(pk=service.pk, traffic_step_minutes=None)
    unset.update(traffic_step_minutes=step)
    kept = ["traffic_step_minutes", "traffic_came_at", "traffic_every_s"]
    service.refresh_from_db(fields=kept)
    _step(service, step)


def _checked(rows: Sequence[Row], step: int, now: datetime) -> dict[datetime, int]:
    """Return millionths a second by instant; refuse the first row that can't be."""
    if not rows:
        raise Refused("traffic", _("Give one rate at least: {at, rate}."))
    found: dict[datetime, int] = {}
    for at, rate in rows:
        check_instant(at, "traffic")
        micro = _micro(rate, at)
        begins = at.astimezone(UTC)
        _check_place(begins, step, now)
        if found.setdefault(begins, micro) != micro:
            raise Refused(
                "traffic",
                _("%(begins)s is there twice, with two rates: give one.", begins=said(begins)),
            )
    return found


def _check_place(at: datetime, step: int, now: datetime) -> None:
    if at.second or at.minute % step:
        raise Refused(
            "traffic",
            _(
                "%(at)s begins no step of %(step)s min: steps are counted from the hour.",
                at=said(at),
                step=step,
            ),
        )
    if at > now + LATE - timedelta(minutes=step):
        raise Refused(
            "traffic",
            _("The step from %(at)s on has not ended yet: send it when it has.", at=said(at)),
        )


def _micro(rate: Decimal, at: datetime) -> int:
    if not rate.is_finite() or not 0 <= rate <= HIGHEST_RATE:
        raise Refused(
            "traffic",
            _(
                "Give a rate of 0 to %(highest_rate)s a second for %(at)s, not %(rate)s.",
                highest_rate=number(HIGHEST_RATE),
                at=said(at),
                rate=str(rate)[:40],
            ),
        )
    return int((rate * MICRO).to_integral_value())


def said(at: datetime) -> str:
    """An instant as it is sent."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _newest(service: Service) -> datetime | None:
    rows = TrafficBucket.objects.filter(service=service).order_by("-at")
    return rows.values_list("at", flat=True).first()


def _note_arrival(service: Service, now: datetime) -> None:
    """Traffic came that goes further than what was known: keep when, and how often it does."""
    came = service.traffic_came_at
    every = service.traffic_every_s
    if came is not None:
        every = arriving.cadence(every, max(0, int((now - came).total_seconds())))
    Service.objects.filter(pk=service.pk).update(traffic_came_at=now, traffic_every_s=every)


def _write(service: Service, rates: dict[datetime, int]) -> tuple[int, int]:
    """Write what is new or differs, in the order of time, so that no two lists wait crosswise."""
    rows = TrafficBucket.objects.filter(
        service=service, at__gte=min(rates), at__lte=max(rates)
    ).values_list("at", "rate_micro")
    known = dict(rows)
    wanted = [(at, rates[at]) for at in sorted(rates) if known.get(at) != rates[at]]
    TrafficBucket.objects.bulk_create(
        [TrafficBucket(service=service, at=at, rate_micro=micro) for at, micro in wanted],
        batch_size=2000,
        update_conflicts=True,
        unique_fields=["service", "at"],
        update_fields=["rate_micro"],
    )
    changed = sum(at in known for at, _ in wanted)
    return len(wanted) - changed, changed
