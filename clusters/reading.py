"""What a page asks more than once, asked once: as it was then, for all of its parts.

A page's parts are written apart, and each asks what it needs: up to when timesteps are closed, from
when a period has GPUs. Inside `reading` such a question is answered once, so that a page neither
asks a database for it again nor mixes two answers. Outside, and wherever anything is written, each
call asks anew.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Answer = TypeVar("Answer")
_known: ContextVar[dict[Any, Any] | None] = ContextVar("known", default=None)


@contextmanager
def reading() -> Iterator[None]:
    """Keep the answers of what is asked `once` until the end; inside another, until its end."""
    if _known.get() is not None:
        yield
        return
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def once(ask: Callable[P, Answer]) -> Callable[P, Answer]:
    """Have a function asked once inside `reading` for the same arguments, which can be hashed.

    What it returns is shared: nobody changes it.
    """

    @wraps(ask)
    def asked(*args: P.args, **kwargs: P.kwargs) -> Answer:
        known = _known.get()
        if known is None:
            return ask(*args, **kwargs)
        key = (ask, args, tuple(sorted(kwargs.items())))
        if key not in known:
            known[key] = ask(*args, **kwargs)
        return known[key]

    return asked
