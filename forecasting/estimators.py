"""What was learned from jobs that ran: the correction that is in force for each kind of work."""

from dataclasses import dataclass

from forecasting.core.correction import Correction
from forecasting.core.kinds import KINDS


@dataclass(frozen=True)
class InForce:
    """A correction, and the version under which what it says is kept."""

    correction: Correction
    version: str

    @property
    def corrects(self) -> bool:
        return self.correction.model is not None


def in_force(kind: str) -> InForce:
    """Return what estimates of a kind are corrected by; nothing learned: physics alone."""
    return InForce(Correction(0, None, {}, ()), KINDS[kind].version)
