"""The ledger's writers: nothing else writes an Entry."""

from ledger.charges import close_timestep
from ledger.holds import (
    HoldResult,
    Orphan,
    cover,
    hold_amount,
    place_hold,
    place_holds,
    release_rest,
    sweep_holds,
)
from ledger.instants import LedgerError
from ledger.refunds import refund_run
from ledger.segments import Segment, segments

__all__ = [
    "HoldResult",
    "LedgerError",
    "Orphan",
    "Segment",
    "close_timestep",
    "cover",
    "hold_amount",
    "place_hold",
    "place_holds",
    "refund_run",
    "release_rest",
    "segments",
    "sweep_holds",
]
