"""The ledger's writers: nothing else writes an Entry."""

from ledger.by_hand import (
    Change,
    Effect,
    Kind,
    Written,
    entries_by_hand,
    note_by_hand,
    preview_by_hand,
    read_credits,
    write_by_hand,
)
from ledger.charges import close_timestep
from ledger.grants import KeyTaken, Side, WrongNote, adjust, grant, preview_transfer, transfer
from ledger.holds import (
    HoldResult,
    Orphan,
    cover,
    hold_amount,
    hold_amounts,
    place_hold,
    place_holds,
    release_rest,
    sweep_holds,
)
from ledger.instants import LedgerError
from ledger.periods import (
    NotChargedYet,
    PeriodStart,
    apply_due_change_sets,
    close_period,
    start_period,
    withdraw_period,
)
from ledger.refunds import refund_run, settle_late_end
from ledger.requests import (
    decline_request,
    end_due,
    grant_request,
    place_of_decision,
    place_of_transfer,
)
from ledger.rollups import rebuild as rebuild_rollups
from ledger.segments import Segment, segments
from ledger.share_changes import Foreseen, apply_change_set, foresee

__all__ = [
    "Change",
    "Effect",
    "Foreseen",
    "HoldResult",
    "KeyTaken",
    "Kind",
    "LedgerError",
    "NotChargedYet",
    "Orphan",
    "PeriodStart",
    "Segment",
    "Side",
    "Written",
    "WrongNote",
    "adjust",
    "apply_change_set",
    "apply_due_change_sets",
    "close_period",
    "close_timestep",
    "cover",
    "decline_request",
    "end_due",
    "entries_by_hand",
    "foresee",
    "grant",
    "grant_request",
    "hold_amount",
    "hold_amounts",
    "note_by_hand",
    "place_hold",
    "place_holds",
    "place_of_decision",
    "place_of_transfer",
    "preview_by_hand",
    "preview_transfer",
    "read_credits",
    "rebuild_rollups",
    "refund_run",
    "release_rest",
    "segments",
    "settle_late_end",
    "start_period",
    "sweep_holds",
    "transfer",
    "withdraw_period",
    "write_by_hand",
]
