"""Structural targets: what a deployment hands to an injector, which knows nothing else of the system."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class ProcessTarget(Protocol):
    """A process, or a simulated one, that can be killed."""

    @property
    def description(self) -> str:
        """Return a phrase for the fault log, for instance ``executor 2 (pid 4711) on 127.0.0.3``."""

    def kill(self, lose_unsynced: bool = False) -> None:
        """Kill it at once and return when it is dead; raises TargetGone if it was already."""

    def is_dead(self) -> bool:
        """Tell whether it is dead: the proof that the fault fired."""


class Targets(Protocol):
    """What a deployment exposes at this moment. A method returns None for what it cannot expose."""

    def executor_of(self, subtask: str) -> ProcessTarget | None:
        """Return the executor that hosts a subtask now."""

    def worker_of(self, subtask: str) -> ProcessTarget | None:
        """Return the process that runs a subtask now."""

    def coordinator(self) -> ProcessTarget | None:
        """Return the coordinator."""


class TargetGone(Exception):
    """The target was already dead when the fault was to hit it."""
