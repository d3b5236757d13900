"""What a system may add to ``SystemUnderTest``: each protocol is one thing more that it can do, or say of itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class StartsSlowly(Protocol):
    """A system that starts something costly, a cluster for instance, before its first trial."""

    def prepare(self) -> None:
        """Start it now; raises EnvironmentProblem if this machine cannot run it.

        Called once all that was asked for is checked, and before anything is written.
        """


@runtime_checkable
class HasCluster(Protocol):
    """A system that starts a cluster of its own, whose shape the section ``[cluster]`` of a campaign file gives."""

    def use_cluster(
        self, workers: int, cores_per_worker: int, executor_memory_mb: int, master_port: int | None
    ) -> None:
        """Give the cluster another shape, before anything is started; raises UsageError if none can have it."""


@runtime_checkable
class KeepsLogs(Protocol):
    """A system whose processes write logs; they are kept with a trial that was not valid."""

    def keep_logs(self, directory: Path) -> None:
        """Copy the logs so far into a directory, which need not exist; raises OSError if they cannot be written."""


@runtime_checkable
class UsesFieldsOfPlans(Protocol):
    """A system that does not do everything that a plan can ask for.

    What it does not use is never drawn, and refused where somebody asks for it.
    """

    @property
    def uses(self) -> Collection[str]:
        """Return the fields of a plan that it uses, for instance ``restart`` or ``checkpoints.interval_ms``.

        The input (``workload`` but for its rate and start offset), faults and ``system`` are always used.
        """


@runtime_checkable
class TakesSettings(Protocol):
    """A system with settings of its own: the free table ``system`` of a plan, ``[system]`` in a campaign file."""

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise ValueError, with a sentence that names the key, for settings that it does not understand.

        Called with every plan before it runs, also with an empty table.
        """
