"""What bound each waiting job, and for how long: the outlooks of all cycles, condensed.

An outlook is only that of the newest cycle. When the rule that binds changes, or the wait is over,
the time that it bound is added to its row, with the particulars that the last outlook had.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from allocator.models import Outlook, Wait
from ledger.instants import to_seconds

KEY = ("job", "attempt", "rule")


def note(outlooks: Iterable[Outlook], *, at: datetime) -> None:
    """Note which rules bind from now on. Called before the last cycle's outlooks are replaced.

    Four queries at most, and one where every job waits for what it waited for before.
    """
    now = {_key(one.job_id, one.job.attempt, one.rule): one for one in outlooks}
    binding = {
        _key(one.job_id, one.attempt, one.rule): one
        for one in Wait.objects.filter(since__isnull=False)
    }
    _close([one for key, one in binding.items() if key not in now], at)
    _open({key: one for key, one in now.items() if key not in binding}, at)


def _key(job_id: int, attempt: int, rule: str) -> tuple[int, int, str]:
    return job_id, attempt, rule


def _close(over: list[Wait], at: datetime) -> None:
    """Add what has passed, and keep the particulars of the outlook that is about to go."""
    if not over:
        return
    last = Outlook.objects.filter(job_id__in=[one.job_id for one in over])
    told = {(row.job_id, row.rule): row.data for row in last}
    for one in over:
        assert one.since is not None, "only rules that bind are closed"
        one.seconds += max(0, to_seconds(at) - to_seconds(one.since))
        one.since = None
        one.data = told.get((one.job_id, one.rule), one.data)
    _upsert(over, ["since", "seconds", "data"])


def _open(new: Mapping[tuple[int, int, str], Outlook], at: datetime) -> None:
    """Let them bind from now; a rule that has bound the attempt before goes on in its row."""
    rows = [
        Wait(job_id=job, attempt=attempt, rule=rule, first_at=at, since=at, data=one.data)
        for (job, attempt, rule), one in sorted(new.items(), key=lambda item: item[0])
    ]
    _upsert(rows, ["since"])


def _upsert(rows: list[Wait], fields: list[str]) -> None:
    Wait.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=KEY, update_fields=fields, batch_size=1000
    )
