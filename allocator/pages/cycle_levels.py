"""How budgets stood among their siblings as a cycle saw them: what sorts its turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from allocator.core.fairshare import budget_factors
from allocator.core.problem import Problem
from allocator.pages.names import Names
from budgets.hues import Hue
from budgets.models import WHOLE


@dataclass(frozen=True)
class Level:
    """A budget among its siblings as the cycle saw it: parts in thousandths of a percent."""

    path: str
    name: str
    hue: Hue
    depth: int
    part_of_shares: int | None
    part_of_usage: int | None
    level: float | None  # None: it has used nothing, and goes first
    has_shares: bool
    factor: float | None  # of a leaf: its place of all, 1 is first


def levels(problem: Problem, names: Names) -> list[Level]:
    """Return the budgets that the reader may see beside their siblings, depth first."""
    usage: dict[str, int] = {budget.path: budget.usage for budget in problem.budgets}
    below: dict[str, list[str]] = {}
    parents = {budget.path: budget.parent for budget in problem.budgets}
    shares = {budget.path: budget.shares for budget in problem.budgets}
    for path in sorted(parents, key=lambda one: -one.count("/")):
        above = parents[path]
        below.setdefault(above or "", []).append(path)
        if above is not None:
            usage[above] += usage[path]
    factors: Mapping[str, Fraction] = budget_factors(problem.budgets) if parents else {}
    found = []
    for path in sorted(parents):
        siblings = below[parents[path] or ""]
        if not names.sees(path):
            continue
        of_shares = _part(shares[path], sum(shares[one] for one in siblings))
        of_usage = _part(usage[path], sum(usage[one] for one in siblings))
        is_leaf = path not in below
        found.append(
            Level(
                path=path,
                name=names.name(path),
                hue=names.hue_of(path),
                depth=path.count("/"),
                part_of_shares=None if of_shares is None else round(of_shares * WHOLE),
                part_of_usage=None if of_usage is None else round(of_usage * WHOLE),
                level=float(of_shares / of_usage) if of_shares is not None and of_usage else None,
                has_shares=bool(of_shares),
                factor=float(factors[path]) if is_leaf and path in factors else None,
            )
        )
    return found


def _part(some: int, whole: int) -> Fraction | None:
    return Fraction(some, whole) if whole > 0 else None
