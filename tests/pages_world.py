"""What the tests of pages share: a period with grants, a day of runs, and reading HTML."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from budgets.models import Budget, Period
from clusters.models import Node, Pool
from clusters.templatetags.allotment import job_number
from ledger import services as ledger
from tests import factories as make
from tests.ledger_world import close
from workloads.models import Job

T0, HOUR = make.T0, make.HOUR


@dataclass
class World:
    """The tree of tests.factories.TREE on 16 GPUs of a pool, granted for the quarter."""

    tree: dict[str, Budget]
    pool: Pool
    nodes: list[Node]
    period: Period


def granted(tree: dict[str, Budget], *, ends_at: datetime = make.T1) -> World:
    """Start a period, the quarter if nothing else is said: every budget gets its share."""
    pool = make.make_pool("h100")
    nodes = make.make_nodes(pool, 2)
    seconds = 16 * int((ends_at - T0).total_seconds())
    period = make.make_period(status="approved", ends_at=ends_at, capacity={pool: seconds})
    ledger.start_period(period=period, at=T0)
    return World(tree, pool, nodes, period)


def ran(world: World, path: str, *, hours: int = 2, node: int = 0, since: datetime = T0) -> None:
    """Have a budget hold one node of 8 GPUs for some hours."""
    job = make.make_job(world.tree[path], state="completed")
    until = since + timedelta(hours=hours)
    make.make_run(job, {world.nodes[node]: 0xFF}, started_at=since, ended_at=until)


def closed(until: datetime) -> None:
    """Close every timestep up to an instant."""
    close((until - T0) // make.TIMESTEP)


def at(monkeypatch: pytest.MonkeyPatch, instant: datetime) -> None:
    """Let the pages' clock stand at an instant."""
    own = tuple(
        f"budgets.views{name}" for name in ("", ".asked", ".by_hand", ".diffs", ".names", ".places")
    )
    for module in ("config.shell", "config.views", "allocator.views.reviews", *own, "ledger.views"):
        monkeypatch.setattr(f"{module}.now", lambda: instant)


def client_of(user: User | None) -> Client:
    client = Client()
    if user is not None:
        client.force_login(user)
    return client


def text_of(response: Any) -> str:
    """Return what a reader reads: without tags, spaces made one."""
    html = re.sub(r"<(script|style).*?</\1>", " ", response.content.decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


def number_of(job: Job) -> str:
    """Return a job's number as `text_of` and `cells` give it."""
    return " ".join(job_number(job.pk).split())


def cells(response: Any, name: str) -> list[str]:
    """Return the cells of the table row that names something, as text.

    Without the link that moves a budget, and what it was called.
    """
    html = re.sub(r'<(a|span) class="(place-link|was)".*?</\1>', "", response.content.decode())
    for row in re.findall(r"<tr.*?</tr>", html, flags=re.DOTALL):
        texts = [
            " ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split())
            for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, flags=re.DOTALL)
        ]
        if texts and texts[0] == name:
            return texts
    raise AssertionError(f"no row of {name}")


def queries(client: Client, url: str) -> int:
    with CaptureQueriesContext(connection) as caught:
        assert client.get(url).status_code == 200
    return len(caught)
