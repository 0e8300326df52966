"""A day that was played, and one of everything that a page can be about; and more of it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User

from allocator import maintenance
from allocator.models import Alarm, Cycle, StartEstimate, Wait
from allocator.reviews import commenting
from allocator.simulating import asking, running
from budgets import services
from budgets.models import ChangeSet, Decision, FormerName, Notice
from forecasting.models import Forecast
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_day import NOW, Day, play
from workloads.models import Job, JobEvent


@dataclass
class Everything:
    """What was played, who sees all of it, and what addresses of pages are about, by name."""

    day: Day
    user: User
    numbers: dict[str, Any]


def everything() -> Everything:
    """Play it and add the rest; the pages' clock must stand at NOW."""
    day = play()
    place, tree = day.place, day.place.tree
    user = make.make_user("ines", is_staff=True, is_superuser=True)
    make.make_role(user, tree["orlo"], "manager")
    petrel = place.petrel
    period = place.period
    checkpoint = make.make_checkpoint(period, NOW + 20 * HOUR * 24, [(20, 80)])
    exemption = checkpoint.exemptions.create(
        budget=petrel, reason="why", asked_by=make.someone(), asked_at=T0
    )
    request = make.make_request(petrel, unit="credits", asked=1, asked_by=place.user)
    make.tell(user, petrel, now=NOW)
    span: dict[str, Any] = {
        "starts_at": NOW + HOUR,
        "ends_at": NOW + 6 * HOUR,
        "reason": "firmware",
    }
    window = maintenance.set_window(nodes=place.nodes[:1], by=user, now=NOW, **span)
    said = commenting.add(budget=petrel, period=period, author=user, text="why", now=NOW)
    draft = services.draft_change_set(
        parent=tree["orlo/science"],
        shares={petrel: 30_000, place.auk: 20_000},
        reason="why",
        author=user,
        base_version=1,
        effective_at=NOW + 24 * HOUR,
        now=NOW,
    )
    proposal = services.propose(change_set=draft, now=NOW)
    Alarm.objects.create(kind="unreachable:mainland", raised_at=NOW, text="timed out")
    service = place.serve(place.tern, NOW)
    trace: dict[str, Any] = {"window": (T0, NOW), "by": user, "now": NOW}
    asking.ask(**trace, policies=["fairshare", "fifo"])
    played = running.run_next(clock=lambda: NOW)
    assert played is not None
    numbers = {
        "user": user,
        "person": place.user.pk,
        "cycle": Cycle.objects.latest("pk").pk,
        "job": day.jobs["fold"].pk,
        "waiting": day.jobs["stars"].pk,
        "preempted": day.jobs["storm"].pk,
        "service": service.pk,
        "window": window.pk,
        "node": place.nodes[0].pk,
        "comment": said.pk,
        "change_set": proposal.pk,
        "period": period.pk,
        "checkpoint": checkpoint.pk,
        "exemption": exemption.pk,
        "request": request.pk,
        "notice": Notice.objects.filter(user=user).latest("pk").pk,
        "simulation": asking.ask(**trace).pk,
        "played": played.pk,
    }
    return Everything(day, user, numbers)


# --- More of it -----------------------------------------------------------------------------------


def grow(world: Everything, number: int) -> None:
    """Add so many more of everything that a page lists, but of what the addresses are about."""
    for _ in range(number):
        _grow_people(world)
        _grow_work(world)
    _grow_tree(world, number)


def _grow_people(world: Everything) -> None:
    place, user = world.day.place, world.user
    person = make.make_user()
    petrel, period = place.petrel, place.period
    make.make_role(person, petrel)
    make.make_role(person, place.tree["orlo/vision"], "viewer")
    decided: dict[str, Any] = {"decided_by": person, "decided_at": T0, "answer": "no"}
    make.make_request(petrel, status="declined", asked_by=person, **decided)
    make.make_request(place.auk, status="withdrawn", asked_by=person)
    make.tell(user, place.auk, now=NOW)
    for text in ("so", "why"):
        commenting.add(budget=petrel, period=period, author=person, text=text, now=NOW)
    about: dict[str, Any] = {"budget": petrel, "person": person, "by": person}
    Decision.objects.create(at=NOW, kind="role", subject="x", after="member", **about)
    FormerName.objects.create(budget=petrel, slug="old", name="Old", until=NOW, author=person)
    starts = NOW + timedelta(hours=20 + 2 * Decision.objects.count())
    maintenance.set_window(
        nodes=place.nodes[1:],
        by=person,
        now=NOW,
        starts_at=starts,
        ends_at=starts + HOUR,
        reason="disks",
    )
    Alarm.objects.create(kind=f"unreachable:{person.pk}", raised_at=NOW, text="timed out")
    checkpoint = make.make_checkpoint(period, starts + 30 * 24 * HOUR, [(10, 50)])
    checkpoint.exemptions.create(budget=place.auk, reason="why", asked_by=person, asked_at=T0)


def _grow_work(world: Everything) -> None:
    place, jobs = world.day.place, world.day.jobs
    person = User.objects.latest("pk")
    for budget in (place.petrel, place.tern):
        ended = make.make_job(budget, user=person, state="completed", ended_at=T0 + HOUR)
        run = make.make_run(ended, {place.nodes[1]: 1}, ended_at=T0 + HOUR)
        JobEvent.objects.create(job=ended, run=run, at=T0, kind="started", actor=person)
        scored = {"actual_s": 3000, "scored_at": NOW, "error_per_mille": 200, "inside": True}
        losses = dict.fromkeys(("loss_p10_ds", "loss_p50_ds", "loss_p90_ds"), 10)
        given = {"p10_s": 1000, "p50_s": 2000, "p90_s": 4000, "variant": f"v{ended.pk}"}
        for method in ("history", "declared"):
            made = {"job": ended, "made_at": T0, "method": method, "version": "1"}
            Forecast.objects.create(**made, **given, **scored, **losses, planned=method[0] == "h")
        StartEstimate.objects.create(
            **{"job": ended, "attempt": 1, "made_at": T0, "ahead_s": 60},
            **dict.fromkeys(("low", "likely", "high"), T0 + HOUR),
        )
        Wait.objects.create(
            **{
                "job": jobs["storm"],
                "attempt": 10 + Wait.objects.count(),
                "rule": "no_block",
                "seconds": 120,
            },
            **{"first_at": T0 + HOUR, "data": {}},
        )
        waits = make.make_job(budget, user=person, gpus=16, at=NOW)
        for one in ("stars", "fold"):
            jobs[one].dependencies.add(ended)
            waits.dependencies.add(jobs[one])
        for one in ("storm", "fold"):
            JobEvent.objects.create(job=jobs[one], at=NOW, kind="cancel_requested", actor=person)
            Job.objects.filter(pk=jobs[one].pk).update(gpus=8)


def _grow_tree(world: Everything, number: int) -> None:
    """Give science so many children more, each with a job that waits and a request."""
    tree = world.day.place.tree
    science, vision = tree["orlo/science"], tree["orlo/vision"]
    for parent in (science, vision):
        children = {one: 100 for one in parent.children.all()}
        children |= {make.make_budget(parent=parent): 100 for _ in range(number)}
        make.make_shares(parent, children, at=NOW)
        for child in children:
            make.make_job(child, at=NOW)
            if not child.requests.filter(status="open").exists():
                make.make_request(child, asked_by=make.make_user())
    both = {science: 50_000, vision: 40_000}
    make.make_shares(tree["orlo"], both, at=NOW)
    base = ChangeSet.objects.filter(parent=science, status="approved").latest("version")
    for _ in range(number):
        draft = services.draft_change_set(
            parent=science,
            shares={one: 200 for one in science.children.all()},
            reason="why",
            author=make.make_user(),
            base_version=base.version,
            effective_at=NOW + 30 * HOUR,
            now=NOW,
        )
        services.propose(change_set=draft, now=NOW)
