"""What a checkpoint takes back: integers in, an integer out, rounded down in the budget's favour.

A checkpoint holds a table of steps "used less than X % of something: remove Y % of something".
The first step that applies counts. Fields say what is measured and what is removed; the tables of
several centres are worked out in docs/takeback.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from budgets.core.plans import WHOLE

MOST_STEPS = 10


class Step(NamedTuple):
    """Used less than ``below`` of what is measured: ``remove``; thousandths of a percent."""

    below: int
    remove: int


@dataclass(frozen=True, slots=True)
class Rule:
    """``measured``: used is compared with what was "planned" to date, or with what is "granted".

    ``removed_of``: what is planned to date ("planned"), granted − used ("remaining"), or planned
    to date − used ("unused"). ``cumulative``: the table says what is taken in all by this and
    earlier checkpoints, of the grant as it was before them; else it says what is taken now, of
    the grant as they left it.
    """

    measured: str
    removed_of: str
    cumulative: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One budget at a checkpoint, in milli-GPU-seconds.

    ``granted``: with what earlier checkpoints of the period took (``taken``) gone already.
    ``planned``: which part of the grant is planned to be used by the checkpoint, 0 to 1.
    """

    granted: int
    taken: int
    planned: Fraction


@dataclass(frozen=True, slots=True)
class Finding:
    """What a checkpoint finds: ``step`` is the one that applies, ``due`` what is to be taken."""

    planned: int
    measured: int
    step: Step | None
    due: int


def fault(steps: Sequence[Step]) -> str | None:
    """Say what is wrong with a table; None: nothing. Who uses more may never lose more."""
    if not 0 < len(steps) <= MOST_STEPS:
        return f"Give the checkpoint 1 to {MOST_STEPS} steps."
    if not all(0 < step.below <= WHOLE and 0 < step.remove <= WHOLE for step in steps):
        return "A step has two percents, each above 0 and at most 100.000 %."
    if any(a.below >= b.below or a.remove <= b.remove for a, b in pairwise(steps)):
        return "Order the steps: each further one below a higher percent, and removing less."
    return None


def find(rule: Rule, case: Case, *, used: int) -> Finding:
    """Return what a checkpoint takes of a budget that has used so much; never below 0."""
    award = max(0, case.granted + (case.taken if rule.cumulative else 0))
    planned = int(award * case.planned)
    measured = planned if rule.measured == "planned" else award
    step = next((one for one in rule.steps if used * WHOLE < one.below * measured), None)
    if step is None:
        return Finding(planned, measured, None, 0)
    of = {"planned": planned, "remaining": award - used, "unused": planned - used}
    total = max(0, of[rule.removed_of]) * step.remove // WHOLE
    due = total - (case.taken if rule.cumulative else 0)
    return Finding(planned, measured, step, max(0, due))


def least_use(rule: Rule, case: Case, *, used: int) -> int:
    """Return the least that must have been used by the checkpoint for it to take nothing.

    What is due never grows with use, so halving finds it; from the highest step on nothing is due.
    """
    low, high = used, max(used, find(rule, case, used=used).measured)
    while low < high:
        middle = (low + high) // 2
        if find(rule, case, used=middle).due:
            low = middle + 1
        else:
            high = middle
    return low
