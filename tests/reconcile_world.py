"""Books with every kind of entry in them, over two periods, and ways to write into them unseen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from allocator import steering
from budgets.models import Budget, Period
from clusters.models import Node, Pool
from ledger import services
from tests.factories import (
    HOUR,
    LONG_AGO,
    T0,
    TIMESTEP,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_shares,
    make_tree,
    someone,
)
from tests.ledger_world import CREDIT, close, log_gpus
from workloads import services as workloads
from workloads.models import Job, Run

MINUTE = timedelta(minutes=1)
BORDER, END = T0 + HOUR, T0 + 2 * HOUR
SCIENCE, VISION = "orlo/science", "orlo/vision"
PETREL, AUK, TERN = f"{SCIENCE}/petrel", f"{SCIENCE}/auk", f"{VISION}/tern"


@dataclass
class Books:
    """A run of petrel's goes on; auk's was unfunded; tern's was killed; a job of tern's waits."""

    tree: dict[str, Budget]
    pool: Pool
    nodes: list[Node]
    first: Period
    second: Period
    long: Run
    free: Run
    killed: Run
    waiting: Job


def make_books() -> Books:
    """Two periods with a carry-over between them, of which the first is closed; holds, top-ups,
    charges, a refund in each period, transfers, a change of shares and a move; sound.
    """
    tree, pool = make_tree(at=LONG_AGO), make_pool("h100")
    nodes = make_nodes(pool, 2)
    planned: dict[str, Any] = {"status": "approved", "capacity": {pool: 3600 * 1000}}
    first = make_period("first", ends_at=BORDER, **planned)
    second = make_period("second", starts_at=BORDER, carry_over_cap=25_000, **planned)
    services.start_period(period=first, at=T0)
    long = _running(tree[PETREL], nodes[0], 0xFF, hold=8)
    killed = _running(tree[TERN], nodes[1], 0b111100, hold=4)
    free = make_run(
        make_job(tree[AUK], minimum_runtime_s=0, state=Job.State.RUNNING),
        {nodes[1]: 0b11},
        funded=False,
    )
    waiting = make_job(tree[TERN])
    services.place_hold(job=waiting, amount_mgpus=8 * CREDIT, now=T0)
    for node, held in zip(nodes, (0xFF, 0b111111), strict=True):
        log_gpus(node, LONG_AGO)
        log_gpus(node, T0, held=held)
    books = Books(tree, pool, nodes, first, second, long, free, killed, waiting)
    _give(tree[PETREL], tree[TERN], 10 * MINUTE)
    close(2)
    services.start_period(period=second, at=BORDER)
    services.close_period(period=first, at=BORDER)
    _second_hour(books)
    return books


def _second_hour(books: Books) -> None:
    tree, node = books.tree, books.nodes[1]
    _cover([books.long, books.killed], BORDER)
    _give(tree[PETREL], tree[AUK], HOUR + 5 * MINUTE)
    at = BORDER + 15 * MINUTE
    _end(books.killed, "node_failure", at)
    log_gpus(node, at, held=0b11)
    at = BORDER + TIMESTEP
    close(1, since=BORDER)
    _cover([books.long], at)
    _end(books.free, "completed", at)
    log_gpus(node, at)
    change = make_shares(tree["orlo"], {tree[SCIENCE]: 50_000, tree[VISION]: 50_000}, at=at)
    services.apply_change_set(change_set=change, now=at)
    steering.move_budget(
        budget=tree[AUK], to=tree[VISION], share=25_000, siblings={tree[TERN]: 75_000},
        author=someone(), reason="theirs", now=at + 10 * MINUTE,
    )  # fmt: skip
    close(1, since=at)
    _cover([books.long], END)


def _running(budget: Budget, node: Node, mask: int, *, hold: int) -> Run:
    job = make_job(budget, state=Job.State.RUNNING, gpus=mask.bit_count())
    services.place_hold(job=job, amount_mgpus=hold * CREDIT, now=T0)
    return make_run(job, {node: mask})


def _cover(runs: list[Run], at: datetime) -> None:
    assert not services.cover(runs=runs, start=at, end=at + TIMESTEP, now=at)


def _end(run: Run, reason: str, at: datetime) -> None:
    workloads.end_run(run=run, reason=reason, at=at)
    services.release_rest(job=run.job, attempt=1, at=at, now=at)


def _give(source: Budget, target: Budget, after: timedelta) -> None:
    services.transfer(
        source=source, target=target, amount_mgpus=4 * CREDIT, author=someone(), note="a deadline",
        key=f"{source.slug}-{target.slug}", now=T0 + after,
    )  # fmt: skip


@contextmanager
def past_triggers() -> Iterator[None]:
    """Let a test change what the database keeps from being changed, in its transaction."""
    tables = ("ledger_entry", "ledger_closedtimestep")
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            for verb in ("DISABLE", "ENABLE"):
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # or events are pending
                for table in tables:
                    cursor.execute(f"ALTER TABLE {table} {verb} TRIGGER USER")
                if verb == "DISABLE":
                    cursor.execute(
                        "ALTER TABLE ledger_entry DROP CONSTRAINT parked_within_held"
                    )  # rolled back with the test
                    yield
            return
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = [
            row for row in cursor.fetchall() if f" ON {tables[0]}" in row[1] or tables[1] in row[1]
        ]
        for name, _ in triggers:
            cursor.execute(f'DROP TRIGGER "{name}"')
        cursor.execute("PRAGMA ignore_check_constraints = ON")
        yield
        cursor.execute("PRAGMA ignore_check_constraints = OFF")
        for _, sql in triggers:
            cursor.execute(sql)
