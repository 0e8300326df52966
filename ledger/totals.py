"""Adding up whole numbers in the database."""

from typing import Any

from django.db.models import Sum


class Total(Sum):
    """A sum of integers, as the integer it is; 0 of nothing.

    PostgreSQL adds up big integers to decimals, which its driver reads from text and Django turns
    into integers again: of hundreds of budgets in hundreds of days that took longer than the
    sums. What is beyond an integer is an error, as on SQLite.
    """

    empty_result_set_value = 0
    convert_value = staticmethod(Sum._convert_value_noop)  # type: ignore[attr-defined]

    def as_sql(self, *given: Any, **extra: Any) -> Any:
        sql, values = super().as_sql(*given, **extra)
        return f"COALESCE({sql}, 0)", values

    def as_postgresql(self, *given: Any, **extra: Any) -> Any:
        sql, values = super().as_sql(*given, **extra)
        return f"COALESCE(CAST({sql} AS bigint), 0)", values
