"""Decisions about jobs, nodes, simulations and reviews, and what the administration keeps."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db.models import F, QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from allocator.audit.rows import Asked, Reader, Row
from allocator.models import Simulation
from allocator.review_models import ReviewRecord
from budgets.access import simulated_q, visible_q
from clusters.models import NodeState, WindowEvent
from clusters.words import worded
from workloads.models import DECIDED, Job, JobEvent

WRITTEN_OUT = ", ".join(f"'{kind}'" for kind in DECIDED)


class Jobs(Reader):
    """What people did to jobs: cancelled, extended, sorted otherwise."""

    name, kind, actor, budget = "jobs", "jobs", "actor", "job__budget__"

    def base(self, asked: Asked) -> QuerySet[JobEvent]:
        rows = JobEvent.objects.filter(visible_q(asked.user, "job__budget__"))
        # In the statement itself: of values that are bound SQLite can't tell that they are those
        # of the index, and reads all that ever happened.
        rows = rows.extra(where=[f"workloads_jobevent.kind IN ({WRITTEN_OUT})"])
        return rows.select_related("job__budget", "actor")

    def by_people(self, wanted: QuerySet[Any], people: list[int]) -> QuerySet[Any]:
        """By a number that no index has: what else somebody did, submit above all, is far more."""
        return wanted.alias(doer=F("actor_id") + 0).filter(doer__in=people)

    def row(self, one: JobEvent, asked: Asked) -> Row:
        words = {
            "cancelled": _("cancelled %(name)s, which waited"),
            "cancel_requested": _("cancelled %(name)s, which ran"),
            "extended": _("extended %(name)s"),
            "urgency": _("changed the urgency of %(name)s"),
        }[one.kind] % {"name": f"{one.job.budget.slug}/{one.job.name}"}
        moves: tuple[tuple[str, str, str], ...] = ()
        if one.kind == "urgency":
            before, after = (Job.Urgency(one.data[when]).label for when in ("before", "after"))
            moves = (("", worded(before).lower(), worded(after).lower()),)
        if one.kind == "extended":
            moves = ((_("more"), "", f"{one.data['more_s'] // 60} min"),)
        url = reverse("job", args=[one.job_id])
        return self.tell(one, words, moves=moves, budget=one.job.budget.path, url=url)


class Windows(Reader):
    name, kind = "windows", "windows"

    def base(self, asked: Asked) -> QuerySet[WindowEvent]:
        return WindowEvent.objects.select_related("by")

    def row(self, one: WindowEvent, asked: Asked) -> Row:
        words = {
            "set": _("set a window of maintenance for %(nodes)s"),
            "changed": _("changed the window of maintenance of %(nodes)s"),
            "ended": _("ended the window of maintenance of %(nodes)s"),
            "called_off": _("called off the window of maintenance of %(nodes)s"),
        }[one.kind]
        shown = ", ".join(one.nodes[:3]) + (f" + {len(one.nodes) - 3}" if one.nodes[3:] else "")
        url = reverse("window", args=[one.window_id])
        return self.tell(one, words % {"nodes": shown}, reason=one.reason, url=url)


class Nodes(Reader):
    """What clusters told of their nodes: nobody's decision, but what decisions answer."""

    name, kind, actor = "nodes", "nodes", ""

    def base(self, asked: Asked) -> QuerySet[NodeState]:
        return NodeState.objects.select_related("node")

    def row(self, one: NodeState, asked: Asked) -> Row:
        down = one.state == NodeState.State.DOWN
        words = _("%(name)s went down") if down else _("%(name)s is up")
        url = f"{reverse('nodes')}?whole=1#node-{one.node.name}"
        return self.tell(one, words % {"name": one.node.name}, reason=one.reason, url=url)


class Simulations(Reader):
    name, kind, at, actor = "simulations", "simulations", "created_at", "asked_by"
    budget = "budget__"

    def base(self, asked: Asked) -> QuerySet[Simulation]:
        rows = Simulation.objects.filter(simulated_q(asked.user))
        rows = rows.select_related("budget", "asked_by")
        return rows.only(
            *("id", "name", "asked_by", "created_at", "trace_name"),
            *("budget__path", "budget__name", "asked_by__username"),
            *("asked_by__first_name", "asked_by__last_name"),
        )

    def row(self, one: Simulation, asked: Asked) -> Row:
        text = _("asked for a simulation for %(name)s") % {"name": one.budget.name}
        url = reverse("simulation", args=[one.pk])
        return self.tell(one, text, reason=one.name, budget=one.budget.path, url=url)


class Reviews(Reader):
    name, kind, at, actor, budget = "reviews", "reviews", "kept_at", "kept_by", "budget__"

    def base(self, asked: Asked) -> QuerySet[ReviewRecord]:
        rows = ReviewRecord.objects.filter(visible_q(asked.user, "budget__"))
        return rows.select_related("budget", "period", "kept_by").defer("pack", "differences")

    def row(self, one: ReviewRecord, asked: Asked) -> Row:
        held = _("held the review of %(name)s for %(period)s")
        corrected = _("corrected the review of %(name)s for %(period)s")
        words = {"name": one.budget.name, "period": one.period.name}
        return self.tell(
            one,
            (held if one.version == 1 else corrected) % words,
            reason=one.reason or one.decision,
            budget=one.budget.path,
            url=reverse("review", args=[one.period_id, one.budget.path]),
        )


class Administration(Reader):
    """What was changed on the pages of Django's administration, for administrators."""

    name, kind, at, actor = "administration", "settings", "action_time", "user"

    def base(self, asked: Asked) -> QuerySet[LogEntry] | None:
        if not asked.administers:
            return None
        return LogEntry.objects.select_related("user", "content_type")

    def row(self, one: LogEntry, asked: Asked) -> Row:
        words = {1: _("added the %(what)s %(name)s"), 2: _("changed the %(what)s %(name)s")}.get(
            one.action_flag, _("deleted the %(what)s %(name)s")
        )
        model: Any = one.content_type.model_class() if one.content_type else None
        what = str(model._meta.verbose_name) if model else ""
        text = words % {"what": what, "name": one.object_repr}
        return self.tell(one, text, reason=one.get_change_message())


class Tokens(Reader):
    """Tokens for the API: one's own, and to administrators everybody's."""

    name, kind, at, actor, number = "tokens", "people", "auth_token__created", "pk", "id"

    def base(self, asked: Asked) -> QuerySet[User]:
        rows = User.objects.filter(auth_token__isnull=False).select_related("auth_token")
        return rows if asked.administers else rows.filter(pk=asked.user.pk or 0)

    def row(self, one: Any, asked: Asked) -> Row:
        at = one.auth_token.created
        return Row(at, self.name, one.pk, self.kind, one, _("was given a token for the API"))
