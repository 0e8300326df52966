"""A review pack: all that its page, its files and the API say, as plain values.

Milli-GPU-seconds (`_mgpus`), GPU-seconds, thousandths of a percent (`_part`), UTC instants. A pack
says the same to whoever sees its budget; `allocator.reviews.freezing` keeps it as JSON. What later
versions add has a default, so that older records can be read.
"""

from dataclasses import dataclass, field
from datetime import datetime

from ledger.burn_report import BurnRow
from ledger.by_hand import ByHand
from ledger.spenders import JobSpent, PersonSpent

Points = tuple[tuple[datetime, int], ...]


@dataclass(frozen=True)
class About:
    """Which budget and period, as of when. ``elapsed_part``: of the period's time with GPUs.

    ``judged``: enough of it has passed for a verdict. ``hue`` is the number of its program's.
    """

    period: int
    period_name: str
    period_status: str
    starts_at: datetime
    ends_at: datetime
    time_zone: str
    budget: int
    path: str
    name: str
    hue: str
    start: datetime
    end: datetime
    now: datetime
    closed_until: datetime | None
    elapsed_part: int
    judged: bool
    has_plan: bool
    checksum: str  # of the same interval's burn report

    @property
    def painted(self) -> int | str:
        """The hue as pages take it."""
        return int(self.hue) if self.hue.isdigit() else self.hue


@dataclass(frozen=True)
class Row:
    """A budget of the pack: its line of the burn report, and what was planned to date of it."""

    burn: BurnRow
    budget: int
    label: str
    planned_mgpus: int
    share: int | None  # of its parent, thousandths of a percent

    @property
    def used_mgpus(self) -> int:
        return self.burn.settled_mgpus + self.burn.in_flight_mgpus

    @property
    def over_mgpus(self) -> int:
        """Used less planned to date."""
        return self.used_mgpus - self.planned_mgpus


@dataclass(frozen=True)
class Mark:
    """A change of the budget's own share, at the instant from which it holds."""

    at: datetime
    label: str
    is_open: bool


@dataclass(frozen=True)
class Chart:
    """Settled, planned and granted over the period, in milli-GPU-seconds since its start."""

    settled: Points
    plan: Points
    granted: Points
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Week:
    """What a budget was owed and got in one week of UTC, of which ``start`` is the first day."""

    start: datetime
    owed_gpu_seconds: int
    delivered_gpu_seconds: int


@dataclass(frozen=True)
class Weekly:
    """A budget's weeks, in order; those in which it was owed nothing are there with zeros."""

    budget: int
    label: str
    weeks: tuple[Week, ...]


@dataclass(frozen=True)
class Waits:
    """Seconds from submission to first start of jobs that first started in the interval."""

    budget: int  # whose row it is; 0: of all
    label: str
    jobs: int
    p50_s: int | None
    p90_s: int | None
    preempted: int  # runs
    waiting: int  # jobs that wait at the pack's instant


@dataclass(frozen=True)
class Job:
    """One of the dearest jobs, with what its runs came to in the interval."""

    spent: JobSpent
    gpus: int
    runs: int
    preempted: int
    parked_gpu_seconds: int
    charged_gpu_seconds: int


@dataclass(frozen=True)
class Others:
    """What no row has: so many more, and what they and corrections of none come to."""

    number: int
    settled_mgpus: int
    gpu_seconds: int


@dataclass(frozen=True)
class Asked:
    """A request, and what came of it; amounts in its unit (percent: thousandths, credits: mGPU-s).

    ``source`` is the path it was granted from, or empty where a reader may not know it.
    """

    pk: int
    budget: str
    label: str
    unit: str
    asked: int
    given: int | None
    reason: str
    asked_by: str
    created_at: datetime
    until: datetime | None
    status: str
    decision: str
    source: str
    answer: str
    decided_by: str
    decided_at: datetime | None


@dataclass(frozen=True)
class Moved:
    """One share that a change set moves, in thousandths of a percent; None: there was none."""

    name: str
    pool: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class Change:
    """A change set that concerns the budget or what is below it."""

    pk: int
    parent: str
    status: str
    reason: str
    author: str
    effective_at: datetime
    moves: tuple[Moved, ...]


@dataclass(frozen=True)
class Option:
    """A simulation that was asked for the budget: delivered of owed, and the median wait.

    ``before`` are those of the shares of today, where they were played beside a draft.
    """

    pk: int
    name: str
    shares: str
    policy: str
    delivered_part: int | None
    p50_s: int | None
    before_delivered_part: int | None
    before_p50_s: int | None


@dataclass(frozen=True)
class Said:
    """A comment."""

    pk: int
    author: str
    at: datetime
    text: str
    withdrawn: bool
    edited: bool = False


@dataclass(frozen=True)
class Previous:
    """What the period before came to, by its closing statement."""

    name: str
    granted_mgpus: int
    settled_mgpus: int
    parked_gpu_seconds: int
    charged_gpu_seconds: int
    owed_gpu_seconds: int | None
    delivered_gpu_seconds: int | None


@dataclass(frozen=True)
class Pack:
    """A review pack. ``rows`` are farthest from plan first, the reserve last."""

    about: About
    total: Row
    rows: tuple[Row, ...]
    chart: Chart
    weekly: tuple[Weekly, ...]
    waits: tuple[Waits, ...]
    all_waits: Waits
    jobs: tuple[Job, ...]
    other_jobs: Others
    people: tuple[PersonSpent, ...]
    other_people: Others
    asked: tuple[Asked, ...]
    more_asked: int
    changes: tuple[Change, ...]
    more_changes: int
    by_hand: tuple[ByHand, ...]
    transfers: tuple[ByHand, ...]  # to (above 0) and from the budget itself
    options: tuple[Option, ...]
    comments: tuple[Said, ...]
    previous: Previous | None
    corrected_later_mgpus: int = 0  # by entries of later periods
    more_transfers: int = 0
    format: int = field(default=1)

    @property
    def is_leaf(self) -> bool:
        """Whether nothing is below the budget: then the one row is its own."""
        return len(self.rows) == 1 and not self.rows[0].burn.is_reserve
