"""What was learned from jobs that ran: the correction that is in force for each kind of work."""

import hashlib
import logging
from dataclasses import dataclass
from functools import lru_cache

from forecasting.core.correction import Correction
from forecasting.core.kinds import KINDS
from forecasting.core.storing import Unreadable, unpack
from forecasting.models import Estimator

logger = logging.getLogger(__name__)
LOADED = 8  # corrections that a process keeps


@dataclass(frozen=True)
class InForce:
    """A correction, and the version under which what it says is kept."""

    correction: Correction
    version: str

    @property
    def corrects(self) -> bool:
        return self.correction.model is not None


def in_force(kind: str) -> InForce:
    """Return what estimates of a kind are corrected by; nothing learned: physics alone.

    One query, and one more the first time that this process meets a version. One that this code
    can't read corrects nothing.
    """
    method = KINDS[kind].version
    rows = Estimator.objects.filter(kind=kind, method=method, state=Estimator.State.ACTIVE)
    row = rows.values_list("pk", "number", "digest").first()
    if row is not None:
        pk, number, digest = row
        try:
            return InForce(loaded(pk, digest), f"{method}/{number}")
        except Unreadable as error:
            logger.error("Estimator %s of %s: %s Physics alone.", number, kind, error)
    return InForce(Correction(0, None, {}, ()), method)


@lru_cache(maxsize=LOADED)
def loaded(pk: int, digest: str) -> Correction:
    """Return a version's correction, read once per process; raises Unreadable."""
    data = bytes(Estimator.objects.values_list("parameters", flat=True).get(pk=pk))
    if hashlib.sha256(data).hexdigest() != digest:
        raise Unreadable("The parameters aren't those that were kept.")
    return unpack(data)
