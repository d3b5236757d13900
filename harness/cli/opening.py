"""Opens the system that a command runs plans on, and closes it whatever happens."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.configuration import ClusterSection
    from barrier_tck.harness.system.system_under_test import SystemUnderTest


@contextlib.contextmanager
def opened(name: str, cluster: ClusterSection | None = None) -> Iterator[SystemUnderTest]:
    """Open a system and close it at the end; closing is not cut short by another Ctrl-C."""
    from barrier_tck.harness.system.system_names import open_system

    system = open_system(name)
    try:
        if cluster is not None:
            use_cluster = getattr(system, "use_cluster", None)
            if use_cluster is None:
                raise UsageProblem(f"{name} runs on no cluster of its own; remove the section [cluster]")
            use_cluster(**msgspec.structs.asdict(cluster))
        prepare = getattr(system, "prepare", None)
        if prepare is not None:
            # Before anything is written: an environment that cannot run it leaves no half of a run directory.
            with Console(stderr=True).status(f"starting {name}"):
                prepare()
        yield system
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            system.close()
        finally:
            signal.signal(signal.SIGINT, before)
