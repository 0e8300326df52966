"""A database that isn't migrated: one sentence instead of what its tables lack."""

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

SENTENCE = "The database is older than this version: run `manage.py migrate`, then try again."


def is_behind() -> bool:
    """Say whether migrations wait to be applied; False where the database doesn't answer."""
    try:
        executor = MigrationExecutor(connection)
        return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError:
        return False
