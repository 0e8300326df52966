"""Up to when it is known what runs held: before that nothing can be charged or closed for good."""

from datetime import UTC, datetime

from clusters.models import Cluster
from workloads.models import Run, Service

NOTHING = datetime.min.replace(tzinfo=UTC)


def known_until(*, at: datetime) -> datetime:
    """Up to when every cluster has told what its runs held, at most ``at``: a charge can't be
    taken back, and a closed period neither.

    While one with live runs can't be reached, or has yet to confirm another set of GPUs that may
    be in use already, timesteps stay open.
    """
    if Service.objects.filter(pending__isnull=False, job__runs__state=Run.State.RUNNING).exists():
        return NOTHING
    driven = Cluster.objects.filter(pools__runs__state__in=Run.LIVE).distinct()
    seen = driven.values_list("observed_until", flat=True)
    return min([at, *(until or NOTHING for until in seen)])
