"""What a checkpoint takes back: integers in, an integer out, rounded down in the budget's favour.

A checkpoint holds a table of steps "used less than X % of something: remove Y % of something".
The first step that applies counts. Fields say what is measured and what is removed; the tables of
several centres are worked out in docs/takeback.md.
"""

from collections.abc import Iterable, Sequence
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
    the grant as they left it. ``gives_back``: where that is less than they took, the rest is given
    back; only where it is cumulative.
    """

    measured: str
    removed_of: str
    cumulative: bool
    steps: tuple[Step, ...]
    gives_back: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One budget at a checkpoint, in milli-GPU-seconds.

    ``granted``: with what earlier checkpoints of the period took (``taken``, less what they gave
    back) gone already. ``planned``: which part of the grant is planned to be used by the
    checkpoint, 0 to 1. ``returned``: what people gave back of what was taken; it is in ``granted``
    again. ``initial``: what was granted first, where nothing else counts.
    """

    granted: int
    taken: int
    planned: Fraction
    returned: int = 0
    initial: int | None = None

    @property
    def missing(self) -> int:
        """What was taken and not given back."""
        return self.taken - self.returned

    @property
    def award(self) -> int:
        """The grant as it was before anything was taken, never below 0."""
        whole = self.granted + self.missing
        return max(0, whole if self.initial is None else min(whole, self.initial))


@dataclass(frozen=True, slots=True)
class Finding:
    """What a checkpoint finds: ``step`` is the one that applies, ``due`` what is to be taken,
    ``back`` what of earlier ones is to be given back."""

    planned: int
    measured: int
    step: Step | None
    due: int
    back: int = 0


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
    """Return what a checkpoint takes of a budget that has used so much, or gives back to it."""
    award = case.award if rule.cumulative else max(0, case.award - case.missing)
    planned = int(award * case.planned)
    measured = planned if rule.measured == "planned" else award
    step = next((one for one in rule.steps if used * WHOLE < one.below * measured), None)
    of = {"planned": planned, "remaining": award - used, "unused": planned - used}
    total = max(0, of[rule.removed_of]) * step.remove // WHOLE if step else 0
    due = max(0, total - (case.taken if rule.cumulative else 0))
    back = max(0, case.missing - total) if rule.gives_back else 0
    return Finding(planned, measured, step, due, back)


def given_back(moves: Iterable[tuple[bool, int]]) -> int:
    """Return how much of what checkpoints took was given back by people.

    ``moves`` in order of time: whether a checkpoint did it, and what came to the budget (< 0: left
    it). What people give makes up for what was taken first; what they take was what came last.
    """
    missing = back = more = 0
    for by_checkpoint, amount in moves:
        if by_checkpoint:
            missing = max(0, missing - amount)
        elif amount > 0:
            made_up = min(amount, missing)
            missing, back, more = missing - made_up, back + made_up, more + amount - made_up
        else:
            of_more = min(-amount, more)
            undone = min(-amount - of_more, back)
            missing, back, more = missing + undone, back - undone, more - of_more
    return back


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
