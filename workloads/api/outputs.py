"""What the API shows of jobs, runs and what they held.

The framework takes declared fields off the class, so that one called `data` hides no attribute:
hence the ignored assignments.
"""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from allocator.models import Wait
from allocator.pages import job as pages
from allocator.pages import job_waits, queue, session
from allocator.start_estimates import Record, record_for
from budgets.access import redacted
from config.fields import Instant
from forecasting.models import Forecast
from ledger import reports
from workloads.models import Holding, Job, JobEvent, Run, Service


class RangeOut(serializers.Serializer[Any]):
    """The 10th, 50th and 90th percentile of the whole duration, in seconds."""

    p10_s = serializers.IntegerField(source="estimate_p10_s")
    p50_s = serializers.IntegerField(source="estimate_p50_s")
    p90_s = serializers.IntegerField(source="estimate_p90_s")


class TrackRecordOut(serializers.Serializer[Any]):
    """First estimates of starts of the last 28 days, held against what came; counts."""

    ahead_from_s = serializers.IntegerField(help_text="They looked at least so far ahead")
    ahead_to_s = serializers.IntegerField(allow_null=True, help_text="And less than this")
    judged = serializers.IntegerField(help_text="So many have come true, or were missed")
    inside = serializers.IntegerField(help_text="Starts inside the range")
    sooner = serializers.IntegerField()
    later = serializers.IntegerField(help_text="Later than the range, or not yet started")
    half_within_s = serializers.IntegerField(
        allow_null=True, help_text="Half were so near the likely start; null where too few"
    )
    most_within_s = serializers.IntegerField(allow_null=True, help_text="And nine in ten so near")
    text = serializers.SerializerMethodField(help_text="The same in a sentence")

    def get_text(self, record: Record) -> str:
        return queue.told_record(record)


class WaitOut(serializers.Serializer[Any]):
    """Why a job waits: the rule that binds, its particulars, and when it may start.

    The context's ``told`` are the words of the job's page.
    """

    rule = serializers.CharField()
    text = serializers.SerializerMethodField(help_text="The rule in a few words")
    sentence = serializers.SerializerMethodField(help_text="What binds")
    released_by = serializers.SerializerMethodField(help_text="What would release it, or nothing")
    data = serializers.SerializerMethodField()  # type: ignore[assignment]
    start_low = Instant(allow_null=True)
    start_likely = Instant(allow_null=True)
    start_high = Instant(allow_null=True)
    cycle = serializers.IntegerField(source="cycle_id")
    track_record = serializers.SerializerMethodField(
        help_text="How good estimates that look as far ahead have been; null without an estimate"
    )

    @extend_schema_field(TrackRecordOut(allow_null=True))
    def get_track_record(self, outlook: Any) -> dict[str, Any] | None:
        record = record_for(outlook, now=self.context["now"])
        return None if record is None else TrackRecordOut().to_representation(record)

    def get_data(self, outlook: Any) -> dict[str, Any]:
        return queue.particulars(outlook.data, self.context["names"])

    def get_text(self, outlook: Any) -> str:
        return str(self.context["told"].text)

    def get_sentence(self, outlook: Any) -> str:
        return str(self.context["told"].sentence)

    def get_released_by(self, outlook: Any) -> str:
        return str(self.context["told"].released_by)


class JobOut(serializers.ModelSerializer[Job]):
    """A line of the list of jobs."""

    budget = serializers.CharField(source="budget.path")
    submitted_by = serializers.CharField(source="submitted_by.username")
    submitted_at = Instant()
    state_since = Instant()
    ended_at = Instant(allow_null=True)
    cancel_requested_at = Instant(allow_null=True)
    pools = serializers.SerializerMethodField()
    estimate = RangeOut(source="*")
    waits = serializers.SerializerMethodField(help_text="The rule that binds, while it waits")
    waits_text = serializers.SerializerMethodField(help_text="The same in a few words")

    class Meta:
        model = Job
        fields = (
            *("id", "name", "budget", "kind", "session", "state", "state_since", "gpus", "pools"),
            *("submitted_by", "submitted_at", "ended_at", "cancel_requested_at"),
            *("minimum_runtime_s", "time_limit_s", "expected_duration_s", "resumable"),
            *("urgency", "when_unfunded", "funded", "attempt", "estimate", "waits", "waits_text"),
        )

    def get_pools(self, job: Job) -> list[str]:
        return [pool.slug for pool in job.pools.all()]

    def get_waits(self, job: Job) -> str | None:
        outlook = self.outlook_of(job)
        return outlook.rule if outlook is not None else None

    def get_waits_text(self, job: Job) -> str | None:
        return self.told_of(job).text if job.state == Job.State.QUEUED else None

    def outlook_of(self, job: Job) -> Any:
        """What the last cycle foresaw for it, while it waits."""
        return getattr(job, "outlook", None) if job.state == Job.State.QUEUED else None

    def told_of(self, job: Job) -> queue.Told:
        return queue.told(job, self.context["names"], now=self.context["now"])


class HoldingOut(serializers.ModelSerializer[Holding]):
    """GPUs of one node, by their number in it."""

    node = serializers.CharField(source="node.name")
    gpus = serializers.SerializerMethodField()
    started_at = Instant(allow_null=True)
    ended_at = Instant(allow_null=True)

    class Meta:
        model = Holding
        fields = ("node", "gpus", "funded", "started_at", "ended_at")

    def get_gpus(self, holding: Holding) -> list[int]:
        return [bit for bit in range(holding.mask.bit_length()) if holding.mask >> bit & 1]


class RunOut(serializers.ModelSerializer[Run]):
    pool = serializers.CharField(source="pool.slug")
    decided_at = Instant()
    started_at = Instant(allow_null=True)
    protected_until = Instant(allow_null=True)
    ended_at = Instant(allow_null=True)
    holdings = HoldingOut(many=True)

    class Meta:
        model = Run
        fields = (
            *("number", "pool", "state", "decided_at", "started_at", "protected_until"),
            *("ended_at", "end_reason", "holdings"),
        )


class EventOut(serializers.ModelSerializer[JobEvent]):
    at = Instant()
    run = serializers.IntegerField(source="run.number", default=None, allow_null=True)
    actor = serializers.CharField(source="actor.username", default=None, allow_null=True)
    data = serializers.SerializerMethodField()  # type: ignore[assignment]

    class Meta:
        model = JobEvent
        fields = ("at", "kind", "run", "actor", "data")

    def get_data(self, event: JobEvent) -> dict[str, Any]:
        return redacted(self.context["names"].held, event.data)


class ForecastOut(serializers.ModelSerializer[Forecast]):
    made_at = Instant()
    planned = serializers.BooleanField(help_text="Planned with; else made beside, to be compared")
    variant = serializers.CharField(help_text="Of what it computes, where that was given")
    error_per_mille = serializers.IntegerField(
        allow_null=True, help_text="|p50 − actual| per mille of the actual, once it is known"
    )
    inside = serializers.BooleanField(allow_null=True, help_text="p10 ≤ actual ≤ p90")

    class Meta:
        model = Forecast
        fields = (
            *("made_at", "planned", "method", "version", "variant", "reasons"),
            *("p10_s", "p50_s", "p90_s", "actual_s", "error_per_mille", "inside"),
        )


class ServiceOut(serializers.ModelSerializer[Service]):
    class Meta:
        model = Service
        fields = (
            *("profile", "step_minutes", "time_zone", "swap_cap", "traffic_step_minutes"),
            *("calibrated", "least_gpus", "most_gpus"),
        )


class ChargeLineOut(serializers.Serializer[Any]):
    """What one run held in a segment of a timestep, and what that cost."""

    run_number = serializers.IntegerField()
    timestep = Instant()
    start = Instant()
    end = Instant()
    funded = serializers.BooleanField()
    gpu_seconds = serializers.IntegerField()
    parked_gpu_seconds = serializers.IntegerField()
    amount_mgpus = serializers.IntegerField()


class ChargesOut(serializers.Serializer[Any]):
    """What the job cost so far in closed timesteps, and what is set aside for it now."""

    charged_mgpus = serializers.IntegerField()
    refunded_mgpus = serializers.IntegerField()
    adjusted_mgpus = serializers.IntegerField(help_text="Corrections; below 0: given back")
    held_mgpus = serializers.IntegerField()
    charged_gpu_seconds = serializers.IntegerField()
    parked_gpu_seconds = serializers.IntegerField()
    unfunded_gpu_seconds = serializers.IntegerField()
    lines = ChargeLineOut(many=True)


class TimeBoxOut(serializers.Serializer[Any]):
    """The time box of a session that waits or runs, and what it costs, used or parked.

    What was parked is null until the first of its timesteps is closed: it isn't measured yet.
    """

    limit_s = serializers.IntegerField()
    longest_s = serializers.IntegerField(help_text="Extensions included")
    ends_at = Instant(allow_null=True)
    protected_until = Instant(allow_null=True)
    left_s = serializers.IntegerField()
    so_far_mgpus = serializers.IntegerField(help_text="Settled and in flight")
    parked_mgpus = serializers.IntegerField(allow_null=True)
    parked_gpu_seconds = serializers.IntegerField(allow_null=True)
    measured_until = Instant(allow_null=True)
    an_hour_mgpus = serializers.IntegerField(allow_null=True)
    held_mgpus = serializers.IntegerField()
    rest_mgpus = serializers.IntegerField(allow_null=True, help_text="From now to its end")
    cannot = serializers.CharField(help_text="Why it can't be extended now; empty: ask")


class ExtensionOut(serializers.Serializer[Any]):
    """More time that somebody asked for, and what came of it."""

    asked_by = serializers.CharField(source="extension.asked_by.username")
    asked_at = Instant(source="extension.asked_at")
    more_s = serializers.IntegerField(source="extension.asked_s")
    ended_at = Instant(source="extension.ended_at", help_text="When it would have ended before")
    asked_until = Instant(source="extension.asked_until")
    granted = serializers.BooleanField(source="extension.is_granted")
    rule = serializers.CharField(source="extension.rule", help_text="That refused it, or nothing")
    refusal = serializers.CharField(source="sentence")
    again = serializers.IntegerField(
        source="extension.again", help_text="How often it was refused so again to the same person"
    )
    last_at = Instant(source="extension.last_at", help_text="When it was asked for last")


class WaitedOut(serializers.Serializer[Any]):
    """A rule that bound an attempt, for how long in all, and its particulars when it last did."""

    attempt = serializers.IntegerField()
    rule = serializers.CharField()
    text = serializers.SerializerMethodField(help_text="The rule in a few words")
    first_at = Instant(help_text="Of the first cycle that told it")
    seconds = serializers.SerializerMethodField(help_text="In all, up to now while it binds")
    binds = serializers.SerializerMethodField(help_text="It does now")
    data = serializers.SerializerMethodField()  # type: ignore[assignment]

    def get_text(self, wait: Wait) -> str:
        return queue.told_waited(queue.why_waited(wait.job, wait, self.context["names"]))

    def get_seconds(self, wait: Wait) -> int:
        return job_waits.seconds_of(wait, now=self.context["now"])

    def get_binds(self, wait: Wait) -> bool:
        return wait.since is not None

    def get_data(self, wait: Wait) -> dict[str, Any]:
        return queue.particulars(wait.data, self.context["names"])


class JobDetailOut(JobOut):
    """A job with all that is known of it."""

    dependencies = serializers.SerializerMethodField(help_text="Ids, of those that one may see")
    service = serializers.SerializerMethodField()
    runs = RunOut(many=True)
    charges = serializers.SerializerMethodField()
    outlook = serializers.SerializerMethodField()
    waited = serializers.SerializerMethodField(help_text="What has bound it, in order")
    forecasts = ForecastOut(many=True)
    events = EventOut(many=True)
    time_box = serializers.SerializerMethodField(help_text="Of a session that waits or runs")
    extensions = serializers.SerializerMethodField(help_text="Asked for a session")

    class Meta(JobOut.Meta):
        fields = (  # type: ignore[assignment]
            *JobOut.Meta.fields,
            *("command", "spec", "work", "dependencies", "idempotency_key", "progress_s"),
            *(
                "service",
                "runs",
                "charges",
                "outlook",
                "waited",
                "forecasts",
                "events",
                "time_box",
                "extensions",
            ),
        )

    def get_dependencies(self, job: Job) -> list[int]:
        held = self.context["names"].held
        return [one.pk for one in job.dependencies.all() if held.sees(one.budget.path)]

    @extend_schema_field(ServiceOut(allow_null=True))
    def get_service(self, job: Job) -> dict[str, Any] | None:
        return dict(ServiceOut(job.service).data) if job.is_realtime else None

    @extend_schema_field(ChargesOut)
    def get_charges(self, job: Job) -> dict[str, Any]:
        return ChargesOut().to_representation(reports.job_charges(job=job))

    @extend_schema_field(TimeBoxOut(allow_null=True))
    def get_time_box(self, job: Job) -> dict[str, Any] | None:
        user, names, now = (self.context[name] for name in ("user", "names", "now"))
        box = pages.time_box(job, user=user, held=names.held, now=now)
        return None if box is None else TimeBoxOut().to_representation(box)

    @extend_schema_field(ExtensionOut(many=True))
    def get_extensions(self, job: Job) -> list[dict[str, Any]]:
        asked = session.told(job, self.context["names"].held, now=self.context["now"])
        return [ExtensionOut().to_representation(one) for one in asked]

    @extend_schema_field(WaitedOut(many=True))
    def get_waited(self, job: Job) -> list[dict[str, Any]]:
        shown = WaitedOut(context=self.context)
        return [shown.to_representation(wait) for wait in job.waits.all()]

    @extend_schema_field(WaitOut(allow_null=True))
    def get_outlook(self, job: Job) -> dict[str, Any] | None:
        outlook = self.outlook_of(job)
        if outlook is None:
            return None
        context = {**self.context, "told": self.told_of(job)}
        return WaitOut(context=context).to_representation(outlook)
