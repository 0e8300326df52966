"""Nodes as people write many of them: ``h100-n[01-08,12] b200-n01, b200-n02``."""

import re
from collections.abc import Iterator

from clusters.saying import number
from clusters.saying import say as _

MOST = 10_000  # names of one list
_TOKEN = re.compile(r"(?:[^\s,;\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"^(.*?)\[([^\[\]]*)\](.*)$", re.DOTALL)


class WrongList(ValueError):
    """The list can't be read; the text says what to change."""


def expand(text: str) -> list[str]:
    """Return the names in a list, each once, in its order.

    They are parted by blanks, commas or semicolons; ``[01-08,12]`` stands for each number, with as
    many digits as its first one has. Raises WrongList.
    """
    if text.count("[") != text.count("]"):
        raise WrongList(_("A bracket is not closed: write ranges as in h100-n[01-08]."))
    rest = _TOKEN.sub("", text)
    if "[" in rest or "]" in rest:
        raise WrongList(_("Brackets don't nest: write ranges as in h100-n[01-08]."))
    names: dict[str, None] = {}
    for token in _TOKEN.findall(text):
        for name in _names(token):
            names[name] = None
            if len(names) > MOST:
                raise WrongList(
                    _("These are more than %(most)s nodes: name fewer.", most=number(MOST))
                )
    return list(names)


def _names(token: str) -> Iterator[str]:
    found = _RANGE.match(token)
    if found is None:
        yield token
        return
    before, inside, after = found.groups()
    for digits in _numbers(inside):
        for end in _names(after) if after else ("",):
            yield f"{before}{digits}{end}"


def _numbers(inside: str) -> Iterator[str]:
    for part in inside.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not all(n.isascii() and n.isdigit() and len(n) <= 9 for n in (first, last)):
            raise WrongList(
                _(
                    "[%(inside)s] is no range of numbers: write it as in h100-n[01-08].",
                    inside=inside,
                )
            )
        if int(last) < int(first):
            raise WrongList(
                _("[%(inside)s] runs backwards: write the lower number first.", inside=inside)
            )
        for index in range(int(first), int(last) + 1):
            yield str(index).zfill(len(first))
