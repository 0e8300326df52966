"""How Allotment sees and drives a cluster. One module per kind of cluster."""

from clusters.connectors.base import Connector
from clusters.connectors.simulated import SimulatedConnector
from clusters.models import Cluster

KINDS: dict[str, type[SimulatedConnector]] = {"simulated": SimulatedConnector}


def connector_for(cluster: Cluster) -> Connector:
    """The connector that a cluster names. Raises KeyError for a kind that isn't installed."""
    return KINDS[cluster.connector](cluster)
