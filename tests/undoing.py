"""Many cases in one test, each on the rows that the test began with."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction


@contextmanager
def undone() -> Iterator[None]:
    """Take back what is written meanwhile, as the end of a test does."""
    block: Any = transaction.atomic()
    block._from_testcase = True  # durable blocks inside are as good as outermost
    with block:
        yield
        transaction.set_rollback(True)
