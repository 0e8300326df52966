"""A database that isn't migrated: one sentence instead of what its tables lack."""

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

OLDER = "The database is older than this version: run `./run manage migrate`, then try again."
EMPTY = (
    "The database has no tables yet: run `./run manage migrate`, then try again "
    "(`./run` and `./run serve` do that by themselves)."
)


def what_to_run() -> str | None:
    """Say what a database needs that migrations wait for; None where it is another fault.

    So it is, too, where the database doesn't answer.
    """
    try:
        executor = MigrationExecutor(connection)
        if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return None
        return OLDER if executor.loader.applied_migrations else EMPTY
    except DatabaseError:
        return None
