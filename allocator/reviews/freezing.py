"""Packs as JSON and back: dataclasses as objects, tuples as lists, instants as ISO 8601.

What a record lacks, since it is older than the field, is the field's default or None; what the code
no longer knows is left out. So a record can be read as long as names keep their meaning.
"""

from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ledger.instants import iso

T = TypeVar("T")


def frozen(value: Any) -> Any:
    """Return a dataclass (or a value of one) as what JSON can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: frozen(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, (list, tuple)):
        return [frozen(one) for one in value]
    return iso(value) if isinstance(value, datetime) else value


def thawed(kind: type[T], data: Any) -> T:
    """Return the dataclass that was frozen."""
    found: T = _value(kind, data)
    return found


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(kind: Any, data: Any) -> Any:
    if data is None:
        return None
    if isinstance(kind, UnionType):
        return _value(next(one for one in get_args(kind) if one is not NoneType), data)
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        if inner[-1] is Ellipsis:
            return tuple(_value(inner[0], one) for one in data)
        return tuple(_value(one, item) for one, item in zip(inner, data, strict=True))
    if is_dataclass(kind):
        return _object(kind, data)
    return datetime.fromisoformat(data) if kind is datetime else data


def _object(kind: Any, data: dict[str, Any]) -> Any:
    hints, given = _hints(kind), {}
    for one in fields(kind):
        if one.name in data:
            given[one.name] = _value(hints[one.name], data[one.name])
        elif one.default is MISSING and one.default_factory is MISSING:
            given[one.name] = () if get_origin(hints[one.name]) is tuple else None
    return kind(**given)
