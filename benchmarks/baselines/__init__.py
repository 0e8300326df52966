"""What a plan is compared with: four planners that know nothing of budgets.

Each is a pure function from a problem to a legal plan. They never stop a run under way, and give
every job the earliest start its rule allows, on the lowest GPUs.

| planner | real time | order |
|---|---|---|
| `fifo` | peaks reserved | the file's |
| `conservative` | along its curve | arrival, then the file's; each has a reservation |
| `easy` | along its curve | the same; only the head of the queue has one |
| `priority_first` | along its curve | priority, then arrival, then the file's |
"""

from .backfill import conservative, easy
from .first_in import fifo
from .priority import priority_first

__all__ = ["conservative", "easy", "fifo", "priority_first"]
