"""Changing the urgency of a job that waits or runs: it sorts inside its own budget only."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from allocator import admission, requests
from budgets.access import Person, Standing
from workloads import services as workloads
from workloads.models import Job


class UrgencyRefused(Exception):
    """The job's urgency can't be changed; ``rule`` says why in a word, the text in a sentence."""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        super().__init__(sentence(rule))


def may_change(held: Standing, user: Person, job: Job) -> bool:
    """Say whether somebody may ask: for the jobs that they may cancel."""
    return admission.may_cancel(held, user, job)


def refusal(job: Job) -> str:
    """Return the rule that keeps a job's urgency as it is; empty if it may be changed."""
    if job.has_ended:
        return "ended"
    if job.cancel_requested_at is not None:
        return "cancelled"
    return "service" if job.is_realtime else ""


def sentence(rule: str) -> str:
    """Say why a rule refuses a change; what else may be done."""
    return {
        "ended": _("The job has ended: nothing sorts it any more."),
        "cancelled": _("The job is being cancelled: nothing sorts it any more."),
        "service": _(
            "A real-time service is placed first, by its demand: urgency does not sort it. Change "
            "its demand, or its budget's share."
        ),
    }[rule]


def change(*, job: Job, urgency: str, by: User | None, now: datetime) -> Job:
    """Give a job another urgency, keep in its story who did, and replan.

    The urgency that it has already writes nothing. Raises UrgencyRefused, and ValueError for what
    is no urgency; then nothing is written.
    """
    if urgency not in Job.Urgency.values:
        raise ValueError(f"{urgency!r} is no urgency.")
    with transaction.atomic():
        # no_key: whoever holds the ledger's lock may still write rows that point at this job.
        job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        if rule := refusal(job):
            raise UrgencyRefused(rule)
        if job.urgency != urgency:
            workloads.set_urgency(job=job, urgency=urgency, by=by, at=now)
            requests.replan("urgency")
    return job
