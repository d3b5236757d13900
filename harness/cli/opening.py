"""Opens the system that a command runs plans on, starts it, and closes it in any case."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barrier_tck.harness.cli.printing import VerdictConsole

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.configuration import ClusterSection
    from barrier_tck.harness.system.system_under_test import SystemUnderTest


@contextlib.contextmanager
def opened(name: str) -> Iterator[SystemUnderTest]:
    """Make a system, which is cheap, and close it at the end; another Ctrl-C does not interrupt the closing."""
    from barrier_tck.harness.system.system_names import open_system

    system = open_system(name)
    try:
        yield system
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            system.close()
        finally:
            signal.signal(signal.SIGINT, before)


def start(system: SystemUnderTest, cluster: ClusterSection | None = None) -> None:
    """Start what the system needs, after all checks and before anything is written.

    So if the system cannot run here, no half-written run directory is left.
    """
    from barrier_tck.harness.campaign.phase_progress import PhaseProgress
    from barrier_tck.harness.campaign.started_systems import choose_cluster, prepare
    from barrier_tck.harness.system.optional_interfaces import StartsSlowly

    choose_cluster(system, cluster)
    if isinstance(system, StartsSlowly):
        with PhaseProgress(VerdictConsole(stderr=True), system.name, slow=True) as progress:
            progress.show("starting")
            prepare(system)
