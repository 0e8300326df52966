"""Adding up whole numbers in the database."""

from typing import Any

from django.db.models import BigIntegerField, Func, Sum


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


class Signed(Func):
    """An amount as entries of its kind add it to a figure, or take it from that: 0 of others.

    ``Signed("kind", "amount_mgpus", signs=((kind, 1 or -1), …))``. The same as a Case, which
    Django puts together anew for each query, for longer than a database adds up.
    """

    output_field = BigIntegerField()

    def __init__(self, *columns: Any, signs: tuple[tuple[str, int], ...]) -> None:
        super().__init__(*columns)
        self.signs = signs

    def as_sql(self, compiler: Any, connection: Any, *given: Any, **extra: Any) -> Any:
        (kind, _), (amount, _) = map(compiler.compile, self.source_expressions)
        cases = " ".join(f"WHEN '{name}' THEN {sign} * {amount}" for name, sign in self.signs)
        return f"CASE {kind} {cases} ELSE 0 END", []
