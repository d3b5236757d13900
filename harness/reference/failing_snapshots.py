"""Lets the synchronous part of a subtask's snapshots fail, at the last operator of its chain (both worlds)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.instrumented import DriverParts, MakeDriver, with_driver_instrument
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import Operator
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.runtime_errors import StorageError


class Failures(Protocol):
    """Which snapshots fail, said by one process and asked by another."""

    def add(self, subtask: str, times: int) -> None:
        """Let so many more of a subtask's snapshots fail."""

    def take(self, subtask: str) -> bool:
        """Return whether the snapshot that a subtask takes now is to fail, and count it then."""

    def taken(self, subtask: str) -> int:
        """Return how many have failed."""


@dataclass
class FailuresInMemory:
    """Of subtasks in this process."""

    _left: dict[str, int] = field(default_factory=dict)
    _taken: dict[str, int] = field(default_factory=dict)

    def add(self, subtask: str, times: int) -> None:
        self._left[subtask] = self._left.get(subtask, 0) + times

    def take(self, subtask: str) -> bool:
        if not self._left.get(subtask):
            return False
        self._left[subtask] -= 1
        self._taken[subtask] = self.taken(subtask) + 1
        return True

    def taken(self, subtask: str) -> int:
        return self._taken.get(subtask, 0)


@dataclass(frozen=True)
class FailuresDirectory:
    """Of subtasks in other processes: one file for each failure, which its subtask takes away by renaming it."""

    path: str

    def add(self, subtask: str, times: int) -> None:
        before = len(self._files(subtask, "*"))
        for number in range(before, before + times):
            Path(self.path, f"{_name(subtask)}-{number}.due").touch()

    def take(self, subtask: str) -> bool:
        for due in self._files(subtask, "due"):
            try:
                os.replace(due, due.with_suffix(".taken"))
            except FileNotFoundError:  # an older process of the subtask was quicker
                continue
            return True
        return False

    def taken(self, subtask: str) -> int:
        return len(self._files(subtask, "taken"))

    def _files(self, subtask: str, suffix: str) -> list[Path]:
        return sorted(Path(self.path).glob(f"{_name(subtask)}-*.{suffix}"))


def _name(subtask: str) -> str:
    return quote(subtask, safe="")


@dataclass(frozen=True)
class FailingSnapshots:
    """The snapshots of one subtask; implements ``barrier_tck.faults.targets.SnapshotsTarget``."""

    failures: Failures
    subtask: str

    @property
    def description(self) -> str:
        return f"snapshots of {self.subtask}"

    def fail(self, times: int) -> Callable[[], bool]:
        before = self.failures.taken(self.subtask)
        self.failures.add(self.subtask, times)
        return lambda: self.failures.taken(self.subtask) > before


def _that_may_fail(parts: DriverParts, make: MakeDriver, failures: Failures) -> SubtaskDriver:
    """Return a driver whose snapshots can fail."""
    driver = make(parts)
    if driver.operators:
        _let_fail(driver.operators[-1], str(parts.deployment.subtask), failures)
    return driver


def _let_fail(operator: Operator, subtask: str, failures: Failures) -> None:
    """Change the operator itself, and put nothing around it: what else it can do is asked of it."""
    snapshot = operator.snapshot

    def failing(checkpoint: CheckpointId) -> Any:
        if failures.take(subtask):
            raise StorageError(
                f"cannot capture the state of {subtask} for checkpoint {checkpoint}: no memory"
            )
        return snapshot(checkpoint)

    operator.snapshot = failing  # type: ignore[method-assign]


def fails_snapshots(plan: TrialPlan) -> bool:
    """Return whether a plan lets snapshots fail."""
    return any(scheduled.fault.needs is TargetKind.SNAPSHOTS for scheduled in plan.faults)


def with_failing_snapshots(components: Components, failures: Failures | None) -> Components:
    """Return the components with drivers whose snapshots can fail; None: unchanged."""
    if failures is None:
        return components
    return with_driver_instrument(components, partial(_that_may_fail, failures=failures))
