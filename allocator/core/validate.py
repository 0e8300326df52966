"""One-sentence checks of single values, used by every self-validating dataclass of the core."""

import math


class CannotCompile(RuntimeError):
    """The planner can't be compiled on this machine; the text says what to change."""


class ProblemError(ValueError):
    """The planning problem is not usable; the message is one sentence that says what to change."""


def text(value: object, what: str) -> str:
    """A non-empty string that can be written to a file."""
    if not isinstance(value, str) or not value:
        raise ProblemError(f"{what} must be a non-empty text, not {shown(value)}.")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise ProblemError(f"{what} must hold no half surrogate, not {shown(value)}.")
    return value


def whole(value: object, what: str, low: int, high: int | None = None) -> int:
    """An integer in [low, high]; booleans and floats are refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProblemError(f"{what} must be a whole number, not {shown(value)}.")
    if value < low:
        raise ProblemError(f"{what} must be at least {low}, not {shown(value)}.")
    if high is not None and value > high:
        raise ProblemError(f"{what} must be at most {high}, not {shown(value)}.")
    return value


def number(value: object, what: str, low: float, high: float | None = None) -> float:
    """A finite real number in [low, high]; booleans, NaN and infinity are refused."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProblemError(f"{what} must be a number, not {shown(value)}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ProblemError(f"{what} must be finite, not {value}.")
    if value < low or (high is not None and value > high):
        limits = f"at least {low:g}" if high is None else f"between {low:g} and {high:g}"
        raise ProblemError(f"{what} must be {limits}, not {shown(value)}.")
    return value


def truth(value: object, what: str) -> bool:
    """True or false, nothing that merely behaves like it."""
    if not isinstance(value, bool):
        raise ProblemError(f"{what} must be true or false, not {shown(value)}.")
    return value


def texts(value: object, what: str) -> tuple[str, ...]:
    """A list of different non-empty strings."""
    if not isinstance(value, (list, tuple)):
        raise ProblemError(f"{what} must be a list of texts, not {shown(value)}.")
    if not value:
        return ()
    names = tuple(text(item, f"an entry of {what}") for item in value)
    if len(set(names)) < len(names):
        raise ProblemError(f"{what} must name each entry once.")
    return names


def wholes(value: object, what: str, low: int, high: int | None = None) -> tuple[int, ...]:
    """A list of integers in [low, high]."""
    if not isinstance(value, (list, tuple)):
        raise ProblemError(f"{what} must be a list of whole numbers, not {shown(value)}.")
    return tuple(whole(item, f"an entry of {what}", low, high) for item in value)


def no_duplicates(names: list[str], what: str) -> None:
    """Every name once; the message shows the first that comes twice."""
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ProblemError(f"{what} {name!r} is listed twice; give each its own name.")
        seen.add(name)


def shown(value: object) -> str:
    """A value as it may stand in a sentence: short and on one line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    line = repr(value).replace("\n", " ")
    return line if len(line) <= 60 else line[:57] + "..."
