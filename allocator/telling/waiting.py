"""What starts next, and why the rest waits: one sentence for each outlook."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from typing import Any

from allocator.models import Outlook
from allocator.telling import frame
from workloads.models import Job

Rows = list[tuple[str, ...]]


def outlooks() -> list[Outlook]:
    """The outlook of every job that waits, the oldest job first."""
    waiting = Outlook.objects.filter(job__state=Job.State.QUEUED)
    return list(waiting.select_related("job", "job__budget").order_by("job_id"))


def next_starts(rows: list[Outlook], *, zone: tzinfo, limit: int) -> Iterator[str]:
    """The planned starts that come first, with the range in which they may fall."""
    sure = [(row.start_likely, row.job_id, row) for row in rows if row.start_likely is not None]
    chosen = [row for *_, row in sorted(sure, key=lambda key: key[:2])[:limit]]
    yield from frame.table(
        ("Likely", "Job", "Budget", "GPUs", "Range of the start"),
        [_start(row, zone) for row in chosen],
        left=3,
    )


def _start(row: Outlook, zone: tzinfo) -> tuple[str, ...]:
    job = row.job
    span = f"{clock(row.start_low, zone)} – {clock(row.start_high, zone)}"
    return clock(row.start_likely, zone), job.name, job.budget.name, str(job.gpus), span


def reasons(rows: list[Outlook], *, zone: tzinfo) -> Iterator[str]:
    """How many wait for each reason, with the longest waiting as the example."""
    by_rule: dict[str, list[Outlook]] = defaultdict(list)
    for row in rows:
        by_rule[row.rule].append(row)
    for rule, group in sorted(by_rule.items(), key=lambda item: (-len(item[1]), item[0])):
        gpus = sum(row.job.gpus for row in group)
        first = group[0]
        yield (
            f"  {frame.plural(len(group), 'job')} for {frame.plural(gpus, 'GPU')}: "
            f"{TITLES.get(rule, rule)}"
        )
        yield f"    {first.job.budget.slug}/{first.job.name} {sentence(first, zone)}"


def sentence(row: Outlook, zone: tzinfo) -> str:
    """Why one job waits, after its name."""
    say = SENTENCES.get(row.rule)
    return f"waits ({row.rule})" if say is None else say(row, zone)


def clock(at: datetime | None, zone: tzinfo) -> str:
    """An instant of the next days, as weekday and time of a zone."""
    return "not in sight" if at is None else at.astimezone(zone).strftime("%a %H:%M")


def _behind(row: Outlook, zone: tzinfo) -> str:
    names = [f"{job['budget'].rsplit('/', 1)[-1]}/{job['name']}" for job in _behind_whom(row)]
    return f"comes after {' and '.join(names[:2]) or 'others'}"


def _behind_whom(row: Outlook) -> list[dict[str, Any]]:
    return list(row.data.get("behind", []))


def _no_block(row: Outlook, zone: tzinfo) -> str:
    gpus = frame.plural(row.job.gpus, "GPU")
    if row.start_likely is None:
        return f"finds no block of {gpus} in the plan"
    return f"finds no block of {gpus} before {clock(row.start_likely, zone)}"


def _not_funded(row: Outlook, zone: tzinfo) -> str:
    data = row.data
    if "needed_mgpus" not in data:
        return "has no hold yet"
    needed, has = (frame.credits(data[f"{name}_mgpus"]) for name in ("needed", "spendable"))
    if data["binding"] is None:
        return f"needs {needed} credits, and no period is active"
    return f"needs {needed} credits, {data['binding'].rsplit('/', 1)[-1]} has {has}"


def _dependency(row: Outlook, zone: tzinfo) -> str:
    return f"waits for {row.data['name']}, which is {row.data['state']}"


def _draining(row: Outlook, zone: tzinfo) -> str:
    return f"would need {row.data.get('node', 'a node')}, which is about to be drained"


def _refused(row: Outlook, zone: tzinfo) -> str:
    data = row.data
    times = "once" if data["times"] == 1 else f"{data['times']} times"
    again = clock(datetime.fromisoformat(data["until"]), zone)
    return f"was refused {times} by {data['cluster']} ({data['reason']}), is tried again {again}"


Sentence = Callable[[Outlook, tzinfo], str]
SENTENCES: dict[str, Sentence] = {
    "behind": _behind,
    "unfunded_behind": _behind,
    "no_block": _no_block,
    "not_funded": _not_funded,
    "dependency": _dependency,
    "draining": _draining,
    "refused": _refused,
    "unreachable": lambda row, zone: "waits for a cluster that does not answer",
    "beyond_horizon": lambda row, zone: "starts after the plan's 24 hours",
}
TITLES = {
    "behind": "behind a better entitled budget",
    "unfunded_behind": "unfunded, behind all that is funded",
    "no_block": "no block of their size yet",
    "not_funded": "their budget can't set the credits aside",
    "dependency": "another job must complete first",
    "draining": "a node is draining",
    "refused": "refused by their cluster, tried again later",
    "unreachable": "their cluster does not answer",
    "beyond_horizon": "no start within the plan",
    "pool": "their pools are full, another isn't",
}
