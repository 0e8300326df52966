"""What a checkpoint counts of each budget's grant: what was given, taken back, given back."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Q

from budgets import checkpoints
from budgets.core.checkpoints import given_back
from budgets.models import Checkpoint
from ledger.figures import GRANTED
from ledger.grants import GRANTS, TRANSFERS
from ledger.models import Entry

KEY = "takeback"  # of transfers: `takeback:<checkpoint>:<budget>`
MARK = f"{TRANSFERS}{KEY}:"
BY_HAND = (TRANSFERS, GRANTS)


@dataclass
class Award:
    """What one budget was granted in a period, in milli-GPU-seconds.

    ``given``: granted, transferred and carried over by an instant, but for what checkpoints moved;
    ``counted``: as much of it as was given before leads were told of the checkpoint; ``initial``:
    what was given at the first instant. ``taken``: by earlier checkpoints, less what they gave
    back. ``moves``: what came and went by hand and by them: instant, whether by them, amount.
    """

    given: int = 0
    before: int = 0
    initial: int = 0
    taken: int = 0
    first: datetime | None = None
    moves: list[tuple[datetime, bool, int]] = field(default_factory=list)

    @property
    def counted(self) -> int:
        return min(self.given, self.before)

    @property
    def returned(self) -> int:
        """What people gave back of what checkpoints took."""
        in_order = sorted(self.moves, key=lambda move: move[:2])
        return given_back([(by_checkpoint, amount) for _, by_checkpoint, amount in in_order])


def awards(*, checkpoint: Checkpoint, budgets: Iterable[int], at: datetime) -> Mapping[int, Award]:
    """Return what a checkpoint counts, by budget id, as it is known at an instant. Two queries.

    What earlier ones moved counts from their own instants, however late they were carried out.
    """
    until = min(at, checkpoints.told_from(checkpoint))
    instants = dict(checkpoint.period.checkpoints.values_list("pk", "at"))
    mine = Entry.objects.filter(period=checkpoint.period, budget__in=list(budgets))
    known = mine.filter(Q(at__lte=at) | Q(key__startswith=MARK), kind__in=GRANTED)
    found: Mapping[int, Award] = defaultdict(Award)
    rows = known.order_by("at", "pk").values_list("budget_id", "at", "key", "amount_mgpus")
    for budget_id, when, key, amount in rows:
        award = found[budget_id]
        if key.startswith(MARK):
            instant = instants[int(key.split(":")[2])]
            if instant < checkpoint.at:
                award.taken -= amount
                award.moves.append((instant, True, amount))
            continue
        award.first = award.first or when
        award.given += amount
        award.initial += amount if when == award.first else 0
        if when <= until:
            award.before += amount
            award.moves += [(when, False, amount)] if key.startswith(BY_HAND) else []
    return found
