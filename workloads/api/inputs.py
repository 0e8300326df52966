"""What the API takes for a job, and how it becomes a specification."""

from dataclasses import fields
from typing import Any

from django.utils.translation import gettext_lazy
from rest_framework import serializers

from config.fields import LARGEST_INTEGER, Boolean, Integer, Json, Strict, Text
from workloads.models import Job
from workloads.specs import MAX_SECONDS, JobSpec

LARGEST_ID = 2**63 - 1


class JobIn(Strict):
    """What to run, for whom, on how many GPUs. Seconds and GPUs are whole numbers.

    A real-time service gives `profile` and `swap_cap` in place of `gpus`.
    """

    budget = Text(help_text="Path of a project, such as orlo/science/petrel")
    name = Text()
    kind = Text(help_text="training, batch_inference, quantization or realtime")
    gpus = Integer(required=False, allow_null=True, help_text="A power of two")
    pools = serializers.ListField(child=Text(), required=False, help_text="Any, if left out")
    minimum_runtime_s = Integer(required=False, allow_null=True)
    resumable = Boolean(required=False)
    urgency = Text(required=False, help_text="low, normal or high: sorts inside its budget only")
    expected_duration_s = Integer(required=False, allow_null=True)
    time_limit_s = Integer(required=False, allow_null=True)
    when_unfunded = Text(required=False, help_text="wait or run")
    command = Text(required=False, allow_blank=True)
    spec = Json(required=False)
    work = Json(
        required=False, allow_null=True, help_text="What it computes: features of docs/forecasting"
    )
    dependencies = serializers.ListField(
        child=Integer(min_value=1, max_value=LARGEST_ID), required=False, help_text="Ids of jobs"
    )
    idempotency_key = Text(
        required=False,
        allow_null=True,
        help_text="Also as header Idempotency-Key: the same request again answers the same job",
    )
    profile = serializers.ListField(child=Integer(), required=False, help_text="GPUs per step")
    step_minutes = Integer(required=False)
    time_zone = Text(required=False)
    swap_cap = Integer(required=False, allow_null=True)
    session = Boolean(
        required=False, help_text="Somebody works in it: protected for its time limit, extensible"
    )


class ExtensionIn(Strict):
    """How much longer a session is to last."""

    more_s = Integer(min_value=60, max_value=MAX_SECONDS, help_text="Seconds more, from 60")
    idempotency_key = Text(
        required=False,
        allow_null=True,
        help_text="Also as header Idempotency-Key: the same request again extends it once",
    )


class UrgencyIn(Strict):
    """How urgent a job is to be among those of its budget."""

    urgency = serializers.ChoiceField(
        choices=Job.Urgency.choices,
        error_messages={"invalid_choice": gettext_lazy("Give low, normal or high.")},
        help_text="low, normal or high: sorts inside its budget only",
    )


class JobQuery(Strict):
    """Which jobs to list, and which page of them."""

    budget = Text(required=False, help_text="Path: its jobs and those of all below it")
    state = serializers.MultipleChoiceField(choices=Job.State.choices, required=False)
    mine = serializers.BooleanField(default=False)
    page = serializers.IntegerField(required=False, min_value=1, max_value=LARGEST_INTEGER)
    page_size = serializers.IntegerField(required=False, min_value=1, max_value=1000)


def spec_from(given: dict[str, Any]) -> JobSpec:
    """Return what was asked, with the specification's own defaults for what was not."""
    lists = {field.name for field in fields(JobSpec) if str(field.type).startswith("tuple")}
    asked: dict[str, Any] = {k: tuple(v) if k in lists else v for k, v in given.items()}
    return JobSpec(**asked)
