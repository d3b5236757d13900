"""Makes the cluster that a configuration is for."""

from __future__ import annotations

from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.cluster_config import ClusterConfig, DockerClusterConfig, LocalClusterConfig
from barrier_tck.harness.cluster.local_cluster import LocalCluster
from barrier_tck.harness.support.errors import UsageError


def cluster_of(config: ClusterConfig) -> Cluster:
    """Make the cluster that a configuration is for; nothing is started."""
    if isinstance(config, DockerClusterConfig):
        # Only here: without containers there is no need for a client of their engine.
        from barrier_tck.harness.cluster.containers.docker_cluster import DockerCluster

        return DockerCluster(config)
    if isinstance(config, LocalClusterConfig):
        return LocalCluster(config)
    raise UsageError(f"{type(config).__name__} is no configuration of a kind of cluster.")
