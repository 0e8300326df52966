"""The own history as the simulate command's trace."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from allocator.core.events import Events
from allocator.core.problem import BudgetNode, Node
from allocator.core.simulation.setup import nodes_of
from allocator.core.traces import Trace
from allocator.core.validate import ProblemError
from allocator.simulating import history, trees
from allocator.simulating.history import Past
from budgets.refusals import Refused
from config.clock import now


@dataclass(frozen=True)
class OwnHistory:
    """What the command needs of a window."""

    trace: Trace
    nodes: tuple[Node, ...]
    tree: tuple[BudgetNode, ...]
    seconds: int
    events: Events
    past: Past

    @classmethod
    def of(cls, options: dict[str, Any]) -> Self:
        """Read the window that the options name. Raises ProblemError."""
        start, end = map(_instant, options["history"])
        at = now()
        tree = trees.at_instant(at, history.pool_gpus(at=at))
        nodes = nodes_of(options["nodes"]) if options["nodes"] else None
        try:
            past = history.read(start=start, end=end, now=at, leaves=tree.leaves, nodes=nodes)
        except Refused as refused:
            raise ProblemError(refused.sentence) from None
        return cls(past.trace, past.nodes, tree.nodes, past.seconds, past.events, past)


def _instant(text: str) -> datetime:
    """Read a day or an instant of UTC, whole seconds."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.microsecond or (at.tzinfo is None and len(text) > len("2026-11-01")):
        raise ProblemError(
            f"{text!r} is no instant: give a day as in 2026-11-01, or 2026-11-01T12:00:00Z."
        )
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
