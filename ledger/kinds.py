"""What each kind of entry adds to a budget's figures: to granted, to settled, to what is held."""

from ledger.models import Entry

Kind = Entry.Kind
GRANTED = (Kind.GRANT, Kind.CARRY, Kind.TRANSFER)
SETTLES = {Kind.CHARGE: 1, Kind.REFUND: -1, Kind.ADJUST: 1}
HOLDS = {Kind.HOLD: 1, Kind.RELEASE: -1}
