"""Doing something for each of many rows, so that one that fails holds up none of the others."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from budgets.refusals import Refused

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Stuck(Exception):
    """Some of many could not be done, and all others were: ``done`` is what those came to.

    ``problems`` is a sentence for each that could not; it is tried again the next time.
    """

    def __init__(self, done: Any, problems: list[str]) -> None:
        super().__init__(" ".join(problems))
        self.done, self.problems = done, problems


class Tries:
    """Tries one after another and keeps what went wrong. ``said``: errors that are sentences."""

    def __init__(self, *said: type[Exception]) -> None:
        self.said = said
        self.problems: list[str] = []

    def go(self, what: str, act: Callable[[], T]) -> T | None:
        """Return what an act returns; None where it fails. An act is a transaction of its own.

        ``what`` begins the sentence of a failure, such as 'Request 7 can't end'.
        """
        try:
            return act()
        except Stuck as stuck:
            self.problems += stuck.problems
            done: T = stuck.done  # what the act would have returned
            return done
        except Exception as error:
            self.problems.append(self._sentence(what, error))
        return None

    def end(self, done: T) -> T:
        """Return what is done, or raise Stuck with it where something could not be."""
        if self.problems:
            raise Stuck(done, self.problems)
        return done

    def _sentence(self, what: str, error: Exception) -> str:
        if isinstance(error, Refused):
            return f"{what}: {error.sentence}"
        if isinstance(error, self.said):
            return f"{what}: {error}"
        logger.error(what, exc_info=error)
        return f"{what} ({type(error).__name__}): the log says why."
