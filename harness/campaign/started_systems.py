"""Gives a system its cluster and starts it, on this machine or wherever its trials run."""

from __future__ import annotations

from barrier_tck.harness.campaign.configuration import ClusterSection
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.optional_interfaces import HasCluster, StartsSlowly
from barrier_tck.harness.system.system_under_test import SystemUnderTest


def choose_cluster(system: SystemUnderTest, cluster: ClusterSection | None) -> None:
    """Give a system the cluster that a campaign asks for, before anything is started.

    Raises UsageProblem if it runs on none of its own.
    """
    if cluster is None:
        return
    if not isinstance(system, HasCluster):
        raise UsageProblem(
            f"{system.name} runs on no cluster of its own; remove the section [cluster], or --cluster"
        )
    system.use_cluster(cluster.config)


def prepare(system: SystemUnderTest) -> None:
    """Start what a system needs; raises EnvironmentProblem if this machine cannot run it."""
    if isinstance(system, StartsSlowly):
        system.prepare()
